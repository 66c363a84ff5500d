"""A table that is kept up to date by changes, as versions of Parquet folders.

    OUT/_cdc.json, _schemas/            what it is (`about`)
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

import contextlib
import json
from typing import TYPE_CHECKING, Final, NamedTuple

from roquet.spark.jobs.changes import about
from roquet.spark.jobs.changes.about import About, Table
from roquet.spark.jobs.changes.envelope import DELETE, PLACE, UPSERT
from roquet.spark.jobs.shared.queries import literally, sql
from roquet.spark.jobs.storage.files import LakeError
from roquet.spark.jobs.storage.schemas import converted, named, version_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from pyspark.sql import DataFrame, DataFrameReader
    from pyspark.sql.types import StructType

KEPT: Final = 3
VERSIONS: Final = "_versions"
"""The folder of the files that say what counts."""
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
    files: Mapping[int, Sequence[str]]
    """The names of a bucket's files; earlier releases have not noted them."""


class ChangeTable(Table):
    """One table."""

    def create(
        self, row: StructType, keys: Sequence[str], buckets: int, say: Callable[[str], None]
    ) -> None:
        """Make the table, or let it have these columns too. Raises UsageError."""
        wanted = About(tuple(keys), buckets, about.PARQUET, (row,))
        self.about = about.create(self.files, self.root, wanted, say)

    def merge(self, part: str, changes: DataFrame) -> int:
        """Merge the changes of a micro-batch and return how many buckets it touched.

        `changes` has the columns of `envelope.parsed`. Raises LakeError.
        """
        last = self.last()
        # One of the same name may have more now: an older copy of the checkpoint does that.
        part = self._unused(named(part, len(self.about.rows)), last)
        new = newest(bucketed(changes, self.about), self.about.key)
        touched = sorted(int(it.bucket) for it in new.select("bucket").distinct().collect())
        folder = f"{self.root}/_rows/{part}"
        self.files.delete(folder)
        if touched:
            held = self._of(last, [it for it in touched if it in last.buckets])
            both = new if held is None else held.unionByName(new)
            both = newest(both, self.about.key)
            both.repartition("bucket").write.partitionBy("bucket").parquet(folder)
        buckets = {**last.buckets, **dict.fromkeys(touched, part)}
        files = {**last.files, **{it: self._parquet(folder, it) for it in touched}}
        text = json.dumps({"part": part, "buckets": buckets, "files": files})
        self.files.write_new(f"{self.root}/{VERSIONS}/{last.number + 1:010}.json", text)
        self._clean()
        return len(touched)

    def read(self) -> DataFrame:
        """Return the rows that there are now, with the place of their last change.

        Raises UsageError when there is no table.
        """
        rows = self._rows()
        return sql(self.spark, _SHOWN.replace("{keys}", literally(self.about.key)), rows=rows)

    def places(self) -> DataFrame:
        """Return where the changes come from that the table has: `PLACE` of each."""
        return self._rows().select(*PLACE)

    def last(self) -> Version:
        """Return the version that counts. Raises LakeError when it is damaged."""
        names = self._names()
        if not names:
            return Version(0, "", {}, {})
        return self._version(names[-1])

    def _version(self, name: str) -> Version:
        path = f"{self.root}/{VERSIONS}/{name}"
        try:
            found = json.loads(self.files.read(path))
            buckets = {int(it): str(part) for it, part in found["buckets"].items()}
            files = {int(it): list(map(str, of)) for it, of in found.get("files", {}).items()}
            number = int(name.removesuffix(".json"))
            return Version(number, str(found["part"]), buckets, files)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise LakeError(
                f"{path} is damaged: {error}. Remove it, and the checkpoint as well: the version"
                " before it counts then, and all that the topic still has is merged anew"
            ) from error

    def _unused(self, part: str, last: Version) -> str:
        """Return the name of a folder that no version has, as a rule that of the micro-batch.

        An older copy of the checkpoint makes micro-batches again whose folders count still.
        """
        return f"r{last.number + 1}-{part}" if part in last.buckets.values() else part

    def _names(self) -> list[str]:
        return [it for it in self.files.names(f"{self.root}/{VERSIONS}") if it.endswith(".json")]

    def _clean(self) -> None:
        """Remove versions before the last ones, and folders that none of these names."""
        names = self._names()
        for name in names[:-KEPT]:
            self.files.delete(f"{self.root}/{VERSIONS}/{name}")
        used: set[str] = set()
        for name in names[-KEPT:]:
            with contextlib.suppress(LakeError):
                # Of one that is damaged nobody can read anything.
                it = self._version(name)
                used |= {it.part, *it.buckets.values()}
        for part in self.files.names(f"{self.root}/_rows"):
            if part not in used:
                self.files.delete(f"{self.root}/_rows/{part}")

    def _parquet(self, folder: str, bucket: int) -> list[str]:
        names = self.files.names(f"{folder}/bucket={bucket}")
        return [it for it in names if it.endswith(".parquet")]

    def _rows(self) -> DataFrame:
        """Return all rows that count, in the columns of now."""
        last = self.last()
        found = self._of(last, last.buckets)
        return self.spark.createDataFrame([], _held(self.about.row)) if found is None else found

    def _of(self, version: Version, buckets: Iterable[int]) -> DataFrame | None:
        """Return the rows of buckets in the columns of now. Raises LakeError for a file gone."""
        found: DataFrame | None = None
        wanted = sorted(buckets)
        for part in sorted({version.buckets[it] for it in wanted}):
            root = f"{self.root}/_rows/{part}"
            mine: list[str] = []
            for it in (it for it in wanted if version.buckets[it] == part):
                folder = f"{root}/bucket={it}"
                # By their names: a file that is gone would only be fewer rows of its folder.
                mine += [f"{folder}/{name}" for name in version.files.get(it, ())] or [folder]
            old = self.about.rows[version_of(part) - 1]
            reader = self.spark.read.schema(_held(old)).option("basePath", root)
            rows = in_columns(self._opened(reader, mine), self.about.row)
            found = rows if found is None else found.unionByName(rows)
        return found

    def _opened(self, reader: DataFrameReader, paths: Sequence[str]) -> DataFrame:
        from pyspark.errors import AnalysisException  # noqa: PLC0415  (slow to import)

        try:
            return reader.parquet(*paths)
        except AnalysisException as error:
            if error.getCondition() != "PATH_NOT_FOUND":
                raise
            gone = [it for it in paths if not self.files.exists(it)]
            raise LakeError(
                f"{(gone or list(paths))[0]} is gone, and the newest version of the table has it:"
                f" put it back, or remove {self.root} with its checkpoint to merge all anew that"
                " the topic still has"
            ) from error


def bucketed(changes: DataFrame, it: About) -> DataFrame:
    """Return the changes of rows, in the columns of a table, each with its bucket."""
    return (
        in_columns(changes, it.row)
        .where(f"kind in ('{UPSERT}', '{DELETE}')")
        .selectExpr(
            *PLACE, "kind", "row", f"cast(pmod(xxhash64({it.key}), {it.buckets}) as int) as bucket"
        )
    )


def newest(rows: DataFrame, keys: str) -> DataFrame:
    """Return the last change of each key in each queue."""
    # A micro-batch has a session of its own.
    return sql(rows.sparkSession, _LAST.replace("{keys}", literally(keys)), rows=rows)


def in_columns(rows: DataFrame, row: StructType) -> DataFrame:
    """Return rows whose column `row` has these columns; what it lacks is null."""
    made = converted(rows["row"], rows.schema["row"].dataType, row)
    return rows.withColumn("row", made)


def _held(row: StructType) -> StructType:
    from pyspark.sql import types as t  # noqa: PLC0415  (slow to import)

    return t.StructType(
        [
            t.StructField("topic", t.StringType()),
            t.StructField("brokerName", t.StringType()),
            t.StructField("queueId", t.IntegerType()),
            t.StructField("queueOffset", t.LongType()),
            t.StructField("storeTimestamp", t.TimestampType()),
            t.StructField("kind", t.StringType()),
            t.StructField("row", row),
            t.StructField("bucket", t.IntegerType()),
        ]
    )
