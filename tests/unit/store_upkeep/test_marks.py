"""What the check says of the marks beside a store's files, and the running store of its damage."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from roquet.store import diverged
from roquet.store.self_check import SelfCheck
from roquet.store.upkeep.check import Level, _check_marks

if TYPE_CHECKING:
    from pathlib import Path

DIVERGED = (Level.DAMAGE, diverged.NAME)
ABORT, CHECKPOINT = (Level.NOTE, "abort"), (Level.NOTE, "checkpoint")


@pytest.mark.parametrize(
    ("there", "said"),
    [
        ((), [CHECKPOINT]),
        (("checkpoint",), []),
        (("abort",), [ABORT, CHECKPOINT]),
        (("abort", "checkpoint"), [ABORT]),
        (("diverged", "checkpoint"), [DIVERGED]),
        (("diverged", "abort"), [DIVERGED, ABORT, CHECKPOINT]),
    ],
)
def test_check_names_each_mark_that_a_start_goes_by(
    tmp_path: Path, there: tuple[str, ...], said: list[tuple[Level, str]]
) -> None:
    for name in there:
        if name == "diverged":
            diverged.mark(tmp_path, "it differs")
        else:
            (tmp_path / name).write_text("")
    found = list(_check_marks(tmp_path))
    assert [(it.level, it.where) for it in found] == said


def test_damage_is_told_as_it_grows_and_each_kind_by_itself(
    caplog: pytest.LogCaptureFixture,
) -> None:
    damage = SimpleNamespace(reads=0, conflicts=0, last_read="r", last_conflict="c")
    check = SelfCheck(cast("Any", SimpleNamespace(damage=lambda: damage)))

    def told() -> list[str]:
        caplog.clear()
        asyncio.run(check.tell_damage())
        return list(caplog.messages)

    reads = "{} messages cannot be read and were passed over, the last one: r"
    conflicts = "{} records have no place in their queue, the last one: c"
    assert told() == []
    damage.reads = 3
    assert told() == [reads.format(3)]
    assert told() == []
    damage.conflicts = 2
    assert told() == [conflicts.format(2)]
    damage.reads, damage.conflicts = 4, 3
    assert told() == [reads.format(1), conflicts.format(1)]
