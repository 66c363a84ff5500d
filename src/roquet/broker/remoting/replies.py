"""SEND_REPLY_MESSAGE 324 and 325, and PUSH_REPLY_MESSAGE_TO_CLIENT 326 to the requester."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Protocol

from roquet.base.errors import OutcomeUnknown, Unreachable
from roquet.broker.api.refusal import Reason, Refusal
from roquet.broker.remoting.refusals import refusal_reply
from roquet.broker.remoting.send.frames import message
from roquet.protocol import properties as props
from roquet.protocol.codes import RequestCode, ResponseCode
from roquet.protocol.command import Command, reply_to
from roquet.protocol.headers.message import (
    ReplyMessageRequest,
    SendMessageRequest,
    SendMessageResponse,
)
from roquet.remoting.router import Request, Route

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from roquet.broker.api.caller import Caller
    from roquet.broker.api.replies import PushedReply, ReplyResult
    from roquet.broker.api.send import SendRequest
    from roquet.broker.clients.registry import Registry
    from roquet.broker.remoting.callers import Callers

log = logging.getLogger(__name__)

LANE = "reply"
PUSH_S = 10.0
"""How long the requester has to take the reply."""


class ConnectedRequesters:
    """Gives replies to clients that are connected here."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    async def push(self, client_id: str, reply: PushedReply) -> bool | None:
        """Give a client its reply: True when it took it, None when it is not connected here."""
        member = self._registry.producer_with_id(client_id)
        if member is None:
            return None
        request = reply.request
        header = ReplyMessageRequest(
            producer_group=request.producer_group,
            topic=request.topic,
            default_topic=request.template,
            default_topic_queue_nums=request.template_queues,
            queue_id=request.queue_id,
            sys_flag=request.sys_flag,
            born_timestamp=request.born_ms,
            flag=request.flag,
            properties=props.write(reply.properties),
            reconsume_times=request.attempts,
            unit_mode=request.is_unit,
            born_host=reply.born_address,
            store_host=reply.store_address,
            store_timestamp=reply.store_ms,
        )
        command = Command(
            RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT,
            ext=header.encode(),
            body=request.body,
            language="JAVA",
        )
        try:
            answer = await member.client.peer.call(command, PUSH_S)
        except (Unreachable, OutcomeUnknown) as error:
            log.info("a reply was not taken by %s: %s", client_id, error)
            return False
        return answer.code == ResponseCode.SUCCESS


class Passes(Protocol):
    """Passes replies on."""

    @property
    def check_open(self) -> Callable[[], None]:
        """Raises Refusal(BUSY) when nothing is taken at the moment."""
        ...

    @property
    def reply(self) -> Callable[[SendRequest, Caller], Awaitable[ReplyResult]]:
        """Passes one reply on."""
        ...


class ReplyAdapter:
    """Takes replies from consumers."""

    def __init__(self, replies: Passes, callers: Callers, ext: Mapping[str, str]) -> None:
        """`ext` are the fields that every answer to a send carries."""
        self._replies = replies
        self._callers = callers
        self._ext = ext

    def routes(self) -> list[Route]:
        """Return the codes this answers."""
        codes = (RequestCode.SEND_REPLY_MESSAGE, RequestCode.SEND_REPLY_MESSAGE_V2)
        return [Route(codes, self.reply, LANE)]

    async def reply(self, request: Request) -> Command:
        """Pass a reply on; the code says whether the requester took it."""
        self._replies.check_open()
        command = request.command
        short = command.code == RequestCode.SEND_REPLY_MESSAGE_V2
        header = SendMessageRequest.decode(command.ext, short=short)
        try:
            result = await self._replies.reply(message(request, header), self._callers.of(request))
        except Refusal as refusal:
            return refusal_reply(command, refusal, ext=self._ext)
        answer = SendMessageResponse.written(
            msg_id=result.message_id, queue_id=result.queue_id, queue_offset=result.queue_offset
        )
        ext = {**answer, **self._ext}
        if result.fault is not None:
            # Stored and yet a failure: the fields of both.
            return refusal_reply(command, Refusal(Reason.FAILED, result.fault), ext=ext)
        return reply_to(command, ext=ext)
