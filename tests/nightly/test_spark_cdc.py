"""The job `cdc` in a real Spark: envelopes of Debezium become the table that they are of."""

from __future__ import annotations

import io
import itertools
import json
import random
import shutil
from typing import TYPE_CHECKING

import fastavro
import pytest
from pyspark.errors import PySparkException

from cdc_harness import Database, Row, envelope
from roquet.base.errors import UsageError
from roquet.client import Message
from roquet.spark.jobs import cdc

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from roquet.spark.jobs.shared.report import Report
    from spark_harness import Running

pytest_plugins = ["spark_harness"]
pytestmark = pytest.mark.spark
COLUMNS = "id bigint, name string, `total sum` double"
_numbers = itertools.count()


class World:
    """A topic of changes, and the table that a database would have."""

    def __init__(self, spark: SparkSession, running: Running, folder: Path) -> None:
        self.spark = spark
        self.running = running
        self.topic = f"Changes{next(_numbers)}"
        self.out = folder / "table"
        self.base = Database()
        self.rows = self.base.rows
        self.said: list[str] = []
        running.create_topic(self.topic, 2)

    def change(self, rng: random.Random, count: int) -> None:
        """Send random changes; a key's are all in one queue."""
        for queue, bodies in self.base.changes(rng, count).items():
            self.send(queue, *bodies)

    def send(self, queue: int, *bodies: bytes) -> None:
        if bodies:
            self.running.send(self.topic, [Message(self.topic, it) for it in bodies], queue)

    def run(self, **options: str) -> Report:
        given = {"nameServers": self.running.name_servers, "subscribe": self.topic, "key": "id"}
        given |= {"columns": COLUMNS, "out": str(self.out), "buckets": "3", **options}
        return cdc.run(self.spark, given, self.said.append)

    def table(self) -> dict[int, Row]:
        rows = cdc.table(self.spark, str(self.out)).select("id", "name", "total sum").collect()
        found = {row.id: row.asDict() for row in rows}
        assert len(found) == len(rows)
        return found


def test_table_is_that_of_the_database_over_restarts_and_repetitions(
    spark: SparkSession, running: Running, tmp_path: Path
) -> None:
    world = World(spark, running, tmp_path)
    rng = random.Random(20)
    for turn in range(3):
        world.change(rng, 30)
        if turn == 1:
            # What a kill leaves between the table's version and Spark's own note.
            shutil.rmtree(world.out / "_checkpoint" / "commits")
        report = world.run(maxOffsetsPerTrigger="25")
        assert report.exit_code == 0, report.lines
        assert world.table() == world.rows
    versions = sorted((world.out / "_versions").glob("*.json"))
    assert len(versions) == 3
    parts = {it.name for it in (world.out / "_rows").iterdir()}
    named = [json.loads(it.read_text()) for it in versions]
    assert parts <= {part for it in named for part in (it["part"], *it["buckets"].values())}
    # A key that goes on in another queue: the change that was stored last counts.
    moved = {"id": 3, "name": "moved", "total sum": None}
    world.send(0, envelope("u", None, moved))
    world.rows[3] = moved
    world.run()
    assert world.table() == world.rows
    # All changes once more, in another cut: each is known already.
    shutil.rmtree(world.out / "_checkpoint")
    world.run(maxOffsetsPerTrigger="40")
    assert world.table() == world.rows
    with pytest.raises(UsageError, match="others need a folder of their own"):
        world.run(key="name")


def test_columns_that_a_table_gets_are_null_in_older_rows_and_numbers_are_widened(
    spark: SparkSession, running: Running, tmp_path: Path
) -> None:
    world = World(spark, running, tmp_path)

    def upsert(**row: object) -> bytes:
        return envelope("u", None, row)

    world.send(0, *(upsert(id=it, n=it, a={"x": "one"}) for it in range(4)))
    world.run(columns="id bigint, n int, a struct<x: string>")
    # What a database drops stays, and is null from then on.
    world.send(0, upsert(id=0, n=2**40, a={"x": "two", "y": 0.5}, b=[1]), upsert(id=9))
    world.run(columns="id bigint, n bigint, a struct<x: string, y: double>, b array<int>")
    assert [it for it in world.said if it.startswith("schema ")] == [
        "schema 2 of the table: n was int and is bigint; a.y double is new; b array<int> is new"
    ]
    # The same columns as before once more: the table has all that it ever had.
    world.send(1, upsert(id=1, n=5))
    world.run(columns="id bigint, n int")
    found = cdc.table(spark, str(world.out)).orderBy("id").drop("_storeTimestamp")
    assert found.columns[:4] == ["id", "n", "a", "b"]
    assert [(it.id, it.n, it.a and (it.a.x, it.a.y), it.b) for it in found.collect()] == [
        (0, 2**40, ("two", 0.5), [1]),
        (1, 5, None, None),
        (2, 2, ("one", None), None),
        (3, 3, ("one", None), None),
        (9, None, None, None),
    ]
    for columns, why in (
        ("id bigint, n string", "n is bigint in the table, and string in the new schema"),
        ("id bigint, `_Kind` string", "_Kind is a column that every table has"),
    ):
        with pytest.raises(UsageError, match=why):
            world.run(columns=columns)
    # The bucket of a row follows from the type of its key.
    other = {"out": str(tmp_path / "other"), "subscribe": world.topic}
    world.run(columns="id int", **other)
    with pytest.raises(UsageError, match="id is int in the key of"):
        world.run(columns="id bigint", **other)


def test_what_is_no_change_is_kept_and_named_or_ends_the_job(
    spark: SparkSession, running: Running, tmp_path: Path
) -> None:
    world = World(spark, running, tmp_path)
    row = {"id": 1, "name": "a", "total sum": None}
    wrong = [
        b"\xff",
        b"[]",
        envelope("t", None, None),
        envelope("u", row, None),
        envelope("d", None, None),
        envelope("c", None, {"name": "x"}),
        envelope("c", None, {"id": "x"}),
        b'{"a": 1}',
    ]
    right = [envelope("r", None, row, within=False), b'{"schema": null, "payload": null}', b"null"]
    world.send(0, *right, envelope("m", None, None), *wrong)
    with pytest.raises(PySparkException, match=r"offset 4 is no change.*failOnBadBodies is on"):
        world.run(failOnBadBodies="true")
    assert world.table() == {}
    report = world.run(metricsPath=str(tmp_path / "metrics"))
    assert report.exit_code == 1
    told = (tmp_path / "metrics" / "cdc.prom").read_text().splitlines()
    assert {"roquet_cdc_bad_bodies 8", "roquet_cdc_upserts 1", "roquet_cdc_deletions 0"} < set(told)
    assert report.lines[0] == (
        "12 messages read, of them 8 bad, 1 messages of the database, 2 tombstones, 1 inserts and"
        " updates"
    )
    assert report.lines[1:] == (f"8 messages were no changes: {world.out}/_bad",)
    assert world.table() == {1: row}
    assert len([it for it in world.said if "is no change" in it]) == 8
    kept = spark.read.parquet(f"{world.out}/_bad/*").orderBy("queueOffset").collect()
    assert [bytes(it.body) for it in kept] == wrong
    assert [it.error for it in kept] == [
        "no UTF-8 at byte 0",
        "no JSON object: []",
        "op t: a truncated table is not followed",
        "op u without after",
        "op d without before",
        "after lacks a column of the key: id",
        '$.payload.after.id is no bigint: "x"',
        "no op: it is no envelope",
    ]


def test_envelopes_in_avro(spark: SparkSession, running: Running, tmp_path: Path) -> None:
    world = World(spark, running, tmp_path)
    fields = [{"name": "id", "type": "long"}, {"name": "name", "type": ["null", "string"]}]
    table = {"type": "record", "name": "Value", "fields": fields}
    schema = {
        "type": "record",
        "name": "Envelope",
        "fields": [
            {"name": "before", "type": ["null", table]},
            {"name": "after", "type": ["null", "Value"]},
            {"name": "op", "type": "string"},
        ],
    }
    made = fastavro.parse_schema(schema)

    def encoded(op: str, before: Row | None, after: Row | None) -> bytes:
        out = io.BytesIO()
        fastavro.schemaless_writer(out, made, {"op": op, "before": before, "after": after})
        return out.getvalue()

    one, two = {"id": 1, "name": "one"}, {"id": 2, "name": None}
    world.send(0, encoded("c", None, one), encoded("c", None, two), encoded("d", one, None))
    given = {"nameServers": running.name_servers, "subscribe": world.topic, "key": "id"}
    given |= {"body": "avro", "schema": json.dumps(schema), "out": str(world.out)}
    report = cdc.run(spark, given, print)
    assert report.lines[0] == "3 messages read, of them 1 deletions, 2 inserts and updates"
    (row,) = cdc.table(spark, str(world.out)).collect()
    assert (row.id, row.name, row["_queueOffset"]) == (2, None, 1)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"key": ""}, "key is needed"),
        ({"columns": ""}, "body json needs columns"),
        ({"key": "no"}, "the table has id"),
        ({"columns": "id nothing"}, "columns: "),
        ({"body": "avro"}, "columns is for body json"),
        ({"body": "xml"}, "must be one of json, avro"),
    ],
)
def test_options_that_are_wrong(
    spark: SparkSession, running: Running, tmp_path: Path, options: dict[str, str], why: str
) -> None:
    given = {"nameServers": running.name_servers, "subscribe": "T", "key": "id"}
    given |= {"columns": COLUMNS, "out": str(tmp_path), **options}
    with pytest.raises(UsageError, match=why):
        cdc.run(spark, given, print)
