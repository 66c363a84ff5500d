"""Which commit-log files there are, where the log in them ends, and how tasks share them."""

from __future__ import annotations

import dataclasses
import errno
import itertools
import logging
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import InputPartition

from roquet._native import checkpoint_of, is_locked
from roquet.base.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

log = logging.getLogger(__name__)

NAME: Final = r"[0-9]{20}"
BLOCK: Final = 1 << 16
"""Bytes looked at at a time: few enough that they stay in the processor's cache."""
ZEROS: Final = bytes(BLOCK)
NO_STOP: Final = 2**64 - 1
NO_TIME: Final = 2**63 - 1


@dataclasses.dataclass(frozen=True, slots=True)
class Found:
    """A file with a log's name as a folder lists it: bytes, and time of its last change."""

    path: str
    size: int
    time_ns: int = 0

    @property
    def base(self) -> int:
        """The log offset that it is named after."""
        return int(self.path.rpartition("/")[2])


@dataclasses.dataclass(frozen=True, slots=True)
class LogFile:
    """One file. `end` is the log offset behind its last byte, where the next file begins."""

    path: str
    base: int
    end: int
    last: bool
    """The log ends in this file."""
    seen: Found | None = None
    """What a file elsewhere was when it was planned; None: it is on a disk."""


@dataclasses.dataclass(frozen=True, slots=True)
class Limit:
    """How far the log of a store that a broker has open may be read."""

    stop: int = NO_STOP
    """Log offset that is not read any more."""
    stop_time_ms: int = NO_TIME
    """The log ends before the first record stored later."""


@dataclasses.dataclass(frozen=True)
class LogPartition(InputPartition):
    """What one task reads: records that begin at log offsets `begin` to `end`."""

    file: LogFile
    begin: int
    end: int
    limit: Limit


@dataclasses.dataclass(frozen=True)
class GapPartition(InputPartition):
    """Log offsets that no file has, although later ones are there."""

    folder: str
    begin: int
    end: int


Part = LogPartition | GapPartition


def plan(paths: Iterable[str], parts_min: int | None = None) -> list[Part]:
    """Return what tasks read of the stores at `paths`; files of each in order.

    Raises UsageError for a folder without commit log, or files that overlap; OSError.
    """
    stores = [Store.find(path) for path in paths]
    # What is ready for later records is nobody's work.
    sizes = {it: _used(it) if parts_min else it.end - it.base for at in stores for it in at.files}
    return [part for store in stores for part in _parts(store, parts_min, sizes)]


def plan_store(store: Store, parts_min: int) -> list[Part]:
    """Return what tasks read of one store. Raises OSError."""
    return list(_parts(store, parts_min, {file: _used(file) for file in store.files}))


def _parts(store: Store, parts_min: int | None, sizes: Mapping[LogFile, int]) -> Iterator[Part]:
    return parts(store.files, store.limit(), parts_min, sizes)


def parts(
    files: Sequence[LogFile],
    limit: Limit,
    parts_min: int | None = None,
    sizes: Mapping[LogFile, int] | None = None,
) -> Iterator[Part]:
    """Yield what tasks read of one log. With `parts_min` files are split by their `sizes`."""
    sizes = sizes or {it: it.end - it.base for it in files}
    total = sum(sizes.values())
    for before, file in itertools.pairwise((None, *files)):
        assert file is not None
        if before is not None and before.end < file.base:
            yield GapPartition(file.path.rpartition("/")[0], before.end, file.base)
        if file.base < limit.stop:
            count = 1
            if parts_min is not None and total:
                # Rounded up, so that the wish is met.
                count = max(1, -(-sizes[file] * parts_min // total))
            yield from _split(file, limit, sizes[file], count)


def _split(file: LogFile, limit: Limit, size: int, count: int) -> Iterator[Part]:
    edges = [file.base + size * number // count for number in range(count)] + [file.end]
    for begin, end in itertools.pairwise(edges):
        if begin < end:
            yield LogPartition(file, begin, end, limit)


@dataclasses.dataclass(frozen=True, slots=True)
class Store:
    """A store's folder and the files of its log."""

    root: Path
    files: Sequence[LogFile]

    @classmethod
    def find(cls, path: str) -> Store:
        """Look at a store folder or a commitlog folder; several folders of one log by `:`."""
        folders = [Path(part) for part in path.split(":") if part]
        inner = [it / "commitlog" if (it / "commitlog").is_dir() else it for it in folders]
        named = [file for folder in inner for file in _named(folder)]
        if not named:
            raise UsageError(
                f"path = {path[:200]!r}: there is no commit-log file, neither in it nor in its"
                " folder commitlog"
            )
        return cls(inner[0].parent, _on_disk(named))

    def limit(self) -> Limit:
        """Return how far to read: all of a stopped store, what is durable of an open one."""
        if not is_locked(str(self.root / "lock")):
            return Limit()
        try:
            data = (self.root / "checkpoint").read_bytes()
        except FileNotFoundError:
            data = b""
        time_ms, confirmed, flushed = checkpoint_of(data)
        stops = [stop for stop in (flushed, confirmed) if stop]
        if stops:
            return Limit(stop=min(stops))
        if time_ms > 0:
            return Limit(stop_time_ms=time_ms)
        log.warning("%s is open and nothing says what is durable: nothing is read", self.root)
        return Limit(stop=0)


def _named(folder: Path) -> list[Path]:
    try:
        found = sorted(folder.iterdir())
    except (FileNotFoundError, NotADirectoryError) as error:
        raise UsageError(f"path = {str(folder)[:200]!r}: there is no such folder") from error
    return [it for it in found if re.fullmatch(NAME, it.name) is not None]


def _on_disk(paths: Iterable[Path]) -> list[LogFile]:
    found = in_order([Found(str(path), path.stat().st_size) for path in paths], _is_blank)
    return [dataclasses.replace(file, seen=None) for file in found]


def in_order(named: Iterable[Found], is_blank: Callable[[Found], bool]) -> list[LogFile]:
    """Return the files of one log. Raises UsageError for files that overlap; OSError."""
    by_base = sorted(named, key=lambda it: it.base)
    # Files are made before they are needed; the log ends before those.
    while len(by_base) > 1 and is_blank(by_base[-1]):
        by_base.pop()
    found: list[LogFile] = []
    for it, following in itertools.zip_longest(by_base, by_base[1:]):
        end = it.base + it.size
        if following is not None and end > following.base:
            raise UsageError(f"{it.path} and {following.path} overlap: they are of different logs")
        found.append(LogFile(it.path, it.base, end, following is None, it))
    return _full_length(found)


def _full_length(files: Sequence[LogFile]) -> list[LogFile]:
    """Give files that were cut off the length that the others have, so that the loss shows."""
    size = max((file.end - file.base for file in files), default=0)
    found: list[LogFile] = []
    for file, following in itertools.zip_longest(files, files[1:]):
        end = file.end
        if following is not None:
            end = max(end, min(file.base + size, following.base))
        found.append(dataclasses.replace(file, end=end))
    return found


def _used(file: LogFile) -> int:
    """Return the bytes of a file up to the last that is not zero; holes are not read."""
    if not file.last:
        return file.end - file.base
    with Path(file.path).open("rb", buffering=0) as opened:
        used = _data_end(opened.fileno(), file.end - file.base)
        # Each reader of the end makes the system read on into what is blank, some megabytes a
        # time, and that is no hole any more as long as it is kept: the next one would read it.
        os.posix_fadvise(opened.fileno(), used + BLOCK, 0, os.POSIX_FADV_DONTNEED)
        return used


def _data_end(handle: int, size: int) -> int:
    """Return where the last byte ends that is not zero."""
    for begin, end in reversed(list(data_ranges(handle, 0, size))):
        at = end
        while at > begin:
            length = min(BLOCK, at - begin)
            block = os.pread(handle, length, at - length)
            # Comparing is much quicker than stripping, and most of what is looked at is zeros.
            if not _only_zeros(block):
                return at - length + len(block.rstrip(b"\0"))
            at -= length
    return 0


def data_ranges(handle: int, begin: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield the parts of an open file, between two places, that its file system has blocks for."""
    at = begin
    while at < end:
        try:
            data = os.lseek(handle, at, os.SEEK_DATA)
            at = os.lseek(handle, data, os.SEEK_HOLE)
        except OSError as error:
            if error.errno == errno.ENXIO:
                return
            raise
        if data < end:
            yield data, min(at, end)


def _is_blank(found: Found) -> bool:
    """Whether a file holds zeros only; holes are not read."""
    with Path(found.path).open("rb", buffering=0) as file:
        # All are found before one is looked at: what was read is a hole no more.
        for begin, end in list(data_ranges(file.fileno(), 0, found.size)):
            for at in range(begin, end, BLOCK):
                block = os.pread(file.fileno(), min(BLOCK, end - at), at)
                if not _only_zeros(block):
                    return False
    return True


def _only_zeros(block: bytes) -> bool:
    """Whether at most `BLOCK` bytes are zeros."""
    return block == ZEROS or block == ZEROS[: len(block)]
