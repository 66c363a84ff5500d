"""What happens to a Delta lake after it was filled: a line of JSON for each step."""

from __future__ import annotations

import json
import shutil
import sys
import time
from pathlib import Path
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from lake_harness import At
from roquet.spark.jobs import archive
from roquet.spark.jobs.lake import configuration
from roquet.spark.jobs.shared.report import Report
from roquet.spark.jobs.storage.files import LakeError

DAY_MS = 86_400_000
CONF = {
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.databricks.delta.snapshotPartitions": "2",
}
AT_ONCE = (
    "alter table delta.`{}` set tblproperties"
    " ('delta.deletedFileRetentionDuration' = 'interval 0 seconds')"
)
"""Lets VACUUM remove files at once; Delta's own limit is a week."""


def session() -> SparkSession:
    """Return a small session that has Delta."""
    builder = SparkSession.builder.master("local[2]")
    for name, value in {**CONF, **configuration("delta")}.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


class Steps:
    """One lake and what is done to it."""

    def __init__(self, spark: SparkSession, out: Path, names: str) -> None:
        self.spark = spark
        self.out = out
        self.reading = {"nameServers": names, "subscribe": "Source"}

    def run(self, options: dict[str, str], now_ms: int | None = None) -> Report:
        clock = None if now_ms is None else At(now_ms)
        given = {"out": str(self.out), "format": "delta", "check": "true", **options}
        return archive.run(self.spark, given, lambda _: None, clock)

    def tell(self, step: str, report: Report | None = None) -> None:
        table = self.spark.read.format("delta").load(str(self.out))
        files = self.spark.sql(f"describe detail delta.`{self.out}`").collect()[0]["numFiles"]
        found: dict[str, Any] = {
            "step": step,
            "rows": table.count(),
            "offsets": table.select("queueId", "queueOffset").distinct().count(),
            "files": files,
            "kept": len(list(self.out.glob("topic=*/**/*.parquet"))),
            "lines": [] if report is None else list(report.lines),
        }
        sys.stdout.write(json.dumps(found) + "\n")
        sys.stdout.flush()

    def newest(self, folder: str, pattern: str) -> Path:
        return max((self.out / folder).glob(pattern), key=lambda it: int(it.stem.split("-")[-1]))


def forget(note: Path) -> None:
    """Remove a file with the checksum that Hadoop keeps of it."""
    note.unlink()
    note.with_name(f".{note.name}.crc").unlink(missing_ok=True)


def main(out: str, names: str) -> None:
    """Do all steps."""
    spark = session()
    try:
        it = Steps(spark, Path(out), names)
        it.tell("begun")
        # Notes of another query, which had read less, lead it to rows that the lake has.
        other = Steps(spark, Path(out).with_name("other"), names)
        other.run({**it.reading, "maxOffsetsPerTrigger": "200"})
        notes = other.out / "_checkpoint"
        for folder in ("offsets", "commits"):
            for number in (1, 2):
                forget(notes / folder / str(number))
        try:
            it.run({**it.reading, "checkpoint": str(notes)})
        except (LakeError, PySparkException) as error:
            it.tell("other notes", Report((str(error),)))
        forget(it.newest("_checkpoint/commits", "[0-9]*"))
        it.tell("without Spark's note", it.run(it.reading))
        forget(it.newest("_checkpoint/commits", "[0-9]*"))
        forget(it.newest("_catalog", "b*.json"))
        it.tell("without the catalog's and Spark's note", it.run(it.reading))
        spark.sql(AT_ONCE.format(out))
        it.tell("compacted", it.run({"compact": "true"}))
        old = {"retainDays": "1"}
        now = int(time.time() * 1000)
        it.tell("nothing is old", it.run(old, now))
        it.tell("three days later", it.run(old, now + 3 * DAY_MS))
        shutil.rmtree(Path(out) / "_checkpoint")
        it.tell("archived again", it.run(it.reading))
    finally:
        spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
