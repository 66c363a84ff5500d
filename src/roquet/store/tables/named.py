"""Tables of configurations by name: bounded, with a data version, and told to who listens."""

from __future__ import annotations

import abc
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from roquet.model.data_version import DataVersion
from roquet.store.tables.room import in_reserved_slices

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from roquet.base.clock import Clock
    from roquet.store.tables.key_values import KeyValues
    from roquet.store.tables.room import Room


class Named(Protocol):
    """A configuration."""

    @property
    def name(self) -> str:
        """Whose it is."""
        ...


C = TypeVar("C", bound=Named)


class NamedTable(abc.ABC, Generic[C]):
    """Name -> configuration. The names of light queues are never in it."""

    def __init__(self, rows: KeyValues[str, C], room: Room, clock: Clock) -> None:
        """`room` bounds what the rows take in the file, by `_size`."""
        self._rows = rows
        self._room = room
        self._clock = clock
        self._version = DataVersion(timestamp=clock.now_ms())
        self._listeners: list[Callable[[Collection[str]], None]] = []

    @property
    def version(self) -> DataVersion:
        """Changes whenever the table does."""
        return self._version

    def listen(self, listener: Callable[[Collection[str]], None]) -> None:
        """Have `listener(names)` called after every change of these names."""
        self._listeners.append(listener)

    def all(self) -> Mapping[str, C]:
        """Return the whole table; it is never changed afterwards."""
        return self._rows.rows()

    def __len__(self) -> int:
        return len(self._rows)

    def put(self, *configs: C) -> bool:
        """Create or replace configurations; returns whether anything changed.

        Raises TableFull when they do not fit; then nothing has changed.
        """
        changed = {
            config.name: config
            for config in configs
            if not self.is_light(config.name) and self._rows.get(config.name) != config
        }
        if changed:
            self._room.take(*self._growth(changed.values()))
            for name, config in changed.items():
                self._rows.put(name, config)
            self._changed(changed)
        return bool(changed)

    async def put_in_slices(self, configs: Sequence[C]) -> None:
        """Create or replace many, others having their turn between.

        Raises TableFull when they do not fit; then nothing has changed.
        """
        await in_reserved_slices(self._room, configs, self._growth, self.put)

    @abc.abstractmethod
    def is_light(self, name: str) -> bool:
        """Whether a name is that of a light queue."""

    @staticmethod
    @abc.abstractmethod
    def _size(configs: Iterable[C]) -> int:
        """Return how many bytes configurations take in the file, rounded up."""

    def _growth(self, configs: Iterable[C]) -> tuple[int, int]:
        """Return how many entries and bytes the table grows by them."""
        changed = {config.name: config for config in configs}
        old = [known for name in changed if (known := self._rows.get(name)) is not None]
        return len(changed) - len(old), self._size(changed.values()) - self._size(old)

    def _changed(self, names: Collection[str]) -> None:
        """Move the version and tell who listens; a table may note more before."""
        self._version = self._version.next(self._clock.now_ms())
        for listener in self._listeners:
            listener(names)
