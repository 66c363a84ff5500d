"""Spark's own ceiling: sources that have the same batches in memory and do nothing else.

It is ahead of any source by two things: its plan asks nobody, and the same 8,192 rows come again
and again, so that they may still be in a processor's cache. On the other hand each task decodes
them once: eight tasks do so for 65,536 rows.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows
from typing_extensions import override

from roquet import roquet_native as native
from roquet.spark.schema import ddl

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyspark.sql.types import StructType

BATCH_ROWS = 8192


def batch(options: Mapping[str, str]) -> Any:
    """Decode the sample."""
    records = Path(options["sample"]).read_bytes()
    columns = options["columns"].split(",")
    return pa.record_batch(native.records_to_arrow([records], "b", columns=columns))


class Ceiling(DataSource):
    """`sample` is a file of stored records; `rows`, `parts` and `columns` say what comes."""

    @classmethod
    @override
    def name(cls) -> str:
        return "ceiling"

    @override
    def schema(self) -> str:
        return ddl(self.options["columns"].split(","))

    @override
    def reader(self, schema: StructType) -> CeilingReader:
        return CeilingReader(dict(self.options))

    @override
    def streamReader(self, schema: StructType) -> CeilingStream:
        return CeilingStream(dict(self.options))


class CeilingReader(DataSourceReader):
    """Gives slices of one batch, again and again."""

    def __init__(self, options: dict[str, str]) -> None:
        self._options = options

    @override
    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(n) for n in range(int(self._options["parts"]))]

    @override
    def read(self, partition: InputPartition) -> Iterator[Any]:
        made = batch(self._options)
        left = int(self._options["rows"]) // int(self._options["parts"])
        while left > 0:
            part = made.slice(0, min(left, BATCH_ROWS))
            left -= part.num_rows
            yield part


class CeilingStream(DataSourceStreamReader):
    """A micro-batch of one row, `rows` times."""

    def __init__(self, options: dict[str, str]) -> None:
        self._options = options

    @override
    def initialOffset(self) -> dict[str, int]:
        return {"at": 0}

    @override
    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(1)

    @override
    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        return {"at": min(start["at"] + 1, int(self._options["rows"]))}

    @override
    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        return [InputPartition(0)]

    @override
    def read(self, partition: InputPartition) -> Iterator[Any]:
        yield batch(self._options).slice(0, 1)
