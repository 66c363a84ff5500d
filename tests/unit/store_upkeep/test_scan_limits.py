"""What a scan of log files finds, byte by byte, and what a backup keeps of a torn end."""

from __future__ import annotations

import json
import zlib
from typing import TYPE_CHECKING

import pytest

from roquet.base.errors import Corrupt, UsageError
from roquet.protocol.messages.records import encode_record
from roquet.store.records import Record, read_records
from roquet.store.upkeep.backup import MARK, backup, restore
from roquet.store.upkeep.logscan import (
    MAGIC_BLANK,
    End,
    is_log_name,
    log_files,
    record_at,
    scan,
    written_files,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from roquet.store.upkeep.logscan import Piece

FILE_SIZE = 1000
HOST = bytes((127, 0, 0, 1, 0, 0, 0x2A, 0x9F))


def record(place: int, body: bytes = b"body") -> bytes:
    """Return a record as the log has it at a place."""
    return encode_record(
        Record(
            size=0,
            body_crc=zlib.crc32(body) & 0x7FFFFFFF,
            queue_id=0,
            flag=0,
            queue_offset=0,
            physical_offset=place,
            sys_flag=0,
            born_timestamp=1,
            born_host=HOST,
            store_timestamp=1,
            store_host=HOST,
            reconsume_times=0,
            prepared_transaction_offset=0,
            body=body,
            topic="t",
            properties=b"",
            magic=0xDAA320A7,
        )
    )


SIZE = len(record(0))
BLANK = MAGIC_BLANK.to_bytes(4, "big")


def written(store: Path, base: int, *parts: bytes, size: int = FILE_SIZE) -> None:
    """Write a file of the log: bytes, then zeros up to its size."""
    log = store / "commitlog"
    log.mkdir(parents=True, exist_ok=True)
    (log / f"{base:020}").write_bytes(b"".join(parts).ljust(size, b"\0"))


def full(base: int, count: int = 2) -> bytes:
    """Return a full file: records, then a blank up to its end."""
    data = b"".join(record(base + at * SIZE) for at in range(count))
    return data + (FILE_SIZE - len(data)).to_bytes(4, "big") + BLANK


def seen(store: Path) -> list[tuple[str, int, int] | int]:
    """Return offsets of records, (`why`, begin, end) of damage, and the end as below 0."""
    return [shown(piece) for piece in scan(store)]


def shown(piece: Piece) -> tuple[str, int, int] | int:
    if isinstance(piece, Record):
        return piece.physical_offset
    return -piece.offset if isinstance(piece, End) else (piece.why, piece.begin, piece.end)


NONE = "no record begins here"


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ([], [0]),
        ([record(0)], [0, -SIZE]),
        ([record(0), record(SIZE)], [0, SIZE, -2 * SIZE]),
        # Damage ends where the next record begins, however short it is.
        ([b"\1" + record(1)], [(NONE, 0, 1), 1, -1 - SIZE]),
        ([b"\1" * 3 + record(3)], [(NONE, 0, 3), 3, -3 - SIZE]),
        (
            [record(0), b"\1" * 9 + record(SIZE + 9)],
            [0, (NONE, SIZE, SIZE + 9), SIZE + 9, -2 * SIZE - 9],
        ),
        # A record in the wrong place is none, and one behind it is found.
        (
            [record(7), record(SIZE)],
            [("a record says that it belongs to 7", 0, SIZE), SIZE, -2 * SIZE],
        ),
        # Zeros between records are damage, and at the end they are not.
        (
            [record(0), bytes(8), record(SIZE + 8)],
            [0, (NONE, SIZE, SIZE + 8), SIZE + 8, -2 * SIZE - 8],
        ),
        ([record(0), b"\1"], [0, (NONE, SIZE, FILE_SIZE)]),
        ([record(0), bytes(FILE_SIZE - SIZE - 1), b"\1"], [0, (NONE, SIZE, FILE_SIZE)]),
    ],
)
def test_scan_of_the_last_file_finds_records_damage_and_the_end(
    tmp_path: Path, parts: Sequence[bytes], expected: list[object]
) -> None:
    written(tmp_path, 0, *parts)
    assert seen(tmp_path) == expected


def test_scan_goes_from_file_to_file_and_names_what_is_missing(tmp_path: Path) -> None:
    written(tmp_path, 0, full(0))
    written(tmp_path, FILE_SIZE, full(FILE_SIZE, 1))
    written(tmp_path, 3 * FILE_SIZE, record(3 * FILE_SIZE))
    gap = "the file before it is missing or short"
    expected = [0, SIZE, FILE_SIZE, (gap, 2 * FILE_SIZE, 3 * FILE_SIZE)]
    assert seen(tmp_path) == [*expected, 3 * FILE_SIZE, -3 * FILE_SIZE - SIZE]
    # Zeros at the end of a file that is not the last are damage.
    written(tmp_path, FILE_SIZE, record(FILE_SIZE))
    found = seen(tmp_path)
    assert found[3] == (NONE, FILE_SIZE + SIZE, 2 * FILE_SIZE)


def test_empty_file_in_the_middle_is_damage_and_files_made_ahead_are_left_out(
    tmp_path: Path,
) -> None:
    written(tmp_path, 0, full(0))
    written(tmp_path, FILE_SIZE, size=0)
    written(tmp_path, FILE_SIZE + 5, record(FILE_SIZE + 5))
    written(tmp_path, 2 * FILE_SIZE + 5)
    written(tmp_path, 3 * FILE_SIZE + 5, size=0)
    (tmp_path / "commitlog" / "notes").write_text("x")
    assert len(log_files(tmp_path)) == 5
    assert [int(path.name) for path in written_files(tmp_path)] == [0, FILE_SIZE, FILE_SIZE + 5]
    short = ("the file before it is missing or short", FILE_SIZE, FILE_SIZE + 5)
    end = -FILE_SIZE - 5 - SIZE
    expected = [0, SIZE, ("the file is empty", FILE_SIZE, FILE_SIZE), short, FILE_SIZE + 5, end]
    assert seen(tmp_path) == expected


def test_only_file_is_kept_though_it_holds_nothing(tmp_path: Path) -> None:
    written(tmp_path, 0, size=0)
    assert len(written_files(tmp_path)) == 1
    assert seen(tmp_path) == [("the file is empty", 0, 0)]
    with pytest.raises(UsageError, match="no folder commitlog"):
        log_files(tmp_path / "commitlog")


def test_file_with_any_byte_that_is_not_zero_was_written(tmp_path: Path) -> None:
    for at in (0, 1, FILE_SIZE - 1):
        written(tmp_path, 0, full(0))
        written(tmp_path, FILE_SIZE, bytes(at) + b"\1")
        assert [int(path.name) for path in written_files(tmp_path)] == [0, FILE_SIZE]
    written(tmp_path, FILE_SIZE)
    assert [int(path.name) for path in written_files(tmp_path)] == [0]


@pytest.mark.parametrize(
    ("name", "is_one"),
    [("0" * 20, True), ("1" * 20, True), ("0" * 19, False), ("0" * 21, False), ("x" * 20, False)],
)
def test_file_of_the_log_is_called_by_twenty_digits(name: str, *, is_one: bool) -> None:
    assert is_log_name(name) is is_one
    assert not is_log_name("\u0661" * 20)


def test_record_fits_its_file_to_the_byte() -> None:
    data = record(5)
    assert isinstance(record_at(data, 0, 5), Record)
    assert isinstance(record_at(b"\0\0" + data, 2, 3), Record)
    assert "belongs to 5" in str(record_at(data, 0, 6))
    assert f"has {SIZE} bytes" in str(record_at(data[:-1], 0, 5))
    assert "has 0 bytes" in str(record_at(bytes(4) + data[4:], 0, 5))
    (whole,) = read_records(data)
    spoilt = bytearray(data)
    spoilt[data.index(b"body")] ^= 1
    assert whole.body == b"body"
    assert isinstance(record_at(bytes(spoilt), 0, 5), str)


# --- backups -------------------------------------------------------------------------------------


def tables(store: Path) -> None:
    (store / "config").mkdir(parents=True, exist_ok=True)
    for name in ("topics.json", "topics.json.bak", "topics.json.tmp", "other"):
        (store / "config" / name).write_text(name)


def test_backup_ends_with_the_last_whole_record_and_is_restored_byte_by_byte(
    tmp_path: Path,
) -> None:
    store, target, again = tmp_path / "store", tmp_path / "backup", tmp_path / "again"
    tables(store)
    written(store, 0, full(0))
    torn = record(FILE_SIZE), b"\1" * 9
    written(store, FILE_SIZE, *torn)
    end = FILE_SIZE + SIZE
    done: list[int] = []
    first = backup(store, target, done.append)
    assert (first.files, first.log_end) == (2, end)
    assert first.bytes == FILE_SIZE + SIZE
    assert json.loads((target / MARK).read_bytes()) == {"format": 1, "log_end": end}
    last = (target / "commitlog" / f"{FILE_SIZE:020}").read_bytes()
    assert last == record(FILE_SIZE).ljust(FILE_SIZE, b"\0")
    kept = sorted(path.name for path in (target / "config").iterdir())
    assert kept == ["topics.json", "topics.json.bak"]
    assert done == sorted(done)
    # A full file is not copied again; what has grown is.
    written(store, FILE_SIZE, record(FILE_SIZE), record(end))
    second = backup(store, target)
    assert (second.files, second.bytes, second.log_end) == (1, 2 * SIZE, end + SIZE)
    told: list[int] = []
    restored = restore(target, again, told.append)
    assert (restored.files, restored.log_end) == (4, end + SIZE)
    assert told[-1] == restored.bytes
    for path in (target / "commitlog").iterdir():
        assert (again / "commitlog" / path.name).read_bytes() == path.read_bytes()
    # Files that the broker has deleted go from the backup as well.
    (store / "commitlog" / f"{0:020}").unlink()
    backup(store, target)
    assert [int(path.name) for path in log_files(target)] == [FILE_SIZE]


def test_what_is_no_whole_backup_is_not_restored(tmp_path: Path) -> None:
    store, target = tmp_path / "store", tmp_path / "backup"
    tables(store)
    written(store, 0, record(0))
    with pytest.raises(UsageError, match="no backup"):
        restore(store, tmp_path / "again")
    backup(store, target)
    taken = tmp_path / "taken"
    taken.mkdir()
    (taken / "file").touch()
    with pytest.raises(UsageError, match="not empty"):
        restore(target, taken)
    written(target, 0, record(0), record(SIZE))
    with pytest.raises(Corrupt, match=f"ends at {2 * SIZE}, not at {SIZE}"):
        restore(target, tmp_path / "again")
