"""Traces taken apart by columns are what they are record by record, whatever the bytes are."""

from __future__ import annotations

import dataclasses
import json
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from roquet.protocol.messages.trace_lines import FIELD_END, RECORD_END, RECORDS_MAX, decode
from roquet.spark.jobs.tracing import columns as trace_columns
from roquet.spark.jobs.tracing.columns import decoded, readable, unreadable
from roquet.spark.jobs.tracing.queries import DAMAGED_TYPES, EVENT_TYPES, WHY_NOT

GOLDEN = Path(__file__).parents[2] / "vectors/trace_messages.jsonl"
RECORDS = (
    ("Pub", 1000, "R", "g", "t", "ID", "tag", "k1 k2", "127.0.0.1:1", 5, 7, 0, "OID", "true"),
    ("SubBefore", 1010, "R", "c", "REQ", "ID", 2, "k1"),
    ("SubAfter", "REQ", "ID", 9, "false", "k1", 2, 1020, "c"),
    ("EndTransaction", 1, "R", "g", "t", "ID", "a", "k", "h", 2, "TX", "COMMIT_MESSAGE", "false"),
    ("Recall", 1, "R", "g", "t", "I", "true"),
    ("SubLater", 1, 2),
)
NUMBERS = ("0", "-0", "007", "-7", "+7", "1.0", " 7", "٣", "999999999", "2147483647", "2147483648")
TIMES = ("9223372036000", "9223372036001", "1795245862560", "17952458625600", "-1", "1" * 19)
TEXTS = ("", "null", "NULL", "TRUE", "true", "False", "4", "5", "9", "é" * 4097, "x" * 5000, "\0")
VALUES = (*NUMBERS, *TIMES, *TEXTS)


def body_of(*records: tuple[object, ...]) -> bytes:
    return "".join(FIELD_END.join(map(str, it)) + RECORD_END for it in records).encode()


def batch(bodies: list[bytes | None]) -> Any:
    rows = range(len(bodies))
    stored = pa.array([1_795_000_000_000_000 + row for row in rows], pa.timestamp("us", "UTC"))
    hosts = pa.array([None if row % 7 == 3 else f"[::{row}]:9" for row in rows], pa.string())
    columns = [pa.array(rows, pa.int64()), stored, hosts, pa.array(bodies, pa.binary())]
    names = ["queueOffset", "storeTimestamp", "bornHost", "body"]
    return pa.record_batch(columns, names=names)


def by_columns(bodies: list[bytes | None]) -> list[tuple[Any, ...]]:
    found = pa.Table.from_batches(decoded([batch(bodies)]))
    assert found.column_names == list(EVENT_TYPES)
    # Each record is in one of the two tables.
    good = pa.Table.from_batches(readable([batch(bodies)]))
    bad = pa.Table.from_batches(unreadable([batch(bodies)]))
    assert good.column_names == [name for name in EVENT_TYPES if name not in WHY_NOT]
    assert bad.column_names == list(DAMAGED_TYPES)
    assert good.num_rows + bad.num_rows == found.num_rows
    assert "" not in bad.column("reason").to_pylist()
    values = [
        column.cast(pa.int64()).to_pylist()
        if name in {"at", "storeTimestamp"}
        else column.to_pylist()
        for name, column in zip(found.column_names, found.columns, strict=True)
    ]
    return sorted(zip(*values, strict=True), key=repr)


def one_by_one(bodies: list[bytes | None]) -> list[tuple[Any, ...]]:
    rows: list[tuple[Any, ...]] = []
    for row, body in enumerate(bodies):
        host = "" if row % 7 == 3 else f"[::{row}]"
        for event in decode(body or b""):
            kind, at, *values = dataclasses.astuple(event)
            micros = None if at is None else at * 1000
            rows.append((kind, micros, *values, host, 1_795_000_000_000_000 + row, row))
    return sorted(rows, key=repr)


def test_what_java_wrote_is_the_same() -> None:
    bodies = [bytes.fromhex(json.loads(line)["hex"]) for line in GOLDEN.read_text().splitlines()]
    rows = by_columns([*bodies])
    assert len(rows) == 48
    assert rows == one_by_one([*bodies])


@pytest.mark.parametrize("record", RECORDS, ids=lambda it: str(it[0]))
def test_each_field_with_each_odd_value(record: tuple[object, ...]) -> None:
    bodies: list[bytes | None] = []
    for place in range(len(record)):
        for value in VALUES:
            changed = (*record[:place], value, *record[place + 1 :])
            bodies.append(body_of(*RECORDS, changed, record))
    bodies += [body_of(record[:fields], record) for fields in range(1, len(record))]
    bodies += [body_of((*record, *["more"] * more)) for more in (1, 2, 49, 50, 51, 52, 5000)]
    assert by_columns(bodies) == one_by_one(bodies)


def test_bodies_that_are_not_whole() -> None:
    whole = body_of(*RECORDS)
    recall = body_of(RECORDS[4])
    bodies: list[bytes | None] = [None, b"", b"\x02", b"\x02\x02", b"\x01", b"\xff\xfe", whole[:-1]]
    bodies += [whole + b"\x02" + whole, whole.replace(b"tag", b"t\xffg"), whole + "é".encode()[:1]]
    bodies += [recall * RECORDS_MAX, recall * (RECORDS_MAX + 1), recall * RECORDS_MAX + b"\x02"]
    rows = by_columns(bodies)
    assert rows == one_by_one(bodies)
    assert sum(row[list(EVENT_TYPES).index("reason")].startswith("more than") for row in rows) == 2
    # Without a byte that is no UTF-8 everything else goes the quick way.
    plain = [it for it in bodies if it is None or b"\xff" not in it]
    assert by_columns(plain) == one_by_one(plain)


def test_whatever_the_bytes_are_it_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(7)
    monkeypatch.setattr(trace_columns, "CUT_BYTES", 5000)
    for _ in range(40):
        bodies: list[bytes | None] = []
        for _ in range(50):
            records = chance.choices(RECORDS, k=chance.randrange(1, 5))
            body = bytearray(body_of(*records))
            for _ in range(chance.choice((0, 0, 1, 2, 3))):
                body[chance.randrange(len(body))] = chance.choice(
                    (1, 2, 48, 45, 0xC3, chance.randrange(256))
                )
            cut = len(body) if chance.random() < 0.8 else chance.randrange(len(body) + 1)
            bodies.append(bytes(body[:cut]))
        assert by_columns(bodies) == one_by_one(bodies)
