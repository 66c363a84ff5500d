"""The Spark source and sink beside Spark's own connector for Kafka, in one run, in turn.

`python -m bench.spark.beside_kafka [--pairs 5] [--rows 150000] [--only TEXT]`; the
short form is `--pairs 1 --rows 20000`. A Roquet broker and a Kafka node get the same rows (a body
of 1 KiB that a compressor would not make smaller, a key) from the same DataFrame; then both topics
are read. Writes bench/results/spark-kafka-*.json; `python -m bench.spark.sources --page FILE`
prints its table.

CPU is that of the driver's Python, the JVM and the Python workers together, and beside it the
broker's. Both sides read 8 ranges of 4 queues. Kafka's connector always makes rows of seven
columns; a read of fewer drops them in Spark.
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
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rich.console import Console

from bench import processes, result_files
from bench.peers import kafka
from bench.spark import page
from bench.spark.sources import ALL, QUEUES, QUIET, SPLITS, name_server, session
from bench.weights import adopt, tree_cpu_s

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

    from bench.peers.server import Peer
    from bench.processes import Broker

VERSION: Final = "4.2.0"
TOPIC, SUNK = "BenchRead", "BenchSunk"
MICRO_BATCHES: Final = 12
A_TRIGGER: Final = 25_000
"""Rows of a micro-batch of the stream over all of the topic."""
SIDES: Final = ("roquet", "kafka")


@dataclasses.dataclass(frozen=True, slots=True)
class Case:
    """A figure, and what each side names the columns of it."""

    name: str
    use: str
    ours: str = ""
    kafkas: str = ""


SEVEN: Final = ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]
CASES: Final = (
    Case("read, all columns (19; 7)", "read", ALL, ",".join(SEVEN)),
    Case(
        "read, the columns that Kafka has",
        "read",
        "keys,body,topic,brokerName,queueId,queueOffset,storeTimestamp",
        ",".join(SEVEN),
    ),
    Case("read, 3 columns", "read", "queueId,queueOffset,body", "partition,offset,value"),
    Case("read, 1 column", "read", "queueOffset", "offset"),
    Case("stream, 3 columns", "stream", "queueId,queueOffset,body", "partition,offset,value"),
    Case("micro-batch of one row", "floor", "queueId,queueOffset,body", "partition,offset,value"),
    Case("sink", "sink"),
)


def rows_of(spark: SparkSession, count: int) -> DataFrame:
    """Return the rows: `k`, and `v` of 1 KiB made of digests."""
    digests = ", ".join(f"sha2(concat(id, '-', {n}), 256)" for n in range(16))
    made = f"cast(concat({digests}) as binary) as v"
    return spark.range(0, count, 1, SPLITS).selectExpr("concat('k', id) as k", made)


class Bench:
    """The session, both servers and the rows."""

    def __init__(self, spark: SparkSession, ours: Broker, peer: Peer, folder: Path) -> None:
        self.spark, self.ours, self.peer, self.folder = spark, ours, peer, folder
        self.rows = 0
        self.starts: dict[str, list[float]] = {side: [] for side in SIDES}
        """Seconds of each stream that were in no micro-batch with rows."""
        self._names = name_server(ours)
        self._given: DataFrame | None = None

    def fill(self, rows: int) -> None:
        """Keep the rows in the memory of Spark, and write them to both topics."""
        self.rows = rows
        self._given = rows_of(self.spark, rows).cache()
        self._given.count()
        self.ours.create_topic(TOPIC, QUEUES)
        self.ours.create_topic(SUNK, QUEUES)
        processes.wait_for_send(self.ours, "Warm")
        for side in SIDES:
            self.write(side, TOPIC)

    def write(self, side: str, topic: str) -> None:
        """Write the rows by the sink of a side, as its users would."""
        given = self._given
        if given is None:
            raise RuntimeError("there are no rows")
        if side == "kafka":
            out = given.selectExpr("k as key", "v as value").write.format("kafka")
            out.option("kafka.bootstrap.servers", self.peer.address).option("topic", topic).save()
            return
        out = given.selectExpr("k as keys", "v as body").write.format("roquet").mode("append")
        out.option("nameServers", self._names).option("topic", topic).save()

    def options(self, side: str, case: Case) -> dict[str, str]:
        """Return the options of a reader, but for what a stream adds."""
        if side == "kafka":
            given = {"kafka.bootstrap.servers": self.peer.address, "subscribe": TOPIC}
        else:
            given = {"nameServers": self._names, "subscribe": TOPIC, "columns": case.ours}
        return {**given, "minPartitions": str(SPLITS), "startingOffsets": "earliest"}

    def once(self, side: str, case: Case) -> float:
        """Do it once; return the seconds. Raises RuntimeError for a count that is wrong."""
        begin = time.monotonic()
        if case.use == "sink":
            self.write(side, SUNK)
        elif case.use == "read":
            frame = self.spark.read.format(side).options(**self.options(side, case)).load()
            chosen = frame.select(*(case.kafkas if side == "kafka" else case.ours).split(","))
            chosen.write.format("noop").mode("overwrite").save()
        else:
            return self._stream(side, case)
        return time.monotonic() - begin

    def _stream(self, side: str, case: Case) -> float:
        """Return the seconds of all micro-batches, or the median of micro-batches of a row.

        What a query needs before and between them is not in it: it is once in a query's life.
        """
        floor = case.use == "floor"
        given = self.options(side, case)
        given["maxOffsetsPerTrigger"] = "1" if floor else str(A_TRIGGER)
        if floor:
            # One queue: each that has messages gets one of a micro-batch at least.
            del given["subscribe"]
            ours = {TOPIC: {f"bench-{self.ours.kind}": [0]}}
            given["assign"] = json.dumps({TOPIC: [0]} if side == "kafka" else ours)
        frame = self.spark.readStream.format(side).options(**given).load()
        chosen = frame.select(*(case.kafkas if side == "kafka" else case.ours).split(","))
        checkpoint = tempfile.mkdtemp(dir=self.folder)
        out = chosen.writeStream.format("noop").option("checkpointLocation", checkpoint)
        begin = time.monotonic()
        query = (out if floor else out.trigger(availableNow=True)).start()
        try:
            while query.isActive and not (floor and len(query.recentProgress) >= MICRO_BATCHES):
                query.awaitTermination(1)
            took = time.monotonic() - begin
            if (error := query.exception()) is not None:
                raise error
            progress = [it for it in query.recentProgress if it.numInputRows]
        finally:
            query.stop()
            shutil.rmtree(checkpoint, ignore_errors=True)
        times = [it.durationMs["triggerExecution"] / 1000 for it in progress]
        if floor:
            return statistics.median(times[2:])
        if (read := sum(it.numInputRows for it in progress)) != self.rows:
            raise RuntimeError(f"{side}: {read} rows of {self.rows}")
        self.starts[side].append(took - sum(times))
        return sum(times)

    def check(self) -> None:
        """Raise RuntimeError when a topic has not the rows that were written."""
        for side in SIDES:
            frame = self.spark.read.format(side).options(**self.options(side, CASES[0])).load()
            found = frame.selectExpr("key" if side == "kafka" else "keys").distinct().count()
            if found != self.rows:
                raise RuntimeError(f"{side} has {found} keys of {self.rows}")


def measure(bench: Bench, case: Case, pairs: int, tell: Callable[[str], None]) -> dict[str, Any]:
    """Run pairs, each side first in turn; return medians and all values."""
    found: dict[str, dict[str, list[float]]] = {
        side: {"seconds": [], "cpu_s": [], "broker_cpu_s": []} for side in SIDES
    }
    brokers: dict[str, Broker | Peer] = {"roquet": bench.ours, "kafka": bench.peer}
    for number in range(pairs + 1):
        for side in sorted(SIDES, reverse=number % 2 == 0):
            mine, theirs = _clients_cpu_s(bench), brokers[side].cpu_s()
            seconds = bench.once(side, case)
            cpu = _clients_cpu_s(bench) - mine
            if side == "roquet":
                bench.ours.settle()
            if number:
                # The first pair warms the JVM up.
                values = found[side]
                values["seconds"].append(seconds)
                values["cpu_s"].append(cpu)
                values["broker_cpu_s"].append(brokers[side].cpu_s() - theirs)
    medians = {
        side: {name: statistics.median(them) for name, them in values.items()}
        for side, values in found.items()
    }
    ratio = medians["kafka"]["seconds"] / medians["roquet"]["seconds"]
    tell(f"{case.name}: {ratio:.2f} times Kafka's rate")
    rows = MICRO_BATCHES if case.use == "floor" else bench.rows
    return {"name": case.name, "use": case.use, "rows": rows, "values": found, **medians}


def _clients_cpu_s(bench: Bench) -> float:
    """CPU of this process and of all below it but the servers'."""
    servers = (bench.ours.process.pid, bench.ours.namesrv.pid, bench.peer.process.pid)
    return tree_cpu_s(os.getpid()) - sum(map(tree_cpu_s, servers))


def run(
    cases: list[Case], rows: int, pairs: int, folder: Path, console: Console
) -> tuple[list[Any], dict[str, float]]:
    """Start everything, measure the cases, stop everything; add what a stream's start takes."""
    pom = Path(__file__).with_name("connector.xml")
    last = f"spark-token-provider-kafka-0-10_2.13-{VERSION}.jar"
    jars = kafka.fetch_jars(pom, f"spark-kafka-{VERSION}", last)
    # Spark has the others, of its own versions.
    chosen = [it for it in jars.glob("*.jar") if it.name.split("-")[0] in {"spark", "kafka"}]
    chosen += jars.glob("commons-pool2-*.jar")
    spark = session(folder, [it for it in chosen if "tags" not in it.name])
    peer = kafka.start(folder / "kafka", TOPIC, QUEUES)
    try:
        with processes.start("roquet", "async", folder / "roquet", QUIET) as broker:
            bench = Bench(spark, broker, peer, folder)
            bench.fill(rows)
            bench.check()
            found = [measure(bench, it, pairs, console.print) for it in cases]
            return found, {side: statistics.median(it) for side, it in bench.starts.items() if it}
    finally:
        peer.stop()
        spark.stop()


def main() -> int:
    """Measure, print the table, write the result."""
    parser = argparse.ArgumentParser(prog="bench.spark.beside_kafka", description=__doc__)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--rows", type=int, default=150_000)
    parser.add_argument("--only", default="", help="figures whose name contains this text")
    parser.add_argument("--folder", default=None, help="where logs and checkpoints are made")
    asked = parser.parse_args()
    # Spark ends workers whose own parent has ended before them.
    adopt()
    console = Console(highlight=False)
    cases = [it for it in CASES if asked.only in it.name]
    about = result_files.circumstances("spark-kafka", "bench.spark.beside_kafka")
    folder = Path(tempfile.mkdtemp(prefix="roquet-bench-spark-", dir=asked.folder))
    begun = time.monotonic()
    try:
        rows, starts = run(cases, asked.rows, asked.pairs, folder, console)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    result = {**about, "took_s": time.monotonic() - begun, "rows": rows}
    result["stream_start_s"] = starts
    target = result_files.save(result)
    print(page.markdown(result))
    print(f"written to {target}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
