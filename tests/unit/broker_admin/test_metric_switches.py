"""Each family of RocketMQ's metrics has a switch, as in RocketMQ 5.5.0."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

import pytest
from prometheus_client.parser import text_string_to_metric_families

from roquet.broker.metrics.families import NAMES, FamiliesConfig
from roquet.testing.cluster import running_broker
from roquet.testing.java import free_port

if TYPE_CHECKING:
    from pathlib import Path

KEYS = {
    "enableStatsMetrics": ("stats", "rocketmq_topic_number"),
    "enableRequestMetrics": ("request", "rocketmq_messages_in"),
    "enableConnectionMetrics": ("connection", "rocketmq_producer_connections"),
    "enableLagAndDlqMetrics": ("lag", "rocketmq_consumer_lag_messages"),
    "enableTransactionMetrics": ("transaction", "rocketmq_half_messages"),
    "enableRemotingMetrics": ("remoting", "rocketmq_rpc_latency_milliseconds"),
    "enableMessageStoreMetrics": ("store", "rocketmq_storage_size_bytes"),
    "enablePopMetrics": ("pop", "rocketmq_pop_revive_lag_milliseconds"),
}


def names_of(folder: Path, **changes: str) -> set[str]:
    """Return what a broker's page has names of; those of RocketMQ with their prefix."""
    port = free_port(random.Random())
    shown = {"metricsExporterType": "PROM", "metricsPromExporterPort": str(port)}

    async def tell() -> bytes:
        features = {"enablePopBufferMerge": "true", "timerWheelEnable": "true"}
        async with running_broker(folder, changes={**shown, **features, **changes}):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET /metrics HTTP/1.1\r\n\r\n")
            head, _, body = (await reader.read()).partition(b"\r\n\r\n")
            writer.close()
            assert b" 200 " in head.split(b"\r\n")[0]
            return body

    return {it.name for it in text_string_to_metric_families(asyncio.run(tell()).decode())}


def test_every_metric_of_rocketmq_belongs_to_one_family(tmp_path: Path) -> None:
    known = [f"rocketmq_{name}" for names in NAMES.values() for name in names.split()]
    assert len(known) == len(set(known))
    assert {it for it in names_of(tmp_path) if it.startswith("rocketmq_")} == set(known)
    assert not FamiliesConfig().off()


@pytest.mark.parametrize("key", KEYS)
def test_a_family_that_is_switched_off_is_not_shown_and_the_others_are(
    tmp_path: Path, key: str
) -> None:
    family, one = KEYS[key]
    off = {f"rocketmq_{name}" for name in NAMES[family].split()}
    assert one in off
    every = {f"rocketmq_{name}" for names in NAMES.values() for name in names.split()}
    found = names_of(tmp_path, **{key: "false"})
    assert {it for it in found if it.startswith("rocketmq_")} == every - off
    assert "roquet_held_pulls" in found, "those of Roquet have no switch"
