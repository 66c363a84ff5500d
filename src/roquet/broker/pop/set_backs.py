"""What was popped while the clock stood ahead, once it is set back: it comes when it was to come.

A checkpoint says when its messages come again by the clock of its pop. When that clock is set back
by two hours, they would come two hours late, as they wait in the timer wheel for a time that is far
off again. So redelivery looks through what entered the wheel by the clock of before, and stores
each checkpoint once more with a time that is as much earlier; the invisible time of that one may be
below zero. Acknowledgements that are stored from then on are due with it (`due_ms`).

Invariant: the earlier checkpoint is stored first, and only then the note that settles the one that
the wheel still has. So a crash in between repeats messages and loses none. Both have the same
names, so that receipt handles stay as they are.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from roquet.protocol import names
from roquet.protocol import properties as props
from roquet.protocol.fastjson import JsonError
from roquet.protocol.pop.records import (
    PopAck,
    PopCheckpoint,
    has_bit,
    read_record,
    with_bit,
)
from roquet.service.background import give_way
from roquet.store.results import StoreFault

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from roquet.base.clock import Clock
    from roquet.broker.pop.seams import ReviveStore
    from roquet.protocol.pop.records import MergeKey
    from roquet.store.records import Record

LEAST_MS = 60_000
"""Messages come late by less than this without anything being done about it."""
SAME_MS_MAX = 1000
"""How far a pop time may run ahead of the clock so that no two of a message are equal."""
BATCH = 256
"""Records read before others have their turn."""
LOOKED_MAX = 1_000_000
"""Records of the wheel that are looked through at most, the newest first."""


class SetBacks:
    """How far the clock was set back, while it has not come again to where it was."""

    def __init__(self, clock: Clock) -> None:
        """Know of nothing."""
        self._clock = clock
        self._by_ms = 0
        self._untaken_ms = 0
        self._newest_ms = 0
        self._listeners: list[Callable[[int, int], None]] = []

    def listen(self, listener: Callable[[int, int], None]) -> None:
        """Call `listener(by, now)`, both in ms, when the clock was set back."""
        self._listeners.append(listener)

    def was_set_back(self, by_ms: int, now_ms: int) -> None:
        """Note that the clock was set back to `now_ms`."""
        if by_ms < LEAST_MS:
            return
        self._by_ms = by_ms + (self._by_ms if now_ms + by_ms < self._newest_ms else 0)
        self._newest_ms = max(self._newest_ms, now_ms + by_ms)
        self._untaken_ms += by_ms
        for listener in self._listeners:
            listener(by_ms, now_ms)

    @property
    def newest_ms(self) -> int:
        """The latest time at which something may have been popped, 0 where that is now."""
        return self._newest_ms if self._clock.now_ms() < self._newest_ms else 0

    def take(self) -> int:
        """Return by how much the clock was set back since this was asked last, 0 when it was not.

        Whoever asks has what waits for the clock of before come earlier.
        """
        by_ms, self._untaken_ms = self._untaken_ms, 0
        return by_ms

    def due_ms(self, pop_time_ms: int, revive_ms: int) -> int:
        """Return when what was popped then comes again, which its handle says is `revive_ms`."""
        if not self.newest_ms or pop_time_ms <= self._clock.now_ms() + SAME_MS_MAX:
            return revive_ms
        return revive_ms - self._by_ms


@dataclasses.dataclass(frozen=True, slots=True)
class Late:
    """A checkpoint that waits for a time which is too far off."""

    checkpoint: PopCheckpoint
    """As it was stored, with what is acknowledged by now."""
    queue_id: int

    def left(self) -> tuple[int, ...]:
        """Return the queue offsets of the messages that are not acknowledged."""
        offsets, bits = enumerate(self.checkpoint.offsets()), self.checkpoint.bits
        return tuple(offset for bit, offset in offsets if not has_bit(bits, bit))

    def earlier(self, by_ms: int) -> PopCheckpoint:
        """Return the checkpoint that brings them sooner."""
        one = self.checkpoint
        return dataclasses.replace(one, invisible_ms=one.invisible_ms - by_ms)


class LateCheckpoints:
    """Finds what waits in the wheel by the clock of before."""

    def __init__(self, store: ReviveStore, revive_topic: str, broker_name: str) -> None:
        self._store = store
        self._revive_topic = revive_topic
        self._broker_name = broker_name
        self._end = 0

    def note_end(self) -> None:
        """Note how many records the wheel has got: those behind may be of another clock."""
        self._end = self._store.max_offset(names.TIMER_TOPIC, 0)

    async def find(self, now_ms: int, fired_ms: int) -> list[Late]:
        """Return what was popped after `now_ms` and is due after `fired_ms`, and not settled.

        Everything up to that time has left the wheel. Raises StoreFault.
        """
        found: dict[MergeKey, list[Late]] = {}
        acks: list[PopAck] = []
        async for record in self._newest(now_ms):
            said = props.read(record.properties)
            if said.get(props.REAL_TOPIC) != self._revive_topic:
                continue
            try:
                read = read_record(said.get(props.TAGS), record.body)
            except JsonError:
                continue
            if isinstance(read, PopAck):
                acks.append(read)
            elif read is not None and read.pop_time_ms > now_ms and read.revive_ms > fired_ms:
                late = Late(read, int(said.get(props.REAL_QUEUE_ID, "0")))
                found.setdefault(read.merge_key, []).append(late)
        for ack in acks:
            key = ack.merge_key(self._broker_name)
            if key in found:
                found[key] = [_acked(late, ack.offsets) for late in found[key]]
        return [late for same in found.values() for late in same if late.left()]

    async def _newest(self, now_ms: int) -> AsyncIterator[Record]:
        """Go through what entered the wheel, from its end to what was stored by `now_ms`."""
        topic, first = names.TIMER_TOPIC, self._store.min_offset(names.TIMER_TOPIC, 0)
        at = end = self._store.max_offset(topic, 0)
        while at > first and end - at < LOOKED_MAX:
            begin, newest_ms = max(first, at - BATCH), 0
            for physical, size, _ in self._store.units(topic, 0, begin, at - begin):
                record = self._record(physical, size)
                if record is not None:
                    newest_ms = max(newest_ms, record.store_timestamp)
                    yield record
            at = begin
            if at < self._end and newest_ms <= now_ms:
                return
            await give_way()

    def _record(self, physical: int, size: int) -> Record | None:
        try:
            return self._store.record(physical, size)
        except StoreFault as fault:
            if fault.kind != "corrupt":
                raise
            return None


def _acked(late: Late, offsets: tuple[int, ...]) -> Late:
    one = late.checkpoint
    bits = one.bits
    for offset in offsets:
        bit = one.index_of(offset)
        if bit >= 0:
            bits = with_bit(bits, bit)
    return dataclasses.replace(late, checkpoint=dataclasses.replace(one, bits=bits))
