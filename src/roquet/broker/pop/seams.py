"""What the redelivery of popped messages needs of the rest of the broker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from roquet.store.popped import Popped, Target
    from roquet.store.records import Record
    from roquet.store.results import Draft, PutResult


class ReviveStore(Protocol):
    """What is needed of the message store."""

    def units(
        self, topic: str, queue_id: int, offset: int, count: int
    ) -> list[tuple[int, int, int]]:
        """Return (physical offset, size, tags code) of up to `count` messages of a queue."""
        ...

    def record(self, physical_offset: int, size: int | None = None) -> Record | None:
        """Return a message of the log, None when there is none at the offset. Raises StoreFault."""
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

    async def flush(self) -> None:
        """Make everything appended so far durable. Raises StoreFault."""
        ...


class ReviveAppends(Protocol):
    """Appends what the broker itself stores."""

    async def append(self, draft: Draft, *, wait: bool | None = None) -> PutResult:
        """Check, convert (a time to come leads to the timer wheel), append."""
        ...

    async def append_as_is(self, drafts: Sequence[Draft]) -> list[PutResult]:
        """Append messages one behind the other, without delays; each has an outcome of its own."""
        ...

    def beyond_core(self, topic: str) -> frozenset[str] | None:
        """Return the properties whose messages only `append_as_is` may store under a topic.

        None: all of them.
        """
        ...


class CoreCopies(Protocol):
    """Copies messages that are plain without showing them."""

    def copy(self, popped: Popped, target: Target, offsets: Sequence[int]) -> list[int]:
        """Store copies of messages in order, up to one that is not plain; return their sizes.

        Those behind may be plain all the same, unless there are no copies. Raises StoreFault.
        """
        ...


class Wheel(Protocol):
    """Knows how far the timer wheel is."""

    @property
    def is_on(self) -> bool:
        """Whether there is a timer wheel."""
        ...

    def passed_ms(self) -> int | None:
        """Return the time up to which every due message is in the log; None: not known."""
        ...


class Returned(Protocol):
    """Who counts what is stored again."""

    def moved(self, topic: str, size: int, messages: int = 1) -> None:
        """Note messages that the broker stored; `size` is the bytes of their records."""
        ...

    def sent_back(self, group: str, topic: str, *, dead: bool) -> None:
        """Note a message of a topic that a group did not consume; `dead`: for good."""
        ...
