"""PRIORITY topics: which queue a message goes to, and in which order pops take them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from broker_harness import dispatched, ext, play, properties
from pop_harness import GROUP, TOPIC, pop
from roquet.protocol.codes import RequestCode
from roquet.protocol.command import Command
from roquet.store.records import read_records
from roquet.store.results import Draft, PutStatus

if TYPE_CHECKING:
    from pathlib import Path

    from roquet.testing.cluster import Cluster

RETRY = f"%RETRY%{GROUP}_{TOPIC}"


async def make(it: Cluster, kind: str = "PRIORITY", queues: int = 4) -> None:
    """Make the topic."""
    fields = {
        "topic": TOPIC,
        "readQueueNums": str(queues),
        "writeQueueNums": str(queues),
        "perm": "6",
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": "0",
        "order": "false",
        "attributes": f"+message.type={kind}",
        "defaultTopic": "TBW102",
    }
    assert (await it.call(Command(RequestCode.UPDATE_AND_CREATE_TOPIC, fields))).code == 0


async def set_group(it: Cluster, **attributes: str) -> Command:
    """Make or change the group."""
    body = json.dumps({"groupName": GROUP, "attributes": attributes}).encode()
    return await it.call(Command(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body))


async def send(it: Cluster, priority: str, **more: str) -> tuple[int, dict[str, str]]:
    """Send a message to queue 1; return the queue that it says, and its properties as stored."""
    named = {"_SYS_MSG_PRIORITY_": priority, **more}
    text = "".join(f"{name}\x01{value}\x02" for name, value in named.items())
    answer = await it.send(TOPIC, priority.encode(), queue_id=1, properties=text)
    assert answer.code == 0, answer.remark
    await dispatched(it)
    fields = ext(answer)
    queue, offset = int(fields["queueId"]), int(fields["queueOffset"])
    (record,) = read_records(it.broker.store.get(TOPIC, queue, offset, 1).records)
    return queue, properties(record)


async def send_all(it: Cluster) -> None:
    """Send two messages of each priority from 0 to 3, in an order that says nothing."""
    for number in (2, 0, 3, 1, 1, 3, 0, 2):
        await send(it, str(number))


@pytest.mark.parametrize("kind", ["PRIORITY", "NORMAL"])
def test_priority_is_the_queue_whatever_the_topic_says(tmp_path: Path, kind: str) -> None:
    async def tell(it: Cluster) -> None:
        await make(it, kind)
        for said, queue in (("0", 0), ("-0", 0), ("+2", 2), ("3", 3), ("4", 3), ("2147483647", 3)):
            found, stored = await send(it, said)
            assert (found, stored["_SYS_MSG_PRIORITY_"]) == (queue, said)

    play(tmp_path, tell)


@pytest.mark.parametrize("said", ["-1", "x", "1x", " 1", "2147483648", "99999999999999999999"])
def test_what_is_no_priority_stays_and_says_nothing(tmp_path: Path, said: str) -> None:
    async def tell(it: Cluster) -> None:
        await make(it)
        found, stored = await send(it, said)
        assert (found, stored["_SYS_MSG_PRIORITY_"]) == (1, said)

    play(tmp_path, tell)


def test_message_of_another_type_has_no_priority(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        await make(it)
        found, stored = await send(it, "3", __SHARDINGKEY="a")
        assert found == 1
        assert "_SYS_MSG_PRIORITY_" not in stored
        found, stored = await send(it, "3", TRAN_MSG="false")
        assert (found, stored["_SYS_MSG_PRIORITY_"]) == (3, "3")

    play(tmp_path, tell)

    play(tmp_path, tell)


def test_pops_take_the_highest_priority_first(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        await make(it)
        await send_all(it)
        seen = [(await pop(it, maxMsgNums="3")).bodies for _ in range(3)]
        assert seen == [[b"3", b"3", b"2"], [b"2", b"1", b"1"], [b"0", b"0"]]
        await send(it, "0")
        await send(it, "3")
        assert (await pop(it, maxMsgNums="1")).bodies == [b"3"]

    play(tmp_path, tell)


def test_lowest_queue_is_the_most_urgent_when_that_is_set(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        await make(it)
        await send_all(it)
        assert (await pop(it)).bodies == [b"0", b"0", b"1", b"1", b"2", b"2", b"3", b"3"]

    play(tmp_path, tell, priorityOrderAsc="false")


async def firsts(it: Cluster) -> set[bytes]:
    """Return which messages came first in 200 pops; each takes all there are."""
    found: set[bytes] = set()
    for _ in range(200):
        for number in range(4):
            it.broker.metadata.offsets.reset(GROUP, TOPIC, number, 0)
        found.add((await pop(it, maxMsgNums="1")).bodies[0])
    return found


@pytest.mark.parametrize(("kind", "factor"), [("PRIORITY", "0"), ("NORMAL", "100")])
def test_without_priority_pops_begin_anywhere(tmp_path: Path, kind: str, factor: str) -> None:
    async def tell(it: Cluster) -> None:
        await make(it, kind)
        assert (await set_group(it, **{"+priority.factor": factor})).code == 0
        await send_all(it)
        assert await firsts(it) == {b"0", b"1", b"2", b"3"}

    play(tmp_path, tell)


def test_part_of_the_pops_goes_by_priority_when_the_group_says_so(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        await make(it)
        await send_all(it)
        assert await firsts(it) == {b"3"}
        assert (await set_group(it, **{"+priority.factor": "50"})).code == 0
        assert len(await firsts(it)) > 1

    play(tmp_path, tell)


@pytest.mark.parametrize(
    ("percent", "bodies"), [("0", [b"2", b"1", b"again"]), ("100", [b"again", b"2", b"1"])]
)
def test_pops_by_priority_have_their_own_share_of_looks_at_retries(
    tmp_path: Path, percent: str, bodies: list[bytes]
) -> None:
    async def tell(it: Cluster) -> None:
        await make(it)
        await send(it, "1")
        await send(it, "2")
        it.broker.metadata.topics.ensure(RETRY, 1)
        stored = await it.broker.store.put(
            Draft(
                topic=RETRY,
                queue_id=0,
                body=b"again",
                properties={},
                born_timestamp=1,
                born_host=b"\x7f\0\0\1\0\0\0\1",
                store_host=b"\x7f\0\0\1\0\0\0\1",
                reconsume_times=1,
            )
        )
        assert stored.status is PutStatus.PUT_OK
        await dispatched(it)
        assert (await pop(it)).bodies == bodies

    share = {"popFromRetryProbabilityForPriority": percent}
    play(tmp_path, tell, popFromRetryProbability="50", **share)
