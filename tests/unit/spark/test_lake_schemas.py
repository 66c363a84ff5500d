"""Schemas of a lake that follow one another, and why a body is not as a schema says; no Spark."""

from __future__ import annotations

import pytest
from pyspark.sql import types as t

from roquet.base.errors import UsageError
from roquet.spark.jobs.bodies import json_reasons, shapes
from roquet.spark.jobs.bodies.avro import AvroReader
from roquet.spark.jobs.storage import schemas


def lake(**value: t.DataType) -> t.StructType:
    inner = t.StructType([t.StructField(name, kind) for name, kind in value.items()])
    fields = [t.StructField("body", t.BinaryType()), t.StructField("value", inner)]
    return t.StructType([*fields, t.StructField("day", t.DateType())])


def raw() -> t.StructType:
    return t.StructType([it for it in lake().fields if it.name != "value"])


NUMBERS = (t.ByteType(), t.ShortType(), t.IntegerType(), t.LongType(), t.FloatType())


@pytest.mark.parametrize("old", [*NUMBERS, t.DoubleType()])
@pytest.mark.parametrize("new", [*NUMBERS, t.DoubleType()])
def test_merged_numbers_have_a_type_that_holds_both(old: t.DataType, new: t.DataType) -> None:
    found = schemas.merged(lake(n=old), lake(n=new))["value"].dataType
    assert isinstance(found, t.StructType)
    kinds: list[t.DataType] = [t.ByteType(), t.ShortType(), t.IntegerType(), t.LongType()]
    if old in kinds and new in kinds:
        assert found["n"].dataType == max(old, new, key=kinds.index)
    else:
        assert found["n"].dataType == (old if old == new else t.DoubleType())


def test_merged_keeps_old_fields_in_order_and_adds_new_ones() -> None:
    old, new = lake(a=t.IntegerType(), b=t.StringType()), lake(c=t.DateType(), a=t.LongType())
    found = schemas.merged(old, new)
    assert found["value"].dataType.simpleString() == "struct<a:bigint,b:string,c:date>"
    assert schemas.changes(old, found) == [
        "value.a was int and is bigint",
        "value.c date is new",
    ]
    assert schemas.merged(found, old) == found
    assert schemas.changes(found, schemas.merged(found, old)) == []


def test_merged_takes_any_column_of_a_table_that_is_no_lake() -> None:
    key = t.StructField("id", t.LongType())
    new = t.StructType([key, t.StructField("value", t.StringType())])
    assert schemas.merged(t.StructType([key]), new, whole="table") == new


def test_merged_adds_parsed_bodies_to_a_raw_lake_but_takes_none_away() -> None:
    found = schemas.merged(raw(), lake(a=t.IntegerType()))
    assert found.names == ["body", "value", "day"]
    with pytest.raises(UsageError, match="parse bodies as before"):
        schemas.merged(found, raw())


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        (t.StringType(), t.IntegerType(), "no type holds both"),
        (t.ArrayType(t.StringType()), t.StringType(), "no type holds both"),
        (t.ArrayType(t.StringType()), t.ArrayType(t.LongType()), r"value\.n\[\] is string"),
        (t.BooleanType(), t.IntegerType(), "no type holds both"),
    ],
)
def test_merged_types_without_a_common_one_are_refused(
    old: t.DataType, new: t.DataType, why: str
) -> None:
    with pytest.raises(UsageError, match=why):
        schemas.merged(lake(n=old), lake(n=new))


def test_merged_refuses_names_that_differ_by_case_and_wider_types_of_delta() -> None:
    with pytest.raises(UsageError, match="tells no names apart by case"):
        schemas.merged(lake(n=t.IntegerType()), lake(N=t.IntegerType()))
    with pytest.raises(UsageError, match="a lake of Delta keeps its types"):
        schemas.merged(lake(n=t.IntegerType()), lake(n=t.LongType()), widen=False)
    more = schemas.merged(
        lake(n=t.LongType()), lake(n=t.IntegerType(), m=t.DateType()), widen=False
    )
    assert more["value"].dataType.simpleString() == "struct<n:bigint,m:date>"


def test_grown_keeps_types_of_the_lake_widens_numbers_and_names_what_is_left_out() -> None:
    old = lake(n=t.LongType(), s=t.StringType())
    new = t.StructType().add("n", t.DoubleType()).add("s", t.LongType()).add("m", t.DateType())
    found, left = schemas.grown(old, new.add("S", t.LongType()))
    kind = found["value"].dataType.simpleString()
    assert (kind, left) == (
        "struct<n:double,s:string,m:date>",
        ["value.S: Spark does not tell it from 's'"],
    )
    assert schemas.grown(raw(), t.StructType()) == (raw(), [])
    assert schemas.grown(raw(), new)[0].names == ["body", "value", "day"]
    many = t.StructType([t.StructField(f"f{n}", t.LongType()) for n in range(1001)])
    assert schemas.grown(old, many) == (old, ["value: new fields, 1,000 are kept at most"])


def test_names_of_parts_end_in_their_schema() -> None:
    for version in (1, 2, 999):
        assert schemas.version_of(schemas.named("b0123456789ab-0000000007", version)) == version


KIND = t.StructType(
    [
        t.StructField("n", t.ByteType()),
        t.StructField("ok", t.BooleanType()),
        t.StructField("many", t.ArrayType(t.MapType(t.StringType(), t.DoubleType()))),
        t.StructField("text", t.StringType()),
    ]
)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"", "empty"),
        (None, "empty"),
        (b"\xff", "no UTF-8 at byte 0"),
        (b"[" * 100_000, "no JSON"),
        (b'{"n": 1', "no JSON: Expecting"),
        (b'"x"', 'no JSON object: "x"'),
        (b'{"n": 128}', "$.n is no tinyint: 128"),
        (b'{"n": true}', "$.n is no tinyint: true"),
        (b'{"ok": 1}', "$.ok is no boolean: 1"),
        (b'{"many": [{"a": 1}, {"b": "x"}]}', '$.many[1].b is no double: "x"'),
        (b'{"many": {}}', "$.many is no array<map<string,double>>: {}"),
        (b'{"text": 1, "n": -128, "ok": null, "more": []}', json_reasons.UNKNOWN),
    ],
)
def test_why_a_json_body_is_bad(body: bytes | None, why: str) -> None:
    assert json_reasons.why(body, KIND).startswith(why)


def test_why_an_avro_body_is_bad() -> None:
    kind = '{"type": "record", "name": "R", "fields": [{"name": "n", "type": "int"}]}'
    reader = AvroReader(kind)
    assert shapes.why(reader, b"") == "empty"
    assert shapes.why(reader, b"\x02\x02") == "ValueError: there is more than a record"
    assert shapes.why(reader, b"\xff") == "it ends too early"


def test_grown_takes_a_name_that_an_object_has_twice_once() -> None:
    twice = t.StructType().add("n", t.LongType()).add("n", t.StringType())
    found, left = schemas.grown(raw(), t.StructType().add("deep", twice).add("deep", twice))
    assert found["value"].dataType.simpleString() == "struct<deep:struct<n:bigint>>"
    assert left == []
