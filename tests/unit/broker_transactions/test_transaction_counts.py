"""Counts of half messages, commits and rollbacks: how many topics, and what is shown."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

from typing_extensions import override

from roquet.broker.transactions import counts as module
from roquet.broker.transactions.counts import TransactionCounts
from roquet.service.metrics import Metrics
from roquet.store.tables.files import JsonFile
from roquet.testing.clock import FakeClock

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import pytest


def made(folder: Path) -> TransactionCounts:
    return TransactionCounts(JsonFile(folder / "counts.json"), FakeClock())


def test_counts_of_known_topics_go_on_when_there_is_room_for_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "TOPICS_MAX", 2)
    counts = made(tmp_path)
    for _ in range(2):
        for topic in ("a", "b", "c"):
            counts.opened(topic)
            counts.opened(topic)
            counts.settled(topic, committed=True, open_ms=0)
            counts.settled(topic, committed=False, open_ms=0)
    assert counts.open() == {"a": 0, "b": 0}
    assert counts.commits == counts.rollbacks == {"a": 2, "b": 2}


def test_counts_of_open_half_messages_never_fall_below_nothing(tmp_path: Path) -> None:
    counts = made(tmp_path)
    counts.settled("a", committed=True, open_ms=0)
    counts.opened("a", 3)
    counts.settled("a", committed=False, open_ms=0)
    assert counts.open() == {"a": 2}
    counts.reset()
    assert counts.open() == {"a": 0}
    assert (counts.commits, counts.rollbacks) == ({"a": 1}, {"a": 1})


class CountingFile(JsonFile):
    """A file that counts how often it is written."""

    saves = 0

    @override
    async def save(self, encode: Callable[[], bytes]) -> None:
        self.saves += 1
        await super().save(encode)


def test_counts_are_written_only_after_a_change(tmp_path: Path) -> None:
    async def tell() -> None:
        file = CountingFile(tmp_path / "counts.json")
        counts = TransactionCounts(file, FakeClock())
        await counts.persist()
        assert file.saves == 0
        for saves in (1, 2):
            counts.opened("a")
            await counts.persist()
            await counts.persist()
            assert file.saves == saves
        counts.reset()
        await counts.persist()
        assert file.saves == 3

    asyncio.run(tell())


def test_counts_are_shown_under_the_names_of_rocketmq(tmp_path: Path) -> None:
    counts, metrics = made(tmp_path), Metrics()
    counts.watch(metrics)
    counts.opened("a", 3)
    counts.settled("a", committed=True, open_ms=0)
    counts.settled("b", committed=False, open_ms=0)
    page = metrics.render().decode()
    shown = [line for line in page.splitlines() if "messages" in line and line[0] != "#"]
    assert shown == [
        'rocketmq_half_messages{topic="a"} 2.0',
        'rocketmq_half_messages{topic="b"} 0.0',
        'rocketmq_commit_messages_total{topic="a"} 1.0',
        'rocketmq_rollback_messages_total{topic="b"} 1.0',
    ]


def test_file_of_counts_is_the_one_of_rocketmq(tmp_path: Path) -> None:
    counts = made(tmp_path)
    counts.opened("b", 2)
    counts.opened("a")
    asyncio.run(counts.persist())
    now_ms = FakeClock().now_ms()
    assert json.loads((tmp_path / "counts.json").read_text()) == {
        "dataVersion": {"counter": 2, "stateVersion": 0, "timestamp": now_ms},
        "transactionCount": {
            "a": {"count": 1, "timeStamp": now_ms},
            "b": {"count": 2, "timeStamp": now_ms},
        },
    }
    # An emptied table is a change as well.
    counts.reset()
    asyncio.run(counts.persist())
    table = json.loads((tmp_path / "counts.json").read_text())
    assert table["dataVersion"]["counter"] == 3
