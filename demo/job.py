"""The Spark job: topic → lake by Structured Streaming, then the delays of each airport and hour.

It runs as a process of its own, so that it can be killed, and tells what it does in a file of JSON
lines: `started`, `begin` and `written` of each micro-batch, `done`.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from demo import lake

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame, SparkSession

LATE_MIN = 15
"""A departure later than this many minutes counts as late, as the airlines count."""


class Progress:
    """Events for whoever watches."""

    def __init__(self, path: Path) -> None:
        """Append to a file."""
        self._path = path

    def tell(self, event: str, **facts: Any) -> None:
        """Write an event; it has left the process when this returns."""
        line = json.dumps({"pid": os.getpid(), "at": time.time(), "event": event, **facts})
        with self._path.open("ab", buffering=0) as out:
            out.write(line.encode() + b"\n")


def session(folder: Path) -> SparkSession:
    """Start Spark on this machine, its scratch files below `folder`."""
    from pyspark.sql import SparkSession  # noqa: PLC0415  (a JVM follows)

    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    spark = (
        SparkSession.builder.master(os.environ.get("DEMO_MASTER", "local[2]"))
        .appName("roquet-demo")
        .config("spark.driver.memory", "1g")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.adaptive.enabled", "false")
        .config("spark.sql.parquet.compression.codec", "zstd")
        .config("spark.local.dir", str(folder / "spark"))
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def stream(spark: SparkSession, options: argparse.Namespace, progress: Progress) -> None:
    """Read everything that is in the topic now into the lake."""
    from pyspark.sql import Observation  # noqa: PLC0415
    from pyspark.sql import functions as f  # noqa: PLC0415

    def write(frame: DataFrame, batch: int) -> None:
        progress.tell("begin", batch=batch)
        counted = Observation()
        lake.write(frame.observe(counted, f.count(f.lit(1)).alias("rows")), batch, options.lake)
        progress.tell("written", batch=batch, rows=counted.get["rows"])
        # Between this write and Spark's own note that the batch is done, the demo likes to kill.
        time.sleep(options.linger_s)

    messages = (
        spark.readStream.format("roquet")
        .option("nameServers", options.name_servers)
        .option("subscribe", options.topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", options.rows_per_batch)
        .option("columns", ",".join(lake.COLUMNS))
        .load()
    )
    progress.tell("started")
    query = (
        lake.parse(messages)
        .writeStream.foreachBatch(write)
        .option("checkpointLocation", options.checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    progress.tell("streamed")


def delays(spark: SparkSession, folder: str) -> list[dict[str, Any]]:
    """Return departures and their delays, in minutes, by airport and scheduled hour."""
    from pyspark.sql import functions as f  # noqa: PLC0415

    late = f.col("dep_delay")
    found = (
        spark.read.parquet(folder)
        .groupBy("origin", "hour")
        .agg(
            f.count(f.lit(1)).alias("departures"),
            f.count_if(f.col("dep_time").isNull()).alias("cancelled"),
            f.round(f.avg(late), 2).alias("mean_delay"),
            f.percentile_approx(late, 0.5).alias("median_delay"),
            f.percentile_approx(late, 0.9).alias("p90_delay"),
            f.round(f.avg((late > LATE_MIN).cast("double")), 4).alias("late_share"),
        )
        .orderBy("origin", "hour")
    )
    return [row.asDict() for row in found.collect()]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the job once; a later run goes on where this one stopped."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--name-servers", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--lake", required=True)
    parser.add_argument("--checkpoint", required=True)
    parser.add_argument("--progress", type=Path, required=True)
    parser.add_argument("--statistics", type=Path, required=True)
    parser.add_argument("--rows-per-batch", type=int, default=60_000)
    parser.add_argument("--linger-s", type=float, default=0.0)
    options = parser.parse_args(arguments)
    progress = Progress(options.progress)
    spark = session(options.progress.parent)
    try:
        stream(spark, options, progress)
        begin = time.monotonic()
        found = delays(spark, options.lake)
        options.statistics.write_text(json.dumps(found))
        progress.tell("done", statistics_s=time.monotonic() - begin)
    finally:
        spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
