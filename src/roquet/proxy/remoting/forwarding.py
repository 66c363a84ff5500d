"""Requests that go to the broker which they name, as they came, and the broker's answers back."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from roquet.base.errors import OutcomeUnknown, Refused, RoquetError, Unreachable
from roquet.protocol import names
from roquet.protocol import properties as props
from roquet.protocol.bodies.locks import LockRequest
from roquet.protocol.codes import RequestCode, ResponseCode, request_name
from roquet.protocol.command import Command, reply_to
from roquet.protocol.fastjson import JsonError
from roquet.protocol.versions import V5_3_1
from roquet.proxy.remoting import limits
from roquet.proxy.remoting.brokers import UNREAD, can_be_topic
from roquet.proxy.remoting.sessions import copy_of
from roquet.proxy.rules.checks import check_type
from roquet.proxy.rules.codes import Rejected
from roquet.remoting.router import Route
from roquet.service.ratelog import RateLog

if TYPE_CHECKING:
    from collections.abc import Mapping

    from roquet.base.clock import Clock
    from roquet.proxy.remoting.brokers import Brokers, TopicTypes
    from roquet.proxy.remoting.limits import RemotingLimits
    from roquet.proxy.remoting.plain_sends import PlainSends
    from roquet.proxy.remoting.sessions import Session, Sessions
    from roquet.remoting.router import Handler, Peer, Request

log = logging.getLogger(__name__)

_SHORT = frozenset({RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE})
"""Requests whose fields have names of one letter."""
_HELD = {
    RequestCode.PULL_MESSAGE: "suspendTimeoutMillis",
    RequestCode.LITE_PULL_MESSAGE: "suspendTimeoutMillis",
    RequestCode.POP_MESSAGE: "pollTime",
}
"""Requests that a broker may hold, and the field that says for how long."""
_PLAIN = (
    RequestCode.CONSUMER_SEND_MSG_BACK,
    RequestCode.END_TRANSACTION,
    RequestCode.ACK_MESSAGE,
    RequestCode.CHANGE_MESSAGE_INVISIBLETIME,
    RequestCode.QUERY_CONSUMER_OFFSET,
    RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,
    RequestCode.GET_MAX_OFFSET,
    RequestCode.GET_MIN_OFFSET,
    RequestCode.GET_EARLIEST_MSG_STORETIME,
)
_NO_BROKER = "Request doesn't have field bname"
"""Java's words, which its clients' users look for."""


class Forwarder:
    """Takes one request of a client to one broker, and the answer back."""

    def __init__(self, sessions: Sessions, brokers: Brokers) -> None:
        """Use the clients' own connections."""
        self._sessions = sessions
        self._brokers = brokers

    async def ask(
        self, session: Session, broker: str, command: Command, timeout_s: float
    ) -> Command:
        """Return a broker's answer, whatever its code.

        Raises Refused, Unreachable when the broker cannot have got the request, OutcomeUnknown.
        """
        for last in (False, True):
            address = await self._brokers.address(broker)
            try:
                peer = await session.connection(broker, address)
            except (Unreachable, OutcomeUnknown):
                self._brokers.doubt(broker)
                raise
            try:
                answer = await peer.call(copy_of(command), timeout_s)
            except Unreachable:
                if last:
                    raise
                continue  # it was closed just now
            if answer.code != ResponseCode.GO_AWAY:
                return answer
            # The broker is stopping and has not looked at the request. The client is not to leave
            # the proxy for that.
            session.retire(broker, peer)
            self._brokers.doubt(broker)
        raise Unreachable(f"broker {broker} is stopping")

    async def show(self, plain: PlainSends, topic: str, kind: str, broker: str) -> None:
        """Have plain sends like one that is forwarded now pass by compiled code from now on."""
        try:
            address = await self._brokers.address(broker)
        except RoquetError:
            return  # whoever forwards that one says why
        plain.look_at(topic, kind, broker, address)

    async def tell(self, session: Session, broker: str, command: Command) -> None:
        """Tell a broker something. Raises Refused, Unreachable, OutcomeUnknown."""
        peer = await session.connection(broker, await self._brokers.address(broker))
        peer.send_one_way(copy_of(command))


class ForwardedRequests:
    """Handlers of requests that brokers answer. A service: its stop ends those that they hold."""

    def __init__(
        self,
        sessions: Sessions,
        forwarder: Forwarder,
        types: TopicTypes,
        rules: RemotingLimits,
        clock: Clock,
        *,
        plain: PlainSends | None = None,
    ) -> None:
        """Forward what these clients ask; `plain` takes sends like those that were looked at."""
        self._plain = plain
        self._sessions = sessions
        self._forwarder = forwarder
        self._types = types
        self._rules = rules
        self._log = RateLog(log, clock)
        self._held: set[asyncio.Timeout] = set()
        self._stopping = False

    @property
    def held(self) -> int:
        """How many pulls and pops wait for a broker."""
        return len(self._held)

    async def start(self) -> None:
        """Be ready."""
        self._stopping = False

    async def stop(self) -> None:
        """Send the clients of held requests away, so that the port need not wait for them."""
        self._stopping = True
        now_s = asyncio.get_running_loop().time()
        for held in tuple(self._held):
            held.reschedule(now_s)

    def routes(self) -> list[Route]:
        """Return the rows of the request table."""
        sends = (RequestCode.SEND_MESSAGE, *sorted(_SHORT))
        locks = (RequestCode.LOCK_BATCH_MQ, RequestCode.UNLOCK_BATCH_MQ)
        rows: list[tuple[tuple[RequestCode, ...], Handler, str]] = [
            (sends, self.send, limits.SEND),
            ((RequestCode.RECALL_MESSAGE,), self.recall, limits.SEND),
            (tuple(_HELD), self.held_request, limits.PULL),
            ((RequestCode.UPDATE_CONSUMER_OFFSET,), self.plain, limits.UPDATE),
            (_PLAIN, self.plain, limits.DEFAULT),
            (locks, self.lock, limits.DEFAULT),
        ]
        return [Route(codes, handler, lane) for codes, handler, lane in rows]

    async def send(self, request: Request) -> Command | None:
        """Forward a send (10, 310, 320) of a type that the topic is for."""
        command = request.command
        broker = broker_of(command)
        ext: Mapping[str, str] = command.ext or {}
        short = command.code in _SHORT
        topic = ext.get("b" if short else "topic", "")
        is_open = names.is_retry(topic) or names.is_dlq(topic) or not can_be_topic(topic)
        if self._rules.check_type and not is_open:
            found = props.read(ext.get("i" if short else "properties"))
            if props.TRANSFER_FLAG not in found:
                kind = await self._check_type(topic, found)
                if self._plain is not None and kind != UNREAD:
                    await self._forwarder.show(self._plain, topic, kind, broker)
        return await self._forward(request, broker, limits.REQUEST_S)

    async def once_more(self, peer: Peer, command: Command) -> Command:
        """Return the answer to a send that no broker has looked at. Raises RoquetError."""
        session, broker = self._sessions.of(peer), broker_of(command)
        return await self._forwarder.ask(session, broker, command, limits.REQUEST_S)

    async def recall(self, request: Request) -> Command | None:
        """Forward a recall (370) of a topic for delayed messages."""
        command = request.command
        broker = broker_of(command)
        if self._rules.check_type:
            topic = (command.ext or {}).get("topic", "")
            await self._check_type(topic, {props.TIMER_DELIVER_MS: ""})
        return await self._forward(request, broker, limits.RECALL_S)

    async def plain(self, request: Request) -> Command | None:
        """Forward a request that brokers answer at once."""
        return await self._forward(request, broker_of(request.command), limits.REQUEST_S)

    async def lock(self, request: Request) -> Command | None:
        """Forward locks of queues (41, 42): to the broker that all of them are of."""
        command = request.command
        try:
            asked = LockRequest.decode(command.body)
        except JsonError as error:
            raise Refused(ResponseCode.SYSTEM_ERROR, str(error)) from error
        brokers = {queue.broker_name for queue in asked.queues}
        if not brokers:
            remark = "MessageQueue set is empty"
            return reply_to(command, ResponseCode.SYSTEM_ERROR, remark=remark, body=command.body)
        if len(brokers) > 1:
            text = f"the queues are of {len(brokers)} brokers: ask for those of each by themselves"
            raise Refused(ResponseCode.INVALID_PARAMETER, text)
        return await self._forward(request, brokers.pop(), limits.REQUEST_S)

    async def held_request(self, request: Request) -> Command | None:
        """Forward a pull or a pop (11, 361, 200050), which the broker may hold."""
        command = request.command
        broker = broker_of(command)
        hold_ms = _number(command, _HELD[RequestCode(command.code)])
        within_s = min(hold_ms, limits.HOLD_MAX_MS) / 1000 + limits.HOLD_SPARE_S
        try:
            async with asyncio.timeout(None) as held:
                self._held.add(held)
                try:
                    if self._stopping:
                        return _sent_away(command)
                    return await self._forward(request, broker, within_s)
                finally:
                    self._held.discard(held)
        except TimeoutError:
            return _sent_away(command)

    async def _forward(self, request: Request, broker: str, timeout_s: float) -> Command | None:
        command = request.command
        try:
            session = self._sessions.of(request.peer)
            if command.is_one_way:
                await self._forwarder.tell(session, broker, command)
                return None
            return await self._forwarder.ask(session, broker, command, timeout_s)
        except RoquetError as error:
            if command.is_one_way:
                # Nobody else hears of it.
                what = f"{request_name(command.code)} of {request.peer.address} to {broker} is lost"
                host = request.peer.address.rpartition(":")[0]
                self._log.warning((host, command.code), f"{what}: {error}")
            if isinstance(error, Refused):
                raise
            raise Refused(ResponseCode.SYSTEM_ERROR, f"broker {broker}: {error}") from error

    async def _check_type(self, topic: str, properties: Mapping[str, str]) -> str:
        """Return the type of a topic. Raises Refused for a message that it is not for."""
        wanted = await self._types.of(topic)
        if wanted == UNREAD:
            text = f"messages of {topic} are not checked for their type: no broker tells it"
            self._log.warning("type", text)
            return wanted
        try:
            check_type(wanted, properties)
        except Rejected as rejected:
            raise Refused(ResponseCode.MESSAGE_ILLEGAL, rejected.text) from rejected
        return wanted


def broker_of(command: Command) -> str:
    """Return the broker that a request names. Raises Refused (15) when it names none."""
    found = (command.ext or {}).get("n" if command.code in _SHORT else "bname")
    if found is None:
        text = f"{_NO_BROKER}: clients older than 5.0 cannot use a proxy"
        raise Refused(ResponseCode.VERSION_NOT_SUPPORTED, text)
    return found


def _number(command: Command, field: str) -> int:
    """Return a field's milliseconds; 0 for what is no number, which the broker refuses."""
    text = (command.ext or {}).get(field, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 20 else 0


def _sent_away(command: Command) -> Command:
    knows = command.version > V5_3_1
    code = ResponseCode.GO_AWAY if knows else ResponseCode.SERVICE_NOT_AVAILABLE
    return reply_to(command, code, remark="the proxy is stopping")
