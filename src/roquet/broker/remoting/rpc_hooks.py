"""Plugins that look at every frame, around its handler; without one the routes stay as they are."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar, cast

from roquet.base.errors import Refused
from roquet.broker.api.refusal import Refusal
from roquet.broker.remoting.refusals import refused, translated
from roquet.protocol.command import Command, reply_to
from roquet.remoting.router import Request, Route

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from roquet.broker.hooks import Hooks
    from roquet.remoting.router import BatchHandler, Fail

log = logging.getLogger(__name__)

_C = TypeVar("_C")
_Waiting = Callable[[Request], Awaitable["Command | None"]]
_Plain = Callable[[Request], "Command | None"]
_End = Callable[["Command | None"], None]
_Begin = Callable[[Request], _End]
"""Runs the hooks before a request (may raise Refused); what it returns runs those after it."""


def hooked(routes: Sequence[Route], hooks: Hooks) -> list[Route]:
    """Return the routes with the hooks on requests around their handlers."""
    if not hooks.rpc:
        return list(routes)
    begin = functools.partial(_begin_rpc, hooks)
    return [_around(route, begin) for route in routes]


def _around(route: Route, begin: _Begin) -> Route:
    handler, batch = route.handler, route.batch
    if inspect.iscoroutinefunction(handler):
        handler = _around_waiting(cast("_Waiting", handler), begin)
    else:
        handler = _around_plain(cast("_Plain", handler), begin)
    if batch is not None:
        batch = _around_batch(batch, begin)
    return dataclasses.replace(route, handler=handler, batch=batch)


def _around_waiting(handler: _Waiting, begin: _Begin) -> _Waiting:
    async def run(request: Request) -> Command | None:
        try:
            end = begin(request)
        except Refused as refusal:
            return reply_to(request.command, refusal.code, remark=refusal.remark)
        try:
            answer = await handler(_watched(request, end))
        except Exception as error:  # noqa: BLE001  (the router sees it)
            answer = _failed(request, error, end)
        return _ended(request, answer, end)

    return run


def _around_plain(handler: _Plain, begin: _Begin) -> _Plain:
    def run(request: Request) -> Command | None:
        try:
            end = begin(request)
        except Refused as refusal:
            return reply_to(request.command, refusal.code, remark=refusal.remark)
        try:
            answer = handler(_watched(request, end))
        except Exception as error:  # noqa: BLE001  (the router sees it)
            answer = _failed(request, error, end)
        return _ended(request, answer, end)

    return run


def _around_batch(batch: BatchHandler, begin: _Begin) -> BatchHandler:
    def run(requests: Iterator[Request], fail: Fail) -> Awaitable[None] | None:
        def fail_watched(request: Request, error: Exception) -> None:
            watched = request.reply
            if isinstance(watched, _Watched) and not isinstance(error, Refused):
                # The hooks hear that there is no answer of the handler's own.
                watched.end_once(None)
                request = watched.request
            fail(request, error)

        return batch(_begun(requests, begin), fail_watched)

    return run


def _begun(requests: Iterator[Request], begin: _Begin) -> Iterator[Request]:
    """Give out the requests that the hooks let pass."""
    for request in requests:
        try:
            end = begin(request)
        except Refused as refusal:
            request.reply(reply_to(request.command, refusal.code, remark=refusal.remark))
        else:
            yield _watched(request, end)


def _failed(request: Request, error: Exception, end: _End) -> Command:
    """Return the answer of a refusal; what else went wrong is the router's business."""
    error = translated(error)
    if isinstance(error, Refused):
        return reply_to(request.command, error.code, remark=error.remark)
    end(None)
    raise error


def _ended(request: Request, answer: Command | None, end: _End) -> Command | None:
    """Run the hooks, unless the answer comes later."""
    if answer is not None or request.command.is_one_way:
        end(answer)
    return answer


def _watched(request: Request, end: _End) -> Request:
    """Return the request such that an answer that comes later is seen as well."""
    return dataclasses.replace(request, reply=_Watched(request, end))


class _Watched:
    """Shows the answer to the hooks before it is written."""

    def __init__(self, request: Request, end: _End) -> None:
        self.request = request
        self._end: _End | None = end

    def __call__(self, answer: Command) -> None:
        self.end_once(answer)
        self.request.reply(answer)

    def end_once(self, answer: Command | None) -> None:
        """Run the hooks that come after the request, unless they have run."""
        end, self._end = self._end, None
        if end is not None:
            end(answer)


def _begin_rpc(hooks: Hooks, request: Request) -> _End:
    peer, command = request.peer.address, request.command
    for hook in hooks.rpc:
        _before(functools.partial(hook.before_request, peer), command)

    def end(answer: Command | None) -> None:
        for hook in hooks.rpc:
            _after(functools.partial(hook.after_response, peer), command, answer)

    return end


def _before(look: Callable[[_C], None], context: _C) -> None:
    try:
        look(context)
    except Refused:
        raise
    except Refusal as refusal:
        raise refused(refusal) from refusal
    except Exception:
        log.exception("a hook failed")


_A = TypeVar("_A")


def _after(look: Callable[[_C, _A], None], context: _C, outcome: _A) -> None:
    try:
        look(context, outcome)
    except Exception:
        log.exception("a hook failed")
