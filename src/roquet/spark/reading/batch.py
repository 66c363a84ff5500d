"""Reading what is there: `spark.read.format("roquet")`."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, InputPartition

from roquet.base.overriding import override
from roquet.spark.offsets import EARLIEST, ranges, split
from roquet.spark.options import Position
from roquet.spark.reading.fetch import QueueReader
from roquet.spark.reading.partitions import QueuePartition
from roquet.spark.reading.pushdown import Scope

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pyspark.sql.datasource import Filter

    from roquet.spark.offsets import Range
    from roquet.spark.options import SourceOptions


class BatchReader(DataSourceReader):
    """Plans once for a DataFrame: "latest" is the moment of its first action."""

    def __init__(self, options: SourceOptions) -> None:
        """Keep the options; tasks get a copy of this object."""
        self._options = options
        self._scope = Scope()

    @override
    def partitions(self) -> Sequence[InputPartition]:
        # Tasks import this module as well, and have no use for what plans ask.
        from roquet.spark.reading import planning  # noqa: PLC0415

        options = self._options
        begin = options.starting or Position(default=EARLIEST)
        with planning.uncollected():
            start, end, view = planning.between(options, begin)
            wanted = (part for it in ranges(start, end) for part in self._chosen(it))
            left = planning.within(
                [it for it in wanted if len(it)], view, fail_on_data_loss=options.fail_on_data_loss
            )
            parts = split(left, options.partitions_min, options.rows_per_partition)
            return planning.partitions(parts, view)

    def _chosen(self, whole: Range) -> Iterable[Range]:
        """Return the parts of what a queue has between begin and end that are read."""
        return (self._scope.cut(whole),) if self._scope.has(whole.queue) else ()

    @override
    def read(self, partition: InputPartition) -> Iterator[Any]:
        return read(self._options, partition)


class PushdownReader(BatchReader):
    """Narrows what is read by Spark's filters; Spark evaluates all of them again.

    A class of its own, because a session that does not allow push-down fails on a reader that
    offers it.
    """

    @override
    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        self._scope = Scope.of(filters)
        expression = self._scope.tag_expression()
        if expression is not None and self._options.tags == "*" and self._options.sql is None:
            self._options = dataclasses.replace(self._options, tags=expression)
        return filters


class TaskReader:
    """What tasks get of the reader of a stream: they read by its options alone."""

    def __init__(self, options: SourceOptions) -> None:
        """Keep the options."""
        self._options = options

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield the record batches of a partition."""
        return read(self._options, partition)


def read(options: SourceOptions, partition: InputPartition) -> Iterator[Any]:
    """Yield the record batches of a partition."""
    if isinstance(partition, QueuePartition):
        for each in partition.ranges:
            yield from QueueReader(options, each, partition.addresses).batches()
