"""What operators and schedulers of streams ask for, in a real Spark."""

from __future__ import annotations

import asyncio
import json
import time
from typing import TYPE_CHECKING

import pytest

from roquet.client import Message, connect
from roquet.spark.jobs.shared.patience import patiently
from roquet.testing.pair import wait_until
from spark_streams import micro_batches

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from spark_harness import Running

pytest_plugins = ["spark_harness"]
pytestmark = pytest.mark.spark
LONG = "10h"


def bodies(frame: DataFrame) -> list[str]:
    return sorted(bytes(row.body).decode() for row in frame.select("body").collect())


def send(running: Running, topic: str, *texts: str) -> None:
    running.send(topic, [Message(topic, text.encode()) for text in texts], 0)


def test_topics_begin_and_end_at_times_of_their_own(
    spark: SparkSession, running: Running, tmp_path: Path
) -> None:
    topics = ("TimesA", "TimesB", "TimesC")
    for topic in topics:
        running.create_topic(topic, 1)
        send(running, topic, f"{topic} old")
    time.sleep(0.01)
    middle = int(time.time() * 1000)
    time.sleep(0.01)
    for topic in topics:
        send(running, topic, f"{topic} new")
    given = {"nameServers": running.name_servers, "subscribe": ",".join(topics)}
    given |= {"startingTimestamp": json.dumps({"TimesA": middle, "TimesB": 0})}
    every = [f"{topic} {age}" for topic in topics for age in ("new", "old")]
    batch = spark.read.format("roquet").options(**given)
    ending = json.dumps({"TimesC": middle})
    wanted = [it for it in every if it not in {"TimesA old", "TimesC new"}]
    assert bodies(batch.option("endingTimestamp", ending).load()) == wanted
    begin = given["startingTimestamp"]
    servers, names = running.name_servers, ",".join(topics)
    rows = micro_batches(spark, servers, names, tmp_path, startingTimestamp=begin)
    assert sum(rows) == 5
    found = bodies(spark.read.parquet(str(tmp_path / "out")))
    assert found == [it for it in every if it != "TimesA old"]


def test_small_micro_batches_wait_for_messages_or_for_the_delay(
    spark: SparkSession, running: Running, tmp_path: Path
) -> None:
    running.create_topic("Gathered", 2)
    send(running, "Gathered", *(f"{n}" for n in range(4)))
    given = {"nameServers": running.name_servers, "subscribe": "Gathered"}
    given |= {"startingOffsets": "earliest"}

    def start(**more: str) -> StreamingQuery:
        writer = spark.readStream.format("roquet").options(**given, **more).load().writeStream
        writer = writer.format("parquet").option("checkpointLocation", str(tmp_path / "checkpoint"))
        return writer.start(str(tmp_path / "out"))

    def read(query: StreamingQuery) -> list[int]:
        if (error := query.exception()) is not None:
            raise error
        return [it.numInputRows for it in query.recentProgress if it.numInputRows]

    waited: list[bool] = []

    def wait_for_ten() -> None:
        query = start(minOffsetsPerTrigger="10", maxTriggerDelay=LONG)
        try:
            if not waited:
                # Spark has asked at least once, and was given nothing.
                query.processAllAvailable()
                assert read(query) == []
                waited.append(True)
                send(running, "Gathered", *(f"{n}" for n in range(4, 10)))
            wait_until("ten messages", lambda: sum(read(query)) == 10, 120)
            assert read(query) == [10]
        finally:
            query.stop()

    def wait_for_the_delay() -> None:
        query = start(minOffsetsPerTrigger="10", maxTriggerDelay="2s")
        try:
            wait_until("two messages", lambda: sum(read(query)) == 2, 120)
        finally:
            query.stop()

    patiently(wait_for_ten, print)
    send(running, "Gathered", "10", "11")
    patiently(wait_for_the_delay, print)
    assert bodies(spark.read.parquet(str(tmp_path / "out"))) == sorted(f"{n}" for n in range(12))
    send(running, "Gathered", "12")
    # A query that has an end waits for nothing.
    rows = micro_batches(
        spark,
        running.name_servers,
        "Gathered",
        tmp_path,
        minOffsetsPerTrigger="10",
        maxTriggerDelay=LONG,
    )
    assert sum(rows) == 1


def test_group_has_the_offsets_of_a_query_at_its_end(
    spark: SparkSession, running: Running, tmp_path: Path
) -> None:
    running.create_topic("Reported", 2)
    send(running, "Reported", *(f"{n}" for n in range(30)))

    async def offsets() -> dict[int, int]:
        async with connect(running.name_servers) as mq:
            found = await mq.admin().groups.offsets("spark_lag", "Reported")
            return {queue.queue_id: it.consumer_offset for queue, it in found.items()}

    rows = micro_batches(
        spark,
        running.name_servers,
        "Reported",
        tmp_path,
        maxOffsetsPerTrigger="20",
        reportGroup="spark_lag",
    )
    assert sum(rows) == 30
    assert asyncio.run(offsets()) == {0: 30, 1: 0}
    send(running, "Reported", "30")
    given = {"nameServers": running.name_servers, "table": "groups", "groups": "spark_lag"}
    groups = spark.read.format("roquet-meta").options(**given).load()
    assert groups.groupBy("group").sum("lag").first() == ("spark_lag", 1)
