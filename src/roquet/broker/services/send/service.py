"""From a producer's message to an appended record: the rules of sends.

The order of the checks is that of 5.5.0 (spec: broker (b) "Send"). Next:
broker/messages/appender.py, then store/store.py. A send ends when the message is as durable as the
broker promises.

A front that has one message calls `send`. One that has read many at once may take the same steps
itself, and append in between: `ready` for each, one append for all, `finished` for each.
"""

from __future__ import annotations

import dataclasses
import re
from typing import TYPE_CHECKING, NoReturn, Protocol

from roquet.base.clock import steady_ms
from roquet.broker.api.refusal import Reason, Refusal
from roquet.broker.api.send import SendResult
from roquet.broker.messages.put_hooks import delay_level, inner_batch_refused
from roquet.broker.services.send.append_refusals import STATUSES, refuse
from roquet.broker.services.send.batches import batch_elements, offset_ids
from roquet.broker.services.topic_checks import SendChecks, check_queue, group_for
from roquet.model.topic import FilterType, TopicConfig
from roquet.protocol import hosts, names, versions
from roquet.protocol import properties as props
from roquet.protocol.light import light_topics
from roquet.protocol.messages import sys_flag
from roquet.protocol.messages.batch import messages_max
from roquet.protocol.messages.message_id import offset_id
from roquet.protocol.messages.recall_handle import RecallHandle
from roquet.store.results import BatchDraft, BatchResult, Draft, PutResult, PutStatus

if TYPE_CHECKING:
    from collections.abc import Iterable

    from roquet.broker.api.caller import Caller
    from roquet.broker.api.send import SendBatchRequest, SendRequest
    from roquet.broker.messages.appender import Appender
    from roquet.broker.messages.broker_properties import BrokerProperties
    from roquet.broker.metrics.traffic import Traffic
    from roquet.store.tables.groups import GroupTable


class Queues(Protocol):
    """Chooses among queues when the producer does not."""

    def randrange(self, stop: int, /) -> int:
        """Return a number in 0..stop-1."""
        ...


class Locks(Protocol):
    """Knows which groups consume in order right now."""

    def holds_any(self, group: str, now_ms: int) -> bool:
        """Tell whether a member of the group has a queue locked."""
        ...


@dataclasses.dataclass(frozen=True, slots=True)
class Retries:
    """What a client's own re-send to `%RETRY%group` is judged by."""

    groups: GroupTable
    locks: Locks


class Halves(Protocol):
    """Takes half messages."""

    def divert(self, draft: Draft, producer_group: str) -> None:
        """Send a draft to the half queue. Raises Refusal when half messages are not taken."""
        ...

    def opened(self, topic: str) -> None:
        """Note that a half message for a topic has been stored."""
        ...


class SendGate(Protocol):
    """Turns sends away before anything is read of them."""

    def check(self) -> None:
        """Raise Refusal when the broker takes no sends at the moment."""
        ...


@dataclasses.dataclass(slots=True)
class Sending:
    """A message that passed the checks, and what its result and the figures need to know."""

    draft: Draft
    queue_id: int
    """The queue that the producer is told, wherever the message waits until then."""
    received_ms: int
    counted_as: str = ""
    """The topic that it counts for."""
    half_of: str | None = None
    """The topic that it is a half message for."""


class Sends:
    """Takes messages from producers."""

    def __init__(
        self,
        *,
        gate: SendGate,
        checks: SendChecks,
        retries: Retries,
        broker_properties: BrokerProperties,
        appender: Appender,
        halves: Halves,
        traffic: Traffic,
        queues: Queues,
    ) -> None:
        self.check_open = gate.check
        """Raises Refusal(BUSY) when no send is taken at the moment.

        For fronts that want to know before they read a request; `send` asks by itself.
        """
        self._checks = checks
        self._retries = retries
        self._broker_properties = broker_properties
        self._appender = appender
        self._halves = halves
        self._traffic = traffic
        self._queues = queues

    async def send(self, request: SendRequest, caller: Caller) -> SendResult:
        """Store one message. Raises Refusal when it is not stored."""
        self.check_open()
        check_body(request.body)
        config = await self._checks.topic_for(request, caller.address)
        sending = self._checked(request, caller, config)
        if names.is_retry(request.topic):
            await self._judge_retry(request, caller, sending.draft)
        self._make_ready(sending, request, config)
        result = await self._appender.put(sending.draft)
        answer = self.finished(sending, result)
        self._count(caller.received_ms, sending.counted_as, sending.queue_id, result)
        return answer

    # --- the steps of a send -----------------------------------------------------------------

    def ready(
        self, request: SendRequest, caller: Caller, known: dict[str, TopicConfig]
    ) -> Sending | None:
        """Do all that comes before the append; None for a message that may have to wait for that.

        `known` are the topics that were found to take messages; it holds as long as nothing else
        runs, and is added to. Raises Refusal. Such a front has asked `check_open` before.
        """
        check_body(request.body)
        topic = request.topic
        if names.is_retry(topic):
            return None
        config = known.get(topic)
        if config is not None:
            check_queue(config, request.queue_id, caller.address)
        else:
            config = self._checks.known_topic(request, caller.address)
            if config is None:
                return None
            known[topic] = config
        sending = self._checked(request, caller, config)
        self._make_ready(sending, request, config)
        return sending

    def _checked(self, request: SendRequest, caller: Caller, config: TopicConfig) -> Sending:
        """Make the draft of a message that the topic may take. Raises Refusal."""
        properties = request.properties
        priority = _priority(properties) if props.PRIORITY in properties else None
        queue_id = request.queue_id
        if priority is not None or queue_id < 0:
            queue_id = self._chosen_queue(config, priority)
        if props.LITE_TOPIC in properties:
            self._name_queue(request.topic, properties)
        body = request.body
        draft = Draft(
            topic=request.topic,
            queue_id=queue_id,
            body=body,
            properties=properties,
            flag=request.flag,
            sys_flag=_sys_flag(request, config),
            born_timestamp=request.born_ms,
            born_host=hosts.host_bytes(caller.address),
            store_host=self._broker_properties.identity.store_host,
            reconsume_times=request.attempts or 0,
        )
        self._check_size(len(body))
        return Sending(draft, queue_id, caller.received_ms)

    def _make_ready(self, sending: Sending, request: SendRequest, config: TopicConfig) -> None:
        """Do the rest of what comes before the append. Raises Refusal."""
        draft = sending.draft
        if config.attributes and _is_compacted(config) and not draft.properties.get(props.KEYS):
            raise Refusal(Reason.ILLEGAL_MESSAGE, "Required message key is missing")
        self._broker_properties.stamp(draft.properties)
        is_half = props.TRANSACTION_PREPARED in draft.properties and _is_half(draft)
        if not is_half:
            self._check_bits(draft.sys_flag)
        else:
            sending.half_of = draft.topic
            self._halves.divert(draft, request.producer_group)
        refused = self._appender.made_ready(draft, as_it_is=is_half, sent=True)
        # Half and delayed messages count where they wait, and again where they go from there.
        sending.counted_as = draft.topic
        if refused is not None:
            self._refuse(refused.status, refused.why)

    def finished(self, sending: Sending, result: PutResult) -> SendResult:
        """Return what became of a message by the outcome of its append. Raises Refusal."""
        status = STATUSES.get(result.status)
        if status is None:
            self._refuse(result.status, result.why)
        if sending.half_of is not None:
            self._halves.opened(sending.half_of)
        draft = sending.draft
        return SendResult(
            status=status,
            message_ids=(offset_id(draft.store_host, result.physical_offset),),
            queue_id=sending.queue_id,
            queue_offset=result.queue_offset,
            transaction_id=draft.properties[props.UNIQ_KEY],
            recall_handle=(
                self._recall_handle(draft) if draft.topic == names.TIMER_TOPIC else None
            ),
        )

    def count(self, stored: Iterable[tuple[Sending, PutResult]]) -> None:
        """Count messages for which `finished` returned a result."""
        now_ms = self._broker_properties.clock.now_ms()
        sums: dict[tuple[str, int, int], list[int]] = {}
        for sending, result in stored:
            where = (sending.counted_as, sending.queue_id, result.size)
            each = sums.setdefault(where, [0, 0])
            each[0] += 1
            each[1] += max(0, now_ms - sending.received_ms)
        for (topic, queue_id, size), (count, took_ms) in sums.items():
            self._traffic.stored_many(topic, queue_id, count, count * size)
            self._traffic.sent_many(topic, queue_id, count, took_ms)

    def _count(
        self, received_ms: int, topic: str, queue_id: int, result: PutResult | BatchResult
    ) -> None:
        self._traffic.stored(topic, queue_id, result)
        took_ms = max(0, self._broker_properties.clock.now_ms() - received_ms)
        self._traffic.sent_many(topic, queue_id, 1, took_ms)

    def _recall_handle(self, draft: Draft) -> str:
        """Return by what a timer message can be recalled; its time is within its step."""
        found = draft.properties
        due_ms = int(found[props.TIMER_OUT_MS]) + 1
        name = self._broker_properties.identity.name
        key = found[props.UNIQ_KEY]
        return RecallHandle(found[props.REAL_TOPIC], name, due_ms, key).encode()

    # --- batches -----------------------------------------------------------------------------

    async def send_batch(self, request: SendBatchRequest, caller: Caller) -> SendResult:
        """Store the messages of a batch, all or none. Raises Refusal when none is stored."""
        batch = await self.batch_draft(request, caller)
        result = await self._appender.append_batch(batch)
        status = STATUSES.get(result.status)
        if status is None:
            self._refuse(result.status, result.why)
        self._count(caller.received_ms, batch.topic, batch.queue_id, result)
        return SendResult(
            status=status,
            message_ids=await offset_ids(batch.store_host, result.physical_offsets),
            queue_id=batch.queue_id,
            queue_offset=result.queue_offset,
            transaction_id=request.properties.get(props.UNIQ_KEY),
        )

    async def batch_draft(self, request: SendBatchRequest, caller: Caller) -> BatchDraft:
        """Return a batch that may be appended. Raises Refusal when nothing of it is to be."""
        self.check_open()
        check_body(request.messages)
        config = await self._checks.topic_for(request, caller.address)
        if len(request.topic) > names.TOPIC_LENGTH_MAX:
            length = len(request.topic)
            raise Refusal(Reason.ILLEGAL_MESSAGE, f"message topic length too long {length}")
        if names.is_retry(request.topic):
            raise Refusal(
                Reason.ILLEGAL_MESSAGE,
                f"batch request does not support retry group {request.topic}",
            )
        if config.attributes.get("queue.type") == "BatchCQ":
            raise Refusal(Reason.ILLEGAL_MESSAGE, "queue.type BatchCQ is not supported here")
        self._check_size(len(request.messages))
        properties = request.properties
        store_host = self._broker_properties.identity.store_host
        batch = BatchDraft(
            topic=request.topic,
            queue_id=request.queue_id if request.queue_id >= 0 else self._chosen_queue(config),
            elements=await batch_elements(request.messages, messages_max(len(store_host))),
            sys_flag=_sys_flag(request, config),
            born_timestamp=request.born_ms,
            born_host=hosts.host_bytes(caller.address),
            store_host=store_host,
            reconsume_times=request.attempts or 0,
            wait=properties.get(props.WAIT, "true").lower() != "false",
        )
        refused = inner_batch_refused(properties, batch.sys_flag)
        if refused is not None:
            self._refuse(refused.status, refused.why)
        self._check_bits(batch.sys_flag)
        return batch

    # --- what a message must fulfil ----------------------------------------------------------

    def _chosen_queue(self, config: TopicConfig, priority: int | None = None) -> int:
        """Return the broker's choice, for a message that has a priority or names no queue."""
        if config.write_queues <= 0:
            raise Refusal(Reason.FAILED, f"topic[{config.name}] has no write queue")
        if priority is not None:
            return min(priority, config.write_queues - 1)
        return self._queues.randrange(config.write_queues)

    def _check_size(self, size: int) -> None:
        if size > self._broker_properties.rules.message_size_max:
            self._refuse(PutStatus.MESSAGE_ILLEGAL, "")

    async def _judge_retry(self, request: SendRequest, caller: Caller, draft: Draft) -> None:
        """Send a message that was tried too often to the dead letters instead."""
        group = draft.topic.removeprefix(names.RETRY_PREFIX)
        tries_max = group_for(self._retries.groups, group).retry_max_times
        if request.attempts_max is not None and caller.version >= versions.V3_4_9:
            tries_max = request.attempts_max
        in_order = self._retries.locks.holds_any(group, steady_ms())
        if draft.reconsume_times <= tries_max and not in_order:
            return
        draft.topic = names.dlq_topic(group)
        draft.queue_id = 0
        draft.properties.pop(props.DELAY, None)
        await self._checks.ensure_topic(draft.topic, 1)

    def _name_queue(self, topic: str, properties: dict[str, str]) -> None:
        """Have a message of a light topic name its queue."""
        try:
            light_topics.name_queue(topic, properties)
        except ValueError as error:
            self._refuse(PutStatus.MESSAGE_ILLEGAL, str(error))

    def _check_bits(self, flag: int) -> None:
        """Refuse records that no consumer would ever see, answered with success by Java."""
        if flag & sys_flag.TRANSACTION_MASK in (
            sys_flag.TRANSACTION_PREPARED,
            sys_flag.TRANSACTION_ROLLBACK,
        ):
            self._checks.refuse_sending("sending transaction message")

    def _refuse(self, status: PutStatus, why: str) -> NoReturn:
        refuse(status, why, self._broker_properties.rules.message_size_max)


def check_body(body: bytes) -> None:
    """Raise Refusal for a message without a body."""
    if not body:
        raise Refusal(Reason.FAILED, "the message has no body")


def _is_half(draft: Draft) -> bool:
    retried_later = draft.reconsume_times > 0 and delay_level(draft.properties) > 0
    is_half = draft.properties.get(props.TRANSACTION_PREPARED, "").lower() == "true"
    return is_half and not retried_later


def _sys_flag(request: SendRequest | SendBatchRequest, config: TopicConfig) -> int:
    if config.filter_type is FilterType.MULTI_TAG:
        return request.sys_flag | sys_flag.MULTI_TAGS
    return request.sys_flag


def _is_compacted(config: TopicConfig) -> bool:
    return config.attributes.get("cleanup.policy") == "COMPACTION"


_OF_OTHER_TYPES = frozenset(
    {
        props.DELAY,
        props.TIMER_DELAY_SEC,
        props.TIMER_DELAY_MS,
        props.TIMER_DELIVER_MS,
        props.SHARDING_KEY,
    }
)
"""A message has one type: with these it is no PRIORITY message."""
_NUMBER = re.compile(r"[+-]?[0-9]{1,10}", re.ASCII)


def _priority(properties: dict[str, str]) -> int | None:
    """Return a message's priority; None when it has none, or is of another type.

    Of another type's message the property is removed; what is no priority at all stays as it is.
    The topic's type does not count here (Java: SendMessageProcessor, 5.5.0).
    """
    text = properties.get(props.PRIORITY)
    if text is None or _NUMBER.fullmatch(text) is None or not 0 <= int(text) < 1 << 31:
        return None
    is_half = properties.get(props.TRANSACTION_PREPARED, "").lower() == "true"
    if is_half or _OF_OTHER_TYPES & properties.keys():
        del properties[props.PRIORITY]
        return None
    return int(text)
