"""The answer to one request of a connection: written at most once, and never too long."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from roquet.base.limits import ANSWER_SIZE_MAX
from roquet.protocol.codes import ResponseCode
from roquet.protocol.command import FLAG_ONE_WAY, reply_to

if TYPE_CHECKING:
    from collections.abc import Callable

    from roquet.protocol.command import Command
    from roquet.remoting.connections.connection import Connection


class Answering(Protocol):
    """What a server has for all its answers."""

    before_answer: Callable[[], None] | None
    on_answer: Callable[[Command, Command, int, bool], None] | None

    encoding: int
    """Header encoding of replies."""


class Reply:
    """Answers one request, at most once, never a one-way one."""

    __slots__ = ("_command", "_connection", "_received_ms", "_server", "held")

    def __init__(
        self, server: Answering, connection: Connection, command: Command, received_ms: int
    ) -> None:
        self._server = server
        self._connection: Connection | None = connection
        self._command = command
        self._received_ms = received_ms
        self.held = False
        """Whether the handler has returned before it had an answer."""

    def keep(self, command: Command) -> None:
        """Answer what is kept of the request; its fields were read, and it may wait for long."""
        assert command.opaque == self._command.opaque, "it is the same request"
        self._command = command

    def __call__(self, answer: Command) -> None:
        """Write the answer, if the request wants one."""
        connection, self._connection = self._connection, None
        if connection is None:
            return
        command, server = self._command, self._server
        if len(answer.body) > ANSWER_SIZE_MAX:
            # A peer closes the connection at a longer frame, with everything that it waits for.
            answer = _too_long(command, len(answer.body))
        if server.before_answer is not None:
            # Nobody who reads this answer may meet a row from before it.
            server.before_answer()
        if server.on_answer is not None:
            server.on_answer(command, answer, self._received_ms, self.held)
        if command.flag & FLAG_ONE_WAY:
            return
        answer.opaque = command.opaque
        answer.encoding = server.encoding
        connection.reply(answer)


def _too_long(command: Command, size: int) -> Command:
    remark = f"the answer has {size} bytes: a frame has room for {ANSWER_SIZE_MAX}"
    return reply_to(command, ResponseCode.SYSTEM_ERROR, remark=remark)
