"""Commit-log files as tables: whole, split, damaged, cut off, open in a broker, written by Java."""

from __future__ import annotations

import fcntl
import os
import shutil
import struct
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from log_store import FILE, write
from roquet import roquet_native as native
from roquet.base.errors import Corrupt, UsageError
from roquet.spark.log_files import (
    BLOCK,
    LogFile,
    LogPartition,
    Store,
    data_ranges,
    plan,
    plan_store,
)
from roquet.spark.log_source import LogFilesReader
from roquet.spark.options import LogOptions

if TYPE_CHECKING:
    from collections.abc import Sequence

pa: Any = pytest.importorskip("pyarrow")
VECTORS = Path(__file__).parents[2] / "vectors/store"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("whole")
    write(root)
    return root


def reader(root: Path | str, **options: str) -> LogFilesReader:
    return LogFilesReader(LogOptions.parse({"path": str(root), **options}))


def batches(root: Path | str, **options: str) -> list[Any]:
    reading = reader(root, **options)
    return [batch for part in reading.partitions() for batch in reading.read(part)]


def numbers(root: Path | str, **options: str) -> list[int]:
    found = batches(root, **options)
    return [int(body.split()[0]) for batch in found for body in batch.column("body").to_pylist()]


def damage(root: Path | str, **options: str) -> list[tuple[int, int, str]]:
    found = batches(root, table="damage", **options)
    rows = [row for batch in found for row in batch.to_pylist()]
    assert all(row["bytes"] == row["endOffset"] - row["beginOffset"] > 0 for row in rows)
    return [(row["beginOffset"], row["endOffset"], row["reason"]) for row in rows]


def places(root: Path | str) -> list[tuple[int, int]]:
    """Return begin and end of every record, in order."""
    found = batches(root, columns="physicalOffset,storeSize", onCorrupt="report")
    return [
        (row["physicalOffset"], row["physicalOffset"] + row["storeSize"])
        for batch in found
        for row in batch.to_pylist()
    ]


def files(root: Path) -> list[Path]:
    return sorted((root / "commitlog").iterdir())


def change(root: Path, at: int, data: bytes) -> None:
    with files(root)[at // FILE].open("r+b") as file:
        file.seek(at % FILE)
        file.write(data)


@pytest.fixture
def copy(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "copy"))


def test_last_file_that_becomes_shorter_after_the_plan_is_damage(copy: Path) -> None:
    reading = reader(copy)
    parts = reading.partitions()
    behind = places(copy)[-1][1]
    # At the end of a record, where nothing else shows it.
    os.truncate(files(copy)[-1], behind % FILE)
    with pytest.raises(Corrupt, match="the file ends here"):
        [batch for part in parts for batch in reading.read(part)]


def test_every_record_of_a_stopped_store_comes_once_in_order(whole: Path) -> None:
    assert numbers(whole) == list(range(300))
    assert numbers(whole / "commitlog") == list(range(300))
    assert damage(whole) == []
    assert len(files(whole)) > 2
    for parts in (2, 7, 64, 1000):
        assert numbers(whole, minPartitions=str(parts)) == list(range(300))
        assert len(reader(whole, minPartitions=str(parts)).partitions()) >= parts


def test_batches_keep_their_limits(whole: Path) -> None:
    found = batches(whole, maxBytesPerBatch="65536")
    assert sum(batch.num_rows for batch in found) == 300
    assert max(batch.nbytes for batch in found) < 65536 + 1000
    assert max(batch.num_rows for batch in found) > 50


def test_rows_are_chosen_by_topic_tag_and_time(whole: Path) -> None:
    assert numbers(whole, subscribe="T1, T2") == [n for n in range(300) if n % 3]
    assert numbers(whole, subscribePattern="T[01]", columns="body") == [
        n for n in range(300) if n % 3 < 2
    ]
    assert numbers(whole, tags="b") == list(range(1, 300, 2))
    times = [
        time
        for batch in batches(whole, columns="storeTimestamp")
        for time in batch.column(0).cast(pa.int64()).to_pylist()
    ]
    middle = times[150] // 1000
    before = numbers(whole, endingTimestamp=str(middle))
    assert before + numbers(whole, startingTimestamp=str(middle)) == list(range(300))
    assert before == [n for n in range(300) if times[n] // 1000 < middle]
    assert {
        row["brokerName"]
        for batch in batches(whole, brokerName="b-7", columns="brokerName")
        for row in batch.to_pylist()
    } == {"b-7"}


def test_a_changed_body_costs_one_record(copy: Path) -> None:
    begin, end = places(copy)[40]
    change(copy, end - 40, b"!")
    place = rf"{files(copy)[0]}: no record can be read at offset {begin} to {end} \(byte {begin}\)"
    with pytest.raises(Corrupt, match=place):
        numbers(copy)
    left = [n for n in range(300) if n != 40]
    for parts in ("1", "9"):
        assert numbers(copy, onCorrupt="report", minPartitions=parts) == left
        assert damage(copy, minPartitions=parts) == [(begin, end, "a body CRC that differs")]


def test_a_lost_length_is_searched_behind(copy: Path) -> None:
    begin, end = places(copy)[60]
    change(copy, begin, b"\x7f\xff\xff\xff")
    assert numbers(copy, onCorrupt="report") == [n for n in range(300) if n != 60]
    assert damage(copy) == [(begin, end, "a length that does not fit")]


def test_a_record_in_a_body_is_no_record_of_the_log(tmp_path: Path) -> None:
    root = tmp_path / "store"
    store = write(root, 3, close=False)
    inner = files(root)[0].read_bytes()[:400]
    store.put("T0", 0, b"9 " + inner, b"")
    store.put("T0", 0, b"10 ", b"")
    store.close()
    begin, end = places(root)[3]
    change(root, begin + 4, b"\0\0\0\0")
    # What is inside stands elsewhere than it says.
    assert numbers(root, onCorrupt="report") == [0, 1, 2, 10]
    assert damage(root)[0][:2] == (begin, end)


def test_a_hole_of_zeros_is_damage_and_the_end_is_not(copy: Path) -> None:
    all_places = places(copy)
    begin, end = all_places[10][0], all_places[19][1]
    change(copy, begin, bytes(end - begin))
    assert damage(copy) == [(begin, end, "zeros")]
    assert len(numbers(copy, onCorrupt="report")) == 290


def test_a_torn_last_record_is_reported(copy: Path) -> None:
    begin, end = places(copy)[-1]
    change(copy, end - 200, bytes(200))
    with pytest.raises(Corrupt, match="no record can be read"):
        numbers(copy)
    ((low, high, _),) = damage(copy)
    assert low == begin
    assert end - 200 - 8 <= high <= end


def test_files_that_are_gone_short_or_of_another_log_are_noticed(copy: Path) -> None:
    names = files(copy)
    names[1].rename(copy / "elsewhere")
    with pytest.raises(Corrupt, match=f"offset {FILE} to {2 * FILE}.*no file holds"):
        numbers(copy)
    assert damage(copy) == [(FILE, 2 * FILE, "no file holds these offsets")]
    (copy / "elsewhere").rename(names[1])
    with names[0].open("r+b") as file:
        file.truncate(30_000)
    ((low, high, _),) = damage(copy)
    assert (high, 29_000 < low <= 30_000) == (FILE, True)
    shutil.copy(names[1], names[1].with_name(f"{FILE + 100:020}"))
    with pytest.raises(UsageError, match="overlap"):
        numbers(copy)


def test_a_file_that_expires_between_plan_and_read_is_damage(copy: Path) -> None:
    reading = reader(copy, onCorrupt="report", table="damage")
    parts = reading.partitions()
    first = files(copy)[0]
    first.unlink()
    rows = [row for part in parts for batch in reading.read(part) for row in batch.to_pylist()]
    assert [(row["file"], row["reason"]) for row in rows] == [(str(first), "the file is gone")]


def test_an_open_store_is_read_up_to_what_is_durable(copy: Path) -> None:
    every = places(copy)
    begin, end = every[120]
    checkpoint = copy / "checkpoint"
    with (copy / "lock").open("w+b") as lock:
        # An ordinary lock would end when anybody in this process closes the file.
        whole_file = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0)
        fcntl.fcntl(lock, fcntl.F_OFD_SETLK, whole_file)
        # A confirmed offset, as Java writes it; one inside of a record excludes it.
        for stop, count in ((end, 121), (end - 1, 120), (begin + 1, 120)):
            checkpoint.write_bytes(struct.pack(">6q", 1, 1, 1, 0, stop, 0).ljust(4096, b"\0"))
            for parts in ("1", "7"):
                assert numbers(copy, minPartitions=parts) == list(range(count))
        # A time only: a half record behind it is somebody's at work.
        change(copy, every[-1][1] - 100, bytes(100))
        checkpoint.write_bytes(struct.pack(">6q", 2**61, 1, 1, 0, 0, 0).ljust(4096, b"\0"))
        assert numbers(copy) == list(range(299))
        assert damage(copy) == []
        checkpoint.write_bytes(struct.pack(">6q", 1, 1, 1, 0, 0, 0).ljust(4096, b"\0"))
        assert numbers(copy) == []
        checkpoint.unlink()
        assert numbers(copy) == []
        # What is said to be durable has to be there.
        at = every[100][0]
        change(copy, at, bytes(FILE - at % FILE))
        checkpoint.write_bytes(struct.pack(">6q", 1, 1, 1, 0, at + 1000, 0).ljust(4096, b"\0"))
        assert damage(copy) == [(at, at + 1000, "zeros")]
    with pytest.raises(Corrupt):
        numbers(copy)


def test_a_store_that_our_broker_has_open(tmp_path: Path) -> None:
    store = write(tmp_path, 100, close=False)
    found = numbers(tmp_path)
    store.close()
    assert found == list(range(len(found)))
    assert numbers(tmp_path) == list(range(100))


def test_java_s_stores(tmp_path: Path) -> None:
    rows: list[dict[str, object]] = []
    for kind in ("running", "clean"):
        rows = [row for batch in batches(VECTORS / kind) for row in batch.to_pylist()]
        golden = [row for row in rows if row["topic"] == "GoldenTopic"]
        assert len(golden) > 20
        assert b"golden body 0" in [row["body"] for row in golden]
        assert damage(VECTORS / kind) == []
    root = tmp_path / "copied"
    shutil.copytree(VECTORS / "clean" / "commitlog", root)
    assert sum(batch.num_rows for batch in batches(root)) == len(rows)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"path": ""}, "path is needed"),
        ({"path": "/no/such/folder"}, "no such folder"),
        ({"path": "/"}, "no commit-log file"),
        ({"onCorrupt": "skip"}, "must be one of fail, report"),
        ({"table": "messagesss"}, "must be one of messages, damage"),
        ({"subscribe": "a", "subscribePattern": "b"}, "one of subscribe"),
        ({"on_corrupt": "fail"}, "did you mean: onCorrupt"),
    ],
)
def test_wrong_options_are_named(options: dict[str, str], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        batches(options.pop("path", "/"), **options)


def _cover(root: Path, parts: int) -> list[tuple[int, int]]:
    """Return records and damage of all parts, each read for itself, as ranges."""
    records = reader(root, onCorrupt="report", columns="physicalOffset,storeSize")
    found: list[tuple[int, int]] = []
    for part in plan([str(root)], parts):
        rows = [row for batch in records.read(part) for row in batch.to_pylist()]
        found += [(it["physicalOffset"], it["physicalOffset"] + it["storeSize"]) for it in rows]
    return found


@given(
    holes=st.lists(
        st.tuples(st.integers(0, 3 * FILE - 1), st.integers(1, 3000), st.booleans()), max_size=4
    ),
    parts=st.integers(2, 40),
    cut=st.none() | st.integers(1, FILE),
)
@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_whatever_is_damaged_every_byte_is_a_record_or_reported(
    whole: Path,
    tmp_path: Path,
    holes: Sequence[tuple[int, int, bool]],
    parts: int,
    cut: int | None,
) -> None:
    root = tmp_path / "damaged"
    shutil.rmtree(root, ignore_errors=True)
    shutil.copytree(whole, root)
    good = places(whole)
    for at, size, zero in holes:
        room = min(size, FILE - at % FILE)
        if at // FILE < len(files(root)):
            change(root, at, bytes(room) if zero else b"\xda\xa3\x20\xa7" * (room // 4 + 1))
        for name in files(root):
            assert name.stat().st_size <= FILE + 8
    for name in files(root):
        with name.open("r+b") as file:
            file.truncate(FILE)
    if cut is not None:
        with files(root)[0].open("r+b") as file:
            file.truncate(cut)
    one, many = _cover(root, 1), _cover(root, parts)
    assert one == many
    assert set(one) <= set(good)
    bad = damage(root)
    assert bad == damage(root, minPartitions=str(parts))
    # Every record is read, or lies in a range that is reported.
    lost = [place for place in good if place not in set(one)]
    for begin, end in lost:
        assert any(low < end and begin < high for low, high, _ in bad), (begin, end, bad)
    for low, high, _ in bad:
        assert all(end <= low or high <= begin for begin, end in one)


def test_what_is_ready_for_later_is_not_read(tmp_path: Path) -> None:
    size = 256 << 20
    store = native.Store.open(
        {
            "storePathRootDir": str(tmp_path),
            "mappedFileSizeCommitLog": size,
            "diskMaxUsedSpaceRatio": 95,
        }
    )
    store.start()
    for _ in range(3000):
        store.put("T", 0, bytes(1024), b"")
    store.close()
    found_rows = batches(tmp_path, columns="topic", minPartitions="4")
    assert sum(batch.num_rows for batch in found_rows) == 3000
    (file,) = tmp_path.glob("commitlog/*")
    with file.open("rb") as opened:
        found = list(data_ranges(opened.fileno(), 0, size))
    # What was read of a hole is data from then on; systems read ahead by some megabytes.
    assert sum(end - begin for begin, end in found) < size // 4


@pytest.mark.parametrize("size", [2 * BLOCK, 3 * BLOCK + 1])
@pytest.mark.parametrize("used", [0, 1, BLOCK - 1, BLOCK, BLOCK + 1])
def test_shares_are_of_what_is_written(tmp_path: Path, size: int, used: int) -> None:
    path = tmp_path / ("0" * 20)
    # All of it has blocks: what is behind the log was written too.
    path.write_bytes((bytes(used - 1) + b"x" if used else b"").ljust(size, b"\0"))
    store = Store(tmp_path, [LogFile(str(path), 0, size, last=True)])
    parts = [part for part in plan_store(store, 4) if isinstance(part, LogPartition)]
    assert [part.begin for part in parts] == sorted({used * number // 4 for number in range(4)})
    assert parts[-1].end == size
    assert plan_store(store, 4) == parts, "looking changes nothing"
