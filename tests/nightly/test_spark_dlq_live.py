"""The job `dlq` in a real Spark: dead letters of a real consumer, joined and sent again."""

from __future__ import annotations

import asyncio
import itertools
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from roquet.client import ConsumerOptions, Message, connect
from roquet.protocol import names
from roquet.spark.jobs import dlq

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from spark_harness import Running

pytest_plugins = ["spark_harness"]
pytestmark = [pytest.mark.spark, pytest.mark.timeout(3600)]
_numbers = itertools.count()


def consume(running: Running, topic: str, group: str) -> None:
    """Consume until two are dead: `poison` at once, `broken` after one retry; the rest is done."""

    async def work() -> None:
        options = ConsumerOptions(retry_times_max=1)
        async with (
            connect(running.name_servers) as mq,
            mq.consumer(group, topic, start="earliest", options=options) as consumer,
        ):
            seen: list[tuple[str, int]] = []
            while ("broken", 2) not in seen or len(seen) < 4:
                received = await consumer.receive(120)
                assert received is not None, seen
                (key,) = received.keys
                seen.append((key, received.attempt))
                if key == "poison":
                    received.dead_letter()
                elif key == "broken":
                    received.retry(1)
                else:
                    received.ack()

    asyncio.run(work())


def live(spark: SparkSession, running: Running, topic: str) -> DataFrame:
    given = {"nameServers": running.name_servers, "subscribe": topic}
    return spark.read.format("roquet").options(**given).load()


def test_dead_letters_are_joined_to_what_they_came_from(
    spark: SparkSession, running: Running, tmp_path: Path
) -> None:
    topic, group = f"Dlq{next(_numbers)}", "dlq-group"
    running.create_topic(topic, 1)
    made = [
        Message(topic, key.encode(), "tag", (key,), {"colour": "red"})
        for key in ("fine", "poison", "broken")
    ]
    running.send(topic, made, 0)
    consume(running, topic, group)
    # A consumer gives messages back before it is closed.
    assert live(spark, running, names.dlq_topic(group)).count() == 2
    out = tmp_path / "out"
    given = {"nameServers": running.name_servers, "groups": group, "out": str(out)}
    metrics = {"metricsPath": str(tmp_path)}
    report = dlq.run(spark, {**given, **metrics}, lambda _: None)
    assert report.exit_code == 1
    assert report.lines[-1] == f"2 messages to send again in {out}/resubmit"
    letters = {row.keys: row for row in spark.read.parquet(f"{out}/letters").collect()}
    poison, broken = letters["poison"], letters["broken"]
    assert (poison.cause, poison.attemptsFound) == ("given up without a retry", None)
    assert (broken.cause, broken.attemptsFound) == ("failed after 1 retry", 1)
    assert broken.storeTimestamp >= broken.lastRetry >= broken.originStoreTimestamp
    for row, offset in ((poison, 1), (broken, 2)):
        assert (row.originTopic, row.original) == (topic, "found")
        assert (row.originQueueId, row.originQueueOffset) == (0, offset)
    assert 'cause="failed after 1 retry"} 1\n' in (tmp_path / "roquet_dlq.prom").read_text()
    # What is on the list goes back with Spark's own means.
    again = spark.read.parquet(f"{out}/resubmit")
    again.select("topic", "body", "keys", "tags", "properties").write.format("roquet").mode(
        "append"
    ).option("nameServers", running.name_servers).save()
    rows = live(spark, running, topic).where("queueOffset > 2").collect()
    assert sorted((row.keys, bytes(row.body), row.tags) for row in rows) == [
        ("broken", b"broken", "tag"),
        ("poison", b"poison", "tag"),
    ]
    assert all(row.properties["colour"] == "red" for row in rows)
    assert all("RETRY_TOPIC" not in row.properties for row in rows)
    # The topic is deleted, and traces know how the consumer failed.
    running.delete_topic(topic)
    traced = [(group, broken.uniqKey, "EXCEPTION", datetime(2026, 1, 1, tzinfo=UTC), False)]
    spark.createDataFrame(
        traced, "`group` string, msgId string, code string, at timestamp, success boolean"
    ).write.parquet(f"{tmp_path}/traces/consumptions")
    later = dlq.run(spark, {**given, "traces": str(tmp_path / "traces")}, lambda _: None)
    assert later.exit_code == 1
    causes = spark.read.parquet(f"{out}/causes").collect()
    assert {(row.cause, row.originalsGone) for row in causes} == {
        ("given up without a retry", 1),
        ("exception", 1),
    }


def test_there_may_be_nothing(spark: SparkSession, running: Running, tmp_path: Path) -> None:
    given = {"nameServers": running.name_servers, "groups": "nobody", "out": f"{tmp_path}/out"}
    report = dlq.run(spark, given, lambda _: None)
    assert (report.lines, report.exit_code) == (("no dead letters",), 0)
    assert "no dead letters" in (tmp_path / "out/report.html").read_text()
