"""What ends the wait for an ordered queue: acknowledgements, and invisible times that are over.

An acknowledgement of a message that was popped in order moves the group's offset at once.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from roquet.broker.api.refusal import Reason, Refusal
from roquet.broker.pop.receive.orders import Unsettled, committed_offset

if TYPE_CHECKING:
    from collections.abc import Callable

    from roquet.base.clock import Clock
    from roquet.broker.pop.receive.orders import PopOrders
    from roquet.protocol.pop.orders import Key
    from roquet.store.tables.deletions import Deletions
    from roquet.store.tables.offsets import OffsetTable


LOOKS_AGAIN_S = 60.0
"""The clock may be set: no alarm sleeps longer."""


class OrderAlarms:
    """One alarm for each blocked queue."""

    def __init__(
        self, free_at: Callable[[Key], int], wake: Callable[[Key], None], clock: Clock
    ) -> None:
        """`free_at` tells when a queue is free, `wake` is called when it is."""
        self._free_at = free_at
        self._wake = wake
        self._clock = clock
        self._alarms: dict[Key, asyncio.TimerHandle] = {}
        self.is_enabled = True

    async def start(self) -> None:
        """Need nothing."""

    async def stop(self) -> None:
        """Wake nobody any more."""
        for alarm in self._alarms.values():
            alarm.cancel()
        self._alarms.clear()

    def set(self, key: Key) -> None:
        """Wake at the time at which a queue is free by now."""
        old = self._alarms.pop(key, None)
        if old is not None:
            old.cancel()
        if not self.is_enabled:
            return
        left_s = max(0, self._free_at(key) - self._clock.now_ms()) / 1000
        loop = asyncio.get_running_loop()
        self._alarms[key] = loop.call_later(min(left_s, LOOKS_AGAIN_S), self._ring, key)

    def clear(self, key: Key) -> None:
        """Wake nobody for a queue."""
        alarm = self._alarms.pop(key, None)
        if alarm is not None:
            alarm.cancel()

    def _ring(self, key: Key) -> None:
        del self._alarms[key]
        if self._free_at(key) > self._clock.now_ms():
            self.set(key)
        else:
            self._wake(key)


class OrderedAcks:
    """Settles ordered messages in flight."""

    def __init__(
        self,
        orders: PopOrders,
        offsets: OffsetTable,
        alarms: OrderAlarms,
        clock: Clock,
        *,
        deletions: Deletions,
        wake: Callable[[Key], None],
    ) -> None:
        """`wake` has requests that wait for a queue tried again."""
        self._deletions = deletions
        self._orders = orders
        self._offsets = offsets
        self._alarms = alarms
        self._clock = clock
        self._wake = wake

    def ack(self, key: Key, offset: int, pop_time_ms: int, end: int) -> None:
        """Acknowledge a message; one of an earlier pop is passed over. Raises Refusal.

        `end` is the offset behind the last message of the queue.

        One of a former topic or group settles nothing: other messages are at its place.
        """
        topic, group, queue_id = key
        committed = committed_offset(self._offsets, self._orders, key)
        if offset < committed:
            return
        settled: int | Unsettled = Unsettled.OTHER_POP
        if not self._deletions.covers(topic, group, pop_time_ms):
            settled = self._orders.settle(
                key, offset, pop_time_ms=pop_time_ms, committed=committed, end=end
            )
        elif key not in self._orders:
            settled = Unsettled.NOT_IN_BATCH
        if settled is Unsettled.OTHER_POP:
            return
        if isinstance(settled, Unsettled):
            raise _illegal(key, committed, offset)
        if self._offsets.pending_reset(group, topic, queue_id) is None:
            self._offsets.commit(group, topic, queue_id, settled)
        if not self._orders.is_blocked(key, None):
            self._wake(key)
        else:
            # Without this message the queue may be free sooner.
            self._alarms.set(key)

    def change_invisible(self, key: Key, offset: int, pop_time_ms: int, invisible_ms: int) -> int:
        """Have a message become visible `invisible_ms` from now.

        Returns that time, counted from the pop: its handle keeps the time of the pop. Raises
        Refusal when the message is not in flight.
        """
        visible_ms = self._clock.now_ms() + invisible_ms
        committed = committed_offset(self._offsets, self._orders, key)
        topic, group, _ = key
        is_former = self._deletions.covers(topic, group, pop_time_ms)
        known = offset >= committed and not is_former
        known = known and self._orders.show_at(key, offset, pop_time_ms, visible_ms)
        if not known:
            raise _illegal(key, committed, offset)
        self._alarms.set(key)
        return visible_ms - pop_time_ms


def _illegal(key: Key, committed: int, offset: int) -> Refusal:
    topic, group, queue_id = key
    text = f"offset is illegal, key:{topic}@{group}@{queue_id}, old:{committed}, commit:{offset}"
    return Refusal(Reason.ILLEGAL_MESSAGE, f"{text}, next:{Unsettled.NOT_IN_BATCH.value}")
