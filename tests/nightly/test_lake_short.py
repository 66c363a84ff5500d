"""A lake in a real Spark: filled once through runs that were torn off, checked, and sent again."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from lake_harness import Torn, World, tear
from roquet.base.errors import RoquetError
from roquet.spark.jobs import replay
from roquet.spark.jobs.lake import Lake
from roquet.spark.jobs.storage.files import Files

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from spark_harness import Running

pytest_plugins = ["spark_harness"]
pytestmark = pytest.mark.spark


@pytest.fixture
def world(spark: SparkSession, running: Running, tmp_path: Path) -> World:
    return World(spark, running, tmp_path)


def test_a_lake_has_each_message_once_and_a_planted_loss_is_named(
    world: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    world.send(6)
    tear(monkeypatch, Files, "rename", after=True)
    with pytest.raises(Exception, match="torn off"):
        world.archive()
    monkeypatch.undo()
    world.send(2)
    # The micro-batch that was half in its place is made again, then what came since.
    assert world.archive().lines == ("16 messages archived in 2 micro-batches",)
    tear(monkeypatch, Lake, "commit", after=False)
    with pytest.raises(Torn):
        world.look_after(compact="true")
    monkeypatch.undo()
    compacted = world.look_after(compact="true", check="true")
    assert compacted.lines == ("2 parts merged into 1", "no difference")
    world.is_whole()
    (part,) = world.part_folders()
    kept = world.spark.read.parquet(str(part)).where("queueId <> 1 or queueOffset <> 3")
    kept.write.parquet(str(tmp_path / "kept"))
    shutil.rmtree(part)
    shutil.move(tmp_path / "kept", part)
    report = world.look_after(check="true")
    assert report.exit_code == 1
    assert report.lines[0].startswith(f"lost: {world.topic} broker-a queue 1 day ")
    assert report.lines[0].endswith(": 7 of 8 rows")
    assert report.lines[1:] == ("1 differences",)


def test_a_replay_goes_on_where_it_stopped_and_repeats_its_keys(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.send(12)
    given = {"nameServers": world.running.name_servers, "subscribe": world.topic}
    reader = world.spark.read.format("roquet").options(**given)
    rows = reader.load().selectExpr("*", "to_date(storeTimestamp) as day", "'b1' as part")
    world.lake.create(rows.schema)
    world.lake.publish("b1", rows)
    target = f"{world.topic}Again"
    world.running.create_topic(target, 3)
    wanted = {"lake": str(world.out), "nameServers": given["nameServers"], "topic": target}
    wanted |= {"run": "r", "tags": "a", "waveRows": "8"}
    real = Files.write_new

    def torn(files: Files, path: str, text: str) -> None:
        if path.endswith("/done/000000001.json"):
            raise RoquetError("torn off")
        real(files, path, text)

    # Its second wave is sent and not noted, as with a kill in between.
    monkeypatch.setattr(Files, "write_new", torn)
    with pytest.raises(RoquetError, match="torn off"):
        replay.run(world.spark, wanted, print)
    monkeypatch.undo()
    said: list[str] = []
    report = replay.run(world.spark, wanted, said.append)
    assert said[0] == "1 of 3 waves were done before"
    assert report.lines == ("8 messages sent in 2 waves",)
    sent = reader.option("subscribe", target).load().orderBy("queueId", "queueOffset").collect()
    # Queue 1 is the second wave, and the end of both queues the third.
    numbers = {0: [0, 2, 4, 6, 8, 10], 1: [0, 2, 4, 6, 0, 2, 4, 6, 8, 10], 2: []}
    for queue, wanted_numbers in numbers.items():
        found = [row for row in sent if row.queueId == queue]
        assert [int(row.properties["replay.queueOffset"]) for row in found] == wanted_numbers
        assert [bytes(row.body) for row in found] == [b'{"n": %d}' % n for n in wanted_numbers]
        assert {row.tags for row in found} <= {"a"}
    first, again = sent[6:10], sent[10:14]
    assert [row.uniqKey for row in first] == [row.uniqKey for row in again]
    assert len({row.uniqKey for row in sent}) == 12
    with pytest.raises(RoquetError, match="other options"):
        replay.run(world.spark, {**wanted, "tags": "b"}, print)
