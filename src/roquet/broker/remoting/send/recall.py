"""RECALL_MESSAGE 370: the adapter of recalls. Next: broker/services/send/recall.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

from roquet.broker.api.refusal import Refusal
from roquet.broker.api.send import RecallRequest
from roquet.broker.remoting.refusals import refusal_reply
from roquet.protocol import properties as props
from roquet.protocol.codes import RequestCode
from roquet.protocol.command import Command, reply_to
from roquet.protocol.headers.message import RecallMessageRequest, RecallMessageResponse
from roquet.remoting.router import Request, Route

if TYPE_CHECKING:
    from collections.abc import Mapping

    from roquet.broker.remoting.callers import Callers
    from roquet.broker.services.send.recall import Recalls


class RecallAdapter:
    """Takes recalls."""

    def __init__(self, recalls: Recalls, callers: Callers, ext: Mapping[str, str]) -> None:
        """`ext` are the fields that every answer to a send carries."""
        self._recalls = recalls
        self._callers = callers
        self._ext = ext

    def routes(self) -> list[Route]:
        """Return the codes this answers."""
        return [Route((RequestCode.RECALL_MESSAGE,), self.recall, "send")]

    async def recall(self, request: Request) -> Command:
        """Take back a timer message that is not due yet."""
        header = RecallMessageRequest.decode(request.command.ext)
        # Java's clients learn the region from a refusal as well.
        region = {props.MSG_REGION: self._ext[props.MSG_REGION]}
        wanted = RecallRequest(topic=header.topic, handle=header.recall_handle)
        try:
            key = await self._recalls.recall(wanted, self._callers.of(request))
        except Refusal as refusal:
            return refusal_reply(request.command, refusal, ext=region)
        answer = RecallMessageResponse(msg_id=key).encode()
        return reply_to(request.command, ext={**region, **answer})
