"""Figures of topics and groups follow what was deleted, switched over, or found no room."""

from __future__ import annotations

from typing import TYPE_CHECKING

from roquet.broker.metrics import stats as module
from roquet.broker.metrics.stats import BrokerStats
from roquet.protocol.names import LMQ_PREFIX, dlq_topic
from roquet.testing.clock import FakeClock

if TYPE_CHECKING:
    import pytest


def total(stats: BrokerStats, name: str, key: str) -> int | None:
    view = stats.find(name, key)
    return None if view is None else view.total


def read(stats: BrokerStats, group: str, topic: str) -> None:
    stats.found_many(group, topic, 0, 2, 30, behind=7, reads=1, took_ms=4)


def test_deleted_topic_begins_at_zero_when_it_is_used_again() -> None:
    stats = BrokerStats("c", FakeClock())
    for _ in range(2):
        stats.stored_many("t", 0, 1, 10)
        read(stats, "g", "t")
    assert total(stats, "TOPIC_PUT_SIZE", "t") == 20
    stats.forget_topic("t")
    assert total(stats, "TOPIC_PUT_SIZE", "t") is None
    stats.stored_many("t", 0, 1, 10)
    read(stats, "g", "t")
    assert total(stats, "TOPIC_PUT_SIZE", "t") == 10
    assert total(stats, "GROUP_GET_NUMS", "t@g") == 2
    assert total(stats, "BROKER_PUT_NUMS", "c") == 3
    stats.forget_group("g")
    read(stats, "g", "t")
    figures = {"GROUP_GET_SIZE": "t@g", "GROUP_GET_FALL_SIZE": "0@t@g", "BROKER_GET_FOUND": "c"}
    assert [total(stats, *it) for it in figures.items()] == [30, 7, 4]


def test_dead_letters_and_system_topics_count_where_they_always_did() -> None:
    stats = BrokerStats("c", FakeClock())
    for topic in ("t", dlq_topic("g"), "SCHEDULE_TOPIC_XXXX"):
        stats.stored_many(topic, 0, 1, 10)
        read(stats, "g", topic)
    assert total(stats, "DLQ_PUT_NUMS", dlq_topic("g")) == 1
    assert total(stats, "DLQ_PUT_NUMS", "t") is None
    assert total(stats, "BROKER_PUT_NUMS", "c") == 3
    assert total(stats, "BROKER_PUT_NUMS_WITHOUT_SYSTEM_TOPIC", "c") == 2
    assert total(stats, "BROKER_GET_NUMS_WITHOUT_SYSTEM_TOPIC", "c") == 4
    assert (stats.daily_totals.puts.now, stats.daily_totals.gets.now) == (2, 4)


def test_light_queues_are_measured_as_one_from_the_switch_on() -> None:
    stats = BrokerStats("c", FakeClock())
    light = f"{LMQ_PREFIX}a"
    read(stats, "g", light)
    stats.add_up_light(yes=True)
    read(stats, "g", light)
    assert total(stats, "GROUP_GET_NUMS", f"{light}@g") == 2
    assert total(stats, "GROUP_GET_NUMS", f"{LMQ_PREFIX}@g") == 2
    stats.add_up_light(yes=False)
    read(stats, "g", light)
    assert total(stats, "GROUP_GET_NUMS", f"{light}@g") == 4


def test_name_beyond_the_room_is_measured_once_there_is_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "METERS_MAX", 3)
    stats = BrokerStats("c", FakeClock())
    for topic in ("a", "b", "late"):
        stats.stored_many(topic, 0, 1, 10)
    assert total(stats, "TOPIC_PUT_NUMS", "b") == 1
    assert total(stats, "TOPIC_PUT_NUMS", "late") is None
    assert total(stats, "BROKER_PUT_NUMS", "c") == 3
    stats.forget_topic("a")
    stats.stored_many("late", 0, 1, 10)
    assert total(stats, "TOPIC_PUT_NUMS", "late") == 1
