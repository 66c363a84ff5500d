"""A stream whose rows are the files that its tasks have written: how `archive` reads a topic.

It has the offsets and the plans of the format `roquet`. Its tasks write what they read
(`lake_staging`): no message has to become a row of the JVM, be sorted and be written there.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyspark import TaskContext
from pyspark.sql.datasource import DataSource

from roquet.base.overriding import override
from roquet.spark.jobs.storage import staging
from roquet.spark.jobs.storage.files import LakeError
from roquet.spark.jobs.storage.staging import CODECS, TIMES, Form, Line
from roquet.spark.options import SourceOptions
from roquet.spark.reading.stream import StreamReader

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.datasource import InputPartition
    from pyspark.sql.types import StructType

    from roquet.spark.jobs.lake import Lake

NAME: Final = "roquet-staging"
FOLDER: Final = "roquet.staging.folder"
"""The property of a Spark job that names the folder its tasks write to."""
_CODEC, _TIMES = "stagingcodec", "stagingtimes"


class StagingSource(DataSource):
    """The options of the source `roquet`, and those of `options`."""

    @classmethod
    @override
    def name(cls) -> str:
        return NAME

    @override
    def schema(self) -> str:
        return staging.DDL

    @override
    def streamReader(self, schema: StructType) -> StagingReader:
        given = {name.lower(): value for name, value in self.options.items()}
        form = Form(given.pop(_CODEC), given.pop(_TIMES))
        return StagingReader(SourceOptions.parse(given, streaming=True), form)


class StagingReader(StreamReader):
    """Plans as every stream does."""

    def __init__(self, options: SourceOptions, form: Form) -> None:
        """Take how files are written."""
        super().__init__(options)
        self._form = form

    @override
    def read(self, partition: InputPartition) -> Iterator[Any]:
        context = TaskContext.get()
        folder = None if context is None else context.getLocalProperty(FOLDER)
        batches = super().read(partition)
        return staging.stage(Path(folder) if folder else None, batches, self._form)

    @override
    def __reduce__(self) -> tuple[Any, ...]:
        return StagingReader, (self._options, self._form)


def options(lake: Lake) -> dict[str, str] | None:
    """Return what the source is told about a lake's files; None where Spark has to write them.

    Spark does for Delta, on file systems that are no folder of the machines, in a session whose
    days are not those of UTC, and where files are to be of a form that is not known here.
    """
    conf: Any = lake.spark.conf
    codec = str(conf.get("spark.sql.parquet.compression.codec")).lower()
    times = str(conf.get("spark.sql.parquet.outputTimestampType")).upper()
    zone = conf.get("spark.sql.session.timeZone")
    if lake.kind != "parquet" or lake.files.local(lake.root) is None or zone not in {"UTC", "Z"}:
        return None
    if codec not in CODECS or times not in TIMES:
        return None
    lake.spark.dataSource.register(StagingSource)
    return {_CODEC: codec, _TIMES: times}


def staged(spark: SparkSession, frame: DataFrame, folder: str | None) -> list[Line]:
    """Let the tasks of a micro-batch write to `folder`, and return what they have written there.

    Raises LakeError when they were not told where.
    """
    lines = _collected(spark, frame, folder)
    if any(not it.file for it in lines):
        raise LakeError(f"{folder}: tasks did not hear of it")
    return lines


def looked(spark: SparkSession, frame: DataFrame) -> list[Line]:
    """Return what a micro-batch has, without writing anything."""
    return _collected(spark, frame, None)


def _collected(spark: SparkSession, frame: DataFrame, folder: str | None) -> list[Line]:
    context: Any = spark.sparkContext
    context.setLocalProperty(FOLDER, folder)
    try:
        return [Line(*row) for row in frame.collect()]
    finally:
        context.setLocalProperty(FOLDER, None)
