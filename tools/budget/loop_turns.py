"""Run a server of ours, and measure in it how much CPU one turn of its event loop takes.

    LOOP_TURNS_FILE=FILE python -m tools.budget.loop_turns broker -c broker.conf

A timer of 1 ms ticks on the loop. Between two ticks lies at most one turn of the loop, and 1 ms of
short ones: the CPU time that the main thread used between them is what this turn took, however
busy the host was meanwhile. Wall time is kept beside it, cut off at the CPU time of the whole
process: a thread that keeps the interpreter to itself shows there, other processes do not.
"""

from __future__ import annotations

import asyncio
import gc
import mmap
import os
import struct
import sys
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from roquet.base.overriding import override

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from contextvars import Context
    from pathlib import Path

FILE = "LOOP_TURNS_FILE"
"""The environment variable that names the file where the figures are left."""
TICK_S = 0.001
_LAYOUT = struct.Struct("=QQQdddd")
"""Period asked for, period measured, ticks in it, and the longest of each figure in seconds."""


class Longest(NamedTuple):
    """The longest of each figure within one period, in milliseconds."""

    turn_ms: float
    """CPU time of the main thread between two ticks: the figure that is judged."""
    held_ms: float
    """Time between two ticks in which this process, all of its threads, used CPU."""
    collection_ms: float
    """CPU time of one run of the garbage collector, in whichever thread it was."""
    cpu_ms: float
    """CPU time of the whole process, from the first tick of the period to the last."""
    ticks: int


class _Probe:
    """Ticks within the server's process."""

    def __init__(self, path: str) -> None:
        with open(path, "r+b") as file:  # noqa: PTH123  (a path from the environment)
            self._map = mmap.mmap(file.fileno(), _LAYOUT.size)
        self._period = 0
        self._began = 0.0
        self._ticks = 0
        self._turn = self._held = self._collection = 0.0
        self._collecting = 0.0
        self._last = (0.0, 0.0, 0.0)

    def begin(self, loop: asyncio.AbstractEventLoop) -> None:
        """Tick from now on."""
        gc.callbacks.append(self._collected)
        self._loop = loop
        self._last = _now()
        self._tick()

    def _tick(self) -> None:
        now = _now()
        wanted = int.from_bytes(self._map[:8], sys.byteorder)
        if wanted == self._period:
            turn, process, wall = (new - old for new, old in zip(now, self._last, strict=True))
            self._turn = max(self._turn, turn)
            self._held = max(self._held, min(process, wall))
            self._ticks += 1
        else:
            self._period, self._began, self._ticks = wanted, now[1], 0
            self._turn = self._held = self._collection = 0.0
        figures = (self._turn, self._held, self._collection, now[1] - self._began)
        # The period last: whoever sees it sees the figures that belong to it.
        self._map[16:] = _LAYOUT.pack(0, 0, self._ticks, *figures)[16:]
        self._map[8:16] = self._period.to_bytes(8, sys.byteorder)
        self._last = now
        self._loop.call_later(TICK_S, self._tick)

    def _collected(self, phase: str, _: dict[str, int]) -> None:
        if phase == "start":
            self._collecting = time.thread_time()
        else:
            self._collection = max(self._collection, time.thread_time() - self._collecting)


def _now() -> tuple[float, float, float]:
    return time.thread_time(), time.process_time(), time.monotonic()


class _Runner(asyncio.Runner):  # type: ignore[misc]
    """Begins the probe on the loop that it runs."""

    @override
    def run(self, coro: Coroutine[Any, Any, Any], *, context: Context | None = None) -> Any:
        loop = self.get_loop()
        loop.call_soon(_Probe(os.environ[FILE]).begin, loop)
        return super().run(coro, context=context)


class Turns:
    """The figures of a server in another process."""

    def __init__(self, path: Path) -> None:
        """Make the file `path`; give it to the server as `FILE`."""
        path.write_bytes(bytes(_LAYOUT.size))
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), _LAYOUT.size)
        self._period = 0

    async def begin(self) -> None:
        """Forget what was, and return once the server measures anew."""
        self._period += 1
        self._map[:8] = self._period.to_bytes(8, sys.byteorder)
        await self._until(0)

    async def end(self) -> Longest:
        """Return what was measured since `begin`, the last turn included."""
        await self._until(int(self._read()[2]) + 2)
        _, _, ticks, turn, held, collection, cpu = self._read()
        return Longest(turn * 1000, held * 1000, collection * 1000, cpu * 1000, ticks)

    async def _until(self, ticks: int) -> None:
        async with asyncio.timeout(60):
            while True:
                _, period, seen, *_ = self._read()
                if period == self._period and seen >= ticks:
                    return
                await asyncio.sleep(TICK_S)

    def _read(self) -> tuple[Any, ...]:
        return _LAYOUT.unpack(self._map[:])


def main() -> None:
    """Run `roquet` with the arguments given."""
    asyncio.Runner = _Runner  # type: ignore[misc]
    from roquet.cli.app import run  # noqa: PLC0415  (after the runner was replaced)

    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
