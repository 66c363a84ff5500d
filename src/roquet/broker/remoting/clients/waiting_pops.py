"""Pops that wait over remoting: what is kept of them, and how they are tried again."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from roquet.acl.needs import popped
from roquet.broker.api.refusal import Refusal
from roquet.broker.pop.receive.polls import Waiting
from roquet.broker.remoting.refusals import refusal_reply
from roquet.protocol.codes import ResponseCode
from roquet.protocol.command import Command, reply_to
from roquet.remoting.connections.reply import Reply
from roquet.store.results import StoreFault

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from roquet.broker.remoting.callers import Readers
    from roquet.remoting.router import Request

_P = TypeVar("_P")


def unheld_code(waiting: Waiting) -> ResponseCode:
    """Return the code of a pop that found nothing and does not wait."""
    is_full = waiting is Waiting.FULL
    return ResponseCode.POLLING_FULL if is_full else ResponseCode.POLLING_TIMEOUT


def waiting_request(request: Request) -> Request:
    """Return what is kept of a request that waits: its fields were read, and there may be many."""
    kept = dataclasses.replace(request.command, ext=None, body=b"")
    if isinstance(request.reply, Reply):
        request.reply.keep(kept)
    return dataclasses.replace(request, command=kept)


class Pop(Protocol):
    """The fields that say what a request wants that may wait."""

    @property
    def topic(self) -> str:
        """The topic, or that of a group's retries."""
        ...

    @property
    def consumer_group(self) -> str:
        """The group."""
        ...

    @property
    def poll_time(self) -> int:
        """Milliseconds that it may wait."""
        ...


def pledge(readers: Readers, request: Request, header: Pop) -> Callable[[], None] | None:
    """Return what judges a request again once it has waited; None: it does not, or nobody is."""
    if header.poll_time <= 0:
        return None
    return readers.pledge(request, popped(header.topic, header.consumer_group))


def may_still(request: Request, check: Callable[[], None] | None, ext: Mapping[str, str]) -> bool:
    """Tell whether a request that waited may be answered; if not, it is refused with fields."""
    if check is None:
        return True
    try:
        check()
    except Refusal as refusal:
        request.reply(refusal_reply(request.command, refusal, ext=dict(ext)))
        return False
    return True


class WokenPop(Generic[_P]):
    """A pop that waited, while it is tried again."""

    __slots__ = ("_answer", "_request", "_wanted", "received_ms")

    def __init__(
        self,
        request: Request,
        wanted: _P,
        answer: Callable[[Request, _P], Awaitable[Command | None]],
        now_ms: int,
    ) -> None:
        """`answer` is what tries it."""
        self._request = request
        self._wanted = wanted
        self._answer = answer
        self.received_ms = now_ms

    async def run(self) -> None:
        """Try it."""
        request = self._request
        try:
            command = await self._answer(request, self._wanted)
        except StoreFault as fault:
            remark = str(fault)[:1024]
            command = reply_to(request.command, ResponseCode.SYSTEM_ERROR, remark=remark)
        if command is not None:
            request.reply(command)

    def refuse(self, remark: str) -> None:
        """Answer that the broker is busy."""
        self._request.reply(
            reply_to(self._request.command, ResponseCode.SYSTEM_BUSY, remark=remark)
        )
