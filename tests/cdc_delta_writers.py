"""A table of changes in Delta with other writers: a line of JSON for each step."""

from __future__ import annotations

import datetime as dt
import json
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from pyspark.sql.types import StructType

from delta_jobs import session
from roquet.base.errors import RoquetError
from roquet.base.overriding import override
from roquet.spark.jobs.changes.delta import DeltaTable

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import DataFrame, SparkSession

COLUMNS = "id bigint, name string, n int, `a {x}` struct<b: string>"
CHANGES = (
    "topic string, brokerName string, queueId int, queueOffset bigint, storeTimestamp timestamp,"
    " kind string, row struct<id: bigint, name: string, n: int, `a {x}`: struct<b: string>>"
)
Change = tuple[str, int, int, str | None]
"""A topic, offset, key, and the new name; None deletes. The offset is the time, too."""


def frame(spark: SparkSession, changes: Iterable[Change]) -> DataFrame:
    """Return changes as a micro-batch has them."""
    begun = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    rows = [
        (
            *(topic, "b", 0, offset, begun + dt.timedelta(milliseconds=offset)),
            "delete" if name is None else "upsert",
            (key, name, offset, (name,)),
        )
        for topic, offset, key, name in changes
    ]
    return spark.createDataFrame(rows, CHANGES)


class Met(DeltaTable):
    """A table whose first transaction begins when that of another writer does."""

    barrier: threading.Barrier | None = None
    begun = 0

    @override
    def _merge(self, changed: DataFrame, touched: list[int]) -> None:
        self.begun += 1
        barrier, self.barrier = self.barrier, None
        if barrier is not None:
            barrier.wait(600)
        super()._merge(changed, touched)


def make(spark: SparkSession, root: Path, columns: str = COLUMNS) -> DeltaTable:
    """Make a table, or open the one that is there."""
    it = DeltaTable(spark, str(root))
    it.create(cast("StructType", StructType.fromDDL(columns)), ["id"], 1, lambda _: None)
    return it


def tell(step: str, **found: Any) -> None:
    """Print a line."""
    sys.stdout.write(json.dumps({"step": step, **found}) + "\n")
    sys.stdout.flush()


def conflict(spark: SparkSession, root: Path) -> None:
    """Let two writers merge changes of the same keys at the same time."""
    make(spark, root)
    barrier = threading.Barrier(2)
    begun: dict[str, int] = {}

    def write(topic: str, first: int) -> None:
        mine = spark.newSession()
        it = Met(mine, str(root))
        it.barrier = barrier
        # Keys 0 to 3 are changed by both, in turn.
        names = [None if n % 7 == 0 else f"{topic}{n}" for n in range(first, 16, 2)]
        changes = [(topic, 2 * n + first, n % 4, name) for n, name in enumerate(names)]
        for at in range(0, len(changes), 4):
            it.merge(f"{topic}{at}", frame(mine, changes[at : at + 4]))
        begun[topic] = it.begun

    threads = [threading.Thread(target=write, args=it) for it in (("A", 0), ("B", 1))]
    for it in threads:
        it.start()
    for it in threads:
        it.join()
    tell("conflict", begun=begun)


def strangers(spark: SparkSession, root: Path) -> None:
    """Alter tables between micro-batches, and go on with them."""
    wider = "set tblproperties ('delta.enableTypeWidening' = 'true')"
    cases = {
        "added": ["add column (note string)"],
        "renamed": ["rename column name to nom"],
        "dropped": ["drop column name"],
        "widened": [wider, "alter column n type bigint"],
    }
    for case, how in cases.items():
        place = root / f"{case} {{y}}"
        it = make(spark, place)
        it.merge("first", frame(spark, [("T", n, n, f"old{n}") for n in range(2)]))
        for text in how:
            run: Any = spark
            run.sql(f"alter table delta.`{place}` {text}")
        lines: list[str] = []
        for offset in (5, 6):
            try:
                # Within a run, and by the next one, which has a column more.
                if offset == 6:
                    it = make(spark, place, f"{COLUMNS}, more int")
                it.merge("more", frame(spark, [("T", offset, 1, f"new{offset}")]))
            except RoquetError as error:
                lines.append(str(error))
        tell(case, lines=lines)


def main(folder: str) -> None:
    """Do all steps."""
    spark = session()
    try:
        conflict(spark, Path(folder) / "conflict")
        strangers(spark, Path(folder))
    finally:
        spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
