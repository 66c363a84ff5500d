"""Short pauses end on the beat, so that timers that run often wake a loop together."""

from __future__ import annotations

import pytest

from roquet.base.clock import SHORT_S, to_beat


@pytest.mark.parametrize("pause_s", [0.005, 0.02, 0.05, 0.1, 0.2, 0.25, 0.5, 1.0])
def test_short_pause_ends_on_the_beat_and_changes_by_half_at_most(pause_s: float) -> None:
    for steady_ms in range(86_400_000, 86_401_000, 7):
        pause = to_beat(pause_s, steady_ms)
        assert 0.5 * pause_s <= pause <= 1.5 * pause_s
        end = (steady_ms / 1000 + pause) / pause_s
        assert end == pytest.approx(round(end), abs=1e-6)


def test_timers_of_one_pause_meet_after_their_first_run() -> None:
    ends = {round(ms / 1000 + to_beat(0.1, ms), 6) for ms in (1_000, 1_020, 1_049, 1_050)}
    assert ends == {1.1}


def test_long_pause_stays_what_it_is() -> None:
    assert to_beat(SHORT_S + 0.01, 123_456_789) == SHORT_S + 0.01


@pytest.mark.parametrize("pause_s", [0.101, 0.33, 0.437, 0.751, 0.999])
def test_pause_until_something_is_due_ends_on_the_beat_of_100_ms_nearest_to_it(
    pause_s: float,
) -> None:
    for steady_ms in range(86_400_000, 86_401_000, 7):
        pause = to_beat(pause_s, steady_ms)
        assert abs(pause - pause_s) <= 0.05 + 1e-9
        assert round(steady_ms + pause * 1000) % 100 == 0
