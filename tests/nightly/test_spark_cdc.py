"""The job `cdc` in a real Spark: envelopes of Debezium become the table that they are of."""

from __future__ import annotations

import io
import itertools
import json
import random
import shutil
from typing import TYPE_CHECKING, Any

import fastavro
import pytest
from pyspark.errors import PySparkException

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
Row = dict[str, Any]


class World:
    """A topic of changes, and the table that a database would have."""

    def __init__(self, spark: SparkSession, running: Running, folder: Path) -> None:
        self.spark = spark
        self.running = running
        self.topic = f"Changes{next(_numbers)}"
        self.out = folder / "table"
        self.rows: dict[int, Row] = {}
        self.said: list[str] = []
        running.create_topic(self.topic, 2)

    def change(self, rng: random.Random, count: int) -> None:
        """Send random changes; a key's are all in one queue."""
        made: dict[int, list[bytes]] = {0: [], 1: []}
        for _ in range(count):
            key = rng.randrange(12)
            before = self.rows.get(key)
            if before is not None and rng.random() < 0.3:
                del self.rows[key]
                made[key % 2] += [envelope("d", before, None), b"null"]
                continue
            after = {"id": key, "name": f"n{rng.randrange(99)}", "total sum": rng.randrange(9) / 2}
            self.rows[key] = after
            made[key % 2].append(envelope("c" if before is None else "u", before, after))
        for queue, bodies in made.items():
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


def envelope(op: str, before: Row | None, after: Row | None, *, within: bool = True) -> bytes:
    found = {"before": before, "after": after, "op": op, "ts_ms": 1, "source": {"table": "t"}}
    return json.dumps({"schema": {}, "payload": found} if within else found).encode()


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
    report = world.run()
    assert report.exit_code == 1
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
