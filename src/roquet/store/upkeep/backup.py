"""Copies of a store, made while its broker runs, and what brings them back.

A copy has the tables and the log; queues and index are made anew from the log at the first start.
The tables are copied first, so that no offset points behind the log. The log is copied up to the
last whole record; a file that the copy already has whole is not copied again, so that a backup into
the same folder costs only what is new.
"""

from __future__ import annotations

import dataclasses
import json
import os
from typing import TYPE_CHECKING

from roquet.base.durable import sync_folder, write_synced
from roquet.base.errors import Corrupt, UsageError
from roquet.store.records import Record
from roquet.store.upkeep.logscan import MAGIC_BLANK, record_at, written_files

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

MARK = "roquet-backup.json"
_BLOCK = 1 << 20
_ZEROS = bytes(_BLOCK)


@dataclasses.dataclass(frozen=True, slots=True)
class Copied:
    """What a backup or a restore did."""

    files: int
    bytes: int
    """Bytes of messages: room in a log file that holds none yet does not count."""
    log_end: int


def backup(store: Path, target: Path, progress: Callable[[int], None] = lambda _: None) -> Copied:
    """Copy a store, running or not; `target` is new or an earlier backup. Raises UsageError."""
    files = written_files(store)
    if target.exists() and any(target.iterdir()) and not (target / MARK).exists():
        raise UsageError(f"{target} is not empty and no backup: name a new folder")
    if target.resolve().is_relative_to(store.resolve()):
        raise UsageError(f"{target} lies within the store: name a folder outside")
    (target / "commitlog").mkdir(parents=True, exist_ok=True)
    _copy_tables(store, target)
    _drop_gone(target, {path.name for path in files})
    copied = count = 0
    for path in files:
        done = _copy_log_file(
            path,
            target / "commitlog" / path.name,
            last=path == files[-1],
            progress=_behind(copied, progress),
        )
        if done is None:
            continue
        copied, count = copied + done, count + bool(done)
    end = _end_of(target)
    copied = max(copied - _unwritten(target, end), 0)
    write_synced(target / MARK, json.dumps({"format": 1, "log_end": end}).encode())
    sync_folder(target)
    return Copied(count, copied, end)


def restore(source: Path, store: Path, progress: Callable[[int], None] = lambda _: None) -> Copied:
    """Make a store from a backup; `store` must be new or empty. Raises UsageError, Corrupt."""
    if not (source / MARK).exists():
        raise UsageError(f"{source} is no backup: it has no {MARK}")
    if store.exists() and any(store.iterdir()):
        raise UsageError(f"{store} is not empty: name a new folder")
    wanted = json.loads((source / MARK).read_bytes()).get("log_end")
    end = _end_of(source)
    if wanted != end:
        raise Corrupt(f"the log of {source} ends at {end}, not at {wanted}: it was changed")
    copied = count = 0
    for folder in ("config", "commitlog"):
        (store / folder).mkdir(parents=True, exist_ok=True)
        for path in sorted((source / folder).iterdir()) if (source / folder).is_dir() else []:
            copied += _copy(path, store / folder / path.name, _behind(copied, progress))
            count += 1
        sync_folder(store / folder)
    sync_folder(store)
    return Copied(count, copied, end)


def _behind(before: int, progress: Callable[[int], None]) -> Callable[[int], None]:
    """Return what tells the progress of one file of several."""

    def tell(now: int) -> None:
        progress(before + now)

    return tell


def _unwritten(target: Path, end: int) -> int:
    """Return how many bytes behind the end of its log a copy's last file has."""
    files = written_files(target)
    return int(files[-1].name) + files[-1].stat().st_size - end if files else 0


def _copy_tables(store: Path, target: Path) -> None:
    (target / "config").mkdir(exist_ok=True)
    for path in sorted((store / "config").glob("*.json*")):
        if path.suffix != ".tmp":
            _copy(path, target / "config" / path.name)
    sync_folder(target / "config")


def _drop_gone(target: Path, there: set[str]) -> None:
    for path in (target / "commitlog").iterdir():
        if path.name not in there:
            path.unlink()


def _copy_log_file(
    path: Path, to: Path, *, last: bool, progress: Callable[[int], None]
) -> int | None:
    """Copy one file; return the bytes copied, None when the broker has deleted it meanwhile."""
    try:
        size = path.stat().st_size
        if not last and to.exists() and to.stat().st_size == size and _is_sealed(to):
            return 0
        return _copy(path, to, progress)
    except FileNotFoundError:
        return None


def _is_sealed(path: Path) -> bool:
    """Tell whether a file is full: its records end with a blank or with the file."""
    return _walk(path) is None


def _end_of(store: Path) -> int:
    """Return where the log of a copy ends; erase what is torn behind it."""
    files = written_files(store)
    if not files:
        return 0
    last = files[-1]
    end = _walk(last)
    if end is None:
        return int(last.name) + last.stat().st_size
    _erase_from(last, end)
    return int(last.name) + end


def _walk(path: Path) -> int | None:
    """Return where the whole records of a file end, None when they fill it."""
    data = path.read_bytes()
    at = 0
    while at + 8 <= len(data):
        found = record_at(data, at, int(path.name))
        if isinstance(found, Record):
            at += found.size
            continue
        is_blank = int.from_bytes(data[at + 4 : at + 8], "big") == MAGIC_BLANK
        return None if is_blank else at
    return None


def _erase_from(path: Path, at: int) -> None:
    """Make the bytes from `at` on zero, without writing them."""
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.truncate(at)
        file.truncate(size)
        os.fsync(file.fileno())


def _copy(path: Path, to: Path, progress: Callable[[int], None] = lambda _: None) -> int:
    """Copy a file; blocks of zeros take no room in the copy. Return its size."""
    draft = to.with_name(to.name + ".part")
    with path.open("rb") as source, draft.open("wb") as target:
        while block := source.read(_BLOCK):
            if block == _ZEROS[: len(block)]:
                target.seek(len(block), os.SEEK_CUR)
            else:
                target.write(block)
            progress(target.tell())
        size = target.tell()
        # This also writes what is buffered.
        target.truncate(size)
        os.fsync(target.fileno())
    draft.replace(to)
    return size
