"""Numbers that peers and tools read."""

from __future__ import annotations

from roquet.ha.slave import State
from roquet.ha.tail import Verdict


def test_verdicts_have_the_lengths_that_no_piece_of_a_log_has() -> None:
    assert {it.name: int(it) for it in Verdict} == {
        "PROCEED": -1,
        "DIFFERS": -2,
        "AHEAD": -3,
        "GONE": -4,
    }


def test_states_of_a_slave_are_numbered_as_in_java() -> None:
    assert [it.name for it in sorted(State)] == [
        "READY",
        "HANDSHAKE",
        "TRANSFER",
        "SUSPEND",
        "SHUTDOWN",
    ]
    assert [int(it) for it in State] == [0, 1, 2, 3, 4]
