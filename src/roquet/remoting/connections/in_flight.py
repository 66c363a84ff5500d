"""What one side knows of its calls on a connection, and of the clock. No socket."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from contextvars import Context

    from roquet.protocol.command import Command

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


class Answer:
    """What a call awaits as it does a future: the peer's command, or an error.

    A future of asyncio wakes the task that awaits it in the next turn of the loop, which asks the
    kernel for events once more before: for calls made one after the other that is two turns and
    two system calls each. `give_now` runs the task's next step within the read that brought the
    answer instead. It has of a future what tasks ask for (`asyncio.isfuture` is true of it), and no
    more. Invariants: one task awaits it; that is woken once, and never from within another task.
    """

    __slots__ = ("_asyncio_future_blocking", "_command", "_context", "_error",
                 "_is_done", "_loop", "_wake")  # fmt: skip

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        """Wait; nobody awaits it yet."""
        self._asyncio_future_blocking = False
        self._loop = loop
        self._wake: Callable[[Any], object] | None = None
        self._context: Context | None = None
        self._is_done = False
        self._command: Command | None = None
        self._error: BaseException | None = None

    def __await__(self) -> Generator[Answer, None, Command]:
        """Suspend the task until there is something."""
        if not self._is_done:
            self._asyncio_future_blocking = True
            yield self
        return self.result()

    def done(self) -> bool:
        """Tell whether there is an answer or an error, or the caller left."""
        return self._is_done

    def give(self, command: Command) -> None:
        """Have the caller go on with an answer in the next turn of the loop."""
        self._command = command
        self._end()

    def give_now(self, command: Command) -> None:
        """Have the caller go on with an answer at once, until it awaits something else.

        For what runs as a callback of the loop and has nothing else to do; what runs in a task
        gives the answer as `give` does.
        """
        wake, context = self._wake, self._context
        if wake is None or context is None or asyncio.current_task(self._loop) is not None:
            self.give(command)
            return
        self._command = command
        self._is_done = True
        self._wake = self._context = None
        try:
            context.run(wake, self)
        except (SystemExit, KeyboardInterrupt) as error:
            # The program's end goes to whoever runs the loop, not to the transport that read.
            self._loop.call_soon(_raise, error)

    def fail(self, error: Exception) -> None:
        """Have the caller go on with an error in the next turn of the loop."""
        self._error = error
        self._end()

    # --- what tasks ask for ------------------------------------------------------------------

    def get_loop(self) -> asyncio.AbstractEventLoop:
        """Return the loop of the task that may await it."""
        return self._loop

    def add_done_callback(
        self, wake: Callable[[Any], object], *, context: Context | None = None
    ) -> None:
        """Keep what wakes the task."""
        if self._is_done:
            self._loop.call_soon(wake, self, context=context)
        else:
            assert self._wake is None, "one task awaits an answer"
            self._wake, self._context = wake, context

    def cancel(self, msg: object = None) -> bool:
        """Let the task that awaits it be cancelled; False when there is an answer already."""
        if self._is_done:
            return False
        self._error = asyncio.CancelledError() if msg is None else asyncio.CancelledError(msg)
        self._end()
        return True

    def result(self) -> Command:
        """Return the answer, or raise the error, which is not kept.

        An error holds the frames that it has passed, and they hold this and the whole request: kept
        here, all of them would stay until the collector looks at old objects.
        """
        error, self._error = self._error, None
        if error is not None:
            try:
                raise error
            finally:
                del error
        assert self._command is not None
        return self._command

    # --- inside ------------------------------------------------------------------------------

    def _end(self) -> None:
        self._is_done = True
        wake, self._wake = self._wake, None
        if wake is not None:
            self._loop.call_soon(wake, self, context=self._context)
        self._context = None


def _raise(error: BaseException) -> None:
    raise error
