"""The garbage collector looks at old objects when it is told to, and frees cycles all the same."""

from __future__ import annotations

import gc
import weakref
from typing import TYPE_CHECKING

import pytest

from roquet.service.process import collector
from roquet.service.process.collector import OldGeneration, long_work

if TYPE_CHECKING:
    from collections.abc import Iterator


class Node:
    """One that points to itself."""

    def __init__(self) -> None:
        self.me = self


@pytest.fixture(autouse=True)
def _collector_as_it_was() -> Iterator[None]:
    thresholds = gc.get_threshold()
    yield
    gc.set_threshold(*thresholds)
    gc.unfreeze()


def busy() -> None:
    """Make as many lasting objects as call for a look."""
    kept = [[number] for number in range(50_000)]
    del kept


def test_no_run_of_the_collector_by_itself_goes_over_old_objects() -> None:
    OldGeneration().settle()
    whole = gc.get_stats()[2]["collections"]
    kept = [[number] for number in range(300_000)]
    assert gc.get_stats()[2]["collections"] == whole
    assert kept


def test_tick_frees_young_cycles_and_old_ones_when_they_have_doubled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    old = OldGeneration()
    old.settle()
    busy()
    young = weakref.ref(Node())
    old.tick()
    assert young() is None
    node = Node()
    aged = weakref.ref(node)
    busy()
    old.tick()
    del node
    busy()
    old.tick()
    assert aged() is not None
    monkeypatch.setattr(collector, "SLACK", -gc.get_freeze_count() * 2)
    busy()
    old.tick()
    assert aged() is None


def test_tick_waits_for_long_work_but_not_for_ever() -> None:
    old = OldGeneration()
    old.settle()
    with long_work():
        busy()
        young = weakref.ref(Node())
        old.tick()
        for _ in range(collector.WAITS_MAX - 1):
            old.tick()
        waited = young() is not None
        old.tick()
    assert waited
    assert young() is None


def test_looks_are_rare_while_few_objects_are_made_and_frequent_again_afterwards() -> None:
    old = OldGeneration()
    old.settle()
    pauses: list[float] = []
    for work in (False, False, True, False, False):
        if work:
            busy()
        old.tick()
        pauses.append(old.pause_s)
    quiet, soon = collector.QUIET_S, collector.PERIOD_S
    assert pauses[1:] == [quiet, soon, soon, quiet]
