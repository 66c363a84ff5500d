"""What transactions need of the rest of the broker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from roquet.broker.clients.registry import Member
    from roquet.store.records import Record
    from roquet.store.results import Draft, Found, PutResult


class TransactionStore(Protocol):
    """What is needed of the message store."""

    async def put(self, draft: Draft, *, wait: bool | None = None) -> PutResult:
        """Append a message; `wait` overrides whether to wait for its durability."""
        ...

    async def flush(self) -> None:
        """Make everything appended so far durable. Raises StoreFault."""
        ...

    def units(
        self, topic: str, queue_id: int, offset: int, count: int
    ) -> list[tuple[int, int, int]]:
        """Return (physical offset, size, tags code) of up to `count` messages."""
        ...

    def record(self, physical_offset: int, size: int | None = None) -> Record | None:
        """Return a message of the log, None when there is none at the offset."""
        ...

    def query(self, topic: str, key: str, max_messages: int, begin: int, end: int) -> Found:
        """Return the records with a key."""
        ...

    def min_offset(self, topic: str, queue_id: int) -> int:
        """Return the first offset of a queue that is still there."""
        ...

    def max_offset(self, topic: str, queue_id: int) -> int:
        """Return the offset after the last message of a queue."""
        ...

    def dispatch_behind(self) -> int:
        """Return the bytes of the log that are not in the queues yet."""
        ...

    def store_time(self, topic: str, queue_id: int, offset: int) -> int:
        """Return when a message of a queue was stored, -1 when there is none."""
        ...


class Appends(Protocol):
    """Appends messages that consumers see."""

    async def append(self, draft: Draft, *, wait: bool | None = None) -> PutResult:
        """Check, convert, append, wait."""
        ...


class Producers(Protocol):
    """Knows who is connected."""

    def producers(self, group: str) -> list[Member]:
        """List the members of a producer group."""
        ...
