"""Held pulls: woken by what they wait for, by their time, or dropped with their connection."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

from roquet.broker.clients.long_polling import WAKES_PER_TURN, Held, LongPolling
from roquet.testing.clock import FakeClock
from roquet.testing.peer import FakePeer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


class Story:
    def __init__(self, held_max: int = 100_000) -> None:
        self.clock = FakeClock()
        self.holds = LongPolling(self.clock, random.Random(7), held_max)
        self.woken: list[str] = []

    def hold(
        self,
        name: str,
        *,
        offset: int = 5,
        peer: FakePeer | None = None,
        wait_ms: int = 15_000,
        matches: Callable[[int], bool] | None = None,
    ) -> bool:
        held = Held(
            topic="orders",
            queue_id=1,
            peer=peer or FakePeer(),
            offset=offset,
            resume=lambda: self.woken.append(name),
            matches=matches,
        )
        return self.holds.hold(held, wait_ms)

    async def settle(self) -> list[str]:
        for _ in range(20):
            await asyncio.sleep(0)
        woken, self.woken = self.woken, []
        return woken


def play(tell: Callable[[Story], Awaitable[None]], held_max: int = 100_000) -> None:
    async def run() -> None:
        story = Story(held_max)
        await story.holds.start()
        await tell(story)
        await story.holds.stop()
        assert len(story.holds) == 0

    asyncio.run(run())


def test_an_arrival_wakes_those_it_is_for() -> None:
    async def tell(story: Story) -> None:
        story.hold("here", offset=5)
        story.hold("further", offset=6)
        story.holds.arrived("orders", 0, 100)
        story.holds.arrived("bills", 1, 100)
        story.holds.arrived("orders", 1, 5)
        assert await story.settle() == []
        story.holds.arrived("orders", 1, 6)
        assert await story.settle() == ["here"]
        story.holds.arrived("orders", 1, 7)
        assert await story.settle() == ["further"]

    play(tell)


def test_a_filter_decides_and_is_asked_again() -> None:
    async def tell(story: Story) -> None:
        story.hold("tagged", matches=lambda max_offset: max_offset >= 9)
        story.holds.arrived("orders", 1, 6)
        assert await story.settle() == []
        story.holds.arrived("orders", 1, 9)
        assert await story.settle() == ["tagged"]

    play(tell)


def test_held_pull_when_the_wall_clock_jumps_ends_at_its_time() -> None:
    async def tell(story: Story) -> None:
        for set_by_s in (3600, -3600):
            story.hold("held", wait_ms=10_000)
            story.clock.set_by(set_by_s)
            await story.holds.sweep()
            assert await story.settle() == []
            await story.clock.advance(12)
            await story.holds.sweep()
            assert await story.settle() == ["held"]

    play(tell)


def test_deadlines_are_spread_by_a_tenth() -> None:
    async def tell(story: Story) -> None:
        for number in range(100):
            story.hold(str(number), wait_ms=10_000)
        await story.clock.advance(8.99)
        await story.holds.sweep()
        assert await story.settle() == []
        await story.clock.advance(1.01)
        await story.holds.sweep()
        half = len(await story.settle())
        assert 20 < half < 80
        await story.clock.advance(1.01)
        await story.holds.sweep()
        assert half + len(await story.settle()) == 100

    play(tell)


def test_a_closed_connection_takes_its_pulls_along() -> None:
    async def tell(story: Story) -> None:
        gone = FakePeer()
        story.hold("gone", peer=gone)
        story.hold("stays")
        story.holds.drop_peer(gone)
        gone.is_open = False
        assert len(story.holds) == 1
        assert not story.hold("too late", peer=gone)
        story.holds.arrived("orders", 1, 6)
        assert await story.settle() == ["stays"]

    play(tell)


def test_there_is_room_for_so_many() -> None:
    async def tell(story: Story) -> None:
        assert story.hold("one")
        assert story.hold("two")
        assert not story.hold("three")
        story.holds.arrived("orders", 1, 6)
        assert await story.settle() == ["one", "two"]
        assert story.hold("three")

    play(tell, held_max=2)


def test_pulls_that_were_woken_are_not_kept_till_their_deadline() -> None:
    async def tell(story: Story) -> None:
        story.hold("stays", offset=10**6)
        for number in range(1000):
            story.hold("comes and goes", offset=number)
            story.holds.arrived("orders", 1, number + 1)
        assert len(await story.settle()) == 1000
        assert len(story.holds._deadlines) < 100

    play(tell)


def test_a_burst_leaves_the_loop_its_turns() -> None:
    async def tell(story: Story) -> None:
        for number in range(WAKES_PER_TURN * 2 + 1):
            story.hold(str(number))
        story.holds.arrived("orders", 1, 6)
        await asyncio.sleep(0)
        assert len(story.woken) == WAKES_PER_TURN
        assert len(await story.settle()) == WAKES_PER_TURN * 2 + 1

    play(tell)


class Beside:
    """Holds pulls as well."""

    def __init__(self, held: int) -> None:
        self.held_pulls = held
        self.told: list[int] = []

    def held_beside(self, count: int) -> None:
        self.told.append(count)


def test_pulls_held_elsewhere_count_and_hear_how_many_are_held_here() -> None:
    async def tell(story: Story) -> None:
        beside = Beside(3)
        story.holds.share(beside)
        assert len(story.holds) == 3
        assert story.hold("one")
        assert story.hold("two")
        assert len(story.holds) == 5
        assert not story.hold("no room")
        story.holds.arrived("orders", 1, 6)
        assert beside.told == [1, 2, 1, 0]
        assert len(story.holds) == 3
        beside.held_pulls = 0

    play(tell, held_max=5)


def test_pulls_with_one_deadline_end_together_at_that_moment() -> None:
    async def tell(story: Story) -> None:
        for name in ("one", "two", "three"):
            story.hold(name, wait_ms=0)
        await story.holds.sweep()
        assert await story.settle() == ["one", "two", "three"]

    play(tell)


def test_pulls_are_forgotten_when_polling_stops() -> None:
    async def run() -> None:
        story = Story()
        await story.holds.start()
        peer = FakePeer()
        for number in range(3):
            story.hold("held", offset=number, peer=peer)
        story.holds.arrived("orders", 1, 1)
        # One is due already: its connection has been closed as well.
        await story.holds.stop()
        assert await story.settle() == []
        assert len(story.holds) == 0
        tables = (story.holds._by_queue, story.holds._by_peer, story.holds._deadlines)
        assert [len(table) for table in tables] == [0, 0, 0]

    asyncio.run(run())


def test_pull_that_is_over_leaves_nothing_of_its_queue_and_its_connection() -> None:
    async def tell(story: Story) -> None:
        one, other = FakePeer(), FakePeer()
        for peer in (one, one, other):
            story.hold("held", peer=peer)
        story.holds.drop_peer(one)
        assert (len(story.holds), len(story.holds._by_peer)) == (1, 1)
        story.holds.arrived("orders", 1, 6)
        assert (story.holds._by_queue, story.holds._by_peer) == ({}, {})
        assert await story.settle() == ["held"]

    play(tell)


def test_deadlines_are_in_order_after_those_of_woken_pulls_were_dropped() -> None:
    async def tell(story: Story) -> None:
        # Long waits come first: what is left of them is not in order by itself.
        for number in range(100):
            story.hold(f"{99 - number}", offset=10**6, wait_ms=(100 - number) * 1000)
        for _ in range(400):
            story.hold("comes and goes", offset=0)
            story.holds.arrived("orders", 1, 1)
        await story.settle()
        assert len(story.holds._deadlines) <= 2 * 101 + 64 + 1
        heap = [entry[0] for entry in story.holds._deadlines]
        assert all(heap[(at - 1) // 2] <= heap[at] for at in range(1, len(heap)))

    play(tell)
