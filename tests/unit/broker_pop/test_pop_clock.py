"""Invisible times of pops while the clock of the host is set: neither early nor late."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from typing import TYPE_CHECKING

import pytest

from broker_harness import dispatched
from pop_harness import TOPIC, ack_command, invisible_command, pop
from roquet.base.clock import HeldClock, SystemClock
from roquet.base.overriding import override
from roquet.remoting.client import Client
from roquet.testing.cluster import Cluster, running_broker, running_name_server

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable
    from pathlib import Path

FAST = {"timerPrecisionMs": "100", "reviveInterval": "100", "mappedFileSizeTimerLog": "65536"}
HOUR_MS = 3_600_000
LEADS = [1, 80, 10 * 365 * 24]
"""Hours."""
INVISIBLE_MS = 2000
WITHIN_MS = 5000


class SetClock(SystemClock):
    """The clock of the host, as somebody sets it."""

    def __init__(self) -> None:
        self.ahead_ms = 0
        self.frozen_ms: int | None = None

    @override
    def now_ms(self) -> int:
        return (super().now_ms() if self.frozen_ms is None else self.frozen_ms) + self.ahead_ms


def play(
    folder: Path, tell: Callable[[Cluster, SetClock], Awaitable[None]], **changes: str
) -> None:
    """Run a broker with a clock that a story sets."""

    async def run() -> None:
        async with _running(folder, changes) as (it, clock):
            await tell(it, clock)

    asyncio.run(run())


@contextlib.asynccontextmanager
async def _running(
    folder: Path, changes: dict[str, str]
) -> AsyncGenerator[tuple[Cluster, SetClock]]:
    clock, client = SetClock(), Client(clock=SystemClock())
    async with running_name_server(folder / "namesrv") as server:
        address = f"127.0.0.1:{server.server.port}"
        given = {**FAST, **changes}
        async with running_broker(folder / "broker", address, changes=given, clock=clock) as broker:
            await client.start()
            try:
                yield Cluster(server, (broker,), client), clock
            finally:
                await client.stop()


async def came_after_ms(it: Cluster, begin_ms: int) -> int:
    """Return how long after a moment of the steady clock a message came again."""
    while not (await pop(it)).records:
        passed_ms = SystemClock().steady_ms() - begin_ms
        assert passed_ms < INVISIBLE_MS + WITHIN_MS, "the message has not come again"
        await asyncio.sleep(0.05)
    return SystemClock().steady_ms() - begin_ms


@pytest.mark.parametrize("fast", ["true", "false"])
@pytest.mark.parametrize("hours", LEADS)
def test_message_popped_while_the_clock_is_ahead_comes_again_in_time(
    tmp_path: Path, hours: int, fast: str
) -> None:
    async def tell(it: Cluster, clock: SetClock) -> None:
        await it.send(TOPIC, b"x")
        await dispatched(it)
        clock.ahead_ms = hours * HOUR_MS
        begin_ms = clock.steady_ms()
        got = await pop(it, invisibleTime=str(INVISIBLE_MS))
        assert abs(got.handles[0].pop_time_ms - SystemClock().now_ms()) < WITHIN_MS
        await asyncio.sleep(0.5)
        clock.ahead_ms = 0
        assert await came_after_ms(it, begin_ms) >= INVISIBLE_MS

    play(tmp_path, tell, fastPathEnable=fast)


@pytest.mark.parametrize("fast", ["true", "false"])
@pytest.mark.parametrize("hours", LEADS)
def test_invisible_time_asked_for_while_the_clock_is_ahead_is_as_long_as_asked(
    tmp_path: Path, hours: int, fast: str
) -> None:
    async def tell(it: Cluster, clock: SetClock) -> None:
        await it.send(TOPIC, b"x")
        await dispatched(it)
        got = await pop(it, invisibleTime="60000")
        clock.ahead_ms = hours * HOUR_MS
        begin_ms = clock.steady_ms()
        changed = invisible_command(got.handles[0], invisibleTime=str(INVISIBLE_MS))
        assert (await it.call(changed)).code == 0
        clock.ahead_ms = 0
        assert await came_after_ms(it, begin_ms) >= INVISIBLE_MS

    play(tmp_path, tell, fastPathEnable=fast)


@pytest.mark.parametrize("order", ["false", "true"])
def test_clock_that_stands_still_brings_nothing_early_and_all_when_it_goes_on(
    tmp_path: Path, order: str
) -> None:
    async def tell(it: Cluster, clock: SetClock) -> None:
        await it.send(TOPIC, b"x")
        await dispatched(it)
        clock.frozen_ms = clock.now_ms()
        begin_ms = clock.steady_ms()
        fields = {"order": order, "queueId": "0"}
        assert (await pop(it, invisibleTime=str(INVISIBLE_MS), **fields)).bodies == [b"x"]
        while clock.steady_ms() - begin_ms < INVISIBLE_MS + 500:
            early = await pop(it, **fields)
            assert not early.records
            await asyncio.sleep(0.1)
        clock.frozen_ms = None
        while not (await pop(it, **fields)).records:
            assert clock.steady_ms() - begin_ms < 2 * INVISIBLE_MS + WITHIN_MS
            await asyncio.sleep(0.05)

    play(tmp_path, tell)


def test_message_popped_by_a_clock_that_was_believed_comes_in_time_once_it_is_set_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def tell(it: Cluster, clock: SetClock) -> None:
        for body in (b"acknowledged", b"left"):
            await it.send(TOPIC, body)
        await dispatched(it)
        clock.ahead_ms = 2 * HOUR_MS
        await pop(it, "nowhere")
        await asyncio.sleep(0.3)
        begin_ms = clock.steady_ms()
        got = await pop(it, invisibleTime=str(INVISIBLE_MS), bornTime=str(clock.now_ms()))
        assert got.handles[0].pop_time_ms > SystemClock().now_ms() + HOUR_MS
        await asyncio.sleep(0.3)
        clock.ahead_ms = 0
        await asyncio.sleep(0.3)
        assert (await it.call(ack_command(got.handles[0]))).code == 0
        assert await came_after_ms(it, begin_ms) >= INVISIBLE_MS
        await asyncio.sleep(1)
        assert not (await pop(it)).records

    short = functools.partial(HeldClock, hold_ms=200)
    monkeypatch.setattr("roquet.broker.wiring.base.HeldClock", short)
    play(tmp_path, tell)
