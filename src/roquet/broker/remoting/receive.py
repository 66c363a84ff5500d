"""PULL_MESSAGE 11, LITE_PULL_MESSAGE 361 and GET_SUMS 7004: the adapter of reads.

Next: broker/services/receive.py, which has the rules.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Final, Protocol

from roquet.broker.api.receive import (
    Filter,
    Forbids,
    ReceiveForbidden,
    ReceiveRequest,
    ReceiveResult,
    SumsRequest,
    SumsResult,
)
from roquet.broker.api.refusal import Reason, Refusal
from roquet.broker.remoting.refusals import STATUSES, refusal_reply
from roquet.protocol.codes import RequestCode, ResponseCode
from roquet.protocol.command import Command, reply_to
from roquet.protocol.headers.message import (
    GetSumsRequest,
    GetSumsResponse,
    PullMessageRequest,
    PullMessageResponse,
)
from roquet.protocol.messages import sys_flag
from roquet.remoting import codec
from roquet.remoting.headers import reader
from roquet.remoting.router import Ports, Request, Route

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from roquet.broker.api.caller import Caller
    from roquet.broker.clients.long_polling import Waiter
    from roquet.broker.remoting.callers import Callers

PROJECTION: Final = "projection"
OBEYED: Final = "1"
"""What an answer says in that field when it has only what the pull wanted of its messages."""
FORBIDDEN_TYPES: Mapping[Forbids, int] = {
    Forbids.BROKER: 1,
    Forbids.GROUP: 2,
    Forbids.TOPIC: 3,
    Forbids.BROADCAST: 4,
    Forbids.SUBSCRIPTION: 5,
}
"""The field `forbiddenType` of refusals."""


class Reads(Protocol):
    """Reads and waits."""

    @property
    def receive_or_hold(
        self,
    ) -> Callable[[ReceiveRequest, Caller, Waiter, Callable[[], None]], ReceiveResult | None]:
        """Return what is there; None: the request is held and woken."""
        ...

    @property
    def resume(self) -> Callable[[ReceiveRequest, Caller], ReceiveResult]:
        """Return what is there for a request that was held."""
        ...

    @property
    def sums(self) -> Callable[[SumsRequest, Caller], Awaitable[SumsResult]]:
        """Return count and checksum of a range."""
        ...


class ReceiveAdapter:
    """Answers pulls."""

    def __init__(self, receives: Reads, callers: Callers) -> None:
        self._receives = receives
        self._callers = callers

    def routes(self) -> list[Route]:
        """Return the codes this answers; the fast port does not serve them."""
        return [
            Route((RequestCode.PULL_MESSAGE,), self.pull, "pull", Ports.MAIN),
            Route((RequestCode.LITE_PULL_MESSAGE,), self.pull, "lite_pull", Ports.MAIN),
            Route((RequestCode.GET_SUMS,), self.sums, "query", Ports.MAIN),
        ]

    def pull(self, request: Request) -> Command | None:
        """Answer now, or hold the pull and return None."""
        wake = functools.partial(self.resume, request)
        try:
            wanted = _wanted(request.command)
            caller = self._callers.of(request)
            result = self._receives.receive_or_hold(wanted, caller, request.peer, wake)
        except Refusal as refusal:
            return _refused(request.command, refusal)
        return None if result is None else _answer(request.command, result)

    async def sums(self, request: Request) -> Command:
        """Answer 7004, our own: what the messages of a range come to."""
        header = GetSumsRequest.decode(request.command.ext)
        wanted = SumsRequest(
            group=header.consumer_group,
            topic=header.topic,
            queue_id=header.queue_id,
            begin=header.begin,
            end=header.end,
            stored_begin_ms=header.stored_begin,
            stored_end_ms=header.stored_end,
        )
        try:
            found = await self._receives.sums(wanted, self._callers.of(request))
        except Refusal as refusal:
            return _refused(request.command, refusal)
        answer = GetSumsResponse(
            count=found.count, xor=found.xor, first=found.first, last=found.last, next=found.next
        )
        return reply_to(request.command, ResponseCode.SUCCESS, ext=answer.encode())

    def resume(self, request: Request) -> None:
        """Answer a pull that was held."""
        try:
            self._callers.check_again(request)
            result = self._receives.resume(_wanted(request.command), self._callers.of(request))
        except Refusal as refusal:
            request.reply(_refused(request.command, refusal))
        else:
            request.reply(_answer(request.command, result))


_READ = reader(PullMessageRequest)
_WRITTEN = PullMessageResponse.writer()


def _wanted(command: Command) -> ReceiveRequest:
    """Return what a pull asks for. Raises HeaderError, Refusal."""
    header = _READ(command)
    if header.projection is not None:
        _project(b"", header.projection)
    flag = header.sys_flag
    own = None
    if flag & sys_flag.PULL_SUBSCRIPTION:
        own = Filter(expression=header.subscription, kind=header.expression_type)
    return ReceiveRequest(
        group=header.consumer_group,
        topic=header.topic,
        queue_id=header.queue_id,
        offset=header.queue_offset,
        messages_max=header.max_msg_nums,
        filter=own,
        version=header.sub_version,
        commit_offset=header.commit_offset if flag & sys_flag.PULL_COMMIT_OFFSET else None,
        wait_ms=header.suspend_timeout_millis if flag & sys_flag.PULL_SUSPEND else None,
        is_lite=command.code == RequestCode.LITE_PULL_MESSAGE,
        light=(header.lite_topic or "").strip(),
    )


def _answer(command: Command, result: ReceiveResult) -> Command:
    fields = _WRITTEN(
        {
            "suggest_which_broker_id": result.next_broker_id,
            "next_begin_offset": result.next_offset,
            "min_offset": result.min_offset,
            "max_offset": result.max_offset,
            "topic_sys_flag": result.topic_sys_flag,
            "group_sys_flag": result.group_sys_flag,
        }
    )
    records = result.records
    if (projection := (command.ext or {}).get(PROJECTION)) is not None:
        records = _project(records, projection)
        fields[PROJECTION] = OBEYED
    code = STATUSES[result.status]
    return reply_to(command, code, remark=result.detail, ext=fields, body=records)


def _project(records: bytes, projection: str) -> bytes:
    """Return only what a reader wants of messages. Raises Refusal when it does not say that."""
    try:
        return codec.project(records, projection)
    except ValueError as error:
        raise Refusal(Reason.INVALID_ARGUMENT, str(error)) from error


def _refused(command: Command, refusal: Refusal) -> Command:
    # Java clients read extFields of every answer to a pull.
    ext: dict[str, str] = {}
    if isinstance(refusal, ReceiveForbidden):
        ext["forbiddenType"] = str(FORBIDDEN_TYPES[refusal.by])
    return refusal_reply(command, refusal, ext=ext)
