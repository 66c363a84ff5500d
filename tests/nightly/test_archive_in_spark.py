"""The job `archive` in a real Spark: a broker's messages into Parquet, also when it is torn off."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException

from lake_harness import At, Torn, World, tear
from roquet.base.errors import UsageError
from roquet.spark.jobs.archiving import staging_source, upkeep
from roquet.spark.jobs.archiving.ends import Ends
from roquet.spark.jobs.lake import Lake
from roquet.spark.jobs.storage.files import Files, LakeError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from roquet.spark.jobs.storage.staging import Line
    from spark_harness import Running

pytest_plugins = ["spark_harness"]
pytestmark = pytest.mark.spark
DAY_MS = 86_400_000


@pytest.fixture
def world(spark: SparkSession, running: Running, tmp_path: Path) -> World:
    return World(spark, running, tmp_path)


def test_each_message_is_archived_once_over_runs_and_compaction(world: World) -> None:
    world.send(30)
    report = world.archive(maxOffsetsPerTrigger="20", check="true", metricsPath=f"{world.out}-m")
    assert report.lines == ("60 messages archived in 3 micro-batches", "no difference")
    assert "roquet_archive_behind 0\n" in Path(f"{world.out}-m/archive.prom").read_text()
    world.send(5)
    assert world.archive().lines == ("10 messages archived in 1 micro-batches",)
    assert world.archive().lines == ("0 messages archived in 0 micro-batches",)
    # Without its checkpoint the job goes on where the lake ends.
    shutil.rmtree(world.out / "_checkpoint")
    world.send(5)
    assert world.archive().lines == ("10 messages archived in 1 micro-batches",)
    world.is_whole()
    assert len(world.part_folders()) == 5
    reader = world.lake.read()
    compacted = world.look_after(compact="true", check="true", graceMinutes="1")
    assert compacted.lines == ("5 parts merged into 1", "no difference")
    # Planned before the compaction: what it reads stays for as long as it is told to.
    assert reader.count() == 80
    assert len(world.part_folders()) == 6
    assert world.lake.read().count() == 80
    assert world.look_after(compact="true").lines == ("0 parts merged into 0",)
    assert len(world.part_folders()) == 1
    world.is_whole()
    world.send(1)
    assert world.archive().lines == ("2 messages archived in 1 micro-batches",)
    world.is_whole()


def test_two_runs_at_once_put_each_message_into_the_lake_once(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.send(2)
    world.archive()
    world.send(3)
    real, begun = Ends.read, iter([True])

    def overtaken(ends: Ends) -> None:
        real(ends)
        if next(begun, False):
            # From the same checkpoint none begins; this one has its own, and is quicker.
            with pytest.raises(UsageError, match="another job goes on from it"):
                world.archive()
            world.archive(checkpoint=f"{world.out}-other")

    monkeypatch.setattr(Ends, "read", overtaken)
    with pytest.raises(PySparkException, match="another job archives the topic to this lake"):
        world.archive()
    monkeypatch.undo()
    world.is_whole()
    # Its micro-batch was planned, and is not the lake's any more.
    shutil.rmtree(world.out / "_checkpoint")
    world.send(1)
    assert world.archive(check="true").lines[-1] == "no difference"
    world.is_whole()


STEPS: dict[str, tuple[Any, str, bool]] = {
    "before it is in its place": (Lake, "move", False),
    "half in its place": (Files, "rename", True),
    "before the catalog has it": (Lake, "commit", False),
    "before Spark knows": (Lake, "commit", True),
}


def test_what_is_torn_off_is_made_up_for(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    for owner, name, after in STEPS.values():
        world.send(3)
        tear(monkeypatch, owner, name, after=after)
        with pytest.raises(Exception, match="torn off"):
            world.archive()
        monkeypatch.undo()
    world.send(3)
    assert world.archive(check="true").lines[-1] == "no difference"
    world.is_whole()
    # Each run began with the micro-batch that the one before it had not finished.
    assert len(world.part_folders()) == 2
    for owner, name, after in STEPS.values():
        tear(monkeypatch, owner, name, after=after)
        with pytest.raises(Torn):
            world.look_after(compact="true")
        monkeypatch.undo()
        assert world.lake.read().count() == 2 * world.sent
    assert world.look_after(compact="true", check="true").lines[-1] == "no difference"
    world.is_whole()
    assert len(world.part_folders()) == 1
    with upkeep.locked(world.lake, At(0), take_over=False):
        with pytest.raises(UsageError, match="another job looks after this lake"):
            world.look_after(compact="true")
        assert world.look_after(compact="true", breakLock="true").exit_code == 0


def test_files_of_a_try_that_does_not_count_stay_out(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = staging_source.staged

    def twice(spark: SparkSession, frame: DataFrame, folder: str | None) -> list[Line]:
        # As when an executor is given up that goes on writing.
        assert len(real(spark, frame, folder)) == 2
        return real(spark, frame, folder)

    monkeypatch.setattr(staging_source, "staged", twice)
    world.send(5)
    assert world.archive(check="true").lines[-1] == "no difference"
    world.is_whole()
    monkeypatch.setattr(staging_source, "staged", lambda spark, frame, _: real(spark, frame, ""))
    world.send(1)
    with pytest.raises(Exception, match="tasks did not hear of it"):
        world.archive()


def test_where_files_have_another_form_spark_writes_them(world: World) -> None:
    world.send(5)
    world.spark.conf.set("spark.sql.parquet.compression.codec", "lz4_raw")
    try:
        assert world.archive(check="true").lines[-1] == "no difference"
    finally:
        world.spark.conf.unset("spark.sql.parquet.compression.codec")
    world.send(5)
    assert world.archive(check="true").lines[-1] == "no difference"
    world.is_whole()
    names = [sorted(it.name[:5] for it in part.glob("*.parquet")) for part in world.part_folders()]
    assert sorted(name == ["part-", "part-"] for name in names) == [False, True]


def test_the_check_names_what_is_lost_doubled_and_changed(world: World, tmp_path: Path) -> None:
    world.send(10)
    world.archive(maxOffsetsPerTrigger="8")
    shutil.copytree(world.out, tmp_path / "copy")
    first = world.part_folders()[0]
    (row,) = world.lake.read().where(f"part = '{first.name[5:]}' and queueId = 0").take(1)
    place = f"{world.topic} broker-a queue 0"
    for change, words in (
        (f"queueOffset <> {row.queueOffset}", [f"lost: {place}"]),
        (
            "true",
            [f"added: {place}", f"twice: {place} offset {row.queueOffset} is there 2 times"],
        ),
    ):
        shutil.rmtree(world.out)
        shutil.copytree(tmp_path / "copy", world.out)
        rows = world.spark.read.parquet(str(first)).where("queueId = 0")
        files = world.spark.read.parquet(str(first)).where(f"queueId <> 0 or {change}")
        if change == "true":
            files = files.union(rows.where(f"queueOffset = {row.queueOffset}"))
        files.write.parquet(str(tmp_path / "new"))
        shutil.rmtree(first)
        shutil.move(tmp_path / "new", first)
        found = upkeep.check(world.lake)
        assert [line[: len(word)] for line, word in zip(found, words, strict=True)] == words
        report = world.look_after(check="true")
        assert (report.exit_code, report.lines[-1]) == (1, f"{len(words)} differences")
    shutil.rmtree(first)
    assert all(line.startswith("lost: ") for line in upkeep.check(world.lake))
    with pytest.raises(LakeError, match="has 0 of the"):
        world.lake.read()


def test_old_days_go_and_are_not_archived_again(world: World) -> None:
    world.send(4)
    world.archive()
    now = max(row.storeTimestamp.timestamp() for row in world.lake.read().collect()) * 1000
    assert world.look_after(int(now), retainDays="1").lines[0].startswith("0 parts")
    assert world.look_after(int(now) + 3 * DAY_MS, retainDays="1").lines[0].startswith("1 parts")
    assert world.part_folders() == []
    assert world.lake.read().count() == 0
    shutil.rmtree(world.out / "_checkpoint")
    assert world.archive(check="true").lines == (
        "0 messages archived in 0 micro-batches",
        "no difference",
    )


def test_an_older_checkpoint_is_noticed(world: World, tmp_path: Path) -> None:
    world.send(4)
    world.archive()
    shutil.copytree(world.out / "_checkpoint", tmp_path / "older")
    world.send(4)
    world.archive()
    world.send(4)
    shutil.rmtree(world.out / "_checkpoint")
    shutil.copytree(tmp_path / "older", world.out / "_checkpoint")
    with pytest.raises(Exception, match="its checkpoint is an older one"):
        world.archive()
    shutil.rmtree(world.out / "_checkpoint")
    world.archive()
    world.is_whole()
