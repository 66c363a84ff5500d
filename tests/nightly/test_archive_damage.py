"""The job `archive` beside damage: files, commits and folders that are not as they were left."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from lake_harness import World
from roquet.base.errors import UsageError
from roquet.client import Message
from roquet.spark.jobs.archiving import quarantine, upkeep
from roquet.spark.jobs.storage.files import LakeError

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from spark_harness import Running

pytest_plugins = ["spark_harness"]
pytestmark = pytest.mark.spark


def put(path: Path, data: bytes) -> None:
    """Write a file, and remove the checksum that Hadoop keeps of it."""
    path.write_bytes(data)
    (path.parent / f".{path.name}.crc").unlink(missing_ok=True)


def test_check_names_damaged_and_foreign_files(
    spark: SparkSession, running: Running, tmp_path: Path
) -> None:
    world = World(spark, running, tmp_path)
    world.archive_each(5, 5)
    assert upkeep.check(world.lake) == []
    folder = world.part_folders()[0]
    # A file for each queue.
    file = min(folder.glob("*.parquet"))
    data = file.read_bytes()
    lost = f"lost: {world.topic} broker-a queue "
    for torn in (b"", data[: len(data) // 2], b"x" * 500):
        put(file, torn)
        lines = upkeep.check(world.lake)
        assert [it.startswith(lost) for it in lines if "unreadable" not in it] == [True], lines
        assert any(it.startswith("unreadable: ") and file.name in it for it in lines) == bool(torn)
    put(file, data)
    note = folder / "note.txt"
    note.write_text("no Parquet")
    (line,) = upkeep.check(world.lake)
    assert line.startswith("unreadable: ")
    assert "note.txt" in line
    note.unlink()
    foreign = folder.parent / "part=foreign"
    shutil.copytree(folder, foreign)
    assert upkeep.check(world.lake) == [
        f"unknown: {foreign}: a folder that no commit of the catalog has added"
    ]
    shutil.rmtree(foreign)
    assert upkeep.check(world.lake) == []


def test_a_commit_that_is_gone_or_empty_is_named(
    spark: SparkSession, running: Running, tmp_path: Path
) -> None:
    world = World(spark, running, tmp_path)
    world.archive_each(5, 5)
    commit = min((world.out / "_catalog").glob("*.json"), key=lambda it: it.stat().st_mtime_ns)
    text = commit.read_bytes()
    put(commit, b"")
    with pytest.raises(LakeError, match="is damaged: it is empty"):
        world.lake.read()
    commit.unlink()
    (line,) = upkeep.check(world.lake)
    assert line.startswith("unknown: ")
    assert commit.stem in line
    put(commit, text)
    world.is_whole()


def test_a_checkpoint_without_its_lake_is_refused(
    spark: SparkSession, running: Running, tmp_path: Path
) -> None:
    world = World(spark, running, tmp_path)
    given = {"checkpoint": str(tmp_path / "elsewhere")}
    world.send(5)
    world.archive(**given)
    shutil.rmtree(world.out)
    with pytest.raises(UsageError, match="elsewhere has been read from already"):
        world.archive(**given)
    assert not world.out.exists()


def test_a_name_twice_in_a_json_body_does_not_end_the_job(
    spark: SparkSession, running: Running, tmp_path: Path
) -> None:
    world = World(spark, running, tmp_path)
    bodies = (b'{"n":1,"n":2,"m":{"a":1,"a":3}}', b'{"n":3}{"n":4}', b'{"n":5} x', b'{"n":6}')
    running.send(world.topic, [Message(world.topic, body) for body in bodies], 0)
    world.archive(body="json")
    rows = world.lake.read().orderBy("queueOffset").collect()
    assert [row.value and row.value.n for row in rows] == [2, None, None, 6]
    bad = quarantine.read(world.lake).orderBy("queueOffset").collect()
    assert [it.queueOffset for it in bad] == [1, 2]
    assert all(it.error.startswith("no JSON: Extra data") for it in bad)
    world.archive(body="json")
