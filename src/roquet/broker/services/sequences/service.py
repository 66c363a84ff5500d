"""Messages that are stored once, however often they are sent. The rule is in `rules.py`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from roquet.broker.api.refusal import Reason, Refusal
from roquet.broker.api.send import SequencedResult, SequenceState
from roquet.broker.services.send.append_refusals import STATUSES, refuse
from roquet.broker.services.send.batches import offset_ids
from roquet.broker.services.sequences.rules import Claim
from roquet.protocol import properties as props
from roquet.protocol.messages.sequences import (
    MESSAGES_MAX,
    NUMBER_MAX,
    START,
    chaining,
    is_producer,
    owner_of,
)
from roquet.service.slices import in_turns
from roquet.store.results import BatchResult, PutResult, PutStatus

if TYPE_CHECKING:
    from roquet.broker.api.caller import Caller
    from roquet.broker.api.send import SendBatchRequest, SequencedRequest, SequenceRequest
    from roquet.broker.messages.appender import Appender
    from roquet.broker.messages.broker_properties import SendConfig
    from roquet.broker.metrics.traffic import Traffic
    from roquet.broker.services.access import Access
    from roquet.broker.services.sequences.queues import Queue, SequencedQueues
    from roquet.broker.services.sequences.rules import Entry
    from roquet.broker.state import BrokerState
    from roquet.store.results import BatchDraft
    from roquet.store.tables.topics import TopicTable

_NEVER_STORED = (PutStatus.MESSAGE_ILLEGAL, PutStatus.PROPERTIES_SIZE_EXCEEDED)
"""Outcomes of an append that was not tried: they leave no doubt, however often they are had."""
_NAME = props.SEQUENCE.encode() + props.NAME_END.encode()


class Batches(Protocol):
    """The checks of batches."""

    def check_open(self) -> None:
        """Raise Refusal when no send is taken at the moment."""
        ...

    async def batch_draft(self, request: SendBatchRequest, caller: Caller) -> BatchDraft:
        """Return a batch that may be appended. Raises Refusal."""
        ...


class Flushes(Protocol):
    """Knows what is on the disk."""

    async def settled(self, result: PutResult, wait: bool) -> PutResult:
        """Wait for the durability of an appended message."""
        ...


class SequencedSends:
    """Appends in sequence."""

    def __init__(
        self,
        queues: SequencedQueues,
        batches: Batches,
        appender: Appender,
        topics: TopicTable,
        *,
        flushes: Flushes,
        access: Access,
        state: BrokerState,
        rules: SendConfig,
        traffic: Traffic,
    ) -> None:
        self._queues = queues
        self._batches = batches
        self._appender = appender
        self._topics = topics
        self._flushes = flushes
        self._access = access
        self._state = state
        self._rules = rules
        self._traffic = traffic

    def follow(self, rules: SendConfig) -> None:
        """Go by other settings from now on."""
        self._rules = rules

    def forget_all(self) -> None:
        """Drop what is known of all queues: another broker appends to them from now on."""
        self._queues.forget_all()

    async def send(self, request: SequencedRequest, caller: Caller) -> SequencedResult:
        """Store the messages that are not stored yet, all or none; wait until all are safe.

        Raises Refusal: ILLEGAL_OPERATION when they contradict what is stored, ACCOUNT_REFUSED when
        another account has the producer.
        """
        self._check(request.topic, request.queue_id, request.producer)
        _check_numbers(request)
        self._batches.check_open()
        batch = await self._batches.batch_draft(request, caller)
        if len(batch.elements) > MESSAGES_MAX:
            raise Refusal(
                Reason.ILLEGAL_MESSAGE,
                f"{len(batch.elements)} messages in sequence: {MESSAGES_MAX} are the limit",
            )
        for _, _, properties in batch.elements:
            if properties.startswith(_NAME) or b"\x02" + _NAME in properties:
                raise Refusal(
                    Reason.ILLEGAL_MESSAGE, f"property {props.SEQUENCE} is the broker's own"
                )
        links = await in_turns(chaining(request.chain, batch.elements))
        # Durability is not waited for while the queue is held, so that appends go together.
        batch.wait = False
        async with self._queues.held(request.topic, request.queue_id) as queue:
            self._check_leads(queue)
            entry = queue.producers.get(request.producer, caller.received_ms)
            owner = self._owner(request.producer, entry, caller)
            place = request.epoch, request.first, request.chain
            claim = Claim(request.producer, *place, links, owner)
            stored = queue.producers.judge(claim, caller.received_ms)
            result = None
            if stored < len(links):
                result = await self._append(queue, batch, claim, stored)
            entry = queue.producers.get(request.producer, caller.received_ms)
        assert entry is not None, "the producer has just appended"
        status, why = await self._durable(entry.end)
        known = STATUSES.get(status)
        if known is None:
            refuse(status, why, self._rules.message_size_max)
        offsets = [] if result is None else result.physical_offsets
        return SequencedResult(
            status=known,
            message_ids=await offset_ids(batch.store_host, offsets),
            queue_id=batch.queue_id,
            queue_offset=-1 if result is None else result.queue_offset,
            next=entry.next,
            chain=entry.chain,
            appended=len(offsets),
        )

    async def get(self, request: SequenceRequest, caller: Caller) -> SequenceState:
        """Return how far a producer has come in a queue. Raises Refusal."""
        self._check(request.topic, request.queue_id, request.producer)
        async with self._queues.held(request.topic, request.queue_id) as queue:
            self._check_leads(queue)
            since_ms = self._queues.since_ms()
            entry = queue.producers.get(request.producer, caller.received_ms)
            self._owner(request.producer, entry, caller)
        if entry is None:
            return SequenceState(epoch=-1, next=0, chain=START, since_ms=since_ms)
        return SequenceState(
            epoch=entry.epoch, next=entry.next, chain=entry.chain, since_ms=since_ms
        )

    # --- inside ------------------------------------------------------------------------------

    def _owner(self, producer: str, entry: Entry | None, caller: Caller) -> str:
        """Return whose producer it is. Raises Refusal when that is another account.

        An administrator may go on with it in its owner's name, for accounts that are gone.
        """
        mine = owner_of(caller.access_key)
        if entry is None:
            return mine
        if entry.is_of_another(mine):
            self._access.require_admin(caller, f"producer {producer}, which another account has")
        return entry.owner or mine

    async def _durable(self, end: int) -> tuple[PutStatus, str]:
        """Wait until the log up to `end` is as safe as the broker promises for a message."""
        result = await self._flushes.settled(PutResult(PutStatus.PUT_OK, end), True)
        if result.status is not PutStatus.PUT_OK:
            return result.status, result.why
        return await self._appender.copied(end)

    def _check_leads(self, queue: Queue) -> None:
        """Refuse what had to wait until the broker became a slave; its copy is of no use later."""
        if self._state.is_slave:
            queue.doubt()
            raise _not_master()

    def _check(self, topic: str, queue_id: int, producer: str) -> None:
        if self._state.is_slave:
            raise _not_master()
        if not is_producer(producer):
            raise Refusal(Reason.INVALID_ARGUMENT, "producer: 1 to 32 letters, digits, _ and -")
        config = self._topics.get(topic)
        if config is None:
            raise Refusal(Reason.UNKNOWN_TOPIC, f"topic[{topic}] not exist, apply first please!")
        if not 0 <= queue_id < config.write_queues:
            raise Refusal(
                Reason.INVALID_ARGUMENT,
                f"queueId {queue_id}: topic {topic} has {config.write_queues} queues",
            )

    async def _append(
        self, queue: Queue, batch: BatchDraft, claim: Claim, stored: int
    ) -> BatchResult:
        """Append what is new, and note it. Raises Refusal when nothing was stored."""
        batch.elements = [
            (flag, body, _stamped(properties, claim.stamp(index).text(batch.topic, batch.queue_id)))
            for index, (flag, body, properties) in enumerate(batch.elements)
            if index >= stored
        ]
        producers = queue.producers
        # Until the outcome is known, and noted, the log alone knows.
        queue.doubt()
        result = await self._appender.append_batch(batch)
        if result.status is not PutStatus.PUT_OK:
            if result.status in _NEVER_STORED:
                queue.known = producers
            refuse(result.status, result.why, self._rules.message_size_max)
        producers.note(
            claim.stamp(len(claim.links) - 1),
            end=result.physical_offsets[0] + result.size,
            queue_offset=result.queue_offset + len(result.physical_offsets) - 1,
            stored_ms=result.store_time,
        )
        queue.known = producers
        self._traffic.stored(batch.topic, batch.queue_id, result)
        self._traffic.sent_many(batch.topic, batch.queue_id, 1, 0)
        return result


def _not_master() -> Refusal:
    return Refusal(Reason.NOT_MASTER, "this broker is a slave: ask its master")


def _check_numbers(request: SequencedRequest) -> None:
    if not 0 <= request.epoch <= NUMBER_MAX or not 0 <= request.first <= NUMBER_MAX - MESSAGES_MAX:
        raise Refusal(Reason.INVALID_ARGUMENT, "epoch and first are numbers from 0 on")
    if len(request.chain) != len(START):
        raise Refusal(Reason.INVALID_ARGUMENT, f"chain has {2 * len(START)} hexadecimal digits")


def _stamped(properties: bytes, stamp: str) -> bytes:
    end = b"" if not properties or properties.endswith(b"\x02") else b"\x02"
    return properties + end + _NAME + stamp.encode() + b"\x02"
