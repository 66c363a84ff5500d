"""The log of a rebuilt store: copied or shared, and mended where it holds no record.

A broker reads a log from front to back: Java's cuts it at the first byte that is no record, ours
does not start. A damaged range is therefore filled with records that stand for nothing (rolled-back
ones, which have neither queue nor index), and a file without an end gets one.
"""

from __future__ import annotations

import dataclasses
import os
import struct
import zlib
from typing import TYPE_CHECKING, Final

from roquet.base.errors import Corrupt

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from roquet.spark.log_files import LogFile

TOPIC: Final = b"ROQUET_DAMAGED"
"""The topic of records that fill damage."""
FILL_MAX: Final = 1 << 20
"""Bytes of one such record at most."""
_MAGIC: Final = 0xDAA320A7
_BLANK: Final = 0xCBD43194
_BLANK_SIZE: Final = 8
_ROLLED_BACK: Final = 0xC
_HEAD: Final = struct.Struct(">IIIiiqqiq8sq8siqi")
_FIXED: Final = _HEAD.size + 1 + 2
_NOBODY: Final = bytes([127, 0, 0, 1]) + bytes(4)
_TIME_AT: Final = 56


@dataclasses.dataclass(frozen=True, slots=True)
class LogCopy:
    """The files of a log as they will be in `folder`, each of `size` bytes."""

    folder: Path
    files: Sequence[LogFile]
    size: int

    def path(self, base: int) -> Path:
        """Return the file that begins at a log offset."""
        return self.folder / f"{base:020}"

    def prepare(self) -> None:
        """Make every file in its full length; the last with its blocks, as brokers do.

        Raises OSError.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        for file in self.files:
            with self.path(file.base).open("ab") as opened:
                opened.truncate(self.size)
                if file.last:
                    os.posix_fallocate(opened.fileno(), 0, self.size)

    def share(self) -> None:
        """Give the files of the log a second name here. Raises OSError."""
        self.folder.mkdir(parents=True, exist_ok=True)
        for file in self.files:
            target = self.path(file.base)
            target.unlink(missing_ok=True)
            target.hardlink_to(file.path)

    def mend(self, damage: Sequence[tuple[int, int]], end: int) -> None:
        """Fill damaged ranges in order of the log, which ends at `end`.

        Raises Corrupt for a range that is too short to be filled; OSError.
        """
        # From the back, since what fills a range has the time of what follows it.
        for low, high in reversed(damage):
            if low >= end:
                self._clear(low)
            elif any(file.base <= low < file.base + self.size for file in self.files):
                self._fill(low, high)
            else:
                self._fill_gap(low, high)

    def _clear(self, low: int) -> None:
        """Make nothing of what follows a log's last record."""
        base = self._base(low)
        with self.path(base).open("r+b") as file:
            file.truncate(low - base)
            file.truncate(self.size)
            os.fsync(file.fileno())

    def _fill_gap(self, low: int, high: int) -> None:
        """Make the files that are missing."""
        if (high - low) % self.size:
            raise Corrupt(f"no file holds offsets {low} to {high}, which are no whole files")
        time_ms = self._time(high)
        for base in range(low, high, self.size):
            with self.path(base).open("wb") as file:
                file.truncate(self.size)
            stop = base + self.size - _BLANK_SIZE
            self._records(base, base, stop, time_ms)
            self._blank(base, stop)

    def _fill(self, low: int, high: int) -> None:
        base = self._base(low)
        if high >= base + self.size:
            self._blank(base, low)
        else:
            self._records(base, low, high, self._time(high))

    def _blank(self, base: int, at: int) -> None:
        left = base + self.size - at
        if left < _BLANK_SIZE:
            raise Corrupt(f"{self.path(base)}: {left} bytes at its end cannot be filled")
        with self.path(base).open("r+b") as file:
            file.seek(at - base)
            file.write(struct.pack(">II", left, _BLANK))
            file.flush()
            os.fsync(file.fileno())

    def _records(self, base: int, low: int, high: int, time_ms: int) -> None:
        with self.path(base).open("r+b") as file:
            for at, data in fillers(low, high, time_ms):
                file.seek(at - base)
                file.write(data)
            file.flush()
            os.fsync(file.fileno())

    def _time(self, at: int) -> int:
        """Return the store time of the record at a log offset, something else if there is none."""
        base = self._base(at)
        with self.path(base).open("rb") as file:
            file.seek(at - base)
            head = file.read(_TIME_AT + 12 + 8)
        if len(head) < _TIME_AT + 12 + 8:
            return 1
        (flags,) = struct.unpack_from(">i", head, 36)
        (time_ms,) = struct.unpack_from(">q", head, _TIME_AT + (12 if flags & 0x10 else 0))
        return max(int(time_ms), 1)

    def _base(self, at: int) -> int:
        return next(it.base for it in self.files if it.base <= at < it.base + self.size)


def fillers(low: int, high: int, time_ms: int) -> Iterator[tuple[int, bytes]]:
    """Yield records that fill log offsets `low` to `high` exactly.

    Raises Corrupt when there is not room for one.
    """
    least = _FIXED + 1
    at = low
    while at < high:
        left = high - at
        size = left
        if left > FILL_MAX:
            size = FILL_MAX if left - FILL_MAX >= least else FILL_MAX - least
        if size < least:
            raise Corrupt(f"{size} damaged bytes at offset {at} are too few to be filled")
        yield at, _filler(at, size, time_ms)
        at += size


def _filler(at: int, size: int, time_ms: int) -> bytes:
    topic = TOPIC[: size - _FIXED]
    body = bytes(size - _FIXED - len(topic))
    head = _HEAD.pack(
        size,
        _MAGIC,
        zlib.crc32(body) & 0x7FFFFFFF,
        0,
        0,
        0,
        at,
        _ROLLED_BACK,
        time_ms,
        _NOBODY,
        time_ms,
        _NOBODY,
        0,
        0,
        len(body),
    )
    return head + body + bytes([len(topic)]) + topic + bytes(2)
