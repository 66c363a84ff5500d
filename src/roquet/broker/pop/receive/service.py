"""POP: messages to clients that need no queue of their own (200050).

Invariant: a message leaves the broker only after the checkpoint that names it is stored, or is in
the merge buffer; the group's offset moves past it only when it is stored or acknowledged whole. So
a message that was popped is either acknowledged or delivered again, whatever stops in between. A
read that fails moves nothing.

Each queue is read under a lock (`locks`); the pop that holds it does all of this in turn.
"""

from __future__ import annotations

import dataclasses
import logging
from typing import TYPE_CHECKING

from roquet.broker.api.pop import PopRequest, PopResult
from roquet.broker.pop.receive.reads import (
    MOVED,
    SKIPPED,
    Draw,
    as_original,
    offsets_of,
    read_for,
    rest_of,
)
from roquet.protocol.pop.handle import ReceiptHandle, Taken, retry_flag
from roquet.protocol.pop.records import checkpoint_of
from roquet.protocol.pop.topics import ORDER_REVIVE_QUEUE
from roquet.service.ratelog import RateLog
from roquet.store.results import GetResult, GetStatus, StoreFault

if TYPE_CHECKING:
    from collections.abc import Callable

    from roquet.base.clock import Clock
    from roquet.broker.clients.expressions import Choice
    from roquet.broker.metrics.traffic import Traffic
    from roquet.broker.pop.buffer.service import PopBuffer
    from roquet.broker.pop.receive.checks import PopChecks
    from roquet.broker.pop.receive.in_flight import PopInFlight
    from roquet.broker.pop.receive.locks import Key, PopLocks
    from roquet.broker.pop.receive.offsets import PopOffsets
    from roquet.broker.pop.receive.ordered_acks import OrderAlarms
    from roquet.broker.pop.receive.orders import PopOrders
    from roquet.broker.pop.receive.reads import Draws, Reader
    from roquet.broker.pop.receive.records import ReviveLog
    from roquet.broker.pop.receive.rules import PopConfig
    from roquet.model.topic import TopicConfig
    from roquet.protocol.pop.records import PopCheckpoint
    from roquet.store.tables.topics import TopicTable

log = logging.getLogger(__name__)


@dataclasses.dataclass(slots=True)
class _Round:
    """One pop while it goes from queue to queue."""

    request: PopRequest
    wanted: Choice
    now_ms: int
    revive_queue: int
    rest: int = 0
    taken: list[Taken] = dataclasses.field(default_factory=list[Taken])
    parts: list[bytes] = dataclasses.field(default_factory=list[bytes])
    messages: int = 0
    advanced: bool = False
    order_counts: dict[tuple[str, int, int | None], int] = dataclasses.field(
        default_factory=dict[tuple[str, int, int | None], int]
    )

    @property
    def room(self) -> int:
        return self.request.max_messages - self.messages


class PopService:
    """Takes messages for clients."""

    def __init__(
        self,
        *,
        checks: PopChecks,
        topics: TopicTable,
        store: Reader,
        offsets: PopOffsets,
        locks: PopLocks,
        revive_log: ReviveLog,
        buffer: PopBuffer,
        in_flight: PopInFlight,
        orders: PopOrders,
        alarms: OrderAlarms,
        traffic: Traffic,
        broker_name: str,
        rules: PopConfig,
        clock: Clock,
        draws: Draws,
        on_contended: Callable[[str, str, int], None],
    ) -> None:
        """`on_contended(topic, group, queue id)` hears of queues that another pop wanted as well.

        It is called when the queue is free again, so that who was turned away can try again.
        """
        self._checks = checks
        self._topics = topics
        self._store = store
        self._offsets = offsets
        self._locks = locks
        self._revive_log = revive_log
        self._buffer = buffer
        self._in_flight = in_flight
        self._orders = orders
        self._alarms = alarms
        self._traffic = traffic
        self._broker_name = broker_name
        self._rules = rules
        self._clock = clock
        self._draws = draws
        self._on_contended = on_contended
        self._log = RateLog(log, clock)

    def follow(self, rules: PopConfig) -> None:
        """Go by other settings from now on."""
        self._rules = rules

    async def pop(self, request: PopRequest) -> PopResult:
        """Take messages; none may be there. Raises Refusal, and StoreFault when a read failed."""
        topic, wanted = self._checks.pop(request)
        urgent_percent = self._checks.urgent_percent(topic, request)
        draw = Draw(self._rules, self._draws.take(), urgent_percent=urgent_percent)
        now_ms = self._clock.now_ms()
        is_ordered = request.is_ordered
        revive_queue = ORDER_REVIVE_QUEUE if is_ordered else self._revive_log.next_queue()
        run = _Round(request, wanted, now_ms, revive_queue)
        retry_first = draw.retry_first and not is_ordered
        retry = self._topics.get(draw.retry_topic(request.topic, request.group))
        if retry_first:
            await self._queues(run, retry, draw)
        if request.queue_id < 0:
            await self._queues(run, topic, draw)
        else:
            await self._queue(run, topic.name, request.queue_id)
        if not retry_first and not is_ordered and run.room > 0:
            await self._queues(run, retry, draw)
        return PopResult(
            pop_time_ms=run.now_ms,
            revive_queue=run.revive_queue,
            rest=run.rest,
            taken=run.taken,
            records=b"".join(run.parts),
            messages=run.messages,
            order_counts=run.order_counts if is_ordered else None,
            advanced=run.advanced,
        )

    async def _queues(self, run: _Round, topic: TopicConfig | None, draw: Draw) -> None:
        """Go through the queues of a topic."""
        for name, queue_id in draw.turned(topic):
            await self._queue(run, name, queue_id)

    async def _queue(self, run: _Round, topic: str, queue_id: int) -> None:
        request = run.request
        key = topic, request.group, queue_id
        if not self._locks.take(key):
            run.rest += self._rest(run, topic, queue_id)
            return
        try:
            await self._locked(run, key)
        except StoreFault as fault:
            # Nothing was moved. What other queues gave is in flight and has to be answered.
            if not run.messages:
                raise
            self._log.warning(key, f"{topic} queue {queue_id} cannot be read: {fault}")
        finally:
            if self._locks.release(key):
                self._on_contended(request.topic, request.group, queue_id)

    async def _locked(self, run: _Round, key: Key) -> None:
        request = run.request
        topic, group, queue_id = key
        if self._offsets.is_reset(key) and not await self._is_free(run, key):
            return
        offset = self._begun(run, key)
        if offset is None:
            return
        if run.room <= 0:
            # Where the group goes on is known here, so nobody has to look it up again.
            run.rest += max(0, self._store.max_offset(topic, queue_id) - offset)
            return
        began_ms = self._clock.now_ms()
        result = self._read(run, topic, queue_id, offset)
        if result.status in MOVED and result.next_begin_offset >= 0:
            if not await self._is_free(run, key):
                return
            log.warning(
                "group %s goes on at %d instead of %d in %s queue %d: %s",
                *(group, result.next_begin_offset, offset, topic, queue_id),
                result.status.name,
            )
            offset = result.next_begin_offset
            self._offsets.move(group, topic, queue_id, offset)
            result = self._read(run, topic, queue_id, offset)
        took_ms = max(0, self._clock.now_ms() - began_ms)
        self._traffic.pulled(group, topic, queue_id, result, took_ms)
        if result.messages:
            if request.is_ordered:
                self._take_in_order(run, key, offset, result)
            else:
                await self._take(run, key, offset, result)
            return
        if result.status in SKIPPED and result.next_begin_offset > offset:
            self._offsets.passed(group, topic, queue_id, result.next_begin_offset)
            run.advanced = True
        elif result.status is GetStatus.NO_MESSAGE_IN_QUEUE and offset > 0:
            self._emptied(key, offset)
        run.rest += rest_of(result)

    async def _is_free(self, run: _Round, key: Key) -> bool:
        """Tell whether a queue's offset may be set: nothing popped of it is in memory alone."""
        if await self._buffer.settle(key):
            return True
        topic, _, queue_id = key
        run.rest += self._rest(run, topic, queue_id)
        return False

    def _begun(self, run: _Round, key: Key) -> int | None:
        """Return where to read; None when the queue gives nothing now."""
        request, rules = run.request, self._rules
        topic, group, queue_id = key
        if rules.limits_in_flight and self._in_flight.count(key) > rules.in_flight_max:
            run.rest += self._rest(run, topic, queue_id)
            return None
        begin = self._offsets.begin(group, topic, queue_id, from_first=request.from_first)
        if begin is None:
            return None
        offset, is_reset = begin
        if is_reset:
            self._in_flight.forget(key)
            self._orders.clear(key)
        if request.is_ordered and self._orders.is_blocked(key, request.attempt_id):
            # What is blocked is no backlog: nobody needs to be woken for it.
            return None
        return offset

    def _read(self, run: _Round, topic: str, queue_id: int, offset: int) -> GetResult:
        queue, group = (topic, queue_id), run.request.group
        return read_for(
            *(self._store, queue, offset),
            group=group,
            most=run.room,
            wanted=run.wanted,
            may_read=run.request.may_read,
        )

    def _emptied(self, key: Key, offset: int) -> None:
        """Begin again in a queue that was made anew; while it is rebuilt, wait."""
        if self._store.dispatch_behind() == 0:
            topic, group, queue_id = key
            log.warning("%s queue %d is new: %s begins again", topic, queue_id, group)
            assert offset > 0
            self._offsets.move(group, topic, queue_id, 0)
            self._orders.clear(key)

    async def _take(self, run: _Round, key: Key, offset: int, result: GetResult) -> None:
        """Store the checkpoint of what was read or keep it in memory, then hand it out."""
        request = run.request
        name, group, queue_id = key
        offsets = offsets_of(result, offset, name)
        checkpoint = checkpoint_of(
            topic=name,
            group=group,
            queue_id=queue_id,
            start_offset=offset,
            pop_time_ms=run.now_ms,
            invisible_ms=request.invisible_ms,
            broker_name=self._broker_name,
            diffs=tuple(one - offset for one in offsets),
            count=len(offsets),
        )
        if not await self._is_kept(run, checkpoint, result.next_begin_offset):
            run.rest += len(offsets)
            return
        of = run.now_ms, offset
        self._in_flight.popped(key, of, checkpoint.revive_ms, len(offsets))
        run.taken.append(Taken(name, queue_id, offset, offsets))
        run.parts.append(self._shown(run, name, offset, result.records))
        run.messages += len(offsets)
        run.rest += rest_of(result)

    async def _is_kept(self, run: _Round, checkpoint: PopCheckpoint, next_offset: int) -> bool:
        """Keep a checkpoint in memory or store it; tell whether its messages may leave."""
        name, group = checkpoint.topic or "", checkpoint.group or ""
        merge = self._buffer.merge
        if merge.knows(checkpoint):
            # Popped twice in a millisecond: the two could not be told apart.
            return False
        if merge.add(checkpoint, run.revive_queue, next_offset, run.now_ms):
            return True
        stored = await self._revive_log.checkpoint(checkpoint, run.revive_queue)
        if not stored.status.is_stored:
            self._log.warning(
                (group, name, "checkpoint"),
                f"group {group} gets nothing of {name}: a checkpoint is not stored:"
                f" {stored.status.name} {stored.why}",
            )
            return False
        if self._topics.get(name) is None:
            # Deleted meanwhile, and the offsets with it.
            return False
        begin = checkpoint.start_offset
        self._offsets.passed(group, name, checkpoint.queue_id, next_offset, begin=begin)
        return True

    def _take_in_order(self, run: _Round, key: Key, offset: int, result: GetResult) -> None:
        """Note the batch, then hand it out; the group's offset stays where the batch begins."""
        topic, group, queue_id = key
        if not self._orders.has_room(key):
            self._log.warning(
                "orders", f"too many ordered batches are in flight: {len(self._orders)}"
            )
            run.rest += result.messages
            return
        offsets = offsets_of(result, offset, topic)
        counts = self._orders.popped(
            key,
            offsets,
            pop_time_ms=run.now_ms,
            invisible_ms=run.request.invisible_ms,
            attempt_id=run.request.attempt_id,
        )
        self._offsets.passed(group, topic, queue_id, offset)
        self._alarms.set(key)
        flag = retry_flag(topic)
        run.order_counts |= {(flag, queue_id, at): count for at, count in counts.items()}
        run.taken.append(Taken(topic, queue_id, offset, offsets))
        run.parts.append(result.records)
        run.messages += len(offsets)
        run.rest += rest_of(result)

    def _shown(self, run: _Round, name: str, offset: int, records: bytes) -> bytes:
        request = run.request
        if name == request.topic or self._rules.actual_retry_topic:
            return records
        handle = ReceiptHandle(
            *(offset, run.now_ms, request.invisible_ms, run.revive_queue),
            *(retry_flag(name), self._broker_name, 0, 0),
        )
        return as_original(records, request.topic, handle)

    def _rest(self, run: _Round, topic: str, queue_id: int) -> int:
        request = run.request
        return self._offsets.rest(request.group, topic, queue_id, from_first=request.from_first)
