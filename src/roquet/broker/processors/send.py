"""SEND_MESSAGE 10, 310 and 320: from a producer's request to an appended record.

The order of the checks is that of 5.5.0 (spec: broker (b) "Send"). Next: broker/appender.py, then
store/store.py. The reply is written when the message is as durable as the broker promises.
"""

from __future__ import annotations

import asyncio
import dataclasses
from typing import TYPE_CHECKING, NoReturn, Protocol

from roquet.base.clock import steady_ms
from roquet.base.errors import Refused
from roquet.broker.appender import delay_level
from roquet.broker.checks import SendChecks, Target, check_queue, group_for
from roquet.broker.processors.send_batch import batch_elements
from roquet.broker.processors.send_codes import CODES, refuse
from roquet.broker.processors.send_group import Group, Outcome, Sending
from roquet.model.topic import FilterType, TopicConfig
from roquet.protocol import hosts, names, sys_flag
from roquet.protocol import properties as props
from roquet.protocol.codes import RequestCode, ResponseCode
from roquet.protocol.command import Command, reply_to
from roquet.protocol.headers.message import SendMessageRequest, SendMessageResponse
from roquet.protocol.message_id import offset_id
from roquet.protocol.recall_handle import RecallHandle
from roquet.remoting.headers import reader
from roquet.remoting.router import Fail, Request, Route
from roquet.store.results import BatchDraft, BatchResult, Draft, PutResult, PutStatus

if TYPE_CHECKING:
    from collections.abc import Awaitable, Coroutine, Iterator, Sequence

    from roquet.broker.appender import Appender
    from roquet.broker.stamps import Stamps
    from roquet.broker.traffic import Traffic
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


@dataclasses.dataclass(frozen=True, slots=True)
class Retries:
    """What a client's own re-send to `%RETRY%group` is judged by."""

    groups: GroupTable
    locks: Locks


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
        together = None if self._appender.log is None else self.send_together
        return [Route(codes, self.send, "send", together=together)]

    async def send(self, request: Request) -> Command:
        """Store one message or a batch."""
        self._gate.check()
        header = _header(request)
        try:
            if header.batch:
                return await self._send_batch(request, header)
            return await self._send_one(request, header)
        except Refused as refused:
            return self._refusal(request, refused)

    def _refusal(self, request: Request, refused: Refused) -> Command:
        # Java clients read region and trace switch from every answer to a send.
        ext = self._stamps.ext
        return reply_to(request.command, refused.code, remark=refused.remark, ext=ext)

    async def _send_one(self, request: Request, header: SendMessageRequest) -> Command:
        config = await self._checks.topic_for(target_of(request, header))
        sending = self._checked(request, header, config)
        if names.is_retry(header.topic):
            await self._judge_retry(request, header, sending.draft)
        self._make_ready(sending, header, config)
        result = await self._appender.put(sending.draft)
        answer = self._answer(sending, result)
        self._note(request, sending.counted_as, sending.queue_id, result)
        return answer

    def _checked(
        self, request: Request, header: SendMessageRequest, config: TopicConfig
    ) -> Sending:
        """Make the draft of a message that the topic may take. Raises Refused."""
        properties = props.read(header.properties)
        queue_id = self._queue(header, config, properties)
        body = request.command.body
        draft = Draft(
            topic=header.topic,
            queue_id=queue_id,
            body=body,
            properties=properties,
            flag=header.flag,
            sys_flag=_sys_flag(header, config),
            born_timestamp=header.born_timestamp,
            born_host=hosts.host_bytes(request.peer.address),
            store_host=self._stamps.identity.store_host,
            reconsume_times=header.reconsume_times or 0,
        )
        self._check_size(len(body))
        self._check_inner(properties, draft.sys_flag)
        return Sending(request, draft, queue_id)

    def _make_ready(
        self, sending: Sending, header: SendMessageRequest, config: TopicConfig
    ) -> None:
        """Do the rest of what comes before the append. Raises Refused."""
        draft = sending.draft
        if _is_compacted(config) and not draft.properties.get(props.KEYS):
            raise Refused(ResponseCode.MESSAGE_ILLEGAL, "Required message key is missing")
        self._stamps.stamp(draft.properties)
        is_half = self._is_half(draft)
        if is_half:
            sending.half_of = draft.topic
            self._halves.divert(draft, header.producer_group)
        refused = self._appender.made_ready(draft, as_it_is=is_half)
        # Half and delayed messages count where they wait, and again where they go from there.
        sending.counted_as = draft.topic
        if refused is not None:
            self._refuse(refused.status, refused.why)

    def _answer(self, sending: Sending, result: PutResult) -> Command:
        """Return the answer to a message that was appended; one not stored is Refused."""
        status = result.status
        if status is not PutStatus.PUT_OK and not status.is_stored:
            self._refuse(status, result.why)
        if sending.half_of is not None:
            self._halves.opened(sending.half_of)
        draft = sending.draft
        fields = SendMessageResponse.written(
            msg_id=offset_id(draft.store_host, result.physical_offset),
            queue_id=sending.queue_id,
            queue_offset=result.queue_offset,
            transaction_id=draft.properties[props.UNIQ_KEY],
            recall_handle=self._recall_handle(draft),
        )
        return self._reply(sending.request.command, status, fields)

    def _recall_handle(self, draft: Draft) -> str | None:
        """Return by what a timer message can be recalled; its time is within its step."""
        if draft.topic != names.TIMER_TOPIC:
            return None
        found = draft.properties
        due_ms = int(found[props.TIMER_OUT_MS]) + 1
        name = self._stamps.identity.name
        key = found[props.UNIQ_KEY]
        return RecallHandle(found[props.REAL_TOPIC], name, due_ms, key).encode()

    # --- many at a time ----------------------------------------------------------------------

    def send_together(self, requests: Iterator[Request], fail: Fail) -> Awaitable[None] | None:
        """Do what `send` does for messages that came together: one append, an answer for each.

        A message that may have to wait before it is appended goes through `send`, alone.
        """
        assert self._appender.log is not None, "there is no log to append to"
        try:
            self._gate.check()
        except Refused as closed:
            for request in requests:
                fail(request, closed)
            return None
        group = Group(self._appender, self._appender.log, self._answer_all, fail)
        # Nothing else runs meanwhile: what was found of a topic holds for all of these messages.
        known: dict[str, TopicConfig] = {}
        for request in requests:
            try:
                header = _header(request)
            except Exception as error:  # noqa: BLE001  (the router sees it)
                fail(request, error)
                continue
            try:
                sending = self._taken(request, header, known)
            except Refused as refused:
                request.reply(self._refusal(request, refused))
                continue
            except Exception as error:  # noqa: BLE001  (the router sees it)
                fail(request, error)
                continue
            if sending is None:
                return self._alone(request, fail, group.ended())
            group.add(sending)
        return group.ended()

    def _taken(
        self, request: Request, header: SendMessageRequest, known: dict[str, TopicConfig]
    ) -> Sending | None:
        """Make a message ready; None for one that may have to wait for that. Raises Refused.

        `known` are the topics that were found to take messages.
        """
        topic = header.topic
        if header.batch or names.is_retry(topic):
            return None
        config = known.get(topic)
        if config is not None:
            check_queue(config, header.queue_id, request.peer.address)
        else:
            config = self._checks.known_topic(target_of(request, header))
            if config is None:
                return None
            known[topic] = config
        sending = self._checked(request, header, config)
        self._make_ready(sending, header, config)
        return sending

    async def _alone(
        self, request: Request, fail: Fail, others: Coroutine[None, None, None] | None
    ) -> None:
        """Send one alone, while the others wait to be durable."""
        async with asyncio.TaskGroup() as tasks:
            if others is not None:
                tasks.create_task(others)
            try:
                request.reply(await self.send(request))
            except Exception as error:  # noqa: BLE001  (the router sees it)
                fail(request, error)

    def _answer_all(self, outcomes: Sequence[Outcome], fail: Fail) -> None:
        """Count what was stored, then answer."""
        now_ms = self._stamps.clock.now_ms()
        answers: list[tuple[Request, Command]] = []
        stored: dict[tuple[str, int, int], list[int]] = {}
        for sending, result in outcomes:
            request = sending.request
            try:
                answers.append((request, self._answer(sending, result)))
            except Refused as refused:
                answers.append((request, self._refusal(request, refused)))
                continue
            except Exception as error:  # noqa: BLE001  (the router sees it)
                fail(request, error)
                continue
            sums = stored.setdefault((sending.counted_as, sending.queue_id, result.size), [0, 0])
            sums[0] += 1
            sums[1] += max(0, now_ms - request.received_ms)
        for (topic, queue_id, size), (count, took_ms) in stored.items():
            self._traffic.stored_many(topic, queue_id, count, count * size)
            self._traffic.sent_many(topic, queue_id, count, took_ms)
        for request, answer in answers:
            request.reply(answer)

    # --- batches -----------------------------------------------------------------------------

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
            elements=batch_elements(request.command.body),
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
        fields = SendMessageResponse.written(
            msg_id=",".join(offset_id(batch.store_host, at) for at in result.physical_offsets),
            queue_id=batch.queue_id,
            queue_offset=result.queue_offset,
            transaction_id=properties.get(props.UNIQ_KEY),
        )
        return self._reply(request.command, result.status, fields)

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
        if props.PRIORITY in properties:
            priority = _priority(properties)
            if priority is not None and config.write_queues > 0:
                return min(priority, config.write_queues - 1)
            del properties[props.PRIORITY]
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
        in_order = self._retries.locks.holds_any(group, steady_ms())
        if draft.reconsume_times <= tries_max and not in_order:
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

    def _reply(self, command: Command, status: PutStatus, fields: dict[str, str]) -> Command:
        return reply_to(command, CODES[status], ext={**fields, **self._stamps.ext})

    def _refuse(self, status: PutStatus, why: str) -> NoReturn:
        refuse(status, why, self._stamps.rules.message_size_max)


_READ = reader(SendMessageRequest)
_READ_SHORT = reader(SendMessageRequest, short=True)


def _header(request: Request) -> SendMessageRequest:
    """Read what a send asks for. Raises HeaderError, and Refused for one without a body."""
    command = request.command
    header = (_READ_SHORT if command.code in _SHORT_HEADER else _READ)(command)
    if not command.body:
        raise Refused(ResponseCode.SYSTEM_ERROR, "the message has no body")
    return header


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
