"""What one task makes of one part of a log: its piece, and what is in it.

A piece holds queue units and index keys (crates/core/src/rebuild). Beside it lies a note of what is
where in it, written last: a part with a note is never read again. Both get their names only when
they are whole and durable, so that a task may be killed, repeated or run twice at a time.
"""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from roquet._native import rebuild_piece
from roquet.base.durable import sync_folder, write_synced
from roquet.spark.log_files import data_ranges

if TYPE_CHECKING:
    from collections.abc import Mapping

    from roquet.spark.log_files import LogFile

COPY_BLOCK: Final = 1 << 20


@dataclasses.dataclass(frozen=True, slots=True)
class PieceTask:
    """Records that begin at log offsets `begin` to `end`; `copy` is the log file to copy into."""

    file: LogFile
    begin: int
    end: int
    folder: str
    copy: str | None
    delays: tuple[int, ...]
    """Milliseconds of each delay level."""
    deleted: Mapping[str, int]
    """Topics that the store's note calls deleted, each with the end of the log at that moment."""


@dataclasses.dataclass(frozen=True, slots=True)
class QueueRun:
    """The units of one queue in one piece; log offsets are of records, `end` is exclusive."""

    topic: str
    queue_id: int
    at: int
    count: int
    first: int
    end: int
    first_physical: int
    zeros: tuple[int, ...]
    """Where records are that begin the queue at offset 0."""
    gapless: bool


@dataclasses.dataclass(frozen=True, slots=True)
class Last:
    """A record: its first byte, the one behind its last, its store time in Unix milliseconds."""

    begin: int
    end: int
    time_ms: int


@dataclasses.dataclass(frozen=True, slots=True)
class Piece:
    """A piece and what is in it."""

    path: str
    begin: int
    records: int
    bytes: int
    keys_at: int
    keys: int
    last: Last | None
    runs: tuple[QueueRun, ...]
    unplaced: tuple[tuple[str, str, int], ...]
    """Topic, reason, count of records that have no place in a queue."""
    damage: tuple[tuple[int, int, str], ...]
    """First log offset, the one behind the last, what is wrong."""


def make_piece(task: PieceTask) -> Piece:
    """Make one piece and copy its part of the log. Raises OSError."""
    path = Path(task.folder) / f"{task.begin:020}"
    note = path.with_suffix(".json")
    if not note.exists():
        # Two tries of one task may run at a time.
        side = path.with_suffix(f".{os.getpid()}-{os.urandom(4).hex()}")
        found = rebuild_piece(
            str(side),
            task.file.path,
            task.file.base,
            task.file.end,
            task.begin,
            task.end,
            delays=task.delays,
            deleted=dict(task.deleted),
            last=task.file.last,
        )
        if task.copy is not None:
            copy_range(task.file, task.begin, task.end, Path(task.copy))
        side.replace(path)
        side = side.with_name(side.name + ".json")
        write_synced(side, json.dumps(found).encode())
        side.replace(note)
        sync_folder(note.parent)
    return _read(path, task.begin, json.loads(note.read_bytes()))


def copy_range(file: LogFile, begin: int, end: int, target: Path) -> None:
    """Copy the bytes of a log file at log offsets `begin` to `end`; zeros stay holes.

    The target is there and has its full length. Raises OSError.
    """
    low, high = begin - file.base, end - file.base
    with Path(file.path).open("rb", buffering=0) as source, target.open("r+b") as copy:
        for start, stop in data_ranges(source.fileno(), low, high):
            at = start
            while at < stop:
                block = os.pread(source.fileno(), min(COPY_BLOCK, stop - at), at)
                if not block:
                    break
                if block.count(0) != len(block):
                    _write(copy.fileno(), block, at)
                at += len(block)
        os.fsync(copy.fileno())


def _write(handle: int, data: bytes, at: int) -> None:
    view = memoryview(data)
    while view:
        count = os.pwrite(handle, view, at)
        view, at = view[count:], at + count


def _read(path: Path, begin: int, found: Any) -> Piece:
    (records, size, keys_at, keys), last, runs, unplaced, damage = found
    return Piece(
        path=str(path),
        begin=begin,
        records=records,
        bytes=size,
        keys_at=keys_at,
        keys=keys,
        last=None if last is None else Last(*last),
        runs=tuple(_run(*run) for run in runs),
        unplaced=tuple((topic, why, count) for topic, why, count in unplaced),
        damage=tuple((low, high, why) for low, high, why in damage),
    )


def _run(*fields: Any) -> QueueRun:
    *numbers, zeros, gapless = fields
    topic, queue_id, at, count, first, end, first_physical = numbers
    return QueueRun(topic, queue_id, at, count, first, end, first_physical, tuple(zeros), gapless)
