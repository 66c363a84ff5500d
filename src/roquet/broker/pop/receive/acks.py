"""Acknowledgements of popped messages, and other times for their return (200051, 200151, 200053).

An acknowledgement is a record in the revive topic, or merged with its checkpoint in memory. It
succeeds when that record is stored or when it is merged, and only then: a client that hears
anything else may ask again, as a second record does no harm.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple, Protocol

from roquet.broker.api.pop import ChangedInvisible
from roquet.broker.api.refusal import Reason, Refusal
from roquet.broker.pop.set_backs import SAME_MS_MAX
from roquet.broker.services.light_reads import is_judged, is_visible
from roquet.protocol import properties as props
from roquet.protocol.pop.records import PopAck, PopCheckpoint
from roquet.protocol.pop.topics import ORDER_REVIVE_QUEUE, is_for_group, is_of_several
from roquet.store.records import read_records
from roquet.store.results import GetResult, PutResult, PutStatus

if TYPE_CHECKING:
    from collections.abc import Sequence

    from roquet.base.clock import Clock
    from roquet.broker.api.pop import ChangeInvisibleRequest, PopAckRequest, PopBatchAck
    from roquet.broker.pop.buffer.service import PopBuffer
    from roquet.broker.pop.receive.checks import PopChecks
    from roquet.broker.pop.receive.in_flight import PopInFlight
    from roquet.broker.pop.receive.ordered_acks import OrderedAcks
    from roquet.broker.pop.receive.records import ReviveLog
    from roquet.broker.pop.set_backs import SetBacks
    from roquet.protocol.pop.handle import ReceiptHandle
    from roquet.store.tables.deletions import Deletions
    from roquet.store.tables.topics import TopicTable

ACK_FAILED = "put ack msg error"
CHANGE_FAILED = "append checkpoint or ack origin failed"
"""What refusals begin with when a record is not stored."""

BATCHES_MAX = 4096
"""Checkpoints that one batch of acknowledgements may be about."""

KnownBounds = dict[tuple[str, int], tuple[int, int]]
"""(topic, queue id) -> (first offset, offset behind the last)."""


class Settling(NamedTuple):
    """An acknowledgement that has to be stored."""

    ack: PopAck
    revive_queue: int
    revive_ms: int
    """When its checkpoint is due."""


_MERGED = PutResult(PutStatus.PUT_OK)
"""What became of an acknowledgement that met its checkpoint in memory."""


class Bounds(Protocol):
    """What is asked of the message store."""

    def min_offset(self, topic: str, queue_id: int) -> int:
        """Return the first offset that is still there."""
        ...

    def max_offset(self, topic: str, queue_id: int) -> int:
        """Return the offset behind the last message."""
        ...

    def get(self, topic: str, queue_id: int, offset: int, max_messages: int) -> GetResult:
        """Read from a queue. Raises StoreFault."""
        ...


class PopAcks:
    """Settles messages in flight."""

    def __init__(
        self,
        *,
        checks: PopChecks,
        topics: TopicTable,
        store: Bounds,
        revive_log: ReviveLog,
        buffer: PopBuffer,
        in_flight: PopInFlight,
        ordered: OrderedAcks,
        set_backs: SetBacks,
        deletions: Deletions,
        broker_name: str,
        clock: Clock,
    ) -> None:
        self._checks = checks
        self._topics = topics
        self._store = store
        self._revive_log = revive_log
        self._buffer = buffer
        self._in_flight = in_flight
        self._ordered = ordered
        self._set_backs = set_backs
        self._deletions = deletions
        self._broker_name = broker_name
        self._clock = clock

    async def ack(self, request: PopAckRequest, client: str) -> None:
        """Acknowledge a message. `client` is its address. Raises Refusal and StoreFault."""
        settling = self.begin(request, client, {})
        if settling is not None:
            (result,) = await self.store([settling])
            self.check_stored(result)

    def begin(self, request: PopAckRequest, client: str, known: KnownBounds) -> Settling | None:
        """Check an acknowledgement; return what has to be stored of it, None when it is done.

        `known` keeps what was found of queues, for requests between which nothing else runs.
        Raises Refusal and StoreFault.
        """
        topic, queue_id = request.topic, request.queue_id
        self._checks.settled_queue(topic, queue_id, client)
        bounds = known.get((topic, queue_id))
        if bounds is None:
            bounds = known[topic, queue_id] = self._bounds(topic, queue_id)
        lowest, highest = bounds
        if not lowest <= request.offset <= highest:
            text = f"offset is illegal, key:{topic}@{queue_id}, commit:{request.offset}"
            shown = "" if is_of_several(topic) else f", store:{lowest}~{highest}"
            raise Refusal(Reason.NO_MESSAGE, f"{text}{shown}")
        handle = self._checks.handle(request.handle)
        if handle.is_ordered:
            key = topic, request.group, queue_id
            self._ordered.ack(key, request.offset, handle.pop_time_ms, highest)
            return None
        self._check_popped(request.group, handle, request.offset)
        return self._merged((topic, request.group, queue_id), handle, request.offset)

    async def store(self, settlings: Sequence[Settling]) -> list[PutResult]:
        """Store acknowledgements together; each has an outcome of its own."""
        results = await self._revive_log.acks(settlings)
        for settling, result in zip(settlings, results, strict=True):
            if result.status.is_stored:
                ack = settling.ack
                key = str(ack.topic), str(ack.group), ack.queue_id
                self._in_flight.settled(key, (ack.pop_time_ms, ack.start_offset))
        return results

    def check_stored(self, result: PutResult) -> None:
        """Raise Refusal unless an acknowledgement is stored."""
        _require(result, ACK_FAILED)

    def check_count(self, batches: int) -> None:
        """Raise Refusal unless a batch of acknowledgements may be about so many checkpoints."""
        if not batches:
            raise Refusal(Reason.NO_MESSAGE, "the batch names no message")
        if batches > BATCHES_MAX:
            text = f"a batch of {batches} checkpoints: it may have {BATCHES_MAX}"
            raise Refusal(Reason.INVALID_ARGUMENT, text)

    async def ack_batch(self, broker_name: str, batches: Sequence[PopBatchAck]) -> None:
        """Acknowledge messages of several checkpoints, as far as there are such messages.

        Raises Refusal, also when only some are stored, and StoreFault.
        """
        self.check_count(len(batches))
        for batch in batches:
            is_ordered = batch.revive_queue == ORDER_REVIVE_QUEUE
            self._checks.check_place(broker_name, batch.revive_queue, is_ordered=is_ordered)
            if not is_ordered:
                of = batch.start_offset, batch.pop_time_ms, batch.invisible_ms
                self._checks.popped(batch.group, *of)
        jobs = [self._acked_batch(batch) for batch in batches]
        outcomes = await asyncio.gather(*jobs, return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome
            if outcome is not None:
                _require(outcome, ACK_FAILED)

    async def change_invisible(
        self, request: ChangeInvisibleRequest, client: str
    ) -> ChangedInvisible:
        """Have a message come back `invisible_ms` from now. Raises Refusal and StoreFault.

        The new checkpoint is stored first, then the old one is settled. When only the first is
        done that is a failure: the message may come twice, but never gets lost.
        """
        topic, queue_id, offset = request.topic, request.queue_id, request.offset
        self._checks.settled_queue(topic, queue_id, client)
        lowest, highest = self._bounds(topic, queue_id)
        if not lowest <= offset < highest or not self._is_visible(request):
            # Where groups share a name, an account is told of its own messages there alone.
            is_shared = request.may_read is not None and is_of_several(topic)
            text = f"queue {queue_id} of {topic} has no offset {offset}"
            shown = "" if is_shared else f": {lowest} to {highest}"
            raise Refusal(Reason.NO_MESSAGE, f"{text}{shown}")
        handle = self._checks.handle(request.handle)
        self._checks.check_invisible(request.invisible_ms)
        if handle.is_ordered:
            return self._changed_in_order(request, handle)
        self._check_popped(request.group, handle, offset)
        if self._deletions.covers(topic, request.group, handle.pop_time_ms):
            text = f"topic {topic} or group {request.group} was deleted since the pop"
            raise Refusal(Reason.NO_MESSAGE, text)
        now_ms = self._clock.now_ms()
        if handle.start_offset == offset:
            # Were all of it equal to the old one's, the acknowledgement of that would settle both.
            now_ms = max(now_ms, min(handle.pop_time_ms + 1, now_ms + SAME_MS_MAX))
        checkpoint = PopCheckpoint(
            topic=topic,
            group=request.group,
            queue_id=queue_id,
            start_offset=offset,
            pop_time_ms=now_ms,
            invisible_ms=request.invisible_ms,
            broker_name=self._broker_name,
            diffs=(0,),
            count=1,
            suspended=request.is_suspended,
        )
        _require(await self._revive_log.checkpoint(checkpoint, handle.revive_queue), CHANGE_FAILED)
        key = topic, request.group, queue_id
        settling = self._merged(key, handle, offset)
        if settling is not None:
            _require((await self.store([settling]))[0], CHANGE_FAILED)
        self._in_flight.popped(key, (now_ms, offset), checkpoint.revive_ms, 1)
        return ChangedInvisible(
            pop_time_ms=now_ms,
            invisible_ms=request.invisible_ms,
            revive_queue=handle.revive_queue,
            handle=handle._replace(
                start_offset=offset,
                pop_time_ms=now_ms,
                invisible_ms=request.invisible_ms,
                queue_id=queue_id,
                queue_offset=offset,
            ),
        )

    def _is_visible(self, request: ChangeInvisibleRequest) -> bool:
        """Tell whether the account may read the message and its group pop it: a handle names any.

        A checkpoint of it would have it copied for the caller's group.
        """
        topic, allowed = request.topic, request.may_read
        if not is_judged(topic, allowed):
            return True
        found = self._store.get(topic, request.queue_id, request.offset, 1)
        records = read_records(found.records, check_crc=False)
        return found.next_begin_offset == request.offset + 1 and all(
            is_visible(record, topic, allowed)
            and is_for_group(topic, request.group, props.read(record.properties))
            for record in records
        )

    def _check_popped(self, group: str, handle: ReceiptHandle, offset: int) -> None:
        """Check that a pop may have given a handle for the message at an offset."""
        start = handle.start_offset
        self._checks.popped(group, start, handle.pop_time_ms, handle.invisible_ms)
        if offset < start:
            text = f"the receipt handle names a checkpoint at offset {start}, behind {offset}"
            raise Refusal(Reason.INVALID_ARGUMENT, text)

    def _bounds(self, topic: str, queue_id: int) -> tuple[int, int]:
        """Return the first offset of a queue, and the one behind its last."""
        store = self._store
        return store.min_offset(topic, queue_id), store.max_offset(topic, queue_id)

    def _merged(
        self, key: tuple[str, str, int], handle: ReceiptHandle, offset: int
    ) -> Settling | None:
        """Merge an acknowledgement with its checkpoint in memory, or return what to store."""
        topic, group, queue_id = key
        merge = self._buffer.merge
        of = handle.start_offset, handle.pop_time_ms
        if len(merge) and merge.ack(
            (topic, group, queue_id, *of, self._broker_name), (offset,), self._clock.now_ms()
        ):
            self._in_flight.settled(key, (handle.pop_time_ms, handle.start_offset))
            return None
        ack = PopAck(
            topic=topic,
            group=group,
            queue_id=queue_id,
            start_offset=handle.start_offset,
            pop_time_ms=handle.pop_time_ms,
            broker_name=self._broker_name,
            offset=offset,
        )
        revive_ms = handle.pop_time_ms + handle.invisible_ms
        due_ms = self._set_backs.due_ms(handle.pop_time_ms, revive_ms)
        return Settling(ack, handle.revive_queue, due_ms)

    async def _kept(self, ack: PopAck, revive_queue: int, revive_ms: int) -> PutResult:
        """Merge an acknowledgement with its checkpoint in memory, or store it."""
        merge = self._buffer.merge
        if len(merge) and merge.ack(
            ack.merge_key(self._broker_name), ack.offsets, self._clock.now_ms()
        ):
            return _MERGED
        return await self._revive_log.ack(ack, revive_queue, revive_ms)

    async def _acked_batch(self, batch: PopBatchAck) -> PutResult | None:
        topic, queue_id = batch.topic, batch.queue_id
        config = self._topics.get(topic)
        if config is None or not 0 <= queue_id < config.read_queues:
            return None
        lowest, highest = self._bounds(topic, queue_id)
        offsets = tuple(one for one in batch.offsets if lowest <= one <= highest)
        if not offsets:
            return None
        if batch.revive_queue == ORDER_REVIVE_QUEUE:
            for offset in offsets:
                key = topic, batch.group, queue_id
                self._ordered.ack(key, offset, batch.pop_time_ms, highest)
            return None
        ack = PopAck(
            topic=topic,
            group=batch.group,
            queue_id=queue_id,
            start_offset=batch.start_offset,
            pop_time_ms=batch.pop_time_ms,
            broker_name=self._broker_name,
            batch=offsets,
        )
        popped_ms = batch.pop_time_ms
        revive_ms = self._set_backs.due_ms(popped_ms, popped_ms + batch.invisible_ms)
        stored = await self._kept(ack, batch.revive_queue, revive_ms)
        if stored.status.is_stored:
            key = topic, batch.group, queue_id
            of = batch.pop_time_ms, batch.start_offset
            self._in_flight.settled(key, of, len(offsets))
        return stored

    def _changed_in_order(
        self, request: ChangeInvisibleRequest, handle: ReceiptHandle
    ) -> ChangedInvisible:
        key = request.topic, request.group, request.queue_id
        popped_ms, offset = handle.pop_time_ms, request.offset
        wanted_ms = request.invisible_ms
        invisible_ms = self._ordered.change_invisible(key, offset, popped_ms, wanted_ms)
        return ChangedInvisible(
            pop_time_ms=popped_ms,
            invisible_ms=invisible_ms,
            revive_queue=handle.revive_queue,
            handle=handle._replace(invisible_ms=invisible_ms, queue_offset=offset),
        )


def _require(stored: PutResult, failed: str) -> None:
    """Raise a refusal unless a record is stored."""
    if not stored.status.is_stored:
        raise Refusal(Reason.FAILED, f"{failed}: {stored.status.name} {stored.why}".rstrip())
