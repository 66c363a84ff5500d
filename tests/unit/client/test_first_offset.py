"""Where a new group begins: at the end that was asked for once, whatever comes meanwhile."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

import roquet
from roquet.client._cluster.broker_calls import BrokerCalls
from roquet.model.group import SubscriptionGroupConfig
from roquet.testing.cluster import cluster

if TYPE_CHECKING:
    from pathlib import Path

    from roquet.model.queue import MessageQueue


async def stored(mq: roquet.MQ) -> int:
    return sum(it.max_offset for it in (await mq.admin().topics.offsets("Fresh")).values())


@pytest.mark.parametrize("ordered", [False, True])
def test_10955_nothing_that_comes_behind_the_question_for_the_end_is_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ordered: bool
) -> None:
    asked: list[MessageQueue] = []
    ask = BrokerCalls.max_offset

    async def run() -> None:
        async with (
            asyncio.timeout(120),
            cluster(tmp_path) as it,
            roquet.connect(f"rmq://{it.name_servers}") as mq,
            mq.producer("senders") as producer,
        ):
            await mq.admin().topics.create("Fresh", 3)
            # Otherwise a queue whose first message is still there is read from that on.
            group = SubscriptionGroupConfig(name="newcomers", consume_from_min_enable=False)
            it.broker.metadata.groups.put(group)
            for _ in range(9):
                await producer.send("Fresh", b"before")
            # Queues follow the log: what is acknowledged may not be in them yet.
            while await stored(mq) < 9:  # noqa: ASYNC110
                await asyncio.sleep(0.02)

            async def max_offset(calls: BrokerCalls, queue: MessageQueue) -> int:
                end = await ask(calls, queue)
                if queue.topic == "Fresh":
                    asked.append(queue)
                    await producer.send("Fresh", b"behind %d" % queue.queue_id, queue=queue)
                return end

            monkeypatch.setattr(BrokerCalls, "max_offset", max_offset)
            found: list[bytes] = []
            consumer = mq.consumer("newcomers", "Fresh", start="latest", ordered=ordered)
            async with consumer:
                while len(found) < 3:
                    received = await consumer.receive(timeout_s=60)
                    assert received is not None, found
                    received.ack()
                    found.append(received.body)
            assert sorted(found) == [b"behind 0", b"behind 1", b"behind 2"]
            assert len(asked) == len(set(asked)) == 3

    asyncio.run(run())
