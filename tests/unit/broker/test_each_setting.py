"""Settings that no other test sets, each with what it changes."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

import pytest

from broker_harness import play
from roquet.base.clock import SystemClock
from roquet.broker import app
from roquet.broker.fastpath.admission import FastIngest
from roquet.broker.network.ports import Listeners
from roquet.store.tables.topics import built_in_topics
from roquet.testing.cluster import broker_config

if TYPE_CHECKING:
    from pathlib import Path

    from roquet.testing.cluster import Cluster


def test_built_in_topics_follow_their_settings(tmp_path: Path) -> None:
    def made(**changes: str) -> dict[str, tuple[int, int]]:
        rules = broker_config(tmp_path, **changes).topics
        return {it.name: (it.write_queues, it.perm) for it in built_in_topics(rules)}

    usual = made()
    assert (usual["DefaultCluster"], usual["broker-a"]) == ((16, 7), (1, 7))
    other = made(
        brokerClusterName="North",
        clusterTopicEnable="false",
        brokerTopicEnable="false",
        traceTopicEnable="true",
        msgTraceTopicName="Traces",
        reviveQueueNum="3",
        defaultTopicQueueNums="5",
    )
    assert (other["North"], other["broker-a"], other["Traces"]) == ((16, 1), (1, 1), (1, 6))
    assert (other["rmq_sys_REVIVE_LOG_North"][0], other["TBW102"][0]) == (3, 5)


PAUSES = {
    "cleanResourceInterval": "delete old files",
    "flushConsumerOffsetInterval": "save offsets",
    "flushDelayOffsetInterval": "persist delay offsets",
    "transactionCheckInterval": "check transactions",
    "transactionMetricFlushInterval": "save counts of half messages",
    "registerNameServerPeriod": "register",
}


@pytest.mark.parametrize("key", PAUSES)
def test_pause_between_two_runs_is_the_one_of_the_settings(tmp_path: Path, key: str) -> None:
    shown = app.explain(broker_config(tmp_path, **{key: "12000"}), "parts")
    assert f"{PAUSES[key]} every 12s" in shown


def test_addresses_and_ports_told_to_others_are_those_of_the_settings(tmp_path: Path) -> None:
    config = broker_config(tmp_path, brokerIP1="192.0.2.7", brokerIP2="192.0.2.8")
    identity = app.build(config, SystemClock(), random.Random(1)).identity
    assert (identity.ip, identity.ha_ip) == ("192.0.2.7", "192.0.2.8")


def test_silent_connection_is_closed_after_the_time_of_the_settings(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        host, _, port = it.address.partition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        async with asyncio.timeout(20):
            assert await reader.read() == b""
        writer.close()

    play(tmp_path, tell, serverChannelMaxIdleTimeSeconds="1")


def test_connections_that_one_address_may_make_are_those_of_the_settings(tmp_path: Path) -> None:
    broker = app.build(broker_config(tmp_path, acceptsPerSecondMax="7"))
    (ports,) = (it.service for it in broker.app._parts if isinstance(it.service, Listeners))
    for server in (ports._main, ports._fast):
        rate = server._rate
        at_once = sum(rate.takes("192.0.2.1", 0) for _ in range(20_000))
        assert at_once == 10_000
        assert [rate.takes("192.0.2.1", 1_000) for _ in range(8)] == [True] * 7 + [False]


def test_sync_in_place_is_allowed_below_the_time_of_the_settings(tmp_path: Path) -> None:
    def judged(flush: str, micros: str, took_us: int) -> bool:
        config = broker_config(tmp_path, flushDiskType=flush, syncFlushInPlaceMicros=micros)
        broker = app.build(config)
        (ingest,) = (it.service for it in broker.app._parts if isinstance(it.service, FastIngest))
        return ingest._disk.look(1_000, 1_000 * took_us)

    assert [judged("SYNC_FLUSH", "70000", took_us) for took_us in (69_999, 70_000)] == [True, False]
    assert not judged("SYNC_FLUSH", "0", 0)
    assert not judged("ASYNC_FLUSH", "70000", 1)
