"""Metadata files: written whole or not at all, and read back from the copy when broken.

A table is one pretty JSON file that Java's managers read as well (spec: store §8). The new text
goes to a side file and is synced, the old file becomes `<name>.bak`, then the side file takes the
name and the folder is synced. A main file that was found broken never replaces a good `.bak`.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import stat
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from roquet.base.durable import sync_folder
from roquet.base.errors import Corrupt, DiskFull
from roquet.service.process.collector import long_work
from roquet.service.slices import write_pieces
from roquet.store.tables.key_values import Rows, TwoRows

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from roquet.model.data_version import DataVersion
    from roquet.store.tables.key_values import KeyValues, TableCodec, TwoTablesCodec

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")
L = TypeVar("L")
W = TypeVar("W")

log = logging.getLogger(__name__)

FILE_SIZE_MAX = 64 * 1024 * 1024
"""Bytes; a larger metadata file is refused instead of read."""

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)


class JsonFile:
    """One metadata file and its `.bak`."""

    def __init__(self, path: Path) -> None:
        """Name the file; its folder is made when it is first written."""
        self.path = path
        self._backup = path.with_name(path.name + ".bak")
        self._main_is_good = False
        self.from_copy = False
        """Whether what was loaded was the copy's, which may be older."""
        self.writing = asyncio.Lock()
        """Held by whoever compares, snapshots and saves, so that writes follow each other."""

    def load(self, decode: Callable[[bytes], T]) -> T | None:
        """Return what `decode` makes of the main file, else of `.bak`; None when there is neither.

        `decode` raises ValueError (JsonError) for what it cannot use. Raises Corrupt when files are
        there but none is usable, so that nobody starts with an empty table over a damaged one.
        """
        broken: list[str] = []
        for path in (self.path, self._backup):
            try:
                value = decode(_read(path))
            except FileNotFoundError:
                continue
            except (OSError, ValueError) as error:
                log.warning("%s cannot be used: %s", path, error)
                broken.append(f"{path}: {error}")
                continue
            self._main_is_good = path == self.path
            self.from_copy = not self._main_is_good
            return value
        if broken:
            raise Corrupt("; ".join(broken) + self._remedy())
        return None

    def _remedy(self) -> str:
        """Say what an operator types; with `.bak` there as well, it is damaged or lost, too."""
        aside = " ".join(str(it) for it in (self.path, self._backup) if it.exists())
        return (
            f": put the file of a backup there, or go on without what it says:"
            f" mkdir -p {self.path.parent}/aside && mv {aside} {self.path.parent}/aside/"
        )

    def table(self, codec: TableCodec[K, V]) -> KeyValues[K, V]:
        """Return the table that this file keeps, empty until it is loaded."""

        def decode(data: bytes) -> tuple[DataVersion | None, Sequence[Mapping[K, V]]]:
            rows, version = codec.decode(data)
            return version, (rows,)

        return JsonTable(
            _JsonTables(self, decode, lambda version, parts: codec.encode(Rows(parts[0], version)))
        )

    def two_tables(
        self, codec: TwoTablesCodec[K, V, L, W]
    ) -> tuple[KeyValues[K, V], KeyValues[L, W]]:
        """Return the two tables that this file keeps, empty until one is loaded."""

        def decode(data: bytes) -> tuple[DataVersion | None, Sequence[Mapping[Any, Any]]]:
            first, second, version = codec.decode(data)
            return version, (first, second)

        def encode(version: DataVersion | None, parts: Sequence[Mapping[Any, Any]]) -> bytes:
            return codec.encode(TwoRows(parts[0], parts[1], version))

        def pieces(
            version: DataVersion | None, parts: Sequence[Mapping[Any, Any]]
        ) -> Iterator[bytes]:
            assert codec.pieces is not None
            return codec.pieces(TwoRows(parts[0], parts[1], version))

        in_pieces = None if codec.pieces is None else pieces
        kept = _JsonTables(self, decode, encode, codec.copy, in_pieces)
        return JsonTable[K, V](kept), JsonTable[L, W](kept)

    def remove(self) -> None:
        """Delete the file and its copy, durably. Raises OSError."""
        if not self.path.parent.exists():
            return
        for path in (self._backup, self.path):
            path.unlink(missing_ok=True)
        sync_folder(self.path.parent)
        self._main_is_good = False

    async def save(self, encode: Callable[[], bytes]) -> None:
        """Write what `encode` returns and return when it is durable; call it holding `writing`.

        `encode` runs off the loop, on data that nobody changes. Raises DiskFull when there is no
        room and OSError for other faults, also for a table that no start would read; the old file
        then stays.
        """
        with long_work():
            await asyncio.to_thread(lambda: self._write((encode(),)))

    async def save_pieces(self, pieces: Iterator[bytes]) -> None:
        """Write what `pieces` yields on the loop, others having their turn; else as `save`."""
        with long_work():
            data = await write_pieces(pieces)
            await asyncio.to_thread(lambda: self._write(data))

    def _write(self, data: Sequence[bytes]) -> None:
        size = sum(map(len, data))
        if size > FILE_SIZE_MAX:
            what = f"{size} bytes are more than the {FILE_SIZE_MAX} that a start reads"
            raise OSError(errno.EFBIG, what, str(self.path))
        self.path.parent.mkdir(parents=True, exist_ok=True)
        side = self.path.with_name(self.path.name + ".tmp")
        try:
            _write_synced(side, data)
            if self._main_is_good:
                _copy_name(self.path, self._backup)
            side.replace(self.path)
            sync_folder(self.path.parent)
        except OSError as error:
            with contextlib.suppress(OSError):
                side.unlink()
            if error.errno in _NO_ROOM:
                raise DiskFull(f"no room to write {self.path}: {error.strerror}") from error
            raise
        self._main_is_good = True


class _JsonTables:
    """Tables in one file, written whole when any of them has changed."""

    def __init__(
        self,
        file: JsonFile,
        decode: Callable[[bytes], tuple[DataVersion | None, Sequence[Mapping[Any, Any]]]],
        encode: Callable[[DataVersion | None, Sequence[Mapping[Any, Any]]], bytes],
        copy: Callable[[KeyValues[Any, Any]], Awaitable[Mapping[Any, Any]]] | None = None,
        pieces: Callable[[DataVersion | None, Sequence[Mapping[Any, Any]]], Iterator[bytes]]
        | None = None,
    ) -> None:
        self.file = file
        self._decode = decode
        self._encode = encode
        self._copy = copy
        self._pieces = pieces
        self.tables: list[JsonTable[Any, Any]] = []
        self.version: DataVersion | None = None
        self.changes = 0
        self._saved = 0

    @property
    def is_changed(self) -> bool:
        return self.changes != self._saved

    def load(self) -> bool:
        found = self.file.load(self._decode)
        self.version, parts = found or (None, [{} for _ in self.tables])
        for table, rows in zip(self.tables, parts, strict=True):
            table.take(dict(rows))
        # A broken file is replaced by the next flush, before its copy breaks as well.
        self._saved = self.changes - self.file.from_copy
        return found is not None

    async def flush(self, version: DataVersion | None) -> Sequence[Mapping[Any, Any]] | None:
        async with self.file.writing:
            changes = self.changes
            if changes == self._saved:
                return None
            if self._copy is None:
                parts = [table.rows() for table in self.tables]
            else:
                parts = [await self._copy(table) for table in self.tables]
            if self._pieces is None:
                await self.file.save(lambda: self._encode(version, parts))
            else:
                await self.file.save_pieces(self._pieces(version, parts))
            self._saved, self.version = changes, version
            return parts


class JsonTable(Generic[K, V]):
    """A table in one file, alone or with others."""

    def __init__(self, kept: _JsonTables) -> None:
        """Begin empty."""
        self._kept = kept
        self._place = len(kept.tables)
        kept.tables.append(self)
        self._rows: dict[K, V] = {}
        self._handed: Mapping[K, V] | None = None
        """The rows that somebody was handed: a change needs a copy of them."""

    @property
    def version(self) -> DataVersion | None:
        """See `KeyValues`."""
        return self._kept.version

    @property
    def may_be_older(self) -> bool:
        """See `KeyValues`."""
        return self._kept.file.from_copy

    def load(self) -> bool:
        """Take over the rows of the file or of its copy. Raises Corrupt."""
        return self._kept.load()

    def take(self, rows: dict[K, V]) -> None:
        """Have these rows, as the file has them."""
        self._rows = rows

    def get(self, key: K) -> V | None:
        """See `KeyValues`."""
        return self._rows.get(key)

    def put(self, key: K, value: V, *, waits: bool = False) -> None:
        """See `KeyValues`."""
        self._own()[key] = value
        self._kept.changes += not waits

    def changed(self, key: K, *, waits: bool = False) -> None:
        """See `KeyValues`."""
        del key
        self._kept.changes += not waits

    def delete(self, key: K) -> V | None:
        """See `KeyValues`."""
        if key not in self._rows:
            return None
        self._kept.changes += 1
        return self._own().pop(key)

    def replace(self, rows: Mapping[K, V]) -> None:
        """See `KeyValues`."""
        self._kept.changes += 1
        self._rows = dict(rows)

    def touch(self) -> None:
        """See `KeyValues`."""
        self._kept.changes += 1

    def rows(self) -> Mapping[K, V]:
        """See `KeyValues`."""
        self._handed = self._rows
        return self._rows

    def key_list(self) -> list[K]:
        """See `KeyValues`."""
        return list(self._rows)

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def is_changed(self) -> bool:
        """See `KeyValues`."""
        return self._kept.is_changed

    async def flush(self, version: DataVersion | None = None) -> Rows[K, V] | None:
        """Write the file if any row of it has changed since it was written."""
        parts = await self._kept.flush(version)
        return None if parts is None else Rows(parts[self._place], version)

    def _own(self) -> dict[K, V]:
        if self._handed is self._rows:
            self._rows = dict(self._rows)
        return self._rows


def _read(path: Path) -> bytes:
    found = path.stat()
    if not stat.S_ISREG(found.st_mode):
        # A pipe would keep the start waiting for somebody who writes into it.
        raise ValueError("it is no file")
    if found.st_size > FILE_SIZE_MAX:
        raise ValueError(f"larger than {FILE_SIZE_MAX} bytes")
    data = path.read_bytes()
    if not data:
        raise ValueError("empty")
    return data


def _write_synced(path: Path, data: Sequence[bytes]) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o644)
    with os.fdopen(handle, "wb") as file:
        file.writelines(data)
        file.flush()
        os.fsync(file.fileno())


def _copy_name(path: Path, other: Path) -> None:
    """Let `other` name the same file, with no moment in which `path` has no file."""
    link = other.with_name(other.name + ".tmp")
    link.unlink(missing_ok=True)
    try:
        os.link(path, link)
    except FileNotFoundError:
        return
    link.replace(other)
