"""The job `trace` in a real Spark, over what Java clients traced."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest

from roquet.client import Message
from roquet.spark.jobs import trace

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from spark_harness import Running

pytest_plugins = ["spark_harness"]
pytestmark = pytest.mark.spark
_numbers = itertools.count()


def text(*records: tuple[object, ...]) -> bytes:
    return "".join("\x01".join(map(str, record)) + "\x02" for record in records).encode()


def pub(at: int, msg_id: str, keys: str, cost: int) -> tuple[object, ...]:
    return ("Pub", at, "R", "p", "t", msg_id, "a", keys, "h:1", 5, cost, 0, "OID", "true")


def before(at: int, request: str, msg_id: str, retry: int) -> tuple[object, ...]:
    return ("SubBefore", at, "R", "c", request, msg_id, retry, "k")


def after(request: str, msg_id: str, cost: int, code: int) -> tuple[object, ...]:
    done = "true" if code == 0 else "false"
    return ("SubAfter", request, msg_id, cost, done, "k", code, 0, "c")


def test_latencies_failures_and_the_story_of_a_key(
    spark: SparkSession, running: Running, tmp_path: Path
) -> None:
    topic = f"Trace{next(_numbers)}"
    running.create_topic(topic, 1)
    bodies = [
        text(pub(1000, "A", "order-1 k", 10), pub(2000, "B,C", "k", 20)),
        text(before(1100, "r1", "A", 0), after("r1", "A", 30, 2), before(9000, "r2", "A", 1)),
        # The end came in a later message, and a message that was sent twice counts once.
        text(after("r2", "A", 5, 0), before(2500, "r3", "B", 0), after("r3", "B", 40, 0)),
        text(after("r2", "A", 5, 0), before(2600, "r4", "C", 0)),
        text(("SubLater", 1), pub(1, "X", "k", 1)[:9]) + b"Pub\x01cut",
    ]
    running.send(topic, [Message(topic, body) for body in bodies], 0)
    out = tmp_path / "out"
    given = {"nameServers": running.name_servers, "traceTopic": topic, "out": str(out)}
    report = trace.run(
        spark, {**given, "key": "order-1", "metricsPath": str(tmp_path)}, lambda _: None
    )
    assert report.exit_code == 0
    sends = spark.read.parquet(f"{out}/sends").collect()
    assert sorted(row.msgId for row in sends) == ["A", "B", "C"]
    assert {row.host for row in sends} == {"127.0.0.1"}
    done = {row.requestId: row for row in spark.read.parquet(f"{out}/consumptions").collect()}
    assert {name: row.code for name, row in done.items()} == {
        "r1": "EXCEPTION",
        "r2": "SUCCESS",
        "r3": "SUCCESS",
        "r4": "UNFINISHED",
    }
    assert {row.topic for row in done.values()} == {"t"}
    latencies = spark.read.parquet(f"{out}/latencies").collect()
    known = {row.consumerHost: row for row in latencies}
    assert (known["127.0.0.1"].messages, known["127.0.0.1"].longest) == (2, 8005)
    # What nobody finished has no host that was done with it, and no latency.
    assert (known[None].messages, known[None].consumed, known[None].failed) == (1, 0, 1)
    failures = spark.read.parquet(f"{out}/failures").collect()
    assert {(row.code, row.consumptions) for row in failures} == {
        ("EXCEPTION", 1),
        ("UNFINISHED", 1),
    }
    damaged = spark.read.parquet(f"{out}/damaged").collect()
    assert sorted((row.kind, row.reason) for row in damaged) == [
        ("Pub", "9 fields of 13"),
        ("Pub", "the record has no end"),
        ("SubLater", "a kind that is not known"),
    ]
    story = report.lines[report.lines.index("A of topic t: 8,005 ms in all") :]
    assert story[-1] == "  longest: until it was tried again"
    assert "  +100 ms: failed (EXCEPTION) by c at 127.0.0.1, 30 ms (0%)" in story
    page = (out / "report.html").read_text()
    assert "Critical path of A" in page
    assert page.count("base64,") == 5
    assert (
        'roquet_trace_latency_p99_ms{producer_group="p"'
        in (tmp_path / "roquet_trace.prom").read_text()
    )
