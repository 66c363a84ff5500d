"""Archiving what was archived before changes nothing; replaying keeps brokers and queues."""

from __future__ import annotations

import itertools
import shutil
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException

from lake_harness import World
from pyspark_roquet import whole_topic
from roquet import sync
from roquet.base.errors import UsageError
from roquet.client import Message, MessageQueue
from roquet.spark.jobs import archive, audit, replay
from roquet.spark.jobs.archiving import upkeep
from roquet.spark.jobs.storage.files import LakeError
from roquet.testing.pair import wait_until
from spark_world import World as Two

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import Row, SparkSession

    from spark_harness import Running

pytest_plugins = ["spark_harness"]
pytestmark = pytest.mark.spark


def test_archive_killed_before_spark_noted_the_micro_batch_writes_it_once(
    spark: SparkSession, running: Running, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    world = World(spark, running, tmp_path)
    world.send(40)
    world.archive()
    world.is_whole()

    def files() -> dict[str, int]:
        found = [*world.out.rglob("*.parquet"), *(world.out / "_catalog").rglob("*.json")]
        return {str(it): it.stat().st_mtime_ns for it in found}

    before = files()
    # What a kill leaves between the lake's commit and Spark's own note.
    shutil.rmtree(world.out / "_checkpoint" / "commits")
    report = world.archive()
    assert report.lines[0].startswith("0 messages archived"), report.lines
    assert files() == before
    world.is_whole()
    world.send(10)
    world.archive()
    world.is_whole()
    assert capsys.readouterr().err == ""


def test_archive_of_a_topic_made_anew_stops_and_changes_nothing(
    spark: SparkSession, running: Running, tmp_path: Path
) -> None:
    world = World(spark, running, tmp_path)
    world.send(20)
    world.archive()
    running.delete_topic(world.topic)
    running.create_topic(world.topic, 2)
    # Longer than the old one: what it has at the old offsets is other messages all the same.
    sent, world.sent = world.sent, 100
    world.send(30)
    with pytest.raises(PySparkException, match="another one now"):
        world.archive()
    for _ in range(2):
        with pytest.raises(PySparkException, match="Either its topic was made anew"):
            world.archive(failOnDataLoss="false")
    # Nor does it go on in the middle of the new one where its own notes are lost.
    shutil.rmtree(world.out / "_checkpoint")
    with pytest.raises(LakeError, match=r"another one now.* a lake of its own"):
        world.archive()
    world.sent = sent
    world.is_whole()
    new = tmp_path / "new"
    report = world.archive(out=str(new))
    assert report.lines[0].startswith("60 messages archived")


def test_whole_topic_has_archived_and_live_messages_once(
    spark: SparkSession, running: Running, tmp_path: Path
) -> None:
    world = World(spark, running, tmp_path)
    given = {"nameServers": running.name_servers, "subscribe": world.topic}

    def offsets(**how: str) -> list[tuple[int, int]]:
        rows = whole_topic(spark, str(world.out), given, **how)
        assert rows.columns == world.lake.read().columns
        found = rows.selectExpr("queueId", "queueOffset", "body", "day = to_date(storeTimestamp)")
        taken = found.collect()
        assert all(bytes(row.body) == b'{"n": %d}' % row.queueOffset and row[3] for row in taken)
        return sorted((row.queueId, row.queueOffset) for row in taken)

    world.send(10)
    world.archive()
    assert offsets() == sorted(itertools.product(range(2), range(10)))
    world.send(5)
    assert offsets() == sorted(itertools.product(range(2), range(15)))
    world.archive()
    world.send(5)
    world.look_after(compact="true")
    everything = sorted(itertools.product(range(2), range(20)))
    assert offsets() == everything
    live = whole_topic(spark, str(world.out), given).where("part is null")
    assert live.count() == 10
    for name in ("tags", "startingOffsets"):
        with pytest.raises(UsageError, match="the lake decides"):
            whole_topic(spark, str(world.out), {**given, name: "a"})
    with pytest.raises(UsageError, match="no parsed bodies"):
        whole_topic(spark, str(world.out), given, body="json", schema="n int")
    running.delete_topic(world.topic)
    running.create_topic(world.topic, 2)
    with pytest.raises(LakeError, match="its end moved back"):
        whole_topic(spark, str(world.out), given)


def test_audit_of_a_compacted_lake_counts_no_file_that_was_replaced(
    spark: SparkSession, running: Running, tmp_path: Path
) -> None:
    world = World(spark, running, tmp_path)
    world.archive_each(10, 5)
    world.look_after(compact="true", graceMinutes="5")
    # What was replaced stays for readers that have begun.
    assert spark.read.parquet(f"{world.out}/topic={world.topic}").count() == 2 * 2 * 15
    ends = {"left": f"topic:{running.name_servers}", "right": f"lake:{world.out}"}
    given = {**ends, "subscribe": world.topic, "out": str(tmp_path / "differences")}
    assert audit.run(spark, given, lambda _: None).lines[-1] == "no difference"


def test_whole_topic_names_messages_that_are_neither_archived_nor_live(
    spark: SparkSession, tmp_path: Path
) -> None:
    quick = {"fileReservedTime": "0", "mappedFileSizeCommitLog": "1048576"}
    import spark_harness  # noqa: PLC0415  (pytest rewrites it first)

    running = spark_harness.Running(tmp_path / "cluster", **quick)
    running.start()
    try:
        world = World(spark, running, tmp_path)
        world.send(2)
        world.archive()
        large = [Message(world.topic, b"x" * 300_000) for _ in range(10)]
        for message in large:
            running.send(world.topic, [message], 0)
        with sync.connect(running.name_servers) as mq:
            mq.admin().brokers.delete_expired("broker-a")

            def gone() -> bool:
                found = mq.admin().topics.offsets(world.topic)
                return found[MessageQueue(world.topic, "broker-a", 0)].min_offset > 2

            wait_until("the first file of the log is gone", gone, 60)
        given = {"nameServers": running.name_servers, "subscribe": world.topic}
        with pytest.raises(PySparkException, match=r"messages of .*\[2, 12\) are lost"):
            whole_topic(spark, str(world.out), given).count()
    finally:
        running.stop()


def test_replay_of_two_brokers_keeps_broker_and_queue(spark: SparkSession, tmp_path: Path) -> None:
    two = Two(tmp_path / "world")
    two.start()
    try:
        for topic in ("From", "To", "Few"):
            two.fill(topic, 10 if topic == "From" else 0, queues=1 if topic == "Few" else 2)
        servers, lake = {"nameServers": two.name_servers}, str(tmp_path / "lake")
        archive.run(spark, {**servers, "subscribe": "From", "out": lake}, print)
        said: dict[str, list[str]] = {"To": [], "Few": []}
        for topic, lines in said.items():
            to = {**servers, "lake": lake, "topic": topic, "run": topic}
            replay.run(spark, to, lines.append)
        reader = spark.read.format("roquet").options(**servers)

        def rows(topic: str) -> list[Row]:
            found = reader.option("subscribe", topic).load()
            return sorted(found.select("brokerName", "queueId", "queueOffset", "body").collect())

        assert rows("To") == rows("From")
        counts = Counter((row.brokerName, row.queueId) for row in rows("Few"))
        assert counts == {("broker-a", 0): 20, ("broker-b", 0): 20}
    finally:
        two.stop()
    merges = {topic: [it for it in lines if "merged" in it] for topic, lines in said.items()}
    assert merges["To"] == []
    (line,) = merges["Few"]
    assert line.startswith("Few: 4 queues of the archive are merged into 2")


def test_a_file_of_the_lake_that_is_gone_is_named_and_never_fewer_rows(
    spark: SparkSession, running: Running, tmp_path: Path
) -> None:
    world = World(spark, running, tmp_path)
    world.archive_each(10, 5)
    first = min(world.out.glob("topic=*/**/*.parquet"))
    kept = first.read_bytes()
    # Also where the catalog is read by its checkpoint.
    for _ in range(2):
        first.unlink()
        with pytest.raises(LakeError, match=f"{first.parent} has . of the . files"):
            world.lake.read()
        with pytest.raises(LakeError, match=r"has . of the . files"):
            replay.run(spark, {"lake": str(world.out), "dryRun": "true"}, print)
        assert any(it.startswith("lost: ") for it in upkeep.check(world.lake))
        first.write_bytes(kept)
        world.is_whole()
        world.lake.catalog.checkpoint(1)


def test_a_lake_that_is_behind_its_checkpoint_is_named_and_made_whole_without_it(
    spark: SparkSession, running: Running, tmp_path: Path
) -> None:
    world = World(spark, running, tmp_path)
    world.archive_each(10, 5)
    max((world.out / "_catalog").glob("b*.json"), key=lambda it: it.name).unlink()
    world.send(5)
    with pytest.raises(LakeError, match=r"has read up to offset 15, .* has what is before 10"):
        world.archive()
    shutil.rmtree(world.out / "_checkpoint")
    world.archive()
    rows = world.lake.read().select("queueId", "queueOffset").collect()
    found = sorted((it.queueId, it.queueOffset) for it in rows)
    assert found == sorted(itertools.product(range(2), range(20)))
