"""When topics and groups were deleted, over starts and with clocks that are set."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from roquet.store.tables import deletions
from roquet.store.tables.deletions import KEPT_MS, Deletions
from roquet.store.tables.files import JsonFile
from roquet.testing.clock import FakeClock

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_pop_up_to_the_deletion_of_topic_or_group_is_a_former_one(tmp_path: Path) -> None:
    clock = FakeClock()
    file = JsonFile(tmp_path / "roquetDeletions.json")
    known = Deletions(file, clock)
    assert not known.covers("t", "g", 0)
    known.topic("t")
    at_ms = clock.now_ms()
    clock.be_busy(5)
    known.group("g")
    later_ms = clock.now_ms()
    asyncio.run(known.persist())
    clock.be_busy(5)
    again = Deletions(JsonFile(file.path), clock)
    again.load()
    for it in (known, again):
        assert it.covers("t", "other", at_ms)
        assert not it.covers("t", "other", at_ms + 1)
        assert it.covers("t", "g", later_ms)
        assert not it.covers("t", "g", later_ms + 1)
        assert not it.covers("other", "other", 0)
    clock.be_busy(KEPT_MS / 1000)
    assert not known.covers("t", "g", at_ms)


def test_deletion_ahead_of_a_clock_that_was_set_back_is_forgotten() -> None:
    """What is popped now would count as popped before it, and be lost."""
    clock = FakeClock()
    known = Deletions(None, clock)
    known.topic("early")
    early_ms = clock.now_ms()
    clock.set_by(7200)
    known.topic("ahead")
    clock.set_by(-7199)
    assert not known.covers("ahead", "g", early_ms)
    assert known.covers("early", "g", early_ms)


def test_names_without_room_push_out_the_oldest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deletions, "NAMES_MAX", 2)
    clock = FakeClock()
    known = Deletions(None, clock)
    for name in ("a", "b", "a", "c"):
        clock.be_busy(1)
        known.topic(name)
    assert [known.covers(name, "g", 0) for name in ("a", "b", "c")] == [True, False, True]
    # A damaged file keeps no broker down.
    (tmp_path / "roquetDeletions.json").write_bytes(b"{")
    damaged = Deletions(JsonFile(tmp_path / "roquetDeletions.json"), clock)
    damaged.load()
    assert not damaged.covers("a", "g", 0)


def test_later_deletions_of_another_broker_are_taken_over_in_the_order_of_their_times(
    tmp_path: Path,
) -> None:
    clock = FakeClock()
    file = JsonFile(tmp_path / "roquetDeletions.json")
    known = Deletions(file, clock)
    known.topic("own")
    own_ms, before = clock.now_ms(), known.version
    news = known.news({"own": own_ms, "early": own_ms - 5, "late": own_ms + 1}, {"g": own_ms})
    assert news == ({"early": own_ms - 5, "late": own_ms + 1}, {"g": own_ms})
    known.adopt(news)
    assert known.version != before
    assert known.news({"late": own_ms + 1}, {"g": own_ms}) == ({}, {})
    asyncio.run(known.persist())
    clock.be_busy(5)
    again = Deletions(JsonFile(file.path), clock)
    again.load()
    assert list(known.export().topics) == ["early", "own", "late"]
    assert again.export() == known.export()
    assert again.covers("late", "x", own_ms + 1)
    assert again.covers("x", "g", own_ms)


def test_deletion_that_is_taken_back_leaves_what_was_known_before() -> None:
    clock = FakeClock()
    known = Deletions(None, clock)
    known.topic("t")
    first_ms = clock.now_ms()
    clock.be_busy(5)
    known.topic("t")()
    known.topic("new")()
    assert known.export().topics == {"t": first_ms}
