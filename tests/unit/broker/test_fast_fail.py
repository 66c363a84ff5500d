"""Overload: sends are refused while the loop lags or an append hangs, and taken again later."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import TYPE_CHECKING

import pytest

from roquet.base.errors import Refused
from roquet.broker.config import ServerRules
from roquet.broker.fast_fail import FastFail, FastFailRules
from roquet.broker.lanes import lane_configs
from roquet.broker.state import BrokerState
from roquet.service.lanes import Lanes
from roquet.testing.clock import FakeClock

if TYPE_CHECKING:
    from collections.abc import Callable

REJECTED = "2[REJECTREQUEST]system busy, start flow control for a while"


class Story:
    def __init__(self, *, enabled: bool = True) -> None:
        self.last_ms = 0.0
        self.busy_ms = 0
        self.clock = FakeClock()
        self.state = BrokerState()
        configs = [
            dataclasses.replace(config, concurrency=2) for config in lane_configs(ServerRules())
        ]
        self.lanes = Lanes(configs, self.clock)
        self.fast_fail = FastFail(
            rules=FastFailRules(enabled=enabled),
            appends=self,
            lag=self,
            lanes=self.lanes,
            state=self.state,
        )

    def listen(self, listener: Callable[[], None]) -> None:
        self.sampled = listener

    def look(self) -> None:
        self.sampled()

    def append_busy_ms(self) -> int:
        return self.busy_ms

    def refusal(self) -> str | None:
        try:
            self.fast_fail.check()
        except Refused as refused:
            return f"{refused.code}{refused.remark}"
        return None

    async def lag(self, last_ms: float) -> str | None:
        self.last_ms = last_ms
        self.sampled()
        return self.refusal()


def test_a_lagging_loop_refuses_until_it_has_caught_up() -> None:
    async def tell() -> None:
        story = Story()
        assert await story.lag(200) is None
        assert await story.lag(201) == (
            "2[TIMEOUT_CLEAN_QUEUE]broker busy, start flow control for a while, "
            "period in queue: 201ms, size of queue: 0"
        )
        assert await story.lag(101) is not None
        assert await story.lag(100) is None
        assert await story.lag(150) is None

    asyncio.run(tell())


def test_who_listens_hears_of_every_change_once() -> None:
    async def tell() -> None:
        story = Story()
        heard: list[bool] = []
        story.fast_fail.listen(lambda: heard.append(story.fast_fail.takes_sends()))
        for lag_ms in (50, 300, 250, 120, 99, 10):
            await story.lag(lag_ms)
        assert heard == [False, True]

    asyncio.run(tell())


def test_it_can_be_switched_off() -> None:
    story = Story(enabled=False)
    assert asyncio.run(story.lag(10_000)) is None


@pytest.mark.parametrize(("busy_ms", "busy"), [(1000, False), (1001, True), (20_000_000, False)])
def test_a_hanging_append_is_a_busy_page_cache(*, busy_ms: int, busy: bool) -> None:
    story = Story()
    story.busy_ms = busy_ms
    assert story.refusal() == (REJECTED if busy else None)


def test_a_slave_takes_no_sends() -> None:
    story = Story()
    story.state.is_slave = True
    assert story.refusal() == REJECTED


class Job:
    def __init__(self, received_ms: int, gate: asyncio.Event) -> None:
        self.received_ms = received_ms
        self.gate = gate
        self.remark = ""

    async def run(self) -> None:
        await self.gate.wait()

    def refuse(self, remark: str) -> None:
        self.remark = remark


def test_waiting_sends_are_refused_by_age_and_while_an_append_hangs() -> None:
    async def tell() -> None:
        story = Story()
        gate = asyncio.Event()
        lane = story.lanes["send"]
        for _ in range(lane.config.concurrency):
            lane.submit(Job(story.clock.now_ms(), gate))
        for _ in range(10):
            await asyncio.sleep(0)
        assert lane.running == lane.config.concurrency
        old, young = (Job(story.clock.now_ms() - age, gate) for age in (201, 200))
        lane.submit(old)
        lane.submit(young)
        await story.fast_fail.tick()
        assert old.remark.startswith("[TIMEOUT_CLEAN_QUEUE]broker busy")
        assert not young.remark
        story.busy_ms = 5000
        await story.fast_fail.tick()
        assert young.remark.startswith("[PCBUSY_CLEAN_QUEUE]broker busy")
        gate.set()
        await story.lanes.stop()

    asyncio.run(tell())
