"""The job `cdc` against bodies that lie, checkpoints that do not belong, queues that mix keys."""

from __future__ import annotations

import datetime as dt
import itertools
import json
import shutil
import time
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException

from roquet import sync
from roquet.base.errors import UsageError
from roquet.client import Message, MessageQueue
from roquet.spark.jobs import cdc
from roquet.spark.jobs.bodies.column import Bodies
from roquet.spark.jobs.changes import envelope
from roquet.spark.jobs.shared.queries import sql
from roquet.spark.jobs.storage.alone import alone
from roquet.spark.jobs.storage.files import Files, LakeError
from roquet.spark.schema import ddl
from roquet.testing.pair import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from roquet.spark.jobs.shared.report import Report
    from spark_harness import Running

pytest_plugins = ["spark_harness"]
pytestmark = pytest.mark.spark
COLUMNS = "id bigint, name string, at timestamp"
GONE = "__debezium_unavailable_value"


class World:
    """A topic of changes and the folder of their table."""

    def __init__(self, spark: SparkSession, running: Running, folder: Path, topic: str) -> None:
        self.spark, self.running, self.topic = spark, running, topic
        self.out = folder / "table"
        self.said: list[str] = []
        running.create_topic(topic, 2)

    def send(self, queue: int, *bodies: bytes) -> None:
        self.running.send(self.topic, [Message(self.topic, it) for it in bodies], queue)

    def run(self, **options: str) -> Report:
        given = {"nameServers": self.running.name_servers, "subscribe": self.topic, "key": "id"}
        given |= {"columns": COLUMNS, "buckets": "4", "out": str(self.out), **options}
        self.said.clear()
        return cdc.run(self.spark, given, self.said.append)

    def names(self) -> dict[int, str]:
        rows = cdc.table(self.spark, str(self.out)).select("id", "name").collect()
        found = {row.id: row.name for row in rows}
        assert len(found) == len(rows)
        return found


def change(op: str, key: int, name: str = "a", *, table: str = "orders") -> bytes:
    row = {"id": key, "name": name}
    side = {"before": row, "after": None} if op == "d" else {"before": None, "after": row}
    return json.dumps({**side, "op": op, "source": {"db": "shop", "table": table}}).encode()


def messages(spark: SparkSession, *bodies: bytes) -> DataFrame:
    """Return bodies as rows of the source, without a broker."""
    names = spark.createDataFrame([], ddl()).columns
    rows: list[Any] = []
    for offset, body in enumerate(bodies):
        row: dict[str, Any] = {**dict.fromkeys(names), "topic": "T", "brokerName": "a"}
        row |= {"queueId": 0, "queueOffset": offset, "body": bytearray(body)}
        row["storeTimestamp"] = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
        rows.append(tuple(row[name] for name in names))
    return spark.createDataFrame(rows, ddl())


def test_bodies_that_are_no_change_are_bad_and_never_half_believed(spark: SparkSession) -> None:
    good = b'{"op":"c","after":{"id":1,"name":"a"}}'
    bodies = {
        good + b" x": "no JSON: Extra data",
        good + good: "no JSON: Extra data",
        good + b"}": "no JSON: Extra data",
        good + b',"more":{}': "no JSON: Extra data",
        b'{"op":"c","after":{"id":1,"payload":null}': "no JSON",
        b'{ rubbish "payload":null}': "no JSON",
        b'{"op":"u","after":{"id":1,"name":"%s"}}' % GONE.encode(): "after.name is left out by",
        b'{"op":"c","after":{"id":1,"at":1700000000000}}': "after.at is not within the years",
    }
    right = {
        good: "upsert",
        b'{"op":"c","after":{"id":1},"payload":null}': "upsert",
        b'{"payload":\nnull, "schema": {}}': "tombstone",
        b'{"op":"c","after":{"id":1,"at":1700000000}}': "upsert",
        b'{"op":"c","after":{"id":1,"name":NaN}, "source": 7}': "upsert",
    }
    rows = messages(spark, *bodies, *right)
    shown = envelope.parsed(rows, Bodies("json"), COLUMNS, ["id"]).drop("row")
    found = shown.orderBy("queueOffset").collect()
    assert [it.kind for it in found] == [*["bad"] * len(bodies), *right.values()]
    for row, why in zip(found, bodies.values(), strict=False):
        assert row.error.startswith(why), (bytes(row.body), row.error)


def test_update_that_gives_a_row_another_key_deletes_the_old_one(spark: SparkSession) -> None:
    def update(before: Any, after: Any) -> bytes:
        return json.dumps({"before": before, "after": after, "op": "u"}).encode()

    old, new = {"id": 1, "name": "a"}, {"id": 2, "name": "a"}
    bodies = [update(old, new), update(None, new), update({"name": "a"}, new), update(new, new)]
    rows = messages(spark, *bodies, update(old, {"id": 2, "name": GONE}))
    made = envelope.parsed(rows, Bodies("json"), COLUMNS, ["id"]).orderBy("queueOffset", "kind")
    found = [(it.queueOffset, it.kind, it.row.id) for it in made.collect()]
    assert found == [
        (0, "delete", 1),
        (0, "upsert", 2),
        (1, "upsert", 2),
        (2, "upsert", 2),
        (3, "upsert", 2),
        (4, "bad", 2),
    ]
    # A key of two columns, of which one is changed.
    made = envelope.parsed(rows, Bodies("json"), COLUMNS, ["name", "id"])
    assert [it.row.id for it in made.where("kind = 'delete'").collect()] == [1]


@pytest.mark.parametrize(
    ("columns", "why"),
    [
        ("id bigint, ID string", "'ID' is one that is there twice"),
        ("id bigint, _Topic string", "'_Topic' is one that every table has"),
        ("id bigint, `` string", "whose name is empty"),
        ("id map<string, string>", "key: id is map<string,string>, which cannot be one"),
        ("id variant", "key: id is variant"),
        ("id varchar(3)", "columns: "),
    ],
)
def test_columns_that_no_table_can_have_are_refused(
    spark: SparkSession, tmp_path: Path, columns: str, why: str
) -> None:
    given = {"nameServers": "127.0.0.1:1", "subscribe": "T", "key": "id", "columns": columns}
    with pytest.raises(UsageError, match=why.replace("(", r"\(")):
        cdc.run(spark, {**given, "out": str(tmp_path / "table")}, print)
    assert not (tmp_path / "table").exists()


def test_an_older_checkpoint_makes_changes_again_and_loses_no_row(
    spark: SparkSession, running: Running, tmp_path: Path
) -> None:
    world = World(spark, running, tmp_path, "OlderCheckpoint")
    world.send(0, *[change("c", key) for key in range(3)])
    world.run()
    kept, checkpoint = tmp_path / "kept", world.out / "_checkpoint"
    shutil.copytree(checkpoint, kept)
    for key in range(3, 6):
        world.send(0, change("c", key))
        world.run()
    shutil.rmtree(checkpoint)
    shutil.copytree(kept, checkpoint)
    world.send(0, change("u", 0, "later"))
    world.run(maxOffsetsPerTrigger="1")
    assert world.names() == {0: "later", **dict.fromkeys(range(1, 6), "a")}


def test_a_checkpoint_without_its_table_is_refused(
    spark: SparkSession, running: Running, tmp_path: Path
) -> None:
    world = World(spark, running, tmp_path, "CheckpointAlone")
    world.send(0, change("c", 1))
    world.run(checkpoint=str(tmp_path / "elsewhere"))
    shutil.rmtree(world.out)
    with pytest.raises(UsageError, match="elsewhere has been read from already"):
        world.run(checkpoint=str(tmp_path / "elsewhere"))


def test_a_topic_made_anew_is_named_also_without_a_checkpoint(
    spark: SparkSession, running: Running, tmp_path: Path
) -> None:
    world = World(spark, running, tmp_path, "MadeAnew")
    world.send(0, *[change("u", 1, f"old{n}") for n in range(4)])
    world.run()
    shutil.rmtree(world.out / "_checkpoint")
    # All once more: the topic is the same.
    world.run()
    running.delete_topic(world.topic)
    running.create_topic(world.topic, 2)
    time.sleep(0.01)
    world.send(0, *[change("u", 1, "new")] * 2)
    shutil.rmtree(world.out / "_checkpoint")
    with pytest.raises(LakeError, match="keep them in a folder of their own"):
        world.run()
    assert world.names() == {1: "old3"}


def test_a_topic_that_begins_behind_the_table_is_named_and_left_out_only_if_wanted(
    spark: SparkSession, tmp_path: Path
) -> None:
    import spark_harness  # noqa: PLC0415  (pytest rewrites it first)

    quick = {"fileReservedTime": "0", "mappedFileSizeCommitLog": "1048576"}
    running = spark_harness.Running(tmp_path / "cluster", **quick)
    running.start()
    try:
        world = World(spark, running, tmp_path, "BeginsBehind")
        world.send(0, change("c", 1), change("c", 2))
        # Of this queue the table has no row.
        world.send(1, b"null")
        world.run()
        for key in range(10, 20):
            world.send(0, change("c", key, "x" * 300_000))
            world.send(1, b"null")
        lows = _delete_the_oldest(running, world.topic)
        # With the checkpoint the stream itself finds it.
        with pytest.raises(PySparkException, match="are lost"):
            world.run()
        shutil.rmtree(world.out / "_checkpoint")
        lost = rf"broker-a/0: .* before offset 2, and the topic begins at {lows[0]}: .* are lost"
        with pytest.raises(LakeError, match=f"{lost}.* give startingOffsets"):
            world.run()
        assert world.names() == {1: "a", 2: "a"}
        shown = json.dumps({world.topic: {"broker-a": {str(it): low for it, low in lows.items()}}})
        world.run(startingOffsets=shown)
        assert len([it for it in world.said if "those between are lost" in it]) == 2
        # In the order of offsets one key was sent with each.
        assert sorted(world.names()) == [1, 2, *range(8 + lows[0], 20)]
    finally:
        running.stop()


def test_table_is_right_wherever_among_its_files_a_run_was_killed_before_its_end(
    spark: SparkSession, running: Running, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(spark, running, tmp_path, "KilledAtEachFile")
    world.send(0, change("c", 0, "first"))
    world.run()
    states, step, whole = [{0: "first"}], 0, False
    while not whole:
        # Each run mends what the one before it has left, and is killed a file further on.
        step += 1
        states.append({**states[-1], step % 3: f"n{step}"})
        world.send(0, change("u", step % 3, f"n{step}"))
        with monkeypatch.context() as patch:
            _kill_at(patch, step)
            try:
                world.run()
                whole = True
            except (PySparkException, Killed):
                # What is read in between is a state that there was.
                assert world.names() in states
    assert step > 6
    assert world.names() == states[-1]
    notes = [it for it in (world.out / "_reached").iterdir() if it.suffix == ".json"]
    assert len(notes) <= 2


class Killed(Exception):  # noqa: N818
    """What stands for the end of the process."""


def _kill_at(patch: pytest.MonkeyPatch, step: int) -> None:
    """Let nothing be written, renamed or deleted from a call of this number on."""
    calls = itertools.count(1)

    def killed(real: Callable[..., Any]) -> Any:
        def call(*given: Any) -> Any:
            if next(calls) >= step:
                raise Killed(f"killed at call {step}: {given[1:]}")
            return real(*given)

        return call

    for name in ("_write", "rename", "delete"):
        patch.setattr(Files, name, killed(getattr(Files, name)))


def test_changes_of_two_tables_are_kept_apart_or_end_the_job(
    spark: SparkSession, running: Running, tmp_path: Path
) -> None:
    world = World(spark, running, tmp_path, "TwoTables")
    world.send(0, change("c", 1))
    world.run()
    world.send(0, change("c", 1, "b", table="customers"), change("c", 2))
    with pytest.raises(PySparkException, match=r"tables shop\.customers, shop\.orders"):
        world.run()
    assert world.names() == {1: "a"}
    report = world.run(table="shop.orders")
    assert "1 changes of other tables" in report.lines[0]
    assert (report.exit_code, world.names()) == (0, {1: "a", 2: "a"})


def test_a_key_in_two_queues_in_one_millisecond_is_named(
    spark: SparkSession, running: Running, tmp_path: Path
) -> None:
    world = World(spark, running, tmp_path, "SameMillisecond")
    # Many pairs: some of them are stored in the same millisecond, and all are in one micro-batch.
    for queue in range(2):
        world.send(queue, *[change("u", key, f"q{queue}") for key in range(50)])
    report = world.run()
    rows = spark.read.format("roquet").options(
        nameServers=running.name_servers, subscribe=world.topic
    )
    stored = rows.load().selectExpr("queueId", "queueOffset", "storeTimestamp as at")
    (same,) = sql(
        spark,
        "select count(*) as n from {s} a join {s} b on a.queueOffset = b.queueOffset"
        " and a.queueId = 0 and b.queueId = 1 and a.at = b.at",
        s=stored,
    ).collect()
    said = [it for it in report.lines if "of the same millisecond" in it]
    assert bool(said) == bool(same.n)
    assert report.exit_code == (1 if same.n else 0)


def test_an_older_checkpoint_whose_next_micro_batch_has_more_loses_none_of_it(
    spark: SparkSession, running: Running, tmp_path: Path
) -> None:
    world = World(spark, running, tmp_path, "OlderCheckpointWithMore")
    world.send(0, change("c", 0))
    world.run()
    kept, checkpoint = tmp_path / "kept", world.out / "_checkpoint"
    shutil.copytree(checkpoint, kept)
    world.send(0, change("c", 1))
    world.run()
    shutil.rmtree(checkpoint)
    shutil.copytree(kept, checkpoint)
    world.send(0, change("c", 2))
    # The micro-batch has the name of the one that was merged last, and a message more.
    world.run()
    assert world.names() == dict.fromkeys(range(3), "a")


def test_a_table_that_is_behind_its_checkpoint_is_refused_and_made_whole_without_it(
    spark: SparkSession, running: Running, tmp_path: Path
) -> None:
    world = World(spark, running, tmp_path, "SetBack")
    versions, whole = world.out / "_versions", {}
    for key in range(3):
        world.send(0, change("c", key))
        world.run()
        whole[key] = "a"
    lost = sorted(versions.glob("*.json"))
    lost[-1].unlink()
    with pytest.raises(LakeError, match="was set back to an older version"):
        world.run()
    for it in lost[:-1]:
        it.write_text("")
        it.with_name(f".{it.name}.crc").unlink(missing_ok=True)
    with pytest.raises(LakeError, match=r"json is damaged: .* Remove it"):
        world.run()
    shutil.rmtree(versions)
    with pytest.raises(UsageError, match="_checkpoint has been read from already"):
        world.run()
    shutil.rmtree(world.out / "_checkpoint")
    world.run()
    assert world.names() == whole


def test_a_checkpoint_of_another_table_is_refused(
    spark: SparkSession, running: Running, tmp_path: Path
) -> None:
    world = World(spark, running, tmp_path, "AnotherTable")
    world.send(0, change("c", 1))
    one, other, elsewhere = tmp_path / "one", tmp_path / "other", str(tmp_path / "elsewhere")
    world.run(out=str(one), checkpoint=elsewhere)
    world.run(out=str(other))
    with pytest.raises(LakeError, match="one of both is of another table"):
        world.run(out=str(other), checkpoint=elsewhere)
    # One job at a time, as a timer may start the next one too early.
    for held in (elsewhere, f"{one}/_versions"):
        with (
            alone(Files(spark), held),
            pytest.raises(UsageError, match=f"{held}: another job goes on from it"),
        ):
            world.run(out=str(one), checkpoint=elsewhere)
    # An older copy of the table, with the newest checkpoint.
    shutil.copytree(one, world.out)
    world.send(0, change("c", 2))
    world.run(out=str(one), checkpoint=elsewhere)
    with pytest.raises(LakeError, match="has them up to 0"):
        world.run(checkpoint=elsewhere)
    # One job at a time, as a timer may start the next one too early.
    for held in (elsewhere, f"{one}/_versions"):
        with (
            alone(Files(spark), held),
            pytest.raises(UsageError, match=f"{held}: another job goes on from it"),
        ):
            world.run(out=str(one), checkpoint=elsewhere)


def test_a_file_of_a_table_that_is_gone_is_named_and_never_fewer_rows(
    spark: SparkSession, running: Running, tmp_path: Path
) -> None:
    world = World(spark, running, tmp_path, "FileGone")
    world.send(0, *(change("c", key) for key in range(9)))
    world.run()
    file = next((world.out / "_rows").rglob("*.parquet"))
    kept = file.read_bytes()
    file.unlink()
    with pytest.raises(LakeError, match=f"{file.name} is gone"):
        world.names()
    world.send(0, change("c", 9))
    with pytest.raises(LakeError, match=f"{file.name} is gone"):
        world.run()
    file.write_bytes(kept)
    world.run()
    assert world.names() == dict.fromkeys(range(10), "a")


def _delete_the_oldest(running: Running, topic: str) -> dict[int, int]:
    """Delete the first file of the log; return where the queues begin then."""
    with sync.connect(running.name_servers) as mq:
        mq.admin().brokers.delete_expired("broker-a")

        def lows() -> dict[int, int]:
            found = mq.admin().topics.offsets(topic)
            return {n: found[MessageQueue(topic, "broker-a", n)].min_offset for n in range(2)}

        wait_until("the oldest messages are gone", lambda: min(lows().values()) > 2, 60)
        return lows()


@pytest.mark.parametrize("name", ["_delta_log", "_lake.json"])
def test_a_folder_of_another_table_is_refused(
    spark: SparkSession, tmp_path: Path, name: str
) -> None:
    (tmp_path / name).mkdir()
    given = {"nameServers": "127.0.0.1:1", "subscribe": "T", "key": "id", "columns": COLUMNS}
    with pytest.raises(UsageError, match=f"has a {name} and no _cdc.json"):
        cdc.run(spark, {**given, "out": str(tmp_path)}, print)
    assert [it.name for it in tmp_path.iterdir()] == [name]
