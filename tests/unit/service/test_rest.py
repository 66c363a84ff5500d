"""While nothing is asked of a process its timers rest; the first request ends that at once."""

from __future__ import annotations

import asyncio

import pytest

from roquet.base.clock import SystemClock
from roquet.service.lifecycle import App, Part, Rest, Timer
from roquet.service.loop_lag import LAG_TICK_S, LoopLag


class Nothing:
    async def start(self) -> None: ...

    async def stop(self) -> None: ...


def at_rest() -> Rest:
    rest = Rest()
    rest.look(idle=True)
    assert rest.look(idle=True)
    return rest


def test_rest_begins_when_nothing_was_asked_between_two_looks_and_nothing_waits() -> None:
    rest = Rest()
    assert not rest.look(idle=True), "the start counts as a request"
    assert not rest.look(idle=False), "something waits"
    assert rest.look(idle=True)
    rest.asked()
    assert not rest.is_on
    assert not rest.look(idle=True), "something was asked since the last look"
    assert rest.look(idle=True)


@pytest.mark.parametrize("waits", [False, True])
def test_end_of_a_rest_is_told_once(waits: bool) -> None:
    rest, told = at_rest(), list[bool]()
    rest.listen(lambda: told.append(rest.is_on))
    for _ in range(2):
        if waits:
            rest.look(idle=False)
        else:
            rest.asked()
    assert told == [False]


def test_timer_that_rests_runs_at_once_when_something_is_asked_and_pauses_again() -> None:
    async def main() -> None:
        rest, ran = at_rest(), asyncio.Queue[int]()

        async def action() -> None:
            async with asyncio.timeout(5):  # one that was left cancelled would end here
                await asyncio.sleep(0)
            ran.put_nowait(1)

        awake: list[int] = []

        async def other() -> None:
            awake.append(1)

        timers = (
            Timer("rests", action, 60, 60, rest),
            Timer("does not", other, 60, 60),
        )
        async with App([Part("it", Nothing(), timers=timers)], SystemClock()):
            await asyncio.sleep(0)
            for _ in range(3):
                rest.asked()
                rest.asked()
                async with asyncio.timeout(5):
                    await ran.get()
                await asyncio.sleep(0)
                rest.look(idle=True)
                assert rest.look(idle=True)
            assert ran.empty()
            assert not awake

    asyncio.run(main())


def test_stop_ends_the_pause_of_a_timer_that_was_woken_in_the_same_turn() -> None:
    async def main() -> None:
        rest, ran = at_rest(), list[int]()

        async def action() -> None:
            ran.append(1)

        timers = (Timer("rests", action, 60, 60, rest),)
        async with asyncio.timeout(5):
            async with App([Part("it", Nothing(), timers=timers)], SystemClock()):
                await asyncio.sleep(0)
                rest.asked()
        assert not ran

    asyncio.run(main())


def test_first_read_after_a_rest_is_taken_for_as_late_as_it_can_be() -> None:
    async def main() -> None:
        rest, told = at_rest(), list[float]()
        ended = list[bool]()
        rest.listen(lambda: ended.append(True))
        lag = LoopLag(rest=rest)
        await lag.start()
        lag.listen(lambda: told.append(lag.last_ms + lag.margin_ms))
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(5):
            while loop.time() - lag._ticked_s < 2 * LAG_TICK_S:  # noqa: ASYNC110
                await asyncio.sleep(LAG_TICK_S / 5)
        assert not ended
        since_ms = (loop.time() - lag._ticked_s) * 1000
        lag.look()
        assert ended == [True]
        assert told[-1] >= since_ms
        seen = len(told)
        async with asyncio.timeout(5):
            while len(told) == seen:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert told[-1] < since_ms + 1000, "the next tick measures again"
        await lag.stop()

    asyncio.run(main())
