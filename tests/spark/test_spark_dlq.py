"""The job `dlq` in a real Spark: dead letters of a real consumer, joined and sent again."""

from __future__ import annotations

import asyncio
import itertools
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from roquet.base.errors import UsageError
from roquet.client import ConsumerOptions, Message, connect
from roquet.protocol import names
from roquet.spark.jobs import dlq
from roquet.spark.schema import COLUMNS

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from spark_harness import Running

pytest_plugins = ["spark_harness"]
pytestmark = pytest.mark.spark
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


def test_dead_letters_of_a_lake(spark: SparkSession, tmp_path: Path) -> None:
    columns = (
        "{} as topic, 'b' as brokerName, 0 as queueId, id as queueOffset, id as physicalOffset,"
        " 100 as storeSize, concat('M', id) as msgId, {} as uniqKey, 'k' as keys, 'g' as tags,"
        " {} as properties, timestamp_seconds(1000 + id) as bornTimestamp,"
        " timestamp_seconds(1000 + {} + id) as storeTimestamp, 'h:1' as bornHost,"
        " 'h:2' as storeHost, {} as reconsumeTimes, 0 as sysFlag, {} as bodyCRC,"
        " cast('x' as binary) as body"
    )

    def rows(topic: str, count: int, *expressions: str) -> DataFrame:
        unique, origin, after, tries, crc = expressions
        origins = f"map('RETRY_TOPIC', 'Old', 'ORIGIN_MESSAGE_ID', {origin}, 'why', 'full disk')"
        text = columns.format(f"'{topic}'", unique, origins, after, tries, crc)
        return spark.range(count).selectExpr(*_parts(text))

    # Three letters: one with its original, one whose original is another body, one without a
    # unique key, whose original is known by its id; and the first is dead a second time.
    letter = rows(
        "%DLQ%g", 3, "if(id = 2, '', concat('U', id))", "concat('M', id)", "50", "17", "7"
    )
    twice = rows("%DLQ%g", 1, "'U0'", "'M0'", "60", "17", "7")
    origin = rows("Old", 3, "if(id = 2, '', concat('U', id))", "''", "0", "0", "if(id = 1, 8, 7)")
    retry = rows("%RETRY%g", 1, "'U0'", "'M0'", "20", "1", "7")
    other = rows("%DLQ%other", 1, "'U9'", "'M9'", "50", "1", "7")
    lake = f"{tmp_path}/lake"
    letter.union(twice).union(retry).union(other).write.parquet(lake)
    origin.write.parquet(f"{tmp_path}/originals")
    given = {"lake": lake, "groups": "g", "out": f"{tmp_path}/out", "causeProperty": "why"}
    report = dlq.run(spark, {**given, "originals": f"{tmp_path}/originals"}, lambda _: None)
    assert report.lines == (
        "g Old: 4 full disk, up to 16 retries, 0 originals gone",
        f"3 messages to send again in {tmp_path}/out/resubmit",
    )
    letters = spark.read.parquet(f"{tmp_path}/out/letters").orderBy("storeTimestamp").collect()
    assert [(row.uniqKey, row.original) for row in letters] == [
        ("U0", "found"),
        ("U1", "changed"),
        ("", "found"),
        ("U0", "found"),
    ]
    (attempt,) = spark.read.parquet(f"{tmp_path}/out/attempts").collect()
    assert (attempt.group, attempt.identity, attempt.attempt) == ("g", "U0", 1)
    list_of = spark.read.parquet(f"{tmp_path}/out/resubmit").collect()
    assert sorted(row.msgId for row in list_of) == ["M0", "M1", "M2"]
    assert {tuple(row.properties.items()) for row in list_of} == {(("why", "full disk"),)}


def test_there_may_be_nothing(spark: SparkSession, running: Running, tmp_path: Path) -> None:
    given = {"nameServers": running.name_servers, "groups": "nobody", "out": f"{tmp_path}/out"}
    report = dlq.run(spark, given, lambda _: None)
    assert (report.lines, report.exit_code) == (("no dead letters",), 0)
    assert "no dead letters" in (tmp_path / "out/report.html").read_text()
    with pytest.raises(UsageError, match="cannot be read as Parquet"):
        dlq.run(spark, {"lake": f"{tmp_path}/none", "out": f"{tmp_path}/o"}, lambda _: None)
    spark.range(1).write.parquet(f"{tmp_path}/other")
    with pytest.raises(UsageError, match=f"no column {COLUMNS[0]}"):
        dlq.run(spark, {"lake": f"{tmp_path}/other", "out": f"{tmp_path}/o"}, lambda _: None)


def _parts(text: str) -> list[str]:
    """Split a list of columns at commas that are in no brackets."""
    made, depth = [""], 0
    for sign in text:
        depth += {"(": 1, ")": -1}.get(sign, 0)
        if sign == "," and depth == 0:
            made.append("")
        else:
            made[-1] += sign
    return made
