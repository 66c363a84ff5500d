"""Sends of the sink that are tried again, as the options say: over a restart of a broker."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, TypeVar

from roquet.base.clock import steady_s
from roquet.base.errors import OutcomeUnknown, Refused, Unreachable
from roquet.protocol.codes import ResponseCode

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from roquet.base.clock import Clock
    from roquet.spark.options import Wire

T = TypeVar("T")

log = logging.getLogger(__name__)

PAUSE_S: Final = 0.5
"""Between tries beyond their number, while what is away is waited for."""
_AWAY: Final = frozenset(
    {
        ResponseCode.SYSTEM_BUSY,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.GO_AWAY,
    }
)
"""A broker that starts, stops or has too much to do."""
_AGAIN: Final = _AWAY | {
    ResponseCode.SYSTEM_ERROR,
    # A name server that has just started knows no route.
    ResponseCode.TOPIC_NOT_EXIST,
}


class Tries:
    """Makes calls until they succeed, are refused for good, or took too long."""

    def __init__(self, wire: Wire, clock: Clock, now: Callable[[], float] = steady_s) -> None:
        """Take the number of tries, their pause and the time to wait from the options."""
        self._wire = wire
        self._clock = clock
        self._now = now
        self.again = 0
        """Calls that were made once more."""

    async def make(self, call: Callable[[], Awaitable[T]]) -> T:
        """Return what `call` returns. It may be made although an earlier one had its effect.

        Raises what the last try raised: Refused, Unreachable, OutcomeUnknown, UsageError.
        """
        wire, begun, attempt = self._wire, self._now(), 0
        while True:
            try:
                return await call()
            except (Refused, Unreachable, OutcomeUnknown) as error:
                if not may_again(error):
                    raise
                left_s = begun + wire.unreachable_s - self._now() if is_away(error) else 0.0
                if attempt >= wire.retries and left_s <= 0:
                    raise
                attempt += 1
                self.again += 1
                log.warning("try %d failed, another follows: %s", attempt, error)
            await self._clock.sleep(
                wire.retry_pause_s if attempt <= wire.retries else min(PAUSE_S, left_s)
            )


def may_again(error: Exception) -> bool:
    """Whether another try may succeed where this one failed. Pure."""
    return not isinstance(error, Refused) or error.code in _AGAIN


def is_away(error: Exception) -> bool:
    """Whether a try failed because a broker or name server is away for now. Pure."""
    return not isinstance(error, Refused) or error.code in _AWAY
