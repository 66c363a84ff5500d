"""SEND_MESSAGE 10, 310 and 320: from a producer's request to an appended record.

The order of the checks is that of 5.5.0 (spec: broker (b) "Send"). Next: broker/appender.py, then
store/store.py. The reply is written when the message is as durable as the broker promises.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, NoReturn, Protocol

from roquet.base.config import setting
from roquet.base.errors import Refused
from roquet.broker.appender import delay_level
from roquet.broker.checks import SendChecks, Target, group_for
from roquet.model.topic import FilterType, TopicConfig
from roquet.protocol import batch as batches
from roquet.protocol import hosts, names, sys_flag
from roquet.protocol import properties as props
from roquet.protocol.codes import RequestCode, ResponseCode
from roquet.protocol.command import Command, reply_to
from roquet.protocol.headers.message import SendMessageRequest, SendMessageResponse
from roquet.protocol.message_id import offset_id
from roquet.remoting.router import Request, Route
from roquet.store.results import BatchDraft, BatchResult, Draft, PutResult, PutStatus

if TYPE_CHECKING:
    from roquet.base.clock import Clock
    from roquet.broker.appender import Appender
    from roquet.broker.state import Identity
    from roquet.broker.traffic import Traffic
    from roquet.protocol.message_id import UniqueIds
    from roquet.store.groups import GroupTable

KNOWS_MAX_RECONSUME = 121
"""Clients from this version (V3_4_9) on say themselves how often a message is tried."""
_SHORT_HEADER = (RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE)


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


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SendRules:
    """Settings of sends."""

    region: str = setting("regionId", "DefaultRegion", "Region label told to producers.")
    trace_on: bool = setting("traceOn", True, "Trace switch told to producers.")
    store_replies: bool = setting(
        "storeReplyMessageEnable",
        True,
        "Whether answers of request-reply are stored besides being passed on.",
    )
    message_size_max: int = setting(
        "maxMessageSize", 4 * 1024 * 1024, "Longest body.", unit="bytes", low=1, high=2**31 - 1
    )


@dataclasses.dataclass(frozen=True, slots=True)
class Retries:
    """What a client's own re-send to `%RETRY%group` is judged by."""

    groups: GroupTable
    locks: Locks
    clock: Clock


@dataclasses.dataclass(frozen=True, slots=True)
class Stamps:
    """What the broker writes into every message that it takes from a producer."""

    identity: Identity
    rules: SendRules
    unique_ids: UniqueIds
    clock: Clock

    @property
    def ext(self) -> dict[str, str]:
        """Return the fields that every answer to a send carries."""
        return {
            props.MSG_REGION: self.rules.region,
            props.TRACE_ON: "true" if self.rules.trace_on else "false",
        }

    def stamp(self, properties: dict[str, str]) -> None:
        """Set and remove the properties that are the broker's business."""
        properties.pop(props.POP_CK, None)
        properties.update(self.ext)
        properties[props.CLUSTER] = self.identity.cluster
        if props.UNIQ_KEY not in properties:
            properties[props.UNIQ_KEY] = self.unique_ids.make(self.clock.now_ms())


class Halves(Protocol):
    """Takes half messages."""

    def divert(self, draft: Draft, producer_group: str) -> None:
        """Send a draft to the half queue. Raises Refused when half messages are not taken."""
        ...

    def opened(self, topic: str) -> None:
        """Note that a half message for a topic has been stored."""
        ...


class Gate(Protocol):
    """Turns sends away before anything is read of them."""

    def check(self) -> None:
        """Raise Refused when the broker takes no sends at the moment."""
        ...


class SendProcessor:
    """Takes messages from producers."""

    def __init__(
        self,
        *,
        gate: Gate,
        checks: SendChecks,
        retries: Retries,
        stamps: Stamps,
        appender: Appender,
        halves: Halves,
        traffic: Traffic,
        queues: Queues,
    ) -> None:
        self._gate = gate
        self._checks = checks
        self._retries = retries
        self._stamps = stamps
        self._appender = appender
        self._halves = halves
        self._traffic = traffic
        self._queues = queues

    def routes(self) -> list[Route]:
        """Return the codes this answers."""
        codes = (
            RequestCode.SEND_MESSAGE,
            RequestCode.SEND_MESSAGE_V2,
            RequestCode.SEND_BATCH_MESSAGE,
        )
        return [Route(codes, self.send, "send")]

    async def send(self, request: Request) -> Command:
        """Store one message or a batch."""
        self._gate.check()
        command = request.command
        header = SendMessageRequest.decode(command.ext, short=command.code in _SHORT_HEADER)
        if not command.body:
            raise Refused(ResponseCode.SYSTEM_ERROR, "the message has no body")
        try:
            if header.batch:
                return await self._send_batch(request, header)
            return await self._send_one(request, header)
        except Refused as refused:
            # Java clients read region and trace switch from every answer to a send.
            return reply_to(command, refused.code, remark=refused.remark, ext=self._stamps.ext)

    async def _send_one(self, request: Request, header: SendMessageRequest) -> Command:
        config = await self._checks.topic_for(target_of(request, header))
        properties = props.read(header.properties)
        draft = Draft(
            topic=header.topic,
            queue_id=self._queue(header, config, properties),
            body=request.command.body,
            properties=properties,
            flag=header.flag,
            sys_flag=_sys_flag(header, config),
            born_timestamp=header.born_timestamp,
            born_host=hosts.host_bytes(request.peer.address),
            store_host=self._stamps.identity.store_host,
            reconsume_times=header.reconsume_times or 0,
        )
        self._check_size(len(draft.body))
        self._check_inner(properties, draft.sys_flag)
        queue_id = draft.queue_id
        if names.is_retry(draft.topic):
            await self._judge_retry(request, header, draft)
        if _is_compacted(config) and not properties.get(props.KEYS):
            raise Refused(ResponseCode.MESSAGE_ILLEGAL, "Required message key is missing")
        self._stamps.stamp(properties)
        topic, unique_key = draft.topic, properties[props.UNIQ_KEY]
        is_half = self._is_half(draft)
        if is_half:
            self._halves.divert(draft, header.producer_group)
            result = await self._appender.append_as_it_is(draft)
        else:
            result = await self._appender.append(draft)
        if not result.status.is_stored:
            self._refuse(result.status, result.why)
        if is_half:
            self._halves.opened(topic)
            topic = draft.topic
        self._note(request, topic, queue_id, result)
        answer = SendMessageResponse(
            msg_id=offset_id(draft.store_host, result.physical_offset),
            queue_id=queue_id,
            queue_offset=result.queue_offset,
            transaction_id=unique_key,
        )
        return self._reply(request.command, result.status, answer)

    async def _send_batch(self, request: Request, header: SendMessageRequest) -> Command:
        config = await self._checks.topic_for(target_of(request, header))
        if len(header.topic) > names.TOPIC_LENGTH_MAX:
            raise Refused(
                ResponseCode.MESSAGE_ILLEGAL, f"message topic length too long {len(header.topic)}"
            )
        if names.is_retry(header.topic):
            raise Refused(
                ResponseCode.MESSAGE_ILLEGAL,
                f"batch request does not support retry group {header.topic}",
            )
        if config.attributes.get("queue.type") == "BatchCQ":
            raise Refused(ResponseCode.MESSAGE_ILLEGAL, "queue.type BatchCQ is not supported here")
        self._check_size(len(request.command.body))
        properties = props.read(header.properties)
        batch = BatchDraft(
            topic=header.topic,
            queue_id=self._queue(header, config, properties),
            elements=_elements(request.command.body),
            sys_flag=_sys_flag(header, config),
            born_timestamp=header.born_timestamp,
            born_host=hosts.host_bytes(request.peer.address),
            store_host=self._stamps.identity.store_host,
            reconsume_times=header.reconsume_times or 0,
            wait=properties.get(props.WAIT, "true").lower() != "false",
        )
        self._check_inner(properties, batch.sys_flag)
        self._check_bits(batch.sys_flag)
        result = await self._appender.append_batch(batch)
        if not result.status.is_stored:
            self._refuse(result.status, result.why)
        self._note(request, batch.topic, batch.queue_id, result)
        answer = SendMessageResponse(
            msg_id=",".join(offset_id(batch.store_host, at) for at in result.physical_offsets),
            queue_id=batch.queue_id,
            queue_offset=result.queue_offset,
            transaction_id=properties.get(props.UNIQ_KEY),
        )
        return self._reply(request.command, result.status, answer)

    def _note(
        self, request: Request, topic: str, queue_id: int, result: PutResult | BatchResult
    ) -> None:
        self._traffic.stored(topic, queue_id, result)
        took_ms = max(0, self._stamps.clock.now_ms() - request.received_ms)
        self._traffic.sent_many(topic, queue_id, 1, took_ms)

    # --- what a message must fulfil ----------------------------------------------------------

    def _queue(
        self, header: SendMessageRequest, config: TopicConfig, properties: dict[str, str]
    ) -> int:
        priority = _priority(properties)
        if priority is not None and config.write_queues > 0:
            return min(priority, config.write_queues - 1)
        properties.pop(props.PRIORITY, None)
        if header.queue_id >= 0:
            return header.queue_id
        if config.write_queues <= 0:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"topic[{config.name}] has no write queue")
        return self._queues.randrange(config.write_queues)

    def _check_size(self, size: int) -> None:
        if size > self._stamps.rules.message_size_max:
            self._refuse(PutStatus.MESSAGE_ILLEGAL, "")

    async def _judge_retry(
        self, request: Request, header: SendMessageRequest, draft: Draft
    ) -> None:
        """Send a message that was tried too often to the dead letters instead."""
        group = draft.topic.removeprefix(names.RETRY_PREFIX)
        config = group_for(self._retries.groups, group)
        tries_max = config.retry_max_times
        if (
            header.max_reconsume_times is not None
            and request.command.version >= KNOWS_MAX_RECONSUME
        ):
            tries_max = header.max_reconsume_times
        now_ms = self._retries.clock.now_ms()
        if draft.reconsume_times <= tries_max and not self._retries.locks.holds_any(group, now_ms):
            return
        draft.topic = names.dlq_topic(group)
        draft.queue_id = 0
        draft.properties.pop(props.DELAY, None)
        await self._checks.ensure_topic(draft.topic, 1)

    def _is_half(self, draft: Draft) -> bool:
        retried_later = draft.reconsume_times > 0 and delay_level(draft.properties) > 0
        is_half = draft.properties.get(props.TRANSACTION_PREPARED, "").lower() == "true"
        if is_half and not retried_later:
            return True
        self._check_bits(draft.sys_flag)
        return False

    def _check_inner(self, properties: dict[str, str], flag: int) -> None:
        """Refuse what readers would take apart as a batch within a record (B7)."""
        if props.INNER_NUM in properties or flag & (sys_flag.INNER_BATCH | sys_flag.NEED_UNWRAP):
            self._refuse(PutStatus.MESSAGE_ILLEGAL, "no queue here holds batches within a record")

    def _check_bits(self, flag: int) -> None:
        """Refuse records that no consumer would ever see, answered with success by Java."""
        if sys_flag.transaction(flag) in (
            sys_flag.TRANSACTION_PREPARED,
            sys_flag.TRANSACTION_ROLLBACK,
        ):
            self._checks.refuse_sending("sending transaction message")

    # --- the answer --------------------------------------------------------------------------

    def _reply(self, command: Command, status: PutStatus, answer: SendMessageResponse) -> Command:
        return reply_to(command, _CODES[status], ext={**answer.encode(), **self._stamps.ext})

    def _refuse(self, status: PutStatus, why: str) -> NoReturn:
        code = _CODES.get(status, ResponseCode.SYSTEM_ERROR)
        remark = _REMARKS.get(status, f"UNKNOWN_ERROR {status.name}")
        if status in (PutStatus.MESSAGE_ILLEGAL, PutStatus.PROPERTIES_SIZE_EXCEEDED):
            remark = remark.format(size=self._stamps.rules.message_size_max)
        raise Refused(code, f"{remark} ({why})" if why else remark)


_CODES = {
    PutStatus.PUT_OK: ResponseCode.SUCCESS,
    PutStatus.FLUSH_DISK_TIMEOUT: ResponseCode.FLUSH_DISK_TIMEOUT,
    PutStatus.FLUSH_SLAVE_TIMEOUT: ResponseCode.FLUSH_SLAVE_TIMEOUT,
    PutStatus.SLAVE_NOT_AVAILABLE: ResponseCode.SLAVE_NOT_AVAILABLE,
    PutStatus.SERVICE_NOT_AVAILABLE: ResponseCode.SERVICE_NOT_AVAILABLE,
    PutStatus.MESSAGE_ILLEGAL: ResponseCode.MESSAGE_ILLEGAL,
    PutStatus.PROPERTIES_SIZE_EXCEEDED: ResponseCode.MESSAGE_ILLEGAL,
    PutStatus.WHEEL_TIMER_MSG_ILLEGAL: ResponseCode.MESSAGE_ILLEGAL,
    PutStatus.OS_PAGE_CACHE_BUSY: ResponseCode.SYSTEM_BUSY,
}
"""Statuses that are not system errors (spec: store §11.2)."""

_ILLEGAL = (
    "the message is illegal, maybe msg body or properties length not matched. "
    "msg body length limit {size}B, msg properties length limit 32KB."
)
_REMARKS = {
    PutStatus.MESSAGE_ILLEGAL: _ILLEGAL,
    PutStatus.PROPERTIES_SIZE_EXCEEDED: _ILLEGAL,
    PutStatus.SERVICE_NOT_AVAILABLE: (
        "service not available now. It may be caused by one of the following reasons: the broker's"
        " disk is full, messages are put to the slave, message store has been shut down, etc."
    ),
    PutStatus.CREATE_MAPPED_FILE_FAILED: "create mapped file failed, server is busy or broken.",
    PutStatus.OS_PAGE_CACHE_BUSY: "[PC_SYNCHRONIZED]broker busy, start flow control for a while",
    PutStatus.WHEEL_TIMER_NOT_ENABLE: "accurate timer message is not enabled on this broker",
    PutStatus.IN_SYNC_REPLICAS_NOT_ENOUGH: "in-sync replicas not enough",
}


_NOT_IN_A_BATCH = (
    props.DELAY,
    props.TIMER_DELAY_SEC,
    props.TIMER_DELAY_MS,
    props.TIMER_DELIVER_MS,
    props.TRANSACTION_PREPARED,
    props.INNER_NUM,
)


def _elements(body: bytes) -> list[batches.Element]:
    """Take a batch apart; nothing of one that cannot be stored whole is stored (B8)."""
    try:
        elements = batches.decode(body)
    except batches.BatchError as error:
        raise Refused(ResponseCode.MESSAGE_ILLEGAL, f"the batch is illegal: {error}") from error
    for _, _, properties in elements:
        found = props.read(properties)
        for name in _NOT_IN_A_BATCH:
            if found.get(name, "0") not in {"0", "false"}:
                raise Refused(
                    ResponseCode.MESSAGE_ILLEGAL, f"no message of a batch may have property {name}"
                )
    if not elements:
        raise Refused(ResponseCode.MESSAGE_ILLEGAL, "the batch is empty")
    return elements


def target_of(request: Request, header: SendMessageRequest) -> Target:
    """Return what a send names."""
    return Target(
        topic=header.topic,
        queue_id=header.queue_id,
        template=header.default_topic,
        template_queues=header.default_topic_queue_nums,
        sys_flag=1 if header.unit_mode else 0,
        producer=request.peer.address,
    )


def _sys_flag(header: SendMessageRequest, config: TopicConfig) -> int:
    if config.filter_type is FilterType.MULTI_TAG:
        return header.sys_flag | sys_flag.MULTI_TAGS
    return header.sys_flag


def _is_compacted(config: TopicConfig) -> bool:
    return config.attributes.get("cleanup.policy") == "COMPACTION"


def _priority(properties: dict[str, str]) -> int | None:
    """Return the priority of a message whose type is PRIORITY (spec: delta-5.5 §4, §5)."""
    text = properties.get(props.PRIORITY, "")
    if not (text.isascii() and text.isdigit() and len(text) <= 9):
        return None
    other_type = {
        props.TRANSACTION_PREPARED,
        props.DELAY,
        props.TIMER_DELAY_SEC,
        props.TIMER_DELAY_MS,
        props.TIMER_DELIVER_MS,
        props.SHARDING_KEY,
    }
    return None if other_type & properties.keys() else int(text)
