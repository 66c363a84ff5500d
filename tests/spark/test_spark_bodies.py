"""The job `archive` with bodies that are parsed, in a real Spark: JSON, Avro and Protobuf."""

from __future__ import annotations

import datetime as dt
import io
import json
import shutil
from typing import TYPE_CHECKING

import fastavro
import pytest
from google.protobuf import descriptor_pb2, timestamp_pb2
from pyspark.errors import PySparkException

from lake_harness import World
from pyspark_roquet import whole_topic
from roquet.base.errors import UsageError
from roquet.client import Message
from roquet.spark.jobs import archive
from roquet.spark.jobs.archiving import quarantine

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from spark_harness import Running

pytest_plugins = ["spark_harness"]
pytestmark = pytest.mark.spark
BAD = (b"none", b"\xff\xfe")
MOMENT = dt.datetime(2026, 1, 2, 3, 4, 5, 678901, dt.UTC)
READING = {
    "type": "record",
    "name": "Reading",
    "fields": [
        {"name": "n", "type": "int"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "by", "type": {"type": "map", "values": "double"}},
        {"name": "note", "type": ["null", "string"]},
    ],
}


@pytest.fixture
def world(spark: SparkSession, running: Running, tmp_path: Path) -> Iterator[World]:
    yield World(spark, running, tmp_path)
    spark.conf.set("spark.sql.session.timeZone", "UTC")


def send(world: World, *bodies: bytes) -> None:
    world.running.send(world.topic, [Message(world.topic, body) for body in bodies], 0)


def test_json_bodies_have_a_column(world: World) -> None:
    world.send(3)
    send(world, *BAD)
    world.archive(body="json", schema="n int")
    rows = world.lake.read().where("queueId = 0").orderBy("queueOffset").collect()
    assert [row.value and row.value.n for row in rows] == [0, 1, 2, None, None]
    assert bytes(rows[3].body) == BAD[0]
    with pytest.raises(UsageError, match=r"value\.n is int in the lake, and string"):
        world.archive(body="json", schema="n string")


def test_bad_bodies_are_kept_named_and_counted(world: World, tmp_path: Path) -> None:
    figures = tmp_path / "figures"
    bodies = (b'{"n": "x"}', b"[]", b'[{"n": 1}]', b'{"n": 3000000000}', b"null", b"{", *BAD)
    world.send(1)
    send(world, *bodies)
    given = {"body": "json", "schema": "n int, m array<double>"}
    with pytest.raises(PySparkException, match=r"8 bad bodies.*failOnBadBodies is on"):
        world.archive(**given, failOnBadBodies="true")
    assert world.lake.parts() == []
    said: list[str] = []
    report = archive.run(
        world.spark, {**world.options, **given, "metricsPath": str(figures)}, said.append
    )
    assert report.lines[1] == f"8 bad bodies, with what is wrong: {world.out}/_quarantine"
    (line,) = [it for it in said if "bad bodies" in it]
    assert line == (
        f'{world.topic} broker-a queue 0: 8 bad bodies, the first at offset 1: $.n is no int: "x"'
    )
    assert "roquet_archive_bad_bodies 8" in (figures / "archive.prom").read_text()
    found = quarantine.read(world.lake).orderBy("queueOffset").collect()
    assert [(it.queueOffset, bytes(it.body)) for it in found] == list(enumerate(bodies, 1))
    errors = [it.error for it in found]
    assert errors[1:5] == [
        "no JSON object: []",
        'no JSON object: [{"n": 1}]',
        "$.n is no int: 3000000000",
        "no JSON object: null",
    ]
    assert errors[5].startswith("no JSON: ")
    assert errors[7] == "no UTF-8 at byte 0"
    # The lake has them as well, at their offsets.
    rows = world.lake.read().where("queueId = 0").orderBy("queueOffset").collect()
    assert [row.value is None for row in rows] == [False, *[True] * len(bodies)]
    day = found[0].storeTimestamp.replace(tzinfo=dt.UTC).timestamp() * 1000
    assert world.look_after(check="true").exit_code == 0
    world.look_after(now_ms=int(day) + 5 * 86_400_000, retainDays="2")
    assert quarantine.read(world.lake).count() == 0
    # A part that no commit names is a try that was killed.
    (world.out / "_quarantine" / "part=b1-0" / "day=2026-01-01").mkdir(parents=True)
    assert quarantine.read(world.lake).count() == 0


def test_a_newer_schema_adds_columns_and_widens_numbers(world: World) -> None:
    world.send(2)
    world.archive(body="json", schema="n int, deep struct<a: bigint>, many array<int>")
    send(world, b'{"n": 5000000000, "who": "x", "deep": {"a": 1, "b": true}, "many": [1, null]}')
    said: list[str] = []
    second = {"body": "json", "schema": "n bigint, who string, deep struct<b: boolean, a: double>"}
    archive.run(world.spark, {**world.options, **second}, said.append)
    assert said[0] == (
        "schema 2 of the lake: value.n was int and is bigint; value.deep.a was bigint and is"
        " double; value.deep.b boolean is new; value.who string is new"
    )
    # An older schema is read by, and kept as the newest.
    send(world, b'{"n": 7, "who": "left out"}', b'{"n": 1.5}')
    world.archive(body="json", schema="n int")
    rows = world.lake.read().where("queueId = 0").orderBy("queueOffset").select("value").collect()
    values = [None if row.value is None else row.value.asDict(recursive=True) for row in rows]
    empty = {"n": None, "deep": None, "many": None, "who": None}
    assert values == [
        {**empty, "n": 0},
        {**empty, "n": 1},
        {"n": 5_000_000_000, "deep": {"a": 1.0, "b": True}, "many": None, "who": "x"},
        {**empty, "n": 7},
        None,
    ]
    assert type(rows[2].value.deep.a) is float
    (bad,) = quarantine.read(world.lake).collect()
    assert (bad.queueOffset, bad.error) == (4, "$.n is no int: 1.5")
    done = world.look_after(compact="true", check="true")
    assert done.lines == ("3 parts merged into 1", "no difference")
    (folder,) = world.part_folders()
    assert folder.name.endswith("-s2")
    again = world.lake.read().where("queueId = 0").orderBy("queueOffset").select("value").collect()
    assert again == rows
    with pytest.raises(UsageError, match="parse bodies as before"):
        world.archive()


def test_fields_of_json_bodies_become_columns(world: World) -> None:
    said: list[str] = []

    def archived(*bodies: bytes) -> None:
        send(world, *bodies)
        archive.run(world.spark, {**world.options, "body": "json"}, said.append)

    # Not one object yet.
    archived(b"[]")
    assert "value" not in world.lake.schema().names
    archived(b'{"n": 1, "deep": {"a": 1}, "nil": null}', b'{"n": 2}')
    archived(b'{"n": 1.5, "who": "x", "deep": {"a": 2, "b": [1, null]}}', b'{"N": 7, "nil": true}')
    archived(b'{"n": "text", "who": 5}', b"{}")
    kind = world.lake.schema()["value"].dataType.simpleString()
    assert kind == ("struct<deep:struct<a:bigint,b:array<bigint>>,n:double,nil:boolean,who:string>")
    third = (
        "schema 3 of the lake: value.deep.b array<bigint> is new; value.n was bigint and is double;"
        " value.nil boolean is new; value.who string is new"
    )
    assert [it for it in said if it.startswith(("schema", "left out"))] == [
        "schema 2 of the lake: value struct<deep:struct<a:bigint>,n:bigint> is new",
        third,
        "left out value.N: Spark does not tell it from 'n'",
    ]
    rows = whole_topic(
        world.spark,
        str(world.out),
        {"nameServers": world.running.name_servers, "subscribe": world.topic},
        body="json",
    )
    found = rows.where("queueId = 0").orderBy("queueOffset").select("value").collect()
    values = [None if it.value is None else it.value.asDict(recursive=True) for it in found]
    empty = {"deep": None, "n": None, "nil": None, "who": None}
    assert values == [
        None,
        {**empty, "n": 1.0, "deep": {"a": 1, "b": None}},
        {**empty, "n": 2.0},
        {**empty, "n": 1.5, "who": "x", "deep": {"a": 2, "b": [1, None]}},
        {**empty, "nil": True},
        None,
        empty,
    ]
    bad = quarantine.read(world.lake).orderBy("queueOffset").collect()
    assert [(it.queueOffset, it.error) for it in bad] == [
        (0, "no JSON object: []"),
        (5, '$.n is no double: "text"'),
    ]
    assert world.look_after(compact="true", check="true").lines[-1] == "no difference"


def test_a_micro_batch_killed_before_a_newer_schema_is_archived_once(world: World) -> None:
    world.send(3)
    world.archive(body="json", schema="n int")
    world.send(2)
    world.archive(body="json", schema="n int, m int")
    # What a kill leaves between the lake's commit and Spark's own note.
    shutil.rmtree(world.out / "_checkpoint" / "commits")
    report = world.archive(body="json", schema="n int, m int, k int")
    assert report.lines[0].startswith("0 messages archived"), report.lines
    assert world.look_after(check="true").lines == ("no difference",)
    assert world.lake.read().count() == 10


def test_avro_bodies_have_a_column(world: World, tmp_path: Path) -> None:
    # A moment is the same one wherever the session is.
    world.spark.conf.set("spark.sql.session.timeZone", "Asia/Shanghai")
    made = fastavro.parse_schema(READING)
    bodies: list[bytes] = []
    for n in range(3):
        out = io.BytesIO()
        value = {"n": n, "at": MOMENT, "by": {"a": n / 2}, "note": None if n else "first"}
        fastavro.schemaless_writer(out, made, value)
        bodies.append(out.getvalue())
    send(world, *bodies, *BAD)
    schema = tmp_path / "reading.avsc"
    schema.write_text(json.dumps(READING))
    world.archive(body="avro", schema=str(schema))
    send(world, bodies[2])
    world.archive(body="avro", schema=json.dumps(READING))
    done = world.look_after(compact="true", check="true")
    assert done.lines == ("2 parts merged into 1", "no difference")
    rows = world.lake.read().orderBy("queueOffset").collect()
    assert [row.value and row.value.n for row in rows] == [0, 1, 2, None, None, 2]
    assert [row.value.note for row in rows[:3]] == ["first", None, None]
    assert {row.value.at.astimezone(dt.UTC) for row in rows[:3]} == {MOMENT}
    assert rows[1].value.by == {"a": 0.5}
    assert bytes(rows[3].body) == BAD[0]


def test_protobuf_bodies_have_a_column(world: World, tmp_path: Path) -> None:
    stamp = descriptor_pb2.FileDescriptorProto()
    timestamp_pb2.DESCRIPTOR.CopyToProto(stamp)
    file = descriptor_pb2.FileDescriptorProto(name="r.proto", package="lab", syntax="proto3")
    file.dependency.append(stamp.name)
    field = descriptor_pb2.FieldDescriptorProto
    message = file.message_type.add(name="Reading")
    once, many = field.LABEL_OPTIONAL, field.LABEL_REPEATED
    message.field.add(name="n", number=1, type=field.TYPE_INT32, label=once)
    message.field.add(name="by", number=2, type=field.TYPE_DOUBLE, label=many)
    kind = ".google.protobuf.Timestamp"
    message.field.add(name="at", number=3, type=field.TYPE_MESSAGE, label=once, type_name=kind)
    descriptors = tmp_path / "r.desc"
    descriptors.write_bytes(
        descriptor_pb2.FileDescriptorSet(file=[stamp, file]).SerializeToString()
    )
    at = timestamp_pb2.Timestamp()
    at.FromDatetime(MOMENT)
    tail = at.SerializeToString()
    # Field 1: 7; field 2: one double, 0.5; field 3: the moment.
    full = b"\x08\x07" + b"\x12\x08" + b"\0" * 6 + b"\xe0\x3f" + b"\x1a" + bytes([len(tail)]) + tail
    send(world, full, b"\x08\x01", *BAD)
    world.archive(body="protobuf", schema=str(descriptors), message="lab.Reading")
    rows = world.lake.read().orderBy("queueOffset").collect()
    assert [row.value and row.value.n for row in rows] == [7, 1, None, None]
    assert (rows[0].value.by, rows[1].value.by) == ([0.5], [])
    assert rows[0].value["at"].astimezone(dt.UTC) == MOMENT
    assert rows[1].value["at"] is None
