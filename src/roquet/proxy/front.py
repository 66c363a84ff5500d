"""From a call to its answer: credentials, limits, the method, and errors as statuses.

Nothing here knows how bytes travel: a transport calls `serve` and `telemetry`, and gives an
`Answer` to write to.
"""

from __future__ import annotations

import collections
import logging
from typing import TYPE_CHECKING, Any, Protocol

from google.protobuf.message import DecodeError

from roquet.base.errors import Refused
from roquet.broker.api.refusal import Refusal
from roquet.proxy import messages as pb
from roquet.proxy.rules.codes import Code, Rejected, status_of
from roquet.proxy.rules.context import AUTHORIZATION, DATE_TIME, Context, Head, context_of
from roquet.proxy.rules.fields import check_size
from roquet.proxy.rules.limits import TELEMETRY_MAX, ProxyLimits
from roquet.proxy.rules.methods import (
    FAMILIES,
    OFFSETS,
    PULL,
    RECEIVE,
    TELEMETRY,
    Family,
    Status,
    method_of,
    telemetry_status,
    unimplemented,
)
from roquet.proxy.rules.signature import signed_of
from roquet.proxy.services.clients import Sessions
from roquet.proxy.services.consume import Consuming
from roquet.proxy.services.lights import Lights
from roquet.proxy.services.produce import Producing
from roquet.proxy.services.public import (
    CHECK,
    REFLECTION_PATHS,
    REQUEST_MAX,
    WATCH,
    Health,
    Reflection,
)
from roquet.proxy.services.pulling import Pulling
from roquet.proxy.services.renew import Renewals
from roquet.proxy.services.routes import Routes
from roquet.proxy.services.settle import Settlements
from roquet.store.results import StoreFault

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from contextlib import AbstractAsyncContextManager

    from roquet.proxy.brokers.api import Brokers
    from roquet.proxy.services.clients import Stream
    from roquet.proxy.services.public import Answer
    from roquet.proxy.services.pulling import PullOutlet

log = logging.getLogger(__name__)

_NO_PROTOBUF = "Invalid protobuf byte sequence"
_EXPECTED = (Rejected, Refusal, StoreFault)
_PUBLIC = frozenset({CHECK, WATCH, *REFLECTION_PATHS})
STREAMING = (TELEMETRY, *REFLECTION_PATHS)
"""Paths of methods whose requests are streams."""


class Conversation(Protocol):
    """A call whose request is a stream."""

    async def take(self, data: bytes, stream: Stream) -> tuple[Status, str] | None:
        """Act on a message of the client; return how the stream ends, None when it goes on."""
        ...

    def left(self, stream: Stream) -> None:
        """Note the end of the stream."""
        ...


class Front:
    """Answers calls of gRPC before one broker or those of a cluster."""

    def __init__(self, brokers: Brokers, rules: ProxyLimits) -> None:
        self._brokers = brokers
        self._rules = rules
        self.routes = Routes(brokers, rules)
        self.sessions = Sessions(brokers, self.routes, rules)
        self.renewals = Renewals(brokers, self.routes, Settlements(brokers), rules)
        self._consuming = Consuming(brokers, self.routes, self.sessions, self.renewals, rules)
        lights = Lights(brokers, self.routes, self.sessions, rules)
        producing = Producing(brokers, self.routes, rules)
        self._health = Health()
        self._types = pb.methods()
        self._streams: dict[str, Callable[[Context, Any, PullOutlet], Awaitable[None]]] = {
            RECEIVE: self._consuming.receive,
        }
        self._handlers: dict[str, Callable[[Context, Any], Awaitable[Any]]] = {
            "QueryRoute": self.routes.query_route,
            "QueryAssignment": self.routes.query_assignment,
            "SendMessage": producing.send,
            "RecallMessage": producing.recall,
            "EndTransaction": producing.end_transaction,
            "AckMessage": self._consuming.ack,
            "ChangeInvisibleDuration": self._consuming.change,
            "ForwardMessageToDeadLetterQueue": self._consuming.forward,
            "Heartbeat": self.sessions.heartbeat,
            "NotifyClientTermination": self.sessions.terminate,
            "SyncLiteSubscription": lights.sync,
        }
        if rules.pull:
            pulling = Pulling(brokers, self.routes, self.sessions, rules)
            self._streams[PULL] = pulling.pull
            self._handlers |= {
                "UpdateOffset": pulling.update_offset,
                "GetOffset": pulling.get_offset,
                "QueryOffset": pulling.query_offset,
            }
        served = FAMILIES | (OFFSETS if rules.pull else {})
        assert self._handlers.keys() == served.keys(), "every method has a family"
        self._under_way: collections.Counter[Family] = collections.Counter()
        self.elsewhere: Callable[[Family], int] = _none
        """How many calls of a family are under way that were not passed on to the front."""

    @property
    def secrets(self) -> Mapping[str, bytes] | None:
        """Account -> what its calls are signed with; None: nobody has to sign."""
        guard = self._brokers.guard
        return None if guard is None else guard.secrets

    def admits(self, head: Head) -> int:
        """Return how long requests of a call may be that no account has signed. Raises Rejected."""
        if head.path in _PUBLIC:
            return REQUEST_MAX
        self.context(head)
        return self._rules.inbound_max

    async def refuse(self, head: Head, rejected: Rejected, answer: Answer) -> None:
        """Answer a call by its head alone. Raises nothing."""
        method = method_of(head.path) or ""
        if method not in self._handlers and method not in self._streams:
            answer.finish(Status.UNIMPLEMENTED, unimplemented(head.path))
            return
        found = _with_status(self._types[method][1](), *_told(method, rejected))
        await answer.send(found.SerializeToString())
        answer.finish(Status.OK, "")

    async def serve(self, head: Head, data: bytes, answer: Answer) -> None:
        """Answer a call with one request. Raises nothing."""
        if head.path in {CHECK, WATCH}:
            await self._health.serve(head.path, data, answer)
            return
        method = method_of(head.path) or ""
        if method not in self._handlers and method not in self._streams:
            answer.finish(Status.UNIMPLEMENTED, unimplemented(head.path))
            return
        request_type, answer_type = self._types[method]
        try:
            # Nothing is read for nobody: reading takes more time and memory than the bytes.
            context = self.context(head)
            check_size(method, data, request_type.DESCRIPTOR)
            request = request_type.FromString(data)
        except DecodeError:
            answer.finish(Status.INTERNAL, _NO_PROTOBUF)
            return
        except Rejected as rejected:
            await self.refuse(head, rejected, answer)
            return
        if method in self._streams:
            await self._stream(method, context, request, answer)
        else:
            found = await self._answered(method, context, request, answer_type)
            await answer.send(found.SerializeToString())
        answer.finish(Status.OK, "")

    def settles(self, client_id: str) -> bool:
        """Tell whether acknowledgements of a client without an account end nothing but a flight."""
        session = self.sessions.seen("", client_id)
        return session is None or self.renewals.count_of(session) == 0

    async def _answered(self, method: str, context: Context, request: Any, answer_type: Any) -> Any:
        family = FAMILIES.get(method) or OFFSETS[method]
        under_way = self._under_way[family] + self.elsewhere(family)
        if under_way >= self._rules.in_flight_max:
            return _with_status(answer_type(), Code.TOO_MANY_REQUESTS, "flow limit")
        self._under_way[family] += 1
        try:
            found = await self._handlers[method](context, request)
        except Exception as error:  # noqa: BLE001  (the client is told)
            return _with_status(answer_type(), *_told(method, error))
        finally:
            self._under_way[family] -= 1
        if not found.HasField("status"):
            _with_status(found, Code.OK, "OK")
        return found

    def failure(self, method: str, error: Exception) -> bytes:
        """Return the answer to a call of a method that ended with an error."""
        return bytes(
            _with_status(self._types[method][1](), *_told(method, error)).SerializeToString()
        )

    async def _stream(self, method: str, context: Context, request: Any, answer: Answer) -> None:
        try:
            await self._streams[method](context, request, _Parts(answer))
        except Exception as error:  # noqa: BLE001  (the client is told)
            await answer.send(self.failure(method, error))

    def context(self, head: Head) -> Context:
        """Return who calls. Raises Rejected when that is nobody."""
        access_key, secret = "", None
        guard = self._brokers.guard
        if guard is not None:
            found = dict(head.metadata)
            signed = signed_of(found.get(AUTHORIZATION), found.get(DATE_TIME))
            access_key = "" if signed is None else signed.access_key
            try:
                guard.verify(
                    access_key,
                    lambda secret: signed is not None and signed.is_by(secret),
                    head.remote,
                )
            except Refused as refused:
                raise Rejected(Code.UNAUTHORIZED, refused.remark) from refused
            secret = guard.secrets.get(access_key)
        return context_of(head, access_key, secret, self._brokers.clock.now_ms())

    def telemetry(self, head: Head) -> Telemetry:
        """Begin a telemetry stream. Raises Rejected when nobody may."""
        return Telemetry(self.sessions, self.context(head))

    def conversation(self, head: Head) -> Conversation:
        """Begin a call whose request is a stream. Raises Rejected when this client may not."""
        package = REFLECTION_PATHS.get(head.path)
        return self.telemetry(head) if package is None else Reflection(package)


class Telemetry:
    """One telemetry stream of a client."""

    def __init__(self, sessions: Sessions, context: Context) -> None:
        self._sessions = sessions
        self._context = context
        self._has_settings = False

    async def take(self, data: bytes, stream: Stream) -> tuple[Status, str] | None:
        """Act on a message of the client; return how the stream ends, None when it goes on."""
        try:
            command = self._command(data)
            answer = await self._sessions.take(self._context, stream, command)
            self._has_settings = True
        except DecodeError:
            return Status.INTERNAL, _NO_PROTOBUF
        except Exception as error:  # noqa: BLE001  (the client is told)
            code, text = _told("Telemetry", error)
            return telemetry_status(code), text
        if answer is not None:
            stream.send(answer.SerializeToString())
        return None

    def _command(self, data: bytes) -> Any:
        """Read a message. Raises DecodeError and Rejected."""
        if len(data) > TELEMETRY_MAX:
            raise Rejected(Code.BAD_REQUEST, f"a message may have {TELEMETRY_MAX} bytes")
        command = pb.TelemetryCommand.FromString(data)
        if not self._has_settings and command.WhichOneof("command") != "settings":
            raise Rejected(Code.BAD_REQUEST, "the first message has to show the settings")
        return command

    def left(self, stream: Stream) -> None:
        """Note the end of the stream."""
        self._sessions.left(self._context, stream)


class _Parts:
    """Takes the parts of an answer that is a stream."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer

    async def send(self, answer: Any) -> bool:
        return await self._answer.send(answer.SerializeToString())

    async def send_framed(self, parts: bytes) -> bool:
        return await self._answer.send_framed(parts)

    def has_room(self) -> bool:
        return self._answer.has_room()

    def turn(self) -> AbstractAsyncContextManager[None]:
        return self._answer.turn()


def _told(method: str, error: Exception) -> tuple[Code, str]:
    """Return what the client is told of an error; what nobody expected is logged."""
    if not isinstance(error, _EXPECTED):
        log.error("%s failed", method, exc_info=error)
    return status_of(error)


def _none(family: Family) -> int:
    del family
    return 0


def _with_status(answer: Any, code: Code, text: str) -> Any:
    answer.status.code, answer.status.message = code, text
    return answer
