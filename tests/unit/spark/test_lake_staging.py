"""What a task writes of a part: files by topic and day, and what it says of them."""

from __future__ import annotations

import zlib
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from roquet.spark.jobs.storage import staging
from roquet.spark.jobs.storage.files import LakeError
from roquet.spark.jobs.storage.staging import Form, checksum, stage

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FORM = Form("snappy", "INT96")
EVENING, NIGHT = 1_795_305_600_000_000 - 1, 1_795_305_600_000_000
"""Microseconds on both sides of the midnight (UTC) at which 2026-11-22 begins."""
TYPES = pa.schema(
    [
        ("topic", pa.string()),
        ("brokerName", pa.string()),
        ("queueId", pa.int32()),
        ("queueOffset", pa.int64()),
        ("uniqKey", pa.string()),
        ("properties", pa.map_(pa.string(), pa.string())),
        ("storeTimestamp", pa.timestamp("us", "UTC")),
        ("body", pa.binary()),
    ]
)


def batch(
    *rows: tuple[int, int, int, bytes | None], topic: str = "t", key: str | None = "k"
) -> Any:
    """Return rows of queue, offset, time and body."""
    made = [
        {
            "topic": topic,
            "brokerName": "b",
            "queueId": queue,
            "queueOffset": offset,
            "uniqKey": key,
            "properties": [("n", str(offset))],
            "storeTimestamp": time,
            "body": body,
        }
        for queue, offset, time, body in rows
    ]
    return pa.RecordBatch.from_pylist(made, TYPES)


def crc(offset: int, key: str, body: bytes) -> int:
    return zlib.crc32(f"{offset} {key} ".encode() + body)


def test_a_checksum_is_that_of_offset_key_and_body() -> None:
    rows = batch((0, 7, NIGHT, b"one"), (0, 8, NIGHT, None), (0, 9, NIGHT, b"\x00\xff"))
    wanted = crc(7, "k", b"one") + crc(8, "k", b"") + crc(9, "k", b"\x00\xff")
    assert checksum(rows) == wanted
    assert checksum(rows.slice(1, 2)) == wanted - crc(7, "k", b"one")
    assert checksum(rows.slice(3)) == 0
    assert checksum(batch((0, 7, NIGHT, b"one"), key=None)) == crc(7, "", b"one")


def test_each_topic_and_day_gets_a_file_and_each_queue_a_line(tmp_path: Path) -> None:
    batches = [
        batch((1, 5, EVENING, b"a"), (1, 6, NIGHT, b"b")),
        batch((1, 7, NIGHT, b"c"), (2, 0, NIGHT, b"d")),
        batch((1, 8, NIGHT, b"e"), topic="%DLQ%g"),
    ]
    lines = list(stage(tmp_path, batches, FORM))
    assert [it[1:] for it in lines] == [
        ("t", "2026-11-21", "b", 1, 5, 6, 1, crc(5, "k", b"a")),
        ("t", "2026-11-22", "b", 1, 6, 8, 2, crc(6, "k", b"b") + crc(7, "k", b"c")),
        ("t", "2026-11-22", "b", 2, 0, 1, 1, crc(0, "k", b"d")),
        ("%DLQ%g", "2026-11-22", "b", 1, 8, 9, 1, crc(8, "k", b"e")),
    ]
    files = sorted({it.file for it in lines})
    assert [it.rpartition("/")[0] for it in files] == [
        "topic=%25DLQ%25g/day=2026-11-22",
        "topic=t/day=2026-11-21",
        "topic=t/day=2026-11-22",
    ]
    assert files == sorted(str(it.relative_to(tmp_path)) for it in tmp_path.glob("*/*/*"))
    table = pq.ParquetFile(tmp_path / lines[1].file).read()
    assert table.column_names == TYPES.names[1:]
    assert table["body"].to_pylist() == [b"b", b"c", b"d"]
    assert table["properties"].to_pylist()[0] == [("n", "6")]
    assert table["storeTimestamp"][0].as_py().replace(tzinfo=UTC) == datetime(
        2026, 11, 22, tzinfo=UTC
    )
    # A second try has files of its own.
    again = list(stage(tmp_path, batches, FORM))
    assert [it[1:] for it in again] == [it[1:] for it in lines]
    assert not {it.file for it in again} & set(files)


def test_without_a_folder_nothing_is_written() -> None:
    (line,) = stage(None, [batch((1, 5, NIGHT, b"a"), (1, 9, NIGHT, b"b"))], FORM)
    assert (line.file, line.from_offset, line.to_offset, line.rows) == ("", 5, 10, 2)
    assert list(stage(None, [], FORM)) == []


@pytest.mark.parametrize("times", staging.TIMES)
@pytest.mark.parametrize("codec", staging.CODECS)
def test_row_groups_end_by_bytes_whatever_the_codec(
    codec: str, times: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staging, "GROUP_BYTES", 100)
    batches = [batch((0, n, NIGHT, b"x" * 60), (0, n + 1, NIGHT, None)) for n in range(0, 8, 2)]
    (line,) = stage(tmp_path, batches, Form(codec, times))
    file = pq.ParquetFile(tmp_path / line.file)
    assert (line.rows, file.metadata.num_row_groups) == (8, 4)
    wanted = {"none": "UNCOMPRESSED"}.get(codec, codec.upper())
    assert file.metadata.row_group(0).column(0).compression == wanted
    kind = {"INT96": "INT96", "TIMESTAMP_MICROS": "INT64"}[times]
    assert file.schema.column(TYPES.names.index("storeTimestamp")).physical_type == kind


def test_what_cannot_be_read_back_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = pq.ParquetFile.iter_batches

    def short(file: Any, **named: Any) -> Iterator[Any]:
        for rows in real(file, **named):
            yield rows.slice(1)

    monkeypatch.setattr(pq.ParquetFile, "iter_batches", short)
    with pytest.raises(LakeError, match="was written"):
        list(stage(tmp_path, [batch((0, 1, NIGHT, b"a"), (0, 2, NIGHT, b"b"))], FORM))
