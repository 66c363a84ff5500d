"""The sink in a real Spark over a real broker: what is written is read back with the source."""

from __future__ import annotations

import itertools
import time
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from spark_harness import Running

pytest_plugins = ["spark_harness"]
pytestmark = pytest.mark.spark
_numbers = itertools.count()


def new_topic(running: Running, queues: int = 4) -> str:
    topic = f"Sink{next(_numbers)}"
    running.create_topic(topic, queues)
    return topic


def read(spark: SparkSession, running: Running, topic: str) -> DataFrame:
    given = {"nameServers": running.name_servers, "subscribe": topic}
    return spark.read.format("roquet").options(**given).load()


def orders(spark: SparkSession, count: int) -> DataFrame:
    return spark.range(count).selectExpr(
        "concat('body ', id) as body",
        "concat('k', id % 10) as keys",
        "if(id % 2 = 0, 'even', null) as tags",
        "map('n', cast(id as string), 'UNIQ_KEY', 'theirs') as properties",
    )


def test_rows_become_messages_with_their_fields(spark: SparkSession, running: Running) -> None:
    topic = new_topic(running)
    orders(spark, 1000).write.format("roquet").mode("append").options(
        nameServers=running.name_servers, topic=topic, partitioner="key"
    ).save()
    rows = read(spark, running, topic).collect()
    found = {int(row.properties["n"]): row for row in rows}
    assert len(rows) == len(found) == 1000
    for number, row in found.items():
        assert bytes(row.body).decode() == f"body {number}"
        assert row.keys == f"k{number % 10}"
        assert row.tags == ("even" if number % 2 == 0 else None)
        # What a broker or producer sets is made anew, never copied.
        assert row.uniqKey != "theirs"
    queues = {(row.keys, row.queueId) for row in rows}
    assert len(queues) == 10, "a key went to two queues"


def test_rows_go_to_the_queue_they_name(spark: SparkSession, running: Running) -> None:
    topic = new_topic(running)
    frame = spark.range(100).selectExpr(
        f"'{topic}' as topic", "cast(id as string) as body", "cast(id % 4 as int) as queueId"
    )
    frame.write.format("roquet").mode("append").options(
        nameServers=running.name_servers, partitioner="queue"
    ).save()
    rows = read(spark, running, topic).collect()
    assert sorted(int(bytes(row.body)) for row in rows) == list(range(100))
    assert all(int(bytes(row.body)) % 4 == row.queueId for row in rows)


@pytest.mark.parametrize(
    ("columns", "options", "words"),
    [
        (["id as body"], {}, "is bigint: must be"),
        (["'x' as text"], {}, "means nothing"),
        (["'x' as body"], {"topic": ""}, "topic"),
        (["'x' as body"], {"partitioner": "queue"}, "needs a column"),
        (["cast(null as string) as body"], {}, "no body"),
    ],
)
def test_what_cannot_be_a_message_is_refused(
    spark: SparkSession, running: Running, columns: list[str], options: dict[str, str], words: str
) -> None:
    given = {"nameServers": running.name_servers, "topic": "Sink", **options}
    frame = spark.range(1).selectExpr(*columns)
    with pytest.raises(PySparkException, match=words):
        frame.write.format("roquet").mode("append").options(**given).save()


def test_a_topic_is_never_overwritten(spark: SparkSession, running: Running) -> None:
    with pytest.raises(PySparkException, match="cannot be replaced"):
        orders(spark, 1).write.format("roquet").mode("overwrite").options(
            nameServers=running.name_servers, topic="Sink"
        ).save()


def test_a_stream_is_copied_from_topic_to_topic(
    spark: SparkSession, running: Running, tmp_path: Path
) -> None:
    source, target = new_topic(running), new_topic(running)
    orders(spark, 500).write.format("roquet").mode("append").options(
        nameServers=running.name_servers, topic=source
    ).save()
    query = (
        spark.readStream.format("roquet")
        .option("nameServers", running.name_servers)
        .option("subscribe", source)
        .option("startingOffsets", "earliest")
        .load()
        .select("body", "keys", "tags", "properties", "queueId")
        .writeStream.format("roquet")
        .option("nameServers", running.name_servers)
        .option("topic", target)
        .option("partitioner", "queue")
        .option("checkpointLocation", str(tmp_path))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(400)

    def content(topic: str) -> list[tuple[object, ...]]:
        rows = read(spark, running, topic).collect()
        return sorted((row.queueId, row.queueOffset, row.body, row.keys) for row in rows)

    copied = content(target)
    assert len(copied) == 500
    assert copied == content(source)


def test_unique_keys_of_a_plan_are_made_again(spark: SparkSession, running: Running) -> None:
    topic = new_topic(running)
    frame = spark.range(0, 300, numPartitions=3).selectExpr("cast(id as string) as body")
    given = {"nameServers": running.name_servers, "topic": topic, "uniqueKeys": "plan"}
    for run in ("first", "first", "second"):
        frame.write.format("roquet").mode("append").options(**given, runId=run).save()
    rows = read(spark, running, topic).select("body", "uniqKey").collect()
    assert len(rows) == 900
    by_body = itertools.groupby(sorted(rows), key=lambda row: row.body)
    assert [len({row.uniqKey for row in same}) for _, same in by_body] == [2] * 300
    assert len({row.uniqKey for row in rows}) == 600


def test_unique_keys_can_be_a_column(spark: SparkSession, running: Running) -> None:
    source, target = new_topic(running), new_topic(running)
    orders(spark, 100).write.format("roquet").mode("append").options(
        nameServers=running.name_servers, topic=source
    ).save()
    copied = read(spark, running, source)
    copied.selectExpr("body", "keys", "uniqKey", "keys as shardingKey").write.format("roquet").mode(
        "append"
    ).options(nameServers=running.name_servers, topic=target, partitioner="key").save()
    before, after = read(spark, running, source), read(spark, running, target)
    assert sorted(before.select("body", "uniqKey").collect()) == sorted(
        after.select("body", "uniqKey").collect()
    )
    rows = after.collect()
    assert all(row.properties["__SHARDINGKEY"] == row.keys for row in rows)
    assert len({(row.keys, row.queueId) for row in rows}) == 10


def test_a_row_may_have_a_delay(spark: SparkSession, running: Running) -> None:
    topic = new_topic(running)
    frame = spark.range(20).selectExpr(
        "cast(id as string) as body", "if(id % 2 = 0, 1, null) as delay", "concat('u', id) uniqKey"
    )
    frame.write.format("roquet").mode("append").options(
        nameServers=running.name_servers, topic=topic
    ).save()
    end = time.monotonic() + 120
    while len(rows := read(spark, running, topic).collect()) < 20:
        assert time.monotonic() < end, "a delayed message did not come"
    assert sorted(int(bytes(row.body)) for row in rows) == list(range(20))
    assert {row.uniqKey for row in rows} == {f"u{n}" for n in range(20)}
    for row in rows:
        late = int(bytes(row.body)) % 2 == 0
        waited = row.storeTimestamp - row.bornTimestamp
        assert (waited.total_seconds() >= 0.9) or not late


def test_transactional_stream_whose_commit_failed_writes_each_row_once(
    spark: SparkSession, running: Running, tmp_path: Path
) -> None:
    source, target = new_topic(running), new_topic(running)
    orders(spark, 60).write.format("roquet").mode("append").options(
        nameServers=running.name_servers, topic=source
    ).save()

    def copy() -> None:
        query = (
            spark.readStream.format("roquet")
            .options(nameServers=running.name_servers, subscribe=source)
            .option("startingOffsets", "earliest")
            .load()
            .select("body", "keys")
            .writeStream.format("roquet")
            .options(nameServers=running.name_servers, topic=target, delivery="transactional")
            .option("transactionPath", str(tmp_path / "decisions"))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(400)

    # The tasks have sent their rows, and the driver cannot note what it decides.
    (tmp_path / "decisions").write_text("")
    with pytest.raises(PySparkException):
        copy()
    assert read(spark, running, target).count() == 0
    (tmp_path / "decisions").unlink()
    copy()
    copy()
    bodies = [bytes(row.body).decode() for row in read(spark, running, target).collect()]
    assert sorted(bodies) == sorted(f"body {number}" for number in range(60))
    (kept,) = (tmp_path / "decisions").iterdir()
    assert '"done":true' in kept.read_text()
