"""Transactions, delays, pop and replicas: good histories pass, each planted bug is found."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from roquet.testing import history
from roquet.testing.history import Acked, Consumed, Found, ReadBack, Sent
from roquet.testing.history_rules import (
    Delayed,
    Delivered,
    Ended,
    Event,
    FailedOver,
    PopAcked,
    Popped,
    Prepared,
    Replica,
)

if TYPE_CHECKING:
    from pathlib import Path

GOOD: list[Event] = [
    Prepared("t1", "T", 1),
    Prepared("t2", "T", 2),
    Prepared("t3", "T", 3),
    Ended("t1", commit=True),
    Ended("t1", commit=True, sure=True),
    Ended("t2", commit=False),
    Ended("t2", commit=False, sure=True),
    # Nobody knows whether this commit was heard: it may be there or not.
    Ended("t3", commit=True),
    Sent("d", "T", 4),
    Delayed("d", 5_000, sure=True),
    Sent("plain", "T", 5),
    Acked("plain", "T", 0, 0),
    ReadBack(),
    Found("T", 0, 0, "plain", 5),
    Found("T", 0, 1, "t1", 1),
    Found("T", 0, 2, "d", 4),
    Delivered("d", 5_000),
    Popped("g", "plain"),
    Popped("g", "plain"),
    PopAcked("g", "plain"),
    Replica("a", 0, 100, 77),
    Replica("b", 0, 100, 77),
    Replica("b", 100, 200, 78),
    FailedOver("T", 0, 1),
]


def verdict(events: list[Event]) -> dict[str, str]:
    return {it.rule: it.text for it in history.check(events).violations}


def test_a_good_history_passes(tmp_path: Path) -> None:
    assert verdict(GOOD) == {}
    history.append(tmp_path / "ledger", GOOD)
    assert list(history.load(tmp_path / "ledger")) == GOOD


def test_l6_a_half_message_is_seen() -> None:
    events = [event for event in GOOD if not isinstance(event, Ended)]
    assert verdict(events) == {"L6": "t1 is visible, but nobody has committed it"}
    early = [Prepared("h", "T", 9), Consumed("g", "T", 1, 0, "h", 9), Ended("h", commit=True)]
    assert "nobody has committed" in verdict([*GOOD, *early])["L6"]


def test_l6_a_message_that_was_rolled_back_is_seen() -> None:
    rolled = [*GOOD, Found("T", 0, 3, "t2", 2)]
    assert "t2 is visible, but was rolled back" in verdict(rolled)["L6"]
    both: list[Event] = [
        Prepared("x", "T", 6),
        Ended("x", commit=True),
        Ended("x", commit=False, sure=True),
        ReadBack(),
        Found("T", 0, 0, "x", 6),
    ]
    assert verdict(both) == {"L6": "x is visible, but was rolled back"}


def test_l6_a_commit_is_lost_or_done_twice() -> None:
    lost = [event for event in GOOD if not (isinstance(event, Found) and event.message == "t1")]
    assert verdict(lost)["L6"] == "t1 was committed and is not visible"
    twice = [*GOOD, Found("T", 0, 3, "t1", 1)]
    assert verdict(twice) == {"L6": "t1, committed 1 times, is there 2 times"}


def test_l2_a_committed_message_has_another_content() -> None:
    changed = [
        Found("T", 0, 1, "t1", 999) if isinstance(event, Found) and event.message == "t1" else event
        for event in GOOD
    ]
    assert "L2" in verdict(changed)


def test_l7_a_delayed_message_comes_early_late_or_unasked() -> None:
    early = [Delivered("d", 4_999) if isinstance(event, Delivered) else event for event in GOOD]
    assert verdict(early) == {"L7": "d came 1 ms early, at 4999"}
    never = [event for event in GOOD if not isinstance(event, Delivered)]
    assert verdict(never) == {"L7": "d, due at 5000, never came"}
    assert verdict([*GOOD, Delivered("plain", 1)]) == {
        "L7": "plain was delivered as delayed and is not"
    }


def test_l8_an_acknowledged_message_is_handed_out_again() -> None:
    assert verdict([*GOOD, Popped("g", "plain")]) == {"L8": "g got plain after acknowledging it"}
    assert verdict([*GOOD, Popped("other", "plain")]) == {}


@pytest.mark.parametrize(
    ("planted", "text"),
    [
        (Replica("b", 0, 100, 1), "a and b differ in (0, 100) of the log"),
        (FailedOver("T", 0, 0), "the new master would use offset 0 of T-0 again"),
    ],
)
def test_l9_replicas_and_offsets_over_a_fail_over(planted: Event, text: str) -> None:
    assert verdict([*GOOD, planted]) == {"L9": text}
