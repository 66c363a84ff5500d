"""The jobs in a real Spark, over a real broker and copies of its disk."""

from __future__ import annotations

import itertools
import shutil
import uuid
import zlib
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions

from roquet import roquet_native as native
from roquet.client import Message
from roquet.spark.cluster.metadata import Metadata
from roquet.spark.jobs import audit, stats
from roquet.spark.jobs.shared.queries import sql
from roquet.spark.options import Wire
from roquet.spark.reading.sums import BUCKET
from roquet.testing.pair import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from roquet.spark.jobs.shared.report import Report
    from spark_harness import Running

pytest_plugins = ["spark_harness"]
pytestmark = pytest.mark.spark
_numbers = itertools.count()


def new_topic(running: Running, counts: tuple[int, ...]) -> str:
    """Fill queue n with counts[n] messages; every second one is about the key `$hot`."""
    topic = f"Job{next(_numbers)}"
    running.create_topic(topic, len(counts))
    for queue, count in enumerate(counts):
        made = [
            Message(topic, b"x" * 50, "ab"[n % 2], (f"q{queue}n{n}" if n % 2 else "$hot",))
            for n in range(count)
        ]
        if made:
            running.send(topic, made, queue)
    return topic


def traces(spark: SparkSession, running: Running, topic: str) -> str:
    """Trace the messages of a topic, a group a queue, all but one; return the trace topic."""
    given = {"nameServers": running.name_servers, "subscribe": topic}
    rows = spark.read.format("roquet").options(**given, columns="queueId,queueOffset,uniqKey")
    ids: dict[int, list[str]] = {}
    for row in rows.load().collect():
        if (row.queueId, row.queueOffset) != (1, 9):
            ids.setdefault(row.queueId, []).append(row.uniqKey)
    records = [
        (
            "Pub",
            1000,
            "R",
            f"p{queue}",
            topic,
            ",".join(them),
            "a",
            "k",
            "h:1",
            5,
            9,
            4,
            "O",
            "true",
        )
        for queue, them in ids.items()
    ]
    made = ["\x01".join(map(str, it)) + "\x02" for it in records]
    # A client that was not sure says it twice.
    running.create_topic(f"{topic}-traces", 1)
    bodies = [*made, made[0]]
    running.send(f"{topic}-traces", [Message(f"{topic}-traces", it.encode()) for it in bodies], 0)
    return f"{topic}-traces"


def test_stats_counts_what_was_sent_live_and_on_disk(
    spark: SparkSession, running: Running, tmp_path: Path
) -> None:
    topic = new_topic(running, (30, 10, 0))
    traced = traces(spark, running, topic)
    shutil.copytree(running.store / "commitlog", tmp_path / "store" / "commitlog")
    ends = {"live": {"nameServers": running.name_servers}, "disk": {"store": f"{tmp_path}/store"}}
    for name, end in ends.items():
        said: list[str] = []
        out = tmp_path / name
        given = {**end, "subscribe": topic, "metricsPath": str(tmp_path / "metrics")}
        given["traceTopic"] = traced
        report = stats.run(spark, {**given, "out": str(out)}, said.append)
        assert report.exit_code == 0
        assert report.lines == ("40 messages counted",)
        assert said[0].startswith("40 messages read")
        queues = spark.read.parquet(f"{out}/queues").orderBy("queueId").collect()
        shown = [(row.queueId, row.messages, row.lastOffset, row.skew) for row in queues]
        assert shown == [(0, 30, 29, 1.5), (1, 10, 9, 0.5)]
        (whole,) = spark.read.parquet(f"{out}/topics").collect()
        assert (whole.messages, whole.bytes) == (40, sum(row.bytes for row in queues))
        assert whole.latencyP50 <= whole.latencyP99 <= whole.latencyMax
        tags = spark.read.parquet(f"{out}/tags").collect()
        assert {row.tags: row.messages for row in tags} == {"a": 20, "b": 20}
        first, *others = (
            spark.read.parquet(f"{out}/keys").orderBy("messages", ascending=False).take(3)
        )
        assert (first.key, first.messages, first.share) == ("$hot", 20, 0.5)
        assert {row.messages for row in others} == {1}
        # Only the host of a producer counts: its port is another one for each connection.
        producers = spark.read.parquet(f"{out}/producers").collect()
        assert [(row.producer, row.messages, row.bytes) for row in producers] == [
            ("127.0.0.1", 40, whole.bytes)
        ]
        assert {row.producer for row in spark.read.parquet(f"{out}/minutes").collect()} == {
            "127.0.0.1"
        }
        # Brokers store no producer group; a message without a trace has none here either.
        groups = spark.read.parquet(f"{out}/groups").collect()
        assert {row.producerGroup: row.messages for row in groups} == {"p0": 30, "p1": 9, None: 1}
        assert sum(row.bytes for row in groups) == whole.bytes
        told = (tmp_path / "metrics/stats.prom").read_text()
        assert f'roquet_stats_messages{{topic="{topic}"}} 40' in told
        for table in ("minutes", "sizes"):
            rows = spark.read.parquet(f"{out}/{table}").collect()
            assert sum(row.messages for row in rows) == 40
        page = (out / "report.html").read_text()
        assert page.count("data:image/png;base64,") == 8
        assert "<b>40</b>" in page


def test_stats_of_nothing_is_a_page_that_says_so(
    spark: SparkSession, running: Running, tmp_path: Path
) -> None:
    topic = new_topic(running, (0, 0))
    given = {"nameServers": running.name_servers, "subscribe": topic, "out": str(tmp_path / "out")}
    assert stats.run(spark, given, lambda _: None).lines == ("0 messages counted",)
    assert "no messages" in (tmp_path / "out/report.html").read_text()


def audited(spark: SparkSession, **options: str) -> Report:
    said: list[str] = []
    report = audit.run(spark, options, said.append)
    assert len(said) == 4
    return report


def test_audit_of_equal_ends_finds_nothing(
    spark: SparkSession, running: Running, tmp_path: Path
) -> None:
    topic = new_topic(running, (12, 5))
    shutil.copytree(running.store / "commitlog", tmp_path / "store" / "commitlog")
    live = f"topic:{running.name_servers}"
    ends = {"left": live, "right": f"store:{tmp_path}/store", "brokerName": "broker-a"}
    report = audited(spark, **ends, subscribe=topic, out=f"{tmp_path}/out")
    assert report.exit_code == 0
    assert report.lines == (
        f"{topic} broker-a queue 0: 12 left (0 to 11), 12 right (0 to 11)",
        f"{topic} broker-a queue 1: 5 left (0 to 4), 5 right (0 to 4)",
        "no difference",
    )
    assert spark.read.parquet(f"{tmp_path}/out/differences").count() == 0


def test_audit_names_every_planted_difference(
    spark: SparkSession, running: Running, tmp_path: Path
) -> None:
    topic = new_topic(running, (12, 5))
    read = spark.read.format("roquet").option("nameServers", running.name_servers)
    rows = read.option("subscribe", topic).load().orderBy("queueId", "queueOffset").collect()
    schema = read.load().schema
    queue = {row.queueOffset: row.asDict() for row in rows if row.queueId == 0}
    keys = {offset: row["uniqKey"] for offset, row in queue.items()}
    right = [row.asDict() for row in rows if row.queueId == 1]
    queue[3]["body"] = b"other"
    queue[6]["queueOffset"], queue[7]["queueOffset"] = 7, 6
    again = {**queue[0], "queueOffset": 12}
    added = {**queue[0], "queueOffset": 13, "uniqKey": "new"}
    kept = [row for offset, row in queue.items() if offset != 9]
    right += [*kept, dict(queue[4]), again, added]
    values = [tuple(row[name] for name in schema.names) for row in right]
    spark.createDataFrame(values, schema).write.parquet(f"{tmp_path}/right")
    ends = {"left": f"topic:{running.name_servers}", "right": f"lake:{tmp_path}/right"}
    given = {"subscribe": topic, "metricsPath": str(tmp_path)}
    report = audited(spark, **ends, **given, out=f"{tmp_path}/out")
    assert report.exit_code == 1
    told = (tmp_path / "audit.prom").read_text().splitlines()
    assert 'roquet_audit_messages{end="left"} 17' in told
    assert 'roquet_audit_differences{kind="reordered"} 2' in told
    assert 'roquet_audit_differences{kind="damaged"} 0' in told
    place = f"{topic} broker-a queue 0 offset"
    assert sorted(report.lines[2:-1]) == [
        f"added {place} 13 new",
        f"changed {place} 3 {keys[3]}",
        f"duplicated {place} 12 {keys[0]}",
        f"duplicated {place} 4 {keys[4]}",
        f"lost {place} 9 {keys[9]}",
        f"reordered {place} 6, now at 7 {keys[6]}",
        f"reordered {place} 7, now at 6 {keys[7]}",
    ]
    assert (
        report.lines[-1] == "7 differences: 1 added, 1 changed, 2 duplicated, 1 lost, 2 reordered"
    )
    stored = spark.read.parquet(f"{tmp_path}/out/differences").collect()
    (changed,) = [row for row in stored if row.kind == "changed"]
    assert (changed.leftCRC, changed.rightCRC) == (zlib.crc32(b"x" * 50), zlib.crc32(b"other"))


def given_messages(running: Running) -> int:
    """Return how many messages the broker has given to consumers."""
    metadata = Metadata(Wire(name_servers=(running.name_servers,), retries=0))
    try:
        (broker,) = metadata.clusters().brokers.values()
        return int(metadata.runtime(broker.addresses[0])["msgGetTotalTodayNow"])
    finally:
        metadata.close()


@pytest.fixture
def apart(tmp_path: Path) -> Iterator[Running]:
    """A cluster of a test's own: others copy the shared one's log and expect one file."""
    import spark_harness  # noqa: PLC0415  (pytest rewrites it first)

    found = spark_harness.Running(tmp_path / "cluster")
    found.start()
    yield found
    found.stop()


@pytest.mark.parametrize("planted", ["changed", "lost", "nothing"])
def test_audit_reads_rows_of_the_bucket_alone_that_differs(
    spark: SparkSession, apart: Running, tmp_path: Path, planted: str
) -> None:
    running = apart
    count, at = 2 * BUCKET + 5_000, BUCKET + 777
    topic = f"Job{next(_numbers)}"
    running.create_topic(topic, 1)
    for begin in range(0, count, 1000):
        running.send(topic, [Message(topic, b"body %d" % (begin + n)) for n in range(1000)], 0)
    read = spark.read.format("roquet").option("nameServers", running.name_servers)
    rows = read.option("subscribe", topic).load()
    # On a busy machine the queue is behind the log for a while: the copy would lack the end.
    wait_until("all that was sent is in the queue", lambda: rows.count() == count)
    if planted == "changed":
        body = f"if(queueOffset = {at}, cast('other' as binary), body)"
        rows = rows.selectExpr(*(f"{body} as body" if it == "body" else it for it in rows.columns))
    elif planted == "lost":
        rows = rows.where(f"queueOffset <> {at}")
    rows.write.parquet(f"{tmp_path}/right")
    ends = {"left": f"topic:{running.name_servers}", "right": f"lake:{tmp_path}/right"}
    before = given_messages(running)
    report = audited(spark, **ends, subscribe=topic, out=f"{tmp_path}/out")
    given = given_messages(running) - before
    if planted == "nothing":
        assert report.lines[-1] == "no difference"
        assert given == 0
        return
    assert report.lines[-1] == f"1 differences: 1 {planted}"
    assert report.lines[1].startswith(f"{planted} {topic} broker-a queue 0 offset {at} ")
    assert given == BUCKET


def test_audit_shows_damage_of_a_store(
    spark: SparkSession, running: Running, tmp_path: Path
) -> None:
    topic = new_topic(running, (6,))
    for name in ("master", "slave"):
        shutil.copytree(running.store / "commitlog", tmp_path / name / "commitlog")
    log = spark.read.format("roquet-log").option("subscribe", topic).load(f"{tmp_path}/master")
    (row,) = log.where("queueOffset = 2").collect()
    with (tmp_path / f"slave/commitlog/{0:020}").open("r+b") as file:
        file.seek(row.physicalOffset + 90)  # inside of the body
        file.write(b"~")
    ends = {"left": f"store:{tmp_path}/master", "right": f"store:{tmp_path}/slave"}
    report = audited(spark, **ends, subscribe=topic, out=f"{tmp_path}/out")
    assert report.exit_code == 1
    _, damaged, lost, _ = report.lines
    assert damaged.startswith(f"damaged store:{tmp_path}/slave: ")
    assert f" from {row.physicalOffset} to {row.physicalOffset + row.storeSize}: " in damaged
    assert lost == f"lost {topic} queue 0 offset 2 {row.uniqKey}"


def test_audit_of_two_stores_names_every_planted_difference(
    spark: SparkSession, tmp_path: Path
) -> None:
    sound = [[(f"{number}-{at}", b"x" * 50) for at in range(6)] for number in range(6)]
    planted = [list(messages) for messages in sound]
    planted[0][3] = ("0-3", b"other")
    planted[1][5:] = []
    planted[2][2:4] = [sound[2][3], sound[2][2]]
    planted[3].append(sound[3][1])
    planted[4].append(("new", b"x"))
    for name, queues in (("left", sound), ("right", planted)):
        store = native.Store.open(
            {"storePathRootDir": str(tmp_path / name), "mappedFileSizeCommitLog": 1 << 20}
        )
        store.start()
        for at in range(7):
            for number, messages in enumerate(queues):
                for key, body in messages[at : at + 1]:
                    store.put("Planted", number, body, f"UNIQ_KEY\x01{key}\x02".encode())
        store.close()
    ends = {"left": f"store:{tmp_path}/left", "right": f"store:{tmp_path}/right"}
    report = audited(spark, **ends, out=f"{tmp_path}/out")
    assert report.exit_code == 1
    assert list(report.lines[6:]) == [
        "changed Planted queue 0 offset 3 0-3",
        "lost Planted queue 1 offset 5 1-5",
        "reordered Planted queue 2 offset 2, now at 3 2-2",
        "reordered Planted queue 2 offset 3, now at 2 2-3",
        "duplicated Planted queue 3 offset 6 3-1",
        "added Planted queue 4 offset 6 new",
        "6 differences: 1 added, 1 changed, 1 duplicated, 1 lost, 2 reordered",
    ]


def test_persisted_frame_is_made_once_however_often_a_query_names_it(spark: SparkSession) -> None:
    drawn = functions.udf(lambda: uuid.uuid4().hex).asNondeterministic()
    kept = spark.range(2).select(drawn().alias("drawn")).persist()
    try:
        asked = [sql(spark, "select drawn from {kept}", kept=kept).collect() for _ in range(2)]
        assert asked[0] == asked[1]
        assert kept.storageLevel.useMemory
    finally:
        kept.unpersist()
