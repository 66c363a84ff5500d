"""The lake: Parquet files in `departed=YYYY-MM/batch=N`, one folder a month and micro-batch.

A micro-batch that Spark repeats after a crash has the same rows, since its offsets are in the
checkpoint; it replaces its own folders. So the lake is right for any reader, without a log of what
counts: exactly once, as long as a repeated batch is written with the same number.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from demo.flights import NUMBERS, TEXTS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame

COLUMNS = ("brokerName", "queueId", "queueOffset", "storeTimestamp", "keys", "tags", "body")
"""Read from the topic."""
MONTH = len("YYYY-MM")
BODY_DDL = ", ".join(
    [
        "id BIGINT",
        *(f"{name} INT" for name in NUMBERS),
        *(f"{name} STRING" for name in TEXTS),
    ]
)


def parse(messages: DataFrame) -> DataFrame:
    """Return flights beside the message they came in. The day is that of the departure."""
    from pyspark.sql import functions as f  # noqa: PLC0415  (the audit runs without Spark)

    text = f.col("body").cast("string")
    parsed = messages.withColumn("flight_", f.from_json(text, BODY_DDL))
    day = f.make_date("flight_.year", "flight_.month", "flight_.day").cast("string")
    return parsed.select(*COLUMNS, "flight_.*", day.alias("date"))


def write(flights: DataFrame, batch: int, lake: str) -> None:
    """Write a micro-batch, replacing what an earlier try of it left."""
    from pyspark.sql import functions as f  # noqa: PLC0415

    (
        # Flights come by time, so that each task has a month or two, and no shuffle is needed.
        flights.withColumn("departed", f.substring("date", 1, MONTH))
        .withColumn("batch", f.lit(batch))
        .write.mode("overwrite")
        .option("partitionOverwriteMode", "dynamic")
        .partitionBy("departed", "batch")
        .parquet(lake)
    )


def read(lake: Path) -> Iterator[dict[str, list[Any]]]:
    """Yield the rows as columns of plain values, a file or less at a time."""
    import pyarrow.dataset as ds  # noqa: PLC0415  (only the audit needs it)

    source = ds.dataset(lake, format="parquet", partitioning="hive")
    for batch in source.to_batches():
        yield batch.to_pydict()
