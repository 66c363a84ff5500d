"""What a source must never pass over in silence, in a real Spark, batch and stream."""

from __future__ import annotations

import itertools
import json
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException

from roquet.base.errors import Unreachable
from roquet.client import Message
from roquet.remoting.server import Server
from roquet.spark.jobs import audit, dlq, stats, trace
from spark_streams import follow
from spark_world import World

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from spark_harness import Running

pytest_plugins = ["spark_harness"]
pytestmark = pytest.mark.spark
_numbers = itertools.count()


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    found = World(tmp_path_factory.mktemp("world"))
    found.start()
    yield found
    found.stop()


def named() -> str:
    return f"Truth{next(_numbers)}"


def load(spark: SparkSession, servers: str, topic: str, **options: str) -> DataFrame:
    given = {"nameServers": servers, "subscribe": topic, **options}
    return spark.read.format("roquet").options(**given).load()


def refill(running: Running, topic: str, bodies: list[str], *, anew: bool) -> None:
    if anew:
        running.delete_topic(topic)
    running.create_topic(topic, 1)
    running.send(topic, [Message(topic, it.encode()) for it in bodies], 0)


def text_of(path: Path) -> str:
    """Return what is in a file; nothing when it is not there yet."""
    return path.read_text() if path.exists() else ""


def new_bodies(spark: SparkSession, folder: Path) -> set[str]:
    rows = spark.read.parquet(str(folder / "out")).select("body").collect()
    return {text for row in rows if (text := bytes(row.body).decode()).startswith("new")}


@pytest.mark.parametrize(
    ("count", "why"), [(20, "its end moved back"), (30, "another one now"), (50, "another one now")]
)
def test_stream_topic_made_anew_fails_or_is_read_from_its_beginning(
    spark: SparkSession, running: Running, tmp_path: Path, count: int, why: str
) -> None:
    topic = named()
    refill(running, topic, [f"old {n}" for n in range(30)], anew=False)
    assert follow(spark, running.name_servers, topic, tmp_path) == 30
    refill(running, topic, [f"new {n}" for n in range(count)], anew=True)
    with pytest.raises(PySparkException, match=rf"queue {topic}/broker-a/0: .*{why}") as caught:
        follow(spark, running.name_servers, topic, tmp_path)
    assert "failOnDataLoss" not in str(caught.value)
    told = tmp_path / "told"
    lenient = {"failOnDataLoss": "false", "metricsPath": str(told)}
    assert follow(spark, running.name_servers, topic, tmp_path, **lenient) == count
    assert new_bodies(spark, tmp_path) == {f"new {n}" for n in range(count)}
    lines = list(map(json.loads, (told / "progress.jsonl").read_text().splitlines()))
    (anew,) = [line for line in lines if "begunAnew" in line]
    assert anew["begunAnew"] == 1
    assert why in json.loads(anew["why"])[f"{topic}/broker-a/0"]
    assert "roquet_spark_source_begun_anew_total 1\n" in (told / "lag.prom").read_text()


def test_stream_checkpoint_of_earlier_release_is_read_on(
    spark: SparkSession, running: Running, tmp_path: Path
) -> None:
    topic = named()
    refill(running, topic, [f"old {n}" for n in range(30)], anew=False)
    assert follow(spark, running.name_servers, topic, tmp_path) == 30
    for file in (tmp_path / "checkpoint" / "offsets").glob("[0-9]*"):
        # As releases wrote it that kept no store times.
        *head, last = file.read_text().splitlines()
        kept = json.loads(last)
        kept.pop("s", None)
        file.write_text("\n".join([*head, json.dumps(kept, separators=(",", ":"))]))
        (file.parent / f".{file.name}.crc").unlink(missing_ok=True)
    refill(running, topic, [f"new {n}" for n in range(12)], anew=False)
    assert follow(spark, running.name_servers, topic, tmp_path) == 12
    assert len(new_bodies(spark, tmp_path)) == 12


def test_batch_begin_above_the_end_fails_or_reads_from_the_beginning(
    spark: SparkSession, running: Running
) -> None:
    topic = named()
    refill(running, topic, [f"new {n}" for n in range(20)], anew=False)
    above = {"startingOffsets": json.dumps({topic: {"broker-a": {"0": 30}}})}
    with pytest.raises(PySparkException, match="read up to offset 30 and has"):
        load(spark, running.name_servers, topic, **above).count()
    lenient = load(spark, running.name_servers, topic, failOnDataLoss="false", **above)
    assert lenient.count() == 20


def test_batch_broker_away_is_waited_for_or_named(spark: SparkSession, world: World) -> None:
    topic = named()
    world.fill(topic, 50)
    both = {"brokers": "broker-a,broker-b"}
    world.stop_broker("broker-b")
    try:
        with pytest.raises(PySparkException, match="broker broker-b is not registered"):
            load(spark, world.name_servers, topic, unreachableTimeoutMs="500", **both).count()
        # Without any names, the name server says who left.
        with pytest.raises(PySparkException, match="broker broker-b is not registered"):
            load(spark, world.name_servers, topic, unreachableTimeoutMs="500").count()
        assert load(spark, world.name_servers, topic, brokers="broker-a").count() == 100
        # A queue that is named names its broker.
        window = {"endingOffsets": json.dumps({topic: {"broker-b": {"0": 50}}})}
        frame = load(spark, world.name_servers, topic, unreachableTimeoutMs="500", **window)
        with pytest.raises(PySparkException, match="broker broker-b is not registered"):
            frame.count()
    finally:
        world.start_later("broker-b", 2.0)
    assert load(spark, world.name_servers, topic).count() == 200


def test_jobs_broker_away_is_waited_for_or_named(
    spark: SparkSession, world: World, tmp_path: Path
) -> None:
    topic, group = named(), named()
    for filled in (topic, f"%DLQ%{group}"):
        world.fill(filled, 5, queues=1)
    given = {
        "out": str(tmp_path),
        "nameServers": world.name_servers,
        "unreachableTimeoutMs": "500",
    }
    live = f"topic:{world.name_servers}"
    both = {"left": live, "right": live, "nameServers": ""}
    jobs: list[tuple[Any, dict[str, str]]] = [
        (stats.run, {"subscribe": topic}),
        (audit.run, {"subscribe": topic, **both}),
        (trace.run, {"traceTopic": topic}),
        (dlq.run, {"groups": group}),
    ]
    world.stop_broker("broker-b")
    try:
        for run, more in jobs:
            options = {name: it for name, it in {**given, **more}.items() if it}
            with pytest.raises(
                (PySparkException, Unreachable), match="broker broker-b is not registered"
            ):
                run(spark, options, print)
    finally:
        world.start_broker("broker-b")


def test_dlq_broker_that_has_originals_alone_is_waited_for_or_named(
    spark: SparkSession, tmp_path: Path
) -> None:
    own = World(tmp_path / "world")
    own.start()
    try:
        own.put("Origin", "broker-b", {"UNIQ_KEY": "u"})
        own.put("%DLQ%g", "broker-a", {"UNIQ_KEY": "u", "RETRY_TOPIC": "Origin"})
        given = {
            "out": str(tmp_path / "out"),
            "nameServers": own.name_servers,
            "unreachableTimeoutMs": "500",
        }
        own.stop_broker("broker-b")
        try:
            with pytest.raises(Unreachable, match="broker broker-b is not registered"):
                dlq.run(spark, given, print)
        finally:
            own.start_broker("broker-b")
        dlq.run(spark, {**given, "unreachableTimeoutMs": "60000"}, print)
        (letter,) = spark.read.parquet(str(tmp_path / "out" / "letters")).collect()
        assert (letter.originTopic, letter.originBrokerName) == ("Origin", "broker-b")
        assert letter.original == "found"
    finally:
        own.stop()


def test_stream_broker_away_is_no_lost_message(
    spark: SparkSession, world: World, tmp_path: Path
) -> None:
    topic = named()
    world.fill(topic, 50)
    assert follow(spark, world.name_servers, topic, tmp_path) == 200
    world.fill(topic, 10, begin=50)
    world.stop_broker("broker-b")
    try:
        with pytest.raises(PySparkException, match="broker broker-b is not registered") as caught:
            follow(spark, world.name_servers, topic, tmp_path, unreachableTimeoutMs="500")
        assert "DataLoss" not in str(caught.value)
        assert "failOnDataLoss" not in str(caught.value)
        # It was removed for good: those that remain are named, and the others' offsets stay.
        remaining = {"brokers": "broker-a", "unreachableTimeoutMs": "500"}
        assert follow(spark, world.name_servers, topic, tmp_path, **remaining) == 20
    finally:
        # It is away when the query begins, and comes while that waits.
        told = tmp_path / "told"
        world.start_when("broker-b", lambda: "waiting" in text_of(told / "progress.jsonl"))
    more = {"metricsPath": str(told)}
    assert follow(spark, world.name_servers, topic, tmp_path, **more) == 20
    assert "broker broker-b is not registered" in text_of(told / "progress.jsonl")


def test_stream_short_queue_is_read_beside_a_long_backlog(
    spark: SparkSession, running: Running, tmp_path: Path
) -> None:
    topic = named()
    running.create_topic(topic, 2)
    running.send(topic, [Message(topic, b"long")] * 500, 0)
    running.send(topic, [Message(topic, b"short")], 1)
    follow(spark, running.name_servers, topic, tmp_path, maxOffsetsPerTrigger="250")
    parts = spark.read.parquet(str(tmp_path / "out"))
    assert parts.count() == 501
    first = json.loads((tmp_path / "checkpoint/offsets/0").read_text().splitlines()[-1])
    assert first["q"][topic]["broker-a"] == {"0": 249, "1": 1}


def test_tasks_of_many_ranges_share_a_connection_a_worker(
    spark: SparkSession, running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = named()
    refill(running, topic, ["x"] * 400, anew=False)
    count = 0
    real = Server._admit

    def admit(server: Server, accepted: Any, host: str, port: int) -> None:
        nonlocal count
        count += 1
        real(server, accepted, host, port)

    monkeypatch.setattr(Server, "_admit", admit)
    frame = load(spark, running.name_servers, topic, minPartitions="20", columns="queueOffset")
    assert frame.count() == 400
    # The driver's to name server and broker, and one of each of the few workers.
    assert count <= 8, "a connection for each range"


def test_sql_table_and_schema_choose_columns(spark: SparkSession, running: Running) -> None:
    topic = named()
    refill(running, topic, [f"new {n}" for n in range(10)], anew=False)
    where = f"nameServers '{running.name_servers}', subscribe '{topic}'"
    spark.sql(f"create table sql_{topic} using roquet options ({where}, columns 'queueId,body')")
    try:
        (row,) = spark.sql(
            f"select count(*) n, max(queueId) q, min(cast(body as string)) b from sql_{topic}"
        ).collect()
        assert (row.n, row.q, row.b) == (10, 0, "new 0")
        assert spark.readStream.table(f"sql_{topic}").columns == ["queueId", "body"]
        # Spark hands over the options of a catalog's table only when it is made without columns.
        with pytest.raises(PySparkException, match="hands over no option of a catalog's table"):
            spark.sql(f"insert into sql_{topic} select * from sql_{topic}")
        spark.sql(f"create table listed_{topic} (body binary) using roquet options ({where})")
        with pytest.raises(PySparkException, match="leave the columns out"):
            spark.sql(f"select * from listed_{topic}").collect()
        spark.sql(f"create temporary view v_{topic} (body binary) using roquet options ({where})")
        assert spark.table(f"v_{topic}").columns == ["body"]
        assert spark.table(f"v_{topic}").count() == 10
    finally:
        spark.sql(f"drop table sql_{topic}")
        spark.sql(f"drop table if exists listed_{topic}")
        spark.sql(f"drop view if exists v_{topic}")
    given = {"nameServers": running.name_servers, "subscribe": topic}
    reader = spark.read.format("roquet").options(**given)
    chosen = reader.schema("body binary, queueOffset bigint").load()
    assert chosen.columns == ["body", "queueOffset"]
    assert sorted(bytes(row[0]).decode() for row in chosen.collect()) == [
        f"new {n}" for n in range(10)
    ]
    for wrong, words in (
        ("body string", "column 'body' is binary, not string"),
        ("text string", "there is no column 'text'"),
    ):
        with pytest.raises(PySparkException, match=words):
            reader.schema(wrong).load().count()


def test_pattern_leaves_system_topics_out_and_paths_may_be_uris(
    spark: SparkSession, running: Running
) -> None:
    topic = named()
    refill(running, topic, ["x"], anew=False)
    given = {"nameServers": running.name_servers, "subscribePattern": ".*", "columns": "topic"}
    reader = spark.read.format("roquet").options(**given)
    topics = {row[0] for row in reader.load().distinct().collect()}
    assert topic in topics
    log = spark.read.format("roquet-log").option("subscribePattern", f"{topic}|TBW102")
    assert log.load(f"file://{running.store}").count() == 1
    with pytest.raises(PySparkException, match="folders that every worker has"):
        log.load("file://elsewhere/store").count()


def test_sink_small_tasks_spread_over_queues_and_brokers(spark: SparkSession, world: World) -> None:
    topic, copy = named(), named()
    world.fill(topic, 0)
    world.fill(copy, 0)
    frame = spark.range(0, 400, 1, 20).selectExpr("concat('row ', id) as body", "0 as queueId")
    to = {"nameServers": world.name_servers}
    frame.drop("queueId").write.format("roquet").mode("append").options(topic=topic, **to).save()
    read = load(spark, world.name_servers, topic)
    counts = read.groupBy("brokerName", "queueId").count().collect()
    assert sorted(row[2] for row in counts) == [100, 100, 100, 100]
    # Rows of the source as they are: each to its broker and queue.
    read.drop("topic").write.format("roquet").mode("append").options(
        topic=copy, partitioner="queue", **to
    ).save()
    place = ("brokerName", "queueId", "body")
    copied = load(spark, world.name_servers, copy)
    assert sorted(copied.select(*place).collect()) == sorted(read.select(*place).collect())
    frame.write.format("roquet").mode("append").options(
        topic=copy, partitioner="queue", brokerName="broker-b", **to
    ).save()
    after = load(spark, world.name_servers, copy).groupBy("brokerName", "queueId").count()
    found = {(row[0], row[1]): row[2] for row in after.collect()}
    assert found[("broker-b", 0)] == 500


def test_sink_broker_away_is_named(spark: SparkSession, world: World) -> None:
    topic = named()
    world.fill(topic, 0)
    frame = spark.range(0, 20, 1, 1).selectExpr("concat('row ', id) as body")
    given = {"nameServers": world.name_servers, "topic": topic, "brokerName": "broker-b"}
    few = {"fetchOffset.numRetries": "0", "unreachableTimeoutMs": "0"}
    world.stop_broker("broker-b")
    try:
        with pytest.raises(PySparkException, match="broker broker-b has no queue of topic"):
            frame.write.format("roquet").mode("append").options(**few, **given).save()
    finally:
        world.start_broker("broker-b")
    frame.write.format("roquet").mode("append").options(**few, **given).save()
    assert load(spark, world.name_servers, topic).count() == 20
