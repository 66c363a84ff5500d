"""The source in a real Spark over a real broker."""

from __future__ import annotations

import datetime as dt
import itertools
import json
import zlib
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException

from roquet.client import Message
from roquet.spark.schema import COLUMNS
from spark_streams import micro_batches

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from spark_harness import Running

pytest_plugins = ["spark_harness"]
pytestmark = pytest.mark.spark
_numbers = itertools.count()


def new_topic(running: Running, queues: int = 4) -> str:
    topic = f"T{next(_numbers)}"
    running.create_topic(topic, queues)
    return topic


def fill(running: Running, topic: str, count: int, *, queues: int = 4, begin: int = 0) -> None:
    """Send bodies `begin`..., number n to queue n % queues, with key kN and tag even or odd."""
    for queue in range(queues):
        messages = [
            Message(topic, f"body {n}".encode(), ("even", "odd")[n % 2], (f"k{n}",), {"n": str(n)})
            for n in range(begin, begin + count)
            if n % queues == queue
        ]
        if messages:
            running.send(topic, messages, queue)


@pytest.fixture
def filtering(running: Running, tmp_path: Path) -> Iterator[Running]:
    """A cluster whose broker evaluates SQL92."""
    folder = tmp_path / "cluster"
    folder.mkdir()
    # The harness is a plugin: a module that imports it as well cannot be collected alone.
    found = type(running)(folder, enablePropertyFilter="true")
    found.start()
    yield found
    found.stop()


@pytest.fixture
def load(spark: SparkSession, running: Running) -> Callable[..., DataFrame]:
    def read(topic: str, **options: Any) -> DataFrame:
        given = {"nameServers": running.name_servers, "subscribe": topic, **options}
        return spark.read.format("roquet").options(**given).load()

    return read


def bodies(frame: DataFrame) -> list[str]:
    return sorted(bytes(row.body).decode() for row in frame.select("body").collect())


def expected(count: int, begin: int = 0) -> list[str]:
    return sorted(f"body {n}" for n in range(begin, begin + count))


def test_batch_has_every_message_and_column(
    load: Callable[..., DataFrame], running: Running
) -> None:
    topic = new_topic(running)
    fill(running, topic, 200)
    frame = load(topic)
    assert tuple(frame.columns) == COLUMNS
    rows = frame.collect()
    assert sorted(bytes(row.body).decode() for row in rows) == expected(200)
    row = next(row for row in rows if bytes(row.body) == b"body 7")
    assert (row.topic, row.brokerName, row.queueId, row.queueOffset) == (topic, "broker-a", 3, 1)
    assert (row.keys, row.tags, row.properties["n"]) == ("k7", "odd", "7")
    assert row.bodyCRC == zlib.crc32(b"body 7") & 0x7FFFFFFF
    assert row.storeTimestamp >= row.bornTimestamp
    assert row.uniqKey == row.properties["UNIQ_KEY"]
    for queue in range(4):
        offsets = sorted(row.queueOffset for row in rows if row.queueId == queue)
        assert offsets == list(range(50))


def test_batch_is_split_and_reads_each_row_once(
    load: Callable[..., DataFrame], running: Running
) -> None:
    topic = new_topic(running)
    fill(running, topic, 300)
    frame = load(topic, minPartitions="9", columns="queueId,queueOffset,body")
    assert frame.rdd.getNumPartitions() >= 9
    assert frame.columns == ["queueId", "queueOffset", "body"]
    assert bodies(frame) == expected(300)


def test_batch_by_tag_offset_and_time(load: Callable[..., DataFrame], running: Running) -> None:
    topic = new_topic(running, 1)
    fill(running, topic, 100, queues=1)
    assert bodies(load(topic, tags="even")) == sorted(f"body {n}" for n in range(0, 100, 2))
    window = {
        "startingOffsets": json.dumps({topic: {"broker-a": {"0": 10}}}),
        "endingOffsets": json.dumps({topic: {"broker-a": {"0": 20}}}),
    }
    assert bodies(load(topic, **window)) == expected(10, 10)
    last = load(topic).selectExpr("max(unix_millis(storeTimestamp))").first()
    assert last is not None
    assert bodies(load(topic, startingTimestamp=str(last[0] + 1))) == []
    assert len(bodies(load(topic, startingTimestamp=str(last[0])))) > 0
    assert bodies(load(topic, startingTimestamp="0")) == expected(100)


def test_batch_of_an_empty_topic_has_no_row(
    load: Callable[..., DataFrame], running: Running
) -> None:
    assert load(new_topic(running)).count() == 0


def test_batch_reports_lost_messages(load: Callable[..., DataFrame], running: Running) -> None:
    topic = new_topic(running, 1)
    fill(running, topic, 10, queues=1)
    beyond = {"endingOffsets": json.dumps({topic: {"broker-a": {"0": 15}}})}
    with pytest.raises(PySparkException, match=r"5 messages of .*\[0, 15\) are lost"):
        load(topic, **beyond).count()
    assert bodies(load(topic, failOnDataLoss="false", **beyond)) == expected(10)


def test_pattern_and_assign_choose_queues(spark: SparkSession, running: Running) -> None:
    first, second = new_topic(running, 2), new_topic(running, 2)
    fill(running, first, 10, queues=2)
    fill(running, second, 10, queues=2, begin=10)
    reader = spark.read.format("roquet").option("nameServers", running.name_servers)
    both = reader.option("subscribePattern", f"{first}|{second}").load()
    assert bodies(both) == expected(20)
    reader = spark.read.format("roquet").option("nameServers", running.name_servers)
    one = reader.option("assign", json.dumps({second: {"broker-a": [1]}})).load()
    assert bodies(one) == sorted(f"body {n}" for n in range(11, 20, 2))


def test_wrong_options_say_what_is_right(load: Callable[..., DataFrame]) -> None:
    with pytest.raises(PySparkException, match="did you mean: startingOffsets"):
        load("T", startingOfsets="earliest")
    with pytest.raises(PySparkException, match="topic NoSuchTopic does not exist"):
        load("NoSuchTopic").count()


def test_stream_goes_on_where_it_stopped(
    spark: SparkSession, running: Running, tmp_path: Path
) -> None:
    topic = new_topic(running)
    fill(running, topic, 100)
    rows = micro_batches(spark, running.name_servers, topic, tmp_path, maxOffsetsPerTrigger="40")
    assert [count for count in rows if count] == [40, 40, 20]
    fill(running, topic, 60, begin=100)
    micro_batches(spark, running.name_servers, topic, tmp_path)
    out = spark.read.parquet(str(tmp_path / "out"))
    assert bodies(out) == expected(160)
    offsets = sorted((tmp_path / "checkpoint" / "offsets").glob("[0-9]*"))
    last = json.loads(offsets[-1].read_text().splitlines()[-1])
    assert (last["v"], last["q"]) == (1, {topic: {"broker-a": {str(n): 40 for n in range(4)}}})
    stored = out.groupBy("queueId").agg({"storeTimestamp": "max"}).collect()
    assert last["s"][topic]["broker-a"] == {
        str(row[0]): round(row[1].replace(tzinfo=dt.UTC).timestamp() * 1000) for row in stored
    }


def test_stream_takes_up_new_queues(spark: SparkSession, running: Running, tmp_path: Path) -> None:
    topic = new_topic(running, 2)
    fill(running, topic, 20, queues=2)
    micro_batches(spark, running.name_servers, topic, tmp_path)
    running.create_topic(topic, 4)
    fill(running, topic, 40, begin=20)
    micro_batches(spark, running.name_servers, topic, tmp_path)
    assert bodies(spark.read.parquet(str(tmp_path / "out"))) == expected(60)


def test_stream_fails_when_a_topic_is_gone(
    spark: SparkSession, running: Running, tmp_path: Path
) -> None:
    topic = new_topic(running, 1)
    fill(running, topic, 5, queues=1)
    micro_batches(spark, running.name_servers, topic, tmp_path)
    running.delete_topic(topic)
    with pytest.raises(PySparkException, match=r"queue .* is gone, read up to 5"):
        micro_batches(spark, running.name_servers, topic, tmp_path)
    assert (
        sum(micro_batches(spark, running.name_servers, topic, tmp_path, failOnDataLoss="false"))
        == 0
    )


def test_filters_are_pushed_down_when_asked_for(
    spark: SparkSession, load: Callable[..., DataFrame], running: Running
) -> None:
    topic = new_topic(running)
    fill(running, topic, 100)
    name = "spark.sql.python.filterPushdown.enabled"
    spark.conf.set(name, "true")
    try:
        frame = load(topic, pushdown="true", columns="queueId,queueOffset,tags,body")
        found = frame.where("queueId = 2 and queueOffset between 5 and 9 and tags in ('even')")
        assert found.rdd.getNumPartitions() == 1
        assert bodies(found) == sorted(f"body {n}" for n in range(22, 40, 4))
    finally:
        spark.conf.unset(name)
    assert bodies(load(topic).where("queueId = 2 and queueOffset = 5")) == ["body 22"]


def test_a_stream_tells_its_lag(spark: SparkSession, running: Running, tmp_path: Path) -> None:
    topic = new_topic(running, 2)
    fill(running, topic, 60, queues=2)
    told = tmp_path / "metrics"
    rows = micro_batches(
        spark,
        running.name_servers,
        topic,
        tmp_path,
        metricsPath=str(told),
        maxBytesPerTrigger="5000",
    )
    assert sum(rows) == 60
    assert len([count for count in rows if count]) > 1
    progress = spark.read.json(str(told / "progress.jsonl"))
    assert progress.selectExpr("sum(offsets)").first() == (60,)
    page = (told / "lag.prom").read_text()
    assert f'roquet_spark_source_lag_messages{{topic="{topic}",broker="broker-a"}}' in page


def test_sql92_chooses_in_batch_and_stream(
    spark: SparkSession, filtering: Running, tmp_path: Path
) -> None:
    topic = new_topic(filtering, 2)
    fill(filtering, topic, 40, queues=2)
    wanted = {"sql": "n between 10 and 19 and TAGS = 'odd'"}
    given = {"nameServers": filtering.name_servers, "subscribe": topic, **wanted}
    frame = spark.read.format("roquet").options(**given).load()
    chosen = sorted(f"body {n}" for n in range(11, 20, 2))
    assert bodies(frame) == chosen
    rows = micro_batches(spark, filtering.name_servers, topic, tmp_path, **wanted)
    assert sum(rows) == 5
    assert bodies(spark.read.parquet(str(tmp_path / "out"))) == chosen
