"""Archiving what was archived before changes nothing."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException

from lake_harness import World

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

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
    world.sent = sent
    world.is_whole()
    new = tmp_path / "new"
    report = world.archive(out=str(new))
    assert report.lines[0].startswith("60 messages archived")
