"""Pops of light topics (200070), and what settles their messages (200051 and 200053).

One pop takes messages of several light topics. Each is read in order: invariant: at most one batch
of a group is in flight in a light topic, and the group's committed offset is that of its first
message that is not acknowledged. So nothing is delivered past it, and nothing is lost with the
batches, which are in memory alone: whoever pops next begins there.
"""

from __future__ import annotations

import dataclasses
import logging
from typing import TYPE_CHECKING

from roquet.broker.api.pop import LightInvisible, LightPopResult
from roquet.broker.api.refusal import Reason, Refusal
from roquet.broker.pop.receive.orders import Unsettled, committed_offset
from roquet.broker.pop.receive.reads import MOVED, SKIPPED, offsets_of
from roquet.broker.services.light_reads import read_allowed
from roquet.protocol.light import light_topics
from roquet.protocol.pop.topics import ORDER_REVIVE_QUEUE
from roquet.service.background import give_way
from roquet.service.ratelog import RateLog
from roquet.store.records import read_records
from roquet.store.results import StoreFault

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from roquet.base.clock import Clock
    from roquet.broker.api.pop import (
        LightAckRequest,
        LightInvisibleRequest,
        LightPopRequest,
    )
    from roquet.broker.light.checks import LightChecks
    from roquet.broker.light.events import LightEvents
    from roquet.broker.light.facts import LightFacts
    from roquet.broker.light.subscriptions import Client, LightSubscriptions
    from roquet.broker.metrics.traffic import Traffic
    from roquet.broker.pop.receive.offsets import PopOffsets
    from roquet.broker.pop.receive.ordered_acks import OrderAlarms
    from roquet.broker.pop.receive.orders import PopOrders
    from roquet.broker.pop.receive.reads import Reader
    from roquet.protocol.pop.handle import ReceiptHandle
    from roquet.protocol.pop.orders import Key
    from roquet.store.results import GetResult
    from roquet.store.tables.deletions import Deletions
    from roquet.store.tables.offsets import OffsetTable

log = logging.getLogger(__name__)

LOOKS_MAX = 1_024
"""Light topics that one pop looks at; the next goes on behind them."""
LOOKS_AT_ONCE = 32
BYTES_MAX = 4 * 1024 * 1024
"""A pop that has so much takes no more light topics."""


@dataclasses.dataclass(slots=True)
class _Run:
    """One pop while it goes from light topic to light topic."""

    request: LightPopRequest
    now_ms: int
    parts: list[bytes] = dataclasses.field(default_factory=list[bytes])
    counts: list[int] = dataclasses.field(default_factory=list[int])
    size: int = 0
    looks: int = 0

    @property
    def room(self) -> int:
        return self.request.max_messages - len(self.counts)

    @property
    def is_full(self) -> bool:
        return self.room <= 0 or self.size >= BYTES_MAX or self.looks >= LOOKS_MAX


class LightPops:
    """Takes messages of light topics for clients."""

    def __init__(
        self,
        *,
        checks: LightChecks,
        subscriptions: LightSubscriptions,
        events: LightEvents,
        store: Reader,
        offsets: PopOffsets,
        orders: PopOrders,
        alarms: OrderAlarms,
        traffic: Traffic,
        clock: Clock,
    ) -> None:
        self._checks = checks
        self._subscriptions = subscriptions
        self._events = events
        self._store = store
        self._offsets = offsets
        self._orders = orders
        self._alarms = alarms
        self._traffic = traffic
        self._clock = clock
        self._log = RateLog(log, clock)

    async def pop(self, request: LightPopRequest) -> LightPopResult:
        """Take messages; none may be there. Raises Refusal, and StoreFault when a read failed."""
        self._checks.pop(request)
        client = request.client_id, request.group
        self._events.asks(client)
        run = _Run(request, self._clock.now_ms())
        if self._events.walks(request.group):
            await self._walk(run, client)
        else:
            await self._take_events(run, client)
        return LightPopResult(
            pop_time_ms=run.now_ms,
            records=b"".join(run.parts),
            messages=len(run.counts),
            counts=run.counts,
        )

    async def _take_events(self, run: _Run, client: Client) -> None:
        seen: set[str] = set()
        while not run.is_full:
            queue = self._events.take(client)
            if queue is None:
                return
            if queue in seen:
                # Told of again meanwhile: the next pop looks.
                self._events.dispatch(queue, run.request.group)
                return
            seen.add(queue)
            try:
                await self._look(run, queue)
            except StoreFault:
                self._events.dispatch(queue, run.request.group)
                raise

    async def _walk(self, run: _Run, client: Client) -> None:
        """Go through the whole subscription, each pop from where the last one ended."""
        held = self._subscriptions.get(client)
        if held is None or held.topic != run.request.topic:
            return
        queues = list(held.queues)
        for turn in range(len(queues)):
            if run.is_full:
                return
            await self._look(run, queues[(held.next_walk + turn) % len(queues)])
        held.next_walk = (held.next_walk + run.looks) % max(1, len(queues))

    async def _look(self, run: _Run, queue: str) -> None:
        """Take what a light topic has. Raises StoreFault, unless others gave something already."""
        run.looks += 1
        if run.looks % LOOKS_AT_ONCE == 0:
            await give_way()
        if not light_topics.belongs_to(queue, run.request.topic):
            return
        try:
            self._read(run, queue)
        except StoreFault as fault:
            # Nothing was moved. What other light topics gave is in flight and has to be answered.
            if not run.counts:
                raise
            self._log.warning(queue, f"{queue} cannot be read: {fault}")
            self._events.schedule((run.request.client_id, run.request.group), 0)

    def _read(self, run: _Run, queue: str) -> None:
        group, queue_id = run.request.group, light_topics.QUEUE_ID
        if self._store.max_offset(queue, queue_id) <= 0:
            return
        key = queue, group, queue_id
        begin = self._offsets.begin(group, queue, queue_id, from_first=False)
        if begin is None:
            return
        offset, is_reset = begin
        if is_reset:
            self._orders.clear(key)
        if self._orders.is_blocked(key, run.request.attempt_id):
            return
        if not self._orders.has_room(key):
            count = len(self._orders)
            self._log.warning("orders", f"too many light topics have messages in flight: {count}")
            self._events.schedule((run.request.client_id, group), 1_000)
            return
        began_ms = self._clock.now_ms()
        result = self._get(run, queue, offset)
        if result.status in MOVED and result.next_begin_offset >= 0:
            moved = result.next_begin_offset
            log.warning("group %s goes on at %d instead of %d in %s", group, moved, offset, queue)
            offset = moved
            self._offsets.move(group, queue, queue_id, offset)
            self._orders.clear(key)
            result = self._get(run, queue, offset)
        took_ms = max(0, self._clock.now_ms() - began_ms)
        self._traffic.pulled(group, run.request.topic, queue_id, result, took_ms)
        if result.messages:
            self._take(run, key, offset, result)
        elif result.status in SKIPPED and result.next_begin_offset > offset:
            # Nothing that this group may read.
            self._offsets.passed(group, queue, queue_id, result.next_begin_offset)
            self._events.available(queue, group)

    def _get(self, run: _Run, queue: str, offset: int) -> GetResult:
        return read_allowed(
            *(self._store, (queue, light_topics.QUEUE_ID), offset, run.room),
            codes=None,
            filter_by=None,
            allowed=run.request.may_read,
        )

    def _take(self, run: _Run, key: Key, offset: int, result: GetResult) -> None:
        """Note the batch, then hand it out; the group's offset stays where the batch begins.

        What was acknowledged behind a message that was not is in the batch, and not given again.
        """
        queue, group, queue_id = key
        offsets = offsets_of(result, offset, queue)
        acked = self._orders.acked(key)
        counts = self._orders.popped(
            key,
            offsets,
            pop_time_ms=run.now_ms,
            invisible_ms=run.request.invisible_ms,
            attempt_id=run.request.attempt_id,
            acked=acked,
        )
        self._offsets.passed(group, queue, queue_id, offsets[0])
        self._alarms.set(key)
        records = _without(result.records, offsets, acked) if acked else result.records
        run.parts.append(records)
        run.size += len(records)
        run.counts += [counts.get(at, 0) for at in offsets if at not in acked]


def _without(records: bytes, offsets: Sequence[int], dropped: Collection[int]) -> bytes:
    """Return records without those of some offsets."""
    kept: list[bytes] = []
    at = 0
    for record, offset in zip(read_records(records, check_crc=False), offsets, strict=True):
        if offset not in dropped:
            kept.append(records[at : at + record.size])
        at += record.size
    return b"".join(kept)


class LightAcks:
    """Settles messages of light topics."""

    def __init__(
        self,
        *,
        checks: LightChecks,
        facts: LightFacts,
        events: LightEvents,
        store: Reader,
        offsets: OffsetTable,
        orders: PopOrders,
        alarms: OrderAlarms,
        deletions: Deletions,
        clock: Clock,
    ) -> None:
        self._deletions = deletions
        self._checks = checks
        self._facts = facts
        self._events = events
        self._store = store
        self._offsets = offsets
        self._orders = orders
        self._alarms = alarms
        self._clock = clock

    def ack(self, request: LightAckRequest, client: str) -> None:
        """Acknowledge a message. `client` is its address. Raises Refusal."""
        key, handle = self._known(request, client, "ack offset illegal.")
        if request.queue_id != light_topics.QUEUE_ID or not handle.is_ordered:
            raise Refusal(Reason.INVALID_ARGUMENT, "ack queue illegal.")
        queue, group, queue_id = key
        if self._is_former(request, handle):
            return
        committed = committed_offset(self._offsets, self._orders, key)
        if request.offset < committed:
            return
        settled = self._orders.settle(
            *(key, request.offset),
            pop_time_ms=handle.pop_time_ms,
            committed=committed,
            end=self._store.max_offset(queue, queue_id),
        )
        if settled is Unsettled.OTHER_POP:
            return
        if isinstance(settled, Unsettled):
            raise Refusal(Reason.ILLEGAL_MESSAGE, "ack offset illegal.")
        if self._offsets.pending_reset(group, queue, queue_id) is None:
            self._offsets.commit(group, queue, queue_id, settled)
        if self._orders.forget_done(key):
            self._alarms.clear(key)
        if not self._orders.is_blocked(key, None):
            self._events.available(queue, group)
        else:
            # Without this message the queue may be free sooner.
            self._alarms.set(key)

    def change_invisible(
        self, request: LightInvisibleRequest, client: str
    ) -> LightInvisible | None:
        """Have a message come back at another time; None when it is settled. Raises Refusal."""
        key, handle = self._known(request, client, "")
        self._checks.check_invisible(request.invisible_ms)
        if self._is_former(request, handle):
            return None
        if request.offset < committed_offset(self._offsets, self._orders, key):
            return None
        visible_ms = self._clock.now_ms() + request.invisible_ms
        popped_ms = handle.pop_time_ms
        if request.is_suspended:
            changed = self._orders.suspend(key, popped_ms, visible_ms)
        else:
            changed = self._orders.show_at(key, request.offset, popped_ms, visible_ms)
        if changed:
            self._alarms.set(key)
        return LightInvisible(
            pop_time_ms=popped_ms,
            invisible_ms=visible_ms - popped_ms,
            revive_queue=ORDER_REVIVE_QUEUE,
        )

    def _is_former(
        self, request: LightAckRequest | LightInvisibleRequest, handle: ReceiptHandle
    ) -> bool:
        """Tell whether the light topic, its parent or the group was deleted since the pop."""
        queue = light_topics.queue_of(request.topic, request.name)
        names = queue, request.topic
        popped_ms = handle.pop_time_ms
        return any(self._deletions.covers(name, request.group, popped_ms) for name in names)

    def _known(
        self, request: LightAckRequest | LightInvisibleRequest, client: str, text: str
    ) -> tuple[Key, ReceiptHandle]:
        self._checks.settled_queue(request.topic, request.queue_id, client)
        if self._facts.bound_topic(request.group) != request.topic:
            raise Refusal(Reason.INVALID_ARGUMENT, "group type or bind topic not match.")
        queue = light_topics.queue_of(request.topic, request.name)
        if request.offset > self._store.max_offset(queue, light_topics.QUEUE_ID):
            raise Refusal(Reason.NO_MESSAGE, text)
        handle = self._checks.handle(request.handle)
        return (queue, request.group, light_topics.QUEUE_ID), handle
