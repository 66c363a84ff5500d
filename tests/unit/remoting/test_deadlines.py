"""One timer for the deadlines of all calls of a connection."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from typing import TYPE_CHECKING, Any, cast

import pytest

from remoting_harness import SLOW, calling, serving
from roquet.base.errors import OutcomeUnknown
from roquet.protocol.command import Command
from roquet.remoting.connections.in_flight import Deadlines

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclasses.dataclass
class Timer:
    """A timer of the loop below."""

    at_s: float
    fire: Callable[[], None]
    is_cancelled: bool = False

    def cancel(self) -> None:
        self.is_cancelled = True


class Loop:
    """A loop whose time the test moves."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.timers: list[Timer] = []
        self.made = 0

    def time(self) -> float:
        return self.now_s

    def call_at(self, at_s: float, function: Callable[..., None], *given: Any) -> Timer:
        self.made += 1
        timer = Timer(at_s, lambda: function(*given))
        self.timers.append(timer)
        return timer

    def go_to(self, now_s: float) -> None:
        while due := [it for it in self.timers if it.at_s <= now_s and not it.is_cancelled]:
            first = min(due, key=lambda it: it.at_s)
            self.timers.remove(first)
            self.now_s = max(self.now_s, first.at_s)
            first.fire()
        self.now_s = now_s

    @property
    def armed(self) -> list[float]:
        return [it.at_s for it in self.timers if not it.is_cancelled]


def test_calls_that_are_answered_share_one_timer() -> None:
    late: list[int] = []
    loop, deadlines = Loop(), Deadlines(late.append)
    for opaque in range(1000):
        deadlines.begin(opaque, cast("Any", loop), 3.0)
        deadlines.end(opaque)
        loop.go_to(loop.now_s + 0.001)
    assert (loop.made, len(loop.armed)) == (1, 1)
    loop.go_to(200.0)
    assert (late, loop.armed) == ([], [])


def test_each_call_ends_at_its_own_deadline() -> None:
    late: list[int] = []
    loop, deadlines = Loop(), Deadlines(late.append)
    for opaque, timeout_s in ((1, 30.0), (2, 3.0), (3, 3.0), (4, 10.0), (5, 1.0)):
        deadlines.begin(opaque, cast("Any", loop), timeout_s)
    assert loop.armed == [101.0], "the timer is that of the earliest"
    deadlines.end(5)
    loop.go_to(102.9)
    assert late == []
    loop.go_to(103.0)
    assert late == [2, 3]
    loop.go_to(111.0)
    assert late == [2, 3, 4]
    deadlines.begin(6, cast("Any", loop), 0.0)
    loop.go_to(111.0)
    assert late == [2, 3, 4, 6]
    deadlines.clear()
    loop.go_to(200.0)
    assert (late, loop.armed) == ([2, 3, 4, 6], [])


def test_calls_of_one_connection_end_by_their_own_time_outs() -> None:
    async def work() -> None:
        async with serving() as running, calling() as client:
            ended: list[float] = []

            async def ask(timeout_s: float) -> None:
                # What connecting took is not there any more for the answer.
                with pytest.raises(OutcomeUnknown, match=r"within 0\.\d+ s"):
                    await client.call(running.address, Command(SLOW), timeout_s)
                ended.append(timeout_s)

            patient = asyncio.create_task(client.call(running.address, Command(SLOW), 600.0))
            await asyncio.gather(ask(0.6), ask(0.2), ask(0.4))
            assert ended == [0.2, 0.4, 0.6]
            assert not patient.done()
            patient.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await patient

    asyncio.run(work())
