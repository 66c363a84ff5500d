"""CONSUMER_SEND_MSG_BACK 36: the adapter of messages that come back from consumers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from roquet.broker.api.send import SendBackRequest
from roquet.protocol.codes import RequestCode
from roquet.protocol.command import Command, reply_to
from roquet.protocol.headers.message import ConsumerSendMsgBackRequest
from roquet.remoting.router import Request, Route

if TYPE_CHECKING:
    from roquet.broker.remoting.callers import Callers
    from roquet.broker.services.send_back import SendBacks


class SendBackAdapter:
    """Takes messages back from consumers."""

    def __init__(self, send_backs: SendBacks, callers: Callers) -> None:
        self._send_backs = send_backs
        self._callers = callers

    def routes(self) -> list[Route]:
        """Return the codes served here."""
        return [Route((RequestCode.CONSUMER_SEND_MSG_BACK,), self.send_back, "send")]

    async def send_back(self, request: Request) -> Command:
        """Answer 36 once the message is stored again."""
        header = ConsumerSendMsgBackRequest.decode(request.command.ext)
        wanted = SendBackRequest(
            group=header.group,
            physical_offset=header.offset,
            delay_level=header.delay_level,
            attempts_max=header.max_reconsume_times,
            is_unit=header.unit_mode,
        )
        await self._send_backs.send_back(wanted, self._callers.of(request))
        return reply_to(request.command)
