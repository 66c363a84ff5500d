"""How many requests may wait, and for how long, as the settings of the moment say."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from broker_harness import play
from roquet.base.clock import SystemClock
from roquet.base.overriding import override
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


AGES = {
    "waitTimeMillsInSendQueue": "send",
    "waitTimeMillsInPullQueue": "pull",
    "waitTimeMillsInLitePullQueue": "lite_pull",
    "waitTimeMillsInHeartbeatQueue": "heartbeat",
    "waitTimeMillsInTransactionQueue": "end_transaction",
    "waitTimeMillsInAdminBrokerQueue": "admin",
}


class Work:
    """A request that does not end before it may."""

    def __init__(self, gate: asyncio.Event, received_ms: int = 0) -> None:
        self.gate = gate
        self.received_ms = received_ms
        self.is_refused = False

    async def run(self) -> None:
        await self.gate.wait()

    def refuse(self, _: str) -> None:
        self.is_refused = True


class Sent(Work):
    """A request that says when it has run."""

    def __init__(self, gate: asyncio.Event, received_ms: int) -> None:
        super().__init__(gate, received_ms)
        self.settled = asyncio.Event()

    @override
    async def run(self) -> None:
        await super().run()
        self.settled.set()

    @override
    def refuse(self, why: str) -> None:
        super().refuse(why)
        self.settled.set()


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


@pytest.mark.parametrize("key", AGES)
def test_lane_of_a_running_broker_refuses_what_waited_longer_than_its_changed_age(
    tmp_path: Path, key: str
) -> None:
    async def tell(it: Cluster) -> None:
        command = Command(RequestCode.UPDATE_BROKER_CONFIG, body=f"{key}=600000\n".encode())
        assert (await it.call(command)).code == 0
        lane, gate = part(it)[AGES[key]], asyncio.Event()
        now_ms = SystemClock().now_ms()
        for _ in range(lane.config.concurrency):
            lane.submit(Work(gate, now_ms))
        younger, older = Work(gate, now_ms - 500_000), Work(gate, now_ms - 700_000)
        lane.submit(older)
        lane.submit(younger)
        async with asyncio.timeout(20):
            while not older.is_refused:  # noqa: ASYNC110
                await asyncio.sleep(0.005)
        still_waits = not younger.is_refused
        gate.set()
        assert still_waits

    play(tmp_path, tell, brokerFastFailureEnable="true")


@pytest.mark.parametrize("key", AGES)
@pytest.mark.parametrize("enabled", ["true", "false"])
def test_lane_of_a_running_broker_runs_what_waited_long_without_fast_failure(
    tmp_path: Path, key: str, enabled: str
) -> None:
    async def tell(it: Cluster) -> None:
        change = f"brokerFastFailureEnable={enabled}\n".encode()
        assert (await it.call(Command(RequestCode.UPDATE_BROKER_CONFIG, body=change))).code == 0
        lane, gate = part(it)[AGES[key]], asyncio.Event()
        now_ms = SystemClock().now_ms()
        for _ in range(lane.config.concurrency):
            lane.submit(Work(gate, now_ms))
        old = Sent(gate, now_ms - 700_000)
        lane.submit(old)
        gate.set()
        async with asyncio.timeout(20):
            await old.settled.wait()
        assert old.is_refused is (enabled == "true")

    # It is switched while the broker runs, in both directions.
    play(tmp_path, tell, brokerFastFailureEnable="false" if enabled == "true" else "true")
