"""Delivers again what was popped and not acknowledged: a service for the broker that is master.

A round reads what is new in each revive queue, stores the messages of checkpoints that are due in
their retry topics, and commits how far each queue is settled. A message that could not be read or
stored gets a checkpoint of its own and another try later; nothing that failed counts as settled.

Offsets never run ahead of the log: what a round stored is flushed before they move. So after a
crash none is forgotten. What was acknowledged before the crash is not stored again, because a
checkpoint is read again together with its acknowledgements.

Nor is what was stored again. The log has an acknowledgement for it, which the broker itself appends
behind the copies of each checkpoint (as one record; brokers of RocketMQ understand it), and a
service that begins settles nothing before it has read the whole queue. A crash between the copies
and that record repeats the messages of one checkpoint. A message with another try later is not
acknowledged: its new checkpoint may have the names of the old one.
"""

from __future__ import annotations

import dataclasses
import logging
from typing import TYPE_CHECKING

from roquet.broker.pop import revive_rules
from roquet.broker.pop.drafts import ack_draft, checkpoint_draft
from roquet.broker.pop.revive_copies import Copies, Outcome
from roquet.broker.pop.revive_queue import SLACK_MS, ReviveQueue
from roquet.broker.pop.set_backs import Late, LateCheckpoints, SetBacks
from roquet.broker.pop.stray_acks import StrayAcks
from roquet.protocol import properties as props
from roquet.protocol.pop.records import PopAck
from roquet.protocol.pop.topics import REVIVE_GROUP, revive_topic
from roquet.service.background import give_way
from roquet.service.lifecycle import Timer
from roquet.service.ratelog import RateLog
from roquet.store.results import PutStatus, StoreFault

if TYPE_CHECKING:
    from roquet.base.clock import Clock
    from roquet.broker.pop.revive_queue import Waiting
    from roquet.broker.pop.revive_rules import ReviveConfig
    from roquet.broker.pop.seams import ReviveAppends, ReviveStore, Wheel
    from roquet.broker.state import Identity
    from roquet.protocol.pop.records import PopCheckpoint
    from roquet.store.tables.offsets import OffsetTable
    from roquet.store.tables.topics import TopicTable

log = logging.getLogger(__name__)

BATCH = 256
"""Records read before others have their turn."""
ROUND_MS_MAX = 1000
"""A round with more copies to store ends here, so that a stop never waits long for it."""
FIRST_S = 1.0
FIRST_READ_MS = 10_000
"""A queue is settled so long after it was begun even if its last records are not in it yet."""
LOOK_MS = 10_000
"""Between two looks for records in queues that the topic does not have."""
QUEUES_MAX = 1024
"""Most queues that `reviveQueueNum` allows."""


_STORED = (Outcome.STORED, Outcome.DEAD)


@dataclasses.dataclass(slots=True)
class _Unread:
    """What has to be read of a queue before any of it is settled."""

    until_ms: int
    """When nothing more is waited for that is not in the queue, by the steady clock."""
    end: int | None = None


class ReviveService:
    """Redelivery of popped messages."""

    def __init__(
        self,
        store: ReviveStore,
        appends: ReviveAppends,
        copies: Copies,
        offsets: OffsetTable,
        topics: TopicTable,
        *,
        wheel: Wheel,
        identity: Identity,
        rules: ReviveConfig,
        clock: Clock,
    ) -> None:
        """Read nothing yet."""
        self.copies = copies
        self.strays = StrayAcks()
        self.set_backs = SetBacks(clock)
        self._store = store
        self._appends = appends
        self._offsets = offsets
        self._topics = topics
        self._wheel = wheel
        self._identity = identity
        self._rules = rules
        self._clock = clock
        self._topic = revive_topic(identity.cluster)
        self._late = LateCheckpoints(store, self._topic, identity.name)
        self._ticked_ms = clock.now_ms()
        self._queues: dict[int, ReviveQueue] = {}
        self._committed: dict[int, int] = {}
        self._unread: dict[int, _Unread] = {}
        self._above: list[int] = []
        self._looked_ms: int | None = None
        self._slow = 0
        self._more = False
        self._was_off = False
        self._log = RateLog(log, clock)

    @property
    def timers(self) -> tuple[Timer, ...]:
        """The rounds of redelivery."""
        return (Timer("revive popped messages", self.tick, self._pause_s, FIRST_S),)

    @property
    def queues(self) -> dict[int, ReviveQueue]:
        """The revive queues that are read, by number."""
        return self._queues

    def follow(self, rules: ReviveConfig) -> None:
        """Go by other settings from now on."""
        self._rules = rules
        self.copies.rules = rules

    async def start(self) -> None:
        """Begin with the first round, behind what is settled: nothing is known before it."""
        self._slow = 0

    async def stop(self) -> None:
        """Note how far each queue is settled; the next start begins there."""
        await self._commit()
        self._queues.clear()
        self._unread.clear()
        self.strays.clear()

    def lag(self, queue_id: int) -> int:
        """Return how many records of a revive queue are not settled."""
        queue = self._queues.get(queue_id)
        if queue is None:
            return 0
        return max(0, self._store.max_offset(self._topic, queue_id) - queue.settled - 1)

    def latency_ms(self, queue_id: int) -> int:
        """Return how long the oldest checkpoint of a revive queue is overdue, 0 when none is."""
        queue = self._queues.get(queue_id)
        head = None if queue is None else queue.head
        return 0 if head is None else max(0, self._clock.now_ms() - head.checkpoint.revive_ms)

    def _pause_s(self) -> float:
        if self._more:
            return 0.001
        return self._rules.interval_ms * (1 + self._slow) / 1000

    # --- rounds ---------------------------------------------------------------------------------

    async def tick(self) -> None:
        """Do one round over all revive queues."""
        self._more = False
        if not self._wheel.is_on:
            if not self._was_off:
                log.warning("popped messages are not delivered again: timerWheelEnable is false")
            self._was_off = True
            return
        self._was_off = False
        # What the wheel has let through by now is in the queues when they are read.
        passed_ms = self._wheel.passed_ms() if self._store.dispatch_behind() == 0 else None
        if passed_ms is not None and self._store.dispatch_behind() != 0:
            passed_ms = None
        busy = False
        by_ms = self.set_backs.take()
        if by_ms:
            await self._set_back(by_ms)
        self._ticked_ms = self._clock.now_ms()
        self._late.note_end()
        self.copies.look()
        self.strays.expire(self._clock.now_ms(), self._rules.ack_wait_ms)
        for queue_id in self._queue_ids():
            try:
                busy = await self._round(queue_id, passed_ms) or busy
            except StoreFault as fault:
                self._log.warning(queue_id, f"revive queue {queue_id} has to wait: {fault}")
                busy = True
        await self._commit()
        self._slow = 0 if busy else min(self._slow + 1, self._rules.slow_max)

    def _queue_ids(self) -> list[int]:
        """Return the queues that the topic has, and those above that hold records all the same.

        The timer wheel still brings records for the queues of a topic that was made smaller.
        """
        config = self._topics.get(self._topic)
        count = 0 if config is None else config.read_queues
        now_ms = self._clock.steady_ms()
        if self._looked_ms is None or now_ms - self._looked_ms >= LOOK_MS:
            self._looked_ms = now_ms
            above = range(count, QUEUES_MAX)
            self._above = [it for it in above if self._store.max_offset(self._topic, it) > 0]
        return [*range(count), *(it for it in self._above if it >= count)]

    async def _round(self, queue_id: int, passed_ms: int | None) -> bool:
        """Read and settle one queue; tell whether it has work."""
        queue = self._opened(queue_id)
        before = queue.next_offset
        is_drained = await self._read(queue_id, queue)
        queue.clock_is(self._clock.now_ms())
        if is_drained and passed_ms is not None:
            queue.caught_up(min(passed_ms, self._clock.now_ms()))
        if not self._knows_all(queue_id, queue):
            return True
        await self._settle(queue_id, queue)
        return len(queue) > 0 or queue.next_offset != before

    def _opened(self, queue_id: int) -> ReviveQueue:
        """Return a queue, begun behind what is settled of it."""
        queue = self._queues.get(queue_id)
        last = self._store.max_offset(self._topic, queue_id)
        if queue is not None and queue.next_offset > last and self._is_dispatched():
            log.warning("revive queue %d was cut at %d: it is read again", queue_id, last)
            queue = None
        if queue is None:
            known = self._offsets.committed(REVIVE_GROUP, self._topic, queue_id)
            settled = -1 if known is None else known
            if settled >= last and self._is_dispatched():
                settled = last - 1
            queue = self._queues[queue_id] = ReviveQueue(settled, self._identity.name, self.strays)
            self._committed[queue_id] = settled
            self._unread[queue_id] = _Unread(self._clock.steady_ms() + FIRST_READ_MS)
        return queue

    def _knows_all(self, queue_id: int, queue: ReviveQueue) -> bool:
        """Tell whether all is read that was in the log when a queue was begun.

        That is where it says what was stored again before a crash.
        """
        unread = self._unread.get(queue_id)
        if unread is None:
            return True
        if unread.end is None:
            if not self._is_dispatched() and self._clock.steady_ms() < unread.until_ms:
                return False
            unread.end = self._store.max_offset(self._topic, queue_id)
        if queue.next_offset < unread.end:
            return False
        del self._unread[queue_id]
        return True

    def _is_dispatched(self) -> bool:
        return self._store.dispatch_behind() == 0

    async def _read(self, queue_id: int, queue: ReviveQueue) -> bool:
        """Read what is new, for as long as it may take; tell whether that was all."""
        end_ms = self._clock.steady_ms() + self._rules.scan_ms
        last = self._store.max_offset(self._topic, queue_id)
        while queue.next_offset < last:
            first = self._store.min_offset(self._topic, queue_id)
            if queue.next_offset < first:
                where = (queue_id, first, queue.next_offset)
                log.warning("revive queue %d goes on at %d, not %d: the rest was deleted", *where)
                queue.skip_to(first)
            units = self._store.units(self._topic, queue_id, queue.next_offset, BATCH)
            for physical, size, _ in units:
                self._take(queue_id, queue, physical, size)
            await give_way()
            if not units or self._clock.steady_ms() > end_ms:
                return False
        return True

    def _take(self, queue_id: int, queue: ReviveQueue, physical: int, size: int) -> None:
        offset = queue.next_offset
        try:
            record = self._store.record(physical, size)
        except StoreFault as fault:
            if fault.kind != "corrupt":
                raise
            record = None
        if record is None:
            # Nothing can be known of it: if it was a checkpoint, its messages do not come again.
            log.error("revive queue %d: the record at offset %d is damaged", queue_id, offset)
            queue.skip_to(offset + 1, unreadable=1)
            return
        queue.take(offset, props.read(record.properties), record.body, self._clock.now_ms())

    async def _settle(self, queue_id: int, queue: ReviveQueue) -> None:
        """Deal with the checkpoints that are due."""
        end_ms = self._clock.steady_ms() + ROUND_MS_MAX
        while (head := queue.head) is not None:
            if self._clock.steady_ms() > end_ms:
                self._more = True
                return
            if queue.is_early(self._clock.now_ms()):
                is_settled = await self._defer(queue_id, head)
            elif queue.is_due():
                is_settled = await self._revive(queue_id, head)
            else:
                return
            if not is_settled:
                return
            queue.settle()
            await give_way()

    async def _commit(self) -> None:
        """Commit how far the queues are settled, once the log is durable up to now.

        That is what was stored and what was read: records that a power loss took would come once
        more at offsets that count as settled.
        """
        moved = {
            queue_id: queue.settled
            for queue_id, queue in self._queues.items()
            if queue.settled > self._committed.get(queue_id, -1)
        }
        if not moved:
            return
        try:
            await self._store.flush()
        except StoreFault as fault:
            self._log.warning("flush", f"offsets of revive queues have to wait: {fault}")
            return
        for queue_id, offset in moved.items():
            self._offsets.commit(REVIVE_GROUP, self._topic, queue_id, offset)
            self._committed[queue_id] = offset

    async def _set_back(self, by_ms: int) -> None:
        """Have messages come when they were to come before the clock was set back."""
        now_ms = self._clock.now_ms()
        try:
            late = await self._late.find(now_ms, self._ticked_ms - SLACK_MS)
        except StoreFault as fault:
            log.error("popped messages come up to %d s late: %s", by_ms // 1000, fault)  # noqa: TRY400
            late = []
        known = {it.checkpoint.merge_key: it for it in late}
        for queue_id, queue in self._queues.items():
            for waiting in queue.popped_after(now_ms):
                known[waiting.checkpoint.merge_key] = Late(waiting.as_it_stands(), queue_id)
        for one in known.values():
            left = one.left()
            if left and await self._put(one.earlier(by_ms), one.queue_id):
                await self._note(one.queue_id, one.checkpoint, left)
            await give_way()
        log.warning("the clock was set back by %d s: %d pops", by_ms // 1000, len(known))

    # --- one checkpoint -------------------------------------------------------------------------

    async def _revive(self, queue_id: int, waiting: Waiting) -> bool:
        """Store again what is not acknowledged; tell whether the checkpoint is settled."""
        checkpoint = waiting.checkpoint
        unacked = waiting.unacked()
        if not unacked or self.copies.is_orphan(checkpoint):
            return True
        outcomes = await self.copies.store(checkpoint, [offset for _, offset in unacked])
        pairs = zip(unacked, outcomes, strict=True)
        stored = tuple(offset for (_, offset), outcome in pairs if outcome in _STORED)
        if stored:
            await self._note(queue_id, checkpoint, stored)
        if len(stored) == len(unacked):
            return True
        for (bit, offset), outcome in zip(unacked, outcomes, strict=True):
            is_done = outcome is not Outcome.WAIT
            if outcome is Outcome.FAILED:
                is_done = await self._again_later(queue_id, checkpoint, offset)
            if is_done:
                waiting.done(bit)
        return not waiting.unacked()

    async def _note(
        self, queue_id: int, checkpoint: PopCheckpoint, stored: tuple[int, ...]
    ) -> None:
        """Write down which messages of a checkpoint are stored again, for whoever reads it anew."""
        ack = PopAck(
            topic=checkpoint.topic,
            group=checkpoint.group,
            queue_id=checkpoint.queue_id,
            start_offset=checkpoint.start_offset,
            pop_time_ms=checkpoint.pop_time_ms,
            broker_name=checkpoint.broker_name,
            offset=stored[0] if len(stored) == 1 else -1,
            batch=None if len(stored) == 1 else stored,
        )
        draft = ack_draft(
            *(ack, self._topic, queue_id, self._clock.now_ms(), self._identity.store_host),
            revive_ms=checkpoint.revive_ms,
        )
        result = await self._appends.append(draft, wait=False)
        # Without it they come again once more if the broker crashes now, and that is all.
        queue = self._queues.get(queue_id)
        if result.status.is_stored and draft.topic == self._topic and queue is not None:
            queue.wrote(result.queue_offset)

    async def _again_later(self, queue_id: int, checkpoint: PopCheckpoint, offset: int) -> bool:
        """Store a checkpoint of one message that failed; tell whether that was done."""
        again = revive_rules.re_put(checkpoint, offset, self._clock.now_ms(), self._rules)
        if again is None:
            where = (checkpoint.topic, checkpoint.queue_id, offset, checkpoint.group)
            log.error("message of %s queue %d offset %d is given up for group %s", *where)
            self.copies.counts.given_up += 1
            return True
        self.copies.counts.re_puts += 1
        return await self._put(again, queue_id)

    async def _defer(self, queue_id: int, waiting: Waiting) -> bool:
        """Send a checkpoint that came too early back to the wheel, with its acknowledgements."""
        return await self._put(waiting.as_it_stands(), queue_id)

    async def _put(self, checkpoint: PopCheckpoint, queue_id: int) -> bool:
        host, now_ms = self._identity.store_host, self._clock.now_ms()
        draft = checkpoint_draft(checkpoint, self._topic, queue_id, now_ms, host)
        result = await self._appends.append(draft, wait=False)
        if not result.status.is_stored:
            name = PutStatus(result.status).name
            self._log.warning("put", f"checkpoints have to wait: {name} {result.why}")
        return result.status.is_stored
