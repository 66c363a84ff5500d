"""Appends in sequence: each message of a producer's epoch is in its queue once."""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import re
import signal
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

import roquet
from broker_harness import dispatched, play, properties, records
from roquet.base.errors import OutcomeUnknown, Refused
from roquet.broker.api.refusal import Reason, Refusal
from roquet.broker.services.sequences.rules import PRODUCERS_MAX, Claim, Producers
from roquet.client import SequencedPart
from roquet.model.queue import MessageQueue
from roquet.protocol import properties as props
from roquet.protocol.codes import RequestCode, ResponseCode
from roquet.protocol.command import Command
from roquet.protocol.messages import batch
from roquet.protocol.messages.sequences import EXPIRY_MS, START, Stamp, chain, owner_of
from roquet.testing.cluster import send_command
from roquet.testing.process import BrokerProcess

if TYPE_CHECKING:
    from roquet.client import Sequences
    from roquet.protocol.messages.batch import Element
    from roquet.testing.cluster import Cluster

ROWS = 10_000
QUEUE = MessageQueue("orders", "broker-a", 0)


def elements(*numbers: int) -> list[Element]:
    return [(0, b"row %d" % number, b"UNIQ_KEY\x01u%d\x02" % number) for number in numbers]


def claim(rows: list[Element], *, epoch: int = 0, first: int = 0, producer: str = "p") -> Claim:
    links = chain(START, rows)
    before = links[first - 1] if first else START
    return Claim(producer, epoch, first, before, links[first:])


def noted(producers: Producers, made: Claim, *, now_ms: int = 0, skip: int = 0) -> None:
    for index in range(skip, len(made.links)):
        producers.note(made.stamp(index), end=index, queue_offset=index, stored_ms=now_ms)


# --- the rule --------------------------------------------------------------------------------


def test_a_request_that_was_stored_is_stored_no_more() -> None:
    producers, rows = Producers(), elements(*range(5))
    assert producers.judge(claim(rows), 0) == 0
    noted(producers, claim(rows))
    assert producers.judge(claim(rows), 0) == 5
    assert producers.judge(claim(rows[:3]), 0) == 3
    assert producers.judge(claim(elements(*range(8)), first=3), 0) == 2
    assert producers.judge(claim(elements(*range(8)), first=5), 0) == 0


@pytest.mark.parametrize(
    ("rows", "epoch", "first", "said"),
    [
        (elements(*range(8)), 7, 6, "leave a gap: the queue has 5"),
        (elements(*range(8)), 6, 0, "epoch 6 of producer p is over: it has begun 7"),
        (elements(9, 1, 2, 3, 4), 7, 0, "were others"),
        (elements(0, 1, 2, 3, 9), 7, 0, "were others"),
        (elements(0, 1, 2, 9, 4, 5, 6), 7, 5, "were others"),
        (elements(1, 2), 8, 1, "leave a gap: the queue has 0"),
    ],
)
def test_messages_that_contradict_what_is_stored_are_refused(
    rows: list[Element], epoch: int, first: int, said: str
) -> None:
    producers = Producers()
    noted(producers, claim(elements(*range(5)), epoch=7))
    with pytest.raises(Refusal, match=re.escape(said)) as refused:
        producers.judge(claim(rows, epoch=epoch, first=first), 0)
    assert refused.value.reason is Reason.ILLEGAL_OPERATION


def test_a_chain_that_does_not_begin_with_zeros_is_refused() -> None:
    links = chain(b"12345678", elements(1))
    with pytest.raises(Refusal, match="zeros"):
        Producers().judge(Claim("p", 0, 0, b"12345678", links), 0)


def test_a_new_epoch_begins_with_zero_and_ends_the_one_before() -> None:
    producers = Producers()
    noted(producers, claim(elements(1, 2), epoch=1))
    assert producers.judge(claim(elements(3), epoch=2), 0) == 0
    noted(producers, claim(elements(3), epoch=2))
    with pytest.raises(Refusal, match="is over"):
        producers.judge(claim(elements(1, 2), epoch=1), 0)


def test_producers_expire_and_are_bounded() -> None:
    producers, rows = Producers(), elements(1)
    for number in range(PRODUCERS_MAX):
        noted(producers, claim(rows, producer=f"p{number}"), now_ms=number)
    assert producers.judge(claim(rows, producer="p5"), EXPIRY_MS) == 1
    with pytest.raises(Refusal, match="which is the limit"):
        producers.judge(claim(rows, producer="one more"), EXPIRY_MS)
    assert producers.judge(claim(rows, producer="one more"), EXPIRY_MS + 5) == 0
    assert len(producers) == PRODUCERS_MAX - 5
    assert producers.get("p4", EXPIRY_MS + 5) is None


def test_a_stamp_counts_in_its_own_queue_alone() -> None:
    stamp = Stamp("p", 3, 17, b"abcdefgh")
    text = stamp.text("orders", 2)
    assert Stamp.read(text, "orders", 2) == stamp
    for other in (("orders", 1), ("order", 2), ("%RETRY%g", 0)):
        assert Stamp.read(text, *other) is None
    owned = stamp._replace(owner=owner_of("account-one"))
    assert Stamp.read(owned.text("orders", 2), "orders", 2) == owned != stamp
    for damaged in ("", text[1:], text[:-1], text.replace(".17.", ".18."), "p.x.1.2.3"):
        assert Stamp.read(damaged, "orders", 2) is None


class Run(NamedTuple):
    """One try of a task: how it cuts its rows into requests, and how many of them it sends."""

    rows: list[Element]
    cuts: list[int]


def drawn(rng: random.Random, rows: list[Element]) -> Run:
    cuts = sorted({0, len(rows), *(rng.randrange(len(rows) + 1) for _ in range(rng.randrange(6)))})
    return Run(rows, cuts if rng.random() < 0.5 else cuts[: rng.randrange(1, len(cuts) + 1)])


@pytest.mark.parametrize("seed", range(60))
def test_any_mix_of_tries_leaves_each_row_once(seed: int) -> None:
    """Speculative tries in turns, cut anew, that die midway; a broker that forgets its memory."""
    rng = random.Random(seed)
    rows = elements(*range(rng.randrange(1, 60)))
    log: list[tuple[Stamp, Element]] = []
    producers = Producers()
    tries = [drawn(rng, rows) for _ in range(rng.randrange(1, 6))] + [Run(rows, [0, len(rows)])]
    under_way = [iter(itertools.pairwise(run.cuts)) for run in tries]
    while under_way:
        at = rng.randrange(len(under_way))
        part = next(under_way[at], None)
        if part is None:
            under_way.pop(at)
            tries.pop(at)
            continue
        links = chain(START, tries[at].rows)
        first, end = part
        made = Claim("p", 0, first, links[first - 1] if first else START, links[first:end])
        try:
            stored = producers.judge(made, 0)
        except Refusal:
            # A try that was cut off begins anew, as the last one does.
            continue
        for index in range(stored, len(made.links)):
            log.append((made.stamp(index), tries[at].rows[first + index]))
            producers.note(made.stamp(index), end=0, queue_offset=len(log), stored_ms=0)
        if rng.random() < 0.2:
            producers = Producers()
            for offset, (stamp, _) in enumerate(log):
                producers.note(stamp, end=0, queue_offset=offset, stored_ms=0)
    assert [row for _, row in log] == rows


# --- a broker --------------------------------------------------------------------------------


async def sequences(it: Cluster) -> tuple[roquet.MQ, Sequences]:
    mq = roquet.connect(f"rmq://{it.name_servers}")
    await mq.start()
    return mq, mq.sequences("writers")


def part(
    rows: list[Element], *, epoch: int = 0, first: int = 0, end: int | None = None
) -> SequencedPart:
    before = chain(START, rows)[first - 1] if first else START
    return SequencedPart("orders", batch.encode(rows[first:end]), "p-1", epoch, first, before)


async def stored(it: Cluster, topic: str = "orders") -> list[bytes]:
    await dispatched(it)
    found: list[bytes] = []
    while got := records(await it.pull(topic, len(found))):
        found += [record.body for record in got]
    return found


def test_requests_may_be_repeated_over_restarts(tmp_path: Path) -> None:
    rows = elements(*range(600))

    async def first(it: Cluster) -> None:
        assert (await it.send("orders", b"ordinary")).code == 0
        mq, writer = await sequences(it)
        async with mq:
            assert (await writer.known(QUEUE, "p-1"))[:3] == (-1, 0, START)
            links = chain(START, rows)
            assert await writer.send(part(rows, end=200), QUEUE) == (200, links[199], 200)
            assert await writer.send(part(rows, end=200), QUEUE) == (200, links[199], 0)
            wider = part(rows, first=100, end=300)
            assert await writer.send(wider, QUEUE) == (300, links[299], 100)
        got = records(await it.pull("orders", 1))
        assert properties(got[0])["UNIQ_KEY"] == "u0"
        stamp = Stamp.read(properties(got[0])[props.SEQUENCE], "orders", 0)
        assert stamp == Stamp("p-1", 0, 0, chain(START, rows)[0])

    async def second(it: Cluster) -> None:
        mq, writer = await sequences(it)
        async with mq:
            known = await writer.known(QUEUE, "p-1")
            assert known[:3] == (0, 300, chain(START, rows)[299])
            last = chain(START, rows)[-1]
            assert await writer.send(part(rows, first=250), QUEUE) == (600, last, 300)
            # Far behind: which they were is for the sender to compare. Nothing is stored of them.
            assert await writer.send(part(elements(1, 2)), QUEUE) == (600, last, 0)
            with pytest.raises(Refused, match="were others") as refused:
                await writer.send(part([*rows[:599], *elements(1)], first=590), QUEUE)
            assert refused.value.code == ResponseCode.ILLEGAL_OPERATION
        assert await stored(it) == [b"ordinary", *(body for _, body, _ in rows)]

    play(tmp_path, first)
    play(tmp_path, second)


def test_many_tries_at_once_leave_each_row_once(tmp_path: Path) -> None:
    rows, rng = elements(*range(400)), random.Random(7)

    async def attempt(writer: Sequences, run: Run) -> None:
        for first, end in itertools.pairwise(run.cuts):
            appended = await writer.send(part(rows, first=first, end=end), QUEUE, 20.0)
            assert appended.chain == chain(START, rows)[appended.next - 1]

    async def tell(it: Cluster) -> None:
        assert (await it.send("orders", b"ordinary")).code == 0
        mq, writer = await sequences(it)
        async with mq, asyncio.TaskGroup() as tasks:
            for _ in range(12):
                tasks.create_task(attempt(writer, drawn(rng, rows)))
            tasks.create_task(attempt(writer, Run(rows, [0, 150, 400])))
        assert await stored(it) == [b"ordinary", *(body for _, body, _ in rows)]

    play(tmp_path, tell, flushDiskType="SYNC_FLUSH")


def test_a_copy_with_all_properties_is_an_ordinary_message(tmp_path: Path) -> None:
    """A consumer that forwards what it reads changes nothing of what the broker knows."""
    rows = elements(*range(3))

    async def tell(it: Cluster) -> None:
        assert (await it.send("orders", b"ordinary")).code == 0
        assert (await it.send("copies", b"ordinary")).code == 0
        mq, writer = await sequences(it)
        async with mq:
            await writer.send(part(rows), QUEUE)
            await dispatched(it)
            text = records(await it.pull("orders", 3))[0].properties.decode()
            for topic, queue_id in (("orders", 0), ("orders", 1), ("copies", 0)):
                answer = await it.send(topic, b"copy", queue_id=queue_id, properties=text)
                assert answer.code == 0

    async def anew(it: Cluster) -> None:
        mq, writer = await sequences(it)
        async with mq:
            assert (await writer.known(QUEUE, "p-1"))[:2] == (0, 3)
            for topic, queue_id in (("orders", 1), ("copies", 0)):
                other = MessageQueue(topic, "broker-a", queue_id)
                assert (await writer.known(other, "p-1"))[:2] == (-1, 0)

    play(tmp_path, tell)
    play(tmp_path, anew)


FORGED = Stamp("p-1", 9, 4, b"abcdefgh").text("orders", 0)
"""What somebody makes who may send to the topic: its check fits the queue."""


def test_nobody_forges_a_stamp(tmp_path: Path) -> None:
    rows = elements(*range(3))
    text = props.write({props.SEQUENCE: FORGED, "a": "b"})

    async def tell(it: Cluster) -> None:
        assert (await it.send("orders", b"sent", properties=text)).code == 0
        keyed = f"{text}UNIQ_KEY\x01u\x02"
        assert (await it.send("orders", b"keyed", properties=keyed)).code == 0
        delayed = f"{keyed}DELAY\x011\x02"
        assert (await it.send("orders", b"delayed", properties=delayed)).code == 0
        packed = batch.encode([(0, b"x", b"a\x01b\x02"), (0, b"y", text.encode())])
        answer = await it.send("orders", packed, m="true")
        assert (answer.code, answer.remark) == (
            ResponseCode.MESSAGE_ILLEGAL,
            "no message of a batch may have property ROQUET_SEQUENCE",
        )
        reply = send_command("orders", b"reply", properties=text)
        reply.code = RequestCode.SEND_REPLY_MESSAGE_V2
        assert "REPLY_TO_CLIENT" in str((await it.call(reply)).remark)
        mq, writer = await sequences(it)
        async with mq:
            assert (await writer.known(QUEUE, "p-1"))[:2] == (-1, 0)
            assert (await writer.send(part(rows), QUEUE)).added == 3
        first = [b"sent", b"keyed", b"reply"]
        assert await arrived(it, 7) == [*first, *(body for _, body, _ in rows), b"delayed"]
        for record in [*records(await it.pull("orders", 0)), *records(await it.pull("orders", 6))]:
            said = properties(record)
            assert (props.SEQUENCE in said) == record.body.startswith(b"row"), record.body
            assert said.get("a", "b") == "b"

    play(tmp_path, tell)


async def arrived(it: Cluster, count: int) -> list[bytes]:
    """Return the bodies of a queue once it has so many messages."""
    async with asyncio.timeout(60):
        while len(found := await stored(it)) < count:  # noqa: ASYNC110  (a broker's timer)
            await asyncio.sleep(0.05)
    return found


def test_a_topic_that_is_made_anew_begins_anew(tmp_path: Path) -> None:
    rows = elements(*range(3))

    async def tell(it: Cluster) -> None:
        mq, writer = await sequences(it)
        async with mq:
            for _ in range(2):
                assert (await it.send("orders", b"ordinary")).code == 0
                assert (await writer.send(part(rows), QUEUE)).added == 3
                doomed = Command(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "orders"})
                assert (await it.call(doomed)).code == 0
            with pytest.raises(Refused) as refused:
                await writer.known(QUEUE, "p-1")
            assert refused.value.code == ResponseCode.TOPIC_NOT_EXIST

    play(tmp_path, tell)


def test_what_cannot_be_in_sequence_is_refused(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        assert (await it.send("orders", b"ordinary")).code == 0
        good = {
            "topic": "orders",
            "queueId": "0",
            "bornTimestamp": "1",
            "producer": "p",
            "epoch": "0",
            "first": "0",
            "chain": "0" * 16,
        }
        body = batch.encode(elements(1))
        delayed = batch.encode([(0, b"x", b"DELAY\x013\x02")])
        stamped = batch.encode([(0, b"x", b"a\x01b\x02ROQUET_SEQUENCE\x01x\x02")])
        many = batch.encode(elements(*range(1001)))
        cases: list[tuple[dict[str, str], bytes, ResponseCode]] = [
            ({"queueId": "-1"}, body, ResponseCode.INVALID_PARAMETER),
            ({"queueId": "99"}, body, ResponseCode.INVALID_PARAMETER),
            ({"producer": "a b"}, body, ResponseCode.INVALID_PARAMETER),
            ({"producer": "x" * 33}, body, ResponseCode.INVALID_PARAMETER),
            ({"epoch": "-1"}, body, ResponseCode.INVALID_PARAMETER),
            ({"first": "-1"}, body, ResponseCode.INVALID_PARAMETER),
            ({"first": str((1 << 63) - 1)}, body, ResponseCode.INVALID_PARAMETER),
            ({"chain": "0" * 15}, body, ResponseCode.INVALID_PARAMETER),
            ({"chain": "00"}, body, ResponseCode.INVALID_PARAMETER),
            ({"topic": "nobody"}, body, ResponseCode.TOPIC_NOT_EXIST),
            ({"topic": "%RETRY%g"}, body, ResponseCode.TOPIC_NOT_EXIST),
            ({}, body[:-1], ResponseCode.MESSAGE_ILLEGAL),
            ({}, b"", ResponseCode.SYSTEM_ERROR),
            ({}, delayed, ResponseCode.MESSAGE_ILLEGAL),
            ({}, stamped, ResponseCode.MESSAGE_ILLEGAL),
            ({}, many, ResponseCode.MESSAGE_ILLEGAL),
            ({"first": "1"}, body, ResponseCode.ILLEGAL_OPERATION),
        ]
        for changes, sent, code in cases:
            answer = await it.call(Command(RequestCode.SEND_IN_SEQUENCE, {**good, **changes}, sent))
            assert answer.code == code, (changes, answer.remark)
            assert answer.remark
        assert await stored(it) == [b"ordinary"]
        answer = await it.call(Command(RequestCode.SEND_IN_SEQUENCE, good, body))
        assert answer.code == 0, answer.remark

    play(tmp_path, tell)


def test_a_slave_takes_nothing_and_tells_nothing(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        ext = {"topic": "orders", "queueId": "0", "producer": "p"}
        answer = await it.call(Command(RequestCode.GET_SEQUENCES, ext))
        assert answer.code == ResponseCode.SLAVE_NOT_AVAILABLE
        ext |= {"bornTimestamp": "1", "epoch": "0", "first": "0", "chain": "0" * 16}
        answer = await it.call(
            Command(RequestCode.SEND_IN_SEQUENCE, ext, batch.encode(elements(1)))
        )
        assert answer.code == ResponseCode.SLAVE_NOT_AVAILABLE

    play(tmp_path, tell, brokerRole="SLAVE", brokerId="1")


@pytest.mark.timeout(300)
def test_kill_9_between_append_and_answer_neither_loses_nor_doubles(tmp_path: Path) -> None:
    rows = elements(*range(250))
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}

    async def killed(first: int, end: int) -> None:
        broker = BrokerProcess(tmp_path, env=env, module="killed_after_append")
        async with broker.client() as it:
            assert (await it.send("orders", b"ordinary %d" % first)).code == 0
            with pytest.raises(OutcomeUnknown):
                await it.call(command(rows, first, end))
            assert broker.process is not None
            assert broker.process.wait(20) == -signal.SIGKILL

    async def main() -> None:
        for first, end in ((0, 100), (0, 150), (100, 200)):
            await killed(first, end)
        broker = BrokerProcess(tmp_path)
        try:
            async with broker.client() as it:
                answer = await it.call(command(rows, 150, 250))
                assert (answer.code, (answer.ext or {})["appended"]) == (0, "50")
                again = await it.call(command(rows, 0, 250))
                assert (again.code, (again.ext or {})["appended"]) == (0, "0")
                found: list[bytes] = []
                while len(found) < 253:
                    found += [it.body for it in records(await it.pull("orders", len(found)))]
        finally:
            broker.kill()
        bodies = [body for _, body, _ in rows]
        ends = [b"ordinary 0", b"ordinary 100"]
        assert [it for it in found if not it.startswith(b"ordinary")] == bodies
        assert found[:101] == [ends[0], *bodies[:100]]

    asyncio.run(main())


def part_ext(rows: list[Element], first: int) -> dict[str, str]:
    made = part(rows, first=first, end=first)
    return {
        "topic": made.topic,
        "queueId": "0",
        "bornTimestamp": "1",
        "producer": made.producer,
        "epoch": str(made.epoch),
        "first": str(made.first),
        "chain": made.chain.hex(),
    }


def command(rows: list[Element], first: int, end: int) -> Command:
    body = part(rows, first=first, end=end).body
    return Command(RequestCode.SEND_IN_SEQUENCE, part_ext(rows, first), body)


def test_what_is_too_long_for_the_log_has_the_queue_not_read_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Else one producer keeps the few reads of logs that all queues share."""
    rows = [*elements(0, 1, 2), (0, b"long", b"UNIQ_KEY\x01u3\x02k\x01" + b"v" * 32_740 + b"\x02")]

    async def tell(it: Cluster) -> None:
        assert (await it.send("orders", b"ordinary")).code == 0
        mq, writer = await sequences(it)
        async with mq:
            await writer.send(part(rows, end=3), QUEUE)
            await dispatched(it)
            for _ in range(3):
                with pytest.raises(Refused) as refused:
                    await writer.send(part(rows, first=3), QUEUE)
                assert refused.value.code == ResponseCode.MESSAGE_ILLEGAL
                assert (await writer.known(QUEUE, "p-1"))[:2] == (0, 3)

    with caplog.at_level("INFO", "roquet.broker.services.sequences.queues"):
        play(tmp_path, tell)
    assert "stamps read" not in caplog.text
