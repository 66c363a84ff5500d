"""The job `replay` in a real Spark: what was archived goes back into topics of a real broker."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import pytest

from roquet.base.errors import RoquetError, UsageError
from roquet.client import Message
from roquet.spark.jobs import archive, replay
from roquet.spark.jobs.lake import Lake
from roquet.spark.jobs.storage.alone import alone
from roquet.spark.jobs.storage.catalog import gone
from roquet.spark.jobs.storage.files import Files, LakeError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import Row, SparkSession

    from spark_harness import Running

pytest_plugins = ["spark_harness"]
pytestmark = pytest.mark.spark
_numbers = itertools.count()
COUNT = 40


class World:
    """A lake with a topic of two queues, and an empty topic of three."""

    def __init__(self, spark: SparkSession, running: Running, folder: Path) -> None:
        number = next(_numbers)
        self.spark = spark
        self.running = running
        self.lake = str(folder / "lake")
        self.topic, self.target = f"Kept{number}", f"Again{number}"
        running.create_topic(self.topic, 2)
        running.create_topic(self.target, 3)
        for queue in range(2):
            made = [
                Message(self.topic, b"%d" % n, "ab"[n % 2], (f"k{n}", "all"), {"mine": "yes"})
                for n in range(COUNT)
            ]
            running.send(self.topic, made, queue)
        given = {"nameServers": running.name_servers, "subscribe": self.topic, "out": self.lake}
        archive.run(spark, given, print)

    def given(self, **options: str) -> dict[str, str]:
        found = {"lake": self.lake, "nameServers": self.running.name_servers, "run": "r"}
        return {**found, "topic": self.target, **options}

    def rows(self, topic: str) -> list[Row]:
        read = self.spark.read.format("roquet").option("nameServers", self.running.name_servers)
        return read.option("subscribe", topic).load().orderBy("queueId", "queueOffset").collect()


@pytest.fixture
def world(spark: SparkSession, running: Running, tmp_path: Path) -> World:
    return World(spark, running, tmp_path)


def test_a_replay_keeps_order_and_origin_and_goes_on_where_it_stopped(
    world: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    given = world.given(waveRows="25", metricsPath=str(tmp_path / "m"))
    monkeypatch.setattr(Files, "write_new", _torn(Files.write_new, 3))
    # Its third wave is sent and not noted, as with a kill in between.
    with pytest.raises(RoquetError, match="torn off"):
        replay.run(world.spark, given, print)
    monkeypatch.undo()
    said: list[str] = []
    report = replay.run(world.spark, given, said.append)
    assert said[0] == "2 of 4 waves were done before"
    assert report.lines[0].endswith("messages sent in 2 waves")
    assert "roquet_replay_waves_left 0\n" in (tmp_path / "m/replay.prom").read_text()
    assert replay.run(world.spark, given, print).lines == ("0 messages sent in 0 waves",)
    before = {(row.queueId, row.queueOffset): row for row in world.rows(world.topic)}
    after: dict[tuple[int, int], list[Row]] = {}
    for row in world.rows(world.target):
        made = row.properties
        place = (int(made["replay.queueId"]), int(made["replay.queueOffset"]))
        after.setdefault(place, []).append(row)
        origin = before[place]
        assert (row.queueId, row.body, row.tags) == (place[0], origin.body, origin.tags)
        assert (row.keys.split(), made["mine"]) == (origin.keys.split(), "yes")
        names = ("run", "topic", "broker", "msgId", "uniqKey")
        kept = (origin.topic, origin.brokerName, origin.msgId, origin.uniqKey)
        assert tuple(made[f"replay.{name}"] for name in names) == ("r", *kept)
        stored = int(made["replay.storeTimestamp"])
        assert stored == round(origin.storeTimestamp.timestamp() * 1000)
    assert after.keys() == before.keys()
    twice = [rows for rows in after.values() if len(rows) > 1]
    assert 0 < sum(len(rows) - 1 for rows in twice) <= 25
    assert all(len({row.uniqKey for row in rows}) == 1 for rows in after.values())
    assert len({rows[0].uniqKey for rows in after.values()}) == 2 * COUNT
    with pytest.raises(UsageError, match=r"other options \(tags\)"):
        replay.run(world.spark, {**given, "tags": "a"}, print)


def test_filters_rate_and_dry_run(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = Lake(world.spark, world.lake, "parquet")
    (day,) = {it.day for it in lake.parts()}
    dry = {"lake": world.lake, "dryRun": "true"}
    counted = replay.run(world.spark, {**dry, "keys": "k1,k2,k4", "tags": "a||c"}, print).lines
    assert counted[0].startswith(f"{world.topic} {day}: 4 messages, ")
    assert counted[1] == "4 messages would be sent"
    nothing = replay.run(world.spark, {**dry, "endingTimestamp": "1"}, print).lines
    assert nothing == ("0 messages would be sent",)
    assert world.rows(world.target) == []
    waits: list[float] = []
    given = world.given(keys="k1,k2,k4", tags="a", rate="20", run="filtered")
    report = replay.run(world.spark, given, print, Stopped(), waits.append)
    assert report.lines == ("4 messages sent in 2 waves",)
    assert waits[-1] == pytest.approx(0.2)
    bodies = [bytes(row.body) for row in world.rows(world.target)]
    assert sorted(bodies) == [b"2", b"2", b"4", b"4"]
    # Days that are removed while a replay stands still are no days without a message.
    tags = {"tags": "a", "waveRows": "25"}
    monkeypatch.setattr(Files, "write_new", _torn(Files.write_new, 2))
    with pytest.raises(RoquetError, match="torn off"):
        replay.run(world.spark, world.given(run="late", **tags), print)
    monkeypatch.undo()
    with (
        alone(lake.files, f"{world.lake}/_replays/late"),
        pytest.raises(UsageError, match="late: another job goes on from it"),
    ):
        replay.run(world.spark, world.given(run="late", **tags), print)
    lake.catalog.commit("r1", gone(lake.parts(), "retire"))
    with pytest.raises(LakeError, match=f"{world.topic} of {day} was planned, and"):
        replay.run(world.spark, world.given(run="late", **tags), print)
    with pytest.raises(UsageError, match="no lake"):
        replay.run(world.spark, {**dry, "lake": f"{world.lake}/none"}, print)


def _torn(real: Callable[[Files, str, str], None], number: int) -> Any:
    """Return what writes files, and fails once, at the note of the wave of this number."""
    numbers = itertools.count(1)

    def torn(files: Files, path: str, text: str) -> None:
        if "/done/" in path and next(numbers) == number:
            raise RoquetError("torn off")
        real(files, path, text)

    return torn


class Stopped:
    """A clock that stands still."""

    def now_ms(self) -> int:
        return 1_000_000

    def steady_ms(self) -> int:
        return self.now_ms()

    async def sleep(self, seconds: float) -> None:
        raise AssertionError(seconds)
