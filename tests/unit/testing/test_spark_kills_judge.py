"""The judge of the kills of the Spark sink notices what must not be."""

from __future__ import annotations

import asyncio
import collections
from typing import TYPE_CHECKING

import pytest
from tools.spark_kills.judge import QUEUES, Verdict, seen, verdict

import roquet
from remoting_harness import on_loop
from roquet.client import Message
from roquet.model.queue import MessageQueue
from roquet.testing.cluster import cluster

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("numbers", "expected"),
    [
        ([0, 1, 2, 3], Verdict(0, 0, 0)),
        ([3, 1, 0], Verdict(1, 0, 0)),
        ([0, 1, 1, 2, 3, 3, 3], Verdict(0, 3, 0)),
        ([0, 1, 2, 3, 4, -1], Verdict(0, 0, 2)),
        ([], Verdict(4, 0, 0)),
    ],
)
def test_planted_a_row_lost_doubled_or_foreign_is_noticed(
    numbers: list[int], expected: Verdict
) -> None:
    found = verdict(collections.Counter(numbers), 4)
    assert found == expected
    assert found.is_good == (expected == Verdict(0, 0, 0))


@on_loop
async def test_planted_a_doubled_row_is_seen_in_a_topic_of_a_broker(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it:
        async with roquet.connect(f"rmq://{it.name_servers}") as mq, mq.producer("p") as producer:
            await mq.admin().topics.create("Target", queues=QUEUES)
            for number in (0, 1, 2, 4, 4, 5):
                queue = MessageQueue("Target", "broker-a", number % QUEUES)
                await producer.send(Message("Target", b"%d" % number), queue=queue)
        found = await asyncio.to_thread(seen, it.broker.identity.address, "Target")
    assert verdict(found, 6) == Verdict(1, 1, 0)
