"""What the check says of queues and marks, and the running store of its damage."""

from __future__ import annotations

import asyncio
import os
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from durable_calls import DurableCalls
from roquet.base.errors import Corrupt
from roquet.store.housekeeping.self_check import SHOWN_MAX, SelfCheck
from roquet.store.marks import diverged
from roquet.store.marks import format as form
from roquet.store.marks.format import StoreFormat
from roquet.store.tables.files import FILE_SIZE_MAX
from roquet.store.upkeep.check import (
    UNIT,
    Finding,
    Level,
    _check_marks,
    _check_queues,
    _check_tables,
    _Queue,
    table_fault,
)

if TYPE_CHECKING:
    from pathlib import Path

DIVERGED = (Level.DAMAGE, diverged.NAME)
ABORT, CHECKPOINT = (Level.NOTE, "abort"), (Level.NOTE, "checkpoint")


@pytest.mark.parametrize(
    ("there", "said"),
    [
        ((), [CHECKPOINT]),
        (("checkpoint",), []),
        (("abort",), [ABORT, CHECKPOINT]),
        (("abort", "checkpoint"), [ABORT]),
        (("diverged", "checkpoint"), [DIVERGED]),
        (("diverged", "abort"), [DIVERGED, ABORT, CHECKPOINT]),
    ],
)
def test_check_names_each_mark_that_a_start_goes_by(
    tmp_path: Path, there: tuple[str, ...], said: list[tuple[Level, str]]
) -> None:
    for name in there:
        if name == "diverged":
            diverged.mark(tmp_path, "it differs")
        else:
            (tmp_path / name).write_text("")
    found = list(_check_marks(tmp_path))
    assert [(it.level, it.where) for it in found] == said


def test_mark_is_durable_with_its_name_and_written_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = DurableCalls(monkeypatch)
    for why, synced in (("a", True), ("a", False), ("b", True)):
        diverged.mark(tmp_path, why)
        assert diverged.read(tmp_path) == why
        assert calls.made == [("sync", diverged.NAME), ("sync", tmp_path.name)] * synced
        calls.made.clear()
    diverged.clear(tmp_path)
    assert (diverged.read(tmp_path), calls.made) == (None, [("sync", tmp_path.name)])
    diverged.clear(tmp_path)
    assert len(calls.made) == 1, "there is nothing to remove"


def test_mark_names_what_an_operator_types(tmp_path: Path) -> None:
    diverged.mark(tmp_path, "it differs")
    finding = next(_check_marks(tmp_path))
    assert finding.helps.startswith(f"mv {tmp_path} {tmp_path}.set-aside, and start")


@pytest.mark.parametrize("more", [-1, 0, 1, 2])
def test_self_check_says_the_first_problems_and_how_many_there_are_more(
    caplog: pytest.LogCaptureFixture, more: int
) -> None:
    found = [f"p{number}" for number in range(SHOWN_MAX + more)]
    it = SelfCheck(cast("Any", SimpleNamespace(self_check=lambda: found)))
    asyncio.run(it.check())
    said = [f"the store is damaged: {problem}" for problem in found[:SHOWN_MAX]]
    rest = [f"and {more} places more"] if more > 0 else []
    assert (caplog.messages, it.problems) == (said + rest, tuple(found))


def test_damage_is_told_as_it_grows_and_each_kind_by_itself(
    caplog: pytest.LogCaptureFixture,
) -> None:
    damage = SimpleNamespace(reads=0, conflicts=0, last_read="r", last_conflict="c")
    check = SelfCheck(cast("Any", SimpleNamespace(damage=lambda: damage)))

    def told() -> list[str]:
        caplog.clear()
        asyncio.run(check.tell_damage())
        return list(caplog.messages)

    reads = "{} messages cannot be read and were passed over, the last one: r"
    conflicts = "{} records have no place in their queue, the last one: c"
    assert told() == []
    damage.reads = 3
    assert told() == [reads.format(3)]
    assert told() == []
    damage.conflicts = 2
    assert told() == [conflicts.format(2)]
    damage.reads, damage.conflicts = 4, 3
    assert told() == [reads.format(1), conflicts.format(1)]


# --- queues -------------------------------------------------------------------------------------


def queue_of(first: int, count: int) -> _Queue:
    """Return what a log has of a queue: each message takes 100 bytes."""
    queue = _Queue(first)
    for at in range(first, first + count):
        queue.offsets.append(100 * at)
        queue.sizes.append(100)
        queue.codes.append(7)
    return queue


def units(folder: Path, begin: int, *given: tuple[int, int, int], more: bytes = b"") -> None:
    """Write a file of units that begins at a queue offset."""
    folder.mkdir(parents=True, exist_ok=True)
    data = b"".join(UNIT.pack(*unit) for unit in given) + more
    (folder / f"{begin * UNIT.size:020d}").write_bytes(data)


def whole(first: int, end: int, code: int = 7) -> list[tuple[int, int, int]]:
    return [(100 * at, 100, code) for at in range(first, end)]


def checked(store: Path, queue: _Queue, topic: str = "t") -> list[Finding]:
    looks: list[int] = []
    found = list(_check_queues(store, {(topic, 0): queue}, lambda: looks.append(1)))
    assert len(looks) == 1
    return found


def test_queue_whose_units_are_those_of_the_log_is_fine_in_one_file_or_many(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "consumequeue" / "t" / "0"
    # The first file begins before the log does; behind the last unit it is blank.
    units(folder, 2, *whole(2, 6))
    units(folder, 6, *whole(6, 9), (0, 0, 0), more=b"cut")
    (folder / "other").write_bytes(b"x" * 60)
    for first, count in ((2, 7), (3, 6), (5, 1), (6, 3), (8, 1), (5, 3)):
        assert checked(tmp_path, queue_of(first, count)) == [], (first, count)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (whole(0, 3), "1 units are missing and 0 wrong, at 3"),
        ([*whole(0, 3), (0, 0, 0)], "1 units are missing and 0 wrong, at 3"),
        ([*whole(0, 3), (0, 0x7FFFFFFF, 0)], "1 units are missing and 0 wrong, at 3"),
        ([*whole(0, 3), (301, 100, 7)], "0 units are missing and 1 wrong, at 3"),
        ([*whole(0, 3), (300, 99, 7)], "0 units are missing and 1 wrong, at 3"),
        ([*whole(0, 3), (300, 100, 8)], "0 units are missing and 1 wrong, at 3"),
        ([(1, 1, 1), *whole(1, 3)], "1 units are missing and 1 wrong, at 0, 3"),
    ],
)
def test_queue_with_units_that_are_not_those_of_the_log_is_repairable(
    tmp_path: Path, given: list[tuple[int, int, int]], text: str
) -> None:
    units(tmp_path / "consumequeue" / "t" / "0", 0, *given)
    (found,) = checked(tmp_path, queue_of(0, 4))
    assert (found.level, found.where) == (Level.REPAIRABLE, "consumequeue/t/0")
    assert found.text == text


def test_queue_that_is_not_there_is_repairable_and_none_at_all_is_as_restored(
    tmp_path: Path,
) -> None:
    for is_there in (False, True):
        if is_there:
            (tmp_path / "consumequeue").mkdir()
        (found,) = _check_queues(tmp_path, {("t", 0): queue_of(0, 1)}, lambda: None)
        assert (found.level, found.where) == (Level.NOTE, "consumequeue")
        # A log without messages has no queues.
        assert list(_check_queues(tmp_path, {}, lambda: None)) == []
    (tmp_path / "consumequeue" / "other").mkdir()
    for count, shown in ((20, ", 19"), (21, ", 19 …")):
        (found,) = checked(tmp_path, queue_of(0, count))
        assert found.text.startswith(f"{count} units are missing and 0 wrong, at 0, 1, ")
        assert found.text.endswith(shown)


def test_units_of_the_delay_topic_hold_a_time_where_others_have_the_tag(tmp_path: Path) -> None:
    topic = "SCHEDULE_TOPIC_XXXX"
    units(tmp_path / "consumequeue" / topic / "0", 0, *whole(0, 3, code=99))
    assert checked(tmp_path, queue_of(0, 3), topic) == []


# --- tables -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("table", "spare", "level"),
    [
        ("{}", None, None),
        ("{", "{}", Level.REPAIRABLE),
        ("{", "", Level.DAMAGE),
        ("", None, Level.DAMAGE),
        ("[]", "{", Level.DAMAGE),
    ],
)
def test_table_that_is_broken_comes_from_its_copy_or_is_damage(
    tmp_path: Path, table: str, spare: str | None, level: Level | None
) -> None:
    (tmp_path / "topics.json").write_text(table)
    (tmp_path / "notes.txt").write_text("")
    if spare is not None:
        (tmp_path / "topics.json.bak").write_text(spare)
    found = [(it.level, it.where) for it in _check_tables(tmp_path)]
    assert found == ([] if level is None else [(level, "config/topics.json")])


def test_folder_of_tables_that_is_not_there_is_noted(tmp_path: Path) -> None:
    (found,) = _check_tables(tmp_path / "config")
    assert (found.level, found.where) == (Level.NOTE, "config")


def test_marks_and_tables_that_became_longer_than_all_memory_are_read_at_their_start(
    tmp_path: Path,
) -> None:
    """Sparse files of 8 TiB: what reads one whole ends in a MemoryError, or never."""
    diverged.mark(tmp_path, "it differs")
    table = tmp_path / "topics.json"
    table.write_text("{}")
    mark = StoreFormat(tmp_path, "1.0")
    (tmp_path / form.NAME).write_text('{"format": 1}')
    assert (mark.check(), table_fault(table)) == (1, None)
    for name in (diverged.NAME, table.name, form.NAME):
        os.truncate(tmp_path / name, 1 << 43)
    why = diverged.read(tmp_path)
    assert why is not None
    assert why.startswith("it differs\0")
    assert len(why) == 400
    assert table_fault(table) == f"larger than {FILE_SIZE_MAX} bytes"
    with pytest.raises(Corrupt, match="cannot be read"):
        mark.check()


def test_mark_nested_deeper_than_any_reader_goes_is_damaged(tmp_path: Path) -> None:
    (tmp_path / form.NAME).write_text("[" * 4000)
    with pytest.raises(Corrupt, match="cannot be read"):
        StoreFormat(tmp_path, "1.0").check()
