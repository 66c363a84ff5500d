"""What one side knows of its calls on a connection, and of the clock. No socket."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

T = TypeVar("T")

_OPAQUE_MAX = 2**31 - 1
_STEP_MAX_MS = 30_000
"""Between two looks of a loop that is merely late."""


class ClockJumpDetector:
    """Tells a clock that was set from time that has passed: looks are to come every second or so.

    A silence is measured by the clock; one that somebody sets must not end every connection.
    """

    def __init__(self) -> None:
        """Have seen nothing yet."""
        self._seen_ms: int | None = None

    def jumped(self, now_ms: int) -> int:
        """Return by how many milliseconds the clock was set since the last look, mostly 0."""
        passed_ms = 0 if self._seen_ms is None else now_ms - self._seen_ms
        self._seen_ms = now_ms
        return 0 if 0 <= passed_ms <= _STEP_MAX_MS else passed_ms


class InFlight(Generic[T]):
    """Calls that wait for their answer, by opaque. Numbers wrap and skip those in use."""

    def __init__(self, calls_max: int = 65_535, first: int = 0) -> None:
        """Allow `calls_max` calls at a time, numbering from `first`."""
        self._calls: dict[int, tuple[int, T]] = {}
        self._calls_max = calls_max
        self._next = first

    def __len__(self) -> int:
        return len(self._calls)

    def number(self) -> int:
        """Return an opaque that no waiting call has (also good for a one-way)."""
        while True:
            opaque = self._next
            self._next = 0 if opaque >= _OPAQUE_MAX else opaque + 1
            if opaque not in self._calls:
                return opaque

    def begin(self, waiter: T, deadline_ms: int) -> int | None:
        """Register a call; return its opaque, or None when too many are in flight."""
        if len(self._calls) >= self._calls_max:
            return None
        opaque = self.number()
        self._calls[opaque] = (deadline_ms, waiter)
        return opaque

    def end(self, opaque: int) -> T | None:
        """Forget a call, because its answer came or its caller left; None when it is unknown."""
        call = self._calls.pop(opaque, None)
        return None if call is None else call[1]

    def expire(self, now_ms: int) -> list[T]:
        """Forget and return the calls whose deadline has passed."""
        late = [opaque for opaque, (deadline_ms, _) in self._calls.items() if deadline_ms < now_ms]
        return [self._calls.pop(opaque)[1] for opaque in late]

    def shift(self, by_ms: int) -> None:
        """Move all deadlines, because the clock was set."""
        for opaque, (deadline_ms, waiter) in self._calls.items():
            self._calls[opaque] = (deadline_ms + by_ms, waiter)

    def abandon(self) -> list[T]:
        """Forget and return all calls: the connection has gone."""
        waiters = [waiter for _, waiter in self._calls.values()]
        self._calls.clear()
        return waiters


class Deadlines:
    """When calls are to end, by opaque, under one timer of the loop for all of them.

    The timer is set for the earliest deadline and left alone when that call ends: calls that are
    answered, nearly all, then cost no timer of their own.
    """

    def __init__(self, late: Callable[[int], None]) -> None:
        """`late` hears of each call that is not ended by its deadline."""
        self._late = late
        self._ends_s: dict[int, float] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._fires_s = 0.0

    def begin(self, opaque: int, loop: asyncio.AbstractEventLoop, timeout_s: float) -> None:
        """Expect a call to end within `timeout_s`."""
        ends_s = self._ends_s[opaque] = loop.time() + timeout_s
        if self._timer is None or ends_s < self._fires_s:
            self._set(loop, ends_s)

    def end(self, opaque: int) -> None:
        """Forget a call."""
        self._ends_s.pop(opaque, None)

    def clear(self) -> None:
        """Forget all calls and the timer."""
        self._ends_s.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _set(self, loop: asyncio.AbstractEventLoop, at_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._fires_s = at_s
        self._timer = loop.call_at(at_s, self._fire, loop)

    def _fire(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        # A timer may fire within the clock's resolution before its time.
        now_s = max(loop.time(), self._fires_s)
        for opaque in [opaque for opaque, ends_s in self._ends_s.items() if ends_s <= now_s]:
            del self._ends_s[opaque]
            self._late(opaque)
        if self._ends_s:
            self._set(loop, min(self._ends_s.values()))
