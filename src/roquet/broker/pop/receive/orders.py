"""Ordered pop: at most one batch of a group is in flight in each queue.

Invariant: a queue is blocked while a message of its last batch is neither acknowledged nor visible
again, except for the attempt that took the batch. The group's offset stays at the first message of
the batch that is not acknowledged, so nothing is delivered past it, and nothing is lost with this
table: whoever pops next begins there. It is saved every ten seconds (`consumerOrderInfo.json`).

A batch counts only while the group has an offset in the queue: a group that has none has begun
anew, or its topic has, and other messages are at the places of the batch. What is noted here may be
older than that, as the file after a crash is.
"""

from __future__ import annotations

import dataclasses
import enum
import logging
from typing import TYPE_CHECKING

from roquet.base.errors import Corrupt
from roquet.protocol.pop.orders import Key, OrderedBatch, decode_orders, encode_orders
from roquet.store.tables.files import FILE_SIZE_MAX

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from roquet.base.clock import Clock
    from roquet.store.tables.deletions import Deletions
    from roquet.store.tables.files import JsonFile
    from roquet.store.tables.offsets import OffsetTable

log = logging.getLogger(__name__)

IDLE_MS = 24 * 3_600_000
"""A batch nobody asked for so long is forgotten."""
BATCHES_MAX = 200_000
ATTEMPT_LENGTH_MAX = 255


class Unsettled(enum.Enum):
    """Why an acknowledgement moves nothing."""

    OTHER_POP = -2
    """It is of an earlier pop of the queue: the messages were popped again since."""
    NOT_IN_BATCH = -1


class PopOrders:
    """(topic, group, queue) -> the batch in flight."""

    def __init__(
        self, file: JsonFile | None, clock: Clock, deletions: Deletions | None = None
    ) -> None:
        """`file` is `consumerOrderInfo.json`; without it the batches are in memory alone.

        Batches of the file from before one of the `deletions` are forgotten at the start.
        """
        self._deletions = deletions
        self._file = file
        self._clock = clock
        self._batches: dict[Key, OrderedBatch] = {}
        self._changes = 0
        self._saved = 0

    def __len__(self) -> int:
        return len(self._batches)

    def __contains__(self, key: object) -> bool:
        return key in self._batches

    async def start(self) -> None:
        """Load the file; when neither it nor its copy is whole, begin without batches and say so.

        No message is lost with them: those of the last batches are given out once more.
        """
        if self._file is None:
            return
        try:
            found = self._file.load(_decode)
        except Corrupt as error:
            log.warning("ordered pops begin without the batches in flight: %s", error)
            self._changes += 1
            return
        if found is not None:
            self._batches = {key: it for key, it in found.items() if not self._is_former(key, it)}

    def forget_all(self) -> None:
        """Forget all batches, those of the file as well. Raises OSError.

        Another broker leads from now on: what it hands out is not noted here.
        """
        self._batches.clear()
        self._changes += 1
        if self._file is not None:
            self._file.remove()

    async def stop(self) -> None:
        """Save the file."""
        await self.persist()

    async def persist(self) -> None:
        """Make the batches durable; returns at once when none has changed."""
        self._forget_idle()
        if self._file is None:
            return
        async with self._file.writing:
            changes = self._changes
            if self._saved != changes:
                batches = dict(self._batches)
                await self._file.save(lambda: encode_orders(batches))
                self._saved = changes

    def has_room(self, key: Key) -> bool:
        """Tell whether a batch of the queue can be noted."""
        return key in self._batches or len(self._batches) < BATCHES_MAX

    def is_blocked(self, key: Key, attempt_id: str | None) -> bool:
        """Tell whether a message in flight keeps an attempt from the queue."""
        batch = self._batches.get(key)
        if batch is None or (attempt_id is not None and batch.attempt_id == attempt_id):
            return False
        return self.free_at(key) > self._clock.now_ms()

    def free_at(self, key: Key) -> int:
        """Return when the last message in flight becomes visible, if none is acknowledged."""
        batch = self._batches.get(key)
        if batch is None:
            return 0
        ends_ms = batch.pop_time_ms + batch.invisible_ms
        waiting = [
            batch.visible_ms.get(offset, ends_ms)
            for bit, offset in enumerate(batch.offsets)
            if not batch.acked >> bit & 1
        ]
        return max(waiting, default=0)

    def acked(self, key: Key) -> frozenset[int]:
        """Return what is acknowledged of the last batch of a queue, and behind it."""
        batch = self._batches.get(key)
        if batch is None or not (batch.acked or batch.later):
            return frozenset()
        mine = (at for bit, at in enumerate(batch.offsets) if batch.acked >> bit & 1)
        return batch.later.union(mine)

    def popped(
        self,
        key: Key,
        offsets: Sequence[int],
        *,
        pop_time_ms: int,
        invisible_ms: int,
        attempt_id: str | None,
        acked: Collection[int] = (),
    ) -> dict[int | None, int]:
        """Note a batch; return the earlier deliveries of its messages by queue offset.

        Under None stands the smallest count of all. Messages at the offsets `acked` are settled.
        """
        before = self._batches.get(key)
        attempt_id = None if attempt_id is None else attempt_id[:ATTEMPT_LENGTH_MAX]
        deliveries = _delivered_before(before, offsets, attempt_id)
        self._batches[key] = OrderedBatch(
            pop_time_ms=pop_time_ms,
            invisible_ms=invisible_ms,
            offsets=tuple(offsets),
            attempt_id=attempt_id,
            acked=sum(1 << bit for bit, offset in enumerate(offsets) if offset in acked),
            # A pop that takes fewer messages than the last one leaves some of them behind.
            later=frozenset(at for at in acked if at > offsets[-1]),
            deliveries=deliveries,
            last_ms=self._clock.now_ms(),
        )
        self._changes += 1
        counts: dict[int | None, int] = dict(deliveries.items())
        is_complete = len(deliveries) == len(offsets)
        counts[None] = min(deliveries.values(), default=0) if is_complete else 0
        return counts

    def settle(
        self, key: Key, offset: int, *, pop_time_ms: int, committed: int, end: int
    ) -> int | Unsettled:
        """Note an acknowledgement; return the offset at which the group goes on.

        When the batch is not known any more, only the first message moves the group: Java moves it
        past messages that nobody acknowledged, and past one that is only sent later. So none at the
        `end` of the queue or behind it does. What lies before the committed offset is settled,
        whatever the batch says: after a crash it may be older than the offset.
        """
        batch = self._batches.get(key)
        if batch is None:
            is_next = offset == committed and offset < end
            return offset + 1 if is_next else Unsettled.NOT_IN_BATCH
        if batch.pop_time_ms != pop_time_ms:
            return Unsettled.OTHER_POP
        if offset not in batch.offsets:
            return Unsettled.NOT_IN_BATCH
        acked = batch.acked | 1 << batch.offsets.index(offset)
        acked |= sum(1 << bit for bit, at in enumerate(batch.offsets) if at < committed)
        self._batches[key] = dataclasses.replace(batch, acked=acked)
        self._changes += 1
        left = (at for bit, at in enumerate(batch.offsets) if not acked >> bit & 1)
        at = next(left, None)
        return _behind(batch) if at is None else at

    def show_at(self, key: Key, offset: int, pop_time_ms: int, visible_ms: int) -> bool:
        """Have a message become visible at another time; False when it is not in flight."""
        batch = self._batches.get(key)
        if batch is None or batch.pop_time_ms != pop_time_ms or offset not in batch.offsets:
            return False
        changed = {**batch.visible_ms, offset: visible_ms}
        self._batches[key] = dataclasses.replace(batch, visible_ms=changed)
        self._changes += 1
        return True

    def suspend(self, key: Key, pop_time_ms: int, visible_ms: int) -> bool:
        """Have all that is in flight in a queue become visible at once; False when nothing is.

        The delivery does not count as a failed one.
        """
        batch = self._batches.get(key)
        if batch is None or batch.pop_time_ms != pop_time_ms:
            return False
        # The next pop counts this delivery again.
        deliveries = {at: batch.deliveries.get(at, 0) - 1 for at in batch.offsets}
        self._batches[key] = dataclasses.replace(
            batch,
            visible_ms={},
            invisible_ms=visible_ms - pop_time_ms,
            deliveries=deliveries,
        )
        self._changes += 1
        return True

    def set_back(self, by_ms: int, now_ms: int) -> None:
        """Have messages popped by a clock that stood ahead become visible when they were to."""
        for key, batch in self._batches.items():
            if batch.pop_time_ms > now_ms:
                self._batches[key] = dataclasses.replace(
                    batch,
                    invisible_ms=batch.invisible_ms - by_ms,
                    visible_ms={at: ms - by_ms for at, ms in batch.visible_ms.items()},
                )
                self._changes += 1

    def forget_done(self, key: Key) -> bool:
        """Forget the batch of a queue if all of it is acknowledged; tell whether it was.

        It stays while something behind it is known to be acknowledged, and keeps nobody away.
        """
        batch = self._batches.get(key)
        if batch is None or batch.acked != (1 << len(batch.offsets)) - 1:
            return False
        if batch.later and max(batch.later) >= _behind(batch):
            return False
        self.clear(key)
        return True

    def clear(self, key: Key) -> None:
        """Forget the batch of a queue whose offset was reset."""
        if self._batches.pop(key, None) is not None:
            self._changes += 1

    def _is_former(self, key: Key, batch: OrderedBatch) -> bool:
        topic, group, _ = key
        known = self._deletions
        return known is not None and known.covers(topic, group, batch.pop_time_ms)

    def _forget_idle(self) -> None:
        before_ms = self._clock.now_ms() - IDLE_MS
        for key in [key for key, batch in self._batches.items() if batch.last_ms < before_ms]:
            self.clear(key)


def committed_offset(offsets: OffsetTable, orders: PopOrders, key: Key) -> int:
    """Return the offset of a group; -1 when it has none, and then nothing of it is in flight."""
    topic, group, queue_id = key
    committed = offsets.committed(group, topic, queue_id)
    if committed is None:
        orders.clear(key)
        return -1
    return committed


def _behind(batch: OrderedBatch) -> int:
    """Return the offset behind a batch, and behind what is known to be acknowledged after it."""
    at = batch.offsets[-1] + 1
    while at in batch.later:
        at += 1
    return at


def _delivered_before(
    before: OrderedBatch | None, offsets: Sequence[int], attempt_id: str | None
) -> Mapping[int, int]:
    """Return how often the messages of a new batch were delivered before."""
    if before is None:
        return {}
    if attempt_id is not None and before.attempt_id == attempt_id:
        return before.deliveries
    known = set(before.offsets)
    return {at: before.deliveries.get(at, 0) + 1 for at in offsets if at in known}


def _decode(data: bytes) -> dict[Key, OrderedBatch]:
    return decode_orders(data, size_max=FILE_SIZE_MAX)
