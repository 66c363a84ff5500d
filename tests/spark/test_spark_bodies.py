"""The job `archive` with bodies that are parsed, in a real Spark: JSON, Avro and Protobuf."""

from __future__ import annotations

import datetime as dt
import io
import json
from typing import TYPE_CHECKING

import fastavro
import pytest
from google.protobuf import descriptor_pb2, timestamp_pb2

from lake_harness import World
from roquet.base.errors import UsageError
from roquet.client import Message

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
    with pytest.raises(UsageError, match="has other columns"):
        world.archive(body="json", schema="n bigint")


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
