"""A message that is popped and not acknowledged, over sockets: back to the group, or dead."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import pytest

from broker_harness import dispatched, play, properties, records
from pop_harness import GROUP, TOPIC, ack_command, pop
from roquet.model.group import SubscriptionGroupConfig
from roquet.protocol.pop.topics import REVIVE_GROUP, revive_topic
from transaction_harness import until

if TYPE_CHECKING:
    from pathlib import Path

    from pop_harness import Popped
    from roquet.testing.cluster import Cluster

FAST = {"timerPrecisionMs": "100", "reviveInterval": "100", "mappedFileSizeTimerLog": "65536"}
ONCE = "once"


async def again(it: Cluster) -> Popped:
    """Pop until something comes."""
    for _ in range(400):
        got = await pop(it)
        if got.records:
            return got
        await asyncio.sleep(0.1)
    raise AssertionError("nothing came again")


def test_unacked_message_comes_again_and_one_without_tries_left_is_dead(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        it.broker.metadata.groups.put(SubscriptionGroupConfig(name=ONCE, retry_max_times=0))
        for number in range(3):
            await it.send(TOPIC, b"%d" % number, queue_id=1)
        await dispatched(it)
        first = await pop(it, invisibleTime="1000")
        assert first.bodies == [b"0", b"1", b"2"]
        assert (await it.call(ack_command(first.handles[1]))).code == 0
        other = await pop(it, consumerGroup=ONCE, invisibleTime="1000", maxMsgNums="1")
        assert other.bodies == [b"0"]
        came = await again(it)
        bodies = came.bodies
        while len(bodies) < 2:
            bodies += (await again(it)).bodies
        assert sorted(bodies) == [b"0", b"2"]
        assert [(it.topic, it.reconsume_times) for it in came.records] == [(TOPIC, 1)] * len(
            came.records
        )
        assert {handle.retry_flag for handle in came.handles} == {"1"}
        await until(lambda: it.broker.store.max_offset(f"%DLQ%{ONCE}", 0) == 1, "a dead letter")
        await dispatched(it)
        dead = records(await it.pull(f"%DLQ%{ONCE}"))
        assert [letter.body for letter in dead] == [b"0"]
        assert properties(dead[0])["DLQ_ORIGIN_TOPIC"] == TOPIC
        topics = it.broker.metadata.topics
        assert topics.get(f"%RETRY%{GROUP}_{TOPIC}") is not None
        assert topics.get(f"%RETRY%{ONCE}_{TOPIC}") is None
        offsets = it.broker.metadata.offsets
        revived = REVIVE_GROUP, revive_topic("DefaultCluster")
        await until(lambda: bool(offsets.queues(*revived)), "what is settled is committed")

    play(tmp_path, tell, **FAST)


@pytest.mark.parametrize(("before", "after"), [("8", "2"), ("2", "8"), ("8", "1")])
def test_other_number_of_revive_queues_after_a_restart_loses_no_message_and_no_ack(
    tmp_path: Path, before: str, after: str
) -> None:
    """Handles and checkpoints name queues of the former number."""
    flight: list[Popped] = []

    async def begin(it: Cluster) -> None:
        store, revive = it.broker.store, revive_topic("DefaultCluster")
        for _ in range(16):
            await it.send(TOPIC, b"before", queue_id=0)
        await dispatched(it)
        for _ in range(16):
            first = await pop(it, maxMsgNums="1", invisibleTime="1000")
            assert (await it.call(ack_command(first.handles[0]))).code == 0
        await until(
            lambda: all(store.max_offset(revive, it) > 0 for it in range(int(before))),
            "records in each revive queue",
        )
        for number in range(16):
            await it.send(TOPIC, b"%d" % number, queue_id=1)
        await dispatched(it)
        flight.extend([await pop(it, maxMsgNums="1", invisibleTime="4000") for _ in range(16)])

    async def go_on(it: Cluster) -> None:
        revive = it.broker.metadata.topics.get(revive_topic("DefaultCluster"))
        assert revive is not None
        assert revive.read_queues == int(after)
        for one in flight[::2]:
            assert (await it.call(ack_command(one.handles[0]))).code == 0
        came: list[bytes] = []
        while len(came) < 8:
            came += (await again(it)).bodies
        assert sorted(came) == sorted(one.bodies[0] for one in flight[1::2])
        await asyncio.sleep(1)
        assert not (await pop(it)).records

    play(tmp_path, begin, **FAST, reviveQueueNum=before)
    queues = {one.handles[0].revive_queue for one in flight}
    assert queues == set(range(int(before)))
    # The table keeps the number of before; an operator takes the row out.
    file = tmp_path / "broker-a" / "config" / "topics.json"
    table = json.loads(file.read_bytes())
    del table["topicConfigTable"][revive_topic("DefaultCluster")]
    file.write_text(json.dumps(table))
    play(tmp_path, go_on, **FAST, reviveQueueNum=after)
