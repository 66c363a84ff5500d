"""The text of traces taken apart: Java's own bytes, older and later clients, cut ones."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest

from roquet.protocol.messages.trace_lines import FIELD_END, RECORD_END, RECORDS_MAX, Event, decode
from roquet.spark.jobs.tracing.columns import decoded


def record(*values: object) -> bytes:
    return (FIELD_END.join(str(value) for value in values) + RECORD_END).encode()


GOLDEN = Path(__file__).parents[2] / "vectors/trace_messages.jsonl"
PUB = ("Pub", 1000, "R", "g", "t", "ID", "tag", "k1 k2", "127.0.0.1:1", 5, 7, 0, "OID", "true")
BEFORE = ("SubBefore", 1010, "R", "c", "REQ", "ID", 2, "k1")
AFTER = ("SubAfter", "REQ", "ID", 9, "false", "k1", 2, 1020, "c")


def one(body: bytes) -> Event:
    (event,) = decode(body)
    return event


def test_what_java_wrote() -> None:
    lines = [json.loads(line) for line in GOLDEN.read_text().splitlines()]
    events = [event for line in lines for event in decode(bytes.fromhex(line["hex"]))]
    assert {event.reason for event in events} == {""}
    kinds = Counter(event.kind for event in events)
    assert kinds == {"Pub": 12, "SubBefore": 15, "SubAfter": 15, "EndTransaction": 6}
    sends = [event for event in events if event.kind == "Pub"]
    assert Counter(event.message_type for event in sends) == {"normal": 9, "half": 2, "delay": 1}
    assert all(event.success and event.topic == "TraceGolden" for event in sends)
    two_keys = next(event for event in sends if event.keys == "order-7 customer-1")
    assert (two_keys.tags, two_keys.body_length) == (None, 8)
    failed = {event.keys: event.code for event in events if event.success is False}
    assert failed == {"order-3": "FAILED", "order-4": "EXCEPTION", "order-5": "RETURNNULL"}
    begun = {(event.request_id, event.msg_id) for event in events if event.kind == "SubBefore"}
    ended = {(event.request_id, event.msg_id) for event in events if event.kind == "SubAfter"}
    assert begun == ended
    states = {event.state for event in events if event.kind == "EndTransaction"}
    assert states == {"COMMIT_MESSAGE", "ROLLBACK_MESSAGE"}


def test_rows_of_records_are_what_spark_is_told() -> None:
    lines = [json.loads(line) for line in GOLDEN.read_text().splitlines()]
    stored = pa.array([line["storeTimestamp"] * 1000 for line in lines], pa.timestamp("us", "UTC"))
    batch = pa.record_batch(
        [
            pa.array(range(len(lines)), pa.int64()),
            stored,
            pa.array([f"{line['bornHost']}:1" for line in lines]),
            pa.array([bytes.fromhex(line["hex"]) for line in lines]),
        ],
        names=["queueOffset", "storeTimestamp", "bornHost", "body"],
    )
    (rows,) = decoded([batch])
    assert rows.num_rows == 48
    assert set(rows.column("host").to_pylist()) == {"127.0.0.1"}
    (nothing,) = decoded([batch.slice(0, 0)])
    assert nothing.schema == rows.schema


def test_kinds_that_are_known() -> None:
    send, before, after = decode(record(*PUB) + record(*BEFORE) + record(*AFTER))
    assert (send.kind, send.at_ms, send.group, send.topic) == ("Pub", 1000, "g", "t")
    assert (send.msg_id, send.tags, send.keys, send.offset_msg_id) == ("ID", "tag", "k1 k2", "OID")
    assert (send.body_length, send.cost_ms, send.message_type, send.success) == (
        5,
        7,
        "normal",
        True,
    )
    assert (before.request_id, before.retry_times, before.keys) == ("REQ", 2, "k1")
    assert (after.cost_ms, after.success, after.code, after.at_ms) == (9, False, "EXCEPTION", 1020)
    ended = one(
        record(
            "EndTransaction",
            1,
            "R",
            "g",
            "t",
            "ID",
            "a",
            "k",
            "h",
            2,
            "TX",
            "COMMIT_MESSAGE",
            "false",
        )
    )
    assert (ended.transaction_id, ended.state, ended.from_check) == ("TX", "COMMIT_MESSAGE", False)
    assert ended.message_type == "commit"
    recalled = one(record("Recall", 1, "R", "g", "t", "ID", "true"))
    assert (recalled.kind, recalled.success) == ("Recall", True)


def test_clients_of_other_versions() -> None:
    older = one(record(*PUB[:12], "false"))
    assert (older.offset_msg_id, older.success) == (None, False)
    later = one(record(*PUB, "client host", "what nobody knows yet"))
    assert later == one(record(*PUB))
    assert one(record(*AFTER[:6])).code is None
    # What follows the code is left out by clients of a cloud; its separator stays.
    assert one(record(*AFTER[:7], "")).at_ms is None
    assert one(record(*AFTER[:6], 77)).code == "77"
    assert one(record(*PUB[:6], "null", "", *PUB[8:])).tags is None


@pytest.mark.parametrize(
    ("body", "kind", "reason"),
    [
        (record(*PUB)[:-1], "Pub", "the record has no end"),
        (record(*PUB[:9]), "Pub", "9 fields of 13"),
        (record("Pub", "now", *PUB[2:]), "Pub", "time = 'now'"),
        (record("Pub", 10**18, *PUB[2:]), "Pub", "time = "),
        (record(*PUB[:5], "null", *PUB[6:]), "Pub", "there is no message id"),
        (record(*PUB[:10], 2**31, *PUB[11:]), "Pub", "cost = '2147483648'"),
        (record("SubLater", 1, 2), "SubLater", "a kind that is not known"),
        (b"\xff\xfe", "\ufffd\ufffd", "the record has no end"),
    ],
)
def test_what_cannot_be_understood_is_reported(body: bytes, kind: str, reason: str) -> None:
    event = one(body)
    assert event.kind == kind
    assert event.reason.startswith(reason)
    assert event.raw
    before, after = list(decode(record(*BEFORE) + body))
    assert (before.reason, after) == ("", event)


def test_bodies_are_bounded() -> None:
    *events, last = decode(record("Recall", 1, "R", "g", "t", "I", "true") * (RECORDS_MAX + 5))
    assert len(events) == RECORDS_MAX
    assert last.reason == f"more than {RECORDS_MAX} records"
    assert list(decode(b"")) == []
    many = one(record("Pub", *["x"] * 5000))
    assert len(many.raw) <= 200


def test_whatever_the_bytes_are_nothing_fails() -> None:
    chance = random.Random(5)
    whole = record(*PUB) + record(*BEFORE) + record(*AFTER)
    for _ in range(2000):
        body = bytearray(whole)
        for _ in range(chance.randrange(4)):
            body[chance.randrange(len(body))] = chance.randrange(256)
        cut = bytes(body[: chance.randrange(len(body) + 1)])
        for event in decode(cut):
            assert event.reason or event.msg_id
