"""The catalog of a lake in a real Spark: a checkpoint and what came since are the whole list."""

from __future__ import annotations

import json
import random
import shutil
from typing import TYPE_CHECKING

import pytest

from roquet.spark.jobs.storage import catalog
from roquet.spark.jobs.storage.catalog import CHECKPOINTS, Catalog, Entry, gone
from roquet.spark.jobs.storage.files import Files, LakeError
from roquet.spark.jobs.storage.summary import Held, Part

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from pyspark.sql import SparkSession

pytest_plugins = ["spark_harness"]
pytestmark = pytest.mark.spark
COLUMNS = ("op", "part", "topic", "day", "brokerName", "queueId", "fromOffset", "toOffset", "rows")


class World:
    """A catalog, and what its commits say by the files alone."""

    def __init__(self, spark: SparkSession, folder: Path, seed: int) -> None:
        self.folder = folder / "_catalog"
        self.catalog = Catalog(spark, Files(spark), str(folder))
        self._rng = random.Random(seed)
        self._live: list[Part] = []
        self._ends: dict[Held, int] = {}
        self._number = 0

    def commit(self, count: int) -> None:
        """Add parts, and now and then remove or retire one that counts."""
        for _ in range(count):
            name = f"b{self._number:04}"
            queues = self._rng.sample(range(8), self._rng.randint(1, 4))
            place = Part(self._rng.choice(("orders", "007")), "2026-11-23", name)
            lines = [
                Entry(place, "b", queue, self._number, self._number + 5, 5, queue).json()
                for queue in queues
            ]
            if self._live and self._rng.random() < 0.3:
                old = self._live.pop(self._rng.randrange(len(self._live)))
                lines += gone([old], self._rng.choice(("remove", "retire")))
            self._live.append(place)
            # Offsets grow from commit to commit.
            self._ends |= {Held(place.topic, "b", queue): self._number + 5 for queue in queues}
            self.catalog.commit(name, lines)
            self._number += 1

    def told(self) -> list[str]:
        """Return all lines as the files of the commits have them."""
        found: list[object] = []
        for path in self.folder.glob("b*.json"):
            for line in path.read_text().splitlines():
                it: dict[str, object] = json.loads(line)
                found.append((*(it.get(name) for name in COLUMNS), path.name))
        return shown(found)

    def is_whole(self) -> None:
        """Compare what is read with what the commits say."""
        read = self.catalog.entries().select(*COLUMNS, "commit").collect()
        assert shown([tuple[object, ...](row) for row in read]) == self.told()
        live = {Part(it.topic, it.day, it.part) for it in self.catalog.live().collect()}
        assert live == set(self._live)
        found = self.catalog.summary()
        assert found.parts() == live
        assert found.ends() == self._ends

    def checkpoints(self) -> list[Path]:
        """Return the folders of checkpoints, whether they count or not."""
        return [it for it in (self.folder / CHECKPOINTS).glob("*") if it.is_dir()]


def shown(lines: Iterable[object]) -> list[str]:
    return sorted(map(repr, lines))


@pytest.mark.parametrize("seed", [1, 2])
def test_checkpoints_and_the_commits_since_are_the_whole_list(
    spark: SparkSession, tmp_path: Path, seed: int
) -> None:
    world, rng = World(spark, tmp_path, seed), random.Random(seed)
    for _ in range(3):
        count = rng.randint(2, 6)
        world.commit(count)
        assert world.catalog.checkpoint(at_least=count + 1) == 0
        assert world.catalog.checkpoint(at_least=count) == count
        assert world.catalog.checkpoint(at_least=1) == 0
    world.commit(2)
    world.is_whole()
    assert len(world.checkpoints()) == 3
    # Who reads the folder by Spark alone finds the commits and nothing else.
    assert spark.read.json(str(world.folder)).count() == len(world.told())


def test_checkpoint_torn_off_or_deleted_loses_nothing(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(spark, tmp_path, 3)
    world.commit(4)

    def torn(*_: object) -> None:
        raise KeyboardInterrupt

    # Killed between the checkpoint's folder and its note: it does not count.
    monkeypatch.setattr(Files, "write_new", torn)
    with pytest.raises(KeyboardInterrupt):
        world.catalog.checkpoint(at_least=1)
    monkeypatch.undo()
    assert len(world.checkpoints()) == 1
    world.is_whole()
    assert world.catalog.checkpoint(at_least=1) == 4
    world.is_whole()
    # A second job did the same at the same time: one of both counts.
    (note,) = (world.folder / CHECKPOINTS).glob("*.checkpoint")
    counted, twin = note.with_suffix(""), note.with_name("b0000-twin")
    shutil.copytree(counted, twin)
    shutil.copy(f"{counted}.checkpoint", f"{twin}.checkpoint")
    world.commit(1)
    world.is_whole()
    for folder in world.checkpoints():
        shutil.rmtree(folder)
    world.is_whole()


def test_checkpoint_of_an_older_release_has_no_summary_and_counts(
    spark: SparkSession, tmp_path: Path
) -> None:
    world = World(spark, tmp_path, 5)
    for _ in range(2):
        world.commit(3)
        assert world.catalog.checkpoint(at_least=1) == 3
    note = min((world.folder / CHECKPOINTS).glob("*.checkpoint"))
    found = json.loads(note.read_text())
    del found["summary"]
    note.with_name(f".{note.name}.crc").unlink()
    note.write_text(json.dumps(found))
    world.commit(1)
    world.is_whole()


def test_many_commits_without_a_checkpoint_are_summed_up_by_spark(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalog, "READ_HERE", 2)
    world = World(spark, tmp_path, 6)
    world.commit(5)
    world.is_whole()


def test_damaged_commit_is_named(spark: SparkSession, tmp_path: Path) -> None:
    world = World(spark, tmp_path, 7)
    world.commit(2)
    world.catalog.commit("b0009", ['{"op": "add"'])
    with pytest.raises(LakeError, match=r"b0009\.json is damaged"):
        world.catalog.summary()


@pytest.mark.parametrize("kept", [0, 7], ids=["empty", "torn"])
def test_checkpoint_whose_note_is_damaged_does_not_count(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture, kept: int
) -> None:
    world = World(spark, tmp_path, 4)
    world.commit(3)
    assert world.catalog.checkpoint(at_least=1) == 3
    (note,) = (world.folder / CHECKPOINTS).glob("*.checkpoint")
    text = note.read_bytes()[:kept]
    note.with_name(f".{note.name}.crc").unlink()
    note.write_bytes(text)
    world.is_whole()
    assert "is damaged" in caplog.text
    # The next one covers the same commits, and it counts.
    assert world.catalog.checkpoint(at_least=1) == 3
    world.is_whole()
