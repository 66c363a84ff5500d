"""A stream from a topic into Parquet, up to the present, for tests in a real Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

from roquet.spark.jobs.shared.patience import patiently

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


def micro_batches(
    spark: SparkSession, servers: str, topic: str, folder: Path, **options: str
) -> list[int]:
    """Run an AvailableNow query into `folder`/out; return how many rows its micro-batches read."""
    given = {"nameServers": servers, "subscribe": topic, **options}
    if "startingTimestamp" not in options:
        given.setdefault("startingOffsets", "earliest")
    counts: list[int] = []

    def run() -> None:
        query = (
            spark.readStream.format("roquet")
            .options(**given)
            .load()
            .writeStream.format("parquet")
            .option("checkpointLocation", str(folder / "checkpoint"))
            .trigger(availableNow=True)
            .start(str(folder / "out"))
        )
        assert query.awaitTermination(400)
        counts[:] = [progress.numInputRows for progress in query.recentProgress]

    patiently(run, print)
    return counts


def follow(spark: SparkSession, servers: str, topic: str, folder: Path, **options: str) -> int:
    """Run such a query; return how many rows it read."""
    return sum(micro_batches(spark, servers, topic, folder, **options))
