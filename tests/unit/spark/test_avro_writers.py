"""Bodies in Avro whose schema has changed: each is read as the job's schema has it, or named."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from avro_registry import answer, body, registry
from roquet.base.clock import SystemClock
from roquet.base.errors import Unreachable, UsageError
from roquet.base.overriding import override
from roquet.spark.jobs.bodies import avro_writers, shapes
from roquet.spark.jobs.bodies.avro import AvroReader
from roquet.spark.jobs.bodies.avro_writers import Known, Registry
from roquet.spark.jobs.bodies.column import Bodies

if TYPE_CHECKING:
    from pathlib import Path

MILLIS = {"type": "long", "logicalType": "timestamp-millis"}
MONEY = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def record(*fields: dict[str, Any], name: str = "R") -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": list(fields)}


def field(name: str, kind: Any, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, **more}


def read(writer: Any, value: Any, reader: Any) -> Any:
    """Return what a body by one schema is by another; the reason as a text when it is none."""
    found = AvroReader(json.dumps(reader), Known({7: json.dumps(writer)}))
    bodies = [body(7, writer, value)]
    (value,) = shapes.values(found, bodies).to_pylist()
    return shapes.why(found, bodies[0]) if value is None else value


@pytest.mark.parametrize(
    ("writer", "value", "reader", "wanted"),
    [
        pytest.param(
            record(field("a", "int")),
            {"a": 1},
            record(field("a", "int"), field("b", "string", default="new")),
            {"a": 1, "b": "new"},
            id="gains",
        ),
        pytest.param(
            record(field("b", "string"), field("a", "int")),
            {"a": 1, "b": "x"},
            record(field("a", "int")),
            {"a": 1},
            id="drops",
        ),
        pytest.param(
            record(field("a", "int"), field("b", "float"), field("c", "int")),
            {"a": -5, "b": 0.5, "c": 3},
            record(field("a", "long"), field("b", "double"), field("c", "double")),
            {"a": -5, "b": 0.5, "c": 3.0},
            id="widens",
        ),
        pytest.param(
            record(field("old", "int")),
            {"old": 1},
            record(field("new", "long", aliases=["old"])),
            {"new": 1},
            id="renames",
        ),
        pytest.param(
            record(field("a", record(field("x", "int"), name="In"))),
            {"a": {"x": 1}},
            record(field("a", record(field("x", "long"), field("y", "int", default=3), name="In"))),
            {"a": {"x": 1, "y": 3}},
            id="within",
        ),
        pytest.param(
            record(field("a", "int")),
            {"a": 1},
            record(field("a", ["null", "int"]), field("b", ["null", "string"], default=None)),
            {"a": 1, "b": None},
            id="may be null",
        ),
    ],
)
def test_a_schema_that_changed_as_avro_allows_is_followed(
    writer: Any, value: Any, reader: Any, wanted: Any
) -> None:
    assert read(writer, value, reader) == wanted


def test_defaults_are_what_a_body_would_have_had() -> None:
    inner = record(field("x", MILLIS), field("y", "bytes", default="\u00ff"), name="In")
    reader = record(
        field("a", "int"),
        field("raw", "bytes", default="\u00ff\u0000"),
        field("at", MILLIS, default=1500),
        field("day", {"type": "int", "logicalType": "date"}, default=2),
        field("price", MONEY, default="\u0004\u00d2"),
        field("code", {"type": "fixed", "name": "Code", "size": 2}, default="\u00fe\u0001"),
        field("kind", {"type": "enum", "name": "K", "symbols": ["A", "B"]}, default="B"),
        field("many", {"type": "array", "items": MILLIS}, default=[1, 2]),
        field("by", {"type": "map", "values": "bytes"}, default={"k": "\u00ff"}),
        field("part", inner, default={"x": 1000}),
        field("same", "In", default={"x": 2000, "y": "\u0001"}),
    )
    assert read(record(field("a", "int")), {"a": 1}, reader) == {
        "a": 1,
        "raw": b"\xff\0",
        "at": EPOCH + dt.timedelta(seconds=1.5),
        "day": dt.date(1970, 1, 3),
        "price": Decimal("12.34"),
        "code": b"\xfe\x01",
        "kind": "B",
        "many": [EPOCH + dt.timedelta(milliseconds=it) for it in (1, 2)],
        "by": [("k", b"\xff")],
        "part": {"x": EPOCH + dt.timedelta(seconds=1), "y": b"\xff"},
        "same": {"x": EPOCH + dt.timedelta(seconds=2), "y": b"\x01"},
    }


@pytest.mark.parametrize(
    ("writer", "value", "reader", "why"),
    [
        (field("a", "int"), 1, field("a", "string"), "int is not string"),
        (field("a", "long"), 1, field("a", "int"), "long is not int"),
        (field("b", "int"), 1, field("a", "int"), "No default value for field a"),
        (field("a", ["null", "int"]), None, field("a", "int"), "mismatch"),
        # A number of no unit is no time, and a time no number.
        (field("a", "long"), 1000, field("a", MILLIS), "calls no time"),
        (field("a", MILLIS), EPOCH, field("a", "long"), "datetime"),
        (field("a", MONEY), Decimal("1.23"), field("a", "bytes"), "Decimal"),
        (field("a", "bytes"), b"\x7b", field("a", MONEY), "bytes"),
        (field("a", {**MONEY, "scale": 3}), Decimal("1.234"), field("a", MONEY), "Rescaling"),
        (
            field("a", {"type": "enum", "name": "K", "symbols": ["A", "B"]}),
            "B",
            field("a", {"type": "enum", "name": "K", "symbols": ["A"]}),
            "B not found",
        ),
    ],
)
def test_a_schema_that_changed_otherwise_makes_a_bad_body_with_its_reason(
    writer: Any, value: Any, reader: Any, why: str
) -> None:
    found = read(record(writer), {writer["name"]: value}, record(reader))
    assert why in found


RECURSIVE = record(field("next", ["null", "R"]))


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (b"", "empty"),
        (b"\0\0\0", "does not begin with the id of a schema"),
        (b"\x01\0\0\0\x07\x02", "does not begin with the id of a schema"),
        (b"\0\0\0\0\x09\x02", "schema 9 is not in the folder"),
        (b"\0\0\0\0\x07", "it ends too early"),
        (b"\0\0\0\0\x07\x02\x02", "more than a record"),
        # Lengths that are no lengths: of a text, of an array, of a map.
        (b"\0\0\0\0\x08" + b"\xfe" * 8 + b"\x7f" + b"x", "it ends too early"),
        (b"\0\0\0\0\x08\x09xyz", "it ends too early"),
        (b"\0\0\0\0\x0a" + b"\xfe" * 8 + b"\x7f", "it ends too early"),
        (b"\0\0\0\0\x0b" + b"\xfe" * 8 + b"\x7f", "it ends too early"),
        # Schemas by which nothing may be read: one without an end, and counts without bytes.
        (b"\0\0\0\0\x0c" + b"\x02" * 1_000_000, "R is a part of itself"),
        (b"\0\0\0\0\x0d" + b"\xfe" * 8 + b"\x7f", "items of an Avro array have to take bytes"),
        (b"\0\0\0\0\x0e\x02", "no Avro schema"),
    ],
)
def test_a_body_that_lies_is_named_and_harms_no_other(given: bytes, why: str) -> None:
    plain = record(field("a", "int"))
    nothing = {"type": "array", "items": record(field("n", "null"), name="N")}
    texts = {
        7: plain,
        8: record(field("b", "string"), field("a", "int")),
        10: record(field("b", {"type": "array", "items": "int"}), field("a", "int")),
        11: record(field("b", {"type": "map", "values": "int"}), field("a", "int")),
        12: RECURSIVE,
        13: record(field("b", nothing), field("a", "int")),
        14: {"type": "nothing"},
    }
    known = Known({number: json.dumps(it) for number, it in texts.items()})
    reader = AvroReader(json.dumps(plain), known)
    good = body(7, plain, {"a": 5})
    assert shapes.values(reader, [good, given, good]).to_pylist() == [{"a": 5}, None, {"a": 5}]
    assert why in shapes.why(reader, given)


def nested(levels: int) -> str:
    """Return a schema of records within one another, made without recursion."""
    text = '"int"'
    for number in range(levels):
        text = f'{{"type":"record","name":"R{number}","fields":[{{"name":"x","type":{text}}}]}}'
    return text


def by_name(count: int, *fields: str) -> str:
    """Return a schema whose records are one in the other by their names."""
    first = record(field("x", "int"), name="C0")
    others = [
        record(*(field(it, f"C{number - 1}") for it in fields), name=f"C{number}")
        for number in range(1, count)
    ]
    return json.dumps(record(*(field(it["name"].lower(), it) for it in (first, *others))))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (nested(50), "more than 50 types are within one another"),
        (nested(1000), "more than 50 types are within one another"),
        (by_name(5000, "x"), "more than 50 types are within one another"),
        (by_name(40, "x", "y"), "more than 10,000 types"),
        (by_name(40, *(f"f{it}" for it in range(100))), "more than 10,000 types"),
    ],
)
def test_a_schema_that_is_too_deep_or_too_large_is_refused(text: str, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        AvroReader(text)
    AvroReader(nested(49))


def test_a_body_with_an_id_says_which_option_it_needs() -> None:
    schema = record(field("a", "string"), field("b", "string"))
    reader = AvroReader(json.dumps(schema))
    why = shapes.why(reader, body(7, schema, {"a": "x", "b": "y"}))
    assert why == (
        "ValueError: there is more than a record; if a zero byte and the id of its schema, 7, are"
        " in front of it, give the option schemas"
    )


def test_a_folder_has_schemas_by_their_ids(tmp_path: Path) -> None:
    reader = json.dumps(record(field("a", "int")))
    with pytest.raises(UsageError, match=r"named by an id, as in 7\.avsc"):
        Bodies.parse("avro", reader, None, str(tmp_path))
    (tmp_path / "readme.txt").write_text("no schema")
    (tmp_path / "7.avsc").write_text(reader)
    found = Bodies.parse("avro", reader, None, str(tmp_path))
    assert found == Bodies("avro", reader, "", ((7, reader),))
    (tmp_path / "8.json").write_text("{")
    with pytest.raises(UsageError, match="schemas: that of the id 8: schema: no Avro schema"):
        Bodies.parse("avro", reader, None, str(tmp_path))
    (tmp_path / "07.avsc").write_text(reader)
    with pytest.raises(UsageError, match="two files of the id 7"):
        Bodies.parse("avro", reader, None, str(tmp_path))
    with pytest.raises(UsageError, match="cannot be read"):
        Bodies.parse("avro", reader, None, str(tmp_path / "none"))
    with pytest.raises(UsageError, match="schemas is for body avro"):
        Bodies.parse("json", "a int", None, str(tmp_path))


def test_a_folder_of_schemas_has_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = json.dumps(record(field("a", "int")))
    for number in range(3):
        (tmp_path / f"{number}.avsc").write_text(text)
    for limit, value in (("FILES_MAX", 2), ("TEXT_MAX", 20), ("TOTAL_MAX", 2 * len(text))):
        with monkeypatch.context() as patch:
            patch.setattr(avro_writers, limit, value)
            with pytest.raises(UsageError, match="has more than"):
                avro_writers.from_folder(str(tmp_path))


@pytest.mark.parametrize(
    "given",
    ["ftp://host", "http://", "http://user:word@host:8081", "http://host:0", "http://host/?a=b"],
)
def test_an_address_that_is_no_registry_is_refused(given: str) -> None:
    with pytest.raises(UsageError, match="is no registry"):
        Bodies.parse("avro", json.dumps(record(field("a", "int"))), None, given)


class Later(SystemClock):
    """A clock whose hand a test moves."""

    at = 0

    @override
    def steady_ms(self) -> int:
        return self.at


def test_a_registry_is_asked_once_for_each_schema() -> None:
    old, new = record(field("a", "int")), record(field("a", "int"), field("b", "int", default=2))
    pages = {"/schemas/ids/7": answer(old), "/schemas/ids/8": answer(new, schemaType="AVRO")}
    clock = Later()
    with registry(pages) as (url, asked):
        reader = AvroReader(json.dumps(new), Registry(url, clock=clock))
        bodies = [body(7, old, {"a": 1}), body(8, new, {"a": 1, "b": 9}), body(9, old, {"a": 1})]
        found = shapes.values(reader, bodies * 10).to_pylist()
        assert found == [{"a": 1, "b": 2}, {"a": 1, "b": 9}, None] * 10
        assert asked == ["/schemas/ids/7", "/schemas/ids/8", "/schemas/ids/9"]
        assert "the registry has no schema 9" in shapes.why(reader, bodies[2])
        # It may have it by and by.
        pages["/schemas/ids/9"] = answer(old)
        clock.at += avro_writers.UNKNOWN_MS
        assert shapes.values(reader, bodies[2:]).to_pylist() == [{"a": 1, "b": 2}]


@pytest.mark.parametrize(
    ("page", "why"),
    [
        (answer(record(field("a", "int")), schemaType="JSON"), "is of JSON"),
        (answer(record(field("a", "int")), references=[{"name": "x"}]), "references"),
        (answer({"type": "nothing"}), "no Avro schema"),
    ],
)
def test_a_schema_of_a_registry_that_does_not_serve_makes_bad_bodies(
    page: tuple[int, bytes], why: str
) -> None:
    schema = record(field("a", "int"))
    with registry({"/schemas/ids/7": page}) as (url, _):
        reader = AvroReader(json.dumps(schema), Registry(url))
        given = body(7, schema, {"a": 1})
        assert shapes.values(reader, [given]).to_pylist() == [None]
        assert why in shapes.why(reader, given)


@pytest.mark.parametrize("page", [(500, b""), (401, b"{}"), (200, b"<html>"), (200, b"{}")])
def test_a_registry_that_does_not_answer_ends_the_task_and_no_body_is_bad(
    page: tuple[int, bytes],
) -> None:
    schema = record(field("a", "int"))
    waited: list[float] = []
    given = body(7, schema, {"a": 1})
    with registry({"/schemas/ids/7": page}) as (url, asked):
        reader = AvroReader(json.dumps(schema), Registry(url, waited.append))
        for ask in (lambda: shapes.values(reader, [given]), lambda: shapes.why(reader, given)):
            with pytest.raises(Unreachable, match="schema 7 is needed"):
                ask()
        assert len(asked) == 2 * avro_writers.TRIES
    # Nobody listens there any more.
    with pytest.raises(Unreachable, match="schema 7 is needed"):
        shapes.values(reader, [given])
    assert len(waited) == 3 * (avro_writers.TRIES - 1)
