"""The job `cdc` into Delta, in a session that has it: a line of JSON for each step."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException

from delta_jobs import session
from roquet.base.errors import RoquetError
from roquet.spark.jobs import cdc

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COLUMNS = "id bigint, name string, `total sum` float"
PLACES = "_topic, _brokerName, _queueId, _queueOffset"


class Steps:
    """One table and what is done to it."""

    def __init__(self, spark: SparkSession, out: Path, names: str) -> None:
        self.spark = spark
        self.out = out
        self.given = {"nameServers": names, "key": "id", "columns": COLUMNS, "format": "delta"}
        self.given |= {"out": str(out), "buckets": "3"}

    def run(self, step: str, **options: str) -> None:
        said: list[str] = []
        try:
            report = cdc.run(self.spark, {**self.given, **options}, said.append)
            lines = list(report.lines)
        except (RoquetError, PySparkException) as error:
            lines = [str(error)]
        table = f"delta.`{self.out}`"
        spark = self.spark
        current = spark.sql(f"select * from {table} where _current order by id").collect()
        held = spark.sql(f"select count(distinct id, {PLACES}) as n, count(1) as m from {table}")
        places = spark.sql(f"select count(distinct id, _topic, _queueId) as n from {table}")
        mine = cdc.table(spark, str(self.out)).drop("_storeTimestamp").orderBy("id")
        version = spark.sql(f"describe history {table} limit 1").collect()[0].version
        found: dict[str, Any] = {
            "step": step,
            "lines": lines,
            "said": [it for it in said if "micro-batch" not in it],
            "rows": [it.asDict(recursive=True) for it in mine.collect()],
            "current": [it.id for it in current],
            "held": [*held.collect()[0], places.collect()[0].n],
            "version": version,
        }
        sys.stdout.write(json.dumps(found) + "\n")
        sys.stdout.flush()

    def refused(self, step: str, **options: str) -> None:
        """Run on what is no table of Delta."""
        lines = list[str]()
        try:
            cdc.run(self.spark, {**self.given, **options}, lines.append)
        except RoquetError as error:
            lines = [str(error)]
        sys.stdout.write(json.dumps({"step": step, "lines": lines}) + "\n")

    def forget(self) -> None:
        shutil.rmtree(self.out / "_checkpoint")


def main(out: str, names: str) -> None:
    """Do all steps."""
    spark = session()
    try:
        it = Steps(spark, Path(out), names)
        it.run("merged", subscribe="First", maxOffsetsPerTrigger="40")
        # What a kill leaves between Delta's transaction and Spark's own note.
        shutil.rmtree(it.out / "_checkpoint" / "commits")
        it.run("without Spark's note", subscribe="First", maxOffsetsPerTrigger="40")
        it.forget()
        it.run("in another cut", subscribe="First", maxOffsetsPerTrigger="25")
        it.forget()
        it.run("another type", subscribe="First", columns="id bigint, name bigint")
        it.run("a wider type", subscribe="First", columns="id bigint, `total sum` double")
        it.run("a key of another type", subscribe="First", columns="id string")
        it.run("another key", subscribe="First", key="name")
        it.run("Parquet", subscribe="First", format="parquet")
        more = "id bigint, name string, city struct<zip: string, `at lake`: boolean>"
        it.run("new columns", subscribe="Second", columns=more)
        # A key that goes on in another queue, and is deleted in the first, earlier by its time.
        it.forget()
        it.run("another queue", subscribe="Third")
        back = spark.sql(f"describe history delta.`{out}`").collect()[1].version
        spark.sql(f"restore table delta.`{out}` to version as of {back}")
        it.run("set back", subscribe="Third")
        it.forget()
        it.run("set back, without the checkpoint", subscribe="Third")
        it.forget()
        it.run("other tables", subscribe="Fourth", table="wanted")
        shutil.rmtree(Path(out) / "_delta_log")
        it.refused("without its log", subscribe="Third")
    finally:
        spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
