"""When syncs may be done in place."""

from __future__ import annotations

from roquet.broker.fastpath.inline_sync import ENOUGH, InlineSyncPolicy


def test_a_disk_is_quick_once_enough_syncs_were() -> None:
    disk = InlineSyncPolicy(1000)
    assert not disk.look(0, 0)
    assert not disk.look(ENOUGH - 1, 100)
    assert disk.look(ENOUGH, 200)
    assert disk.look(ENOUGH, 200), "nothing new"
    assert disk.look(2 * ENOUGH, 200 + ENOUGH * 999)
    assert not disk.look(3 * ENOUGH, 200 + ENOUGH * 1999)


def test_few_slow_syncs_end_it_and_quick_ones_bring_it_back() -> None:
    disk = InlineSyncPolicy(1000)
    assert disk.look(100, 10_000)
    assert not disk.look(101, 10_000 + ENOUGH * 1000 + 1), "one stall"
    assert not disk.look(101 + ENOUGH - 1, 30_000)
    assert disk.look(101 + ENOUGH, 30_000)


def test_with_nothing_allowed_no_disk_is_quick() -> None:
    disk = InlineSyncPolicy(0)
    assert not disk.look(100, 0)
    assert not disk.look(1000, 1)
