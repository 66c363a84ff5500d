"""The fast path inside a whole broker: it does the work, and a flush still comes first."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import socket
import time
from typing import TYPE_CHECKING

import pytest

from broker_harness import dispatched, ext, play, records
from roquet.broker.fastpath.admission import ROWS_AT_ONCE
from roquet.model.topic import MESSAGE_TYPES, TopicConfig
from roquet.remoting.codec import decode, encode
from roquet.store.results import Draft, PutStatus
from roquet.testing.cluster import send_command

if TYPE_CHECKING:
    from pathlib import Path

    from roquet.protocol.command import Command
    from roquet.testing.cluster import Cluster

HOST = bytes((127, 0, 0, 1, 0, 0, 0x2A, 0x9F))


async def some(it: Cluster, count: int) -> None:
    """Send messages that have all that a plain one has, and read them back."""
    assert (await it.send("orders")).code == 0  # Makes the topic.
    sends = [
        it.send("orders", b"m%d" % number, properties=f"UNIQ_KEY\x01U{number}\x02")
        for number in range(count)
    ]
    answers = await asyncio.gather(*sends)
    assert {answer.code for answer in answers} == {0}
    assert {ext(answer)["transactionId"] for answer in answers} == {f"U{n}" for n in range(count)}
    assert {int(ext(answer)["queueOffset"]) for answer in answers} == set(range(1, count + 1))
    await dispatched(it)
    await it.pull("orders")  # Makes the group.
    found = records(await it.pull("orders", 1))
    assert {record.body for record in found} <= {b"m%d" % number for number in range(count)}
    assert it.broker.path.native.counters()["sends"] == count
    assert it.broker.path.native.counters()["pulls"] == 1


def test_plain_messages_are_stored_there_and_read_there(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        await some(it, 100)
        assert it.broker.path.native.counters()["parked"] == 0

    play(tmp_path, tell)


def test_with_sync_flush_no_answer_comes_before_the_flush(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        await some(it, 100)
        native = it.broker.store.native
        assert native.flushed_offset() == native.max_physical_offset()
        assert it.broker.path.native.counters()["parked"] > 0

    play(tmp_path, tell, flushDiskType="SYNC_FLUSH")


@pytest.mark.parametrize("threads", ["0", "2"])
def test_a_lone_sender_is_synced_for_in_place_unless_that_is_forbidden(
    tmp_path: Path, threads: str
) -> None:
    async def one_by_one(it: Cluster, count: int) -> int:
        for number in range(count):
            answer = await it.send("orders", properties=f"UNIQ_KEY\x01U{number}\x02")
            assert answer.code == 0
        native = it.broker.store.native
        assert native.flushed_offset() == native.max_physical_offset()
        return it.broker.path.native.counters()["synced"]

    async def alone(it: Cluster) -> None:
        async with asyncio.timeout(60):
            while not await one_by_one(it, 20):
                pass

    async def never(it: Cluster) -> None:
        await one_by_one(it, 100)
        await asyncio.sleep(0.1)  # Two looks at the disk.
        assert await one_by_one(it, 20) == 0

    given = {"flushDiskType": "SYNC_FLUSH", "ioThreads": threads}
    play(tmp_path, alone, syncFlushInPlaceMicros="100000", **given)
    play(tmp_path, never, syncFlushInPlaceMicros="0", **given)


@pytest.mark.parametrize("threads", ["0", "2"])
def test_a_sync_in_place_counts_for_what_the_processors_stored(
    tmp_path: Path, threads: str
) -> None:
    async def tell(it: Cluster) -> None:
        assert (await it.send("orders")).code == 0  # Makes the topic.
        native = it.broker.store.native
        counters = it.broker.path.native.counters
        async with asyncio.timeout(60):
            while counters()["synced"] < 20:
                draft = Draft(
                    topic="orders",
                    queue_id=0,
                    body=b"other",
                    properties={},
                    born_timestamp=0,
                    born_host=HOST,
                    store_host=HOST,
                )
                put = asyncio.create_task(it.broker.store.put(draft))
                await asyncio.sleep(0)  # It is stored, and waits.
                answer = await it.send("orders", properties="UNIQ_KEY\x01U\x02")
                assert answer.code == 0
                assert (await put).status is PutStatus.PUT_OK
        assert native.flushed_offset() == native.max_physical_offset()

    given = {"flushDiskType": "SYNC_FLUSH", "ioThreads": threads}
    play(tmp_path, tell, syncFlushInPlaceMicros="100000", **given)


def test_it_can_be_switched_off(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        assert (await it.send("orders", properties="UNIQ_KEY\x01U\x02")).code == 0
        assert (await it.send("orders", properties="UNIQ_KEY\x01V\x02")).code == 0
        counters = it.broker.path.native.counters()
        assert (counters["sends"], counters["pulls"]) == (0, 0)

    play(tmp_path, tell, fastPathEnable="false")


async def held(it: Cluster, count: int) -> None:
    """Wait until so many pulls are held."""
    async with asyncio.timeout(20):
        while it.broker.path.held_pulls != count:  # noqa: ASYNC110
            await asyncio.sleep(0.002)


def long_poll(it: Cluster, offset: int, **fields: str) -> asyncio.Task[Command]:
    wanted = {"sysFlag": "6", "suspendTimeoutMillis": "15000", **fields}
    return asyncio.ensure_future(it.pull("orders", offset, **wanted))


def test_a_long_poll_waits_there_and_is_woken_by_its_message(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        await some(it, 1)
        waiting = [long_poll(it, 2) for _ in range(3)]
        await held(it, 3)
        await it.send("orders", b"news", properties="UNIQ_KEY\x01N\x02")
        found = await asyncio.gather(*waiting)
        assert [[record.body for record in records(answer)] for answer in found] == [[b"news"]] * 3
        assert it.broker.path.held_pulls == 0
        late = await long_poll(it, 3, suspendTimeoutMillis="50")
        assert (late.code, late.remark) == (19, "OFFSET_OVERFLOW_ONE")

    play(tmp_path, tell)


def test_a_held_pull_is_judged_by_the_rules_of_the_moment(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        await some(it, 1)
        waiting = long_poll(it, 2)
        await held(it, 1)
        topics = it.broker.metadata.topics
        topics.put(dataclasses.replace(topics.all()["orders"], perm=2))
        await it.send("orders", b"news", properties="UNIQ_KEY\x01N\x02")
        answer = await waiting
        assert (answer.code, ext(answer)["forbiddenType"]) == (16, "3")

    play(tmp_path, tell)


def test_the_bound_of_held_pulls_holds_for_both_ways_together(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        await some(it, 1)
        first = long_poll(it, 2)
        await held(it, 1)
        # A filter of its own is a matter of the processors when it comes for the first time.
        second = long_poll(it, 2, subscription="TagA")
        third = await long_poll(it, 2, subscription="TagB")
        fourth = await long_poll(it, 2)
        assert (third.code, fourth.code) == (19, 19)
        await it.send("orders", b"news", properties="UNIQ_KEY\x01N\x02TAGS\x01TagA\x02")
        assert {(await first).code, (await second).code} == {0}

    play(tmp_path, tell, heldPullsMax="2")


@pytest.mark.parametrize("threads", ["0", "1"])
def test_thousands_of_topics_that_change_at_once_are_admitted_bit_by_bit(
    tmp_path: Path, threads: str
) -> None:
    async def tell(it: Cluster) -> None:
        await some(it, 1)
        native = it.broker.path.native
        others = [TopicConfig(name=f"t{number}") for number in range(8 * ROWS_AT_ONCE)]
        it.broker.metadata.topics.put(*others)
        # Nobody is answered by a rule of yesterday: the processors serve until all is written.
        sent = native.counters()["sends"]
        answer = await it.send("orders", properties="UNIQ_KEY\x01X\x02")
        # Threads may answer by rows that did not change; those that do are taken back at once.
        before = native.counters()["sends"]
        assert (answer.code, before - sent) in {(0, 0), (0, int(threads))}
        sent = before
        async with asyncio.timeout(60):
            while native.counters()["sends"] == sent:
                assert (await it.send("t2", properties="UNIQ_KEY\x01Y\x02")).code == 0
        assert (await it.send("orders", properties="UNIQ_KEY\x01Z\x02")).code == 0
        assert native.counters()["sends"] == sent + 2

    play(tmp_path, tell, ioThreads=threads)


def blocked(seconds: float) -> None:
    """Keep the loop from everything, as a long computation does."""
    time.sleep(seconds)


@pytest.mark.parametrize(
    ("fast", "threads", "code"),
    # A thread that may answer it does so while the loop is busy.
    [("true", "0", 2), ("true", "1", 0), ("false", "1", 2)],
)
def test_send_that_waited_too_long_itself_is_refused_and_later_ones_are_taken(
    tmp_path: Path, fast: str, threads: str, code: int
) -> None:
    async def tell(it: Cluster) -> None:
        commands = [
            encode(send_command("orders", b"m", properties=f"UNIQ_KEY\x01{n}\x02"), opaque=n)
            for n in range(4)
        ]
        with contextlib.ExitStack() as stack:
            old, new = (
                stack.enter_context(
                    socket.create_connection(("127.0.0.1", it.broker.identity.port))
                )
                for _ in range(2)
            )
            for peer in (old, new):
                peer.settimeout(20)
                peer.sendall(commands[0])
                assert await asyncio.to_thread(answer_code, peer) == 0
            # One lies there while the loop is busy; the other comes at the end of that.
            old.sendall(commands[1])
            blocked(2.5)
            new.sendall(commands[2])
            codes = [await asyncio.to_thread(answer_code, peer) for peer in (old, new)]
            assert codes == [code, 0]
            old.sendall(commands[3])
            assert await asyncio.to_thread(answer_code, old) == 0

    # Far apart, since this machine may be slow to answer as well.
    limit = {"waitTimeMillsInSendQueue": "1500", "ioThreads": threads}
    play(tmp_path, tell, brokerFastFailureEnable="true", fastPathEnable=fast, **limit)


def test_lag_before_a_send_came_refuses_it_never(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        for number in range(4):
            blocked(0.25)
            answer = await it.send("orders", properties=f"UNIQ_KEY\x01{number}\x02")
            assert answer.code == 0

    play(tmp_path, tell, brokerFastFailureEnable="true")


def answer_code(peer: socket.socket) -> int:
    """Read one answer from a blocking socket."""
    data = b""
    while True:
        data += peer.recv(65536)
        commands, _ = decode(data)
        if commands:
            return commands[0].code


PLAIN = {"message.type": "NORMAL", "cleanup.policy": "DELETE", "topic.reserve.time": "-1"}


@pytest.mark.parametrize(
    ("attributes", "is_fast"),
    [
        (PLAIN, True),
        *(({"message.type": kind}, True) for kind in sorted(MESSAGE_TYPES)),
        ({"message.type": "LITE", "lite.topic.expiration": "30"}, True),
        ({"queue.type": "BatchCQ"}, False),
        ({"cleanup.policy": "COMPACTION"}, False),
        ({"unheard.of": "x"}, False),
    ],
)
def test_topics_are_fast_when_their_attributes_mean_nothing_for_plain_messages(
    tmp_path: Path, attributes: dict[str, str], is_fast: bool
) -> None:
    async def tell(it: Cluster) -> None:
        it.broker.metadata.topics.put(TopicConfig(name="typed", attributes=attributes))
        assert (await it.send("first")).code == 0  # The table is filled with what comes first.
        answers = [
            await it.send("typed", b"m", properties=f"UNIQ_KEY\x01U{n}\x02KEYS\x01k\x02")
            for n in range(3)
        ]
        assert {answer.code for answer in answers} == {0}
        assert it.broker.path.native.counters()["sends"] == (3 if is_fast else 0)

    play(tmp_path, tell)
