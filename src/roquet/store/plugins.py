"""Plugins around the message store: a chain of doors that messages pass on their way in and out.

A plugin is named by `messageStorePlugIn` and found in the entry-point group `roquet.store_plugins`.
The first one named is the outermost. While there is one, no message takes the compiled fast path,
which knows no plugins; replication and recovery append below the chain.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Protocol

from roquet.base.config import setting
from roquet.base.errors import UsageError
from roquet.base.installed import entry_points
from roquet.base.overriding import override
from roquet.store.store import GET_BYTES_MAX, Durability, MessageStore

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from roquet.store.results import BatchDraft, BatchResult, Draft, Found, GetResult, PutResult
    from roquet.store.tables.filters import Filter

GROUP = "roquet.store_plugins"


class StoreDoor(Protocol):
    """What a plugin sees of the store, or of the plugin behind it."""

    async def put(self, draft: Draft, *, wait: bool | None = None) -> PutResult:
        """Append one message; failures are statuses, never raised."""
        ...

    async def put_batch(self, batch: BatchDraft) -> BatchResult:
        """Append the messages of a batch, all or none."""
        ...

    def get(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        max_messages: int,
        *,
        tag_codes: Sequence[int] | None = None,
        filter_by: Filter | None = None,
        max_bytes: int = GET_BYTES_MAX,
    ) -> GetResult:
        """Read from a queue. Raises StoreFault."""
        ...

    def query(self, topic: str, key: str, max_messages: int, begin: int, end: int) -> Found:
        """Return the records with a key. Raises StoreFault."""
        ...

    async def start(self) -> None:
        """Begin; what is behind has begun."""
        ...

    async def stop(self) -> None:
        """End; what is behind still works."""
        ...


class Plugin:
    """A door that lets everything pass: override what you want to see or change."""

    def __init__(self, inner: StoreDoor) -> None:
        """`inner` is the next plugin, or the store."""
        self.inner = inner

    async def put(self, draft: Draft, *, wait: bool | None = None) -> PutResult:
        """Append one message."""
        return await self.inner.put(draft, wait=wait)

    async def put_batch(self, batch: BatchDraft) -> BatchResult:
        """Append the messages of a batch."""
        return await self.inner.put_batch(batch)

    def get(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        max_messages: int,
        *,
        tag_codes: Sequence[int] | None = None,
        filter_by: Filter | None = None,
        max_bytes: int = GET_BYTES_MAX,
    ) -> GetResult:
        """Read from a queue."""
        return self.inner.get(
            topic,
            queue_id,
            offset,
            max_messages,
            tag_codes=tag_codes,
            filter_by=filter_by,
            max_bytes=max_bytes,
        )

    def query(self, topic: str, key: str, max_messages: int, begin: int, end: int) -> Found:
        """Return the records with a key."""
        return self.inner.query(topic, key, max_messages, begin, end)

    async def start(self) -> None:
        """Begin."""
        await self.inner.start()

    async def stop(self) -> None:
        """End."""
        await self.inner.stop()


class PluginMaker(Protocol):
    """What an entry point names: a class such as `Plugin`, or a function."""

    def __call__(self, inner: StoreDoor, settings: Mapping[str, str | int | bool], /) -> StoreDoor:
        """Make a plugin of what is behind it and the store's settings (Java's names)."""
        ...


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PluginConfig:
    """Which plugins stand around the store."""

    names: str = setting(
        "messageStorePlugIn",
        "",
        f"Plugins around the store (entry points of `{GROUP}`), by `,`, the outermost first.",
    )

    @property
    def chosen(self) -> tuple[str, ...]:
        """The names, outermost first."""
        return tuple(part.strip() for part in self.names.split(",") if part.strip())


def find_plugins(rules: PluginConfig) -> list[PluginMaker]:
    """Load the plugins that are asked for. Raises UsageError for one that is not there."""
    makers: list[PluginMaker] = []
    known = {point.name: point for point in entry_points(GROUP)} if rules.chosen else {}
    for name in rules.chosen:
        if name not in known:
            raise UsageError(
                f"messageStorePlugIn = {name!r}: must be one of {sorted(known)} ({GROUP})"
            )
        makers.append(known[name].load())
    return makers


def make_store(
    native_config: Mapping[str, str | int | bool],
    durability: Durability,
    makers: Sequence[PluginMaker],
) -> MessageStore:
    """Make the store, behind its plugins if there are any."""
    if not makers:
        return MessageStore(native_config, durability)
    return PluginStore(native_config, durability, makers)


class PluginStore(MessageStore):
    """A store whose messages pass plugins."""

    def __init__(
        self,
        native_config: Mapping[str, str | int | bool],
        durability: Durability,
        makers: Sequence[PluginMaker],
    ) -> None:
        """`makers` are those of the plugins, outermost first."""
        super().__init__(native_config, durability)
        door: StoreDoor = _Innermost(self)
        for make in reversed(makers):
            door = make(door, native_config)
        self._door = door

    @override
    async def start(self) -> None:
        """Open the store, then start the plugins from the inside out."""
        await super().start()
        try:
            await self._door.start()
        except BaseException:
            await super().stop()
            raise

    @override
    async def stop(self) -> None:
        """Stop the plugins, then close the store."""
        try:
            await self._door.stop()
        finally:
            await super().stop()

    @override
    async def put(self, draft: Draft, *, wait: bool | None = None) -> PutResult:
        """Append one message through the plugins."""
        return await self._door.put(draft, wait=wait)

    @override
    async def put_batch(self, batch: BatchDraft) -> BatchResult:
        """Append the messages of a batch through the plugins."""
        return await self._door.put_batch(batch)

    @override
    def get(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        max_messages: int,
        *,
        tag_codes: Sequence[int] | None = None,
        filter_by: Filter | None = None,
        max_bytes: int = GET_BYTES_MAX,
    ) -> GetResult:
        """Read from a queue through the plugins."""
        return self._door.get(
            topic,
            queue_id,
            offset,
            max_messages,
            tag_codes=tag_codes,
            filter_by=filter_by,
            max_bytes=max_bytes,
        )

    @override
    def query(self, topic: str, key: str, max_messages: int, begin: int, end: int) -> Found:
        """Return the records with a key, through the plugins."""
        return self._door.query(topic, key, max_messages, begin, end)


class _Innermost:
    """The store itself, as the last plugin sees it."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store

    async def put(self, draft: Draft, *, wait: bool | None = None) -> PutResult:
        return await MessageStore.put(self._store, draft, wait=wait)

    async def put_batch(self, batch: BatchDraft) -> BatchResult:
        return await MessageStore.put_batch(self._store, batch)

    def get(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        max_messages: int,
        *,
        tag_codes: Sequence[int] | None = None,
        filter_by: Filter | None = None,
        max_bytes: int = GET_BYTES_MAX,
    ) -> GetResult:
        return MessageStore.get(
            self._store,
            topic,
            queue_id,
            offset,
            max_messages,
            tag_codes=tag_codes,
            filter_by=filter_by,
            max_bytes=max_bytes,
        )

    def query(self, topic: str, key: str, max_messages: int, begin: int, end: int) -> Found:
        return MessageStore.query(self._store, topic, key, max_messages, begin, end)

    async def start(self) -> None:
        """Do nothing: the store has started."""

    async def stop(self) -> None:
        """Do nothing: the store stops when all plugins have."""
