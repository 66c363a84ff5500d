"""How long something that is away is waited for, and what is said meanwhile."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from roquet.base.clock import pause, steady_s
from roquet.base.errors import Unreachable

if TYPE_CHECKING:
    from collections.abc import Callable

log = logging.getLogger(__name__)

PAUSE_S: Final = 1.0
SAY_EVERY_S: Final = 10.0


class Patience:
    """Waits again and again until a limit is over; `reset` when what was away is back."""

    def __init__(
        self,
        limit_s: float,
        wait: Callable[[float], None] = pause,
        now: Callable[[], float] = steady_s,
        say: Callable[[str], None] = log.warning,
    ) -> None:
        """Begin to count with the first wait. Times in seconds."""
        self._limit_s = limit_s
        self._wait = wait
        self._now = now
        self._say = say
        self._begun: float | None = None
        self._said: float | None = None

    def wait(self, what: str) -> None:
        """Wait a moment for `what` is away. Raises Unreachable, which names it, after the limit."""
        now = self._now()
        if self._begun is None:
            self._begun = now
        waited = now - self._begun
        if waited >= self._limit_s:
            raise Unreachable(
                f"{what}; it was waited for {waited:.0f} s (unreachableTimeoutMs ="
                f" {1000 * self._limit_s:.0f})"
            )
        if self._said is None or now - self._said >= SAY_EVERY_S:
            self._said = now
            self._say(f"{what}; waiting, {self._limit_s - waited:.0f} s more at most")
        self._wait(min(PAUSE_S, self._limit_s - waited))

    def reset(self) -> None:
        """Give the next wait the whole time."""
        self._begun = self._said = None
