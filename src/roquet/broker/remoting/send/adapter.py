"""SEND_MESSAGE 10, 310 and 320: the adapter of sends.

Next: broker/services/send/service.py, which has the rules. Sends that were read together are
handled together, see batching.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from roquet.broker.api.refusal import Refusal
from roquet.broker.remoting.send.batching import SendBatching
from roquet.broker.remoting.send.frames import SendAnswers, batch, header_of, message
from roquet.protocol.codes import RequestCode
from roquet.remoting.router import Request, Route

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from roquet.broker.api.caller import Caller
    from roquet.broker.api.send import SendBatchRequest, SendRequest, SendResult
    from roquet.broker.messages.appender import Appender
    from roquet.broker.remoting.callers import Callers
    from roquet.broker.services.send.service import Sends
    from roquet.protocol.command import Command


class Stores(Protocol):
    """Stores messages."""

    @property
    def check_open(self) -> Callable[[], None]:
        """Raises Refusal(BUSY) when nothing is taken at the moment."""
        ...

    @property
    def send(self) -> Callable[[SendRequest, Caller], Awaitable[SendResult]]:
        """Stores one message."""
        ...

    @property
    def send_batch(self) -> Callable[[SendBatchRequest, Caller], Awaitable[SendResult]]:
        """Stores several messages."""
        ...


class SendAdapter:
    """Takes messages from producers."""

    def __init__(
        self,
        sends: Stores,
        callers: Callers,
        ext: Mapping[str, str],
        *,
        steps: Sends | None = None,
        appender: Appender | None = None,
    ) -> None:
        """`ext` are the fields that every answer to a send carries.

        With `steps` and an appender, sends that were read together are appended together.
        """
        self._sends = sends
        self._callers = callers
        self._answers = SendAnswers(ext)
        self._batching: SendBatching | None = None
        if steps is not None and appender is not None and appender.log is not None:
            self._batching = SendBatching(
                steps, callers, appender, appender.log, answers=self._answers, alone=self.send
            )

    def routes(self) -> list[Route]:
        """Return the codes this answers."""
        codes = (
            RequestCode.SEND_MESSAGE,
            RequestCode.SEND_MESSAGE_V2,
            RequestCode.SEND_BATCH_MESSAGE,
        )
        batch = None if self._batching is None else self._batching.run
        return [Route(codes, self.send, "send", batch=batch)]

    async def send(self, request: Request) -> Command:
        """Store one message or a batch."""
        # Before the header is read: a busy broker says so whatever the request holds.
        self._sends.check_open()
        header = header_of(request)
        caller = self._callers.of(request)
        try:
            if header.batch:
                result = await self._sends.send_batch(batch(request, header), caller)
            else:
                result = await self._sends.send(message(request, header), caller)
        except Refusal as refusal:
            return self._answers.refused(request, refusal)
        return self._answers.stored(request, result)
