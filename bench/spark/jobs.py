"""Seconds and rows a second of each job over the flights, in one run and one Spark.

`python -m bench.spark.jobs [--rows 336776] [--only TEXT]`; the short form is `--rows 5000`. Writes
bench/results/spark-jobs-*.json, of which `python -m bench.spark.sources --page FILE` prints the
table.

Each job runs once, as a user's would: its reading, writing, tables and page are in its seconds,
the start of Spark is not. What is not in the flights themselves is made of them: each has a send
and a consumption in the trace topic, each cancelled one is a dead letter; `lag` looks at as many
rows of snapshots as there are flights.
"""

from __future__ import annotations

import argparse
import dataclasses
import shutil
import sys
import tempfile
import time
import zlib
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from demo.flights import ROWS, departures
from rich.console import Console

from bench import processes, result_files
from bench.spark import page
from bench.spark.sources import QUIET, name_server, session
from roquet import sync
from roquet.client import Message, MessageQueue
from roquet.spark.jobs import (
    archive,
    audit,
    dedup,
    dlq,
    lag,
    rebuild,
    replay,
    sessionize,
    stats,
    trace,
)
from roquet.spark.schema import COLUMNS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from demo.flights import Departure
    from pyspark.sql import SparkSession

    from bench.processes import Broker
    from roquet.spark.jobs.shared.report import Report

BROKER: Final = "bench-roquet"
TOPIC, AGAIN, TRACED = "Flights", "FlightsAgain", "FlightsTraced"
QUEUES: Final = 8
BATCH: Final = 128
TRACES: Final = 50
"""Flights of one message of the trace topic."""
GROUPS: Final = 50
"""Groups in the snapshots of `lag`, each of eight queues."""
_LETTERS: Final = {
    "topic": "'%DLQ%late'",
    "properties": "map('RETRY_TOPIC', topic, 'ORIGIN_MESSAGE_ID', msgId)",
    "reconsumeTimes": "17",
}
_SNAPSHOTS: Final = f"""
select timestamp_seconds({{begin}} + 10 * floor(id / {GROUPS * 8})) as at,
  concat('g', floor(id / 8) % {GROUPS}) as `group`, 'Flights' as topic, '{BROKER}' as brokerName,
  cast(id % 8 as int) as queueId, cast(90 * floor(id / {GROUPS * 8}) as bigint) as offset,
  cast(0 as bigint) as minOffset, cast(100 * floor(id / {GROUPS * 8}) + 50 as bigint) as maxOffset,
  cast(10 * floor(id / {GROUPS * 8}) + 50 as bigint) as `lag`,
  concat('client-', id % 4) as clientId, cast(null as string) as address,
  cast(null as timestamp) as lastPullTimestamp
from range({{rows}})"""


@dataclasses.dataclass(frozen=True, slots=True)
class Work:
    """One job: its name, how many rows of what it works on, and the run."""

    name: str
    rows: int
    of: str
    run: Callable[[], Report]


class World:
    """The flights in a broker, and one folder for what jobs make of them."""

    def __init__(self, spark: SparkSession, broker: Broker, folder: Path, limit: int) -> None:
        """Take where everything is."""
        self._spark = spark
        self._broker = broker
        self._folder = folder
        self._names = name_server(broker)
        self._flights = departures(limit)
        self._lake = str(folder / "lake")

    def fill(self) -> None:
        """Send flights by aircraft, and what clients would have traced of them."""
        for topic in (TOPIC, AGAIN, TRACED):
            self._broker.create_topic(topic, QUEUES)
        by_queue: list[list[Message]] = [[] for _ in range(QUEUES)]
        for number, it in enumerate(self._flights):
            queue = number if it.key is None else zlib.crc32(it.key.encode())
            keys = () if it.key is None else (it.key,)
            by_queue[queue % QUEUES].append(Message(TOPIC, it.body, it.tag, keys))
        traced = [Message(TRACED, body) for body in traces(self._flights)]
        with sync.connect(self._names) as mq, mq.producer("bench") as producer:
            for topic, queue, messages, size in (
                *((TOPIC, queue, messages, BATCH) for queue, messages in enumerate(by_queue)),
                (TRACED, 0, traced, 4),
            ):
                where = MessageQueue(topic, BROKER, queue)
                for at in range(0, len(messages), size):
                    producer.send_batch(topic, messages[at : at + size], queue=where)

    def live(self) -> Iterator[Work]:
        """Yield the jobs that need the broker, in an order in which each has what it reads."""
        count, lake = len(self._flights), self._lake
        source = {"nameServers": self._names, "subscribe": TOPIC}
        yield self._work("stats", stats, count, "messages", **source)
        given = {**source, "out": lake}
        yield Work("archive", count, "messages", lambda: self._run(archive, given))
        ends = {"left": f"topic:{self._names}", "right": f"lake:{lake}", "subscribe": TOPIC}
        yield self._work("audit", audit, count, "messages in topic and lake", **ends)
        to = {"lake": lake, "nameServers": self._names, "topic": AGAIN, "run": "bench"}
        yield Work("replay", count, "messages", lambda: self._run(replay, to))
        both = {**source, "subscribe": f"{TOPIC},{AGAIN}", "key": "$.id"}
        yield self._work("dedup", dedup, 2 * count, "messages, each twice", **both)
        days = {"time": "$.time_hour", "gap": "21600", "late": str(3 * 86_400)}
        yield self._work(
            "sessionize", sessionize, count, "messages", **source, **days, collect="$.dest"
        )
        letters = self._letters()
        known = {"lake": str(self._folder / "letters"), "originals": lake}
        yield self._work("dlq", dlq, letters, f"letters, {count:,} originals", **known)
        traced = {"nameServers": self._names, "traceTopic": TRACED}
        yield self._work("trace", trace, 3 * count, "trace records", **traced)
        table = str(self._folder / "snapshots")
        begin = int(datetime.now(UTC).timestamp()) - 86_400
        snapshots = self._spark.sql(_SNAPSHOTS.format(begin=begin, rows=count))
        snapshots.write.parquet(table)
        yield self._work("lag", lag, count, "rows of snapshots", snapshots=table, window="86400")

    def disk(self) -> Iterator[Work]:
        """Yield the jobs over the store of the broker, which has to be stopped."""
        store = str(self._broker.folder / "store")
        rows = self._spark.read.format("roquet-log").option("columns", "topic").load(store).count()
        yield self._work("stats of a store", stats, rows, "records", store=store)
        yield self._work("rebuild", rebuild, rows, "records", store=store)

    def _work(self, name: str, job: Any, rows: int, of: str, **options: str) -> Work:
        given = {**options, "out": str(self._folder / name.replace(" ", "-"))}
        return Work(name, rows, of, lambda: self._run(job, given))

    def _run(self, job: Any, options: dict[str, str]) -> Report:
        report: Report = job.run(self._spark, options, lambda _: None)
        return report

    def _letters(self) -> int:
        """Make a lake of dead letters, one of each flight that did not leave; return how many."""
        kept = self._spark.read.parquet(self._lake)
        gone = kept.where("get_json_object(cast(body as string), '$.dep_time') is null")
        made = gone.selectExpr(*(f"{_LETTERS.get(name, name)} as {name}" for name in COLUMNS))
        made.write.parquet(str(self._folder / "letters"))
        return made.count()


def traces(flights: Sequence[Departure]) -> Iterator[bytes]:
    """Yield bodies of the trace topic: a send, and a consumption 50 ms later, of each flight."""
    begin = datetime.now(UTC) - timedelta(days=1)
    first = int(begin.timestamp() * 1000)
    for at in range(0, len(flights), TRACES):
        lines: list[tuple[object, ...]] = []
        for number, it in enumerate(flights[at : at + TRACES], at):
            unique, key, ms = f"{number:032X}", it.key or "none", first + number
            pub = ("Pub", ms, "R", "departures", TOPIC, unique, it.tag, key, "10.0.0.1:10911")
            lines += [
                (*pub, len(it.body), 3, 0, f"OID{number}", "true"),
                ("SubBefore", ms + 50, "R", "boards", f"r{number}", unique, 0, key),
                # Every hundredth consumption fails.
                ("SubAfter", f"r{number}", unique, 7, *_outcome(number, key), ms + 57, "boards"),
            ]
        yield "".join("\x01".join(map(str, line)) + "\x02" for line in lines).encode()


def _outcome(number: int, key: str) -> tuple[str, str, int]:
    return ("true", key, 0) if number % 100 else ("false", key, 2)


def timed(work: Work, folder: Path) -> dict[str, Any]:
    """Run a job and return its row of the table; places are said as they are below `folder`."""
    begin = time.monotonic()
    report = work.run()
    took = time.monotonic() - begin
    return {
        "name": work.name,
        "rows": work.rows,
        "of": work.of,
        "seconds": took,
        "rows_per_s": work.rows / took,
        "said": report.lines[-1].replace(f"{folder}/", ""),
        "exit_code": report.exit_code,
    }


def run(rows: int, wanted: str, folder: Path, console: Console) -> list[dict[str, Any]]:
    """Run the jobs whose name contains `wanted`, and those that others need."""
    begun = time.monotonic()
    spark = session(folder)
    found: list[dict[str, Any]] = []
    try:
        broker = processes.start(
            "roquet", "async", folder / "broker", (*QUIET, "mappedFileSizeCommitLog=268435456")
        )
        try:
            world = World(spark, broker, folder, rows)
            world.fill()
            console.print(f"{time.monotonic() - begun:.0f} s: everything is sent", highlight=False)
            works = [world.live, world.disk]
            for of in works:
                if of == world.disk:
                    # Of an open store no more is read than is known durable.
                    broker.stop()
                for work in of():
                    if wanted in work.name or work.name == "archive":
                        found.append(timed(work, folder))
                        gone, took = time.monotonic() - begun, found[-1]["seconds"]
                        told = f"{gone:.0f} s: {work.name}: {took:.1f} s, {found[-1]['said']}"
                        console.print(told, highlight=False, soft_wrap=True)
        finally:
            broker.stop()
    finally:
        spark.stop()
    return found


def main() -> int:
    """Measure, print the table, write bench/results/spark-jobs-*.json."""
    parser = argparse.ArgumentParser(prog="bench.spark.jobs", description=__doc__)
    parser.add_argument("--rows", type=int, default=ROWS, help="flights, the first of the year")
    parser.add_argument("--only", default="", help="jobs whose name contains this text")
    parser.add_argument("--folder", default=None, help="where everything is made")
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="roquet-bench-jobs-", dir=arguments.folder))
    console = Console()
    about = result_files.circumstances("spark-jobs", "bench.spark.jobs")
    begun = time.monotonic()
    try:
        rows = run(arguments.rows, arguments.only, folder, console)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    result = {**about, "took_s": time.monotonic() - begun, "rows": rows}
    target = result_files.save(result)
    console.print(page.markdown(result), highlight=False, soft_wrap=True)
    console.print(f"written to {target}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
