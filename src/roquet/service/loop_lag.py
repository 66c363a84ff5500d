"""How late the event loop is, and for how much of that the host ran others instead of it."""

from __future__ import annotations

import asyncio
import contextlib
import os
from typing import TYPE_CHECKING

from roquet.service.lifecycle import REST_S

if TYPE_CHECKING:
    from collections.abc import Callable

    from roquet.service.lifecycle import Rest
    from roquet.service.metrics import Metrics

_FILE = "/proc/thread-self/schedstat"
_LAG_BUCKETS_S = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 5.0)
LAG_TICK_S = 0.1
"""A lag is found too small by up to this: nobody knows when within a tick it began."""
_OVERDUE_S = 0.1


class RunDelay:
    """How long the thread that calls `open` was ready to run while the host ran others.

    Linux counts it for each thread; it is always 0 where the kernel keeps no count.
    """

    def __init__(self) -> None:
        """Know nothing yet."""
        self._file: int | None = None

    def open(self) -> None:
        """Begin to look, on the thread that it is about."""
        self.close()
        with contextlib.suppress(OSError):
            self._file = os.open(_FILE, os.O_RDONLY | os.O_CLOEXEC)

    def close(self) -> None:
        """Look no more."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def total_ms(self) -> float:
        """Return milliseconds since the thread began."""
        if self._file is None:
            return 0.0
        try:
            fields = os.pread(self._file, 128, 0).split()
            return int(fields[1]) / 1e6
        except (OSError, IndexError, ValueError):
            return 0.0


class LoopLag:
    """How late the loop runs what is due: a tick every 100 ms measures its own delay. A service."""

    def __init__(self, metrics: Metrics | None = None, rest: Rest | None = None) -> None:
        """Report to `metrics` when given; tick once a second while the process is at `rest`."""
        self._rest = rest
        if rest is not None:
            rest.listen(self._wake)
        self.last_ms = 0.0
        """The latest sample."""
        self._delay = RunDelay()
        self._delays_ms = (0.0, 0.0)
        """Run queue delay at the last tick but one, and at the last."""
        self._max_ms = 0.0
        self._due_s = 0.0
        self._ticked_s = 0.0
        self._time: Callable[[], float] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._listeners: list[Callable[[], None]] = []
        self._histogram = None
        if metrics is not None:
            self._histogram = metrics.histogram(
                "loop_lag_seconds", "How late the event loop was", _LAG_BUCKETS_S
            )
            metrics.watch(
                "loop_lag_max_seconds",
                "Worst lag since it was last asked",
                lambda: self.take_max_ms() / 1000,
            )

    @property
    def margin_ms(self) -> float:
        """By how much a sample may be below the true lag: that began within a tick."""
        return LAG_TICK_S * 1000

    def listen(self, listener: Callable[[], None]) -> None:
        """Have `listener` called after each sample, before the loop reads from any socket."""
        self._listeners.append(listener)

    def look(self) -> None:
        """Take a sample at once when the tick is long overdue: sockets may come before timers.

        Called before the loop reads from a socket; so it ends the rest.
        """
        if self._rest is not None:
            self._rest.asked()
        time = self._time
        if time is not None and (late_s := time() - self._due_s) > _OVERDUE_S:
            self.last_ms = late_s * 1000
            self._tell()

    def denied_ms(self) -> float:
        """Return for how long the host ran others since a moment before the lag of last began."""
        return self._delay.total_ms() - self._delays_ms[0]

    def take_max_ms(self) -> float:
        """Return the worst lag since the last time, and begin anew."""
        worst, self._max_ms = self._max_ms, 0.0
        return worst

    async def start(self) -> None:
        """Begin to tick."""
        loop = asyncio.get_running_loop()
        self._time = loop.time
        self._delay.open()
        # The thread may have waited for long before the loop was there.
        self._delays_ms = (self._delay.total_ms(),) * 2
        self._ticked_s = loop.time()
        self._schedule(loop)

    async def stop(self) -> None:
        """End the tick."""
        self._time = None
        self._delay.close()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _schedule(self, loop: asyncio.AbstractEventLoop) -> None:
        # On the beat of the short timers (`base.clock.to_beat`), but never later than a tick.
        is_at_rest = self._rest is not None and self._rest.is_on
        now_ms, tick_ms = (
            round(loop.time() * 1000),
            round((REST_S if is_at_rest else LAG_TICK_S) * 1000),
        )
        self._due_s = (now_ms // tick_ms + 1) * tick_ms / 1000
        self._timer = loop.call_at(self._due_s, self._tick, loop)

    def _tick(self, loop: asyncio.AbstractEventLoop) -> None:
        self._ticked_s = loop.time()
        lag_s = max(0.0, self._ticked_s - self._due_s)
        self.last_ms = lag_s * 1000
        self._max_ms = max(self._max_ms, self.last_ms)
        self._delays_ms = self._delays_ms[1], self._delay.total_ms()
        if self._histogram is not None:
            self._histogram.observe((), lag_s)
        self._tell()
        self._schedule(loop)

    def _wake(self) -> None:
        """Go on at the pace of a process that is asked; nobody knows how late it is by now.

        So what is read until the next tick is taken for as late as it can be since the last one.
        """
        if self._timer is None:
            return
        self._timer.cancel()
        loop = asyncio.get_running_loop()
        self.last_ms = max(0.0, (loop.time() - self._ticked_s) * 1000 - self.margin_ms)
        self._tell()
        self._schedule(loop)

    def _tell(self) -> None:
        for hear in self._listeners:
            hear()
