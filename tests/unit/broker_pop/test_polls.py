"""Requests that wait for messages to pop: whom an arrival wakes, and when the wait is over."""

from __future__ import annotations

import asyncio
import dataclasses
import random
from typing import TYPE_CHECKING, Any, cast

import pytest

from roquet.broker.pop.receive.polls import WAKES_PER_TURN, Poll, PopPolls, Waiting
from roquet.broker.pop.receive.rules import PopConfig
from roquet.testing.clock import FakeClock

if TYPE_CHECKING:
    from collections.abc import Callable

    from roquet.protocol.command import Command

ALL = -1


@dataclasses.dataclass
class SomePeer:
    """A connection."""

    key: int = 1
    is_open: bool = True
    address: str = "127.0.0.1:1"

    def send_one_way(self, command: Command) -> None:
        raise NotImplementedError

    async def call(self, command: Command, timeout_s: float) -> Command:
        raise NotImplementedError

    def close(self, why: str) -> None:
        raise NotImplementedError


class World:
    """Polls, and the names of those that were woken."""

    def __init__(self, rules: PopConfig | None = None, *, newest_first: bool = False) -> None:
        self.clock = FakeClock()
        self.polls = PopPolls(self.clock, rules or PopConfig(), newest_first=newest_first)
        self.woken: list[str] = []

    def hold(
        self,
        name: str,
        queue_id: int = ALL,
        *,
        topic: str = "t",
        group: str = "g",
        wait_ms: int = 10_000,
        peer: SomePeer | None = None,
        matches: Callable[[int, int, int], bool] | None = None,
    ) -> Waiting:
        poll = Poll(
            topic=topic,
            group=group,
            queue_id=queue_id,
            peer=peer or SomePeer(),
            expires_ms=self.clock.now_ms() + wait_ms,
            resume=lambda: self.woken.append(name),
            matches=matches,
        )
        return self.polls.hold(poll)

    async def settle(self) -> list[str]:
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        woken, self.woken = self.woken, []
        return woken


def test_arrival_wakes_one_poll_of_each_group_and_kind() -> None:
    async def run() -> None:
        world = World()
        await world.polls.start()
        for number in range(2):
            world.hold(f"g all {number}")
            world.hold(f"g 3 {number}", 3)
            world.hold(f"g 4 {number}", 4)
            world.hold(f"h all {number}", group="h")
        world.hold("other", topic="u")
        world.polls.arrived("t", 3, 10)
        assert await world.settle() == ["g all 0", "g 3 0", "h all 0"]
        world.polls.arrived("t", 3, 11)
        assert await world.settle() == ["g all 1", "g 3 1", "h all 1"]
        world.polls.arrived("t", 3, 12)
        assert await world.settle() == []
        assert len(world.polls) == 3
        await world.polls.stop()
        assert len(world.polls) == 0

    asyncio.run(run())


def test_first_to_expire_is_woken_first_or_last() -> None:
    async def run(newest_first: bool) -> list[str]:
        world = World(newest_first=newest_first)
        await world.polls.start()
        for name, wait_ms in (("late", 9000), ("soon", 1000), ("middle", 5000)):
            world.hold(name, wait_ms=wait_ms)
        for _ in range(3):
            world.polls.wake("t", "g", ALL)
        assert not world.polls.wake("t", "g", ALL)
        return await world.settle()

    assert asyncio.run(run(newest_first=False)) == ["soon", "middle", "late"]
    assert asyncio.run(run(newest_first=True)) == ["late", "middle", "soon"]


def test_redelivered_message_wakes_the_polls_of_its_group_alone() -> None:
    async def run() -> None:
        world = World()
        await world.polls.start()
        for retry in ("%RETRY%g_t", "%RETRY%g+t"):
            world.hold("g all")
            world.hold("g 0", 0)
            world.hold("h all", group="h")
            world.polls.arrived(retry, 0, 1)
            assert await world.settle() == ["g all", "g 0"]
            world.polls.arrived(retry, 0, 2)
            world.polls.arrived("%RETRY%g", 0, 2)
            assert await world.settle() == []

    asyncio.run(run())


def test_filter_leaves_a_poll_waiting_until_every_so_many_messages() -> None:
    async def run() -> None:
        seen: list[tuple[int, int, int]] = []

        def none(queue_id: int, begin: int, end: int) -> bool:
            seen.append((queue_id, begin, end))
            return False

        world = World(PopConfig(force_interval=8))
        await world.polls.start()
        world.hold("filtered", matches=none)
        world.polls.arrived("t", 2, 4)
        world.polls.arrived("t", 2, 7)
        assert await world.settle() == []
        assert seen == [(2, 3, 4), (2, 4, 7)]
        # Offset 8 is one of them.
        world.polls.arrived("t", 2, 9)
        assert await world.settle() == ["filtered"]
        # A poll that takes anything is not hidden by one that filters.
        world.hold("filtered", matches=none)
        world.hold("plain", wait_ms=20_000)
        world.polls.arrived("t", 2, 10)
        assert await world.settle() == ["plain"]

    asyncio.run(run())


def test_polls_end_shortly_before_their_clients_give_up() -> None:
    async def run() -> None:
        world = World()
        await world.polls.start()
        world.hold("one", wait_ms=1000)
        world.hold("two", wait_ms=2000)
        await world.clock.advance(0.95)
        world.polls.expire()
        assert await world.settle() == []
        await world.clock.advance(0.001)
        world.polls.expire()
        assert await world.settle() == ["one"]
        assert world.hold("late", wait_ms=49) is Waiting.LATE
        assert world.hold("just", wait_ms=50) is Waiting.HELD
        await world.clock.advance(0.001)
        world.polls.expire()
        assert await world.settle() == ["just"]
        assert world.hold("closed", peer=SomePeer(is_open=False)) is Waiting.LATE
        await world.clock.advance(5)
        world.polls.expire()
        assert await world.settle() == ["two"]
        assert len(world.polls) == 0

    asyncio.run(run())


def test_polls_of_a_key_and_of_all_are_bounded() -> None:
    world = World(PopConfig(held_of_key=2, held_max=5))
    held = [world.hold(str(number)) for number in range(4)]
    assert held == [Waiting.HELD, Waiting.HELD, Waiting.HELD, Waiting.FULL]
    assert world.hold("0", 0) is world.hold("1", 1) is Waiting.HELD
    assert world.hold("2", 2) is Waiting.FULL
    assert (world.polls.count("t", "g", ALL), world.polls.count("t", "g", 0)) == (3, 1)


def test_closed_connection_takes_its_polls_along() -> None:
    world = World()
    gone, stays = SomePeer(1), SomePeer(2)
    for queue_id in (ALL, 0, 0):
        world.hold("gone", queue_id, peer=gone)
    world.hold("stays", 0, peer=stays)
    world.polls.drop_peer(gone)
    world.polls.drop_peer(gone)
    assert len(world.polls) == 1
    assert world.polls.wake("t", "g", 0)
    assert not world.polls.wake("t", "g", ALL)


def test_release_serves_every_poll_though_its_time_is_not_over() -> None:
    async def run() -> None:
        world = World()
        await world.polls.start()
        for name, queue_id in (("all", ALL), ("one", 0), ("two", 0)):
            world.hold(name, queue_id)
        world.hold("other", group="other")
        await world.polls.release()
        assert sorted(world.woken) == ["all", "one", "other", "two"]
        assert len(world.polls) == 0

    asyncio.run(run())


def test_polls_end_in_order_after_many_others_were_woken() -> None:
    async def run() -> None:
        draw = random.Random(7)
        world = World()
        await world.polls.start()
        waits = draw.sample(range(1, 301), 300)
        for wait_s in waits:
            world.hold(str(wait_s), wait_s, wait_ms=wait_s * 1000)
        for wait_s in waits[60:]:
            world.polls.wake("t", "g", wait_s)
        while await world.settle():
            pass
        # The next one makes the list of deadlines short again.
        world.hold("301", 301, wait_ms=301_000)
        assert len(vars(world.polls)["_deadlines"]) == 61
        stay = {*waits[:60], 301}
        for second in range(1, 302):
            await world.clock.advance(1)
            world.polls.expire()
            assert await world.settle() == [str(second)] * (second in stay)

    asyncio.run(run())


def test_polls_that_were_woken_leave_nothing_behind() -> None:
    world = World()
    for _ in range(1000):
        world.hold("again")
        world.polls.wake("t", "g", ALL)
    kept = vars(world.polls)
    assert len(kept["_deadlines"]) < 200
    tables = ("_by_key", "_groups", "_retries", "_ends", "_by_peer")
    assert {name: len(kept[name]) for name in tables} == dict.fromkeys(tables, 0)


# --- the alarm ----------------------------------------------------------------------------------


class Alarm:
    """A call that a loop will make."""

    def __init__(self, at: float, call: Callable[[], None]) -> None:
        self.at = at
        self.call = call
        self.is_cancelled = False

    def when(self) -> float:
        return self.at

    def cancel(self) -> None:
        self.is_cancelled = True


class Loop:
    """A loop whose time stands still and that keeps what it is to call."""

    def __init__(self) -> None:
        self.alarms: list[Alarm] = []

    def time(self) -> float:
        return 100.0

    def call_at(self, at: float, call: Callable[[], None]) -> Alarm:
        self.alarms.append(Alarm(at, call))
        return self.alarms[-1]

    def call_soon(self, call: Callable[..., None], *given: object) -> None:
        call(*given)

    def due_s(self) -> list[float]:
        """Return in how many seconds it is to call, what was cancelled left out."""
        return [round(it.at - 100.0, 6) for it in self.alarms if not it.is_cancelled]


def alarmed() -> tuple[World, Loop]:
    world, loop = World(), Loop()
    world.polls._loop = cast("Any", loop)
    return world, loop


@pytest.mark.parametrize(
    ("wait_ms", "due_s"), [(51, 0.002), (50, 0.001), (550, 0.501), (1049, 1.0), (10_000, 1.0)]
)
def test_alarm_comes_when_a_poll_is_over_and_in_a_second_at_the_latest(
    wait_ms: int, due_s: float
) -> None:
    world, loop = alarmed()
    world.hold("poll", wait_ms=wait_ms)
    assert loop.due_s() == [due_s]


def test_alarm_is_moved_for_a_poll_that_is_over_before_and_for_no_other() -> None:
    world, loop = alarmed()
    world.hold("later", wait_ms=550)
    world.hold("same", wait_ms=550)
    world.hold("last", wait_ms=800)
    assert len(loop.alarms) == 1
    world.hold("first", wait_ms=250)
    assert (len(loop.alarms), loop.due_s()) == (2, [0.201])


def test_alarm_ends_what_is_over_and_is_set_for_the_next() -> None:
    world, loop = alarmed()
    world.hold("one", wait_ms=250)
    world.hold("two", wait_ms=550)
    world.clock.be_busy(0.201)
    loop.alarms[0].call()
    assert world.woken == ["one"]
    assert [round(it.at - 100.0, 6) for it in loop.alarms] == [0.201, 0.3]
    # A poll that is over long since is due in a moment, not in the past.
    world.clock.be_busy(5)
    world.hold("three", wait_ms=51)
    loop.alarms[1].call()
    assert (world.woken, len(loop.alarms)) == (["one", "two"], 4)
    assert loop.alarms[-1].at == 100.002


def test_no_alarm_is_set_without_polls_and_without_a_loop() -> None:
    world, loop = alarmed()
    world.polls.expire()
    world.hold("one", wait_ms=250)
    world.clock.be_busy(1)
    loop.alarms[0].call()
    assert (world.woken, len(loop.alarms)) == (["one"], 1)
    idle = World()
    idle.hold("poll")
    assert idle.polls._alarm is None


def test_polls_are_forgotten_when_polling_stops_and_no_alarm_is_left() -> None:
    async def run() -> None:
        world, loop = alarmed()
        for number in range(3):
            world.hold(str(number), wait_ms=1000 * (number + 1))
        await world.polls.stop()
        assert (loop.due_s(), len(world.polls)) == ([], 0)
        kept = vars(world.polls)
        tables = ("_by_key", "_groups", "_retries", "_by_peer", "_deadlines", "_due")
        assert {name: len(kept[name]) for name in tables} == dict.fromkeys(tables, 0)
        assert (kept["_alarm"], kept["_loop"]) == (None, None)

    asyncio.run(run())


def test_poll_that_was_woken_before_the_stop_is_not_served_after_it() -> None:
    async def run() -> None:
        world = World()
        await world.polls.start()
        world.hold("woken")
        world.polls.wake("t", "g", ALL)
        await world.polls.stop()
        assert await world.settle() == []

    asyncio.run(run())


# --- whom an arrival wakes ----------------------------------------------------------------------


@pytest.mark.parametrize(("before", "woken"), [(7, ["plain"]), (8, [])])
def test_arrival_tries_the_filters_of_eight_polls_of_a_key(before: int, woken: list[str]) -> None:
    async def run() -> None:
        tried: list[int] = []

        def none(*news: int) -> bool:
            tried.append(len(news))
            return False

        world = World()
        await world.polls.start()
        for number in range(before):
            world.hold(f"filtered {number}", wait_ms=10_000 + number, matches=none)
        world.hold("plain", wait_ms=20_000)
        world.polls.arrived("t", 0, 5)
        assert (await world.settle(), len(tried)) == (woken, before)
        await world.polls.stop()

    asyncio.run(run())


def test_filter_sees_what_came_since_it_was_last_asked_also_after_a_queue_was_cut() -> None:
    seen: list[tuple[int, int, int]] = []

    def none(queue_id: int, begin: int, end: int) -> bool:
        seen.append((queue_id, begin, end))
        return False

    world = World(PopConfig(force_interval=0))
    world.hold("filtered", matches=none)
    for queue_id, end in ((0, 10), (1, 3), (0, 12), (0, 4)):
        world.polls.arrived("t", queue_id, end)
    assert seen == [(0, 9, 10), (1, 2, 3), (0, 10, 12), (0, 3, 4)]
    # What is of a topic that nobody waits for is no longer known.
    world.polls.wake("t", "g", ALL)
    world.polls.arrived("t", 0, 20)
    world.hold("again", matches=none)
    world.polls.arrived("t", 0, 30)
    assert seen[4:] == [(0, 29, 30)]


@pytest.mark.parametrize(
    ("begin", "end", "forced"),
    [(5, 7, False), (6, 8, False), (7, 9, True), (8, 9, True), (9, 16, False), (9, 17, True)],
)
def test_every_so_many_messages_of_a_queue_wake_a_poll_whatever_its_filter(
    begin: int, end: int, *, forced: bool
) -> None:
    world, _ = alarmed()
    world.polls.follow(PopConfig(force_interval=8))
    world.hold("stays", 7, matches=lambda *_: False)
    world.polls.arrived("t", 0, begin)
    world.hold("filtered", matches=lambda *_: False)
    world.polls.arrived("t", 0, end)
    assert world.woken == (["filtered"] if forced else [])


@pytest.mark.parametrize("retry", ["%RETRY%g_t", "%RETRY%g+t"])
def test_redelivered_message_wakes_the_only_poll_of_its_group(retry: str) -> None:
    world, _ = alarmed()
    world.hold("only")
    world.polls.arrived(retry, 0, 1)
    assert world.woken == ["only"]


@pytest.mark.parametrize(("every", "woken"), [(0, []), (1, ["filtered"])])
def test_every_message_or_none_wakes_a_poll_whatever_its_filter(
    every: int, woken: list[str]
) -> None:
    world, _ = alarmed()
    world.polls.follow(PopConfig(force_interval=every))
    world.hold("filtered", matches=lambda *_: False)
    world.polls.arrived("t", 0, 5)
    assert world.woken == woken


def test_retry_topics_wake_a_group_while_a_poll_of_it_waits() -> None:
    world, _ = alarmed()
    world.hold("one")
    world.hold("two")
    world.polls.wake("t", "g", ALL)
    world.polls.arrived("%RETRY%g+t", 0, 1)
    assert world.woken == ["one", "two"]
    world.polls.arrived("%RETRY%g+t", 0, 2)
    assert len(world.polls) == 0


def test_poll_that_fails_is_logged_and_the_others_are_served(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def run() -> None:
        world = World()
        await world.polls.start()
        poll = Poll("t", "g", 0, SomePeer(), world.clock.now_ms() + 1000, lambda: 1 // 0)  # type: ignore[arg-type]
        world.polls.hold(poll)
        for number in range(2 * WAKES_PER_TURN):
            world.hold(str(number), number + 1)
        world.polls.wake("t", "g", 0)
        for number in range(2 * WAKES_PER_TURN):
            world.polls.wake("t", "g", number + 1)
        await asyncio.sleep(0)
        assert len(world.woken) == WAKES_PER_TURN - 1
        assert caplog.messages == ["a poll of t for group g failed"]
        for _ in range(3):
            await asyncio.sleep(0)
        assert len(world.woken) == 2 * WAKES_PER_TURN
        await world.polls.stop()

    asyncio.run(run())


def test_deletions_serve_the_polls_of_what_is_gone_and_no_others() -> None:
    async def run() -> None:
        world = World()
        await world.polls.start()
        for number in range(WAKES_PER_TURN + 1):
            world.hold(f"t {number}", number % 3)
        world.hold("h", topic="u", group="h")
        world.hold("i", topic="u", group="i", queue_id=2)
        world.polls.topics_gone({"v"})
        world.polls.groups_gone({"v"})
        assert await world.settle() == []
        world.polls.topics_gone({"t", "v"})
        woken: list[str] = []
        while some := await world.settle():
            woken += some
        assert sorted(woken) == sorted(f"t {number}" for number in range(WAKES_PER_TURN + 1))
        world.polls.groups_gone({"i"})
        assert await world.settle() == ["i"]
        assert (len(world.polls), world.polls.count("u", "h", ALL)) == (1, 1)
        await world.polls.stop()

    asyncio.run(run())
