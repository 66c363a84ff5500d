"""Handlers with hooks around them. Without hooks the table of routes stays as it is."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar, cast

from roquet.base.errors import Refused
from roquet.broker.api.refusal import Refusal
from roquet.broker.hooks import ConsumeContext, Outcome, SendContext
from roquet.broker.remoting.refusals import refused, translated
from roquet.protocol import properties as props
from roquet.protocol.codes import RequestCode
from roquet.protocol.command import Command, reply_to
from roquet.protocol.header import HeaderError
from roquet.protocol.headers.message import PullMessageRequest, SendMessageRequest
from roquet.remoting.router import Request, Route

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from roquet.broker.hooks import Hooks
    from roquet.remoting.router import Fail, Together

log = logging.getLogger(__name__)

_C = TypeVar("_C")
_Waiting = Callable[[Request], Awaitable["Command | None"]]
_Plain = Callable[[Request], "Command | None"]
_End = Callable[["Command | None"], None]
_Begin = Callable[[Request], _End]
"""Runs the hooks before a request (may raise Refused); what it returns runs those after it."""

_REPLIES = (RequestCode.SEND_REPLY_MESSAGE, RequestCode.SEND_REPLY_MESSAGE_V2)
_SENDS = (
    RequestCode.SEND_MESSAGE,
    RequestCode.SEND_MESSAGE_V2,
    RequestCode.SEND_BATCH_MESSAGE,
    *_REPLIES,
)
_SHORT = (
    RequestCode.SEND_MESSAGE_V2,
    RequestCode.SEND_BATCH_MESSAGE,
    RequestCode.SEND_REPLY_MESSAGE_V2,
)
_PULLS = (RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE)


def hooked(
    routes: Sequence[Route], hooks: Hooks, send_ext: Mapping[str, str] | None = None
) -> list[Route]:
    """Return the routes with hooks around their handlers.

    `send_ext` are the fields that every answer to a send has, also that of a hook.
    """
    return [_with_hooks(route, hooks, send_ext) for route in routes] if hooks else list(routes)


def _with_hooks(route: Route, hooks: Hooks, send_ext: Mapping[str, str] | None) -> Route:
    if hooks.send and not set(route.codes).isdisjoint(_SENDS):
        route = _around(route, functools.partial(_begin_send, hooks), send_ext)
    if hooks.consume and not set(route.codes).isdisjoint(_PULLS):
        route = _around(route, functools.partial(_begin_pull, hooks), {})
    if hooks.rpc:
        route = _around(route, functools.partial(_begin_rpc, hooks))
    return route


def _around(route: Route, begin: _Begin, ext: Mapping[str, str] | None = None) -> Route:
    handler, together = route.handler, route.together
    if inspect.iscoroutinefunction(handler):
        handler = _around_waiting(cast("_Waiting", handler), begin, ext)
    else:
        handler = _around_plain(cast("_Plain", handler), begin, ext)
    if together is not None:
        together = _around_together(together, begin, ext)
    return dataclasses.replace(route, handler=handler, together=together)


def _around_waiting(handler: _Waiting, begin: _Begin, ext: Mapping[str, str] | None) -> _Waiting:
    async def run(request: Request) -> Command | None:
        try:
            end = begin(request)
        except Refused as refusal:
            return reply_to(request.command, refusal.code, remark=refusal.remark, ext=ext)
        try:
            answer = await handler(_watched(request, end))
        except Exception as error:  # noqa: BLE001  (the router sees it)
            answer = _failed(request, error, end)
        return _ended(request, answer, end)

    return run


def _around_plain(handler: _Plain, begin: _Begin, ext: Mapping[str, str] | None) -> _Plain:
    def run(request: Request) -> Command | None:
        try:
            end = begin(request)
        except Refused as refusal:
            return reply_to(request.command, refusal.code, remark=refusal.remark, ext=ext)
        try:
            answer = handler(_watched(request, end))
        except Exception as error:  # noqa: BLE001  (the router sees it)
            answer = _failed(request, error, end)
        return _ended(request, answer, end)

    return run


def _around_together(together: Together, begin: _Begin, ext: Mapping[str, str] | None) -> Together:
    def run(requests: Iterator[Request], fail: Fail) -> Awaitable[None] | None:
        def fail_watched(request: Request, error: Exception) -> None:
            watched = request.reply
            if isinstance(watched, _Watched) and not isinstance(error, Refused):
                # The hooks hear that there is no answer of the handler's own.
                watched.end_once(None)
                request = watched.request
            fail(request, error)

        return together(_begun(requests, begin, ext), fail_watched)

    return run


def _begun(
    requests: Iterator[Request], begin: _Begin, ext: Mapping[str, str] | None
) -> Iterator[Request]:
    """Give out the requests that the hooks let pass."""
    for request in requests:
        try:
            end = begin(request)
        except Refused as refusal:
            request.reply(reply_to(request.command, refusal.code, remark=refusal.remark, ext=ext))
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


def _begin_send(hooks: Hooks, request: Request) -> _End:
    command = request.command
    try:
        header = SendMessageRequest.decode(command.ext, short=command.code in _SHORT)
    except HeaderError:
        return _nothing
    context = SendContext(
        producer_group=header.producer_group,
        topic=header.topic,
        queue_id=header.queue_id,
        properties=props.read(header.properties),
        body_size=len(command.body),
        born_timestamp=header.born_timestamp,
        is_batch=bool(header.batch),
        is_reply=command.code in _REPLIES,
        peer=request.peer.address,
    )
    for hook in hooks.send:
        _before(hook.before_send, context)

    def end(answer: Command | None) -> None:
        for hook in hooks.send:
            _after(hook.after_send, context, _outcome(answer))

    return end


def _begin_pull(hooks: Hooks, request: Request) -> _End:
    try:
        header = PullMessageRequest.decode(request.command.ext)
    except HeaderError:
        return _nothing
    context = ConsumeContext(
        consumer_group=header.consumer_group,
        topic=header.topic,
        queue_id=header.queue_id,
        queue_offset=header.queue_offset,
        peer=request.peer.address,
    )
    for hook in hooks.consume:
        _before(hook.before_consume, context)

    def end(answer: Command | None) -> None:
        for hook in hooks.consume:
            _after(hook.after_consume, context, _outcome(answer))

    return end


def _begin_rpc(hooks: Hooks, request: Request) -> _End:
    peer, command = request.peer.address, request.command
    for hook in hooks.rpc:
        _before(functools.partial(hook.before_request, peer), command)

    def end(answer: Command | None) -> None:
        for hook in hooks.rpc:
            _after(functools.partial(hook.after_response, peer), command, answer)

    return end


def _nothing(_: Command | None) -> None:
    """Stand for hooks that saw nothing: the handler refuses the header."""


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


def _outcome(answer: Command | None) -> Outcome:
    if answer is None:
        return Outcome(code=1, remark="the request failed or has no answer")
    fields = answer.ext or {}
    offset = fields.get("queueOffset")
    return Outcome(
        code=answer.code,
        remark=answer.remark,
        message_id=fields.get("msgId"),
        queue_offset=None if offset is None else int(offset),
        messages_size=len(answer.body),
    )
