"""The page of metrics beside that of a Java broker: family by family, label by label."""

from __future__ import annotations

import random
from functools import partial
from typing import TYPE_CHECKING

import pytest

from dashboards import boards, unanswered
from interop_world import until
from metrics_story import page, tell
from roquet.remoting.blocking import BlockingConnection
from roquet.testing.java import free_port
from timer_harness import TimerWorld

if TYPE_CHECKING:
    from pathlib import Path

    from prometheus_client.metrics_core import Metric

MAKES = ("java", "ours")
OF_EXPORTER = {"otel_scope_name", "le"}
"""Labels that name Java's library, and the class of a histogram."""
ONLY_JAVA = {"target", "target_info"}
"""Names of Java's library, which says there what it is."""
FILLED = 38
"""Families of RocketMQ's names that the traffic fills, those of RocksDB not counted."""
LATE = (
    ("rocketmq_timer_dequeue", {"topic": "MetricsTimed"}),
    ("rocketmq_pop_revive_retry_messages", {"topic": "MetricsPopped"}),
    ("rocketmq_consumer_lag_messages", {"topic": "MetricsPopped", "is_retry": "true"}),
)
"""Rows that the traffic leads to some seconds later."""
LABELS = {"zone": "a", "rack": "7"}


@pytest.fixture(scope="module")
def pages(jars: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Metric]]:
    """Return the families of both makes after the same traffic."""
    found: dict[str, dict[str, Metric]] = {}
    with TimerWorld(jars, tmp_path_factory.mktemp("metrics")) as world:
        for make in MAKES:
            port = free_port(random.Random())
            exporter = {
                "metricsExporterType": "PROM",
                "metricsPromExporterPort": str(port),
                "metricsPromExporterHost": "127.0.0.1",
                "metricsLabel": ",".join(f"{name}:{value}" for name, value in LABELS.items()),
                "reviveInterval": "500",
            }
            broker = world.broker(f"metrics-{make}", exporter)
            broker.open(make)
            with BlockingConnection(broker.plan.address) as connection:
                tell(connection, broker.plan.name)
                wanted = of_rocketmq(found["java"]) if found else None
                until(f"{make} shows all", partial(has_all, port, wanted), 90)
                found[make] = page(port)
            broker.close("kill")
    return found


def has_all(port: int, wanted: dict[str, Metric] | None) -> bool:
    """Tell whether a page has what its traffic leads to, some of it seconds later."""
    families = of_rocketmq(page(port))
    shown = {name for name, one in families.items() if one.samples}
    for name, wanted_labels in LATE:
        samples = families[name].samples if name in families else []
        if not any(one.labels.items() >= wanted_labels.items() and one.value for one in samples):
            return False
    return len(families) >= FILLED and set(wanted or ()) <= shown


def of_rocketmq(families: dict[str, Metric]) -> dict[str, Metric]:
    """Return the families by RocketMQ's names."""
    return {
        name: one
        for name, one in families.items()
        if name.startswith("rocketmq_") and not name.endswith("_created")
    }


def labels(metric: Metric) -> set[str]:
    """Return the names of the labels of a family."""
    return {name for one in metric.samples for name in one.labels} - OF_EXPORTER


def test_families_types_and_labels_are_those_of_java(pages: dict[str, dict[str, Metric]]) -> None:
    java, ours = (of_rocketmq(pages[make]) for make in MAKES)
    assert len(java) >= FILLED
    assert {name: one.type for name, one in java.items()} == {
        name: one.type for name, one in ours.items()
    }
    assert {name: labels(one) for name, one in java.items()} == {
        name: labels(one) for name, one in ours.items()
    }
    assert set(pages["java"]) - set(java) <= ONLY_JAVA


def test_classes_of_histograms_are_those_of_java(pages: dict[str, dict[str, Metric]]) -> None:
    java, ours = (
        {
            name: {one.labels["le"] for one in family.samples if "le" in one.labels}
            for name, family in of_rocketmq(pages[make]).items()
            if family.type == "histogram"
        }
        for make in MAKES
    )
    assert len(java) >= 7
    assert java == ours


def test_labels_of_the_settings_are_on_every_family(pages: dict[str, dict[str, Metric]]) -> None:
    for make in MAKES:
        for name, family in of_rocketmq(pages[make]).items():
            for one in family.samples:
                assert one.labels.items() >= LABELS.items(), (make, name)


def test_queries_of_the_dashboards_are_answered_by_both(
    pages: dict[str, dict[str, Metric]],
) -> None:
    queries = [one for board in boards().values() for one in board if "rocketmq_" in one]
    assert len(queries) >= 40
    for make in MAKES:
        known = {
            f"{name}_total" if one.type == "counter" else name: labels(one)
            for name, one in of_rocketmq(pages[make]).items()
        }
        assert {one: found for one in queries if (found := unanswered(one, known))} == {}, make


@pytest.mark.parametrize(
    ("family", "sample", "wanted"),
    [
        ("rocketmq_messages_in", "_total", {"topic": "MetricsPlain"}),
        ("rocketmq_messages_out", "_total", {"topic": "MetricsTimed"}),
        ("rocketmq_send_to_dlq_messages", "_total", {"topic": "MetricsPlain"}),
        ("rocketmq_timer_enqueue", "_total", {"topic": "MetricsTimed"}),
        ("rocketmq_timer_dequeue", "_total", {"topic": "MetricsTimed"}),
        ("rocketmq_timing_messages", "", {"topic": "MetricsTimed"}),
        ("rocketmq_commit_messages", "_total", {"topic": "MetricsHalves"}),
        ("rocketmq_rollback_messages", "_total", {"topic": "MetricsHalves"}),
        ("rocketmq_pop_revive_retry_messages", "_total", {"topic": "MetricsPopped"}),
        ("rocketmq_delay_message_latency_seconds", "_count", {"topic": "MetricsTimed"}),
        ("rocketmq_finish_message_latency_milliseconds", "_count", {"topic": "MetricsHalves"}),
        ("rocketmq_consumer_lag_messages", "", {"topic": "MetricsPlain"}),
        ("rocketmq_consumer_lag_messages", "", {"topic": "MetricsPopped", "is_retry": "true"}),
        ("rocketmq_topic_create_execution_time_milliseconds", "_count", {"is_system": "false"}),
    ],
)
def test_numbers_are_those_of_java(
    pages: dict[str, dict[str, Metric]], family: str, sample: str, wanted: dict[str, str]
) -> None:
    numbers = {
        make: [
            one.value
            for one in pages[make][family].samples
            if one.name == family + sample and one.labels.items() >= wanted.items()
        ]
        for make in MAKES
    }
    assert numbers["java"], wanted
    assert numbers["ours"] == numbers["java"]
