"""Reading what is there: `spark.read.format("roquet")`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, InputPartition

from roquet.spark import planning
from roquet.spark.fetch import QueueReader
from roquet.spark.marks import override
from roquet.spark.metadata import Metadata
from roquet.spark.offsets import EARLIEST, ranges, split
from roquet.spark.options import Position
from roquet.spark.partitions import QueuePartition

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from roquet.spark.options import SourceOptions


class BatchReader(DataSourceReader):
    """Plans once for a DataFrame: "latest" is the moment of its first action."""

    def __init__(self, options: SourceOptions) -> None:
        """Keep the options; tasks get a copy of this object."""
        self._options = options

    @override
    def partitions(self) -> Sequence[InputPartition]:
        options = self._options
        metadata = Metadata(options.wire)
        try:
            view = metadata.view(options.topics)
            start = planning.resolve(options.starting or Position(default=EARLIEST), view, metadata)
            end = planning.resolve(options.ending, view, metadata)
        finally:
            metadata.close()
        left = planning.within(
            ranges(start, end), view, fail_on_data_loss=options.fail_on_data_loss
        )
        parts = split(left, options.partitions_min, options.rows_per_partition)
        return planning.partitions(parts, view)

    @override
    def read(self, partition: InputPartition) -> Iterator[Any]:
        return read(self._options, partition)


def read(options: SourceOptions, partition: InputPartition) -> Iterator[Any]:
    """Yield the record batches of a partition."""
    if isinstance(partition, QueuePartition):
        yield from QueueReader(options, partition.range, partition.addresses).batches()
