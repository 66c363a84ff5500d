"""Micro-batches that wait until they are large enough. Pure but for the clock that is handed in."""

from __future__ import annotations

from typing import TYPE_CHECKING

from roquet.base.clock import steady_s

if TYPE_CHECKING:
    from collections.abc import Callable


class Gathering:
    """Holds a micro-batch back while it is small, for a limited time.

    Invariant: no message that a plan has seen waits longer than the limit before a micro-batch
    begins, however few there are. The time counts from the first plan that saw it; a query that is
    started again begins to count anew.
    """

    def __init__(
        self, rows_min: int | None, limit_s: float, now: Callable[[], float] = steady_s
    ) -> None:
        """Wait for `rows_min` rows, None: for nothing; at most `limit_s` seconds."""
        self._rows_min = rows_min
        self._limit_s = limit_s
        self._now = now
        self._since: float | None = None

    def waits(self, rows: int) -> bool:
        """Whether a plan that sees so many rows is to leave them for a later one."""
        if self._rows_min is None or not 0 < rows < self._rows_min:
            self._since = None
            return False
        now = self._now()
        if self._since is None:
            self._since = now
        if now - self._since < self._limit_s:
            return True
        self._since = None
        return False
