"""Whether a table of changes goes on with the topics that it began with.

A stream's checkpoint knows when the last message of each queue was stored. Without the checkpoint
the table's rows know: a topic that was made anew begins at offset 0 once more, and its changes
would count as older than those that the table has.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from roquet.spark.jobs.archiving.topics import made_anew
from roquet.spark.jobs.shared.queries import sql
from roquet.spark.jobs.storage.files import LakeError
from roquet.spark.offsets import QueueKey
from roquet.spark.reading.marks import Reach

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame

_LAST: Final = """
select _topic, _brokerName, _queueId, max(_queueOffset) as last,
  unix_millis(max_by(_storeTimestamp, _queueOffset)) as ms
from {rows} group by _topic, _brokerName, _queueId"""


def check(rows: DataFrame, reading: Mapping[str, str], out: str) -> None:
    """Raise LakeError when the last row of a queue comes from another message than its topic has.

    `rows` are those of the table, with the places that they come from.
    """
    found = sql(rows.sparkSession, _LAST, rows=rows).collect()
    if not found:
        return
    queues = {QueueKey(it[0], it[1], int(it[2])): it for it in found}
    ends = {queue: int(it.last) + 1 for queue, it in queues.items()}
    stored = {queue: int(it.ms) for queue, it in queues.items()}
    for queue, why in sorted(made_anew(Reach(ends, stored), reading).items()):
        raise LakeError(
            f"{queue}: {why}. The changes of the new topic would count as older than those in"
            f" {out}: keep them in a folder of their own"
        )
