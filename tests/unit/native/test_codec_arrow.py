"""Stored records as Arrow batches: every column, type and option, against pyarrow itself."""

from __future__ import annotations

import datetime as dt
import gc
import struct
import subprocess
import sys
import threading
import time
import zlib
from pathlib import Path
from typing import Any

import lz4.frame
import pytest
import zstandard

from roquet import roquet_native as native

pa: Any = pytest.importorskip("pyarrow")

UTC = dt.UTC
SCHEMA = pa.schema(
    [
        ("topic", pa.string()),
        ("brokerName", pa.string()),
        ("queueId", pa.int32()),
        ("queueOffset", pa.int64()),
        ("physicalOffset", pa.int64()),
        ("storeSize", pa.int32()),
        ("msgId", pa.string()),
        ("uniqKey", pa.string()),
        ("keys", pa.string()),
        ("tags", pa.string()),
        ("properties", pa.map_(pa.string(), pa.string())),
        ("bornTimestamp", pa.timestamp("us", tz="UTC")),
        ("storeTimestamp", pa.timestamp("us", tz="UTC")),
        ("bornHost", pa.string()),
        ("storeHost", pa.string()),
        ("reconsumeTimes", pa.int32()),
        ("sysFlag", pa.int32()),
        ("bodyCRC", pa.int32()),
        ("body", pa.binary()),
    ]
)
V4 = bytes([127, 0, 0, 1]) + (10911).to_bytes(4, "big")
V6 = bytes(15) + b"\1" + (80).to_bytes(4, "big")

_FORKED = """
import os, sys, pyarrow, pyspark.sql.datasource
before = len(os.listdir("/proc/self/task"))
import roquet.roquet_native as native
assert len(os.listdir("/proc/self/task")) == before, "the native module starts a thread"
import roquet.spark.source
assert len(os.listdir("/proc/self/task")) == before, "the sources start a thread"
child = os.fork()
if child == 0:
    with open(sys.argv[1], "rb") as file:
        made = pyarrow.record_batch(native.records_to_arrow([file.read()], "b"))
    os._exit(0 if made.num_rows == 3 else 1)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def record(
    body: bytes = b"hello",
    properties: bytes = b"KEYS\x01k1\x02TAGS\x01TagA\x02UNIQ_KEY\x01U1\x02",
    *,
    offset: int = 5,
    sys_flag: int = 0,
    host: bytes = V4,
    topic: bytes = b"TestT",
) -> bytes:
    head = struct.pack(">iiqqiq", 3, 9, offset, 1000 + offset, sys_flag, 1_700_000_000_001)
    tail = struct.pack(">q", 1_700_000_000_002) + host + struct.pack(">iqi", 2, 0, len(body))
    rest = head + host + tail + body
    rest += bytes([len(topic)]) + topic + struct.pack(">h", len(properties)) + properties
    start = struct.pack(">III", 12 + len(rest), 0xDAA320A7, zlib.crc32(body) & 0x7FFFFFFF)
    return start + rest


def arrow(*records: bytes, **options: Any) -> Any:
    return pa.record_batch(native.records_to_arrow([b"".join(records)], "broker-a", **options))


def test_every_column_has_its_type_and_value() -> None:
    batch = arrow(record(), record(b"", b"", offset=6, sys_flag=0x30, host=V6))
    batch.validate(full=True)
    assert batch.schema == SCHEMA
    first, second = batch.to_pylist()
    assert first == {
        "topic": "TestT",
        "brokerName": "broker-a",
        "queueId": 3,
        "queueOffset": 5,
        "physicalOffset": 1005,
        "storeSize": len(record()),
        "msgId": "7F00000100002A9F00000000000003ED",
        "uniqKey": "U1",
        "keys": "k1",
        "tags": "TagA",
        "properties": [("KEYS", "k1"), ("TAGS", "TagA"), ("UNIQ_KEY", "U1")],
        "bornTimestamp": dt.datetime(2023, 11, 14, 22, 13, 20, 1000, tzinfo=UTC),
        "storeTimestamp": dt.datetime(2023, 11, 14, 22, 13, 20, 2000, tzinfo=UTC),
        "bornHost": "127.0.0.1:10911",
        "storeHost": "127.0.0.1:10911",
        "reconsumeTimes": 2,
        "sysFlag": 0,
        "bodyCRC": 907060870,
        "body": b"hello",
    }
    assert (second["uniqKey"], second["keys"], second["tags"]) == (None, None, None)
    assert (second["properties"], second["body"]) == ([], b"")
    assert second["bornHost"] == second["storeHost"] == "[::1]:80"
    assert len(second["msgId"]) == 56


def test_nulls_come_and_go() -> None:
    rows = [record(properties=b"TAGS\x01t\x02" if n % 3 else b"", offset=n) for n in range(50)]
    batch = arrow(*rows, columns=["tags", "queueOffset"])
    batch.validate(full=True)
    assert batch.schema.names == ["queueOffset", "tags"]
    assert batch.column("tags").to_pylist() == ["t" if n % 3 else None for n in range(50)]
    assert batch.column("tags").null_count == 17


def test_columns_are_a_subset_in_the_order_of_the_schema() -> None:
    for field in SCHEMA:
        batch = arrow(record(), columns=[field.name])
        batch.validate(full=True)
        assert batch.schema == pa.schema([field])
    assert arrow(record(), columns=["body", "topic"]).schema.names == ["topic", "body"]
    none = arrow(record(), columns=[])
    assert (none.num_columns, none.num_rows) == (0, 1)
    with pytest.raises(ValueError, match="no column Body; there are topic, brokerName"):
        arrow(record(), columns=["Body"])


def test_rows_are_chosen_by_offset_and_tag() -> None:
    rows = [record(properties=f"TAGS\x01t{n % 3}\x02".encode(), offset=n) for n in range(10)]
    assert arrow(*rows, begin=3, end=5).column("queueOffset").to_pylist() == [3, 4]
    chosen = arrow(*rows, record(properties=b"", offset=10), tags=["t1", "x"], columns=["tags"])
    assert chosen.column("tags").to_pylist() == ["t1", "t1", "t1"]
    empty = arrow(*rows, begin=50)
    empty.validate(full=True)
    assert (empty.num_rows, empty.schema) == (0, SCHEMA)
    assert native.records_to_arrow([], "b").num_rows == 0


def test_bodies_are_decompressed_within_bounds() -> None:
    text = b"roquet " * 1000
    cases = {
        0x001: zlib.compress(text),
        0x301: zlib.compress(text),
        0x101: lz4.frame.compress(text),
        0x201: zstandard.compress(text),
    }
    for flag, packed in cases.items():
        row = arrow(record(packed, sys_flag=flag)).to_pylist()[0]
        assert row["body"] == text
        assert row["bodyCRC"] == zlib.crc32(packed) & 0x7FFFFFFF
        with pytest.raises(ValueError, match="physical offset 1005: decompressed body length"):
            arrow(record(packed, sys_flag=flag), decompress_max=len(text) - 1)
        with pytest.raises(ValueError, match="the compressed body is damaged"):
            arrow(record(packed[:-9], sys_flag=flag))
    bomb = zlib.compress(bytes(50_000_000), 9)
    with pytest.raises(ValueError, match="at most 1000 fits"):
        arrow(record(bomb, sys_flag=1), decompress_max=1000)


def test_odd_properties() -> None:
    repeated = b"a\x011\x02b\x012\x02a\x013\x02empty\x01\x02last\x01x\x01y"
    row = arrow(record(properties=repeated)).to_pylist()[0]
    assert row["properties"] == [("a", "3"), ("b", "2"), ("last", "x\x01y")]
    many = b"".join(b"k%d\x01%d\x02" % (n % 100, n) for n in range(150))
    pairs = dict(arrow(record(properties=many)).to_pylist()[0]["properties"])
    assert pairs == {f"k{n % 100}": str(n) for n in range(150)}
    assert len(arrow(record(properties=many)).to_pylist()[0]["properties"]) == 100
    broken = arrow(record(properties=b"TAGS\x01\xff\xfe\x02", topic=b"\xc3"))
    broken.validate(full=True)
    assert broken.to_pylist()[0]["tags"] == "��"


def test_damage_names_the_body_and_the_place() -> None:
    good = record()
    with pytest.raises(ValueError, match=f"body 1, record at byte {len(good)}: a body CRC"):
        native.records_to_arrow([good, good + good.replace(b"hello", b"jello")], "b")
    changed = good.replace(b"hello", b"jello")
    assert arrow(changed, check_crc=False).column("body").to_pylist() == [b"jello"]
    with pytest.raises(ValueError, match="a length that does not fit"):
        native.records_to_arrow([good[:-1]], "b")


def test_memory_lives_as_long_as_anybody_looks() -> None:
    made = native.records_to_arrow([record() * 100], "broker-a")
    twice = [pa.record_batch(made), pa.record_batch(made)]
    column = twice[0].column("body")
    unused = made.__arrow_c_array__()
    del made, twice, unused
    gc.collect()
    assert column.to_pylist() == [b"hello"] * 100


def test_java_s_own_records() -> None:
    log = Path(__file__).parents[2] / "vectors/store/clean/commitlog/00000000000000000000"
    data = log.read_bytes()
    end = 0
    while (size := int.from_bytes(data[end : end + 4], "big")) and data[end + 4] == 0xDA:
        end += size
    batch = arrow(data[:end])
    batch.validate(full=True)
    rows = [row for row in batch.to_pylist() if row["topic"] == "GoldenTopic"]
    bodies = [row["body"] for row in rows]
    assert b"golden body 0" in bodies
    assert any(len(body) == 10_000 for body in bodies)
    assert {row["tags"] for row in rows} >= {"TagA", "TagB"}
    assert [r[13] for r in native.decode_records(data[:end]) if not r[6] & 1] == [
        row["body"] for row in batch.to_pylist() if not row["sysFlag"] & 1
    ]


def test_other_threads_run_while_records_are_decoded() -> None:
    data = record(bytes(1024)) * (32 * 1024)
    turns, ended = [0], threading.Event()

    def count() -> None:
        while not ended.is_set():
            turns[0] += 1
            time.sleep(0)

    counting = threading.Thread(target=count)
    interval = sys.getswitchinterval()
    # From here on a thread has Python's lock until it gives it away by itself.
    sys.setswitchinterval(1000)
    try:
        counting.start()
        end = time.monotonic() + 60
        turned = 0
        while not turned and time.monotonic() < end:
            before = turns[0]
            native.records_to_arrow([data], "broker-a", columns=["body"], bytes_max=1 << 30)
            turned = turns[0] - before
    finally:
        sys.setswitchinterval(interval)
        ended.set()
        counting.join()
    assert turned, "nothing else ran while 32 MiB were decoded"


def test_an_import_starts_no_thread_and_a_fork_decodes(tmp_path: Path) -> None:
    records = tmp_path / "records"
    records.write_bytes(record() * 3)
    # What Spark's daemon does for each task: it imports, forks, and the child works.
    done = subprocess.run(
        [sys.executable, "-c", _FORKED, str(records)],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
