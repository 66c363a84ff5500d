"""Which buckets of offsets two ends do not have alike. Only their rows are compared one by one.

A bucket is alike when both ends have as many messages there and the XOR of the checksums of
offset, unique key and body is the same (`crates/core/src/arrow/sums.rs`, which Spark's `xxhash64`
repeats). Chance makes two others alike once in 2^64; somebody who chooses bodies for it can.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Final

from roquet.spark.jobs.shared.queries import sql
from roquet.spark.offsets import QueueKey, Range
from roquet.spark.reading.sums import BUCKET

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pyspark.sql import DataFrame, SparkSession

RANGES_MAX: Final = 10_000
"""Ranges that a topic is read by; more, and it is read as a whole."""
_OF_ROWS: Final = """
select topic, brokerName, queueId, queueOffset div :bucket as bucket, count(*) as messages,
  bit_xor(xxhash64(queueOffset, coalesce(uniqKey, ''), body)) as checksum,
  min(queueOffset) as firstOffset, max(queueOffset) as lastOffset
from {read} group by topic, brokerName, queueId, queueOffset div :bucket"""
_WHOLE: Final = """
select topic, brokerName, queueId, bucket, sum(messages) as messages,
  bit_xor(checksum) as checksum, min(firstOffset) as firstOffset, max(lastOffset) as lastOffset
from {parts} group by topic, brokerName, queueId, bucket"""
_UNLIKE: Final = """
select topic, brokerName, queueId, bucket from {left} l full outer join {right} r
  using (topic, brokerName, queueId, bucket)
where not (l.messages <=> r.messages and l.checksum <=> r.checksum)"""
_QUEUES: Final = """
select topic, brokerName, queueId, sum(l) as leftMessages, sum(r) as rightMessages,
  min(if(l > 0, firstOffset, null)) as leftFirst, max(if(l > 0, lastOffset, null)) as leftLast,
  min(if(r > 0, firstOffset, null)) as rightFirst, max(if(r > 0, lastOffset, null)) as rightLast
from (select *, messages as l, 0 as r from {left} union all
  select *, 0 as l, messages as r from {right})
group by topic, brokerName, queueId"""
_OF_BUCKETS: Final = """
select e.* from {entries} e left semi join {buckets} b
  on e.topic = b.topic and e.brokerName = b.brokerName and e.queueId = b.queueId
  and e.queueOffset div :bucket = b.bucket"""
_ARGUMENTS: Final = {"bucket": BUCKET}
_DDL: Final = "topic string, brokerName string, queueId int, bucket bigint"


@dataclasses.dataclass(frozen=True, slots=True)
class Picked:
    """The buckets that are not alike."""

    buckets: DataFrame
    ranges: Sequence[Range]
    """The same, those that touch as one."""

    @property
    def narrows(self) -> bool:
        """Whether a topic is read by ranges."""
        return len(self.ranges) <= RANGES_MAX

    def of(self, spark: SparkSession, entries: DataFrame) -> DataFrame:
        """Return the rows that lie in these buckets."""
        return sql(spark, _OF_BUCKETS, _ARGUMENTS, entries=entries, buckets=self.buckets)


def of_rows(spark: SparkSession, read: DataFrame) -> DataFrame:
    """Return a row for each bucket that messages lie in."""
    return sql(spark, _OF_ROWS, _ARGUMENTS, read=read)


def whole(spark: SparkSession, parts: DataFrame) -> DataFrame:
    """Return a row for each bucket, whose parts may be rows of their own."""
    return sql(spark, _WHOLE, parts=parts)


def queues(spark: SparkSession, left: DataFrame, right: DataFrame) -> DataFrame:
    """Return counts and offsets of both ends by queue."""
    return sql(spark, _QUEUES, left=left, right=right)


def unlike(spark: SparkSession, left: DataFrame, right: DataFrame) -> Picked:
    """Compare two ends by their buckets."""
    found = [
        (str(row.topic), str(row.brokerName), int(row.queueId), int(row.bucket))
        for row in sql(spark, _UNLIKE, left=left, right=right).collect()
    ]
    ranges = joined((QueueKey(*it[:3]), it[3]) for it in found)
    return Picked(spark.createDataFrame(found, _DDL), ranges)


def joined(buckets: Iterable[tuple[QueueKey, int]]) -> list[Range]:
    """Return buckets as ranges of offsets, in order, those that touch as one. Pure."""
    found: list[Range] = []
    for queue, bucket in sorted(buckets):
        begin, end = bucket * BUCKET, (bucket + 1) * BUCKET
        if found and found[-1].queue == queue and found[-1].end == begin:
            found[-1] = Range(queue, found[-1].begin, end)
        else:
            found.append(Range(queue, begin, end))
    return found
