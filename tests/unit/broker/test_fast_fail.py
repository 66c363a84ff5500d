"""Overload: sends are refused while the loop lags or an append hangs, and taken again later."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import TYPE_CHECKING

import pytest

from roquet.broker.api.refusal import Refusal
from roquet.broker.config import ListenConfig
from roquet.broker.lanes import lane_configs
from roquet.broker.network.fast_fail import STUCK_MS, FastFail, FastFailConfig
from roquet.broker.remoting.refusals import CODES
from roquet.broker.state import BrokerState
from roquet.remoting.connections.waits import KernelWaits
from roquet.service.lanes import Lanes
from roquet.service.lifecycle import REST_S, Rest
from roquet.testing.clock import FakeClock

if TYPE_CHECKING:
    from collections.abc import Callable

REJECTED = "2[REJECTREQUEST]system busy, start flow control for a while"


class Story:
    def __init__(self, *, enabled: bool = True) -> None:
        self.last_ms = 0.0
        self.margin_ms = 0.0
        self.busy_ms = 0
        self.clock = FakeClock()
        self.state = BrokerState()
        rules = FastFailConfig(enabled=enabled)
        configs = [
            dataclasses.replace(config, concurrency=2)
            for config in lane_configs(ListenConfig(), rules)
        ]
        self.lanes = Lanes(configs, self.clock)
        self.rest = Rest()
        self.waits = KernelWaits(self.look, lambda: 0.0)
        self.fast_fail = FastFail(
            rules=rules,
            appends=self,
            lag=self,
            waits=self.waits,
            lanes=self.lanes,
            state=self.state,
            rest=self.rest,
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
        except Refusal as refusal:
            return f"{CODES[refusal.reason]}{refusal.text}"
        return None

    async def lag(self, last_ms: float) -> str | None:
        self.last_ms = last_ms
        self.sampled()
        return self.refusal()


def test_fast_fail_lag_alone_refuses_no_send() -> None:
    async def tell() -> None:
        story = Story()
        for lag_ms in (200, 201, 10_000, 150, 10):
            assert await story.lag(lag_ms) is None
            assert story.fast_fail.takes_sends()

    asyncio.run(tell())


def test_fast_fail_late_loop_keeps_out_only_reads_that_waited_too_long_themselves() -> None:
    async def tell() -> None:
        story = Story()
        judges: list[bool] = []
        for lag_ms in (200, 201):
            await story.lag(lag_ms)
            judges.append(story.fast_fail.judges_reads)
        assert judges == [False, True]
        for waited_ms, taken in ((200, True), (201, False), (0, True)):
            story.waits.read_ms = waited_ms
            assert story.fast_fail.takes_sends() is taken
        story.waits.read_ms = 500
        await story.lag(20)
        assert (story.fast_fail.judges_reads, story.fast_fail.takes_sends()) == (False, True)

    asyncio.run(tell())


def test_fast_fail_lag_that_may_be_longer_than_measured_counts_as_late() -> None:
    async def tell() -> None:
        story = Story()
        story.margin_ms = 50.0
        judges: list[bool] = []
        for lag_ms in (150, 151, 20):
            await story.lag(lag_ms)
            judges.append(story.fast_fail.judges_reads)
        assert judges == [False, True, False]

    asyncio.run(tell())


@pytest.mark.parametrize(
    ("age_ms", "busy_ms", "pause_s"),
    [(200, 1000, 0.1), (100, 1000, 0.05), (30, 1000, 0.02), (200, 100, 0.05), (None, 1000, 0.1)],
)
def test_fast_fail_looks_seldom_while_nothing_waits(
    age_ms: int | None, busy_ms: int, pause_s: float
) -> None:
    async def tell() -> None:
        story = Story()
        story.fast_fail.follow(FastFailConfig(enabled=True, page_cache_busy_ms=busy_ms))
        configs = [
            dataclasses.replace(lane.config, age_max_ms=age_ms, concurrency=1)
            for lane in story.lanes.all()
        ]
        story.lanes.follow(configs)
        await story.lanes.start()
        assert story.fast_fail.pause_s() == pytest.approx(pause_s)
        for _ in range(2):
            story.rest.look(idle=True)
        assert story.fast_fail.pause_s() == pytest.approx(REST_S)
        gate = asyncio.Event()
        for _ in range(2):
            story.lanes["send"].submit(Job(story.clock.now_ms(), gate))
        await asyncio.sleep(0)
        assert story.fast_fail.pause_s() == pytest.approx(0.02), "one waits for the other"
        story.lanes["send"].refuse_head("X")
        assert story.fast_fail.pause_s() == pytest.approx(pause_s), "one runs"
        gate.set()
        await asyncio.sleep(0.01)
        assert story.fast_fail.pause_s() == pytest.approx(REST_S)
        story.rest.asked()
        assert story.fast_fail.pause_s() == pytest.approx(pause_s)
        await story.lanes.stop()

    asyncio.run(tell())


def test_it_can_be_switched_off() -> None:
    story = Story(enabled=False)
    assert asyncio.run(story.lag(10_000)) is None
    assert not story.fast_fail.judges_reads
    assert {lane.config.age_max_ms for lane in story.lanes.all()} == {None}


@pytest.mark.parametrize(
    ("busy_ms", "busy"),
    [(1000, False), (1001, True), (STUCK_MS - 1, True), (STUCK_MS, False), (20_000_000, False)],
)
def test_a_hanging_append_is_a_busy_page_cache(*, busy_ms: int, busy: bool) -> None:
    story = Story()
    story.busy_ms = busy_ms
    assert story.refusal() == (REJECTED if busy else None)


def test_other_settings_hold_at_once() -> None:
    story = Story(enabled=False)
    story.busy_ms = 500
    assert story.refusal() is None
    rules = FastFailConfig(enabled=True, page_cache_busy_ms=499)
    story.lanes.follow(lane_configs(ListenConfig(), rules))
    story.fast_fail.follow(rules)
    assert story.refusal() == REJECTED
    assert not story.fast_fail.takes_sends()
    assert asyncio.run(story.lag(10_000)) == REJECTED
    assert story.fast_fail.judges_reads


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
