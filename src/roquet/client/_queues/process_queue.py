"""The messages of one queue between their fetch and their acknowledgement. Pure."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from roquet.client._options import ConsumerOptions
    from roquet.model.message import StoredMessage
    from roquet.model.queue import MessageQueue

NOTHING = -1
LOCK_TRUST_MS = 30_000
"""How long a broker's lock is believed; the broker keeps it for 60 s."""


class ProcessQueue:
    """Knows which offsets are unfinished, and so what may be committed."""

    def __init__(self, queue: MessageQueue, now_ms: int) -> None:
        """Begin empty."""
        self.queue = queue
        self.dropped = False
        """The queue is no longer ours: what is still here is not committed."""
        self.last_pull_ms = now_ms
        self.last_consume_ms = now_ms
        self.locked_at_ms: int | None = None
        """By a clock that nobody can set: a lock is not believed longer because that was done."""
        self.last_lock_ms = 0
        self.unlock_tries = 0
        self._held: dict[int, int] = {}
        self._order: deque[int] = deque()
        self._bytes = 0
        self._highest = NOTHING

    def add(self, messages: Sequence[StoredMessage]) -> list[StoredMessage]:
        """Keep messages and return those that are new."""
        fresh: list[StoredMessage] = []
        for message in messages:
            offset = message.queue_offset
            if offset <= self._highest:
                continue
            self._held[offset] = len(message.body)
            self._order.append(offset)
            self._bytes += len(message.body)
            self._highest = offset
            fresh.append(message)
        return fresh

    def remove(self, offset: int) -> int:
        """Forget a finished message; return the offset to commit, NOTHING when there is none."""
        size = self._held.pop(offset, None)
        if size is not None:
            self._bytes -= size
        while self._order and self._order[0] not in self._held:
            self._order.popleft()
        return self.commit_offset

    def unfinished(self) -> Iterable[int]:
        """Return the offsets that are unfinished."""
        return self._held.keys()

    def holds(self, offset: int) -> bool:
        """Tell whether a message is still unfinished."""
        return offset in self._held

    @property
    def commit_offset(self) -> int:
        """The lowest unfinished offset, or the one after the last; NOTHING before the first."""
        if self._order:
            return self._order[0]
        return self._highest + 1 if self._highest != NOTHING else NOTHING

    @property
    def count(self) -> int:
        """Messages unfinished."""
        return len(self._held)

    @property
    def size(self) -> int:
        """Bytes of their bodies."""
        return self._bytes

    @property
    def span(self) -> int:
        """Highest minus lowest offset held."""
        return self._highest - self._order[0] if self._order else 0

    @property
    def bounds(self) -> tuple[int, int]:
        """Lowest and highest offset held, zeros when there is none."""
        return (self._order[0], self._highest) if self._order else (0, 0)

    def is_full(self, options: ConsumerOptions, *, ordered: bool) -> bool:
        """Tell whether fetching has to pause."""
        return (
            self.count > options.queue_messages_max
            or self.size > options.queue_bytes_max
            or (not ordered and self.span > options.queue_span_max)
        )

    def lock_is_fresh(self, now_ms: int) -> bool:
        """Tell whether the broker's lock can be relied on."""
        return self.locked_at_ms is not None and now_ms - self.locked_at_ms < LOCK_TRUST_MS
