"""A table that is kept up to date by changes, as a table of Delta at its folder.

Its columns are those of the rows, the place of each row's last change, `_kind` (upsert or delete),
`_current`, and `_bucket`, by which it is partitioned. `select … where _current` is the table; any
reader of Delta can ask that, of older versions too.

Invariant, that of `table`: of a key and a queue there is one row, the change with the highest
offset that was ever seen, deletions too. `_current` has the row of a key that was stored last, if
that is no deletion. A micro-batch merges only rows that are not so yet, in one transaction: merging
it again changes nothing, and writes nothing.

The rows to merge are made of one version of the table. When another version came before the merge,
by another writer, what is current may be told wrong: then it is done again, from the newest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

from roquet.spark.jobs.changes import about
from roquet.spark.jobs.changes.about import DELTA, PLACED, About, Table, common, quoted
from roquet.spark.jobs.changes.envelope import PLACE
from roquet.spark.jobs.changes.table import ChangeTable, bucketed, in_columns, newest
from roquet.spark.jobs.shared.queries import literally, sql
from roquet.spark.jobs.storage import schemas
from roquet.spark.jobs.storage.files import LakeError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


TRIES: Final = 5
"""How often a micro-batch is merged again because another writer came in between."""
_OVERTAKEN: Final = tuple(
    f"io.delta.exceptions.{it}" for it in ("Concurrent", "MetadataChanged", "ProtocolChanged")
)
"""What Delta calls it when another writer's transaction came first."""
_NEW: Final = " is new"
"""How a line of `schemas.changes` ends for a column that the older schema lacks."""
_QUEUE: Final = ("topic", "brokerName", "queueId")
_ANY_NAME: Final = ("delta.columnMapping.mode", "name")
"""Names of columns as Delta writes them have no spaces; with this they may have any."""
_ADDED: Final = (
    "_topic string, _brokerName string, _queueId int, _queueOffset bigint, _storeTimestamp"
    " timestamp, _kind string, _current boolean, _bucket int"
)
_LAST: Final = """
select * except (newest) from (
  select *, row_number() over (
    partition by {keys}, topic, brokerName, queueId order by queueOffset desc, was is null
  ) as newest
  from {rows})
where newest = 1"""
_CHANGED: Final = """
select * except (was) from (
  select *, kind = 'upsert' and row_number() over (
    partition by {keys} order by storeTimestamp desc, topic, brokerName, queueId) = 1 as current
  from {rows})
where was is null or was <> current"""


def table_at(spark: SparkSession, root: str, kind: str | None = None) -> ChangeTable | DeltaTable:
    """Return the table in a folder, of a format or of the one that it has.

    Raises UsageError when there is none to ask.
    """
    found = ChangeTable(spark, root)
    if (kind or found.about.kind) == DELTA:
        return DeltaTable(spark, root)
    return found


class DeltaTable(Table):
    """One table."""

    def create(
        self, row: StructType, keys: Sequence[str], buckets: int, say: Callable[[str], None]
    ) -> None:
        """Make the table, or let it have these columns too. Raises UsageError."""
        wanted = About(tuple(keys), buckets, DELTA, (row,))
        there = self.files.exists(f"{self.root}/_delta_log")
        if there and self.files.exists(f"{self.root}/{about.FILE}"):
            self._check(self._columns(), about.read(self.files, self.root).row)
        self.about = about.create(self.files, self.root, wanted, say, self._grow)
        if not there:
            self._append(_shape(self.about.row))

    def merge(self, part: str, changes: DataFrame) -> int:
        """Merge the changes of a micro-batch and return how many buckets it touched.

        `changes` has the columns of `envelope.parsed`. `part` is for messages. Raises LakeError.
        """
        new = newest(bucketed(changes, self.about), self.about.key).persist()
        try:
            for _ in range(TRIES):
                version = self._version()
                changed = self._changed(new, version).persist()
                try:
                    touched = [
                        int(it.bucket) for it in changed.select("bucket").distinct().collect()
                    ]
                    if not touched:
                        return 0
                    self._merge(changed, sorted(touched))
                except Exception as error:
                    if not _overtaken(error):
                        raise
                    continue
                finally:
                    changed.unpersist()
                if self._version() == version + 1:
                    return len(touched)
        finally:
            new.unpersist()
        raise LakeError(
            f"{self.root}: others wrote to the table {TRIES} times while {part} was merged;"
            " run the job again when there are fewer of them: it goes on where it was"
        )

    def read(self) -> DataFrame:
        """Return the rows that there are now, with the place of their last change.

        Raises UsageError when there is no table.
        """
        table = self.spark.read.format(DELTA).load(self.root).where("_current")
        return table.select(*map(quoted, self.about.row.names), *PLACED)

    def places(self) -> DataFrame:
        """Return where the changes come from that the table has: `PLACE` of each."""
        table = self.spark.read.format(DELTA).load(self.root)
        return table.selectExpr(
            *(f"{place} as {name}" for place, name in zip(PLACED, PLACE, strict=True))
        )

    # --- inside ------------------------------------------------------------------------------

    def _columns(self) -> StructType:
        return self.spark.read.format(DELTA).load(self.root).schema

    def _check(self, held: StructType, row: StructType) -> None:
        """Raise LakeError when somebody has taken columns away: they would be made anew, as null.

        Columns that the job does not know, and wider types, are in nobody's way.
        """
        lines = schemas.changes(held, row)
        gone = [it.removesuffix(_NEW) for it in lines if it.endswith(_NEW)]
        if gone:
            raise LakeError(
                f"{self.root}: the table of Delta has no {', '.join(gone)[:1000]} any more: columns"
                " were renamed or dropped by somebody else. Give them their names back (ALTER TABLE"
                " … RENAME COLUMN), or set the table back (RESTORE) and remove the checkpoint; to"
                " go on without what was in them, add them (ALTER TABLE … ADD COLUMN)"
            )

    def _grow(self, row: StructType) -> None:
        """Let the table have these columns, too."""
        held = self._columns()
        # With the types that the table has, which may be wider than the job's.
        wanted = schemas.merged(held, about.whole(held, row), whole="table")
        if schemas.changes(held, wanted):
            self._append(wanted)

    def _append(self, shape: StructType) -> None:
        """Append no row of these columns: those that the table lacks are made."""
        rows = self.spark.createDataFrame([], shape)
        writer = rows.write.format(DELTA).mode("append").partitionBy("_bucket")
        writer.option(*_ANY_NAME).option("mergeSchema", "true").save(self.root)

    @property
    def _name(self) -> str:
        return f"delta.{quoted(self.root)}"

    def _version(self) -> int:
        (last,) = sql(self.spark, f"describe history {self._name} limit 1").collect()
        return int(last.version)

    def _changed(self, new: DataFrame, version: int) -> DataFrame:
        """Return the rows that the table is to have for the keys of `new`, and has not."""
        spark = new.sparkSession
        buckets = [int(it.bucket) for it in new.select("bucket").distinct().collect()]
        reader = spark.read.format(DELTA).option("versionAsOf", version)
        table = reader.load(self.root)
        self._check(table.schema, self.about.row)
        if buckets:
            table = table.where(f"_bucket in ({', '.join(map(str, sorted(buckets)))})")
        row = ", ".join(quoted(it) for it in self.about.row.names)
        held = table.selectExpr(
            *(f"{place} as {name}" for place, name in zip(PLACED, PLACE, strict=True)),
            "_kind as kind",
            f"struct({row}) as row",
            "_bucket as bucket",
            "_current as was",
        )
        held = in_columns(held, self.about.row)
        keys = [(f"k{number}", name) for number, name in enumerate(self.about.keys)]
        named = new.selectExpr(*(f"row.{quoted(name)} as {it}" for it, name in keys)).distinct()
        same = " and ".join(f"h.row.{literally(quoted(name))} = n.{it}" for it, name in keys)
        mine = sql(
            spark,
            f"select h.* from {{held}} h left semi join {{named}} n on {same}",  # noqa: S608
            held=held,
            named=named,
        )
        both = mine.unionByName(new.selectExpr("*", "cast(null as boolean) as was"))
        # Of two that are the same the one that the table has: it is no change.
        last = sql(spark, _LAST.replace("{keys}", literally(self.about.key)), rows=both)
        return sql(spark, _CHANGED.replace("{keys}", literally(self.about.key)), rows=last)

    def _merge(self, changed: DataFrame, touched: list[int]) -> None:
        spark = changed.sparkSession
        rows = changed.selectExpr(
            "row.*",
            *(f"{name} as {place}" for place, name in zip(PLACED, PLACE, strict=True)),
            "kind as _kind",
            "current as _current",
            "bucket as _bucket",
        )
        places = " and ".join(f"t._{name} = s._{name}" for name in _QUEUE)
        buckets = ", ".join(map(str, touched))
        same = literally(common(self.about.keys))
        sql(
            spark,
            f"merge into {literally(self._name)} t using {{rows}} s"
            f" on t._bucket in ({buckets}) and t._bucket = s._bucket and {same}"
            f" and {places} {_written(self.about.row)}",
            rows=rows,
        )


def _shape(row: StructType) -> StructType:
    """Return the columns of a table of Delta."""
    from pyspark.sql import types as t  # noqa: PLC0415  (slow to import)

    added = cast("StructType", t.DataType.fromDDL(_ADDED))
    return t.StructType([*row.fields, *added.fields])


def _written(row: StructType) -> str:
    """Return what a merge does with rows, in SQL; a column that somebody else has added stays."""
    names = [literally(quoted(it)) for it in _shape(row).names]
    updated = ", ".join(f"t.{it} = s.{it}" for it in names)
    values = ", ".join(f"s.{it}" for it in names)
    # A row of another writer that is newer stays.
    newer = "when matched and s._queueOffset >= t._queueOffset then"
    new = f"when not matched then insert ({', '.join(names)}) values ({values})"  # noqa: S608  (quoted names)
    return f"{newer} update set {updated} {new}"


def _overtaken(error: Exception) -> bool:
    """Tell whether another writer's transaction came first."""
    # PySpark has no type for these, and hands on what Java threw.
    java: Any = getattr(error, "java_exception", None)
    return java is not None and str(java.getClass().getName()).startswith(_OVERTAKEN)
