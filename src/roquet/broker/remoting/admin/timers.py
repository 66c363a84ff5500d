"""What slaves copy of the timer wheel (60, 61; spec: wire §8.4)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from roquet.broker.api.refusal import Reason, Refusal
from roquet.protocol.codes import RequestCode
from roquet.protocol.command import Command, reply_to
from roquet.remoting.router import Request, Route

if TYPE_CHECKING:
    from roquet.broker.timers.service import TimerService

_OFF = "the timer wheel is off (timerWheelEnable), or was never saved here"


class TimerAdapter:
    """Answers what slaves ask about the timers of their master."""

    def __init__(self, service: TimerService) -> None:
        self._service = service

    def routes(self) -> list[Route]:
        """Return the codes this answers."""
        return [
            Route((RequestCode.GET_TIMER_CHECK_POINT,), self.checkpoint, "admin"),
            Route((RequestCode.GET_TIMER_METRICS,), self.metrics, "admin"),
        ]

    async def checkpoint(self, request: Request) -> Command:
        """Return how far the wheel is, for a slave."""
        body = await self._service.checkpoint()
        if body is None:
            raise Refusal(Reason.FAILED, _OFF)
        return reply_to(request.command, body=body)

    async def metrics(self, request: Request) -> Command:
        """Return the waiting messages by topic, for a slave."""
        body = await self._service.export()
        if body is None:
            raise Refusal(Reason.FAILED, _OFF)
        return reply_to(request.command, body=body.encode())
