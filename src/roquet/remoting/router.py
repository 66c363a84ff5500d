"""From request code to handler: one table, and the only place where errors become codes."""

from __future__ import annotations

import dataclasses
import enum
import inspect
import logging
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from roquet.base.errors import Refused, RoquetError, TableFull, UsageError, is_of_the_system
from roquet.protocol.codes import RequestCode, ResponseCode
from roquet.protocol.command import Command, reply_to
from roquet.protocol.header import HeaderError
from roquet.service.ratelog import RateLog

if TYPE_CHECKING:
    from collections.abc import Iterator

    from roquet.base.clock import Clock
    from roquet.service.lanes import Lane, Lanes

log = logging.getLogger(__name__)

_KNOWN = frozenset(map(int, RequestCode))


class Peer(Protocol):
    """The other end of one connection, as handlers see it."""

    @property
    def address(self) -> str:
        """`ip:port` of the peer."""
        ...

    @property
    def key(self) -> int:
        """A number no other connection of this process has or had."""
        ...

    @property
    def is_open(self) -> bool:
        """Whether an answer could still arrive."""
        ...

    def send_one_way(self, command: Command) -> None:
        """Tell the peer something; nothing happens when it has gone."""
        ...

    async def call(self, command: Command, timeout_s: float) -> Command:
        """Ask the peer. Raises Unreachable or OutcomeUnknown."""
        ...

    def close(self, why: str) -> None:
        """End the connection."""
        ...


def _nothing(_: Request) -> None:
    """Stand for nobody who wants to know."""


@dataclasses.dataclass(slots=True)
class Request:
    """What a handler is given. A handler that returned None may call `reply` later, once."""

    command: Command
    peer: Peer
    received_ms: int
    reply: Callable[[Command], None]
    done: Callable[[Request], None] = _nothing
    """Called once when the handler has returned or was refused: for whoever counts work in hand."""
    is_proven: bool = False
    """Whether the guard let it pass and knows its sender."""

    def refuse(self, remark: str) -> None:
        """Tell the peer that it is too busy here."""
        self.reply(reply_to(self.command, ResponseCode.SYSTEM_BUSY, remark=remark))
        self.done(self)


class Ports(enum.Flag):
    """Which of a broker's two ports serve a code."""

    MAIN = enum.auto()
    FAST = enum.auto()
    BOTH = MAIN | FAST


Handler = Callable[[Request], "Awaitable[Command | None] | Command | None"]
"""Returns the reply, or None when it comes later through `Request.reply` (or never: one-way).

A plain function runs at once on the loop; a coroutine function runs within its lane.
A handler that cannot do it raises `base.errors.Refused(code, remark)`.
"""


Fail = Callable[[Request, Exception], None]
"""Answers a request with what went wrong."""

BatchHandler = Callable[["Iterator[Request]", Fail], "Awaitable[None] | None"]
"""Answers requests that wait one behind the other, through `Request.reply` or the function given.

Takes at least one, and none once it waits; what it returns is waited for. It raises nothing: the
failure of one request is answered and leaves the others alone.
"""

Guard = Callable[["Command", str], bool]
"""Given a request and its peer's `ip:port`; raises Refused when it may not be carried out.

Returns whether its sender is known: somebody signed it, or the address needs no signature.
"""


@dataclasses.dataclass(frozen=True, slots=True)
class Route:
    """One row: these codes go to this handler, in this lane, on these ports."""

    codes: tuple[RequestCode, ...]
    handler: Handler
    lane: str
    ports: Ports = Ports.BOTH
    batch: BatchHandler | None = None
    """Does the same as the handler for many requests at a time, with less work for each."""


@dataclasses.dataclass(frozen=True, slots=True)
class _Row:
    route: Route
    lane: Lane | None
    """None: the handler is a plain function and runs at once."""
    batched: _Batched | None = None
    body_max: int = sys.maxsize
    """Bytes of a body that need no closer look."""


class _Job:
    """A request in a lane."""

    __slots__ = ("_handler", "_request", "_router")

    def __init__(self, router: Router, request: Request, handler: Handler) -> None:
        self._router = router
        self._request = request
        self._handler = handler

    @property
    def received_ms(self) -> int:
        return self._request.received_ms

    async def run(self) -> None:
        request = self._request
        try:
            answer = self._handler(request)
            if isinstance(answer, Awaitable):
                answer = await answer
            if answer is not None:
                request.reply(answer)
        except Exception as error:  # noqa: BLE001  (every failure becomes an answer)
            request.reply(self._router.failure(request, error))
        finally:
            request.done(request)

    def refuse(self, remark: str) -> None:
        self._request.refuse(remark)


class _Batched:
    """Requests in a lane that are done together."""

    def __init__(self, router: Router, handler: BatchHandler) -> None:
        self._router = router
        self._handler = handler

    def run(self, jobs: Iterator[Request]) -> Awaitable[None] | None:
        return self._handler(jobs, self._fail)

    def ended(self, jobs: Sequence[Request]) -> None:
        for request in jobs:
            request.done(request)

    def _fail(self, request: Request, error: Exception) -> None:
        request.reply(self._router.failure(request, error))


class Router:
    """Finds a request's handler and lane; turns what handlers raise into response codes."""

    def __init__(
        self,
        routes: Sequence[Route],
        default: Route | None,
        lanes: Lanes,
        clock: Clock,
        port: Ports = Ports.MAIN,
        *,
        guard: Guard | None = None,
        body_max: Callable[[int], int] | None = None,
        translate: Callable[[Exception], Exception] | None = None,
    ) -> None:
        """Build the table for one port. Raises UsageError when a code comes twice.

        `body_max` tells how many bytes the body of a request may have, by its code. `translate`
        returns what handlers raise as an error that this router knows: `Refused`, for instance.
        """
        self._translate = translate
        self._guard = guard
        self._body_max = body_max
        self._rows: dict[int, _Row] = {}
        # Each of the codes that no row names has a limit of its own.
        most = sys.maxsize if body_max is None else 0
        self._default = None if default is None else self._row(default, lanes, most)
        self._log = RateLog(log, clock)
        self._guard_log = RateLog(log, clock)
        for route in routes:
            if port not in route.ports:
                continue
            row = self._row(route, lanes)
            for code in route.codes:
                if code in self._rows:
                    raise UsageError(f"{code.name} is routed twice")
                most = sys.maxsize if body_max is None else body_max(code)
                self._rows[code] = dataclasses.replace(row, body_max=most)

    def dispatch(self, request: Request) -> None:
        """Have the request handled, now or within its lane. Never raises."""
        command = request.command
        row = self._rows.get(command.code, self._default)
        if row is not None and len(command.body) > row.body_max and self._is_too_long(request):
            return
        if self._guard is not None and not self._may(request, self._guard):
            return
        if row is None:
            remark = f" request type {command.code} not supported"
            code = ResponseCode.REQUEST_CODE_NOT_SUPPORTED
            request.reply(reply_to(command, code, remark=remark))
            request.done(request)
        elif row.batched is not None and row.lane is not None:
            row.lane.submit_to(row.batched, request)
        elif row.lane is not None:
            row.lane.submit(_Job(self, request, row.route.handler))
        else:
            self._run_now(request, row.route.handler)

    def _row(self, route: Route, lanes: Lanes, body_max: int = sys.maxsize) -> _Row:
        waits = inspect.iscoroutinefunction(route.handler) or inspect.iscoroutinefunction(
            getattr(route.handler, "__call__", None)  # noqa: B004  (an object with an async __call__)
        )
        lane = lanes[route.lane]
        batched = None if route.batch is None else _Batched(self, route.batch)
        return _Row(route, lane if waits else None, batched, body_max)

    def _is_too_long(self, request: Request) -> bool:
        """Tell whether a request that is served has too long a body; such a one is answered."""
        command = request.command
        size = len(command.body)
        if self._body_max is None or size <= (most := self._body_max(command.code)):
            return False
        remark = f"request {command.code} has a body of {size} bytes: it may have {most}"
        request.reply(reply_to(command, ResponseCode.INVALID_PARAMETER, remark=remark))
        request.done(request)
        return True

    def _may(self, request: Request, guard: Guard) -> bool:
        """Tell whether the request may be carried out; one that may not is answered."""
        command, address = request.command, request.peer.address
        try:
            is_proven = guard(command, address)
        except Exception as error:  # noqa: BLE001  (what cannot be checked is not carried out)
            if isinstance(error, Refused):
                host = address.rpartition(":")[0]
                text = f"request {command.code} of {address} refused: {error.remark}"
                # Codes that nobody knows are one thing: somebody may send any number of them.
                code = command.code if command.code in _KNOWN else None
                self._guard_log.warning((host, code), text)
            request.reply(self.failure(request, error))
            request.done(request)
            return False
        request.is_proven = bool(is_proven)
        return True

    def explain(self) -> str:
        """Return the table as text, by code."""
        rows = [f"{'code':>7} {'name':<44} {'lane':<16} handler"]
        for code in sorted(self._rows):
            route = self._rows[code].route
            lane = route.lane if self._rows[code].lane is not None else "-"
            name = RequestCode(code).name
            rows.append(f"{code:>7} {name:<44} {lane:<16} {_name(route.handler)}")
        if self._default is not None:
            route = self._default.route
            rows.append(f"{'*':>7} {'every other':<44} {route.lane:<16} {_name(route.handler)}")
        return "\n".join(rows)

    def failure(self, request: Request, error: Exception) -> Command:
        """Return the answer that says what went wrong: the only place where errors become codes."""
        command = request.command
        if self._translate is not None:
            error = self._translate(error)
        if isinstance(error, Refused):
            return reply_to(command, error.code, remark=error.remark)
        if isinstance(error, HeaderError):
            code = ResponseCode.SYSTEM_ERROR if error.missing else ResponseCode.INVALID_PARAMETER
            return reply_to(command, code, remark=str(error))
        what = f"{type(error).__name__}: {error}"
        if isinstance(error, TableFull) or is_of_the_system(error):
            # Nothing is wrong in the code, so no traceback.
            what = str(error) if isinstance(error, RoquetError) else what
            self._log.warning((command.code, "full"), f"request {command.code} refused: {what}")
            return reply_to(command, ResponseCode.SYSTEM_ERROR, remark=what[:1024])
        self._log.warning(
            (command.code, type(error)),
            f"request {command.code} of {request.peer.address} failed: {what}",
            error=error,
        )
        return reply_to(command, ResponseCode.SYSTEM_ERROR, remark=what[:1024])

    def _run_now(self, request: Request, handler: Handler) -> None:
        try:
            answer = handler(request)
            if isinstance(answer, Command):
                request.reply(answer)
            elif answer is not None:
                # A plain function that returns a coroutine: the table cannot see it beforehand.
                raise TypeError(f"{_name(handler)} returns an awaitable; make it `async def`")  # noqa: TRY301
        except Exception as error:  # noqa: BLE001  (every failure becomes an answer)
            request.reply(self.failure(request, error))
        finally:
            request.done(request)


def _name(handler: Handler) -> str:
    return getattr(handler, "__qualname__", type(handler).__name__)
