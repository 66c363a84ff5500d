"""Whether the topics of a lake are still those that were archived.

A stream's checkpoint knows when the last message of each queue was stored. Without the checkpoint
the lake knows: a topic that was made anew has another message at that offset, or none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from roquet.spark.cluster.metadata import Metadata
from roquet.spark.jobs.shared.queries import sql
from roquet.spark.jobs.storage.files import LakeError
from roquet.spark.jobs.storage.summary import Part
from roquet.spark.offsets import QueueKey
from roquet.spark.options import SourceOptions
from roquet.spark.reading import marks as reading_marks
from roquet.spark.reading.marks import Marks, Reach

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from roquet.spark.jobs.lake import Lake
    from roquet.spark.offsets import Bounds

_LAST: Final = "topic string, broker string, queue int, offset bigint"
_HOLDING: Final = """
select distinct v.topic, v.day, v.part from {live} v join {last} l on v.topic = l.topic
  and v.brokerName = l.broker and v.queueId = l.queue and v.toOffset = l.offset + 1"""
_STORED: Final = """
select r.topic, r.brokerName, r.queueId, unix_millis(r.storeTimestamp) as ms
from {rows} r join {last} l on r.topic = l.topic and r.brokerName = l.broker
  and r.queueId = l.queue and r.queueOffset = l.offset"""


def check(lake: Lake, ends: Mapping[QueueKey, int], reading: Mapping[str, str]) -> None:
    """Raise LakeError for a queue whose last archived message is another one in its topic now.

    `ends` has the offset after the last that was archived. Queues of brokers that are away, and
    those whose last message is in the lake or the topic no more, are passed over.
    """
    anew = made_anew(Reach(dict(ends), {}), reading, lambda here: _stored(lake, here))
    for queue, why in sorted(anew.items()):
        raise LakeError(
            f"{queue}: {why}. The lake has one message at an offset: archive the new topic to a"
            " lake of its own"
        )


def made_anew(
    known: Reach,
    reading: Mapping[str, str],
    stored: Callable[[Mapping[QueueKey, int]], Marks] | None = None,
) -> Mapping[QueueKey, str]:
    """Return the queues whose last message that is known is another one now, and why.

    Queues of brokers that are away are passed over. `stored` says when last messages were stored,
    of queues that are there, if `known` does not.
    """
    return compared(known, reading, stored)[0]


def compared(
    known: Reach,
    reading: Mapping[str, str],
    stored: Callable[[Mapping[QueueKey, int]], Marks] | None = None,
) -> tuple[Mapping[QueueKey, str], Mapping[QueueKey, Bounds]]:
    """Return what `made_anew` does, and what the queues that are there hold now."""
    options = SourceOptions.parse(reading, streaming=True)
    metadata = Metadata(options.wire)
    try:
        view = metadata.view(options.topics, missing_ok=True)
        here = {queue: end for queue, end in known.offsets.items() if queue in view.bounds}
        marks = known.marks if stored is None or not here else stored(here)
        reach = Reach(here, {queue: at for queue, at in marks.items() if queue in here})
        asked = reading_marks.to_ask(reach, view.bounds)
        times = metadata.stored_at(asked, view, options.group) if asked else {}
        return reading_marks.made_anew(reach, view.bounds, view.stored, times), view.bounds
    finally:
        metadata.close()


def _stored(lake: Lake, ends: Mapping[QueueKey, int]) -> Marks:
    """Return when the last message of each queue was stored, of those that the lake has."""
    last = lake.spark.createDataFrame([(*queue, end - 1) for queue, end in ends.items()], _LAST)
    held = sql(lake.spark, _HOLDING, live=lake.catalog.live(), last=last).collect()
    places = {Part(row.topic, row.day, row.part) for row in held}
    rows = sql(lake.spark, _STORED, rows=lake.read(places.__contains__), last=last).collect()
    return {QueueKey(row.topic, row.brokerName, int(row.queueId)): int(row.ms) for row in rows}
