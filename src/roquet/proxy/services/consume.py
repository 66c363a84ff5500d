"""ReceiveMessage, AckMessage, ChangeInvisibleDuration, ForwardMessageToDeadLetterQueue."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from roquet.broker.api.pop import ChangeInvisibleRequest, PopAckRequest, PopRequest
from roquet.broker.api.refusal import Refusal
from roquet.broker.api.send import SendBackRequest
from roquet.broker.pop.receive.orders import ATTEMPT_LENGTH_MAX
from roquet.broker.pop.receive.polls import Waiting
from roquet.protocol import properties as props
from roquet.protocol.messages.compression import CompressionError
from roquet.protocol.pop.handle import HandleError, ReceiptHandle, real_topic, retry_flag
from roquet.proxy import messages as pb
from roquet.proxy.rules import checks
from roquet.proxy.rules.codes import Code, Rejected, status_of
from roquet.proxy.rules.polling import polling_ms
from roquet.proxy.services.clients import PUSH, wanted_of
from roquet.proxy.services.convert import message_of, millis, set_millis
from roquet.proxy.services.renew import NACK_MS, with_place
from roquet.remoting.connections.connection import KEYS
from roquet.store.records import read_records
from roquet.store.results import StoreFault

if TYPE_CHECKING:
    from collections.abc import Iterator

    from roquet.broker.api.pop import PopResult
    from roquet.broker.operations.local import LocalBroker
    from roquet.model.subscription import SubscriptionData
    from roquet.protocol.command import Command
    from roquet.proxy.rules.context import Context
    from roquet.proxy.rules.limits import ProxyLimits
    from roquet.proxy.services.clients import Session, Sessions
    from roquet.proxy.services.renew import Renewals
    from roquet.proxy.services.routes import Routes
    from roquet.store.records import Record

log = logging.getLogger(__name__)

RESERVE_MS = 100
"""A wait ends so much before the client gives up."""
ACKS_MAX = 4096
"""Entries of one acknowledgement."""
_FAULTS = (Refusal, StoreFault, HandleError)


class Outlet(Protocol):
    """Where the parts of an answer go."""

    async def send(self, answer: Any) -> bool:
        """Send a part when there is room for it; false when nobody waits any more."""
        ...


class _Waiter:
    """The client of one receive, while that waits."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.key = next(KEYS)
        self.is_open = True

    def send_one_way(self, command: Command) -> None:
        """Pass over."""

    async def call(self, command: Command, timeout_s: float) -> Command:
        """Nobody calls it."""
        raise NotImplementedError

    def close(self, why: str) -> None:
        """Nobody closes it."""


class Consuming:
    """Gives messages to consumers, and settles them."""

    def __init__(
        self,
        broker: LocalBroker,
        routes: Routes,
        sessions: Sessions,
        renewals: Renewals,
        rules: ProxyLimits,
    ) -> None:
        self._broker = broker
        self._routes = routes
        self._sessions = sessions
        self._renewals = renewals
        self._rules = rules

    # --- receive ---------------------------------------------------------------------------------

    async def receive(self, context: Context, request: Any, outlet: Outlet) -> None:
        """Send a status, messages, and when they were delivered. Raises Rejected, Refusal."""
        session = self._sessions.find(context)
        wanted, takes, attempts_max = await self._wanted(context, request, session)
        to = _Delivery(context, session, wanted, takes, attempts_max)
        waiter = _Waiter(context.remote)
        # A client that goes ends the wait and nothing else: what was popped is sent or settled.
        while not await asyncio.shield(self._delivered(to, outlet)):
            waiting = await self._broker.waits.wait(wanted, waiter)
            if waiting is Waiting.FULL:
                raise Rejected(Code.TOO_MANY_REQUESTS, "polling full")
            if waiting is not Waiting.HELD:
                raise Rejected(Code.MESSAGE_NOT_FOUND, "no new message")

    async def _delivered(self, to: _Delivery, outlet: Outlet) -> bool:
        """Send what is there; false when there is nothing."""
        # One that has waited is as good as new: how long it may wait is judged here alone.
        wanted = msgspec.structs.replace(to.wanted, born_ms=self._broker.clock.now_ms())
        result = await self._broker.operations.pop(wanted, to.context.caller)
        if not result.messages:
            return False
        if result.rest > 0:
            self._broker.waits.wake(to.wanted)
        await self._deliver(to, result, outlet)
        return True

    async def _wanted(
        self, context: Context, request: Any, session: Session | None
    ) -> tuple[PopRequest, SubscriptionData, int]:
        """Return what is popped, what of it is delivered, and the most deliveries."""
        rules, now_ms = self._rules, self._broker.clock.now_ms()
        asked = request.HasField("long_polling_timeout")
        left_ms = None if context.deadline_ms is None else context.deadline_ms - now_ms
        wait_ms = polling_ms(
            millis(request.long_polling_timeout) if asked else None,
            left_ms,
            0 if session is None else session.request_timeout_ms,
            context.version,
            rules,
        )
        topic = request.message_queue.topic.name
        checks.check_topic(topic)
        checks.check_group(request.group.name)
        invisible_ms = millis(request.invisible_duration)
        if rules.auto_renew and request.auto_renew:
            invisible_ms = rules.invisible_ms
        else:
            checks.check_invisible(invisible_ms, rules.invisible_min_ms, rules)
        takes = wanted_of(topic, request.filter_expression)
        config = self._routes.topic(context, topic)
        named = request.message_queue.broker.name
        if config.read_queues <= 0 or named not in {"", self._broker.identity.name}:
            raise Rejected(Code.FORBIDDEN, "no readable queue")
        group = await self._routes.group(context, request.group.name)
        attempt = (
            request.attempt_id[:ATTEMPT_LENGTH_MAX] if request.HasField("attempt_id") else None
        )
        queue_id = request.message_queue.id
        pop = PopRequest(
            topic=topic,
            group=request.group.name,
            queue_id=queue_id if group is not None and group.consume_message_orderly else -1,
            max_messages=min(max(1, request.batch_size), rules.batch_max),
            invisible_ms=invisible_ms,
            poll_ms=max(0, wait_ms - RESERVE_MS),
            born_ms=now_ms,
            from_first=False,
            expression_type=str(takes.expression_type),
            expression=takes.expression,
            is_ordered=group is not None and group.consume_message_orderly,
            attempt_id=attempt,
        )
        return pop, takes, 1 + (16 if group is None else group.retry_max_times)

    async def _deliver(self, to: _Delivery, result: PopResult, outlet: Outlet) -> None:
        """Send what was popped; what cannot be sent comes back soon."""
        kept: list[tuple[Record, str]] = []
        for record, handle in _in_flight(result, to.wanted, self._broker.identity.name):
            if await self._is_for(to, record, handle):
                kept.append((record, handle))
        if not kept:
            raise Rejected(Code.MESSAGE_NOT_FOUND, "no match message")
        is_open = await outlet.send(_status(pb.ReceiveMessageResponse(), Code.OK, "OK"))
        for record, handle in kept:
            is_open = is_open and await self._send(to, record, handle, outlet)
            if not is_open:
                await self._nack(to, handle)
        stamp = pb.ReceiveMessageResponse()
        set_millis(stamp.delivery_timestamp, self._broker.clock.now_ms())
        await outlet.send(stamp)

    async def _send(self, to: _Delivery, record: Record, handle: str, outlet: Outlet) -> bool:
        wanted = to.wanted
        try:
            message = message_of(record, wanted.topic, handle)
        except CompressionError as error:
            log.warning("%s at %d: %s", wanted.topic, record.physical_offset, error)
            message = message_of(record._replace(sys_flag=0), wanted.topic, handle)
        set_millis(message.system_properties.invisible_duration, wanted.invisible_ms)
        session = to.session
        if session is not None and session.kind == PUSH and self._rules.auto_renew:
            message_id = message.system_properties.message_id
            held = (wanted.topic, wanted.group, message_id, handle, record.reconsume_times)
            self._renewals.add(session, to.context, held)
        return await outlet.send(pb.ReceiveMessageResponse(message=message))

    async def _is_for(self, to: _Delivery, record: Record, handle: str) -> bool:
        """Tell whether a message is delivered; others are settled here."""
        if not to.takes.takes_tag(props.read(record.properties).get(props.TAGS)):
            await self._settle(self._acked(to, handle), to)
            return False
        if record.reconsume_times >= to.attempts_max:
            await self._settle(self._to_dead_letters(to, record, handle), to)
            return False
        return True

    async def _settle(self, settled: Any, to: _Delivery) -> None:
        """Wait for a settlement that the client need not know of; the message else comes again."""
        try:
            await settled
        except _FAULTS as error:
            log.warning("a message of group %s is not settled: %s", to.wanted.group, error)

    async def _acked(self, to: _Delivery, handle: str) -> None:
        request = _ack_of(to.wanted.topic, to.wanted.group, handle)
        await self._broker.operations.ack(request, to.context.caller)

    async def _to_dead_letters(self, to: _Delivery, record: Record, handle: str) -> None:
        await self._send_back(to.context, to.wanted.group, record.physical_offset)
        await self._acked(to, handle)

    async def _nack(self, to: _Delivery, handle: str) -> None:
        request = _change_of(to.wanted.topic, to.wanted.group, handle, NACK_MS)
        changed = self._broker.operations.change_invisible(request, to.context.caller)
        await self._settle(changed, to)

    # --- settle ----------------------------------------------------------------------------------

    async def ack(self, context: Context, request: Any) -> Any:
        """Acknowledge messages; each entry has an outcome of its own."""
        topic, group = request.topic.name, request.group.name
        checks.check_topic(topic)
        checks.check_group(group)
        if not request.entries:
            raise Rejected(Code.INTERNAL_SERVER_ERROR, "ack message result is empty")
        if len(request.entries) > ACKS_MAX:
            raise Rejected(Code.BAD_REQUEST, f"a request may name {ACKS_MAX} messages")
        answer = pb.AckMessageResponse()
        codes: set[Code] = set()
        for entry in request.entries:
            done = answer.entries.add(
                message_id=entry.message_id, receipt_handle=entry.receipt_handle
            )
            code, text = Code.OK, "OK"
            try:
                await self._ack_one(context, topic, group, entry)
            except (Rejected, *_FAULTS) as error:
                code, text = status_of(error)
            done.status.code, done.status.message = code, text
            codes.add(code)
        if len(codes) > 1:
            return _status(answer, Code.MULTIPLE_RESULTS, "MULTIPLE_RESULTS")
        first = answer.entries[0].status
        answer.status.CopyFrom(first)
        return answer

    async def _ack_one(self, context: Context, topic: str, group: str, entry: Any) -> None:
        handle = await self._current(context, group, entry.message_id, entry.receipt_handle)
        self._check_alive(handle)
        request = _ack_of(topic, group, handle)
        await self._broker.operations.ack(request, context.caller)

    async def change(self, context: Context, request: Any) -> Any:
        """Have a message come back at another time; its handle is a new one."""
        topic, group = request.topic.name, request.group.name
        checks.check_topic(topic)
        checks.check_group(group)
        invisible_ms = millis(request.invisible_duration)
        checks.check_invisible(invisible_ms, 0, self._rules)
        handle = await self._current(context, group, request.message_id, request.receipt_handle)
        self._check_alive(handle)
        asked = _change_of(topic, group, handle, invisible_ms, is_suspended=request.suspend)
        changed = await self._broker.operations.change_invisible(asked, context.caller)
        answer = pb.ChangeInvisibleDurationResponse()
        answer.receipt_handle = with_place(changed.handle, handle)
        return answer

    async def forward(self, context: Context, request: Any) -> Any:
        """Put a message among the dead letters of its group."""
        topic, group = request.topic.name, request.group.name
        checks.check_topic(topic)
        checks.check_group(group)
        handle = await self._current(context, group, request.message_id, request.receipt_handle)
        self._check_alive(handle)
        place = handle.split(" ")[8:9]
        if not place or not (place[0].isascii() and place[0].isdigit() and len(place[0]) <= 18):
            raise _bad_handle("the handle does not say where the message is")
        await self._send_back(context, group, int(place[0]))
        acknowledged = _ack_of(topic, group, handle)
        await self._broker.operations.ack(acknowledged, context.caller)
        return pb.ForwardMessageToDeadLetterQueueResponse()

    async def _send_back(self, context: Context, group: str, physical_offset: int) -> None:
        request = SendBackRequest(
            group=group, physical_offset=physical_offset, delay_level=-1, attempts_max=0
        )
        await self._broker.operations.send_back(request, context.caller)

    async def _current(self, context: Context, group: str, message_id: str, handle: str) -> str:
        """Return the handle that counts; from now on nothing renews it."""
        session = self._sessions.find(context)
        return await self._renewals.taken(session, group, message_id, handle)

    def _check_alive(self, text: str) -> None:
        handle = _handle_of(text)
        if handle.broker_name != self._broker.identity.name:
            raise Rejected(Code.BAD_REQUEST, f"broker {handle.broker_name[:255]} is not known here")
        if self._broker.clock.now_ms() > handle.pop_time_ms + handle.invisible_ms:
            raise _bad_handle("receipt handle is expired")


class _Delivery(msgspec.Struct, frozen=True):
    """A receive that has found something."""

    context: Context
    session: Session | None
    wanted: PopRequest
    takes: SubscriptionData
    attempts_max: int


def _in_flight(
    result: PopResult, wanted: PopRequest, broker_name: str
) -> Iterator[tuple[Record, str]]:
    """Yield each message of a pop with its handle."""
    records = iter(read_records(result.records, check_crc=False))
    for taken in result.taken:
        for offset, record in zip(taken.offsets, records, strict=False):
            handle = ReceiptHandle(
                start_offset=taken.start_offset,
                pop_time_ms=result.pop_time_ms,
                invisible_ms=wanted.invisible_ms,
                revive_queue=result.revive_queue,
                retry_flag=retry_flag(taken.topic),
                broker_name=broker_name,
                queue_id=taken.queue_id,
                queue_offset=offset,
            )
            yield record, f"{handle.encode()} {record.physical_offset}"


def _handle_of(text: str) -> ReceiptHandle:
    try:
        return ReceiptHandle.decode(text)
    except HandleError as error:
        raise _bad_handle(str(error)) from error


def _bad_handle(text: str) -> Rejected:
    return Rejected(Code.INVALID_RECEIPT_HANDLE, text)


def _plain(text: str) -> tuple[ReceiptHandle, str]:
    """Return a handle, and its text as the broker reads it."""
    handle = _handle_of(text)
    return handle, handle.encode()


def _ack_of(topic: str, group: str, text: str) -> PopAckRequest:
    handle, plain = _plain(text)
    return PopAckRequest(
        topic=real_topic(topic, group, handle.retry_flag),
        group=group,
        queue_id=handle.queue_id,
        offset=handle.queue_offset,
        handle=plain,
    )


def _change_of(
    topic: str, group: str, text: str, invisible_ms: int, *, is_suspended: bool = False
) -> ChangeInvisibleRequest:
    handle, plain = _plain(text)
    return ChangeInvisibleRequest(
        topic=real_topic(topic, group, handle.retry_flag),
        group=group,
        queue_id=handle.queue_id,
        offset=handle.queue_offset,
        handle=plain,
        invisible_ms=invisible_ms,
        is_suspended=is_suspended,
    )


def _status(answer: Any, code: Code, text: str) -> Any:
    answer.status.code, answer.status.message = code, text
    return answer
