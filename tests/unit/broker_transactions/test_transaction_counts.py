"""Counts of half messages, commits and rollbacks: how many topics, and what is shown."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from typing_extensions import override

from roquet.broker.transactions import counts as module
from roquet.broker.transactions.counts import TransactionCounts
from roquet.store.files import JsonFile
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
            counts.settled(topic, committed=True)
            counts.settled(topic, committed=False)
    assert counts.open() == {"a": 0, "b": 0}
    assert counts.commits == counts.rollbacks == {"a": 2, "b": 2}


def test_counts_of_open_half_messages_never_fall_below_nothing(tmp_path: Path) -> None:
    counts = made(tmp_path)
    counts.settled("a", committed=True)
    counts.opened("a", 3)
    counts.settled("a", committed=False)
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
