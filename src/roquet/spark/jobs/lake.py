"""A lake: archived messages by topic and day, as Parquet or Delta, and the catalog of them.

    LAKE/topic=orders/day=2026-11-21/part=…/*.parquet   rows (Parquet; in Delta: as Delta has them)
    LAKE/_lake.json                                      format and first schema
    LAKE/_schemas/2.json                                 the second schema, and so on (`schemas`)
    LAKE/_quarantine/                                    bad bodies (`quarantine`)
    LAKE/_catalog/COMMIT.json                            what counts (`lake_catalog`)
    LAKE/_staged/                                        parts that are being made

A Parquet part is written aside, read back and compared with what was read from the source, noted
in a plan, moved into its place, and counts from its commit on. What a killed try has left is
removed by the plan before the part is made again. Delta has one transaction instead.
"""

from __future__ import annotations

import functools
import itertools
import json
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from roquet.base.errors import UsageError
from roquet.spark.jobs.shared.connect import context
from roquet.spark.jobs.shared.queries import sql
from roquet.spark.jobs.storage import schemas
from roquet.spark.jobs.storage.catalog import CRC, RANGES, Catalog, Entry, entry, gone, merged
from roquet.spark.jobs.storage.files import Files, LakeError
from roquet.spark.jobs.storage.plain_files import PlainFiles
from roquet.spark.jobs.storage.summary import Part, Summary

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from roquet.spark.jobs.storage.staging import Line
    from roquet.spark.jobs.storage.summary import Held

VERSION: Final = 1
SCHEMAS: Final = "_schemas"
"""The folder of schemas after the first, by their numbers."""
LINE_MAX: Final = 2000
"""Characters of a line that names new columns."""
_ESCAPED: Final = frozenset("\"#%'*/:=?\\\x7f{[]^")
"""What Spark escapes in names of folders, besides control characters."""
TRIES: Final = 5
"""How often a reader looks again when parts were replaced between two looks."""
DELTA: Final = "io.delta:delta-spark_4.2_2.13:4.4.0"
"""Delta for PySpark 4.2."""
DELTA_LEFT_OUT: Final = (
    "com.fasterxml.jackson.core:*",
    "io.unitycatalog:*",
    "org.apache.hadoop:*",
    "org.apache.parquet:*",
    "org.slf4j:*",
)
"""What Spark has itself, in other versions; and the client of Unity Catalog: lakes are folders.

Spark's resolver takes what it finds a description of in Maven's folder of this machine, and fails
where Maven has left no jar beside it: the fewer it looks for, the better.
"""


def configuration(kind: str) -> dict[str, str]:
    """Return what a session needs for lakes of this format; Delta's jar comes by Ivy."""
    if kind != "delta":
        return {}
    return {
        "spark.jars.packages": DELTA,
        "spark.jars.excludes": ",".join(DELTA_LEFT_OUT),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    }


def escaped(name: str) -> str:
    """Return a name as Spark writes it in the name of a folder."""
    return "".join(f"%{ord(it):02X}" if it in _ESCAPED or it < " " else it for it in name)


def _silent(_: str) -> None:
    """Say nothing."""


class Lake:
    """One lake."""

    def __init__(self, spark: SparkSession, root: str, kind: str) -> None:
        """Take its folder and its format, `parquet` or `delta`."""
        self.spark = spark
        self.root = root.rstrip("/")
        self.kind = kind
        self.files: Files = PlainFiles() if context(spark) is None else Files(spark)
        self.catalog = Catalog(spark, self.files, self.root)
        self._about = f"{self.root}/_lake.json"

    @classmethod
    def at(cls, spark: SparkSession, root: str) -> Lake | None:
        """Return the lake of a folder in whichever format, or None. Raises UsageError."""
        found = cls(spark, root, "parquet")
        if not found.files.exists(found._about):
            return None
        return cls(spark, root, str(found._schema(found._about)[0].get("format")))

    # --- what it is --------------------------------------------------------------------------

    def exists(self) -> bool:
        """Return whether there is a lake. Raises UsageError when it is of the other format."""
        return bool(self._schemas())

    def create(self, schema: StructType, say: Callable[[str], None] = _silent) -> int:
        """Make the lake, or let it have these columns too; return the number of its schema.

        Raises UsageError for columns that do not go with those that it has.
        """
        known = self._schemas()
        if not known:
            about = {"version": VERSION, "format": self.kind, "schema": schema.jsonValue()}
            self.files.write_new(self._about, json.dumps(about))
            return 1
        return self.add(known, schemas.merged(known[-1], schema, widen=self.kind != "delta"), say)

    def add(
        self, known: Sequence[StructType], wanted: StructType, say: Callable[[str], None]
    ) -> int:
        """Make the schema that follows the known ones, if it differs; return its number.

        It has to have all that the last one has. Raises UsageError.
        """
        new = schemas.changes(known[-1], wanted)
        if not new:
            return len(known)
        number = len(known) + 1
        if number > schemas.SCHEMAS_MAX:
            raise UsageError(f"{self.root} has had {len(known)} schemas: begin a lake of its own")
        text = json.dumps({"version": VERSION, "schema": wanted.jsonValue()})
        self.files.write_new(f"{self.root}/{SCHEMAS}/{number}.json", text)
        say(f"schema {number} of the lake: {'; '.join(new)[:LINE_MAX]}")
        return number

    def schema(self) -> StructType:
        """Return the columns. Raises UsageError when there is no lake."""
        return self.schemas()[-1]

    def schemas(self) -> list[StructType]:
        """Return the columns as they were from the first on. Raises UsageError without a lake."""
        found = self._schemas()
        if not found:
            raise UsageError(f"{self.root} is no lake: there is no _lake.json")
        return found

    def _schemas(self) -> list[StructType]:
        if not self.files.exists(self._about):
            return []
        about, first = self._schema(self._about)
        kind = about.get("format")
        if kind != self.kind:
            raise UsageError(f"{self.root} is a lake of the format {kind}, not {self.kind}")
        folder = f"{self.root}/{SCHEMAS}"
        count = sum(it.endswith(".json") for it in self.files.names(folder))
        later = [self._schema(f"{folder}/{number}.json")[1] for number in range(2, count + 2)]
        return [first, *later]

    def _schema(self, path: str) -> tuple[dict[str, Any], StructType]:
        from pyspark.sql.types import StructType  # noqa: PLC0415  (slow to import)

        try:
            about = json.loads(self.files.read(path))
            version, schema = about["version"], StructType.fromJson(about["schema"])
        except (ValueError, KeyError, TypeError) as error:
            raise UsageError(f"{path} cannot be read: {error}") from error
        if version != VERSION:
            raise UsageError(f"{self.root} is of version {version}, this release knows {VERSION}")
        return about, schema

    @property
    def delta_name(self) -> str:
        """Return the table's name in SQL."""
        return f"delta.`{self.root.replace('`', '``')}`"

    # --- reading -----------------------------------------------------------------------------

    def read(
        self,
        wanted: Callable[[Part], bool] | None = None,
        version: int | None = None,
        *,
        whole: bool = True,
    ) -> DataFrame:
        """Return the rows that count now, of all parts or of those that are wanted.

        Every row once, also while parts are replaced: a reader that is overtaken fails, and never
        has rows twice or too few. Rows of older schemas have the columns of the newest, or of
        `version`. Without `whole`, files that are gone are passed over.
        Raises UsageError, LakeError.
        """
        return self.snapshot(wanted, version, whole=whole)[0]

    def snapshot(
        self,
        wanted: Callable[[Part], bool] | None = None,
        version: int | None = None,
        *,
        whole: bool = True,
    ) -> tuple[DataFrame, dict[Held, int]]:
        """Return what `read` does, and where each queue of the lake ends, both of one moment."""
        self.schema()
        parts: list[Part] = []
        summary = Summary()
        for _ in range(TRIES):
            summary = self.catalog.summary()
            parts = sorted(it for it in summary.parts() if wanted is None or wanted(it))
            if self.kind == "delta":
                return self._delta(parts), summary.ends()
            # A schema is there before its first part.
            known = self.schemas()[:version]
            found = self._united(parts, known, summary if whole else Summary())
            if found is not None:
                return found, summary.ends()
        for it in parts:
            here, count = len(self._parquet(it)), max(1, summary.files(it))
            if here < count:
                raise LakeError(
                    f"{self.place(it)} has {here} of the {count} files that the catalog says: put"
                    " them back from a copy; archive with the option check names what is lost"
                )
        raise LakeError(f"{self.root}: parts of the catalog are not there")

    def _parquet(self, it: Part) -> list[str]:
        """Return the names of the files of a part."""
        return [name for name in self.files.names(self.place(it)) if name.endswith(".parquet")]

    def _complete(self, found: DataFrame, parts: Iterable[Part], summary: Summary) -> bool:
        """Tell whether a frame has as many files of each part as the catalog says."""
        wanted: dict[str, int] = {}
        unknown: set[str] = set()
        # A micro-batch is a part of each topic and day, and is wholly of one release.
        for it in parts:
            name = f"day={it.day}/part={it.part}"
            wanted[name] = wanted.get(name, 0) + summary.files(it)
            if not summary.files(it):
                unknown.add(name)
        if wanted.keys() <= unknown:
            return True
        here = Counter("/".join(it.split("/")[-3:-1]) for it in self.files.sources(found))
        return all(here[it] >= count for it, count in wanted.items() if it not in unknown)

    def _united(
        self, parts: Iterable[Part], known: Sequence[StructType], summary: Summary
    ) -> DataFrame | None:
        """Return rows of parts in the newest schema; None when parts are not there any more."""
        by_version = sorted((schemas.version_of(it.part), it) for it in parts)
        frames: list[DataFrame] = []
        for version, group in itertools.groupby(by_version, key=lambda it: it[0]):
            mine = [it for _, it in group]
            found = self._of([self.place(it) for it in mine], self.root, known[version - 1])
            if found is None or not self._complete(found, mine, summary):
                return None
            old = len(known) > 1
            frames.append(schemas.as_newest(found, known[-1]) if old else found)
        if not frames:
            return self.spark.createDataFrame([], known[-1])
        return functools.reduce(lambda one, other: one.unionByName(other), frames)

    def parts(self) -> list[Part]:
        """Return the parts that count now."""
        return sorted(self.catalog.summary().parts())

    def place(self, it: Part) -> str:
        """Return a part's folder."""
        return f"{self.root}/topic={escaped(it.topic)}/day={it.day}/part={it.part}"

    def _of(self, folders: Sequence[str], base: str, schema: StructType) -> DataFrame | None:
        from pyspark.errors import AnalysisException  # noqa: PLC0415  (slow to import)

        reader = self.spark.read.schema(schema).option("basePath", base)
        try:
            found = reader.parquet(*folders)
            # Spark Connect looks for the folders when it is asked for columns.
            there = bool(found.columns)
        except AnalysisException as error:
            if error.getCondition() != "PATH_NOT_FOUND":
                raise
            return None
        return found if there else None

    def _delta(self, parts: Sequence[Part]) -> DataFrame:
        table = self.spark.read.format("delta").load(self.root)
        if not parts:
            return table.limit(0)
        rows = [tuple(it) for it in parts]
        counted = self.spark.createDataFrame(rows, "topic string, day string, part string")
        return sql(
            self.spark,
            "select t.* from {table} t left semi join {counted} c"
            " on t.topic = c.topic and t.day = cast(c.day as date) and t.part = c.part",
            table=table,
            counted=counted,
        )

    # --- writing -----------------------------------------------------------------------------

    def ranges(self, rows: DataFrame) -> list[Entry]:
        """Return what rows of parts hold, by part and queue."""
        found = sql(self.spark, RANGES.replace("{crc}", CRC), rows=rows)
        return sorted(entry(it) for it in found.collect())

    def publish(self, part: str, rows: DataFrame, replaced: Iterable[Part] = ()) -> list[Entry]:
        """Make rows a part of each topic and day that they have, and commit it by the part's name.

        What is read back has to be what was written: LakeError otherwise, and nothing counts. A
        part that is committed already is left as it is.
        """
        if self.catalog.has(part):
            return []
        entries = self.stage(part, rows)
        self.move(part, entries)
        self.commit(part, entries, replaced)
        return entries

    def stage(self, part: str, rows: DataFrame) -> list[Entry]:
        """Write rows where nobody reads them and return what is there. Raises LakeError."""
        from pyspark.sql import Observation  # noqa: PLC0415  (slow to import)

        self.undo(part)
        seen = Observation()
        staged = self._staged(part)
        writer = rows.observe(seen, *_sums()).write.mode("overwrite")
        writer.partitionBy("topic", "day", "part").parquet(staged)
        found = self.staged(part)
        entries = [] if found is None else self.ranges(found)
        self._compare(staged, (seen.get["rows"], seen.get["crc"]), entries)
        return entries

    def staged(self, part: str) -> DataFrame | None:
        """Return the rows of a part that is not in its place yet; None when it has none."""
        folder = self._staged(part)
        return self._of([folder], folder, self.schemas()[schemas.version_of(part) - 1])

    def begin(self, part: str) -> str | None:
        """Return the folder of this machine's disk where tasks write a part; None on others."""
        self.undo(part)
        return self.files.local(self._staged(part))

    def gather(self, part: str, lines: Sequence[Line]) -> list[Entry]:
        """Stage what tasks have written of a part, and nothing that they have not named."""
        staged = self._staged(part)
        files: dict[Part, set[str]] = {}
        for it in lines:
            files.setdefault(Part(it.topic, it.day, part), set()).add(f"{staged}/{it.file}")
        for place, names in sorted(files.items()):
            self.files.gather(sorted(names), self._aside(place))
        entries = [Entry(Part(it.topic, it.day, part), *it[3:]) for it in lines]
        return merged(entries, part)

    def move(self, part: str, entries: Iterable[Entry]) -> None:
        """Put a staged part into its places."""
        places = sorted({it.place for it in entries})
        plan = [list(it) for it in places]
        self.files.write_new(self._plan(part), json.dumps(plan))
        for it in places:
            self.files.rename(self._aside(it), self.place(it))

    def commit(self, part: str, entries: Iterable[Entry], replaced: Iterable[Part] = ()) -> None:
        """Let a part count, and those that it replaces no longer."""
        added = list(entries)
        # A reader sees by their number that a file is gone.
        files = {it: len(self._parquet(it)) for it in {it.place for it in added}}
        lines = [it.json(files=files[it.place]) for it in added] + gone(replaced, "remove")
        if lines:
            self.catalog.commit(part, lines)
        self.files.delete(self._staged(part))
        self.files.delete(self._plan(part))

    def undo(self, part: str) -> None:
        """Remove what a killed try has left of a part that is not committed."""
        plan = self._plan(part)
        if self.files.exists(plan):
            if not self.catalog.has(part):
                for it in json.loads(self.files.read(plan)):
                    self.files.delete(self.place(Part(*it)))
            self.files.delete(plan)
        self.files.delete(self._staged(part))

    def left_over(self, kind: str) -> list[str]:
        """Return parts whose names begin with `kind` that a killed try has begun."""
        names = self.files.names(f"{self.root}/_staged")
        parts = {name.removesuffix(".plan") for name in names}
        return sorted(name for name in parts if name.startswith(kind))

    def publish_delta(
        self,
        part: str,
        rows: DataFrame,
        writer: str,
        number: int,
        *,
        check: Callable[[], None],
        done: Callable[[DataFrame], None],
    ) -> list[Entry]:
        """Do the same in Delta: one transaction, which a repeated micro-batch does not repeat.

        `check` is called before the transaction, unless that is done already; what it raises keeps
        the rows out. `done` gets the rows of the part before they are in the catalog.
        """
        if self.catalog.has(part):
            return []
        if self.files.exists(f"{self.root}/_delta_log") and not self._of_delta(part).isEmpty():
            # The transaction was done, and the job killed before the catalog had it.
            (row,) = rows.agg(*_sums()).collect()
            wanted = (int(row["rows"]), int(row["crc"]))
        else:
            check()
            wanted = self._append(rows, writer, number)
        entries = self.ranges(self._of_delta(part))
        self._compare(self.root, wanted, entries)
        if entries:
            done(self._of_delta(part))
            self.catalog.commit(part, [it.json() for it in entries])
        return entries

    def _append(self, rows: DataFrame, writer: str, number: int) -> tuple[int, int]:
        from pyspark.sql import Observation  # noqa: PLC0415  (slow to import)

        seen = Observation()
        saving = rows.observe(seen, *_sums()).write.format("delta").mode("append")
        saving = saving.partitionBy("topic", "day").option("txnAppId", writer)
        # Columns that a newer schema of the lake has.
        saving.option("mergeSchema", "true")
        saving.option("txnVersion", number).save(self.root)
        return seen.get["rows"], seen.get["crc"]

    def _compare(self, where: str, wanted: tuple[int, int], entries: Sequence[Entry]) -> None:
        back = (sum(it.rows for it in entries), sum(it.crc for it in entries))
        if back != wanted:
            raise LakeError(
                f"{where}: rows and checksum {wanted} were written, {back} can be read back"
            )

    def _of_delta(self, part: str) -> DataFrame:
        from pyspark.sql import functions as f  # noqa: PLC0415  (slow to import)

        table = self.spark.read.format("delta").load(self.root)
        return table.where(f.col("part") == part)

    def _staged(self, part: str) -> str:
        return f"{self.root}/_staged/{part}"

    def _aside(self, it: Part) -> str:
        """Return where a part is before it is in its place."""
        return self.place(it).replace(self.root, self._staged(it.part), 1)

    def _plan(self, part: str) -> str:
        return f"{self.root}/_staged/{part}.plan"


def _sums() -> list[Column]:
    from pyspark.sql import functions as f  # noqa: PLC0415  (slow to import)

    return [
        f.count(f.lit(1)).alias("rows"),
        f.coalesce(f.sum(f.expr(CRC)), f.lit(0)).alias("crc"),
    ]
