"""Slow groups, water marks, dispatch lag, and the tables that `--explain` prints."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, cast

from remoting_harness import on_loop
from roquet.broker.app import explain
from roquet.broker.config import load_config
from roquet.broker.metrics.watch import SlowGroupConfig, Watch
from roquet.cli.app import run
from roquet.model.subscription import SubscriptionData
from roquet.protocol.bodies.clients import ConsumerData, HeartbeatData
from roquet.protocol.codes import RequestCode
from roquet.protocol.command import Command
from roquet.service.lanes import LaneConfig, Lanes
from roquet.testing.clock import FakeClock
from roquet.testing.cluster import Cluster, cluster, pull_command

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def watch_of(it: Cluster) -> Watch:
    parts = {part.name: part.service for part in it.broker.app._parts}
    return cast("Watch", parts["watch"])


async def join(it: Cluster, group: str, topic: str) -> None:
    subscription = SubscriptionData(topic=topic, expression="*", version=1)
    consumer = ConsumerData(group=group, subscriptions=(subscription,))
    body = HeartbeatData(client_id=f"c-{group}", consumers=(consumer,)).encode()
    assert (await it.call(Command(RequestCode.HEART_BEAT, {}, body))).code == 0


async def commit(it: Cluster, group: str, topic: str, offset: int) -> None:
    ext = {
        "consumerGroup": group,
        "topic": topic,
        "queueId": "0",
        "commitOffset": str(offset),
    }
    assert (await it.call(Command(RequestCode.UPDATE_CONSUMER_OFFSET, ext))).code == 0


async def stored(it: Cluster, topic: str, count: int) -> None:
    for _ in range(count):
        assert (await it.send(topic, bytes(1000))).code == 0
    async with asyncio.timeout(20):
        while it.broker.store.max_offset(topic, 0) < count:  # noqa: ASYNC110  (native threads)
            await asyncio.sleep(0.01)


@on_loop
async def test_a_group_that_is_too_far_behind_is_switched_off(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = {
        "disableConsumeIfConsumerReadSlowly": "true",
        "consumerFallbehindThreshold": "5000",
    }
    async with cluster(tmp_path, **settings) as it:
        await stored(it, "orders", 10)
        for group, offset in (("slow", 1), ("near", 8), ("done", 10)):
            await join(it, group, "orders")
            await commit(it, group, "orders", offset)
        await watch_of(it).protect()
        groups = it.broker.metadata.groups.all()
        enabled = {name: groups[name].consume_enable for name in ("slow", "near", "done")}
        assert enabled == {"slow": False, "near": True, "done": True}
        refused = await it.call(pull_command("orders", consumerGroup="slow"))
        assert refused.code == 16
        await watch_of(it).protect()
    assert len([r for r in caplog.records if "may not consume" in r.getMessage()]) == 1


@on_loop
async def test_groups_are_left_alone_unless_that_is_wanted(tmp_path: Path) -> None:
    async with cluster(tmp_path, consumerFallbehindThreshold="1") as it:
        await stored(it, "orders", 3)
        await join(it, "slow", "orders")
        await commit(it, "slow", "orders", 0)
        await watch_of(it).protect()
        assert it.broker.metadata.groups.all()["slow"].consume_enable


class Waits:
    """A job that waits in its lane."""

    def __init__(self, clock: FakeClock) -> None:
        self.received_ms = clock.now_ms()
        self.gate = asyncio.Event()

    async def run(self) -> None:
        await self.gate.wait()

    def refuse(self, remark: str) -> None:
        del remark
        self.gate.set()


@on_loop
async def test_what_waits_is_said_with_the_age_of_the_head(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    clock = FakeClock()
    lanes = Lanes([LaneConfig("send", 1, 10), LaneConfig("pull", 1, 10)], clock)
    async with cluster(tmp_path) as it:
        metadata = it.broker.metadata
        watch = Watch(
            rules=SlowGroupConfig(),
            lanes=lanes,
            store=it.broker.store,
            groups=metadata.groups,
            offsets=metadata.offsets,
            registry=watch_of(it)._registry,
        )
        await watch.print_water_marks()
        jobs = [Waits(clock) for _ in range(3)]
        for job in jobs:
            lanes["send"].submit(job)
        for _ in range(5):
            await asyncio.sleep(0)
        await clock.advance(0.4)
        await watch.print_water_marks()
        await watch.print_dispatch_lag()
        for job in jobs:
            job.gate.set()
        await lanes.stop()
    said = [r.getMessage() for r in caplog.records if r.name == "roquet.broker.water_mark"]
    assert said == ["waiting: send 2 (head 400 ms)"]


TIMERS = (
    "save offsets every 5s",
    "save filters every 10s",
    "switch slow groups off every 180s",
    "print water marks every 1s",
    "print dispatch lag every 60s",
    "register every 30s",
    "register again every 1s",
    "refuse what waited every 0.1s",
    "check the store's files every 600s",
)


def test_the_parts_have_the_timers_of_the_documents() -> None:
    config, _ = load_config(None, {}, {})
    parts = explain(config, "parts")
    assert [timer for timer in TIMERS if timer not in parts] == []
    assert "RequestCode" not in parts
    pair, _ = load_config(None, {}, {"brokerRole": "SYNC_MASTER"})
    assert "log how far slaves are behind every 60s" in explain(pair, "parts")


LANES = {
    RequestCode.SEND_MESSAGE: ("send", "main, fast"),
    RequestCode.SEND_MESSAGE_V2: ("send", "main, fast"),
    RequestCode.SEND_BATCH_MESSAGE: ("send", "main, fast"),
    RequestCode.SEND_IN_SEQUENCE: ("send", "main, fast"),
    RequestCode.GET_SEQUENCES: ("send", "main, fast"),
    RequestCode.CONSUMER_SEND_MSG_BACK: ("send", "main, fast"),
    RequestCode.PULL_MESSAGE: ("pull", "main"),
    RequestCode.LITE_PULL_MESSAGE: ("lite_pull", "main"),
    RequestCode.GET_SUMS: ("query", "main"),
    RequestCode.SEND_REPLY_MESSAGE: ("reply", "main, fast"),
    RequestCode.QUERY_MESSAGE: ("query", "main, fast"),
    RequestCode.VIEW_MESSAGE_BY_ID: ("query", "main, fast"),
    RequestCode.HEART_BEAT: ("heartbeat", "main, fast"),
    RequestCode.UNREGISTER_CLIENT: ("client_manage", "main, fast"),
    RequestCode.CHECK_CLIENT_CONFIG: ("client_manage", "main, fast"),
    RequestCode.GET_CONSUMER_LIST_BY_GROUP: ("consumer_manage", "main, fast"),
    RequestCode.UPDATE_CONSUMER_OFFSET: ("consumer_manage", "main, fast"),
    RequestCode.QUERY_CONSUMER_OFFSET: ("consumer_manage", "main, fast"),
    RequestCode.END_TRANSACTION: ("end_transaction", "main, fast"),
    RequestCode.GET_BROKER_CONFIG: ("admin", "main, fast"),
    RequestCode.UPDATE_AND_CREATE_TOPIC: ("admin", "main, fast"),
}


def test_the_table_of_codes_has_javas_lanes_and_ports(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["broker", "--explain", "routes"]) == 0
    shown = capsys.readouterr().out
    rows = {line[:7].strip(): line for line in shown.splitlines()}
    for code, (lane, ports) in LANES.items():
        row = rows[str(int(code))]
        assert row.split()[1:3] == [code.name, lane], row
        assert row.split(lane, 1)[1].strip().startswith(f"{ports} "), row
    assert set(rows) >= {str(int(code)) for code in RequestCode}
    assert "served by name servers" in rows[str(int(RequestCode.REGISTER_BROKER))]
    assert run(["broker", "--explain", "parts"]) == 0
    assert "GET_BROKER_CONFIG" not in capsys.readouterr().out
    assert run(["broker", "--explain", "nothing"]) == 2


def test_every_lane_can_be_given_its_size_and_age() -> None:
    given = {
        "sendThreadPoolQueueCapacity": ("send", 11),
        "pullThreadPoolQueueCapacity": ("pull", 12),
        "litePullThreadPoolQueueCapacity": ("lite_pull", 13),
        "replyThreadPoolQueueCapacity": ("reply", 14),
        "ackThreadPoolQueueCapacity": ("ack", 22),
        "queryThreadPoolQueueCapacity": ("query", 15),
        "loadBalanceThreadPoolQueueCapacity": ("load_balance", 24),
        "heartbeatThreadPoolQueueCapacity": ("heartbeat", 16),
        "clientManagerThreadPoolQueueCapacity": ("client_manage", 17),
        "consumerManagerThreadPoolQueueCapacity": ("consumer_manage", 18),
        "endTransactionPoolQueueCapacity": ("end_transaction", 19),
        "adminBrokerThreadPoolQueueCapacity": ("admin", 20),
    }
    from roquet.broker.lanes import lane_configs  # noqa: PLC0415

    config, _ = load_config(None, {}, {name: size for name, (_, size) in given.items()})
    lanes = {lane.name: lane for lane in lane_configs(config.server, config.fast_fail)}
    assert {name: lanes[name].queue_max for name, _ in given.values()} == dict(given.values())
    ages = {name: lane.age_max_ms for name, lane in lanes.items() if lane.age_max_ms is not None}
    assert ages == {
        "send": 200,
        "pull": 5000,
        "lite_pull": 5000,
        "heartbeat": 31_000,
        "end_transaction": 3000,
        "admin": 5000,
    }
