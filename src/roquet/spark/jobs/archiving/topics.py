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
from roquet.spark.reading import planning
from roquet.spark.reading.marks import Marks, Reach

if TYPE_CHECKING:
    from collections.abc import Mapping

    from roquet.spark.jobs.lake import Lake

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
    options = SourceOptions.parse(reading, streaming=True)
    metadata = Metadata(options.wire)
    try:
        view = metadata.view(options.topics, missing_ok=True)
        here = {queue: end for queue, end in ends.items() if queue in view.bounds}
        reach = Reach(here, _stored(lake, here) if here else {})
        anew = planning.judged(reach, view, metadata, options.group, fail_on_data_loss=False)
    finally:
        metadata.close()
    for queue, why in sorted(anew.items()):
        raise LakeError(
            f"{queue}: {why}. The lake has one message at an offset: archive the new topic to a"
            " lake of its own"
        )


def _stored(lake: Lake, ends: Mapping[QueueKey, int]) -> Marks:
    """Return when the last message of each queue was stored, of those that the lake has."""
    last = lake.spark.createDataFrame([(*queue, end - 1) for queue, end in ends.items()], _LAST)
    held = sql(lake.spark, _HOLDING, live=lake.catalog.live(), last=last).collect()
    places = {Part(row.topic, row.day, row.part) for row in held}
    rows = sql(lake.spark, _STORED, rows=lake.read(places.__contains__), last=last).collect()
    return {QueueKey(row.topic, row.brokerName, int(row.queueId)): int(row.ms) for row in rows}
