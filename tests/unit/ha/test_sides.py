"""The two sides of a pair as parts of the broker, over replication that only notes calls."""

from __future__ import annotations

import asyncio
import logging
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from roquet.broker.replication.pair import TICK_S, CopiedStore, MasterSide, SlaveSide
from roquet.broker.state import BrokerState
from roquet.service.lifecycle import REST_S, Rest
from roquet.store.marks import diverged
from roquet.testing.clock import FakeClock

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def fact(state: BrokerState, name: str) -> bool:
    """Return a fact as it is now, which a type checker takes for what it was."""
    return bool(getattr(state, name))


class Slave:
    """Notes what it is told; `link` is the connection to the master."""

    def __init__(self) -> None:
        self.link: object = None
        self.said: list[object] = []

    async def start(self) -> None:
        self.said.append("start")

    async def stop(self) -> None:
        self.said.append("stop")

    async def tick(self) -> None:
        self.said.append("tick")

    def learn(self, address: str | None) -> None:
        self.said.append(address)


def slave_side(slave: Slave) -> tuple[SlaveSide, BrokerState, list[object]]:
    state, learnt = BrokerState(is_slave=True), list[object]()

    async def tick() -> None:
        learnt.append("tick")

    sync = SimpleNamespace(tick=tick, look_at_deletions=tick, learn=learnt.append)
    side = SlaveSide(cast("Any", slave), cast("Any", sync), state, 10.0)
    return side, state, learnt


def test_slave_has_a_master_while_it_is_connected() -> None:
    slave = Slave()
    side, state, _ = slave_side(slave)

    async def run() -> None:
        await side.start()
        await side.tick()
        assert not fact(state, "has_master")
        slave.link = object()
        await side.tick()
        assert fact(state, "has_master")
        await side.stop()
        assert not fact(state, "has_master")
        assert slave.said == ["start", "tick", "tick", "stop"]

    asyncio.run(run())


def test_slave_tells_both_its_parts_where_the_master_is() -> None:
    slave = Slave()
    side, _, learnt = slave_side(slave)
    side.learn("a:1", "a:2")
    assert (learnt, slave.said) == (["a:1"], ["a:2"])


class Replicas:
    """What slaves have, as a test says."""

    def __init__(self) -> None:
        self.lacks = False
        self.asked: list[int] = []
        self.changed: Callable[[int], None] = lambda _watermark: None
        self.lapsed: Callable[..., None] | None = None

    def listen(self, listener: Callable[[int], None]) -> None:
        self.changed = listener

    def on_lapse(self, listener: Callable[..., None]) -> None:
        self.lapsed = listener

    def lacks_slaves(self, end: int) -> bool:
        self.asked.append(end)
        return self.lacks


class Master:
    """The port for slaves."""

    def __init__(self) -> None:
        self.replicas = Replicas()
        self.log = SimpleNamespace(limit=1000)
        self.alone = Rest()
        self.said: list[object] = []
        self.lag: int | None = None

    async def listen(self, host: str, port: int) -> int:
        self.said.append((host, port))
        return port or 4711

    async def stop(self) -> None:
        self.said.append("stop")

    async def tick(self) -> None:
        self.said.append("tick")

    def behind(self) -> int | None:
        return self.lag


class MasterWorld:
    def __init__(self, port: int | None) -> None:
        self.master = Master()
        self.state = BrokerState()
        self.identity = SimpleNamespace(port=10911, ha_port=0)
        self.replicated: list[int] = []
        self.side = MasterSide(
            cast("Any", self.master),
            cast("Any", self.identity),
            self.state,
            host="h",
            port=port,
            replicated=self.replicated.append,
            lapsed=lambda _offset: None,
        )


def test_port_for_slaves_is_the_one_after_the_broker_s_unless_it_is_set() -> None:
    for port, heard, told in ((None, 10912, 10912), (0, 0, 4711), (5000, 5000, 5000)):
        it = MasterWorld(port)
        asyncio.run(it.side.start())
        assert it.master.said == [("h", heard)]
        assert it.identity.ha_port == told


def test_master_knows_from_start_and_tick_whether_it_lacks_slaves_at_the_end_of_its_log() -> None:
    it = MasterWorld(None)
    it.master.replicas.lacks = True
    asyncio.run(it.side.start())
    assert fact(it.state, "lacks_slave")
    it.master.replicas.lacks = False
    asyncio.run(it.side.tick())
    assert not fact(it.state, "lacks_slave")
    assert it.master.replicas.asked == [1000, 1000]
    assert it.master.said[1:] == ["tick"]


def test_slaves_are_looked_at_seldom_while_nobody_is_connected() -> None:
    it = MasterWorld(None)
    feeds, _ = it.side.timers
    assert feeds.pause_s == TICK_S
    for _ in range(2):
        it.master.alone.look(idle=True)
    assert feeds.pause_s == REST_S
    assert feeds.rest is it.master.alone
    it.master.alone.asked()
    assert feeds.pause_s == TICK_S


def test_watermark_of_slaves_is_told_only_when_it_grows() -> None:
    it = MasterWorld(None)
    asyncio.run(it.side.start())
    for watermark in (100, 100, 99, 101):
        it.master.replicas.changed(watermark)
    assert it.replicated == [100, 101]
    # A report of a slave that was lacking is a reason to look; others that grow are not.
    assert it.master.replicas.asked == [1000] * 3
    it.master.replicas.lacks = True
    it.master.replicas.changed(101)
    assert fact(it.state, "lacks_slave")
    it.master.replicas.lacks = False
    it.master.replicas.changed(102)
    assert not fact(it.state, "lacks_slave")
    asyncio.run(it.side.stop())
    asked = len(it.master.replicas.asked)
    it.master.replicas.changed(102)
    assert len(it.master.replicas.asked) == asked


def test_log_line_says_how_far_slaves_are_behind_while_there_are_any(
    caplog: pytest.LogCaptureFixture,
) -> None:
    it = MasterWorld(None)
    with caplog.at_level(logging.INFO, logger="roquet"):
        asyncio.run(it.side.log_difference())
        assert "fall behind" not in caplog.text
        it.master.lag = 0
        asyncio.run(it.side.log_difference())
        assert "fall behind master: 0 bytes" in caplog.text


def test_log_that_is_no_copy_is_told_again_after_a_minute(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock = FakeClock()
    it = CopiedStore(tmp_path, BrokerState(is_slave=True), clock)
    for seconds, lines in ((0, 1), (59.999, 1), (0.0015, 2), (59.999, 2), (-120, 3)):
        clock.set_by(seconds)
        it.judged("differs")
        assert sum("differs" in message for message in caplog.messages) == lines


def test_first_byte_that_slaves_have_is_told() -> None:
    it = MasterWorld(None)
    it.master.replicas.changed(0)
    assert it.replicated == []
    it.master.replicas.changed(1)
    assert it.replicated == [1]
    # Before the port is open nobody is missed: the broker is no master yet.
    it.master.replicas.lacks = True
    it.state.lacks_slave = True
    for watermark in (1, 2):
        it.master.replicas.changed(watermark)
    assert (it.replicated, it.master.replicas.asked) == ([1, 2], [])


@pytest.mark.parametrize(("interval_s", "first_s"), [(10.0, 1), (0.5, 0.5)])
def test_sides_do_their_work_at_these_intervals(interval_s: float, first_s: float) -> None:
    def times(side: SlaveSide | MasterSide) -> list[tuple[object, float | None]]:
        return [(timer.every_s, timer.first_after_s) for timer in side.timers]

    sync = SimpleNamespace(tick=None, look_at_deletions=None)
    state = BrokerState(is_slave=True)
    side = SlaveSide(cast("Any", Slave()), cast("Any", sync), state, interval_s)
    assert times(side)[1:] == [(interval_s, first_s), (1, 1)]
    assert times(MasterWorld(None).side)[1] == (60, 10)


def test_log_that_is_no_copy_is_marked_and_not_read_until_it_is_one_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock, state = FakeClock(), BrokerState(is_slave=True)
    it = CopiedStore(tmp_path, state, clock)
    it.judged(None)
    assert not fact(state, "has_diverged")
    for _ in range(3):
        it.judged("differs")
    assert fact(state, "has_diverged")
    assert diverged.read(tmp_path) == "differs"
    assert sum("differs" in record.message for record in caplog.records) == 1
    again = BrokerState(is_slave=True)
    asyncio.run(CopiedStore(tmp_path, again, clock).start())
    assert fact(again, "has_diverged")
    it.judged(None)
    assert not fact(state, "has_diverged")
    assert diverged.read(tmp_path) is None
    fresh = BrokerState(is_slave=True)
    asyncio.run(CopiedStore(tmp_path, fresh, clock).start())
    assert not fact(fresh, "has_diverged")


def test_marked_log_of_a_broker_that_leads_now_is_read_and_its_mark_goes(tmp_path: Path) -> None:
    diverged.mark(tmp_path, "differs")
    state = BrokerState()
    asyncio.run(CopiedStore(tmp_path, state, FakeClock()).start())
    assert not fact(state, "has_diverged")
    assert diverged.read(tmp_path) is None
