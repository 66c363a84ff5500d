"""The two reads of a live topic that `audit` makes: sums of buckets, and rows of some buckets.

Both have the options and the plans of the format `roquet`; sessions do not know them before
`register`.
"""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSource

from roquet.base.overriding import override
from roquet.spark.offsets import QueueKey, Range
from roquet.spark.options import SourceOptions
from roquet.spark.reading.batch import BatchReader
from roquet.spark.reading.partitions import QueuePartition
from roquet.spark.reading.sums import COLUMNS, SumReader
from roquet.spark.schema import ddl

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import InputPartition
    from pyspark.sql.types import StructType

SUMS: Final = "roquet-sums"
ROWS: Final = "roquet-ranges"
RANGES: Final = "ranges"
"""The option of `ROWS`: ranges as `written` writes them."""

_Ranges = dict[QueueKey, list[tuple[int, int]]]


class SumsSource(DataSource):
    """A row for each bucket of a queue, or for a part of one."""

    @classmethod
    @override
    def name(cls) -> str:
        return SUMS

    @override
    def schema(self) -> str:
        return (
            "topic string, brokerName string, queueId int, bucket bigint, messages bigint,"
            " checksum bigint, firstOffset bigint, lastOffset bigint"
        )

    @override
    def reader(self, schema: StructType) -> SumsReader:
        options = SourceOptions.parse(self.options, streaming=False)
        return SumsReader(dataclasses.replace(options, columns=COLUMNS))


class SumsReader(BatchReader):
    """Plans as every batch does."""

    @override
    def read(self, partition: InputPartition) -> Iterator[Any]:
        if isinstance(partition, QueuePartition):
            for each in partition.ranges:
                for found in SumReader(self._options, each, partition.addresses).sums():
                    yield *each.queue, *found


class RangesSource(DataSource):
    """The rows of the format `roquet` in some ranges of offsets."""

    @classmethod
    @override
    def name(cls) -> str:
        return ROWS

    @override
    def schema(self) -> str:
        return ddl(_rows(self.options)[0].columns)

    @override
    def reader(self, schema: StructType) -> RangesReader:
        return RangesReader(*_rows(self.options))


class RangesReader(BatchReader):
    """Plans as every batch does, and leaves out what is in no range."""

    def __init__(self, options: SourceOptions, chosen: _Ranges) -> None:
        """Take the ranges by queue."""
        super().__init__(options)
        self._ranges = chosen

    @override
    def _chosen(self, whole: Range) -> Iterable[Range]:
        for begin, end in self._ranges.get(whole.queue, ()):
            low, high = max(begin, whole.begin), min(end, whole.end)
            if low < high:
                yield Range(whole.queue, low, high)


def register(spark: SparkSession) -> None:
    """Make both known to a session."""
    for source in (SumsSource, RangesSource):
        spark.dataSource.register(source)


def written(ranges: Sequence[Range]) -> str:
    """Return ranges as the option has them."""
    return json.dumps([[*it.queue, it.begin, it.end] for it in ranges])


def _rows(given: Mapping[str, str]) -> tuple[SourceOptions, _Ranges]:
    options = {name.lower(): value for name, value in given.items()}
    chosen: _Ranges = {}
    for topic, broker, queue_id, begin, end in json.loads(options.pop(RANGES)):
        chosen.setdefault(QueueKey(topic, broker, queue_id), []).append((begin, end))
    return SourceOptions.parse(options, streaming=False), chosen
