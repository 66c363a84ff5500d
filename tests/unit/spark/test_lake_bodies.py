"""Bodies in Avro and Protobuf as Arrow values; no Spark."""

from __future__ import annotations

import base64
import datetime as dt
import io
import json
import random
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import fastavro
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2

from roquet.base.errors import UsageError
from roquet.spark.jobs.bodies import shapes
from roquet.spark.jobs.bodies.avro import AvroReader
from roquet.spark.jobs.bodies.column import Bodies
from roquet.spark.jobs.bodies.protobuf import ProtobufReader

if TYPE_CHECKING:
    from pathlib import Path

MOMENT = dt.datetime(2026, 1, 2, 3, 4, 5, 678901, dt.UTC)
ORDER = {
    "type": "record",
    "name": "shop.Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "count", "type": "int"},
        {"name": "paid", "type": ["null", {"type": "long", "logicalType": "timestamp-micros"}]},
        {"name": "due", "type": {"type": "int", "logicalType": "date"}},
        {
            "name": "price",
            "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
        },
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["NEW", "OLD"]}},
        {"name": "tags", "type": {"type": "map", "values": "string"}},
        {
            "name": "lines",
            "type": {
                "type": "array",
                "items": {
                    "type": "record",
                    "name": "Line",
                    "fields": [{"name": "sku", "type": "string"}, {"name": "n", "type": "int"}],
                },
            },
        },
        {"name": "gift", "type": ["null", "Line"]},
        {"name": "at", "type": {"type": "int", "logicalType": "time-millis"}},
        {"name": "wide", "type": ["int", "long"]},
    ],
}
VALUE: dict[str, Any] = {
    "id": 2**40,
    "count": 3,
    "paid": MOMENT,
    "due": dt.date(2026, 2, 3),
    "price": Decimal("-12.50"),
    "kind": "OLD",
    "tags": {"a": "1", "b": "2"},
    "lines": [{"sku": "x", "n": 1}, {"sku": "y", "n": 2}],
    "gift": None,
    "at": 5,
    "wide": 2**40,
}


def avro(schema: Any, value: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return out.getvalue()


def orders() -> AvroReader:
    return AvroReader(json.dumps(ORDER))


def order() -> bytes:
    """Return VALUE as written; the time of day as the plain number that it is in a table."""
    schema = json.loads(json.dumps(ORDER))
    schema["fields"][9]["type"] = "int"
    return avro(schema, VALUE)


def test_an_avro_record_is_read_whole() -> None:
    found = shapes.values(orders(), [order(), None])
    assert str(found.type) == (
        "struct<id: int64, count: int32, paid: timestamp[us, tz=UTC], due: date32[day],"
        " price: decimal128(9, 2), kind: string, tags: map<string, string>,"
        " lines: list<item: struct<sku: string, n: int32>>, gift: struct<sku: string, n: int32>,"
        " at: int32, wide: int64>"
    )
    first, second = found.to_pylist()
    assert second is None
    assert {**first, "tags": dict(first["tags"])} == VALUE


def test_a_body_that_is_no_record_is_null_and_harms_no_other() -> None:
    reader = orders()
    good = order()
    # More digits than the type has, which Arrow refuses for all values together.
    long = bytearray(good)
    at = long.index(avro("bytes", (-1250).to_bytes(2, "big", signed=True)))
    long[at : at + 3] = avro("bytes", b"\x7f" * 12)
    bodies = [good, b"", good[:-1], good + b"\x00", bytes(long), b"\xff" * 40, good]
    found = shapes.values(reader, bodies)
    assert [it is not None for it in found.to_pylist()] == [True, *[False] * 5, True]
    rng = random.Random(7)
    for _ in range(2_000):
        damaged = bytearray(good)
        for _ in range(rng.randint(1, 4)):
            damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        assert len(shapes.values(reader, [bytes(damaged), good])) == 2


def test_many_bodies_become_one_array_slice_by_slice(monkeypatch: pytest.MonkeyPatch) -> None:
    schema = {"type": "record", "name": "A", "fields": [{"name": "n", "type": "int"}]}
    reader = AvroReader(json.dumps(schema))
    bodies = [avro(schema, {"n": n}) for n in range(100)]
    bodies[70] = avro("long", 2**40)
    wanted = [None if n == 70 else {"n": n} for n in range(100)]
    for size in (1, 7, 1 << 20):
        monkeypatch.setattr(shapes, "SLICE_BYTES", size)
        assert shapes.values(reader, iter(bodies)).to_pylist() == wanted
    assert shapes.values(reader, []).to_pylist() == []


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ("{", "no Avro schema"),
        ("[" * 100_000, "no Avro schema"),
        ('"int"', "has to be a record"),
        ('{"type": "record", "name": "A", "fields": []}', "A has no fields"),
        ('{"type": "record", "name": "A", "fields": [{"name": "x", "type": "B"}]}', "no Avro"),
    ],
)
def test_avro_schemas_that_are_none(schema: str, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        AvroReader(schema)


@pytest.mark.parametrize(
    ("field", "why"),
    [
        ("null", "null has no type in a table"),
        (["int", "string"], "a union of"),
        (["null", "A"], "A is a part of itself"),
        ({"type": "array", "items": "null"}, "have to take bytes"),
        ({"type": "array", "items": {"type": "fixed", "name": "F", "size": 0}}, "take bytes"),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 39, "scale": 0},
            "39 digits, 38 at most",
        ),
    ],
)
def test_avro_types_that_no_table_keeps(field: Any, why: str) -> None:
    schema = {"type": "record", "name": "A", "fields": [{"name": "x", "type": field}]}
    with pytest.raises(UsageError, match=why):
        AvroReader(json.dumps(schema))


FIELD = descriptor_pb2.FieldDescriptorProto


def protobuf_file() -> descriptor_pb2.FileDescriptorProto:
    """Return what `protoc` makes of a message with a field of every kind."""
    file = descriptor_pb2.FileDescriptorProto(name="shop.proto", package="shop", syntax="proto3")
    file.dependency.append("google/protobuf/timestamp.proto")
    kind = file.enum_type.add(name="Kind")
    kind.value.add(name="NEW", number=0)
    kind.value.add(name="OLD", number=1)
    file.message_type.add(name="Nothing")
    line = file.message_type.add(name="Line")
    line.field.add(name="sku", number=1, type=FIELD.TYPE_STRING, label=FIELD.LABEL_OPTIONAL)
    node = file.message_type.add(name="Node")
    _field(node, "next", 1, FIELD.TYPE_MESSAGE, of=".shop.Node")
    order = file.message_type.add(name="Order")
    _field(order, "id", 1, FIELD.TYPE_UINT64)
    _field(order, "count", 2, FIELD.TYPE_UINT32)
    _field(order, "paid", 3, FIELD.TYPE_MESSAGE, of=".google.protobuf.Timestamp")
    _field(order, "kind", 4, FIELD.TYPE_ENUM, of=".shop.Kind")
    _field(order, "lines", 5, FIELD.TYPE_MESSAGE, of=".shop.Line", many=True)
    entry = order.nested_type.add(name="StockEntry")
    entry.options.map_entry = True
    _field(entry, "key", 1, FIELD.TYPE_STRING)
    _field(entry, "value", 2, FIELD.TYPE_MESSAGE, of=".shop.Line")
    _field(order, "stock", 6, FIELD.TYPE_MESSAGE, of=".shop.Order.StockEntry", many=True)
    _field(order, "raw", 7, FIELD.TYPE_BYTES)
    _field(order, "rate", 8, FIELD.TYPE_DOUBLE)
    _field(order, "nothing", 9, FIELD.TYPE_MESSAGE, of=".shop.Nothing")
    _field(order, "gift", 10, FIELD.TYPE_MESSAGE, of=".shop.Line")
    return file


def _field(
    message: descriptor_pb2.DescriptorProto,
    name: str,
    number: int,
    kind: FIELD.Type.ValueType,
    *,
    of: str | None = None,
    many: bool = False,
) -> None:
    label = FIELD.LABEL_REPEATED if many else FIELD.LABEL_OPTIONAL
    message.field.add(name=name, number=number, type=kind, label=label, type_name=of)


def descriptors() -> bytes:
    stamp = descriptor_pb2.FileDescriptorProto()
    timestamp_pb2.DESCRIPTOR.CopyToProto(stamp)
    return descriptor_pb2.FileDescriptorSet(file=[stamp, protobuf_file()]).SerializeToString()


def protobuf(text: dict[str, Any]) -> bytes:
    pool = descriptor_pool.DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(descriptors()).file:
        pool.Add(file)
    made: Any = message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))
    return bytes(made(**text).SerializeToString())


def test_a_protobuf_message_is_read_whole() -> None:
    reader = ProtobufReader(descriptors(), "shop.Order")
    body = protobuf(
        {
            "id": 2**64 - 1,
            "count": 2**32 - 1,
            "paid": MOMENT,
            "kind": 1,
            "lines": [{"sku": "x"}, {"sku": "y"}],
            "stock": {"a": {"sku": "z"}},
            "raw": b"\x00\xff",
            "rate": 0.5,
        }
    )
    # An unknown number of an enum, a body that is none, and an empty message.
    found = shapes.values(reader, [body, b"\x20\x07", b"\xff", b""]).to_pylist()
    assert found[0] == {
        "id": Decimal(2**64 - 1),
        "count": 2**32 - 1,
        "paid": MOMENT,
        "kind": "OLD",
        "lines": [{"sku": "x"}, {"sku": "y"}],
        "stock": [("a", {"sku": "z"})],
        "raw": b"\x00\xff",
        "rate": 0.5,
        "gift": None,
    }
    assert found[1]["kind"] == "7"
    assert found[2] is None
    assert (found[3]["id"], found[3]["kind"], found[3]["paid"]) == (Decimal(0), "NEW", None)


@pytest.mark.parametrize(
    ("given", "message", "why"),
    [
        (b"\xff", "shop.Order", "no set of descriptors"),
        (b"", "shop.Order", "the descriptors have no shop.Order"),
        (None, "shop.Node", "shop.Node is a part of itself"),
        (None, "shop.Nothing", "shop.Nothing has no fields"),
        ("alone", "shop.Order", "with all imports"),
    ],
)
def test_protobuf_descriptors_that_do_not_serve(given: Any, message: str, why: str) -> None:
    if given == "alone":
        given = descriptor_pb2.FileDescriptorSet(file=[protobuf_file()]).SerializeToString()
    with pytest.raises(UsageError, match=why):
        ProtobufReader(descriptors() if given is None else given, message)


def test_schemas_come_as_text_or_from_files(tmp_path: Path) -> None:
    text = json.dumps(ORDER)
    (tmp_path / "order.avsc").write_text(text)
    (tmp_path / "shop.desc").write_bytes(descriptors())
    assert Bodies.parse("avro", str(tmp_path / "order.avsc"), None) == Bodies("avro", text)
    assert Bodies.parse("avro", text, None).schema == text
    found = Bodies.parse("protobuf", str(tmp_path / "shop.desc"), "shop.Order")
    assert (base64.b64decode(found.schema), found.message) == (descriptors(), "shop.Order")
    with pytest.raises(UsageError, match="cannot be read: No such file"):
        Bodies.parse("protobuf", str(tmp_path / "none.desc"), "shop.Order")
    (tmp_path / "large.avsc").write_bytes(b" " * (1 << 20) + b"{}")
    with pytest.raises(UsageError, match="is larger than"):
        Bodies.parse("avro", str(tmp_path / "large.avsc"), None)
    (tmp_path / "latin.avsc").write_bytes(b'"\xe4"')
    with pytest.raises(UsageError, match="no text in UTF-8"):
        Bodies.parse("avro", str(tmp_path / "latin.avsc"), None)
