"""The Spark sources beside Spark's own ceiling, in one run, in alternating pairs.

`python -m bench.spark.sources [--pairs 5] [--rows 150000] [--only TEXT] [--data TEXT]`; the short
form is `--pairs 1 --rows 20000`. `--page FILE` prints the table of a result for
docs/performance.md, also of `bench.spark.planning` and `bench.spark.jobs`.

The ceiling is a Python source that has the same Arrow batches, with the same columns, in memory.
What the job `archive` does is held against a plain write of those batches to Parquet.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import SparkSession
from rich.console import Console
from rich.progress import Progress, TimeElapsedColumn
from rich.table import Table

from bench import processes, result_files
from bench.spark import page as spark_page
from bench.spark.ceiling import Ceiling
from bench.spark.datasets import DATA
from roquet import roquet_native as native
from roquet import sync
from roquet.client import Message, MessageQueue
from roquet.spark.jobs import archive
from roquet.spark.jobs.shared.patience import patiently
from roquet.spark.schema import COLUMNS
from roquet.spark.source import register

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pyspark.sql import DataFrame

    from bench.processes import Broker
    from bench.spark.datasets import Data

HERE = Path(__file__).parents[1]
TOPIC = "BenchSpark"
QUEUES = 4
BROKER = "bench-roquet"
QUIET = ("brokerFastFailureEnable=false", "diskMaxUsedSpaceRatio=95")
"""A sender that does nothing else, on a disk of any fill level, is no overload."""
BATCH = 256
SPLITS = 2 * QUEUES
"""Tasks of a read at least: queues by key are not equally full."""
THREE = "queueId,queueOffset,body"
ALL = ",".join(COLUMNS)
MICRO_BATCHES = 12


@dataclasses.dataclass(frozen=True, slots=True)
class Case:
    """A figure: what is read, how it is used, and the share of the ceiling that is expected."""

    name: str
    source: str
    columns: str
    use: str
    at_least: float
    everywhere: bool = False
    """Whether it is measured on every set of data, or on the even one only."""


CASES = (
    Case("live read, 3 columns", "live", THREE, "noop", 0.6),
    Case("live read, 19 columns", "live", ALL, "noop", 0.6, everywhere=True),
    Case("live read to Parquet, 19 columns", "live", ALL, "parquet", 0.8, everywhere=True),
    Case("the job archive, 19 columns", "live", ALL, "archive", 0.8),
    Case("micro-batches of one row", "live", THREE, "stream", 1 / 1.15),
    Case("log read, 3 columns", "log", THREE, "noop", 0.8),
    Case("log read, 19 columns", "log", ALL, "noop", 0.8, everywhere=True),
)


class Bench:
    """The session, the data and where they are."""

    def __init__(
        self, spark: SparkSession, broker: Broker, folder: Path, rows: int, data: Data
    ) -> None:
        self.spark = spark
        self.data = data
        self.broker = broker
        self.folder = folder
        self.rows = rows
        self.names = name_server(broker)
        self.sample = folder / "sample"

    def fill(self) -> None:
        """Send the rows by key, and keep some stored records as the ceiling's sample."""
        self.broker.create_topic(TOPIC, QUEUES)
        waiting: list[list[Message]] = [[] for _ in range(QUEUES)]
        with sync.connect(self.names) as mq, mq.producer("bench") as producer:

            def send(number: int) -> None:
                queue = MessageQueue(TOPIC, BROKER, number)
                producer.send_batch(TOPIC, waiting[number], queue=queue)
                waiting[number].clear()

            for at, item in enumerate(self.data.messages(self.rows)):
                number = zlib.crc32(item.key.encode()) % QUEUES
                properties = {"n": str(at)}
                made = Message(
                    TOPIC, item.body, item.tag, (item.key.replace(" ", "_"),), properties
                )
                waiting[number].append(made)
                if len(waiting[number]) == BATCH:
                    send(number)
            for number in range(QUEUES):
                if waiting[number]:
                    send(number)
        log = min(Path(self.store()).glob("commitlog/*"))
        with log.open("rb") as file:
            data = file.read(16 << 20)
        self.sample.write_bytes(_whole_records(data, 8192))

    def store(self) -> str:
        """Return the folder of the broker's store."""
        return str(self.broker.folder / "store")

    def frame(self, case: Case, *, ceiling: bool) -> DataFrame:
        """Return the rows of one side."""
        if ceiling:
            given = {"sample": str(self.sample), "rows": str(self.rows), "parts": str(SPLITS)}
            reader = self.spark.read.format("ceiling").options(**given, columns=case.columns)
            return reader.load()
        if case.source == "log":
            given = {"subscribe": TOPIC, "columns": case.columns, "minPartitions": str(SPLITS)}
            return self.spark.read.format("roquet-log").options(**given).load(self.store())
        given = {"nameServers": self.names, "subscribe": TOPIC, "columns": case.columns}
        given["minPartitions"] = str(SPLITS)
        return self.spark.read.format("roquet").options(**given).load()

    def seconds(self, case: Case, *, ceiling: bool) -> float:
        """Run one side once."""
        if case.use == "stream":
            return self._micro_batch(case, ceiling=ceiling)
        if case.use == "archive" and not ceiling:
            return self._archive()
        frame = self.frame(case, ceiling=ceiling)
        out = self.folder / "plain"
        begin = time.monotonic()
        if case.use in {"parquet", "archive"}:
            frame.write.mode("overwrite").parquet(str(out))
        else:
            frame.write.format("noop").mode("overwrite").save()
        return time.monotonic() - begin

    def _archive(self) -> float:
        """Return the seconds that the job needs for the whole topic into a new lake."""
        lake = tempfile.mkdtemp(dir=self.folder)
        given = {"nameServers": self.names, "subscribe": TOPIC, "out": f"{lake}/lake"}
        begin = time.monotonic()
        report = archive.run(self.spark, given, lambda _: None)
        took = time.monotonic() - begin
        shutil.rmtree(lake)
        if not report.lines[0].startswith(f"{self.rows:,} messages archived"):
            raise RuntimeError(f"of {self.rows:,} messages: {report.lines[0]}")
        return took

    def _micro_batch(self, case: Case, *, ceiling: bool) -> float:
        """Return the median seconds of a micro-batch with one row."""
        reader = self.spark.readStream
        if ceiling:
            given = {"sample": str(self.sample), "rows": str(MICRO_BATCHES)}
            stream = reader.format("ceiling").options(**given, columns=case.columns).load()
        else:
            given = {"nameServers": self.names, "columns": case.columns}
            queue = json.dumps({TOPIC: {BROKER: [0]}})
            stream = (
                reader.format("roquet")
                .options(**given, assign=queue, maxOffsetsPerTrigger="1")
                .option("startingOffsets", "earliest")
                .load()
            )
        found: list[float] = []
        patiently(lambda: found.append(self._median(stream)), lambda _: None)
        return found[-1]

    def _median(self, stream: DataFrame) -> float:
        """Run a query for some micro-batches. Raises what has ended it."""
        checkpoint = tempfile.mkdtemp(dir=self.folder)
        query = stream.writeStream.format("noop").option("checkpointLocation", checkpoint).start()
        try:
            while len(query.recentProgress) < MICRO_BATCHES and query.isActive:
                time.sleep(0.1)
            if (error := query.exception()) is not None:
                raise error
            times = [
                progress.durationMs["triggerExecution"]
                for progress in query.recentProgress[2:]
                if progress.numInputRows
            ]
            return statistics.median(times) / 1000
        finally:
            query.stop()

    def decode_rate(self) -> float:
        """Return stored bytes a second that one core decodes, all columns, CRC checked."""
        log = min(Path(self.store()).glob("commitlog/*"))
        size = log.stat().st_size
        best = 0.0
        for _ in range(3):
            reader = native.LogReader(str(log), 0, size, 0, size, last=True)
            done, begin = 0, time.process_time()
            while (answer := reader.next()) is not None:
                done += answer[0].num_rows
            stored = done * len(self.sample.read_bytes()) / _count(self.sample.read_bytes())
            best = max(best, stored / (time.process_time() - begin))
        return best


def _whole_records(data: bytes, most: int) -> bytes:
    at = 0
    for _ in range(most):
        size = int.from_bytes(data[at : at + 4], "big")
        if size == 0 or at + size > len(data):
            break
        at += size
    return data[:at]


def _count(data: bytes) -> int:
    return len(native.decode_records(data, check_crc=False))


def name_server(broker: Broker) -> str:
    """Return the address of a broker's name server."""
    settings = (broker.folder / "namesrv.conf").read_text()
    return "127.0.0.1:" + settings.split("listenPort=")[1].split()[0]


def session(folder: Path, jars: Iterable[Path] = ()) -> SparkSession:
    """Start Spark on this machine, with further jars."""
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    paths = [str(HERE.parent), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
    spark = (
        SparkSession.builder.master(f"local[{os.cpu_count()}]")
        .config("spark.driver.memory", "2g")
        .config("spark.python.authenticate.socketTimeout", "120s")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.session.timeZone", "UTC")
        # As `roquet pipeline` has it on one machine.
        .config("spark.sql.shuffle.partitions", str(2 * (os.cpu_count() or 1)))
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.local.dir", str(folder / "local"))
        .config("spark.jars", ",".join(map(str, jars)))
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    register(spark)
    spark.dataSource.register(Ceiling)
    return spark


def measure(bench: Bench, case: Case, pairs: int, tick: Callable[[], None]) -> dict[str, Any]:
    """Run pairs, each side first in turn, and compare medians."""
    sides: dict[str, list[float]] = {"ours": [], "ceiling": []}
    cpu: list[float] = []
    for number in range(pairs + 1):
        for side in sorted(sides, reverse=number % 2 == 0):
            before = bench.broker.cpu_s() if case.source == "live" else 0.0
            seconds = bench.seconds(case, ceiling=side == "ceiling")
            # The first pair warms the JVM up.
            if number:
                sides[side].append(seconds)
                if case.source == "live" and side == "ours":
                    cpu.append(bench.broker.cpu_s() - before)
            tick()
    ours, ceiling = statistics.median(sides["ours"]), statistics.median(sides["ceiling"])
    return {
        "data": bench.data.name,
        "name": case.name,
        "seconds": sides,
        "ours_s": ours,
        "ceiling_s": ceiling,
        "share": ceiling / ours,
        "at_least": case.at_least,
        "rows_per_s": None if case.use == "stream" else bench.rows / ours,
        "broker_cpu_s": statistics.median(cpu or [0.0]),
    }


def show(rows: list[dict[str, Any]], console: Console) -> None:
    """Print the table."""
    table = Table(title="Sources beside Spark's ceiling (medians)")
    for name in (
        "data",
        "figure",
        "ours s",
        "ceiling s",
        "rows/s",
        "share",
        "wanted",
        "broker CPU s",
    ):
        table.add_column(name, justify="left" if name in {"data", "figure"} else "right")
    for row in rows:
        rate = row["rows_per_s"]
        table.add_row(
            row["data"],
            row["name"],
            f"{row['ours_s']:.2f}",
            f"{row['ceiling_s']:.2f}",
            "" if rate is None else f"{rate:,.0f}",
            f"{row['share']:.2f}",
            f"{row['at_least']:.2f}",
            f"{row['broker_cpu_s']:.2f}",
        )
    console.print(table)


def run(
    work: dict[Data, list[Case]], rows: int, pairs: int, folder: Path
) -> tuple[list[dict[str, Any]], float]:
    """Measure the cases of each set of data; return them and the rate of decoding alone."""
    measured: list[dict[str, Any]] = []
    decode = 0.0
    spark = session(folder)
    try:
        with Progress(*Progress.get_default_columns(), TimeElapsedColumn()) as shown:
            task = shown.add_task("runs", total=sum(map(len, work.values())) * 2 * (pairs + 1))
            for data, cases in work.items():
                shown.update(task, description=data.name)
                place = folder / data.name.replace(" ", "-")
                broker = processes.start("roquet", "async", place / "broker", QUIET)
                try:
                    bench = Bench(spark, broker, place, count_of(data, rows), data)
                    bench.fill()
                    for case in cases:
                        if case.source == "log":
                            # Of an open store no more is read than is known durable.
                            broker.stop()
                        found = measure(bench, case, pairs, lambda: shown.advance(task))
                        measured.append(found)
                        gone = shown.tasks[0].elapsed or 0.0
                        told = f"{gone:.0f} s: {data.name}, {case.name}: {found['share']:.2f}"
                        shown.console.print(told, highlight=False)
                    decode = max(decode, bench.decode_rate())
                finally:
                    broker.stop()
                    shutil.rmtree(place, ignore_errors=True)
    finally:
        spark.stop()
    return measured, decode


def count_of(data: Data, rows: int) -> int:
    """Return how many messages of a set there are."""
    return max(QUEUES, int(rows * data.share))


def main() -> int:
    """Measure, print the table, write bench/results/spark-*.json."""
    parser = argparse.ArgumentParser(prog="bench.spark.sources", description=__doc__)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--rows", type=int, default=150_000)
    parser.add_argument("--only", default="", help="figures whose name contains this text")
    parser.add_argument("--data", default="", help="sets of data whose name contains this text")
    parser.add_argument("--folder", default=None, help="where the store and the lake are made")
    parser.add_argument("--page", default=None, help="print the table of this result, and no more")
    arguments = parser.parse_args()
    if arguments.page is not None:
        print(spark_page.markdown(json.loads(Path(arguments.page).read_text())))
        return 0
    folder = Path(tempfile.mkdtemp(prefix="roquet-bench-spark-", dir=arguments.folder))
    work = {
        data: [it for it in CASES if arguments.only in it.name and (it.everywhere or not number)]
        for number, data in enumerate(DATA)
        if arguments.data in data.name
    }
    about = result_files.circumstances("spark", "bench.spark.sources")
    begun = time.monotonic()
    try:
        rows, decode = run(work, arguments.rows, arguments.pairs, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    result = {
        **about,
        "took_s": time.monotonic() - begun,
        "rows_sent": {data.name: count_of(data, arguments.rows) for data in work},
        "about": {data.name: data.about for data in work},
        "rows": rows,
        "log_decode_gb_per_s": decode / 1e9,
    }
    target = result_files.save(result)
    console = Console()
    show(rows, console)
    console.print(f"log decode, one core, 19 columns: {decode / 1e9:.2f} GB/s")
    console.print(f"written to {target}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
