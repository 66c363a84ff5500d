"""Tables of the broker as keys and values: the seam between their rules and how they are kept.

A table (filters of groups, offsets of delay levels …) changes row by row through `KeyValues` and
is made durable by `flush`. Today each is one JSON file, written whole (`JsonTable` of
`files.py`, which alone knows how a table is written safely); a form that keeps rows one by one has
the same interface. What a table asks for is a `TableForm`: `JsonFile` is one.

Invariant: after `flush` returned, a start finds every `put` and `delete` of before the call.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Generic, NamedTuple, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from roquet.model.data_version import DataVersion

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
