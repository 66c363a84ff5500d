"""Bad bodies of a lake: a table of the messages whose bodies are not as their schema says.

    LAKE/_quarantine/part=PART/day=DAY/*.parquet

The lake has these messages too, with a null `value`: one at each offset, whatever bodies are. A
part's bad bodies are written before it counts and are read once it does; a try that is repeated
writes them again, in the place of the former's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from roquet.spark.jobs.shared.queries import sql
from roquet.spark.jobs.storage.files import LakeError
from roquet.spark.jobs.storage.schemas import VALUE

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import date

    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType

    from roquet.spark.jobs.bodies.column import Bodies
    from roquet.spark.jobs.lake import Lake

FOLDER: Final = "_quarantine"
NAMED_MAX: Final = 10
"""Queues with bad bodies that a micro-batch names, each in a line."""
DDL: Final = (
    "topic string, brokerName string, queueId int, queueOffset bigint, msgId string,"
    " uniqKey string, keys string, tags string, storeTimestamp timestamp, body binary,"
    " error string, part string, day date"
)
_COLUMNS: Final = (
    "topic",
    "brokerName",
    "queueId",
    "queueOffset",
    "msgId",
    "uniqKey",
    "keys",
    "tags",
    "storeTimestamp",
    "body",
)
_QUEUES: Final = """
select topic, brokerName, queueId, count(*) as bodies, min(queueOffset) as first,
  min_by(error, queueOffset) as error
from {bad} group by topic, brokerName, queueId order by topic, brokerName, queueId"""


class BadQueue(NamedTuple):
    """Bad bodies of one queue: how many, the first's offset, and what is wrong with that."""

    topic: str
    broker: str
    queue: int
    bodies: int
    first: int
    error: str

    @property
    def text(self) -> str:
        """Say it in a line."""
        what = "1 bad body" if self.bodies == 1 else f"{self.bodies:,} bad bodies"
        return (
            f"{self.topic} {self.broker} queue {self.queue}: {what}, the first at offset"
            f" {self.first}: {self.error}"
        )


class Quarantine:
    """Finds bad bodies in parts, and keeps or refuses them."""

    def __init__(self, lake: Lake, bodies: Bodies, value: DataType, *, refuse: bool) -> None:
        """Take how bodies are read, the type of what they should be, and whether they end it."""
        self._lake = lake
        self._bodies = bodies
        self.value = value
        self._refuse = refuse
        self.count = 0

    def take(self, part: str, rows: DataFrame) -> list[str]:
        """Keep the bad bodies of a part's rows; return lines that name them, none if none is bad.

        Raises LakeError when they are to end the job.
        """
        self.refuse(rows)
        folder = f"{self._lake.root}/{FOLDER}/part={part}"
        self._bad(rows).write.mode("overwrite").partitionBy("day").parquet(folder)
        found = self._queues(_of(self._lake, [folder]))
        self.count += sum(it.bodies for it in found)
        lines = [it.text for it in found[:NAMED_MAX]]
        if len(found) > NAMED_MAX:
            lines.append(f"and bad bodies in {len(found) - NAMED_MAX:,} further queues")
        return lines

    def refuse(self, rows: DataFrame) -> None:
        """Raise LakeError for bad bodies that are to end the job, before their part counts."""
        if self._refuse and (found := self._queues(self._bad(rows))):
            raise LakeError(
                f"{found[0].text}; failOnBadBodies is on: nothing of its micro-batch is archived"
            )

    def _bad(self, rows: DataFrame) -> DataFrame:
        reason = self._bodies.reason(self.value).alias("error")
        return rows.where(f"{VALUE} is null").select(*_COLUMNS, reason, "day")

    def _queues(self, bad: DataFrame) -> list[BadQueue]:
        rows: Sequence[Any] = sql(self._lake.spark, _QUEUES, bad=bad).collect()
        return [
            BadQueue(it.topic, it.brokerName, it.queueId, it.bodies, it["first"], it.error)
            for it in rows
        ]


def read(lake: Lake) -> DataFrame:
    """Return the bad bodies of all that is archived, a row each; columns as in `DDL`."""
    # Of a part that no commit has, rows may be of a try that was killed.
    committed = set(lake.files.names(lake.catalog.folder))
    names = lake.files.names(f"{lake.root}/{FOLDER}")
    parts = [it for it in names if f"{it.removeprefix('part=')}.json" in committed]
    if not parts:
        return lake.spark.createDataFrame([], DDL)
    return _of(lake, [f"{lake.root}/{FOLDER}/{it}" for it in parts])


def retire(lake: Lake, last: date) -> None:
    """Remove the bad bodies of days before `last`."""
    root = f"{lake.root}/{FOLDER}"
    for part in lake.files.names(root):
        days = [it for it in lake.files.names(f"{root}/{part}") if it.startswith("day=")]
        old = [it for it in days if it.removeprefix("day=") < last.isoformat()]
        for day in old:
            lake.files.delete(f"{root}/{part}/{day}")
        if old and len(old) == len(days):
            lake.files.delete(f"{root}/{part}")


def _of(lake: Lake, folders: Sequence[str]) -> DataFrame:
    reader = lake.spark.read.schema(DDL).option("basePath", f"{lake.root}/{FOLDER}")
    return reader.parquet(*folders)
