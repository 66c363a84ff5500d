"""How many requests may wait, as the settings of the moment say."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from broker_harness import play
from roquet.protocol.codes import RequestCode
from roquet.protocol.command import Command
from roquet.service.lanes import Lanes

if TYPE_CHECKING:
    from pathlib import Path

    from roquet.testing.cluster import Cluster

CAPACITIES = {
    "sendThreadPoolQueueCapacity": "send",
    "pullThreadPoolQueueCapacity": "pull",
    "litePullThreadPoolQueueCapacity": "lite_pull",
    "replyThreadPoolQueueCapacity": "reply",
    "queryThreadPoolQueueCapacity": "query",
    "heartbeatThreadPoolQueueCapacity": "heartbeat",
    "clientManagerThreadPoolQueueCapacity": "client_manage",
    "consumerManagerThreadPoolQueueCapacity": "consumer_manage",
    "endTransactionPoolQueueCapacity": "end_transaction",
    "adminBrokerThreadPoolQueueCapacity": "admin",
    "ackThreadPoolQueueCapacity": "ack",
    "loadBalanceThreadPoolQueueCapacity": "load_balance",
}


class Work:
    """A request that does not end before it may."""

    received_ms = 0

    def __init__(self, gate: asyncio.Event) -> None:
        self.gate = gate
        self.is_refused = False

    async def run(self) -> None:
        await self.gate.wait()

    def refuse(self, _: str) -> None:
        self.is_refused = True


def part(it: Cluster) -> Lanes:
    """Return the lanes of the running broker, a part of its life-cycle table."""
    (lanes,) = (one.service for one in it.broker.app._parts if isinstance(one.service, Lanes))
    return lanes


@pytest.mark.parametrize("key", CAPACITIES)
def test_lane_of_a_running_broker_refuses_what_is_above_its_changed_capacity(
    tmp_path: Path, key: str
) -> None:
    async def tell(it: Cluster) -> None:
        command = Command(RequestCode.UPDATE_BROKER_CONFIG, body=f"{key}=3\n".encode())
        assert (await it.call(command)).code == 0
        lane, gate = part(it)[CAPACITIES[key]], asyncio.Event()
        jobs = [Work(gate) for _ in range(lane.config.concurrency + 5)]
        for job in jobs:
            lane.submit(job)
        refused = [job.is_refused for job in jobs]
        gate.set()
        assert refused.count(True) == 2
        assert refused[-2:] == [True, True]

    play(tmp_path, tell, brokerFastFailureEnable="false")
