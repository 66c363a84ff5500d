"""A table that is kept up to date by changes, as versions of Parquet folders.

    OUT/_cdc.json                       key, columns and number of buckets
    OUT/_versions/0000000007.json       which folder has each bucket, and the micro-batch
    OUT/_rows/PART/bucket=3/*.parquet   the last change of each key in each queue
    OUT/_bad/PART/*.parquet             messages that are no changes

Invariant: of a key and a queue there is one row, the change with the highest offset that was ever
seen, deletions too. So the order in which changes are merged does not matter, and merging one again
changes nothing. A key's row in the table is that of these changes which was stored last; ordinarily
a key has one queue, and its row is the change with the highest offset.

A micro-batch writes the buckets that it touches to a folder of its own, and counts from the moment
at which its version is there. `KEPT` versions stay for readers that have begun.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from roquet.base.errors import UsageError
from roquet.spark.jobs.changes.envelope import DELETE, PLACE, UPSERT
from roquet.spark.jobs.shared.queries import sql
from roquet.spark.jobs.storage.files import Files, LakeError
from roquet.spark.jobs.storage.schemas import nullable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

VERSION: Final = 1
KEPT: Final = 3
_LAST: Final = """
select * except (newest) from (
  select *, row_number() over (
    partition by {keys}, topic, brokerName, queueId order by queueOffset desc) as newest
  from {rows})
where newest = 1"""
_SHOWN: Final = """
select row.*, topic as _topic, brokerName as _brokerName, queueId as _queueId,
  queueOffset as _queueOffset, storeTimestamp as _storeTimestamp
from (select *, row_number() over (
    partition by {keys} order by storeTimestamp desc, topic, brokerName, queueId) as newest
  from {rows})
where newest = 1 and kind = 'upsert'"""


class Version(NamedTuple):
    """What counts: the folder of each bucket, and the micro-batch that was merged last."""

    number: int
    part: str
    buckets: Mapping[int, str]


class ChangeTable:
    """One table."""

    def __init__(self, spark: SparkSession, root: str) -> None:
        """Take its folder."""
        self.spark = spark
        self.root = root.rstrip("/")
        self.files = Files(spark)
        self._about = f"{self.root}/_cdc.json"

    def create(self, row: StructType, keys: Sequence[str], buckets: int) -> None:
        """Make the table, or see that it is the same one. Raises UsageError."""
        wanted = {"version": VERSION, "keys": list(keys), "row": nullable(row).jsonValue()}
        if not self.files.exists(self._about):
            self.files.write_new(self._about, json.dumps({**wanted, "buckets": buckets}))
            return
        found = self._read_about()
        if {name: found[name] for name in wanted} != wanted:
            raise UsageError(
                f"{self.root} is a table with the key {', '.join(found['keys'])} and the columns"
                f" {self._row(found).simpleString()[:500]}; others need a folder of their own"
            )

    def merge(self, part: str, changes: DataFrame) -> int:
        """Merge the changes of a micro-batch and return how many buckets it touched.

        `changes` has the columns of `envelope.parsed`. One that was merged last is left as it is.
        Raises LakeError.
        """
        last, about = self.last(), self._read_about()
        if last.part == part:
            return 0
        part = self._unused(part, last)
        keys, count = about["keys"], int(about["buckets"])
        hashed = ", ".join(_key(it) for it in keys)
        new = changes.where(f"kind in ('{UPSERT}', '{DELETE}')").selectExpr(
            *PLACE, "kind", "row", f"cast(pmod(xxhash64({hashed}), {count}) as int) as bucket"
        )
        new = _last(new, hashed)
        touched = sorted(int(it.bucket) for it in new.select("bucket").distinct().collect())
        folder = f"{self.root}/_rows/{part}"
        self.files.delete(folder)
        if touched:
            held = self._of({it: last.buckets[it] for it in touched if it in last.buckets}, about)
            both = new if held is None else held.unionByName(new)
            both = _last(both, hashed)
            both.repartition("bucket").write.partitionBy("bucket").parquet(folder)
        buckets = {**last.buckets, **dict.fromkeys(touched, part)}
        text = json.dumps({"part": part, "buckets": {str(it): of for it, of in buckets.items()}})
        self.files.write_new(f"{self.root}/_versions/{last.number + 1:010}.json", text)
        self._clean()
        return len(touched)

    def read(self) -> DataFrame:
        """Return the rows that there are now, with the place of their last change.

        Raises UsageError when there is no table.
        """
        about = self._read_about()
        held = self._of(self.last().buckets, about)
        if held is None:
            held = self.spark.createDataFrame([], self._held(about))
        keys = ", ".join(_key(it) for it in about["keys"])
        return sql(self.spark, _SHOWN.replace("{keys}", keys), rows=held)

    def last(self) -> Version:
        """Return the version that counts. Raises LakeError when it is damaged."""
        names = self._names()
        if not names:
            return Version(0, "", {})
        path = f"{self.root}/_versions/{names[-1]}"
        try:
            found = json.loads(self.files.read(path))
            buckets = {int(it): str(part) for it, part in found["buckets"].items()}
            return Version(int(names[-1].removesuffix(".json")), str(found["part"]), buckets)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise LakeError(f"{path} is damaged: {error}") from error

    def _unused(self, part: str, last: Version) -> str:
        """Return the name of a folder that no version has, as a rule that of the micro-batch.

        An older copy of the checkpoint makes micro-batches again whose folders count still.
        """
        return f"r{last.number + 1}-{part}" if part in last.buckets.values() else part

    def _names(self) -> list[str]:
        return [it for it in self.files.names(f"{self.root}/_versions") if it.endswith(".json")]

    def _clean(self) -> None:
        """Remove versions before the last ones, and folders that none of these names."""
        names = self._names()
        for name in names[:-KEPT]:
            self.files.delete(f"{self.root}/_versions/{name}")
        used: set[str] = set()
        for name in names[-KEPT:]:
            found = json.loads(self.files.read(f"{self.root}/_versions/{name}"))
            used |= {found["part"], *found["buckets"].values()}
        for part in self.files.names(f"{self.root}/_rows"):
            if part not in used:
                self.files.delete(f"{self.root}/_rows/{part}")

    def _of(self, buckets: Mapping[int, str], about: Any) -> DataFrame | None:
        found: DataFrame | None = None
        for part in sorted(set(buckets.values())):
            root = f"{self.root}/_rows/{part}"
            mine = sorted(f"{root}/bucket={it}" for it, of in buckets.items() if of == part)
            reader = self.spark.read.schema(self._held(about)).option("basePath", root)
            rows = reader.parquet(*mine)
            found = rows if found is None else found.unionByName(rows)
        return found

    def _held(self, about: Any) -> StructType:
        from pyspark.sql import types as t  # noqa: PLC0415  (slow to import)

        return t.StructType(
            [
                t.StructField("topic", t.StringType()),
                t.StructField("brokerName", t.StringType()),
                t.StructField("queueId", t.IntegerType()),
                t.StructField("queueOffset", t.LongType()),
                t.StructField("storeTimestamp", t.TimestampType()),
                t.StructField("kind", t.StringType()),
                t.StructField("row", self._row(about)),
                t.StructField("bucket", t.IntegerType()),
            ]
        )

    def _row(self, about: Any) -> StructType:
        from pyspark.sql.types import StructType  # noqa: PLC0415

        return StructType.fromJson(about["row"])

    def _read_about(self) -> Any:
        if not self.files.exists(self._about):
            raise UsageError(f"{self.root} is no table of changes: there is no _cdc.json")
        try:
            found = json.loads(self.files.read(self._about))
            version, _ = found["version"], (found["keys"], found["row"], found["buckets"])
        except (ValueError, KeyError, TypeError) as error:
            raise UsageError(f"{self._about} cannot be read: {error}") from error
        if version != VERSION:
            raise UsageError(f"{self.root} is of version {version}, this release knows {VERSION}")
        return found


def _last(rows: DataFrame, keys: str) -> DataFrame:
    """Return the last change of each key in each queue."""
    # A micro-batch has a session of its own.
    return sql(rows.sparkSession, _LAST.replace("{keys}", keys), rows=rows)


def _key(name: str) -> str:
    """Return a column of the key in SQL."""
    return f"row.`{name.replace('`', '``')}`"
