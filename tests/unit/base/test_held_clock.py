"""A clock that jumps ahead is believed only after it has stayed there."""

from __future__ import annotations

from roquet.base.clock import HOLD_MS, HeldClock
from roquet.testing.clock import FakeClock

HOUR_S = 3600


def test_clock_that_jumps_ahead_counts_only_after_it_stayed_there() -> None:
    clock = FakeClock()
    held, begin_ms = HeldClock(clock), clock.now_ms()
    assert held.now_ms() == begin_ms
    clock.set_by(2 * HOUR_S)
    for passed in range(0, HOLD_MS, 1000):
        assert held.now_ms() == begin_ms + passed
        clock.be_busy(1)
    assert held.now_ms() == clock.now_ms() == begin_ms + 2 * HOUR_S * 1000 + HOLD_MS


def test_clock_that_comes_back_in_time_never_counted() -> None:
    clock = FakeClock()
    held, begin_ms = HeldClock(clock), clock.now_ms()
    held.now_ms()
    for _ in range(3):
        clock.set_by(HOUR_S)
        clock.be_busy(HOLD_MS / 2000)
        assert held.now_ms() < begin_ms + HOUR_S * 1000
        clock.set_by(-HOUR_S)
        assert held.now_ms() == clock.now_ms()


def test_clock_that_is_set_back_is_believed_at_once() -> None:
    clock = FakeClock()
    held = HeldClock(clock)
    held.now_ms()
    clock.set_by(-HOUR_S)
    assert held.now_ms() == clock.now_ms()
    clock.set_by(0.4)
    assert held.now_ms() == clock.now_ms()


def test_who_listens_is_told_by_how_much_the_clock_was_set_back_before_it_says_so() -> None:
    clock, told = FakeClock(), list[tuple[int, int]]()
    held = HeldClock(clock)
    held.listen(lambda by_ms, now_ms: told.append((by_ms, now_ms)))
    held.now_ms()
    # It was never believed, so nothing is set back.
    clock.set_by(HOUR_S)
    held.now_ms()
    clock.set_by(-HOUR_S)
    held.now_ms()
    assert told == []
    clock.set_by(HOUR_S)
    held.now_ms()
    clock.be_busy(HOLD_MS / 1000)
    assert held.now_ms() == clock.now_ms()
    clock.set_by(-HOUR_S)
    assert held.now_ms() == clock.now_ms()
    assert told == [(HOUR_S * 1000, clock.now_ms())]
