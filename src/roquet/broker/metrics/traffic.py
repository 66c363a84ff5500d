"""Who wants to know what went in and out: the seam between handlers and statistics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from roquet.store.results import BatchResult, GetResult, PutResult


class Traffic(Protocol):
    """Is told of every message stored and every read answered, on the loop."""

    def stored(self, topic: str, queue_id: int, result: PutResult | BatchResult) -> None:
        """Note what became of a message, or of a batch, that a producer sent."""
        ...

    def sent_many(self, topic: str, queue_id: int, sends: int, took_ms: int) -> None:
        """Note sends that were stored and took so long together, from their arrival on."""
        ...

    def pulled(
        self, group: str, topic: str, queue_id: int, result: GetResult, took_ms: int = 0
    ) -> None:
        """Note what a read for a group was answered with, and how long reading took."""
        ...

    def stored_many(self, topic: str, queue_id: int, messages: int, size: int) -> None:
        """Note messages that producers sent and that are stored; `size` is bytes of records."""
        ...

    def found_many(
        self,
        group: str,
        topic: str,
        queue_id: int,
        messages: int,
        size: int,
        *,
        behind: int,
        reads: int = 1,
        took_ms: int = 0,
    ) -> None:
        """Note reads for a group that found messages and left `behind` unread in the queue.

        `behind` and `took_ms` are sums over the reads.
        """
        ...

    def missed_many(self, reads: int) -> None:
        """Note reads that found nothing."""
        ...


class InnerTraffic(Protocol):
    """Is told of the messages that the broker itself stores and reads."""

    def moved(self, topic: str, size: int) -> None:
        """Note a message that the broker stored; `size` is the bytes of its record."""
        ...

    def looked_at(self, group: str, topic: str, size: int) -> None:
        """Note a message that the broker read under a group of its own."""
        ...
