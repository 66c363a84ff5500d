"""ReceiveMessage, AckMessage, ChangeInvisibleDuration, ForwardMessageToDeadLetterQueue."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from roquet.broker.api.pop import LightPopRequest, PopRequest
from roquet.broker.api.refusal import Refusal
from roquet.broker.pop.receive.orders import ATTEMPT_LENGTH_MAX
from roquet.broker.pop.receive.polls import Waiting
from roquet.model.attributes import LIGHT_BIND_TOPIC
from roquet.protocol import properties as props
from roquet.protocol.messages.compression import CompressionError
from roquet.proxy import messages as pb
from roquet.proxy.brokers.api import Packed, light_of
from roquet.proxy.rules import checks
from roquet.proxy.rules.codes import Code, Rejected, status_of
from roquet.proxy.rules.context import check_current
from roquet.proxy.rules.polling import polling_ms
from roquet.proxy.services.clients import LITE_PUSH, PUSHED, wanted_of
from roquet.proxy.services.convert import message_of, millis, set_millis
from roquet.proxy.services.renew import NACK_MS
from roquet.proxy.services.routes import readable_of
from roquet.proxy.services.settle import Flight, bad_handle, broker_of, handle_of
from roquet.remoting.connections.connection import KEYS
from roquet.store.results import StoreFault

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from contextlib import AbstractAsyncContextManager

    from roquet.model.group import SubscriptionGroupConfig
    from roquet.model.subscription import SubscriptionData
    from roquet.protocol.command import Command
    from roquet.proxy.brokers.api import Brokers, Found, Place, Source, Topic
    from roquet.proxy.rules.context import Context
    from roquet.proxy.rules.limits import ProxyLimits
    from roquet.proxy.services.clients import Session, Sessions
    from roquet.proxy.services.renew import Renewals
    from roquet.proxy.services.routes import Routes

log = logging.getLogger(__name__)

RESERVE_MS = 100
"""A wait ends so much before the client gives up."""
ACKS_MAX = 4096
"""Entries of one acknowledgement."""
_FAULTS = (Refusal, StoreFault, Rejected)


class Outlet(Protocol):
    """Where the parts of an answer go."""

    async def send(self, answer: Any) -> bool:
        """Send a part when there is room for it; false when nobody waits any more."""
        ...

    async def send_framed(self, parts: bytes) -> bool:
        """Send parts that are framed already; false when nobody waits any more."""
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
        brokers: Brokers,
        routes: Routes,
        sessions: Sessions,
        renewals: Renewals,
        rules: ProxyLimits,
    ) -> None:
        self._brokers = brokers
        self._settlements = renewals.settlements
        self._routes = routes
        self._sessions = sessions
        self._renewals = renewals
        self._rules = rules
        self._turn = 0
        self._deliveries: set[asyncio.Task[bool]] = set()

    # --- receive ---------------------------------------------------------------------------------

    async def receive(self, context: Context, request: Any, outlet: Outlet) -> None:
        """Send a status, messages, and when they were delivered. Raises Rejected, Refusal."""
        session = self._sessions.find(context)
        to = await self._delivery(context, request, session)
        waiter = _Waiter(context.remote)
        # A client that goes ends the wait and nothing else: what was popped is sent or settled.
        while not await asyncio.shield(self._begun(to, outlet)):
            waiting = await to.source.wait(waiter)
            if waiting is Waiting.FULL:
                raise Rejected(Code.TOO_MANY_REQUESTS, "polling full")
            if waiting is not Waiting.HELD:
                raise Rejected(Code.MESSAGE_NOT_FOUND, "no new message")
            check_current(context, self._brokers.guard)

    def _begun(self, to: _Delivery, outlet: Outlet) -> asyncio.Task[bool]:
        """Take and deliver in a task of its own: it goes on when its client has gone."""
        task = asyncio.get_running_loop().create_task(self._delivered(to, outlet))
        self._deliveries.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[bool]) -> None:
        self._deliveries.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            # Its client is told, if it is still there.
            log.debug("a receive ended: %s", error)

    async def _delivered(self, to: _Delivery, outlet: Outlet) -> bool:
        """Send what is there; false when there is nothing."""
        packed = to.source.pack(to.takes, to.attempts_max)
        if packed is not None:
            await self._deliver_packed(to, packed, outlet)
            return True
        found = await to.source.take(to.context.caller, self._brokers.clock.now_ms())
        if isinstance(found, Packed):
            await self._deliver_packed(to, found, outlet)
        elif found:
            await self._deliver(to, found, outlet)
        return bool(found)

    async def _delivery(self, context: Context, request: Any, session: Session | None) -> _Delivery:
        """Return what is received, and for whom. Raises Rejected and Refusal."""
        rules, now_ms = self._rules, self._brokers.clock.now_ms()
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
        place = self._place(await self._routes.topic(context, topic), request)
        group = await self._routes.group(context, request.group.name)
        if session is None and group is not None and LIGHT_BIND_TOPIC in group.attributes:
            # Messages of the parent would come, whatever lite topics the client subscribes to.
            text = f"The client [{context.client_id}] is disconnected."
            raise Rejected(Code.BAD_REQUEST, text)
        how = _How(now_ms, max(0, wait_ms - RESERVE_MS), invisible_ms)
        if session is not None and session.kind == LITE_PUSH:
            self._check_light(session)
            light = self._light_pop(session, request, how)
            source = light_of(self._brokers).source(place.broker, light)
        else:
            wanted = self._pop(request, how, takes, group)
            source = self._brokers.source(place.broker, wanted)
        attempts_max = 1 + (16 if group is None else group.retry_max_times)
        return _Delivery(context, session, source, takes, attempts_max)

    def _place(self, topic: Topic, request: Any) -> Place:
        """Return where a receive takes from: the broker that it names, else the next in turn."""
        named = request.message_queue.broker.name
        found = [place for place in readable_of(topic) if named in {"", place.broker}]
        if not found:
            raise Rejected(Code.FORBIDDEN, "no readable queue")
        self._turn += 1
        return found[self._turn % len(found)]

    def _check_light(self, session: Session) -> None:
        """Raise Rejected for a consumer of lite topics that may have no further messages now."""
        if not session.is_open:
            text = f"The client [{session.client_id}] is disconnected."
            raise Rejected(Code.BAD_REQUEST, text)
        count = self._renewals.count_of(session)
        if count > self._rules.light_renewed_max:
            text = f"The client [{session.client_id}] has too many unacked messages."
            raise Rejected(Code.FORBIDDEN, f"{text} Unacked count: {count}")

    def _pop(
        self,
        request: Any,
        how: _How,
        takes: SubscriptionData,
        group: SubscriptionGroupConfig | None,
    ) -> PopRequest:
        is_ordered = group is not None and group.consume_message_orderly
        return PopRequest(
            topic=request.message_queue.topic.name,
            group=request.group.name,
            queue_id=request.message_queue.id if is_ordered else -1,
            max_messages=batch_of(request, self._rules),
            invisible_ms=how.invisible_ms,
            poll_ms=how.poll_ms,
            born_ms=how.now_ms,
            from_first=False,
            expression_type=str(takes.expression_type),
            expression=takes.expression,
            is_ordered=is_ordered,
            attempt_id=_attempt_of(request),
        )

    def _light_pop(self, session: Session, request: Any, how: _How) -> LightPopRequest:
        return LightPopRequest(
            client_id=session.client_id,
            group=request.group.name,
            topic=request.message_queue.topic.name,
            max_messages=batch_of(request, self._rules),
            invisible_ms=how.invisible_ms,
            poll_ms=how.poll_ms,
            born_ms=how.now_ms,
            attempt_id=_attempt_of(request),
        )

    async def _deliver(self, to: _Delivery, found: Sequence[Found], outlet: Outlet) -> None:
        """Send what was popped; what cannot be sent comes back soon."""
        kept = [each for each in found if await self._is_for(to, each)]
        if not kept:
            raise Rejected(Code.MESSAGE_NOT_FOUND, "no match message")
        is_open = await outlet.send(_status(pb.ReceiveMessageResponse(), Code.OK, "OK"))
        for each in kept:
            is_open = is_open and await self._send(to, each, outlet)
            if not is_open:
                changed = self._settlements.change(to.flight(each), NACK_MS, to.context.caller)
                await self._settle(changed, to)
        stamp = pb.ReceiveMessageResponse()
        set_millis(stamp.delivery_timestamp, self._brokers.clock.now_ms())
        await outlet.send(stamp)

    async def _deliver_packed(self, to: _Delivery, packed: Packed, outlet: Outlet) -> None:
        """Send an answer that is made; where nobody waits for it, its messages come back soon."""
        wanted, session = to.source.wanted, to.session
        if session is not None and session.kind in PUSHED and self._rules.auto_renew:
            for message_id, handle in packed.messages:
                flight = Flight(wanted.topic, wanted.group, handle)
                self._renewals.add(session, to.context, flight, message_id, 0)
        if await outlet.send_framed(packed.parts):
            return
        for _, handle in packed.messages:
            flight = Flight(wanted.topic, wanted.group, handle)
            await self._settle(self._settlements.change(flight, NACK_MS, to.context.caller), to)

    async def _send(self, to: _Delivery, found: Found, outlet: Outlet) -> bool:
        wanted, record, handle = to.source.wanted, found.record, found.handle
        try:
            message = message_of(record, wanted.topic, handle)
        except CompressionError as error:
            log.warning("%s at %d: %s", wanted.topic, record.physical_offset, error)
            message = message_of(record._replace(sys_flag=0), wanted.topic, handle)
        set_millis(message.system_properties.invisible_duration, wanted.invisible_ms)
        session = to.session
        if session is not None and session.kind in PUSHED and self._rules.auto_renew:
            message_id = message.system_properties.message_id
            attempts = record.reconsume_times
            self._renewals.add(session, to.context, to.flight(found), message_id, attempts)
        return await outlet.send(pb.ReceiveMessageResponse(message=message))

    async def _is_for(self, to: _Delivery, found: Found) -> bool:
        """Tell whether a message is delivered; others are settled here."""
        record, flight, caller = found.record, to.flight(found), to.context.caller
        if not to.takes.takes_tag(props.read(record.properties).get(props.TAGS)):
            await self._settle(self._settlements.ack(flight, caller), to)
            return False
        if record.reconsume_times >= to.attempts_max:
            buried = self._settlements.bury(flight, record.physical_offset, caller)
            await self._settle(buried, to)
            return False
        return True

    async def _settle(self, settled: Any, to: _Delivery) -> None:
        """Wait for a settlement that the client need not know of; the message else comes again."""
        try:
            await settled
        except _FAULTS as error:
            log.warning("a message of group %s is not settled: %s", to.source.wanted.group, error)

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
        faults: dict[int, Exception] = {}
        by_broker: dict[str, list[tuple[int, Any]]] = {}
        for number, entry in enumerate(request.entries):
            by_broker.setdefault(broker_of(entry.receipt_handle), []).append((number, entry))

        async def settle(mine: Sequence[tuple[int, Any]]) -> None:
            for number, entry in mine:
                try:
                    await self._ack_one(context, topic, group, entry)
                except _FAULTS as error:
                    faults[number] = error

        # No broker waits for another.
        await asyncio.gather(*map(settle, by_broker.values()))
        return acknowledged(request.entries, faults)

    async def _ack_one(self, context: Context, topic: str, group: str, entry: Any) -> None:
        async with self._settling(context, group, entry) as handle:
            await self._check_alive(topic, handle)
            flight = Flight(topic, group, handle, entry.lite_topic.strip())
            await self._settlements.ack(flight, context.caller)

    async def change(self, context: Context, request: Any) -> Any:
        """Have a message come back at another time; its handle is a new one."""
        topic, group = request.topic.name, request.group.name
        checks.check_topic(topic)
        checks.check_group(group)
        invisible_ms = millis(request.invisible_duration)
        checks.check_invisible(invisible_ms, 0, self._rules)
        answer = pb.ChangeInvisibleDurationResponse()
        async with self._settling(context, group, request) as handle:
            await self._check_alive(topic, handle)
            flight = Flight(topic, group, handle, request.lite_topic.strip())
            answer.receipt_handle = await self._settlements.change(
                flight, invisible_ms, context.caller, is_suspended=request.suspend
            )
        return answer

    async def forward(self, context: Context, request: Any) -> Any:
        """Put a message among the dead letters of its group."""
        topic, group = request.topic.name, request.group.name
        checks.check_topic(topic)
        checks.check_group(group)
        async with self._settling(context, group, request) as handle:
            await self._check_alive(topic, handle)
            place = handle.split(" ")[8:9]
            if not place or not (place[0].isascii() and place[0].isdigit() and len(place[0]) <= 18):
                raise bad_handle("the handle does not say where the message is")
            flight = Flight(topic, group, handle, request.lite_topic.strip())
            await self._settlements.bury(flight, int(place[0]), context.caller)
        return pb.ForwardMessageToDeadLetterQueueResponse()

    def _settling(
        self, context: Context, group: str, named: Any
    ) -> AbstractAsyncContextManager[str]:
        """Give the handle that counts for a block; from now on nothing renews it."""
        session = self._sessions.find(context)
        return self._renewals.settling(session, group, named.message_id, named.receipt_handle)

    async def _check_alive(self, topic: str, text: str) -> None:
        handle = handle_of(text)
        if not await self._brokers.has(handle.broker_name, topic):
            raise Rejected(Code.BAD_REQUEST, f"broker {handle.broker_name[:255]} is not known here")
        if self._brokers.clock.now_ms() > handle.pop_time_ms + handle.invisible_ms:
            raise bad_handle("receipt handle is expired")


class _How(msgspec.Struct, frozen=True):
    """How long a receive takes. Times are milliseconds."""

    now_ms: int
    poll_ms: int
    invisible_ms: int


class _Delivery(msgspec.Struct, frozen=True):
    """A receive."""

    context: Context
    session: Session | None
    source: Source
    takes: SubscriptionData
    attempts_max: int

    def flight(self, found: Found) -> Flight:
        """Return a message that was taken as one that lies with the consumer."""
        wanted = self.source.wanted
        return Flight(wanted.topic, wanted.group, found.handle, found.light)


def acknowledged(entries: Sequence[Any], faults: Mapping[int, Exception]) -> Any:
    """Return the answer to an acknowledgement, some entries of which went wrong."""
    answer = pb.AckMessageResponse()
    for number, entry in enumerate(entries):
        done = answer.entries.add(message_id=entry.message_id, receipt_handle=entry.receipt_handle)
        fault = faults.get(number)
        told = (Code.OK, "OK") if fault is None else status_of(fault)
        done.status.code, done.status.message = told
    if len({done.status.code for done in answer.entries}) > 1:
        return _status(answer, Code.MULTIPLE_RESULTS, "MULTIPLE_RESULTS")
    answer.status.CopyFrom(answer.entries[0].status)
    return answer


def batch_of(request: Any, rules: ProxyLimits) -> int:
    """Return how many messages a request gets at most: one at least, and no more than allowed."""
    return min(max(1, int(request.batch_size)), rules.batch_max)


def _attempt_of(request: Any) -> str | None:
    return request.attempt_id[:ATTEMPT_LENGTH_MAX] if request.HasField("attempt_id") else None


def _status(answer: Any, code: Code, text: str) -> Any:
    answer.status.code, answer.status.message = code, text
    return answer
