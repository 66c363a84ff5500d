"""Making a store startable again: derived files go aside, tables come from their copies.

The log is never written here. A start of the broker erases a torn tail and makes queues and index
anew; what is put aside keeps its name with `.broken` behind it: nothing is lost by a repair.
"""

from __future__ import annotations

import dataclasses
import shutil
from typing import TYPE_CHECKING

from roquet.base.durable import sync_folder
from roquet.base.errors import UsageError
from roquet.store.upkeep.check import Level, check, is_used, table_fault

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

DERIVED = ("consumequeue", "index", "checkpoint")


@dataclasses.dataclass(frozen=True, slots=True)
class Step:
    """One thing that a repair does."""

    text: str
    act: Callable[[], None]


def plan(folder: Path) -> list[Step]:
    """Return what would be done, in order; empty when there is nothing. Raises UsageError."""
    findings = check(folder).findings
    steps: list[Step] = []
    if any(it.level is Level.REPAIRABLE and it.where.startswith("consumequeue") for it in findings):
        steps.extend(
            Step(f"put {name} aside: the next start makes it anew", _aside(folder / name))
            for name in DERIVED
            if (folder / name).exists()
        )
    for path in sorted((folder / "config").glob("*.json")):
        spare = path.with_name(path.name + ".bak")
        if table_fault(path) and spare.exists() and table_fault(spare) is None:
            steps.append(Step(f"take config/{path.name} from its .bak", _from_spare(path, spare)))
    return steps


def refuse_if_used(folder: Path) -> None:
    """Raise UsageError when a broker has the store open."""
    if is_used(folder):
        raise UsageError(f"a broker has {folder} open: stop it first")


def _aside(path: Path) -> Callable[[], None]:
    def act() -> None:
        free = path.with_name(path.name + ".broken")
        number = 1
        while free.exists():
            number += 1
            free = path.with_name(f"{path.name}.broken{number}")
        path.rename(free)
        sync_folder(path.parent)

    return act


def _from_spare(path: Path, spare: Path) -> Callable[[], None]:
    def act() -> None:
        _aside(path)()
        shutil.copy2(spare, path)
        sync_folder(path.parent)

    return act
