"""The data source `roquet`: what Spark calls by its name.

spark.read.format("roquet").option("nameServers", "127.0.0.1:9876").option("subscribe", "orders")
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from roquet.base.overriding import override
from roquet.spark.batch import BatchReader, PushdownReader
from roquet.spark.log_source import RoquetLogDataSource
from roquet.spark.meta import RoquetMetaDataSource
from roquet.spark.options import SinkOptions, SourceOptions
from roquet.spark.schema import ddl
from roquet.spark.stream import StreamReader
from roquet.spark.write import BatchWriter, StreamWriter

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType


class RoquetDataSource(DataSource):
    """Batch and stream, source and sink. Options: docs/reference/spark-options.md."""

    @classmethod
    @override
    def name(cls) -> str:
        return "roquet"

    @override
    def schema(self) -> str:
        # Spark does not say here whether a batch or a stream follows.
        return ddl(SourceOptions.parse(self.options, streaming=False).columns)

    @override
    def reader(self, schema: StructType) -> BatchReader:
        options = SourceOptions.parse(self.options, streaming=False)
        return PushdownReader(options) if options.pushdown else BatchReader(options)

    @override
    def streamReader(self, schema: StructType) -> StreamReader:
        return StreamReader(SourceOptions.parse(self.options, streaming=True))

    @override
    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        return BatchWriter(SinkOptions.parse(self.options), schema, overwrite=overwrite)

    @override
    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:
        return StreamWriter(SinkOptions.parse(self.options), schema)


def register(spark: SparkSession) -> None:
    """Make the formats `roquet`, `roquet-log` and `roquet-meta` known to a session."""
    for source in (RoquetDataSource, RoquetLogDataSource, RoquetMetaDataSource):
        spark.dataSource.register(source)
