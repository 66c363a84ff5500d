"""Tables of the broker as keys and values: the seam between their rules and how they are kept.

A table (filters of groups, offsets of delay levels …) changes row by row through `KeyValues` and
is made durable by `flush`. Today each is one JSON file, written whole (`JsonTable` over
`store/files.py`, which alone knows how a table is written safely); a form that keeps rows one by
one has the same interface. What a table asks for is a `TableForm`: `JsonFile` is one.

Invariant: after `flush` returned, a start finds every `put` and `delete` of before the call.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Generic, NamedTuple, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from roquet.model.data_version import DataVersion
    from roquet.store.files import JsonFile

K = TypeVar("K")
V = TypeVar("V")


class Rows(NamedTuple, Generic[K, V]):
    """All of a table at one moment; nobody changes it."""

    rows: Mapping[K, V]
    version: DataVersion | None = None
    """Of the table, where its file has one."""


@dataclasses.dataclass(frozen=True, slots=True)
class TableCodec(Generic[K, V]):
    """A table as the bytes of one file."""

    decode: Callable[[bytes], Rows[K, V]]
    """Raises ValueError (JsonError) for what it cannot use."""
    encode: Callable[[Rows[K, V]], bytes]
    """Runs off the loop."""


class KeyValues(Protocol[K, V]):
    """One table. Values are never changed in place: a changed one is put."""

    @property
    def version(self) -> DataVersion | None:
        """The version that was loaded or flushed last."""
        ...

    def load(self) -> None:
        """Take over the durable rows in place of all others. Raises Corrupt."""
        ...

    def get(self, key: K) -> V | None:
        """Return the value of a key."""
        ...

    def put(self, key: K, value: V) -> None:
        """Set the value of a key."""
        ...

    def delete(self, key: K) -> V | None:
        """Forget a key; return its value. One that is not there changes nothing."""
        ...

    def rows(self) -> Mapping[K, V]:
        """Return all rows, in the order in which their keys came; a copy."""
        ...

    def __len__(self) -> int: ...

    @property
    def is_changed(self) -> bool:
        """Whether there is something to flush."""
        ...

    async def flush(self, version: DataVersion | None = None) -> bool:
        """Make the rows durable, under a version; return whether any had changed.

        Calls follow one another. Raises DiskFull or OSError; then the rows still count as changed.
        """
        ...


class TableForm(Protocol):
    """How one table is kept."""

    def table(self, codec: TableCodec[K, V]) -> KeyValues[K, V]:
        """Return the table, empty until it is loaded."""
        ...


class JsonTable(Generic[K, V]):
    """A table in one file, written whole when any of it has changed."""

    def __init__(self, file: JsonFile, codec: TableCodec[K, V]) -> None:
        """Begin empty."""
        self._file = file
        self._codec = codec
        self._rows: dict[K, V] = {}
        self._version: DataVersion | None = None
        self._changes = 0
        self._saved = 0

    @property
    def version(self) -> DataVersion | None:
        """See `KeyValues`."""
        return self._version

    def load(self) -> None:
        """Take over the rows of the file or of its copy. Raises Corrupt."""
        found = self._file.load(self._codec.decode)
        self._rows = {} if found is None else dict(found.rows)
        self._version = None if found is None else found.version
        self._saved = self._changes

    def get(self, key: K) -> V | None:
        """See `KeyValues`."""
        return self._rows.get(key)

    def put(self, key: K, value: V) -> None:
        """See `KeyValues`."""
        self._rows[key] = value
        self._changes += 1

    def delete(self, key: K) -> V | None:
        """See `KeyValues`."""
        old = self._rows.pop(key, None)
        self._changes += old is not None
        return old

    def rows(self) -> Mapping[K, V]:
        """See `KeyValues`."""
        return dict(self._rows)

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def is_changed(self) -> bool:
        """See `KeyValues`."""
        return self._changes != self._saved

    async def flush(self, version: DataVersion | None = None) -> bool:
        """Write the file if any row has changed since it was written; return whether one had."""
        async with self._file.writing:
            changes = self._changes
            if changes == self._saved:
                return False
            rows = Rows(dict(self._rows), version)
            await self._file.save(lambda: self._codec.encode(rows))
            self._saved, self._version = changes, version
            return True
