"""How long a broker runs, for people."""

from __future__ import annotations

import pytest

from roquet.base.times import up_text


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("[ 0 days, 0 hours, 0 minutes, 3 seconds ]", "3 s"),
        ("[ 0 days, 0 hours, 0 minutes, 0 seconds ]", "0 s"),
        ("[ 0 days, 2 hours, 0 minutes, 9 seconds ]", "2 h"),
        ("[ 0 days, 0 hours, 61 minutes, 9 seconds ]", "61 min 9 s"),
        ("[ 12 days, 5 hours, 4 minutes, 9 seconds ]", "12 d 5 h"),
        ("", ""),
        ("[ ]", ""),
        ("for ever", ""),
    ],
)
def test_up_time_of_a_broker_has_its_two_largest_units(said: str, shown: str) -> None:
    assert up_text(said) == shown
