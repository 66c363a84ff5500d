"""The steps of a rebuild, with the work of tasks done by whoever is given for it.

All of it happens in a folder of its own beside the new store, which gets its name when everything
in it is durable. Pieces that an interrupted run has left are used again.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from roquet._native import (
    deleted_topics,
    is_locked,
    rebuild_index_file,
    rebuild_queue_file,
    rebuild_span,
)
from roquet.base.durable import replace_file, sync_folder
from roquet.base.errors import UsageError
from roquet.spark.log_files import GapPartition, LogPartition, Store, plan_store
from roquet.spark.rebuilding.log_copy import LogCopy
from roquet.spark.rebuilding.pieces import Last, Piece, PieceTask, make_piece
from roquet.spark.rebuilding.queues import (
    IndexTask,
    QueueFileTask,
    QueuePlan,
    Queues,
    index_names,
    plan_index,
)
from roquet.spark.rebuilding.tables import topics_of, write_tables

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

A = TypeVar("A")
B = TypeVar("B")

UNIT: Final = 20
PART_BYTES: Final = 128 << 20
"""Bytes of the log that one task reads, about."""
NOTE: Final = "deletedTopics"

Range = tuple[str, int, int, str]
"""A damaged range: file, first log offset, the one behind the last, what is wrong."""


class Each(Protocol):
    """Does work for each of many tasks, and returns results in order."""

    def __call__(self, work: Callable[[A], B], tasks: Sequence[A]) -> list[B]:
        """Do it."""
        ...


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What the new store is to be like."""

    store: str
    out: Path
    link: bool
    queue_units: int
    index: tuple[int, int] | None
    """Slots and entries of an index file; None makes no index."""
    delays: tuple[int, ...]
    """Milliseconds of each delay level."""
    part_bytes: int = PART_BYTES


@dataclasses.dataclass(frozen=True, slots=True)
class Found:
    """What was in the log, and what became of it."""

    pieces: Sequence[Piece]
    damage: Sequence[Range]
    queues: Sequence[QueuePlan]
    last: Last


class Steps:
    """One rebuild: `rebuild`, `tables`, `commit`."""

    def __init__(self, shape: Shape, each: Each, say: Callable[[str], None]) -> None:
        """Look at the files of the log. Raises UsageError; OSError."""
        self._shape = shape
        self._each = each
        self._say = say
        self._store = Store.find(shape.store)
        self._print = _fingerprint(shape, self._store)
        self._work = shape.out.with_name(shape.out.name + ".rebuilding")
        self._made = self._work / "store"
        self._side = self._work / "side"
        self._done = shape.out.with_name(shape.out.name + ".rebuilt")

    def known(self) -> dict[str, Any] | None:
        """Return the note of an earlier run that is `out`, None when `out` is empty or not there.

        Raises UsageError when something else is there.
        """
        out = self._shape.out
        if not out.exists() or not any(out.iterdir()):
            return None
        note = _note(self._done)
        if note.get("fingerprint") != self._print:
            raise UsageError(f"out = {out}: there is something in it already")
        return note

    def rebuild(self) -> Found:
        """Make log, queues and index. Raises UsageError; Corrupt; OSError."""
        if is_locked(str(self._store.root / "lock")):
            raise UsageError(f"a broker has {self._store.root} open: stop it first")
        self._begin()
        pieces, damage = self._pieces()
        last = max((it.last for it in pieces if it.last), key=lambda it: it.begin, default=None)
        if last is None:
            raise UsageError(f"{self._shape.store}: no record can be read")
        self._mend(damage, last.end)
        queues = self._queues(pieces)
        self._index(pieces)
        return Found(pieces, damage, queues, last)

    def tables(self, found: Found, delays: Mapping[int, int]) -> None:
        """Write topics, how far each delay level was delivered, checkpoint. Raises OSError."""
        write_tables(self._made, topics_of(found.queues), delays, found.last)

    def commit(self, note: Mapping[str, object]) -> None:
        """Give the store its name; `note` is what `known` says from then on. Raises OSError."""
        out = self._shape.out
        for folder, _, _ in os.walk(self._made):
            sync_folder(Path(folder))
        replace_file(self._done, json.dumps({**note, "fingerprint": self._print}).encode())
        if out.exists():
            out.rmdir()
        self._made.rename(out)
        sync_folder(out.parent)
        shutil.rmtree(self._work, ignore_errors=True)

    # --- inside ------------------------------------------------------------------------------

    def _begin(self) -> None:
        """Use what an interrupted run with the same log and options has left, and nothing else."""
        note = self._work / "run.json"
        if _note(note).get("fingerprint") != self._print:
            shutil.rmtree(self._work, ignore_errors=True)
        shutil.rmtree(self._side, ignore_errors=True)
        for folder in (self._work / "pieces", self._made, self._side):
            folder.mkdir(parents=True, exist_ok=True)
        replace_file(note, json.dumps({"fingerprint": self._print}).encode())
        for name in ("consumequeue", "index"):
            shutil.rmtree(self._made / name, ignore_errors=True)
        if (self._store.root / NOTE).exists():
            shutil.copyfile(self._store.root / NOTE, self._made / NOTE)

    def _pieces(self) -> tuple[list[Piece], list[Range]]:
        shape = self._shape
        log = self._log()
        if shape.link:
            log.share()
        else:
            log.prepare()
        size = sum(file.end - file.base for file in self._store.files)
        parts = plan_store(self._store, max(1, -(-size // shape.part_bytes)))
        deleted = dict(deleted_topics(str(self._store.root)))
        tasks = [
            PieceTask(
                file=part.file,
                begin=part.begin,
                end=part.end,
                folder=str(self._work / "pieces"),
                copy=None if shape.link else str(log.path(part.file.base)),
                delays=shape.delays,
                deleted=deleted,
            )
            for part in parts
            if isinstance(part, LogPartition)
        ]
        self._say(f"{len(tasks)} parts of the log")
        pieces = self._each(make_piece, tasks)
        self._say(f"{sum(it.records for it in pieces):,} records read")
        gaps = [
            (part.folder, part.begin, part.end, "no file holds these offsets")
            for part in parts
            if isinstance(part, GapPartition)
        ]
        found = [
            (task.file.path, low, high, why)
            for task, piece in zip(tasks, pieces, strict=True)
            for low, high, why in piece.damage
        ]
        return pieces, sorted([*gaps, *found], key=lambda it: it[1])

    def _log(self) -> LogCopy:
        files = self._store.files
        size = max(file.end - file.base for file in files)
        return LogCopy(self._made / "commitlog", files, size)

    def _mend(self, damage: Sequence[Range], end: int) -> None:
        if damage and self._shape.link:
            raise UsageError(
                f"log = link: {len(damage)} damaged ranges would have to be filled in the files of"
                f" {self._shape.store} themselves; use log = copy"
            )
        if not self._shape.link:
            self._log().mend([(low, high) for _, low, high, _ in damage], end)
        sync_folder(self._made / "commitlog")

    def _queues(self, pieces: Sequence[Piece]) -> list[QueuePlan]:
        folder = str(self._made / "consumequeue")
        planner = Queues(self._shape.queue_units, folder, rebuild_span)
        deleted = dict(deleted_topics(str(self._store.root)))
        found = list(planner.plan(pieces, deleted))
        for queue in found:
            Path(folder, queue.topic, str(queue.queue_id)).mkdir(parents=True, exist_ok=True)
        tasks = [task for queue in found for task in queue.tasks]
        self._each(functools.partial(_queue_file, str(self._side)), tasks)
        self._say(f"{len(found):,} queues in {len(tasks):,} files")
        return found

    def _index(self, pieces: Sequence[Piece]) -> None:
        if self._shape.index is None:
            return
        tasks = plan_index(pieces, self._shape.index[1])
        folder = self._made / "index"
        folder.mkdir(exist_ok=True)
        names = index_names(_time_of(task) for task in tasks)
        work = [
            (str(folder / name), self._shape.index, task)
            for name, task in zip(names, tasks, strict=True)
        ]
        self._each(functools.partial(_index_file, str(self._side)), work)
        sync_folder(folder)
        self._say(f"{sum(task.keys for task in tasks):,} keys in {len(tasks)} index files")


# --- inside --------------------------------------------------------------------------------------


def _queue_file(side: str, task: QueueFileTask) -> int:
    def write(path: str) -> int:
        runs = list(task.runs)
        return rebuild_queue_file(
            path, task.begin, task.units, task.first, runs, task.cut, task.floor
        )

    return _whole(side, task.path, write)


def _index_file(side: str, work: tuple[str, tuple[int, int], IndexTask]) -> int:
    path, (slots, entries), task = work
    runs = list(task.runs)
    return _whole(side, path, lambda other: rebuild_index_file(other, slots, entries, runs))


def _whole(side: str, path: str, write: Callable[[str], int]) -> int:
    """Write a file elsewhere first: a task may be killed, or run twice at a time.

    Not beside it: brokers take every file in their folders for one of theirs.
    """
    other = Path(side) / f"{os.getpid()}-{os.urandom(8).hex()}"
    count = write(str(other))
    other.replace(path)
    return count


def _time_of(task: IndexTask) -> int:
    path, at, _ = task.runs[0]
    with Path(path).open("rb") as file:
        file.seek(at + 12)
        return int.from_bytes(file.read(8), "big", signed=True)


def _fingerprint(shape: Shape, store: Store) -> str:
    """Return a text that is equal for equal options and unchanged files."""
    files = [(it, Path(it.path).stat().st_mtime_ns) for it in store.files]
    return hashlib.sha256(repr((shape, files)).encode()).hexdigest()


def _note(path: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(path.read_bytes())
    except (FileNotFoundError, ValueError):
        return {}
    return found
