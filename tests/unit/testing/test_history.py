"""The history checker: a good history passes, and each planted bug is found by its rule."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from roquet.testing import history
from roquet.testing.history import (
    Acked,
    Committed,
    Consumed,
    Failed,
    Found,
    HistoryError,
    ReadBack,
    Restarted,
    Sent,
    Unknown,
)

if TYPE_CHECKING:
    from pathlib import Path

    from roquet.testing.history_rules import Event


def good(count: int = 40, queues: int = 2) -> list[Event]:
    """A run with acknowledgements, an unanswered send with a retry, a refusal and a restart."""
    events: list[Event] = []
    places: list[tuple[str, int, int]] = []
    ends = [0] * queues
    for number in range(count):
        name, queue = f"m{number}", number % queues
        events.append(Sent(name, "T", number))
        if number % 10 == 7:
            events.append(Unknown(name))
            events.append(Sent(name, "T", number))
            places.append((name, queue, ends[queue]))
            ends[queue] += 1
        if number % 10 == 9:
            events.append(Failed(name))
            continue
        events.append(Acked(name, "T", queue, ends[queue]))
        places.append((name, queue, ends[queue]))
        ends[queue] += 1
    for name, queue, offset in places:
        crc = int(name[1:])
        events.append(Consumed("g", "T", queue, offset, name, crc))
        if offset % 5 == 4 and offset < ends[queue] - 1:
            events.append(Committed("g", "T", queue, offset + 1))
    events.append(Restarted("g"))
    name, queue, offset = max(places, key=lambda place: (place[1] == 0, place[2]))
    events.append(Consumed("g", "T", queue, offset, name, int(name[1:])))
    for _ in range(2):
        events.append(ReadBack())
        events += [Found("T", queue, offset, name, int(name[1:])) for name, queue, offset in places]
    return events


def rules(events: list[Event]) -> set[str]:
    return {violation.rule for violation in history.check(events).violations}


def test_a_good_history_passes_and_is_counted() -> None:
    verdict = history.check(good())
    assert verdict.violations == []
    assert verdict.duplicates == 4
    assert verdict.counts["Acked"] == 36
    assert verdict.counts["Failed"] == 4


def replaced(index: int, *new: Event) -> list[Event]:
    events = good()
    events[index : index + 1] = new
    return events


def where(kind: type[Event], nth: int = 0) -> int:
    return [index for index, event in enumerate(good()) if isinstance(event, kind)][nth]


def test_l1_a_lost_message() -> None:
    assert "L1" in rules(replaced(where(Found, -1)))
    assert "L1" in rules(replaced(where(Found, 3)))
    unread = [event for event in good() if not isinstance(event, (ReadBack, Found))]
    assert rules(unread) == set()
    index = where(Consumed, 3)
    assert rules(unread[:index] + unread[index + 1 :]) >= {"L1"}


def test_a_part_read_must_have_no_gap_and_proves_no_loss() -> None:
    events = [event for event in good() if not isinstance(event, (ReadBack, Found))]
    found = [event for event in good() if isinstance(event, Found) and event.queue == 0]
    part = found[3:7]
    assert rules([*events, ReadBack(complete=False), *part]) == set()
    assert rules([*events, ReadBack(complete=False), part[0], part[3]]) == {"L3"}


def test_l2_an_invented_a_changed_and_a_refused_message() -> None:
    index = where(Found, 4)
    found = good()[index]
    assert isinstance(found, Found)
    invented = Found("T", found.queue, found.offset, "nobody", 1)
    changed = Found("T", found.queue, found.offset, found.message, found.crc + 1)
    elsewhere = Found("U", found.queue, found.offset, found.message, found.crc)
    assert "L2" in rules(replaced(index, invented))
    assert rules(replaced(index, changed)) == {"L2"}
    assert "L2" in rules(replaced(index, found, elsewhere))
    refused = Found("T", 1, 10_000, "m9", 9)
    assert "L2" in rules([*good(), refused])


def test_l3_an_offset_used_twice() -> None:
    again = [Sent("new", "T", 77), Acked("new", "T", 0, 3)]
    assert "L3" in rules([*good(), *again])


def test_l3_a_gap() -> None:
    found = [event for event in good() if isinstance(event, Found)]
    gap = [Sent("new", "T", 77), Unknown("new"), ReadBack(), *found[: len(found) // 2]]
    assert rules([*good(), *gap, Found("T", 0, 5000, "new", 77)]) == {"L3"}


def test_l3_two_messages_swapped() -> None:
    events = good()
    first, second = (
        index
        for index, event in enumerate(events)
        if isinstance(event, Acked) and event.queue == 0 and event.offset in {1, 2}
    )
    a, b = events[first], events[second]
    assert isinstance(a, Acked)
    assert isinstance(b, Acked)
    events = [event for event in events if isinstance(event, (Sent, Acked, Failed, Unknown))]
    first, second = events.index(a), events.index(b)
    events[first] = Acked(a.message, "T", 0, b.offset)
    events[second] = Acked(b.message, "T", 0, a.offset)
    assert "L3" in rules(events)


def test_l4_stored_or_consumed_too_often() -> None:
    extra = Found("T", 5, 0, "m0", 0)
    assert rules([*good(), extra]) == {"L4"}
    index = where(Consumed, 2)
    assert rules(replaced(index, good()[index], good()[index])) == {"L4"}
    consumed = good()[where(Consumed, 0)]
    assert rules([*good(), consumed]) == {"L4"}, "below what was committed before the restart"


def test_l5_a_commit_that_falls_or_runs_ahead() -> None:
    falls = Committed("g", "T", 0, 2)
    assert rules([*good(), falls]) == {"L5"}
    assert rules([*good(), Committed("g", "T", 0, 2, reset=True)]) == set()
    ahead = Committed("g", "T", 0, 9999)
    assert rules([*good(), ahead]) == {"L5"}


def test_a_ledger_file_comes_back_as_it_was(tmp_path: Path) -> None:
    ledger = tmp_path / "ledger"
    events = good()
    history.append(ledger, events[:50])
    history.append(ledger, events[50:])
    assert list(history.load(ledger)) == events
    for bad in ("{", "[]", '{"event": "Nothing"}', '{"event": "Sent", "x": 1}'):
        ledger.write_text(bad + "\n")
        with pytest.raises(HistoryError, match="line 1"):
            list(history.load(ledger))


def test_events_that_no_recorder_writes_are_refused() -> None:
    for events in (
        [Acked("a", "T", 0, 0)],
        [Sent("a", "T", 0), Sent("a", "T", 1)],
        [Sent("a", "T", 0), Found("T", 0, 0, "a", 0)],
    ):
        with pytest.raises(HistoryError):
            history.check(events)


def test_time_grows_with_the_number_of_events() -> None:
    started = time.process_time()
    verdict = history.check(good(count=20_000, queues=8))
    assert verdict.violations == []
    assert time.process_time() - started < 10
