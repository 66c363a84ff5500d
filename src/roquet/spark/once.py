"""Rows made ready for `delivery = idempotent`: all rows of a queue in one partition.

ready = by_queue(rows, {"nameServers": "127.0.0.1:9876", "topic": "orders", "transactionPath": "…"})
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F  # noqa: N812  (its name everywhere)
from pyspark.sql.types import MapType

from roquet.base.clock import SystemClock
from roquet.base.errors import UsageError
from roquet.client import connect
from roquet.spark.account import account
from roquet.spark.options import SinkOptions
from roquet.spark.sink.epochs import keep_queues, kept_queues
from roquet.spark.sink.tries import Tries

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame

    from roquet.model.queue import MessageQueue


def by_queue(rows: DataFrame, options: Mapping[str, str]) -> DataFrame:
    """Choose a queue for each row by its content, and bring the rows of a queue together.

    With a column `shardingKey` that decides, where it is not empty. `options` are those of the
    sink. Which queues there are is asked once and kept in `transactionPath`, so that a repeated
    write finds the same ones; a topic that grows later gets nothing in its new queues until that
    file (`queues-….json`) is deleted, which is safe between two writes.

    Raises UsageError, Refused and Unreachable.
    """
    found = SinkOptions.parse({**options, "delivery": "idempotent"})
    if not found.topic or not found.transaction_path:
        raise UsageError("by_queue needs the options topic and transactionPath")
    queues = kept_queues(found.transaction_path, found.topic)
    if queues is None:
        queues = asyncio.run(_queues(found, found.topic))
        keep_queues(found.transaction_path, found.topic, queues)
    rows = rows.drop("brokerName", "queueId")
    content = [_hashable(rows, name) for name in sorted(rows.columns)]
    mark = F.xxhash64(*content)
    if "shardingKey" in rows.columns:
        key = F.col("shardingKey")
        mark = F.when(F.length(key) > 0, F.xxhash64(key)).otherwise(mark)
    index = F.pmod(mark, F.lit(len(queues))).cast("int")
    place = F.element_at(
        F.array(*(F.struct(F.lit(it.broker_name), F.lit(it.queue_id)) for it in queues)), index + 1
    )
    ready = rows.withColumn("_place", place)
    ready = ready.withColumn("brokerName", F.col("_place.col1"))
    ready = ready.withColumn("queueId", F.col("_place.col2")).drop("_place")
    return ready.repartition(len(queues), "brokerName", "queueId")


def _hashable(rows: DataFrame, name: str) -> Any:
    column = F.col(name)
    if isinstance(rows.schema[name].dataType, MapType):
        return F.array_sort(F.map_entries(column))
    return column


async def _queues(options: SinkOptions, topic: str) -> list[MessageQueue]:
    async with (
        connect(options.wire.url, credentials=account(options.wire)) as mq,
        mq.producer(options.group) as producer,
    ):
        tries = Tries(options.wire, SystemClock())
        found = await tries.make(lambda: producer.queues(topic))
    broker = options.broker
    chosen = sorted(it for it in found if broker is None or it.broker_name == broker)
    if not chosen:
        raise UsageError(f"broker {broker} has no queue of topic {topic}")
    return chosen
