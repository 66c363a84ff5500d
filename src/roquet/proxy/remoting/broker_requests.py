"""What brokers ask of clients and tell them, passed on over the client's connection.

Java: check of a transaction (39), members of a group have changed (40), offsets to reset and to
show (220, 221), a reply to a request (326), what a consumer runs (307), consume this now (309).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from roquet.base.errors import Refused, RoquetError
from roquet.protocol.codes import RequestCode, ResponseCode
from roquet.protocol.headers.relayed import HEADERS, relayed, relayed_answer
from roquet.proxy.remoting.limits import BACK_CALLS_MAX, BACK_S
from roquet.remoting.router import Route

if TYPE_CHECKING:
    from collections.abc import Callable

    from roquet.protocol.command import Command
    from roquet.proxy.remoting.sessions import Session
    from roquet.remoting.router import Request

_LANE = "requests of brokers"


class BrokerRequests:
    """Handlers of what brokers ask."""

    def __init__(self, owner: Callable[[int], tuple[Session, str] | None]) -> None:
        """`owner` tells whose a connection is, by its key, and which broker's."""
        self._owner = owner

    def routes(self) -> list[Route]:
        """Return the rows of the request table."""
        return [Route(tuple(map(RequestCode, HEADERS)), self.forward, _LANE)]

    async def forward(self, request: Request) -> Command | None:
        """Pass a request on, and the client's answer back.

        Raises Refused when the client has gone, does not answer, or has too much to answer.
        """
        found = self._owner(request.peer.key)
        if found is None:
            raise Refused(ResponseCode.SYSTEM_ERROR, "the client has left the proxy")
        session, broker = found
        command = _with_broker(request.command, broker)
        if command.is_one_way:
            session.peer.send_one_way(command)
            return None
        if session.back_calls >= BACK_CALLS_MAX:
            text = f"the client has {BACK_CALLS_MAX} requests of brokers to answer"
            raise Refused(ResponseCode.SYSTEM_BUSY, text)
        session.back_calls += 1
        try:
            return relayed_answer(await session.peer.call(command, BACK_S))
        except RoquetError as error:
            text = f"client {session.peer.address} of the proxy: {error}"
            raise Refused(ResponseCode.SYSTEM_ERROR, text) from error
        finally:
            session.back_calls -= 1


def _with_broker(command: Command, broker: str) -> Command:
    """Return what the client gets; a check names its broker: its answer finds the way back."""
    is_check = command.code == RequestCode.CHECK_TRANSACTION_STATE
    if is_check and "bname" not in (command.ext or {}):
        return relayed(command, bname=broker)
    return relayed(command)
