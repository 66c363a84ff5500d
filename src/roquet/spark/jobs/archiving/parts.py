"""Rows of the source as a part of a lake: columns, schema, bad bodies."""

from __future__ import annotations

from typing import TYPE_CHECKING

from roquet.base.errors import UsageError
from roquet.spark.jobs.archiving.quarantine import Quarantine
from roquet.spark.jobs.bodies import column
from roquet.spark.jobs.storage import schemas
from roquet.spark.schema import ddl

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pyspark.sql import DataFrame

    from roquet.spark.jobs.archiving.wanted import ArchiveOptions
    from roquet.spark.jobs.lake import Lake
    from roquet.spark.jobs.storage.catalog import Entry


class Parts:
    """Makes parts of rows, and stages them."""

    def __init__(self, lake: Lake, wanted: ArchiveOptions, say: Callable[[str], None]) -> None:
        """Take the lake, which `begin` makes or lets have the columns that are wanted."""
        self._lake = lake
        self._wanted = wanted
        self._say = say
        self.version = 1
        """The schema of parts that are made."""
        self.quarantine: Quarantine | None = None

    @property
    def bad(self) -> int:
        """Bodies that were not as the schema says, since the job began."""
        return 0 if self.quarantine is None else self.quarantine.count

    def begin(self) -> None:
        """Make the lake, or let it have these columns. Raises UsageError."""
        lake, wanted = self._lake, self._wanted
        if wanted.bodies.inferred:
            self._begin_inferred()
            return
        shape = self._shaped(lake.spark.createDataFrame([], ddl())).schema
        version = lake.create(shape, self._say)
        # A table of Delta has one schema.
        self.version = version if lake.kind == "parquet" else 1
        if wanted.bodies.kind != "raw":
            value = shape[schemas.VALUE].dataType
            self.quarantine = Quarantine(lake, wanted.bodies, value, refuse=wanted.fail_on_bad)

    def _begin_inferred(self) -> None:
        from pyspark.sql.types import StructType  # noqa: PLC0415  (slow to import)

        lake, wanted = self._lake, self._wanted
        if lake.kind == "delta":
            raise UsageError("a lake of Delta keeps its types: body json needs a schema there")
        if not lake.exists():
            lake.create(self._shaped(lake.spark.createDataFrame([], ddl())).schema, self._say)
        known = lake.schemas()
        self.version = len(known)
        value = known[-1][schemas.VALUE].dataType if schemas.VALUE in known[-1].names else None
        kind = StructType([]) if value is None else value
        self.quarantine = Quarantine(lake, wanted.bodies, kind, refuse=wanted.fail_on_bad)

    def grown(self, frame: DataFrame) -> DataFrame:
        """Let the lake have the fields of rows of the source; return these with its columns.

        For bodies whose fields are not known before. Raises UsageError.
        """
        known = self._lake.schemas()
        wanted, left = schemas.grown(known[-1], column.found(frame))
        self.version = self._lake.add(known, wanted, self._say)
        self.tell(f"left out {it}" for it in left)
        newest = self._lake.schema()
        if schemas.VALUE not in newest.names or self.quarantine is None:
            # Not one object yet.
            return self._shaped(frame)
        value = newest[schemas.VALUE].dataType
        self.quarantine.value = value
        made = frame.withColumn(schemas.VALUE, column.json_column(schemas.struct(value)))
        return schemas.as_newest(self._shaped(made), newest)

    def rows(self, frame: DataFrame) -> DataFrame:
        """Return rows of the source with the lake's columns."""
        if self._wanted.bodies.inferred:
            return self.grown(frame)
        found, newest = self._shaped(frame), self._lake.schema()
        same = schemas.nullable(found.schema) == schemas.nullable(newest)
        return found if same else schemas.as_newest(found, newest)

    def stage(self, part: str, rows: DataFrame) -> list[Entry]:
        """Write rows where nobody reads them, bad bodies beside. Raises LakeError."""
        from pyspark.sql import Observation  # noqa: PLC0415  (slow to import)
        from pyspark.sql import functions as f  # noqa: PLC0415

        lake, rows = self._lake, named(part, rows)
        if self.quarantine is None:
            return lake.stage(part, rows)
        if schemas.VALUE not in rows.columns:
            entries = lake.stage(part, rows)
            if (staged := lake.staged(part)) is not None and entries:
                self.tell(self.quarantine.take(part, staged.withColumn(schemas.VALUE, f.lit(None))))
            return entries
        seen = Observation()
        bad = f.count_if(f.col(schemas.VALUE).isNull()).alias("bad")
        entries = lake.stage(part, rows.observe(seen, bad))
        if seen.get["bad"] and (staged := lake.staged(part)) is not None:
            self.tell(self.quarantine.take(part, staged))
        return entries

    def tell(self, lines: Iterable[str]) -> None:
        """Say lines."""
        for line in lines:
            self._say(line)

    def _shaped(self, frame: DataFrame) -> DataFrame:
        """Return rows with the columns that this run makes. Raises UsageError."""
        from pyspark.errors import ParseException  # noqa: PLC0415  (slow to import)
        from pyspark.sql import functions as f  # noqa: PLC0415

        try:
            inferred = self._wanted.bodies.inferred
            value = None if inferred else self._wanted.bodies.column()
        except ParseException as error:
            raise UsageError(f"schema: {str(error).strip().splitlines()[0][:300]}") from error
        if value is not None:
            frame = frame.withColumn(schemas.VALUE, value)
        return frame.withColumn("day", f.to_date("storeTimestamp")).withColumn("part", f.lit(""))


def named(part: str, frame: DataFrame) -> DataFrame:
    """Return rows with the name of their part."""
    from pyspark.sql import functions as f  # noqa: PLC0415  (slow to import)

    return frame.withColumn("part", f.lit(part))
