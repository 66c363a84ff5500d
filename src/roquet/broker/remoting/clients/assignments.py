"""QUERY_ASSIGNMENT 400, SET_MESSAGE_REQUEST_MODE 401 and GET_ALL_MESSAGE_REQUEST_MODE 402."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from roquet.broker.api.assignments import AssignmentRequest
from roquet.broker.api.refusal import Reason, Refusal
from roquet.model.subscription import MessageModel
from roquet.protocol.bodies.assignments import (
    QueryAssignmentBody,
    decode_request_mode,
    encode_assignments,
)
from roquet.protocol.codes import RequestCode
from roquet.protocol.command import Command, reply_to
from roquet.protocol.fastjson import JsonError
from roquet.remoting.router import Request, Route

if TYPE_CHECKING:
    from collections.abc import Callable

    from roquet.broker.remoting.callers import Callers
    from roquet.broker.services.clients.assignments import Assignments

LANE = "load_balance"
_Body = TypeVar("_Body")


class AssignmentAdapter:
    """Answers members that let the broker share queues, and operators that set how."""

    def __init__(self, assignments: Assignments, callers: Callers) -> None:
        self._assignments = assignments
        self._callers = callers

    def routes(self) -> list[Route]:
        """Return the codes this answers."""
        return [
            Route((RequestCode.QUERY_ASSIGNMENT,), self.assignment, LANE),
            Route((RequestCode.SET_MESSAGE_REQUEST_MODE,), self.set_mode, LANE),
            Route((RequestCode.GET_ALL_MESSAGE_REQUEST_MODE,), self.modes, "admin"),
        ]

    async def assignment(self, request: Request) -> Command:
        """Answer 400: the queues of one member."""
        body = _read(QueryAssignmentBody.decode, request)
        wanted = AssignmentRequest(
            topic=body.topic,
            group=body.group,
            client_id=body.client_id,
            strategy=body.strategy,
            is_broadcasting=body.model is MessageModel.BROADCASTING,
        )
        result = await self._assignments.of(wanted, self._callers.of(request))
        return reply_to(request.command, body=encode_assignments(result.queues, result.mode))

    async def set_mode(self, request: Request) -> Command:
        """Answer 401 once the mode is durable."""
        mode = _read(decode_request_mode, request)
        await self._assignments.set_mode(mode, self._callers.of(request))
        return reply_to(request.command)

    def modes(self, request: Request) -> Command:
        """Answer 402: everything that was set."""
        return reply_to(request.command, body=self._assignments.modes().encode())


def _read(decode: Callable[[bytes], _Body], request: Request) -> _Body:
    """Read a body. Raises Refusal: what a client sends is no failure of the broker."""
    try:
        return decode(request.command.body)
    except JsonError as error:
        text = f"the body cannot be read: {error}"
        raise Refusal(Reason.FAILED, text) from error
