"""Checks, backups and repairs of small stores: what they count, make durable and say."""

from __future__ import annotations

import json
import zlib
from typing import TYPE_CHECKING

import pytest

from durable_calls import DurableCalls
from roquet.protocol.messages.records import encode_record
from roquet.store.records import Record
from roquet.store.upkeep import check as check_module
from roquet.store.upkeep.backup import MARK, backup, restore
from roquet.store.upkeep.check import Level, check
from roquet.store.upkeep.logscan import MAGIC_BLANK, MAGIC_V1, MAGIC_V2
from roquet.store.upkeep.repair import plan

if TYPE_CHECKING:
    from pathlib import Path

    from roquet.store.upkeep.check import Finding

FILE_SIZE = 1000
BLANK = MAGIC_BLANK.to_bytes(4, "big")


def record(
    place: int,
    queue_offset: int = 0,
    *,
    topic: str = "t",
    sys_flag: int = 0,
    magic: int = MAGIC_V1,
    properties: bytes = b"",
) -> bytes:
    """Return a record as the log has it at a place."""
    return encode_record(
        Record(
            size=0,
            body_crc=zlib.crc32(b"body") & 0x7FFFFFFF,
            queue_id=0,
            flag=0,
            queue_offset=queue_offset,
            physical_offset=place,
            sys_flag=sys_flag,
            born_timestamp=1,
            born_host=bytes(8),
            store_timestamp=1,
            store_host=bytes(8),
            reconsume_times=0,
            prepared_transaction_offset=0,
            body=b"body",
            topic=topic,
            properties=properties,
            magic=magic,
        )
    )


def written(store: Path, base: int, *parts: bytes, size: int = FILE_SIZE) -> None:
    """Write a file of the log: bytes, then zeros up to its size."""
    (store / "commitlog").mkdir(parents=True, exist_ok=True)
    (store / "commitlog" / f"{base:020}").write_bytes(b"".join(parts).ljust(size, b"\0"))


def log_of(store: Path, *offsets: int, **fields: int) -> int:
    """Write a log whose records have these queue offsets; return how long a record is."""
    size = len(record(0, **fields))  # type: ignore[arg-type]
    data = [record(at * size, offset, **fields) for at, offset in enumerate(offsets)]  # type: ignore[arg-type]
    written(store, 0, *data)
    return size


def queue_of(store: Path, *units: tuple[int, int, int], begin: int = 0) -> None:
    """Write the units of queue 0 of topic t: (physical offset, size, tags code)."""
    folder = store / "consumequeue" / "t" / "0"
    folder.mkdir(parents=True, exist_ok=True)
    data = b"".join(check_module.UNIT.pack(*unit) for unit in units)
    (folder / f"{begin * check_module.UNIT.size:020}").write_bytes(data)


def of_queues(findings: list[Finding]) -> list[tuple[Level, str]]:
    """Return what was found of topic t, its marks and tables left out."""
    return [(it.level, it.text) for it in findings if "t" in it.where.replace("/", " ").split()]


# --- the check ---------------------------------------------------------------------------------


def test_check_counts_records_and_says_where_the_log_begins_and_ends(tmp_path: Path) -> None:
    size = len(record(0))
    written(tmp_path, FILE_SIZE, record(FILE_SIZE), record(FILE_SIZE + size, 1))
    seen = check(tmp_path)
    assert (seen.records, seen.record_bytes) == (2, 2 * size)
    assert (seen.log_begin, seen.log_end) == (FILE_SIZE, FILE_SIZE + 2 * size)
    # Without room behind the last record no zeros say where the log ends.
    written(tmp_path, FILE_SIZE, record(FILE_SIZE), record(FILE_SIZE + size, 1), size=0)
    assert check(tmp_path).log_end == FILE_SIZE + 2 * size


@pytest.mark.parametrize("base", [0, FILE_SIZE])
def test_check_of_a_log_without_records_ends_where_it_begins(tmp_path: Path, base: int) -> None:
    written(tmp_path, base)
    seen = check(tmp_path)
    assert (seen.records, seen.record_bytes, seen.log_begin, seen.log_end) == (0, 0, None, base)


def test_check_looks_at_log_queues_tables_and_marks(tmp_path: Path) -> None:
    written(tmp_path, 0, b"\1", record(1))
    (tmp_path / "abort").touch()
    where = [it.where for it in check(tmp_path).findings]
    assert where == [f"commitlog/{0:020}", "consumequeue", "config", "abort", "checkpoint"]


def test_check_of_an_empty_file_has_no_end(tmp_path: Path) -> None:
    written(tmp_path, 0, size=0)
    assert check(tmp_path).log_end == 0


def test_check_says_how_far_it_is_every_so_many_records_and_at_each_queue(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(check_module, "_PROGRESS_RECORDS", 2)
    size = log_of(tmp_path, 0, 1, 2, 3, 4)
    queue_of(tmp_path, *[(at * size, size, 0) for at in range(5)])
    told: list[int] = []
    assert of_queues(check(tmp_path, told.append).findings) == []
    assert told == [2 * size, 4 * size, 5 * size]


@pytest.mark.parametrize(
    ("sys_flag", "is_queued"), [(0, True), (0x4, False), (0x8, True), (0xC, False), (0x1, True)]
)
def test_half_messages_and_those_rolled_back_are_in_no_queue(
    tmp_path: Path, sys_flag: int, *, is_queued: bool
) -> None:
    log_of(tmp_path, 0, sys_flag=sys_flag)
    (tmp_path / "consumequeue" / "other").mkdir(parents=True)
    assert bool(of_queues(check(tmp_path).findings)) is is_queued


def test_offset_that_is_used_twice_is_damage_and_a_gap_is_a_note(tmp_path: Path) -> None:
    size = log_of(tmp_path, 0, 1, 1, 4, 5)
    queue_of(tmp_path, *[(at * size, size, 0) for at in range(2)])
    queue_of(tmp_path, (3 * size, size, 0), (4 * size, size, 0), begin=4)
    assert of_queues(check(tmp_path).findings) == [
        (Level.DAMAGE, f"queue offset 1 is used twice (again at {2 * size})"),
        (Level.NOTE, "queue offsets 2 to 3 have no message in the log"),
    ]
    # Behind the gap units are compared like all others, the first as well.
    queue_of(tmp_path, (3 * size, size, 9), (4 * size, size, 0), begin=4)
    assert of_queues(check(tmp_path).findings)[-1] == (
        Level.REPAIRABLE,
        "0 units are missing and 1 wrong, at 4",
    )


def test_records_behind_damage_are_found_whatever_their_magic_number(tmp_path: Path) -> None:
    for first, second in ((MAGIC_V1, MAGIC_V2), (MAGIC_V2, MAGIC_V1)):
        # Each number also stands where no record is.
        noise = b"\1" * 5 + MAGIC_V2.to_bytes(4, "big") * 2 + MAGIC_V1.to_bytes(4, "big") * 2
        data = [record(len(noise), magic=first)]
        behind = len(noise) + len(data[0]) + 3
        data += [b"\2" * 3, record(behind, 1, magic=second)]
        written(tmp_path, 0, noise, *data)
        seen = check(tmp_path)
        damaged = [it.text for it in seen.findings if it.level is Level.DAMAGE]
        assert [it.split(":")[0] for it in damaged] == [
            f"{len(noise)} bytes at 0 hold no record",
            f"3 bytes at {behind - 3} hold no record",
        ]
        assert seen.records == 2


# --- repairs -----------------------------------------------------------------------------------


def test_repair_puts_aside_under_the_next_free_name_and_makes_that_durable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log_of(tmp_path, 0)
    for name in ("consumequeue", "consumequeue.broken", "consumequeue.broken3"):
        (tmp_path / name / "other").mkdir(parents=True)
    for expected in ("consumequeue.broken2", "consumequeue.broken4"):
        (step,) = plan(tmp_path)
        with monkeypatch.context() as patch:
            calls = DurableCalls(patch)
            step.act()
        assert calls.made == [("sync", tmp_path.name)]
        assert (tmp_path / expected / "other").is_dir()
        assert not (tmp_path / "consumequeue").exists()
        (tmp_path / "consumequeue" / "other").mkdir(parents=True)


def test_table_from_its_copy_is_durable_and_the_broken_one_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(tmp_path, 0)
    config = tmp_path / "config"
    config.mkdir()
    (config / "topics.json").write_text("{")
    (config / "topics.json.bak").write_text("{}")
    (step,) = plan(tmp_path)
    calls = DurableCalls(monkeypatch)
    step.act()
    assert calls.made == [("sync", "config")] * 2
    names = {path.name: path.read_text() for path in config.iterdir()}
    assert names == {"topics.json": "{}", "topics.json.bak": "{}", "topics.json.broken": "{"}


# --- backups -----------------------------------------------------------------------------------


def test_backup_of_a_log_without_messages_has_no_bytes_of_them(tmp_path: Path) -> None:
    store = tmp_path / "store"
    written(store, 0)
    done = backup(store, tmp_path / "copy")
    assert (done.files, done.bytes, done.log_end) == (1, 0, 0)
    (store / "commitlog" / f"{0:020}").unlink()
    none = backup(store, tmp_path / "none")
    assert (none.files, none.bytes, none.log_end) == (0, 0, 0)
    assert json.loads((tmp_path / "none" / MARK).read_bytes()) == {"format": 1, "log_end": 0}
    assert restore(tmp_path / "none", tmp_path / "again").log_end == 0


@pytest.mark.parametrize("room", [0, 7, 8, 9])
def test_log_of_a_backup_ends_with_its_records_or_with_a_file_too_full_for_more(
    tmp_path: Path, room: int
) -> None:
    """Eight zeros could be the head of a record; fewer bytes cannot be one."""
    store, size = tmp_path / "store", len(record(0))
    written(store, 0, record(0), size=size + room)
    end = size + room if room < 8 else size
    assert backup(store, tmp_path / "copy").log_end == end
    assert restore(tmp_path / "copy", tmp_path / "new").log_end == end
    # A blank fills what is left.
    if room >= 8:
        written(store, 0, record(0), room.to_bytes(4, "big") + BLANK, size=size + room)
        assert backup(store, tmp_path / "copy").log_end == size + room


def test_backup_is_durable_before_its_mark_and_a_restore_before_it_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, copy = tmp_path / "store", tmp_path / "copy"
    written(store, 0, record(0))
    (store / "config").mkdir()
    (store / "config" / "topics.json").write_text("{}")
    log = f"{0:020}"
    calls = DurableCalls(monkeypatch)
    backup(store, copy)
    kinds = [name for kind, name in calls.made if kind == "sync"]
    assert kinds == ["topics.json.part", "config", f"{log}.part", log, MARK, "copy"]
    calls.made.clear()
    restore(copy, tmp_path / "new")
    kinds = [name for kind, name in calls.made if kind == "sync"]
    wanted = [log, "topics.json.part", "config", f"{log}.part", "commitlog", "new"]
    assert kinds == wanted
    assert calls.made.index(("name", log)) < calls.made.index(("sync", "commitlog"))
