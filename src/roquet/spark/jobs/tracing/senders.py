"""Which producer group sent a message, by the traces of clients: brokers do not store it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from roquet.spark.jobs.shared.queries import cores, sql
from roquet.spark.jobs.tracing import queries
from roquet.spark.jobs.tracing.columns import readable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame, SparkSession

SLACK_MS: Final = 3_600_000
"""A trace is stored after its message, but maybe by another broker, whose clock is another one."""
_SENDERS: Final = """
select msgId as uniqKey, max(`group`) as producerGroup from {sends}
where msgId is not null group by msgId"""


def senders(
    spark: SparkSession, source: str, topic: str, reading: Mapping[str, str], since_ms: int | None
) -> DataFrame:
    """Return `uniqKey` and `producerGroup` of the messages whose sends a trace topic has.

    `reading` says where it is: options of the format `source`. Traces of messages that were stored
    before `since_ms` may be left out.
    """
    wanted = {**reading, "subscribe": topic, "columns": queries.READ}
    wanted["minPartitions"] = str(queries.TASKS_A_CORE * cores(spark))
    if since_ms is not None:
        wanted["startingTimestamp"] = str(max(0, since_ms - SLACK_MS))
    messages = spark.read.format(source).options(**wanted).load()
    events = messages.mapInArrow(readable, queries.EVENTS)
    return sql(spark, _SENDERS, sends=sql(spark, queries.SENDS, events=events))
