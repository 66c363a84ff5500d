"""SEND_IN_SEQUENCE 7001 and GET_SEQUENCES 7002, our own: the adapter of appends in sequence.

Next: broker/services/sequences/service.py. A broker that answers the second one can do both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from roquet.broker.api.refusal import Reason, Refusal
from roquet.broker.api.send import SequencedRequest, SequenceRequest
from roquet.broker.remoting.refusals import STATUSES, refusal_reply
from roquet.broker.services.send.service import check_body
from roquet.protocol.codes import RequestCode
from roquet.protocol.command import Command, reply_to
from roquet.protocol.headers.message import (
    GetSequencesRequest,
    GetSequencesResponse,
    SendInSequenceRequest,
    SendInSequenceResponse,
)
from roquet.remoting.router import Request, Route

if TYPE_CHECKING:
    from roquet.broker.operations.table import Operations
    from roquet.broker.remoting.callers import Callers


class SequenceAdapter:
    """Takes messages in sequence."""

    def __init__(self, operations: Operations, callers: Callers) -> None:
        self._operations = operations
        self._callers = callers

    def routes(self) -> list[Route]:
        """Return the codes this answers."""
        return [
            Route((RequestCode.SEND_IN_SEQUENCE,), self.send, "send"),
            Route((RequestCode.GET_SEQUENCES,), self.get, "send"),
        ]

    async def send(self, request: Request) -> Command:
        """Store the messages of a request that are not stored yet."""
        command = request.command
        header = SendInSequenceRequest.decode(command.ext)
        try:
            check_body(command.body)
            wanted = SequencedRequest(
                topic=header.topic,
                queue_id=header.queue_id,
                messages=command.body,
                properties={},
                producer_group=header.producer_group,
                born_ms=header.born_timestamp,
                producer=header.producer,
                epoch=header.epoch,
                first=header.first,
                chain=_chain(header.chain),
            )
            result = await self._operations.send_in_sequence(wanted, self._callers.of(request))
        except Refusal as refusal:
            return refusal_reply(command, refusal)
        answer = SendInSequenceResponse(
            next=result.next, chain=result.chain.hex(), appended=result.appended
        )
        return reply_to(command, STATUSES[result.status], ext=answer.encode())

    async def get(self, request: Request) -> Command:
        """Tell how far a producer has come in a queue."""
        header = GetSequencesRequest.decode(request.command.ext)
        wanted = SequenceRequest(
            topic=header.topic, queue_id=header.queue_id, producer=header.producer
        )
        found = await self._operations.sequence(wanted, self._callers.of(request))
        answer = GetSequencesResponse(
            epoch=found.epoch, next=found.next, chain=found.chain.hex(), since=found.since_ms
        )
        return reply_to(request.command, ext=answer.encode())


def _chain(text: str) -> bytes:
    try:
        return bytes.fromhex(text)
    except ValueError:
        raise Refusal(Reason.INVALID_ARGUMENT, "chain has 16 hexadecimal digits") from None
