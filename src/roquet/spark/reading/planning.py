"""From positions and bounds to offsets and partitions; shared by batch and stream."""

from __future__ import annotations

import contextlib
import gc
import logging
from typing import TYPE_CHECKING, Final

from roquet.spark.cluster.metadata import Metadata
from roquet.spark.cluster.patience import Patience
from roquet.spark.offsets import (
    EARLIEST,
    LATEST,
    Bounds,
    DataLoss,
    Offsets,
    QueueKey,
    Range,
    available,
)
from roquet.spark.reading import marks
from roquet.spark.reading.partitions import NothingPartition, QueuePartition
from roquet.spark.reading.presence import Need, settled

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Sequence

    from pyspark.sql.datasource import InputPartition

    from roquet.spark.cluster.metadata import View
    from roquet.spark.options import Position, SourceOptions
    from roquet.spark.reading.marks import Reach

PARTITIONS_MAX: Final = 10_000
"""About how many tasks there are at most, unless there are more brokers."""

log = logging.getLogger(__name__)


@contextlib.contextmanager
def uncollected() -> Generator[None]:
    """Plan without the collector of cycles.

    A plan is many small objects without a cycle: looking for one again and again while they are
    made costs a third of the time.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def between(options: SourceOptions, begin: Position) -> tuple[Offsets, Offsets, View]:
    """Ask the cluster once; return from where to where each queue is read, and what was seen.

    Brokers that are away are waited for. Raises Unreachable for those that stay away, and DataLoss.
    """
    metadata, fails = Metadata(options.wire), options.fail_on_data_loss
    try:
        need = needed(options, begin, options.ending)
        view = settled(metadata, options.topics, need, Patience(options.wire.unreachable_s))
        present(need, view, fail_on_data_loss=fails)
        start = begun(
            resolve(begin, view, metadata), view, metadata, options.group, fail_on_data_loss=fails
        )
        return start, resolve(options.ending, view, metadata), view
    finally:
        metadata.close()


def resolve(position: Position, view: View, metadata: Metadata) -> Offsets:
    """Return the offset of each queue for a position."""
    by_time = position.timestamp_ms is not None or position.timestamps
    if not by_time and not position.offsets and position.default == EARLIEST:
        return {queue: bounds.low for queue, bounds in view.bounds.items()}
    return {
        queue: _resolve(position, queue, bounds, view, metadata)
        for queue, bounds in view.bounds.items()
    }


def _resolve(
    position: Position, queue: QueueKey, bounds: Bounds, view: View, metadata: Metadata
) -> int:
    time_ms = position.time_of(queue.topic)
    if time_ms is not None:
        if bounds.high == bounds.low:
            return bounds.high
        addresses = view.addresses[queue.broker]
        found = metadata.offset_at(queue, time_ms, addresses)
        return min(max(found, bounds.low), bounds.high)
    value = position.offsets.get(queue, position.default)
    if value == EARLIEST:
        return bounds.low
    return bounds.high if value == LATEST else value


def judged(
    reach: Reach, view: View, metadata: Metadata, group: str, *, fail_on_data_loss: bool
) -> dict[QueueKey, str]:
    """Return the queues that are not the ones that were read, and why; log them.

    Raises DataLoss instead when that is to be an error.
    """
    asked = marks.to_ask(reach, view.bounds)
    times = metadata.stored_at(asked, view, group) if asked else {}
    found = marks.made_anew(reach, view.bounds, view.stored, times)
    for queue, why in sorted(found.items()):
        if fail_on_data_loss:
            raise DataLoss(f"queue {queue}: {why}")
        log.warning("queue %s: %s; it is read from its beginning", queue, why)
    return found


def begun(
    start: Offsets, view: View, metadata: Metadata, group: str, *, fail_on_data_loss: bool
) -> Offsets:
    """Return where a batch begins; queues that end before that begin anew. Raises DataLoss."""
    reach = marks.Reach(start, {})
    anew = judged(reach, view, metadata, group, fail_on_data_loss=fail_on_data_loss)
    return {**start, **{queue: view.bounds[queue].low for queue in anew}}


def needed(options: SourceOptions, *positions: Position) -> Need:
    """Return what a read must see that has no plan yet: what its options name."""
    queues = dict.fromkeys(options.topics.queues, 0)
    for position in positions:
        for queue, offset in position.offsets.items():
            if options.topics.has(queue):
                queues[queue] = max(queues.get(queue, 0), offset)
    everything = not options.brokers and not options.topics.queues
    return Need(queues, options.brokers, everything)


def present(need: Need, view: View, *, fail_on_data_loss: bool) -> None:
    """Raise DataLoss for a queue that is named and is not there, or log it."""
    for queue in sorted(need.queues.keys() - view.bounds.keys()):
        text = f"queue {queue} is named in the options and its broker does not have it"
        if fail_on_data_loss:
            raise DataLoss(text)
        log.warning("%s", text)


def within(ranges: Iterable[Range], view: View, *, fail_on_data_loss: bool) -> list[Range]:
    """Cut ranges to what queues hold; count and log what is lost. Raises DataLoss."""
    found: list[Range] = []
    for wanted in ranges:
        bounds = view.bounds.get(wanted.queue)
        # What is nearly always so, said briefly: there may be a million of them.
        if bounds is not None and bounds.low <= wanted.begin and wanted.end <= bounds.high:
            found.append(wanted)
            continue
        left, lost = available(wanted, bounds, fail_on_data_loss=fail_on_data_loss)
        if lost:
            log.warning("%d messages of %s are lost; reading %s", lost, wanted, left or "nothing")
        if left is not None:
            found.append(left)
    return found


def partitions(parts: Iterable[Range], view: View) -> Sequence[InputPartition]:
    """Return what Spark's tasks get; never an empty list."""
    by_broker: dict[str, list[Range]] = {}
    count = 0
    for part in parts:
        by_broker.setdefault(part.queue.broker, []).append(part)
        count += 1
    # So many queues share tasks, each with those of one broker.
    size = -(-count // PARTITIONS_MAX)
    return [
        QueuePartition(tuple(ranges[at : at + size]), view.addresses[broker])
        for broker, ranges in by_broker.items()
        for at in range(0, len(ranges), size)
    ] or [NothingPartition(None)]
