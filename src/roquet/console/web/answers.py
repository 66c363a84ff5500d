"""What goes wrong, as status and text; and the one place where work for a request is bounded."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from roquet.base.errors import (
    NotFound,
    OutcomeUnknown,
    Refused,
    RoquetError,
    Unreachable,
    UsageError,
)
from roquet.console.denied import Denied
from roquet.protocol.codes import ResponseCode

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

_NOT_THERE = (
    ResponseCode.TOPIC_NOT_EXIST,
    ResponseCode.QUERY_NOT_FOUND,
    ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
)


def status_of(error: RoquetError) -> int:
    """Return the status of HTTP that says what kind of error it is."""
    if isinstance(error, Denied):
        return error.status
    if isinstance(error, NotFound):
        return 404
    if isinstance(error, UsageError):
        return 400
    if isinstance(error, Refused):
        return 404 if error.code in _NOT_THERE else 409
    if isinstance(error, OutcomeUnknown):
        return 504
    return 502 if isinstance(error, Unreachable) else 500


class ConcurrencyLimit:
    """Places for what asks the cluster: few at a time, few that wait, none for ever."""

    def __init__(self, what: str, count: int, waiting_max: int, within_s: float) -> None:
        """Have all places free; `what` names those that want them, for who is turned away."""
        self._what = what
        self._waiting_max = waiting_max
        self._within_s = within_s
        self._places = asyncio.Semaphore(count)
        self._waiting = 0

    @contextlib.asynccontextmanager
    async def place(self) -> AsyncGenerator[None]:
        """Hold a place for a block. Raises Denied when there is none, or the time is over."""
        if self._waiting >= self._waiting_max:
            raise Denied(503, f"too many {self._what} at the same time; try again")
        try:
            async with asyncio.timeout(self._within_s):
                self._waiting += 1
                try:
                    await self._places.acquire()
                finally:
                    self._waiting -= 1
                try:
                    yield
                finally:
                    self._places.release()
        except TimeoutError as error:
            text = f"the cluster did not answer within {self._within_s:.0f} s"
            raise Denied(504, text) from error
