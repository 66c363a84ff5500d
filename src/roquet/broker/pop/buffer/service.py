"""The merge buffer at work: stores what is due, in the order that `merge` asks for.

A checkpoint goes before its acknowledgements: redelivery meets them in this order, too. What the
store does not take stays in memory and is tried again; its offset waits for it. An orderly stop
stores everything.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Protocol

from roquet.broker.pop.buffer.merge import MergeBuffer
from roquet.protocol.pop.records import PopAck
from roquet.service.background import give_way
from roquet.service.lifecycle import Timer
from roquet.service.ratelog import RateLog

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from roquet.base.clock import Clock
    from roquet.broker.pop.buffer.merge import Buffered, Key
    from roquet.broker.pop.buffer.rules import BufferConfig
    from roquet.protocol.pop.records import PopCheckpoint
    from roquet.service.metrics import Distribution
    from roquet.store.results import PutResult
    from roquet.store.tables.offsets import OffsetTable

log = logging.getLogger(__name__)

AT_ONCE = 128
"""Checkpoints stored before others have their turn; twice as many acknowledgements."""
LOOK_S = 0.1
"""Between two looks while nothing is due."""
IDLE_S = 1.0
"""Between two looks while the buffer is off."""
BUSY_S = 0.005
"""Between two looks while something is due."""


class Records(Protocol):
    """Stores records of the revive topic."""

    async def checkpoints(
        self, checkpoints: Sequence[tuple[PopCheckpoint, int]]
    ) -> list[PutResult]:
        """Store checkpoints in their revive queues."""
        ...

    async def acks(
        self, acks: Sequence[tuple[PopAck, int, int]], *, of_buffer: bool = False
    ) -> list[PutResult]:
        """Store acknowledgements: (ack, revive queue, revive time)."""
        ...


class PopBuffer:
    """Checkpoints that wait in memory for their acknowledgements."""

    def __init__(
        self,
        records: Records,
        offsets: OffsetTable,
        *,
        is_gone: Callable[[str, str], bool],
        rules: BufferConfig,
        clock: Clock,
    ) -> None:
        """`is_gone(topic, group)` tells whether nobody will ask for a queue any more."""
        self._records = records
        self._offsets = offsets
        self._is_gone = is_gone
        self._rules = rules
        self._clock = clock
        self._storing = asyncio.Lock()
        self._log = RateLog(log, clock)
        self.merge = MergeBuffer(rules, self._commit)
        self.looks: Distribution | None = None
        """Counts how long looks take, milliseconds."""

    @property
    def is_used(self) -> bool:
        """Whether checkpoints are in memory, or may enter it."""
        return self._rules.enabled or len(self.merge) > 0

    @property
    def timers(self) -> tuple[Timer, ...]:
        """The looks for what is due."""
        return (Timer("store checkpoints of pops", self.tick, self._pause_s, LOOK_S),)

    def follow(self, rules: BufferConfig) -> None:
        """Go by other settings from now on; switched off, everything is due."""
        self._rules = rules
        self.merge.follow(rules)

    async def start(self) -> None:
        """Begin with nothing in memory: what was there belonged to an earlier term as master."""
        self.merge.clear()

    async def stop(self) -> None:
        """Store everything; what cannot be stored is popped again by the committed offset."""
        async with self._storing:
            left = len(self.merge)
            while left and (taken := self.merge.take_all(AT_ONCE)):
                await self._store(taken)
                left -= len(taken)
        if len(self.merge):
            log.error("%d checkpoints of pops are not stored: pops repeat them", len(self.merge))

    async def tick(self) -> None:
        """Store what is due."""
        began_ms = self._clock.steady_ms()
        async with self._storing:
            while taken := self.merge.take_due(self._clock.now_ms(), AT_ONCE):
                await self._store(taken)
                await give_way()
        if self.looks is not None:
            self.looks.observe((), float(self._clock.steady_ms() - began_ms))

    async def settle(self, key: Key) -> bool:
        """Store what a queue has in memory, because its offset is to move on its own.

        Return whether all of it is stored.
        """
        if self.merge.position(key) is None:
            return True
        async with self._storing:
            await self._store(self.merge.take_queue(key))
        return self.merge.position(key) is None

    def _pause_s(self) -> float:
        if not self._rules.enabled and not len(self.merge):
            return IDLE_S
        due_ms = self.merge.due_in_ms(self._clock.now_ms())
        if due_ms is None:
            return LOOK_S
        return min(LOOK_S, max(BUSY_S, due_ms / 1000))

    async def _store(self, entries: Sequence[Buffered]) -> None:
        """Store checkpoints, then the acknowledgements they met; end the attempt of each."""
        try:
            stored = await self._store_checkpoints(entries)
            # Acknowledgements that come meanwhile are met as well, or go to the log themselves.
            await self._store_acks(stored)
        finally:
            now_ms = self._clock.now_ms()
            for entry in entries:
                self.merge.settled(entry, now_ms)

    async def _store_checkpoints(self, entries: Sequence[Buffered]) -> list[Buffered]:
        wanted: list[tuple[Buffered, PopCheckpoint]] = []
        done: list[Buffered] = []
        for entry in entries:
            checkpoint = entry.checkpoint
            assert checkpoint is not None, "only checkpoints are due"
            if entry.is_stored:
                done.append(entry)
            elif self._is_gone(*entry.key[:2]):
                self.merge.drop(entry)
            else:
                wanted.append((entry, checkpoint))
        results = await self._records.checkpoints([(it, mine.revive_queue) for mine, it in wanted])
        for (entry, _), result in zip(wanted, results, strict=True):
            if result.status.is_stored:
                self.merge.checkpoint_stored(entry)
                done.append(entry)
            else:
                text = f"{result.status.name} {result.why}"
                self._log.warning("put", f"checkpoints of pops have to wait: {text}")
        return done

    async def _store_acks(self, entries: Sequence[Buffered]) -> None:
        wanted: list[tuple[Buffered, list[int]]] = []
        acks: list[tuple[PopAck, int, int]] = []
        for entry in entries:
            checkpoint, bits = entry.checkpoint, entry.unstored()
            assert checkpoint is not None
            for group in [bits] if self._rules.batch_acks and bits else [[bit] for bit in bits]:
                ack = _ack(checkpoint, group, is_batch=self._rules.batch_acks)
                wanted.append((entry, group))
                acks.append((ack, entry.revive_queue, checkpoint.revive_ms))
        if not acks:
            return
        results: list[PutResult] = []
        for begin in range(0, len(acks), 2 * AT_ONCE):
            some = acks[begin : begin + 2 * AT_ONCE]
            results += await self._records.acks(some, of_buffer=True)
            await give_way()
        for (entry, bits), result in zip(wanted, results, strict=True):
            if result.status.is_stored:
                self.merge.ack_stored(entry, bits)
            else:
                text = f"{result.status.name} {result.why}"
                self._log.warning("put", f"acknowledgements of pops have to wait: {text}")

    def _commit(self, key: Key, begin: int | None, offset: int) -> None:
        """Move a group's offset forward, unless the queue was forgotten or begins elsewhere.

        An offset below `begin` was set by an operator, who wants those messages again.
        """
        topic, group, queue_id = key
        self._offsets.advance(group, topic, queue_id, offset, begin=begin)


def _ack(checkpoint: PopCheckpoint, bits: Sequence[int], *, is_batch: bool) -> PopAck:
    """Return the record of acknowledgements that a checkpoint met, as Java's buffer writes it."""
    offsets = checkpoint.offsets()
    return PopAck(
        topic=checkpoint.topic,
        group=checkpoint.group,
        queue_id=checkpoint.queue_id,
        start_offset=checkpoint.start_offset,
        pop_time_ms=checkpoint.pop_time_ms,
        # Java's batches of the buffer name no broker, and the offset that nobody set.
        broker_name=None if is_batch else checkpoint.broker_name,
        offset=0 if is_batch else offsets[bits[0]],
        batch=tuple(offsets[bit] for bit in bits) if is_batch else None,
    )
