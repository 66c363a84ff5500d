"""Following topics: `spark.readStream.format("roquet")`.

Offsets live in Spark's checkpoint, nowhere else: nothing is committed to a consumer group. A queue
that appears enters the offsets at its minimum in one micro-batch and is read from the next one on,
so that a repeated micro-batch reads the same rows whatever has expired since.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from roquet.base.clock import SystemClock
from roquet.base.overriding import override
from roquet.spark import planning
from roquet.spark.batch import read
from roquet.spark.metadata import Metadata, View
from roquet.spark.offsets import (
    LATEST,
    DataLoss,
    Offsets,
    from_json,
    limited,
    ranges,
    split,
    to_json,
)
from roquet.spark.options import Position
from roquet.spark.progress import Progress
from roquet.spark.sizes import Sizes

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from roquet.spark.offsets import QueueKey
    from roquet.spark.options import SourceOptions


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Lives in one Python process of the driver as long as the query runs."""

    def __init__(self, options: SourceOptions) -> None:
        """Connect at the first question."""
        self._options = options
        self._metadata: Metadata | None = None
        self._frozen: Offsets | None = None
        self._recent: list[tuple[dict[str, Any], Offsets]] = []
        self._sizes = Sizes(self._sample)
        folder = options.metrics_path
        self._progress = None if folder is None else Progress(folder, SystemClock())

    @override
    @planning.uncollected()
    def initialOffset(self) -> dict[str, Any]:
        view = self._known().view(self._options.topics)
        position = self._options.starting or Position(default=LATEST)
        start = planning.resolve(position, view, self._known())
        return self._to_json(start)

    @override
    def getDefaultReadLimit(self) -> ReadLimit:
        rows, size = self._options.rows_per_trigger, self._options.bytes_per_trigger
        if rows is not None:
            return ReadMaxRows(rows)
        return ReadAllAvailable() if size is None else ReadMaxBytes(size)

    @override
    @planning.uncollected()
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        begin = self._from_json(start)
        view = self._view()
        self._check_gone(begin, view)
        target = self._frozen
        if target is None:
            target = {queue: bounds.high for queue, bounds in view.bounds.items()}
        end: Offsets = {queue: max(offset, target.get(queue, 0)) for queue, offset in begin.items()}
        for queue in target.keys() - begin.keys():
            if queue in view.bounds:
                end[queue] = view.bounds[queue].low
        if isinstance(limit, ReadMaxRows):
            end = limited(begin, end, limit.max_rows)
        elif isinstance(limit, ReadMaxBytes):
            rows = self._sizes.rows(begin, end, limit.max_bytes, view)
            end = end if rows is None else limited(begin, end, rows)
        return self._to_json(end)

    @override
    def reportLatestOffset(self) -> dict[str, Any] | None:
        view = self._view()
        return to_json({queue: bounds.high for queue, bounds in view.bounds.items()})

    @override
    @planning.uncollected()
    def prepareForTriggerAvailableNow(self) -> None:
        bounds = self._view().bounds
        self._frozen = {queue: it.high for queue, it in bounds.items()}

    @override
    @planning.uncollected()
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        begin, target = self._from_json(start), self._from_json(end)
        planned = ranges(begin, target)
        if not planned:
            return []
        view = self._view()
        options = self._options
        left = planning.within(planned, view, fail_on_data_loss=options.fail_on_data_loss)
        if self._progress is not None:
            lost = sum(map(len, planned)) - sum(map(len, left))
            self._progress.planned(begin, target, lost)
        parts = split(left, options.partitions_min, options.rows_per_partition)
        return planning.partitions(parts, view)

    @override
    def read(self, partition: InputPartition) -> Iterator[Any]:
        return read(self._options, partition)

    @override
    @planning.uncollected()
    def commit(self, end: dict[str, Any]) -> None:
        if self._progress is not None:
            self._progress.lag(self._from_json(end), self._view().bounds)

    @override
    def stop(self) -> None:
        if self._metadata is not None:
            self._metadata.close()
            self._metadata = None

    # --- inside ------------------------------------------------------------------------------

    @override
    def __getstate__(self) -> dict[str, Any]:
        # Tasks read by the options alone.
        return {"_options": self._options, "_metadata": None, "_recent": []}

    def _to_json(self, offsets: Offsets) -> dict[str, Any]:
        made = to_json(offsets)
        self._recent = [(made, offsets), *self._recent[:1]]
        return made

    def _from_json(self, source: dict[str, Any]) -> Offsets:
        """Read offsets; Spark gives back what it was given, and comparing is much faster."""
        for known, offsets in self._recent:
            if known == source:
                return offsets
        return from_json(source)

    def _sample(self, queue: QueueKey, offset: int, view: View) -> float | None:
        addresses = view.addresses[queue.broker]
        return self._known().mean_size(queue, offset, addresses, self._options.group)

    def _known(self) -> Metadata:
        if self._metadata is None:
            self._metadata = Metadata(self._options.wire)
        return self._metadata

    def _view(self) -> View:
        # Topics and brokers may go while a query runs; what is missed is judged with the offsets.
        return self._known().view(self._options.topics, missing_ok=True)

    def _check_gone(self, begin: Offsets, view: View) -> None:
        gone = sorted(begin.keys() - view.bounds.keys())
        if gone and self._options.fail_on_data_loss:
            raise DataLoss(
                f"queue {gone[0]} is gone, read up to {begin[gone[0]]}; failOnDataLoss=false goes"
                " on without it"
            )
