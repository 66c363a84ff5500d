"""Archiving what was archived before changes nothing; replaying keeps brokers and queues."""

from __future__ import annotations

import shutil
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException

from lake_harness import World
from roquet.spark.jobs import archive, replay
from roquet.spark.jobs.storage.files import LakeError
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
