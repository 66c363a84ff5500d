"""Following topics: `spark.readStream.format("roquet")`.

Offsets live in Spark's checkpoint, nowhere else: nothing is committed to a consumer group. A queue
that appears enters the offsets at its minimum in one micro-batch and is read from the next one on,
so that a repeated micro-batch reads the same rows whatever has expired since. So does a queue that
is not the one that was read any more, if that is to be no error.

The cluster is asked once a micro-batch: its other steps use what the plan of its end was made of.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from roquet.base.clock import SystemClock
from roquet.base.overriding import override
from roquet.spark.cluster.metadata import Metadata, View
from roquet.spark.cluster.patience import Patience
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
from roquet.spark.reading import marks, planning
from roquet.spark.reading.batch import TaskReader, read
from roquet.spark.reading.marks import Reach
from roquet.spark.reading.presence import Need, settled
from roquet.spark.reading.progress import Progress
from roquet.spark.reading.sizes import Sizes
from roquet.spark.streaming.gathering import Gathering
from roquet.spark.streaming.reporting import GroupReport

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from roquet.spark.offsets import Bounds, QueueKey
    from roquet.spark.options import SourceOptions

log = logging.getLogger(__name__)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Lives in one Python process of the driver as long as the query runs."""

    def __init__(self, options: SourceOptions) -> None:
        """Connect at the first question."""
        self._options = options
        self._metadata: Metadata | None = None
        self._freezes = False
        """Whether the next plan of an end is the end of the whole query."""
        self._frozen: Offsets | None = None
        self._recent: list[tuple[dict[str, Any], Reach]] = []
        self._planned: tuple[dict[str, Any], View] | None = None
        """The end of the last plan and what it was made of."""
        self._left: frozenset[QueueKey] = frozenset()
        self._sizes = Sizes(self._sample)
        folder = options.metrics_path
        self._progress = None if folder is None else Progress(folder, SystemClock())
        self._gathering = Gathering(options.rows_min_per_trigger, options.trigger_delay_s)
        group = options.report_group
        self._report = None if group is None else GroupReport(group)

    @override
    @planning.uncollected()
    def initialOffset(self) -> dict[str, Any]:
        options = self._options
        position = options.starting or Position(default=LATEST)
        need = planning.needed(options, position)
        view = self._settled(need, missing_ok=False)
        planning.present(need, view, fail_on_data_loss=options.fail_on_data_loss)
        start = planning.resolve(position, view, self._known())
        at_end = {
            queue: view.stored[queue]
            for queue, offset in start.items()
            if queue in view.stored and offset == view.bounds[queue].high
        }
        return self._to_json(Reach(start, at_end))

    @override
    def getDefaultReadLimit(self) -> ReadLimit:
        rows, size = self._options.rows_per_trigger, self._options.bytes_per_trigger
        if rows is not None:
            return ReadMaxRows(rows)
        if size is not None:
            return ReadMaxBytes(size)
        least = self._options.rows_min_per_trigger
        # To be told from what Trigger.Once asks for.
        return ReadAllAvailable() if least is None else ReadMinRows(least)

    @override
    @planning.uncollected()
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        reach = self._from_json(start)
        begin, options = reach.offsets, self._options
        view = self._settled(self._last_plan(begin))
        if self._freezes:
            self._freezes = False
            self._frozen = {queue: it.high for queue, it in view.bounds.items()}
        self._check_gone(begin, view)
        if self._report is not None:
            # Spark asks for an end when everything before its start is done.
            self._report.done(begin, view, self._known().transport)
        anew = planning.judged(
            reach, view, self._known(), options.group, fail_on_data_loss=options.fail_on_data_loss
        )
        if self._progress is not None:
            self._progress.lag(begin, view.bounds)
            if anew:
                self._progress.begun_anew(anew)
        if not anew and self._waits(begin, view, limit):
            self._planned = (start, view)
            return start
        end = self._end({q: it for q, it in begin.items() if q not in anew}, view, limit)
        # Entered at their beginning, as new queues are, and read from the next micro-batch on.
        end |= {queue: view.bounds[queue].low for queue in anew}
        made = self._to_json(Reach(end, self._marks(reach, end, view)))
        self._planned = (made, view)
        return made

    @override
    def reportLatestOffset(self) -> dict[str, Any] | None:
        view = self._planned[1] if self._planned else self._settled(Need({}))
        return to_json({queue: bounds.high for queue, bounds in view.bounds.items()})

    @override
    def prepareForTriggerAvailableNow(self) -> None:
        # What was read before is not known yet, so a broker that is away would not be missed here,
        # and the query would end without its messages.
        self._freezes, self._frozen = True, None

    @override
    @planning.uncollected()
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        begin, target = self._from_json(start).offsets, self._from_json(end)
        planned = ranges(begin, target.offsets)
        if not planned:
            return []
        options, lost = self._options, sum(map(len, planned))
        if self._planned is not None and self._planned[0] == end:
            view = self._planned[1]
        else:
            # Planned before a restart: it may have changed since.
            ends = {it.queue: it.end for it in planned}
            view = self._settled(self._last_plan(ends))
            known = {queue: it for queue, it in target.marks.items() if queue in ends}
            fails = options.fail_on_data_loss
            anew = planning.judged(
                Reach(ends, known), view, self._known(), options.group, fail_on_data_loss=fails
            )
            planned = [it for it in planned if it.queue not in anew]
        left = planning.within(planned, view, fail_on_data_loss=options.fail_on_data_loss)
        if self._progress is not None:
            lost -= sum(map(len, left))
            self._progress.planned(begin, target.offsets, lost)
        parts = split(left, options.partitions_min, options.rows_per_partition)
        return planning.partitions(parts, view)

    @override
    def read(self, partition: InputPartition) -> Iterator[Any]:
        return read(self._options, partition)

    @override
    @planning.uncollected()
    def commit(self, end: dict[str, Any]) -> None:
        if self._progress is not None:
            view = self._planned[1] if self._planned else self._settled(Need({}))
            self._progress.lag(self._from_json(end).offsets, view.bounds)

    @override
    def stop(self) -> None:
        if self._metadata is not None:
            self._metadata.close()
            self._metadata = None

    # --- inside ------------------------------------------------------------------------------

    @override
    def __reduce__(self) -> tuple[Any, ...]:
        # Tasks get no reader of a stream, with all that its plans have to import.
        return TaskReader, (self._options,)

    def _waits(self, begin: Offsets, view: View, limit: ReadLimit) -> bool:
        """Whether what is there is left for a later micro-batch; what has an end waits for none."""
        if self._frozen is not None or isinstance(limit, ReadAllAvailable):
            return False
        waiting = sum(
            bounds.high - min(max(begin.get(queue, 0), bounds.low), bounds.high)
            for queue, bounds in view.bounds.items()
        )
        return self._gathering.waits(waiting)

    def _end(self, begin: Mapping[QueueKey, int], view: View, limit: ReadLimit) -> Offsets:
        """Return how far to read, within the limit; queues that are new enter at their minimum."""
        target = self._frozen
        if target is None:
            target = {queue: bounds.high for queue, bounds in view.bounds.items()}
        end: Offsets = {queue: max(offset, target.get(queue, 0)) for queue, offset in begin.items()}
        for queue in target.keys() - begin.keys():
            if queue in view.bounds:
                end[queue] = view.bounds[queue].low
        # What has expired is no backlog: it must not use up a queue's share.
        held = {queue: _held(offset, view.bounds.get(queue)) for queue, offset in begin.items()}
        if isinstance(limit, ReadMaxRows):
            return limited(held, end, limit.max_rows)
        if isinstance(limit, ReadMaxBytes):
            rows = self._sizes.rows(held, end, limit.max_bytes, view)
            return end if rows is None else limited(held, end, rows)
        return end

    def _marks(self, reach: Reach, end: Offsets, view: View) -> marks.Marks:
        """Return when the last message before each offset was stored, where that is known."""
        found: marks.Marks = {}
        ask: dict[QueueKey, int] = {}
        for queue, offset in end.items():
            if offset == reach.offsets.get(queue):
                # The text of a position changes only with its offsets, or Spark would read nothing.
                if queue in reach.marks:
                    found[queue] = reach.marks[queue]
                continue
            held = view.bounds.get(queue)
            if held is not None and offset == held.high and queue in view.stored:
                found[queue] = view.stored[queue]
            elif held is not None and offset > held.low:
                ask[queue] = offset - 1
        if ask:
            found |= self._known().stored_at(ask, view, self._options.group)
        return found

    def _to_json(self, reach: Reach) -> dict[str, Any]:
        made = marks.with_marks(to_json(reach.offsets), reach.marks)
        self._recent = [(made, reach), *self._recent[:1]]
        return made

    def _from_json(self, source: dict[str, Any]) -> Reach:
        """Read offsets; Spark gives back what it was given, and comparing is much faster."""
        for known, reach in self._recent:
            if known == source:
                return reach
        return Reach(from_json(source), marks.from_json(source))

    def _sample(self, queue: QueueKey, offset: int, view: View) -> float | None:
        addresses = view.addresses[queue.broker]
        return self._known().mean_size(queue, offset, addresses, self._options.group)

    def _known(self) -> Metadata:
        if self._metadata is None:
            self._metadata = Metadata(self._options.wire)
        return self._metadata

    def _last_plan(self, offsets: Mapping[QueueKey, int]) -> Need:
        """Return what has to be seen: what was planned before, of the brokers that remain."""
        brokers = self._options.brokers
        queues = {q: it for q, it in offsets.items() if not brokers or q.broker in brokers}
        return Need(queues, brokers)

    def _settled(self, need: Need, *, missing_ok: bool = True) -> View:
        # Topics may go while a query runs; what is missed is judged with the offsets.
        say = log.warning if self._progress is None else self._progress.waiting
        patience = Patience(self._options.wire.unreachable_s, say=say)
        return settled(self._known(), self._options.topics, need, patience, missing_ok=missing_ok)

    def _check_gone(self, begin: Offsets, view: View) -> None:
        gone = begin.keys() - view.bounds.keys()
        brokers = self._options.brokers
        left = frozenset(
            queue
            for queue in gone
            if brokers and queue.broker not in brokers | view.addresses.keys()
        )
        if left > self._left or (left and not self._left):
            log.warning(
                "%d queues of brokers that are not named are left, as %s", len(left), min(left)
            )
        self._left = left
        for queue in sorted(gone - left):
            text = f"queue {queue} is gone, read up to {begin[queue]}: its broker does not have it"
            if not self._options.topics.has(queue):
                text = (
                    f"the checkpoint is of queue {queue}, read up to {begin[queue]}, which this"
                    " query does not read: each query needs a checkpoint of its own; to leave out"
                    " what was read before, give failOnDataLoss=false"
                )
            if self._options.fail_on_data_loss:
                raise DataLoss(text)


def _held(offset: int, bounds: Bounds | None) -> int:
    return offset if bounds is None else max(offset, bounds.low)
