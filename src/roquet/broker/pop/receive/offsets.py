"""Where a pop of a queue begins: the group's committed offset, or where a new group starts.

Without a merge buffer the committed offset is the only position: it moves when the checkpoint of
what was read is stored, and by nothing else that a read brings (spec: broker (h)).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Protocol

from roquet.protocol import names

if TYPE_CHECKING:
    from roquet.store.offsets import OffsetTable

log = logging.getLogger(__name__)


class Queues(Protocol):
    """What is asked of the message store."""

    def min_offset(self, topic: str, queue_id: int) -> int:
        """Return the first offset that is still there."""
        ...

    def max_offset(self, topic: str, queue_id: int) -> int:
        """Return the offset behind the last message."""
        ...

    def is_in_memory(self, topic: str, queue_id: int, offset: int) -> bool:
        """Tell whether a message is probably cached."""
        ...


class PopOffsets:
    """Positions of groups that pop."""

    def __init__(self, offsets: OffsetTable, store: Queues, *, init_by_memory: bool) -> None:
        """`init_by_memory`: a group that wants the last message gets a whole young queue."""
        self._offsets = offsets
        self._store = store
        self.init_by_memory = init_by_memory

    def begin(
        self, group: str, topic: str, queue_id: int, *, from_first: bool
    ) -> tuple[int, bool] | None:
        """Return the position of a pop that has the queue's lock, and whether it was reset.

        A new group's is committed at once. None: there is no room for it.
        """
        reset = self._offsets.take_reset(group, topic, queue_id)
        if reset is not None:
            self._offsets.commit(group, topic, queue_id, reset)
            return reset, True
        known = self._offsets.committed(group, topic, queue_id)
        if known is not None and known >= 0:
            return known, False
        first = self._first(topic, queue_id, from_first=from_first)
        if not self._offsets.commit(group, topic, queue_id, first):
            return None
        return first, False

    def commit(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Move the position."""
        self._offsets.commit(group, topic, queue_id, offset)

    def rest(self, group: str, topic: str, queue_id: int, *, from_first: bool = True) -> int:
        """Return how many messages lie before a group, and change nothing."""
        begin = self.seen(group, topic, queue_id, from_first=from_first)
        return max(0, self._store.max_offset(topic, queue_id) - begin)

    def seen(self, group: str, topic: str, queue_id: int, *, from_first: bool = True) -> int:
        """Return the position of the next pop, and change nothing."""
        known = self._offsets.query(group, topic, queue_id)
        if known is not None and known >= 0:
            return known
        return self._first(topic, queue_id, from_first=from_first)

    def _first(self, topic: str, queue_id: int, *, from_first: bool) -> int:
        lowest = self._store.min_offset(topic, queue_id)
        if from_first or names.is_retry(topic):
            return max(0, lowest)
        if self.init_by_memory and lowest <= 0 and self._store.is_in_memory(topic, queue_id, 0):
            return 0
        return max(0, self._store.max_offset(topic, queue_id) - 1)
