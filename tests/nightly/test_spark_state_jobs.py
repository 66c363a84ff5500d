"""The jobs with a state, in a real Spark over a real broker: sessions of real aircraft."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import zlib
from collections import Counter, defaultdict
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pytest
from demo.flights import departures
from pyspark.sql import functions

from roquet.base.errors import UsageError
from roquet.client import Message
from roquet.spark.jobs import dedup, sessionize
from roquet.spark.jobs.sessions.rules import Event, Rules

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from demo.flights import Departure
    from pyspark.sql import SparkSession

    from roquet.spark.jobs.shared.report import Report
    from spark_harness import Running

pytest_plugins = ["spark_harness"]
pytestmark = [pytest.mark.spark, pytest.mark.timeout(3600)]
QUEUES = 2
HOUR_MS = 3_600_000
GAP_MS, LATE_MS = 6 * HOUR_MS, 24 * HOUR_MS
_numbers = itertools.count()


def new_topic(running: Running, queues: int = QUEUES) -> str:
    topic = f"State{next(_numbers)}"
    running.create_topic(topic, queues)
    return topic


def send_flights(running: Running, topic: str, flights: Sequence[Departure]) -> None:
    by_queue: dict[int, list[Message]] = defaultdict(list)
    for it in flights:
        keys = () if it.key is None else (it.key,)
        queue = zlib.crc32((it.key or "").encode()) % QUEUES
        by_queue[queue].append(Message(topic, it.body, it.tag, keys))
    for queue, messages in by_queue.items():
        for at in range(0, len(messages), 500):
            running.send(topic, messages[at : at + 500], queue)


def expected(flights: Sequence[Departure]) -> set[tuple[Any, ...]]:
    """Return the sessions that are over, computed in the plainest way."""
    legs: dict[str, list[tuple[int, str]]] = defaultdict(list)
    latest = 0
    for it in flights:
        fields = json.loads(it.body)
        at = int(datetime.fromisoformat(fields["time_hour"]).timestamp() * 1000)
        latest = max(latest, at)
        if it.key is not None:
            legs[it.key].append((at, fields["dest"]))
    found: set[tuple[Any, ...]] = set()
    for key, all_legs in legs.items():
        run: list[tuple[int, str]] = []
        for leg in [*sorted(all_legs), (10**15, "")]:
            if run and leg[0] - run[-1][0] >= GAP_MS:
                if run[-1][0] + GAP_MS <= latest - LATE_MS:
                    found.add((key, run[0][0], run[-1][0], tuple(dest for _, dest in run)))
                run = []
            run.append(leg)
    return found


def sessions(spark: SparkSession, out: Path) -> list[tuple[Any, ...]]:
    rows = spark.read.parquet(str(out)).selectExpr(
        "key", "unix_millis(begin) as b", "unix_millis(end) as e", "values", "messages"
    )
    return [(row.key, row.b, row.e, tuple(row.values)) for row in rows.collect()]


def test_sessions_of_aircraft_over_restarts(
    spark: SparkSession, running: Running, tmp_path: Path
) -> None:
    flights = departures(4000)
    topic, out = new_topic(running), tmp_path / "out"
    options = {
        "nameServers": running.name_servers,
        "subscribe": topic,
        "time": "$.time_hour",
        "collect": "$.dest",
        "gap": str(GAP_MS // 1000),
        "late": str(LATE_MS // 1000),
        "maxOffsetsPerTrigger": "3000",
        "out": str(out),
        "metricsPath": str(tmp_path / "metrics"),
    }

    def run() -> Report:
        said: list[str] = []
        report = sessionize.run(spark, options, said.append)
        assert said, "no progress was told"
        assert report.exit_code == 0, report.lines
        return report

    send_flights(running, topic, flights[:3000])
    assert run().lines[0].startswith("3,000 messages read, ")
    assert set(sessions(spark, out)) == expected(flights[:3000])
    send_flights(running, topic, flights[3000:])
    run()
    found = sessions(spark, out)
    assert len(found) == len(set(found))
    assert set(found) == expected(flights)
    repeat_last_write(out / "_checkpoint")
    run()
    assert sorted(sessions(spark, out)) == sorted(found)
    page = (tmp_path / "metrics/sessionize.prom").read_text()
    assert "roquet_sessionize_messages_late 0\n" in page


def test_repetitions_are_dropped_over_restarts_and_the_late_are_told(
    spark: SparkSession, running: Running, tmp_path: Path
) -> None:
    topic, target = new_topic(running), new_topic(running)

    def send(*numbers: int, at_s: int) -> None:
        fields: list[dict[str, int]] = [{"id": n, "at": 1000 * at_s + n} for n in numbers]
        # One without a key is no repetition of another.
        fields.append({"at": 1000 * at_s})
        running.send(topic, [Message(topic, json.dumps(it).encode()) for it in fields], 0)

    options = {
        "nameServers": running.name_servers,
        "subscribe": topic,
        "key": "$.id",
        "time": "$.at",
        "within": "60",
    }
    lake = {**options, "out": str(tmp_path / "out")}
    once = {**options, "topic": target, "checkpoint": str(tmp_path / "checkpoint")}
    begin_s = 1_700_000_000
    send(*range(40), *range(20), at_s=begin_s)
    report = dedup.run(spark, lake, lambda _: None)
    assert report.lines == ("61 messages read, 20 repetitions dropped",)
    assert report.exit_code == 0
    send(*range(30, 50), at_s=begin_s)
    # Two hours before everything else.
    send(*range(60, 63), at_s=begin_s - 7200)
    report = dedup.run(spark, lake, lambda _: None)
    assert report.lines == (
        "25 messages read, 10 repetitions dropped",
        "4 messages came too late and are left out",
    )
    assert report.exit_code == 1
    rows = spark.read.parquet(str(tmp_path / "out")).select("body").collect()
    assert identified(rows) == [None, None, *range(50)]
    repeat_last_write(tmp_path / "out/_checkpoint")
    assert dedup.run(spark, lake, lambda _: None).lines[0].startswith("25 messages read, ")
    rows = spark.read.parquet(str(tmp_path / "out")).select("body").collect()
    assert identified(rows) == [None, None, *range(50)]
    refuses_what_is_not_its_checkpoint(spark, lake, tmp_path / "out")

    once_more = [None, None, None, *range(50), 60, 61, 62]
    dedup.run(spark, once, lambda _: None)
    assert identified(sent(spark, running, target)) == once_more
    repeat_last_write(tmp_path / "checkpoint")
    dedup.run(spark, once, lambda _: None)
    rows = sent(spark, running, target)
    assert identified(rows) == sorted([*once_more] * 2, key=lambda it: -1 if it is None else it)
    # A copy is told by the unique key, which it has from what was read.
    read = {row.uniqKey for row in sent(spark, running, topic)}
    copies = Counter((row.uniqKey, bytes(row.body)) for row in rows)
    assert set(copies.values()) == {2}
    assert len(copies) == len(once_more)
    assert {key for key, _ in copies} <= read


def refuses_what_is_not_its_checkpoint(
    spark: SparkSession, options: dict[str, str], out: Path
) -> None:
    """Take a folder's checkpoint away, and then an older micro-batch; put both back."""
    kept, aside = out / "_checkpoint", out.parent / "aside"
    kept.rename(aside)
    before = {path.name for path in out.iterdir()}
    with pytest.raises(UsageError, match="not the checkpoint that"):
        dedup.run(spark, options, lambda _: None)
    assert {path.name for path in out.iterdir()} == before
    aside.rename(kept)
    (out / "batch=0").rename(aside)
    said: list[str] = []
    dedup.run(spark, options, said.append)
    assert "lacks 1 of " in said[0]
    aside.rename(out / "batch=0")


def repeat_last_write(checkpoint: Path) -> None:
    """Leave a checkpoint as a kill does that strikes when the last rows are written, not noted."""
    numbers = sorted(int(path.name) for path in (checkpoint / "offsets").glob("[0-9]*"))
    # Format and settings come before the source's offsets.
    read = {n: (checkpoint / f"offsets/{n}").read_text().splitlines()[2] for n in numbers}
    last = max(n for n in numbers if read.get(n - 1) != read[n])
    for folder, first in (("commits", last), ("offsets", last + 1)):
        for n in range(first, numbers[-1] + 1):
            for name in (str(n), f".{n}.crc"):
                (checkpoint / folder / name).unlink(missing_ok=True)
    for n in range(last + 1, numbers[-1] + 1):
        shutil.rmtree(checkpoint.parent / f"batch={n}", ignore_errors=True)
    assert not (checkpoint / f"commits/{last}").exists()


def sent(spark: SparkSession, running: Running, topic: str) -> list[Any]:
    read = spark.read.format("roquet").option("nameServers", running.name_servers)
    return read.option("subscribe", topic).load().select("body", "uniqKey").collect()


def identified(rows: Sequence[Any]) -> list[int | None]:
    ids = [json.loads(row.body).get("id") for row in rows]
    return sorted(ids, key=lambda it: -1 if it is None else it)


def test_session_window_of_spark_cuts_a_session_where_a_message_is_late(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Why the job has sessions of its own: when this fails, Spark's may do."""
    gap_s, late_s, source = 10, 5, tmp_path / "source"
    source.mkdir()
    batches = ([("k", 84), ("other", 100)], [("other", 101)], [("k", 90)], [("other", 200)])
    for number, batch in enumerate(batches):
        lines = [json.dumps({"key": key, "at": at}) for key, at in batch]
        path = source / f"{number}.json"
        path.write_text("\n".join(lines))
        os.utime(path, (number + 1, number + 1))
    files = spark.readStream.schema("key string, at bigint").option("maxFilesPerTrigger", 1)
    rows = files.json(str(source)).selectExpr("key", "timestamp_seconds(at) as at")
    window = functions.session_window("at", f"{gap_s} seconds")
    made = rows.withWatermark("at", f"{late_s} seconds").groupBy("key", window).count()
    flat = made.selectExpr("key", "unix_seconds(session_window.start) as begin", "count")
    writer = flat.writeStream.format("parquet").outputMode("append")
    writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
    query = writer.trigger(availableNow=True).start(str(tmp_path / "out"))
    query.awaitTermination()
    found = spark.read.parquet(str(tmp_path / "out")).where("key = 'k'").orderBy("begin").collect()
    # The second came 11 s behind the latest time, where 5 are allowed, 6 s after the first.
    assert [(it.begin, it["count"]) for it in found] == [(84, 1), (90, 1)]
    states = [it for progress in query.recentProgress for it in progress.stateOperators]
    assert sum(it.numRowsDroppedByWatermark for it in states) == 0
    # By the job's rules the two are one session, or the second is late, and said to be.
    rules = Rules(gap_s * 1000, 1)
    assert len(rules.grown([], [Event(84_000, 1, None), Event(90_000, 1, None)])) == 1
