"""Where a pop of a queue begins: the group's committed offset, or where a new group starts.

The committed offset moves when the checkpoint of what was read is stored or acknowledged whole, and
by nothing else that a read brings. With checkpoints in the merge buffer it stays behind them, and
pops go on where the buffer says (spec: broker (h)). One that an operator lowers meanwhile holds:
RocketMQ goes on where its buffer is, and raises the offset again.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Protocol

from roquet.protocol import names

if TYPE_CHECKING:
    from roquet.broker.pop.receive.locks import Key
    from roquet.store.tables.offsets import OffsetTable

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


class Ahead(Protocol):
    """Knows the queues of which something popped waits in memory."""

    def position(self, key: Key) -> int | None:
        """Return where such a queue goes on."""
        ...

    def passed(self, key: Key, next_offset: int, begin: int | None = None) -> None:
        """Note that a queue was read up to an offset, from `begin` on."""
        ...

    def is_set_back(self, key: Key, committed: int) -> bool:
        """Tell whether somebody has lowered the committed offset of such a queue."""
        ...

    def forget_offsets(self, key: Key) -> None:
        """Let a queue begin elsewhere."""
        ...


class PopOffsets:
    """Positions of groups that pop."""

    def __init__(
        self, offsets: OffsetTable, store: Queues, ahead: Ahead, *, init_by_memory: bool
    ) -> None:
        """`init_by_memory`: a group that wants the last message gets a whole young queue."""
        self._offsets = offsets
        self._store = store
        self._ahead = ahead
        self.init_by_memory = init_by_memory

    def begin(
        self, group: str, topic: str, queue_id: int, *, from_first: bool
    ) -> tuple[int, bool] | None:
        """Return the position of a pop that has the queue's lock, and whether it begins anew.

        It does after a reset, and in a group without an offset: what is noted of earlier pops is
        of no use then. A new group's position is committed at once. None: there is no room for it.
        """
        reset = self._offsets.take_reset(group, topic, queue_id)
        if reset is not None:
            self.move(group, topic, queue_id, reset)
            return reset, True
        known = self._offsets.committed(group, topic, queue_id)
        if known is not None and known >= 0:
            key = topic, group, queue_id
            if self._ahead.is_set_back(key, known):
                log.warning(
                    "group %s goes back in %s queue %d to %d", group, topic, queue_id, known
                )
                self._ahead.forget_offsets(key)
                return known, True
            ahead = self._ahead.position(key)
            return known if ahead is None else max(known, ahead), False
        # A new group, or its topic was deleted, and what is in memory is of the old one.
        self._ahead.forget_offsets((topic, group, queue_id))
        first = self._first(topic, queue_id, from_first=from_first)
        if not self._offsets.commit(group, topic, queue_id, first):
            return None
        return first, True

    def passed(
        self, group: str, topic: str, queue_id: int, offset: int, *, begin: int | None = None
    ) -> None:
        """Move the position forward; the committed offset waits for what is in memory.

        `begin` is where the read began: was the committed offset set below that since, it holds.
        """
        self._ahead.passed((topic, group, queue_id), offset, begin)

    def move(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Set the position and the committed offset, whatever is in memory."""
        self._ahead.forget_offsets((topic, group, queue_id))
        self._offsets.commit(group, topic, queue_id, offset)

    def is_reset(self, key: Key) -> bool:
        """Tell whether a reset of a queue waits for its next pop."""
        topic, group, queue_id = key
        return self._offsets.pending_reset(group, topic, queue_id) is not None

    def rest(self, group: str, topic: str, queue_id: int, *, from_first: bool = True) -> int:
        """Return how many messages lie before a group, and change nothing."""
        begin = self.seen(group, topic, queue_id, from_first=from_first)
        return max(0, self._store.max_offset(topic, queue_id) - begin)

    def seen(self, group: str, topic: str, queue_id: int, *, from_first: bool = True) -> int:
        """Return the position of the next pop, and change nothing."""
        known = self._offsets.query(group, topic, queue_id)
        if known is not None and known >= 0:
            key = topic, group, queue_id
            is_set = self.is_reset(key) or self._ahead.is_set_back(key, known)
            ahead = None if is_set else self._ahead.position(key)
            return known if ahead is None else max(known, ahead)
        return self._first(topic, queue_id, from_first=from_first)

    def _first(self, topic: str, queue_id: int, *, from_first: bool) -> int:
        lowest = self._store.min_offset(topic, queue_id)
        if from_first or names.is_retry(topic):
            return max(0, lowest)
        if self.init_by_memory and lowest <= 0 and self._store.is_in_memory(topic, queue_id, 0):
            return 0
        return max(0, self._store.max_offset(topic, queue_id) - 1)
