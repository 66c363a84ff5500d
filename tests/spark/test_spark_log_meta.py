"""Commit-log files and metadata as tables, in a real Spark."""

from __future__ import annotations

import asyncio
import itertools
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException

from roquet.client import Message, MessageQueue, connect
from roquet.spark.jobs import stats
from roquet.spark.schema import COLUMNS
from s3_server import BUCKET, S3

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from spark_harness import Running

pytest_plugins = ["spark_harness"]
pytestmark = pytest.mark.spark
VECTORS = Path(__file__).parents[1] / "vectors/store/clean"
_numbers = itertools.count()


def new_topic(running: Running, count: int) -> str:
    topic = f"Log{next(_numbers)}"
    running.create_topic(topic, 2)
    for queue in range(2):
        bodies = [f"{n}".encode() for n in range(count) if n % 2 == queue]
        running.send(topic, [Message(topic, body, "t", (f"k{queue}",)) for body in bodies], queue)
    return topic


def live(spark: SparkSession, running: Running, topic: str) -> DataFrame:
    given = {"nameServers": running.name_servers, "subscribe": topic}
    return spark.read.format("roquet").options(**given).load()


def test_a_dead_broker_s_disk_has_what_the_broker_had(
    spark: SparkSession, running: Running, tmp_path: Path
) -> None:
    topic = new_topic(running, 300)
    shutil.copytree(running.store / "commitlog", tmp_path / "disk" / "commitlog")
    log = (
        spark.read.format("roquet-log")
        .option("subscribe", topic)
        .option("brokerName", "broker-a")
        .option("minPartitions", "3")
        .load(str(tmp_path / "disk"))
    )
    assert tuple(log.columns) == COLUMNS
    assert log.rdd.getNumPartitions() >= 3
    names = [name for name in COLUMNS if name != "properties"]
    found = {tuple(row) for row in log.select(*names).collect()}
    assert found == {tuple(row) for row in live(spark, running, topic).select(*names).collect()}
    assert len(found) == 300


def test_dead_broker_s_store_in_s3_is_read_by_tasks_and_jobs(
    spark: SparkSession, tmp_path: Path
) -> None:
    # Their keys are in the environment that the session began with.
    with S3() as s3:
        for file in (VECTORS / "commitlog").iterdir():
            s3.put(f"dead/store/commitlog/{file.name}", file.read_bytes())
        storage = {"storageEndpoint": s3.endpoint, "storageCredentials": "lake"}
        path = f"s3a://{BUCKET}/dead/store"
        reader = spark.read.format("roquet-log")
        there = reader.options(**storage).load(path)
        disk = reader.load(str(VECTORS))
        assert there.drop("properties").exceptAll(disk.drop("properties")).isEmpty()
        assert there.count() == disk.count() > 0
        report = stats.run(
            spark, {"store": path, "out": str(tmp_path / "out"), **storage}, lambda _: None
        )
        assert report.exit_code == 0
        assert (tmp_path / "out/report.html").exists()


def test_damage_is_an_error_or_a_row(spark: SparkSession, tmp_path: Path) -> None:
    shutil.copytree(VECTORS / "commitlog", tmp_path / "commitlog")
    file = tmp_path / "commitlog" / f"{0:020}"
    reader = spark.read.format("roquet-log")
    golden = reader.load(str(tmp_path)).where("topic = 'GoldenTopic'").orderBy("physicalOffset")
    before = golden.collect()
    with file.open("r+b") as log:
        log.seek(before[3].physicalOffset + 90)  # inside of the body
        log.write(b"~~~")
    with pytest.raises(PySparkException, match="no record can be read at offset"):
        reader.load(str(tmp_path)).count()
    left = spark.read.format("roquet-log").option("onCorrupt", "report").load(str(tmp_path))
    kept = left.where("topic = 'GoldenTopic'").orderBy("physicalOffset").collect()
    assert kept == [row for row in before if row != before[3]]
    damage = spark.read.format("roquet-log").option("table", "damage").load(str(tmp_path))
    (row,) = damage.collect()
    assert (row.file, row.beginOffset) == (str(file), before[3].physicalOffset)
    assert row.bytes == before[3].storeSize


def test_wrong_log_options_fail_before_a_task_starts(spark: SparkSession) -> None:
    with pytest.raises(PySparkException, match="did you mean: onCorrupt"):
        spark.read.format("roquet-log").option("onCorupt", "fail").load("/tmp")
    with pytest.raises(PySparkException, match="no such folder"):
        spark.read.format("roquet-log").load("/no/such/folder").count()


def test_metadata_is_a_set_of_tables(spark: SparkSession, running: Running) -> None:
    topic = new_topic(running, 40)

    async def consume() -> None:
        async with connect(running.name_servers) as mq, mq.pull_consumer("readers") as consumer:
            await consumer.queues(topic)
            await consumer.commit({MessageQueue(topic, "broker-a", 1): 15})

    asyncio.run(consume())

    def table(name: str, **options: str) -> DataFrame:
        given = {"nameServers": running.name_servers, "table": name, **options}
        return spark.read.format("roquet-meta").options(**given).load()

    (broker,) = table("brokers").collect()
    assert (broker.brokerName, broker.brokerId) == ("broker-a", 0)
    (found,) = table("topics", subscribe=topic).collect()
    assert (found.topic, found.readQueues, found.writeQueues, found.perm) == (topic, 2, 2, 6)
    queues = table("queues", subscribePattern=f"{topic}|NoSuch").orderBy("queueId").collect()
    assert [(row.queueId, row.minOffset, row.maxOffset) for row in queues] == [
        (0, 0, 20),
        (1, 0, 20),
    ]
    assert queues[0].lastStoreTimestamp is not None
    (lag,) = table("groups", groups="readers", subscribe=topic).collect()
    assert tuple(lag)[:-1] == ("readers", topic, "broker-a", 1, 15, 20, 5, 0)
    assert lag.lastStoreTimestamp == queues[1].lastStoreTimestamp
    assert table("groups", groups="nobody").count() == 0
    with pytest.raises(PySparkException, match="NoSuchTopic does not exist"):
        table("queues", subscribe="NoSuchTopic").count()
