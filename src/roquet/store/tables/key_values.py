"""Tables of the broker as keys and values: the seam between their rules and how they are kept.

A table (topics, groups, consumer offsets, filters of groups …) changes row by row through
`KeyValues` and is made durable by `flush`. Today each is one JSON file, written whole (`JsonTable`
of `files.py`, which alone knows how a table is written safely); a form that keeps rows one
by one has the same interface. What a table asks for is a `TableForm`: `JsonFile` is one. Two
tables that stand in one file (groups and what they may not read, offsets committed and pulled)
are loaded and flushed together.

Invariant: after `flush` returned, a start finds every change of before the call.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping
    from pathlib import Path

    from roquet.model.data_version import DataVersion

K = TypeVar("K")
V = TypeVar("V")
L = TypeVar("L")
W = TypeVar("W")


class Rows(NamedTuple, Generic[K, V]):
    """All of a table at one moment; nobody changes it."""

    rows: Mapping[K, V]
    version: DataVersion | None = None
    """Of the table, where its file has one."""


class TwoRows(NamedTuple, Generic[K, V, L, W]):
    """All of two tables that are kept together; nobody changes them."""

    first: Mapping[K, V]
    second: Mapping[L, W]
    version: DataVersion | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class TableCodec(Generic[K, V]):
    """A table as the bytes of one file."""

    decode: Callable[[bytes], Rows[K, V]]
    """Raises ValueError (JsonError) for what it cannot use."""
    encode: Callable[[Rows[K, V]], bytes]
    """Runs off the loop."""


@dataclasses.dataclass(frozen=True, slots=True)
class TwoTablesCodec(Generic[K, V, L, W]):
    """Two tables as the bytes of one file."""

    decode: Callable[[bytes], TwoRows[K, V, L, W]]
    """Raises ValueError (JsonError) for what it cannot use."""
    encode: Callable[[TwoRows[K, V, L, W]], bytes]
    """Runs off the loop."""
    copy: Callable[[KeyValues[Any, Any]], Awaitable[Mapping[Any, Any]]] | None = None
    """Copies rows whose values are changed in place, others having their turn between."""
    pieces: Callable[[TwoRows[K, V, L, W]], Iterator[bytes]] | None = None
    """Yields what `encode` returns, on the loop, each piece in about a millisecond.

    A thread that encodes for long keeps the interpreter from the loop, which waits for it at each
    call to a socket; between two pieces everybody else has a turn.
    """


class KeyValues(Protocol[K, V]):
    """One table.

    Values are never changed in place, a changed one is put; a codec with `copy` allows it, and
    then `changed` says so.
    """

    @property
    def version(self) -> DataVersion | None:
        """The version that was loaded or flushed last."""
        ...

    @property
    def may_be_older(self) -> bool:
        """Whether what was loaded was a copy, which may lack the last changes."""
        ...

    def load(self) -> bool:
        """Take over the durable rows in place of all others; return whether there is a table.

        Raises Corrupt.
        """
        ...

    def get(self, key: K) -> V | None:
        """Return the value of a key."""
        ...

    def put(self, key: K, value: V, *, waits: bool = False) -> None:
        """Set the value of a key; with `waits` it may become durable with some later change."""
        ...

    def changed(self, key: K, *, waits: bool = False) -> None:
        """Count the value of a key as put, because it was changed in place."""
        ...

    def delete(self, key: K) -> V | None:
        """Forget a key; return its value. One that is not there changes nothing."""
        ...

    def replace(self, rows: Mapping[K, V]) -> None:
        """Take over rows in place of all others, as changed ones; they stay the caller's."""
        ...

    def touch(self) -> None:
        """Have the next flush write the version, also when no row has changed."""
        ...

    def rows(self) -> Mapping[K, V]:
        """Return all rows, in the order in which their keys came; no change shows in them.

        The next change costs a copy of the table.
        """
        ...

    def key_list(self) -> list[K]:
        """Return all keys, in the order in which they came."""
        ...

    def __len__(self) -> int: ...

    @property
    def is_changed(self) -> bool:
        """Whether there is something to flush."""
        ...

    async def flush(self, version: DataVersion | None = None) -> Rows[K, V] | None:
        """Make the rows durable, under a version; return them, None when none had changed.

        Calls follow one another. Raises DiskFull or OSError; then the rows still count as changed.
        """
        ...


class TableForm(Protocol):
    """How one table, or two that belong together, is kept."""

    @property
    def path(self) -> Path:
        """Where it is kept: for texts, and for marks beside it."""
        ...

    def table(self, codec: TableCodec[K, V]) -> KeyValues[K, V]:
        """Return the table, empty until it is loaded."""
        ...

    def two_tables(
        self, codec: TwoTablesCodec[K, V, L, W]
    ) -> tuple[KeyValues[K, V], KeyValues[L, W]]:
        """Return two tables, empty until one is loaded: loading or flushing one does both."""
        ...
