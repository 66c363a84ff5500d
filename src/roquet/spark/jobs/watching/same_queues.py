"""Whether the queues of a snapshot are those of the snapshot before.

A topic that is deleted and made again has queues of the same names. With as many messages as before
nothing in offsets tells, and rates over both are wrong. So a snapshot has, for each queue, its end
and when the message before it was stored, both of one answer of its broker: the next one looks for
that message.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Final

from pyspark.errors import AnalysisException

from roquet.base.errors import Refused, Unreachable
from roquet.spark.cluster.metadata import Metadata
from roquet.spark.jobs.shared.queries import sql
from roquet.spark.offsets import Bounds, QueueKey
from roquet.spark.options import DEFAULT_GROUP, Topics
from roquet.spark.reading import marks
from roquet.spark.reading.marks import Reach

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from roquet.spark.options import MetaOptions

_ROW: Final = (
    "topic",
    "brokerName",
    "queueId",
    "minOffset",
    "maxOffset",
    "unix_millis(lastStoreTimestamp) as stored",
)
_ANEW: Final = "topic string, brokerName string, queueId int, anew boolean"
_LAST: Final = """
select topic, brokerName, queueId, max(maxOffset) as maxOffset, max(minOffset) as minOffset,
  max(stored) as stored from (
  select *, unix_millis(lastStoreTimestamp) as stored, max(at) over
    (partition by topic, brokerName, queueId) as newest from {all} where maxOffset is not null)
where at = newest group by topic, brokerName, queueId"""


class SameQueues:
    """Compares each snapshot with the one before; the first with what the table has."""

    def __init__(self, options: MetaOptions, say: Callable[[str], None]) -> None:
        """Take how brokers are asked. Lines tell where nobody answers."""
        self._options = options
        self._say = say
        self._reach = Reach({}, {})

    def begin(self, spark: SparkSession, snapshots: str, schema: str) -> None:
        """Take down what the table's newest snapshot of each queue has; no table has none."""
        with contextlib.suppress(AnalysisException):
            stored = spark.read.schema(schema).parquet(snapshots)
            self._take(sql(spark, _LAST, all=stored).collect())

    def marked(self, taken: DataFrame) -> DataFrame:
        """Return a snapshot with the column `anew`: true where a queue is not that of before."""
        rows = taken.where("maxOffset is not null").selectExpr(*_ROW).collect()
        anew = [(*it, True) for it in sorted(self.anew(rows))]
        if not anew:
            return taken.selectExpr("*", "cast(null as boolean) as anew")
        made = taken.sparkSession.createDataFrame(anew, _ANEW)
        return taken.join(made, ["topic", "brokerName", "queueId"], "left")

    def anew(self, rows: Sequence[Any]) -> list[QueueKey]:
        """Return the queues that are not those of before; `rows` have `_ROW` of a snapshot."""
        bounds = {_key(it): Bounds(it.minOffset, it.maxOffset) for it in rows}
        last = {_key(it): int(it.stored) for it in rows if it.stored is not None}
        known = {queue: it for queue, it in self._reach.offsets.items() if queue in bounds}
        reach = Reach(known, {q: it for q, it in self._reach.marks.items() if q in known})
        asked = self._asked(marks.to_ask(reach, bounds))
        found = marks.made_anew(reach, bounds, last, asked)
        for queue, why in sorted(found.items())[:1]:
            self._say(f"{len(found):,} queues are not those of the snapshot before: {queue}: {why}")
        self._take(rows)
        return sorted(found)

    # --- inside ------------------------------------------------------------------------------

    def _take(self, rows: Iterable[Any]) -> None:
        for it in rows:
            queue = _key(it)
            self._reach.offsets[queue] = it.maxOffset
            self._reach.marks.pop(queue, None)
            if it.stored is not None and it.maxOffset > it.minOffset:
                self._reach.marks[queue] = int(it.stored)

    def _asked(self, wanted: dict[QueueKey, int]) -> dict[QueueKey, int]:
        if not wanted:
            return {}
        metadata = Metadata(self._options.wire)
        try:
            names = tuple(sorted({queue.topic for queue in wanted}))
            view = metadata.view(Topics(names=names), missing_ok=True)
            there = {q: it for q, it in wanted.items() if q.broker in view.addresses}
            return metadata.stored_at(there, view, DEFAULT_GROUP)
        except (Unreachable, Refused) as error:
            self._say(
                f"whether topics were made anew since the last snapshot is not known: {error}"
            )
            return {}
        finally:
            metadata.close()


def _key(row: Any) -> QueueKey:
    return QueueKey(row.topic, row.brokerName, int(row.queueId))
