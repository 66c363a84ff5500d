"""Whether a table of changes goes on with the topics that it began with, and where it ended.

A stream's checkpoint knows when the last message of each queue was stored. Without the checkpoint
the table's rows know: a topic that was made anew begins at offset 0 once more, and its changes
would count as older than those that the table has. One that has deleted messages since begins
behind the table's end, and what lay between is in neither.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final, NamedTuple

from roquet.spark.jobs.archiving.topics import compared
from roquet.spark.jobs.shared.queries import sql
from roquet.spark.jobs.storage.files import LakeError
from roquet.spark.offsets import QueueKey
from roquet.spark.reading.marks import Reach

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql import DataFrame

_LAST: Final = """
select topic, brokerName, queueId, max(queueOffset) as last,
  unix_millis(max_by(storeTimestamp, queueOffset)) as ms
from {rows} group by topic, brokerName, queueId"""
_EARLIEST: Final = "earliest"


class Held(NamedTuple):
    """What a table has, by queue: the offset after its last change, and when that was stored."""

    ends: dict[QueueKey, int]
    stored: dict[QueueKey, int]


def held(places: DataFrame) -> Held:
    """Return what a table has of each queue; `places` are those of its changes."""
    rows = sql(places.sparkSession, _LAST, rows=places).collect()
    queues = {QueueKey(it[0], it[1], int(it[2])): it for it in rows}
    ends = {queue: int(it.last) + 1 for queue, it in queues.items()}
    return Held(ends, {queue: int(it.ms) for queue, it in queues.items()})


def check(
    has: Held,
    read: Mapping[QueueKey, int],
    reading: Mapping[str, str],
    out: str,
    say: Callable[[str], None],
) -> None:
    """Raise LakeError when a topic is another one than the table's, or has lost changes since.

    `read` says how far queues were read, as far as it is known. What is lost is said only when
    somebody has chosen where to begin.
    """
    # Of some queues nothing was a change of the table, and no row has them.
    ends = {**read, **has.ends}
    if not ends:
        return
    anew, bounds = compared(Reach(ends, dict(has.stored)), reading)
    for queue, why in sorted(anew.items()):
        raise LakeError(
            f"{queue}: {why}. The changes of the new topic would count as older than those in"
            f" {out}: keep them in a folder of their own"
        )
    for queue, end in sorted(ends.items()):
        last = max(end, read.get(queue, 0))
        if queue not in bounds or bounds[queue].low <= last:
            continue
        low = bounds[queue].low
        lost = (
            f"{queue}: {out} has changes before offset {last}, and the topic begins at {low}:"
            " those between are lost"
        )
        if reading.get("startingOffsets", _EARLIEST) == _EARLIEST:
            here = json.dumps({queue.topic: {queue.broker: {str(queue.queue_id): low}}})
            raise LakeError(f"{lost}. To go on without them, give startingOffsets = {here}")
        say(lost)
