"""A commit log read from its files alone, record by record, damage included.

No broker has to be stopped for it: the files are opened for reading only, and what a running broker
appends meanwhile is seen or not. Java's files and ours are the same (spec: store §3).
"""

from __future__ import annotations

import dataclasses
import mmap
import re
import struct
from typing import TYPE_CHECKING, TypeAlias

from roquet.base.errors import UsageError
from roquet.store.records import Record, read_records

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MAGIC_V1 = 0xDAA320A7
MAGIC_V2 = 0xDAA320AB
MAGIC_BLANK = 0xCBD43194
NAME_DIGITS = 20
_HEAD = struct.Struct(">II")
_MAGIC = re.compile(b"|".join(re.escape(it.to_bytes(4, "big")) for it in (MAGIC_V1, MAGIC_V2)))
_MAGIC_AT = 4
"""Where a record has it."""
_ZEROS = bytes(1 << 16)


@dataclasses.dataclass(frozen=True, slots=True)
class Damage:
    """Bytes of the log, `begin` to `end`, that are no record."""

    begin: int
    end: int
    file: str
    why: str


@dataclasses.dataclass(frozen=True, slots=True)
class End:
    """The log ends here: behind are only bytes that were never written."""

    offset: int


Piece: TypeAlias = Record | Damage | End


def log_files(folder: Path) -> list[Path]:
    """Return the commit-log files of a store in order. Raises UsageError when there are none."""
    log = folder / "commitlog"
    if not log.is_dir():
        raise UsageError(f"{folder} is no store: it has no folder commitlog")
    names = [path for path in log.iterdir() if is_log_name(path.name) and path.is_file()]
    return sorted(names, key=lambda path: path.name)


def written_files(folder: Path) -> list[Path]:
    """Return the commit-log files without those made ahead, which hold nothing yet."""
    files = log_files(folder)
    while len(files) > 1 and _holds_nothing(files[-1]):
        files.pop()
    return files


def _holds_nothing(path: Path) -> bool:
    if path.stat().st_size == 0:
        return True
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        return _is_zero(data, 0)


def is_log_name(name: str) -> bool:
    """Tell whether a file is called as Java calls them: the offset of its first byte."""
    return len(name) == NAME_DIGITS and name.isascii() and name.isdigit()


def scan(folder: Path) -> Iterator[Piece]:
    """Yield every record, every damaged range, and where the log ends. Raises UsageError."""
    expected: int | None = None
    files = written_files(folder)
    for path in files:
        base = int(path.name)
        if expected is not None and base != expected:
            yield Damage(expected, base, path.name, "the file before it is missing or short")
        expected = base + path.stat().st_size
        yield from _scan_file(path, base, last=path == files[-1])


def _scan_file(path: Path, base: int, *, last: bool) -> Iterator[Piece]:
    if path.stat().st_size == 0:
        yield Damage(base, base, path.name, "the file is empty")
        return
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        at = 0
        while at + _HEAD.size <= len(data):
            found = record_at(data, at, base)
            if isinstance(found, Record):
                yield found
                at += found.size
                continue
            if _HEAD.unpack_from(data, at)[1] == MAGIC_BLANK:
                return
            following = _next_record(data, at, base)
            if following is None and last and _is_zero(data, at):
                yield End(base + at)
                return
            end = len(data) if following is None else following
            yield Damage(base + at, base + end, path.name, found)
            at = end


def record_at(data: mmap.mmap | bytes, at: int, base: int) -> Record | str:
    """Return the record at a place of a file, or why there is none."""
    size, magic = _HEAD.unpack_from(data, at)
    if magic not in (MAGIC_V1, MAGIC_V2):
        return "no record begins here"
    if not 0 < size <= len(data) - at:
        return f"a record says that it has {size} bytes"
    try:
        (record,) = read_records(bytes(data[at : at + size]))
    except ValueError as error:
        return str(error)
    if record.physical_offset != base + at:
        return f"a record says that it belongs to {record.physical_offset}"
    return record


def _next_record(data: mmap.mmap, at: int, base: int) -> int | None:
    """Return where the next whole record begins, None when there is none."""
    begin = at + _MAGIC_AT
    while (found := _MAGIC.search(data, begin)) is not None:
        place, begin = found.start() - _MAGIC_AT, found.end()
        if isinstance(record_at(data, place, base), Record):
            return place
    return None


def _is_zero(data: mmap.mmap, at: int) -> bool:
    while at < len(data):
        block = data[at : at + len(_ZEROS)]
        if block != _ZEROS[: len(block)]:
            return False
        at += len(block)
    return True
