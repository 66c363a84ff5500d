"""The job `lag` in a real Spark: snapshots of a real broker, and tables that are given."""

from __future__ import annotations

import asyncio
import itertools
import threading
from typing import TYPE_CHECKING, Any, Self

import pytest

from roquet.base.errors import UsageError
from roquet.client import Message, MessageQueue, connect
from roquet.spark.jobs import lag
from spark_lag_world import SCHEMA, rows

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from spark_harness import Running

pytest_plugins = ["spark_harness"]
pytestmark = pytest.mark.spark
_numbers = itertools.count()


class Member:
    """A consumer of ours in a thread of its own, that consumes nothing until it is let go."""

    def __init__(self, name_servers: str, group: str, topic: str) -> None:
        self._given = (name_servers, group, topic)
        self._ready, self._end = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._hold()))

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(60), "the member holds no queue"
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join(60)
        assert not self._thread.is_alive()

    async def _hold(self) -> None:
        name_servers, group, topic = self._given
        async with (
            connect(name_servers) as mq,
            mq.consumer(group, topic, start="earliest") as consumer,
        ):
            # It is given messages of queues that it holds.
            assert await consumer.receive(60) is not None
            self._ready.set()
            await asyncio.to_thread(self._end.wait)


def committed(running: Running, group: str, topic: str, offsets: dict[int, int]) -> None:
    async def commit() -> None:
        async with connect(running.name_servers) as mq, mq.pull_consumer(group) as consumer:
            await consumer.queues(topic)
            queues = {MessageQueue(topic, "broker-a", it): at for it, at in offsets.items()}
            await consumer.commit(queues)

    asyncio.run(commit())


def test_snapshots_of_a_live_group(spark: SparkSession, running: Running, tmp_path: Path) -> None:
    topic, group = f"Lag{next(_numbers)}", "lag-group"
    running.create_topic(topic, 2)
    for queue in range(2):
        running.send(topic, [Message(topic, b"x") for _ in range(20)], queue)
    committed(running, group, topic, {0: 5, 1: 20})
    given = {
        "nameServers": running.name_servers,
        "groups": f"{group},nobody",
        "subscribe": topic,
        "out": str(tmp_path / "out"),
        "metricsPath": str(tmp_path / "metrics"),
        "samples": "2",
        "interval": "1",
        "maxLag": "4",
        "stoppedAfter": "86400",
    }
    said: list[str] = []
    waited: list[float] = []

    def wait(seconds: float) -> None:
        waited.append(seconds)
        if len(waited) == 2:
            committed(running, group, topic, {0: 15})

    report = lag.run(spark, given, said.append, wait=wait)
    assert said[0] == "snapshot 1 of 2: 1 groups, 2 queues, 15 messages left"
    assert said[1] == "snapshot 2 of 2: 1 groups, 2 queues, 5 messages left"
    assert report.exit_code == 1
    alerts = spark.read.parquet(f"{tmp_path}/out/alerts").collect()
    assert {(row.kind, row.group, row.value) for row in alerts} == {
        ("lag", group, 5.0),
        ("no offsets", "nobody", None),
    }
    (now,) = spark.read.parquet(f"{tmp_path}/out/groups").collect()
    assert (now.messagesLeft, now.queues, now.producedRate) == (5, 2, 0.0)
    assert now.consumedRate > 0
    assert (
        f'roquet_lag_messages{{group="{group}",topic="{topic}"}} 5'
        in (tmp_path / "metrics/roquet_lag.prom").read_text()
    )
    assert "base64," in (tmp_path / "out/report.html").read_text()
    # A second run goes on with what the first one noted.
    again = lag.run(spark, {**given, "samples": "1"}, said.append, wait=lambda _: None)
    assert again.exit_code == 1
    history = spark.read.parquet(f"{tmp_path}/out/history").orderBy("at").collect()
    assert [row.messagesLeft for row in history] == [15, 5, 5]


def test_a_topic_made_anew_between_snapshots_has_no_rate_over_both_and_is_an_alert(
    spark: SparkSession, running: Running, tmp_path: Path
) -> None:
    topic, group = f"Lag{next(_numbers)}", f"lag-anew{next(_numbers)}"

    def fill(count: int, offset: int) -> None:
        running.create_topic(topic, 1)
        running.send(topic, [Message(topic, b"x") for _ in range(count)], 0)
        committed(running, group, topic, {0: offset})

    def again(count: int, offset: int) -> None:
        running.delete_topic(topic)
        fill(count, offset)

    fill(20, 10)
    waited: list[float] = []

    def wait(seconds: float) -> None:
        waited.append(seconds)
        if len(waited) == 2:
            # Longer than before, and consumed further: no offset went back.
            again(40, 30)
        elif len(waited) == 3:
            committed(running, group, topic, {0: 35})

    given = {"nameServers": running.name_servers, "groups": group, "subscribe": topic}
    given |= {"out": str(tmp_path), "samples": "3", "interval": "1"}
    said: list[str] = []
    report = lag.run(spark, given, said.append, wait=wait)
    assert report.exit_code == 1
    (alert,) = spark.read.parquet(f"{tmp_path}/alerts").collect()
    assert (alert.kind, alert.topic, alert.queueId, alert.value) == ("made anew", topic, 0, 1.0)
    (line,) = [it for it in said if "are not those of the snapshot before" in it]
    assert f"1 queues are not those of the snapshot before: {topic}" in line
    history = spark.read.parquet(f"{tmp_path}/history").orderBy("at").collect()
    assert [row.messagesLeft for row in history] == [10, 10, 5]
    assert [row.consumedRate is None for row in history] == [True, True, False]
    # A later run compares with the last snapshot in the table.
    again(60, 50)
    lag.run(spark, {**given, "samples": "1"}, said.append, wait=lambda _: None)
    (alert,) = spark.read.parquet(f"{tmp_path}/alerts").collect()
    assert (alert.kind, alert.value) == ("made anew", 2.0)


def test_members_and_the_queues_they_hold(
    spark: SparkSession, running: Running, tmp_path: Path
) -> None:
    topic, group = f"Lag{next(_numbers)}", f"lag-members{next(_numbers)}"
    running.create_topic(topic, 2)
    running.send(topic, [Message(topic, b"x")], 0)
    with Member(running.name_servers, group, topic):
        given = {"nameServers": running.name_servers, "groups": group, "samples": "1"}
        report = lag.run(spark, {**given, "out": str(tmp_path)}, lambda _: None)
    (member,) = spark.read.parquet(f"{tmp_path}/members").collect()
    assert member.group == group
    assert member.queues >= 2
    held = spark.read.parquet(f"{tmp_path}/snapshots").where(f"topic = '{topic}'").collect()
    assert {row.queueId for row in held} == {0, 1}
    assert {row.clientId for row in held} == {member.clientId}
    assert report.lines[-1] in {"no alert", "1 alerts"}


@pytest.fixture(scope="module")
def story(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Any]]:
    folder = tmp_path_factory.mktemp("lag")
    made = spark.createDataFrame(rows(), SCHEMA)
    # The same snapshot twice is what a copied file leaves.
    made.union(made.limit(20)).write.parquet(f"{folder}/snapshots")
    given = {"snapshots": f"{folder}/snapshots", "out": f"{folder}/out", "maxLag": "4000"}
    report = lag.run(spark, {**given, "window": "100"}, lambda _: None)
    names = ("history", "groups", "queues", "members", "alerts")
    return {
        "lines": list(report.lines),
        **{name: spark.read.parquet(f"{folder}/out/{name}").collect() for name in names},
    }


def test_rates_and_states_of_queues(story: dict[str, list[Any]]) -> None:
    states = {(row.group, row.queueId): row.state for row in story["queues"]}
    assert states == {
        ("uneven", 0): "catching up",
        ("uneven", 1): "falling behind",
        ("halted", 0): "caught up",
        ("halted", 1): "stopped",
        ("reset", 0): "catching up",
        ("gone", 0): "gone",
        ("gone", 1): "vanished",
        ("late", 0): "lost",
        ("beyond", 0): "beyond",
    }
    found = {(row.group, row.queueId): row for row in story["queues"]}
    fast, slow = found["uneven", 0], found["uneven", 1]
    assert (fast.consumedRate, fast.producedRate) == (100.0, 50.0)
    assert (fast.messagesLeft, fast.secondsToCatchUp) == (3000, 60.0)
    assert (slow.consumedRate, slow.secondsToCatchUp) == (10.0, None)
    assert found["halted", 1].stoppedSeconds == 120.0
    # The step with the reset is no rate; the others are as they were.
    assert (found["reset", 0].consumedRate, found["reset", 0].backward) == (30.0, 1)


def test_groups_over_time(story: dict[str, list[Any]]) -> None:
    uneven = [row for row in story["history"] if row.group == "uneven"]
    uneven.sort(key=lambda row: row.at)
    assert [row.messagesLeft for row in uneven] == [9500 - 100 * step for step in range(13)]
    assert uneven[0].consumedRate is None
    assert {(row.consumedRate, row.producedRate) for row in uneven[1:]} == {(110.0, 100.0)}
    assert uneven[-1].secondsToCatchUp == 830.0
    (now,) = [row for row in story["groups"] if row.group == "uneven"]
    assert (now.messagesLeft, now.secondsToCatchUp) == (8300, 830.0)


def test_members_are_judged_beside_one_another(story: dict[str, list[Any]]) -> None:
    states = {(row.group, row.clientId): row.state for row in story["members"]}
    assert states == {
        ("uneven", "fast"): "consuming",
        ("uneven", "slow"): "slow",
        ("uneven", "spare"): "without queues",
        ("halted", "m1"): "caught up",
        ("halted", "m2"): "stopped",
        ("reset", "r"): "consuming",
        ("fresh", "f"): "caught up",
    }


def test_every_alert_has_its_reason(story: dict[str, list[Any]]) -> None:
    found = {(row.kind, row.group, row.queueId, row.clientId) for row in story["alerts"]}
    assert found == {
        ("lag", "uneven", None, None),
        ("catch-up", "uneven", None, None),
        ("catch-up", "halted", None, None),
        ("stopped", "halted", 1, "m2"),
        ("lost", "late", 0, None),
        ("beyond", "beyond", 0, None),
        ("gone", "gone", 0, None),
        ("vanished", "gone", 1, None),
        ("backward", "reset", 0, "r"),
        ("slow member", "uneven", None, "slow"),
        ("member without queues", "uneven", None, "spare"),
        ("no offsets", "fresh", None, None),
    }
    assert story["lines"][-1] == "12 alerts"
    assert (
        "ALERT lost: late orders broker-a queue 0: 30 messages were deleted before they were"
        " consumed" in story["lines"]
    )


def test_tables_that_are_no_snapshots(spark: SparkSession, tmp_path: Path) -> None:
    given = {"snapshots": str(tmp_path / "none"), "out": str(tmp_path / "out")}
    with pytest.raises(UsageError, match="there is no such table"):
        lag.run(spark, given, lambda _: None)
    spark.range(1).write.parquet(f"{tmp_path}/other")
    with pytest.raises(UsageError, match="no column at, group, topic"):
        lag.run(spark, {**given, "snapshots": f"{tmp_path}/other"}, lambda _: None)
