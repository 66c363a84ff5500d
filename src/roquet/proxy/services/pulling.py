"""PullMessage, UpdateOffset, GetOffset, QueryOffset: consumers that keep their own positions.

RocketMQ's proxy serves none of them; `enableGrpcPull` has ours do so. A pull takes nothing away, so
one whose client does not read is made again later, and its messages are in memory no longer.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import msgspec

from roquet.acl import needs
from roquet.broker.api.offsets import (
    CommitRequest,
    CommitResult,
    CommittedRequest,
    OffsetByTimeRequest,
    QueueRequest,
)
from roquet.broker.api.receive import Filter, ReceiveRequest, ReceiveStatus
from roquet.protocol import properties as props
from roquet.protocol.messages.compression import CompressionError
from roquet.proxy import messages as pb
from roquet.proxy.rules import checks
from roquet.proxy.rules.codes import Code, Rejected
from roquet.proxy.rules.context import check_current
from roquet.proxy.rules.polling import polling_ms
from roquet.proxy.services.clients import wanted_of
from roquet.proxy.services.consume import RESERVE_MS, Outlet, batch_of
from roquet.proxy.services.convert import YEARS_S, message_of, millis
from roquet.proxy.services.routes import readable_of

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from roquet.model.subscription import SubscriptionData
    from roquet.proxy.brokers.api import Brokers, Pulled
    from roquet.proxy.rules.context import Context
    from roquet.proxy.rules.limits import ProxyLimits
    from roquet.proxy.services.clients import Sessions
    from roquet.proxy.services.routes import Routes
    from roquet.store.records import Record

log = logging.getLogger(__name__)

BEGINNING, END, TIMESTAMP = 0, 1, 2
ANSWER_MS = 3000
"""A broker may take so long for a pull that does not wait."""


class PullOutlet(Outlet, Protocol):
    """Where the parts of an answer go, which tells how fast they are read."""

    def has_room(self) -> bool:
        """Tell whether the client's connection takes a part at once."""
        ...

    def turn(self) -> AbstractAsyncContextManager[None]:
        """Be the only call of its connection with a turn, from when that takes parts again."""
        ...


class _Queue(NamedTuple):
    """One queue of a topic on a broker."""

    broker: str
    topic: str
    number: int


class _Pull(NamedTuple):
    """A pull that may be made."""

    context: Context
    broker: str
    request: ReceiveRequest
    takes: SubscriptionData
    limit_ms: int
    """It is answered after so long, whatever the broker does."""


class Pulling:
    """Gives messages by their offsets, and keeps the offsets of groups."""

    def __init__(
        self, brokers: Brokers, routes: Routes, sessions: Sessions, rules: ProxyLimits
    ) -> None:
        self._brokers = brokers
        self._queues = brokers.queues
        self._routes = routes
        self._sessions = sessions
        self._rules = rules

    # --- pull ------------------------------------------------------------------------------------

    async def pull(self, context: Context, request: Any, outlet: PullOutlet) -> None:
        """Send a status, messages, and the offset to pull from next. Raises Rejected, Refusal."""
        wanted = await self._wanted(context, request)
        if outlet.has_room():
            found = await self._waited(wanted)
            if outlet.has_room():
                await self._deliver(wanted, found, outlet)
                return
            # The client does not read. As many messages as it has calls would wait for it here.
            del found
        async with outlet.turn():
            at_once = msgspec.structs.replace(wanted.request, wait_ms=None)
            found = await self._pulled(wanted._replace(request=at_once))
            await self._deliver(wanted, found, outlet)

    async def _wanted(self, context: Context, request: Any) -> _Pull:
        """Return what is pulled, for whom and until when. Raises Rejected and Refusal."""
        session = self._sessions.find(context)
        asked = request.HasField("long_polling_timeout")
        now_ms = self._brokers.clock.now_ms()
        left_ms = None if context.deadline_ms is None else context.deadline_ms - now_ms
        polled_ms = polling_ms(
            millis(request.long_polling_timeout) if asked else None,
            left_ms,
            0 if session is None else session.request_timeout_ms,
            context.version,
            self._rules,
        )
        wait_ms = max(0, polled_ms - RESERVE_MS)
        limit_ms = max(wait_ms, ANSWER_MS)
        if left_ms is not None:
            limit_ms = min(limit_ms, max(0, left_ms - RESERVE_MS))
        checks.check_group(request.group.name)
        takes = wanted_of(request.message_queue.topic.name, request.filter_expression)
        queue = await self._queue(context, request.message_queue)
        receive = ReceiveRequest(
            group=request.group.name,
            topic=queue.topic,
            queue_id=queue.number,
            offset=request.offset,
            messages_max=batch_of(request, self._rules),
            filter=Filter(expression=takes.expression, kind=str(takes.expression_type)),
            wait_ms=wait_ms or None,
        )
        return _Pull(context, queue.broker, receive, takes, limit_ms)

    async def _waited(self, wanted: _Pull) -> Pulled | None:
        """Return what is there, or comes before the time is over; None: that is over."""
        try:
            # Brokers look at the time only now and then, RocketMQ's every 5 s.
            async with asyncio.timeout(wanted.limit_ms / 1000):
                return await self._pulled(wanted)
        except TimeoutError:
            return None

    async def _pulled(self, wanted: _Pull) -> Pulled:
        """Return what is there. Raises Refusal, and Rejected where it may not be read any more."""
        request, context = wanted.request, wanted.context
        found = await self._queues.pull(wanted.broker, request, context.caller)
        rights = needs.subscribe(request.topic, request.group)
        check_current(context, self._brokers.guard, rights)
        return found

    async def _deliver(self, wanted: _Pull, found: Pulled | None, outlet: PullOutlet) -> None:
        if found is None:
            text = f"no new message: {wanted.broker} did not answer within {wanted.limit_ms} ms"
            await self._end(outlet, Code.MESSAGE_NOT_FOUND, text, wanted.request.offset)
            return
        if found.status is ReceiveStatus.OFFSET_MOVED:
            text = (
                f"the offset {wanted.request.offset} is not one to pull from:"
                f" the queue has {found.min_offset} to {found.max_offset}"
            )
            await self._end(outlet, Code.ILLEGAL_OFFSET, text, found.next_offset)
            return
        records = [each for each in found.records if _is_for(wanted.takes, each)]
        if not records:
            passed = found.next_offset > wanted.request.offset
            text = "no match message" if passed else "no new message"
            await self._end(outlet, Code.MESSAGE_NOT_FOUND, text, found.next_offset)
            return
        is_open = await outlet.send(_status(Code.OK, "OK"))
        for record in records:
            is_open = is_open and await outlet.send(_part(record, wanted.request.topic))
        await outlet.send(pb.PullMessageResponse(next_offset=found.next_offset))

    async def _end(self, outlet: PullOutlet, code: Code, text: str, next_offset: int) -> None:
        """Send why there are no messages, and where to go on."""
        await outlet.send(_status(code, text))
        await outlet.send(pb.PullMessageResponse(next_offset=next_offset))

    # --- offsets ---------------------------------------------------------------------------------

    async def update_offset(self, context: Context, request: Any) -> Any:
        """Note how far a group has consumed a queue."""
        group, offset = request.group.name, int(request.offset)
        checks.check_group(group)
        queue = await self._queue(context, request.message_queue)
        caller = context.caller
        commit = CommitRequest(topic=queue.topic, queue_id=queue.number, group=group, offset=offset)
        if offset < 0:
            raise Rejected(Code.ILLEGAL_OFFSET, f"the offset {offset} is negative")
        whole = QueueRequest(topic=queue.topic, queue_id=queue.number)
        end = await self._queues.max_offset(queue.broker, whole, caller)
        if offset > end:
            text = f"the offset {offset} is behind the end of the queue, {end}"
            raise Rejected(Code.ILLEGAL_OFFSET, text)
        result = await self._queues.commit(queue.broker, commit, caller)
        answer = pb.UpdateOffsetResponse()
        answer.status.code, answer.status.message = Code.OK, "OK"
        if result is CommitResult.RESET_PENDING:
            answer.status.message = "ignored: the offset was reset, the next pull says where to"
        return answer

    async def get_offset(self, context: Context, request: Any) -> Any:
        """Tell where a group continues in a queue."""
        group = request.group.name
        checks.check_group(group)
        queue = await self._queue(context, request.message_queue)
        asked = CommittedRequest(
            topic=queue.topic, queue_id=queue.number, group=group, may_begin_at_zero=False
        )
        offset = await self._queues.committed(queue.broker, asked, context.caller)
        if offset is None:
            text = f"the group {group} has no offset in queue {queue.number} of {queue.topic}"
            raise Rejected(Code.OFFSET_NOT_FOUND, text)
        return pb.GetOffsetResponse(offset=offset)

    async def query_offset(self, context: Context, request: Any) -> Any:
        """Tell the first offset of a queue, that of its end, or that of a time."""
        policy = request.query_offset_policy
        queue = await self._queue(context, request.message_queue)
        whole = QueueRequest(topic=queue.topic, queue_id=queue.number)
        if policy == BEGINNING:
            found = await self._queues.min_offset(queue.broker, whole, context.caller)
        elif policy == END:
            found = await self._queues.max_offset(queue.broker, whole, context.caller)
        elif policy == TIMESTAMP:
            asked = OffsetByTimeRequest(
                topic=queue.topic, queue_id=queue.number, time_ms=_time_of(request)
            )
            found = await self._queues.by_time(queue.broker, asked, context.caller)
        else:
            raise Rejected(Code.BAD_REQUEST, f"unknown QueryOffsetPolicy: {policy}")
        return pb.QueryOffsetResponse(offset=found)

    async def _queue(self, context: Context, named: Any) -> _Queue:
        """Return the queue that a request names. Raises Rejected and Refusal."""
        name, broker, number = named.topic.name, named.broker.name, named.id
        places = readable_of(await self._routes.topic(context, name))
        if not broker and len(places) > 1:
            raise Rejected(Code.BAD_REQUEST, f"the queue has no broker, and {name} is on several")
        for place in places:
            if broker not in {"", place.broker}:
                continue
            if not 0 <= number < place.read_queues:
                text = f"{place.broker} has no queue {number} of {name}: it has {place.read_queues}"
                raise Rejected(Code.BAD_REQUEST, text)
            return _Queue(place.broker, name, number)
        raise Rejected(Code.BAD_REQUEST, f"no broker {broker[:255]} has queues of {name} to read")


def _is_for(takes: SubscriptionData, record: Record) -> bool:
    """Tell whether a message has a wanted tag: the broker knows hashes of tags alone."""
    return takes.takes_tag(props.read(record.properties).get(props.TAGS))


def _part(record: Record, topic: str) -> Any:
    try:
        message = message_of(record, topic)
    except CompressionError as error:
        log.warning("%s at %d: %s", topic, record.physical_offset, error)
        message = message_of(record._replace(sys_flag=0), topic)
    return pb.PullMessageResponse(message=message)


def _status(code: Code, text: str) -> Any:
    answer = pb.PullMessageResponse()
    answer.status.code, answer.status.message = code, text
    return answer


def _time_of(request: Any) -> int:
    """Return the time of a question in milliseconds. Raises Rejected."""
    if not request.HasField("timestamp"):
        raise Rejected(Code.BAD_REQUEST, "QueryOffsetPolicy TIMESTAMP needs a timestamp")
    if not 0 <= request.timestamp.seconds < YEARS_S:
        raise Rejected(Code.BAD_REQUEST, "the timestamp is not between the years 1970 and 9999")
    return millis(request.timestamp)
