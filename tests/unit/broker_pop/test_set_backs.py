"""What was popped while the clock stood ahead, after somebody has set it back."""

from __future__ import annotations

import pytest

from pop_world import GROUP, START_MS, TOPIC, PopWorld
from remoting_harness import on_loop
from roquet.broker.pop.receive.orders import PopOrders
from roquet.broker.pop.set_backs import LEAST_MS, SetBacks
from roquet.testing.clock import FakeClock

HOUR_MS = 3_600_000
KEY = TOPIC, GROUP, 0


def bodies(world: PopWorld) -> list[bytes]:
    return [draft.body for draft in world.again()]


@on_loop
@pytest.mark.parametrize("hours", [2, 80, 24 * 365 * 10])
async def test_messages_come_when_they_were_to_come_before_the_clock_was_set_back(
    hours: int,
) -> None:
    world = PopWorld()
    await world.run(3)
    world.clock.set_by(hours * HOUR_MS)
    await world.run(3)
    # As many as several batches of records have, so that the look goes through some.
    before = [world.send(b"%d" % number) for number in range(4)]
    soon = await world.pop(before[:2], 10_000)
    later = await world.pop(before[2:], 40_000, queue=1)
    await world.ack(soon, before[0])
    for _ in range(300):
        world.send(b"other", "rmq_sys_wheel_timer", TIMER_OUT_MS=str(1 << 50))
    await world.run(3)
    world.clock.set_by(-hours * HOUR_MS)
    await world.run(5)
    assert bodies(world) == []
    await world.run(6)
    assert bodies(world) == [b"1"]
    await world.run(20)
    # The handle is of a time to come, and its acknowledgement counts.
    await world.ack(later, before[3], queue=1)
    assert bodies(world) == [b"1"]
    await world.run(12)
    assert bodies(world) == [b"1", b"2"]
    await world.run(60)
    assert bodies(world) == [b"1", b"2"]


@on_loop
async def test_checkpoint_that_the_wheel_still_has_brings_nothing_a_second_time() -> None:
    world = PopWorld()
    world.clock.set_by(120_000)
    await world.run(2)
    await world.pop([world.send(b"x")], 10_000)
    await world.run(2)
    world.clock.set_by(-120_000)
    await world.run(200)
    assert bodies(world) == [b"x"]
    assert world.log.waiting == []
    assert world.settled() == world.log.max_offset("rmq_sys_REVIVE_LOG_c", 0) - 1


@on_loop
async def test_checkpoint_that_left_the_wheel_before_is_made_earlier_as_well() -> None:
    world = PopWorld()
    world.clock.set_by(2 * HOUR_MS)
    await world.run(1)
    await world.pop([world.send(b"x")], 4_000)
    # It is in the revive queue, and waits for its acknowledgements there.
    await world.run(4)
    assert len(world.service.queues[0]) == 1
    world.clock.set_by(-2 * HOUR_MS)
    await world.run(6)
    assert bodies(world) == [b"x"]
    await world.run(30)
    assert bodies(world) == [b"x"]


@on_loop
async def test_pops_after_the_clock_was_set_back_are_as_ever() -> None:
    world = PopWorld()
    world.clock.set_by(2 * HOUR_MS)
    await world.run(2)
    world.clock.set_by(-2 * HOUR_MS)
    await world.run(2)
    checkpoint = await world.pop([world.send(b"x")], 5_000)
    assert world.service.set_backs.due_ms(checkpoint.pop_time_ms, 7) == 7
    await world.run(4)
    assert bodies(world) == []
    await world.run(6)
    assert bodies(world) == [b"x"]


def test_clock_that_comes_again_to_where_it_was_has_nothing_late_any_more() -> None:
    clock = FakeClock(START_MS)
    it, told = SetBacks(clock), list[tuple[int, int]]()
    it.listen(lambda by_ms, now_ms: told.append((by_ms, now_ms)))
    it.was_set_back(LEAST_MS - 1, START_MS)
    assert (it.take(), it.newest_ms, told) == (0, 0, [])
    newest_ms = START_MS + 2 * HOUR_MS
    it.was_set_back(2 * HOUR_MS, START_MS)
    assert told == [(2 * HOUR_MS, START_MS)]
    assert (it.newest_ms, it.take(), it.take()) == (newest_ms, 2 * HOUR_MS, 0)
    assert it.due_ms(newest_ms, newest_ms + 5) == START_MS + 5
    assert it.due_ms(START_MS + 1000, 5) == 5
    # Set back once more before that: what is late is late by both.
    clock.set_by(-3600)
    it.was_set_back(HOUR_MS, clock.now_ms())
    assert (it.newest_ms, it.take()) == (newest_ms, HOUR_MS)
    assert it.due_ms(newest_ms, newest_ms) == newest_ms - 3 * HOUR_MS
    clock.be_busy(3 * 3600)
    assert it.newest_ms == 0
    assert it.due_ms(newest_ms + 9999, 5) == 5
    it.was_set_back(HOUR_MS, clock.now_ms())
    assert it.due_ms(newest_ms + HOUR_MS, newest_ms) == newest_ms - HOUR_MS


def test_ordered_batch_of_a_clock_that_stood_ahead_is_free_when_it_was_to_be() -> None:
    clock = FakeClock(START_MS)
    orders = PopOrders(None, clock)
    orders.popped(KEY, [0, 1], pop_time_ms=clock.now_ms(), invisible_ms=10_000, attempt_id=None)
    orders.show_at(KEY, 1, clock.now_ms(), clock.now_ms() + 20_000)
    free_at = orders.free_at(KEY)
    clock.set_by(-7200)
    orders.set_back(2 * HOUR_MS, clock.now_ms())
    assert orders.free_at(KEY) == free_at - 2 * HOUR_MS
    clock.be_busy(19)
    assert orders.is_blocked(KEY, None)
    clock.be_busy(1)
    assert not orders.is_blocked(KEY, None)
