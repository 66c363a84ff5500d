"""The data source `roquet`: what Spark calls by its name.

spark.read.format("roquet").option("nameServers", "127.0.0.1:9876").option("subscribe", "orders")

Spark starts several processes of Python for each query, and each imports this module: to find the
format, to ask for its columns, to plan, in each worker of tasks. So what one of them needs alone,
plans or the client of the sink, is imported where it is needed.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from roquet.base.overriding import override
from roquet.spark import table_schema
from roquet.spark.options import SinkOptions, SourceOptions
from roquet.spark.schema import TYPES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

    from roquet.spark.reading.batch import BatchReader
    from roquet.spark.reading.stream import StreamReader
    from roquet.spark.sink.write import BatchWriter, StreamWriter

FOUND_ALREADY = "DATA_SOURCE_ALREADY_EXISTS"


class RoquetDataSource(DataSource):
    """Batch and stream, source and sink. Options: docs/reference/spark-options.md."""

    @classmethod
    @override
    def name(cls) -> str:
        return "roquet"

    @override
    def schema(self) -> StructType:
        # Spark does not say here whether a batch or a stream follows.
        columns = SourceOptions.parse(self.options, streaming=False).columns
        return table_schema.of({name: TYPES[name] for name in columns}, self.options)

    @override
    def reader(self, schema: StructType) -> BatchReader:
        from roquet.spark.reading.batch import BatchReader, PushdownReader  # noqa: PLC0415

        options = self._source(schema, streaming=False)
        return PushdownReader(options) if options.pushdown else BatchReader(options)

    @override
    def streamReader(self, schema: StructType) -> StreamReader:
        from roquet.spark.reading.stream import StreamReader  # noqa: PLC0415

        return StreamReader(self._source(schema, streaming=True))

    @override
    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        from roquet.spark.sink.write import BatchWriter  # noqa: PLC0415

        return BatchWriter(SinkOptions.parse(self.options), schema, overwrite=overwrite)

    @override
    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:
        from roquet.spark.sink.write import StreamWriter  # noqa: PLC0415

        return StreamWriter(SinkOptions.parse(self.options), schema)

    # --- inside ------------------------------------------------------------------------------

    def _source(self, schema: StructType, *, streaming: bool) -> SourceOptions:
        """Read options; the columns are those of the schema, which a user may have given."""
        given = table_schema.options(self.options, schema)
        columns = table_schema.projected(schema, TYPES)
        return dataclasses.replace(SourceOptions.parse(given, streaming=streaming), columns=columns)


def register(spark: SparkSession) -> None:
    """Make the formats `roquet`, `roquet-log` and `roquet-meta` known to a session.

    Only a session whose Python workers do not have Roquet installed needs this, such as one that
    gets it by `--py-files`: others find the packages `pyspark_roquet…` by themselves.
    """
    from pyspark.errors import AnalysisException  # noqa: PLC0415  (slow to import)

    from roquet.spark.log_source import RoquetLogDataSource  # noqa: PLC0415
    from roquet.spark.meta import RoquetMetaDataSource  # noqa: PLC0415

    for source in (RoquetDataSource, RoquetLogDataSource, RoquetMetaDataSource):
        try:
            spark.dataSource.register(source)
        except AnalysisException as error:
            if error.getCondition() != FOUND_ALREADY:
                raise
