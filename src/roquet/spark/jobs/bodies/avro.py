"""Bodies in Avro, by a schema in JSON: one record a body, without a file's or an object's header.

Bodies may name the schema that they were written by (`avro_writers.py`); then they are read as
Avro resolves the two: fields by name or alias, defaults for those that are new, wider numbers.

Types become what Spark's own reader of Avro makes of them: an enum is a string, a union with null
its other branch, dates, times since 1970 and decimals those of Spark. Other logical types stay the
plain type below.
"""

from __future__ import annotations

import datetime as dt
import io
import json
from typing import TYPE_CHECKING, Any, Final, cast

from roquet.base.errors import UsageError
from roquet.spark.jobs.bodies import avro_limits, avro_writers, shapes
from roquet.spark.jobs.bodies.avro_limits import TYPES_MAX, is_union
from roquet.spark.jobs.bodies.shapes import DECIMAL_DIGITS_MAX, Shape

if TYPE_CHECKING:
    from collections.abc import Callable

_LOGICAL: Final[dict[tuple[str, Any], str]] = {
    ("int", "date"): "date",
    ("long", "timestamp-millis"): "moment",
    ("long", "timestamp-micros"): "moment",
    ("long", "local-timestamp-millis"): "local",
    ("long", "local-timestamp-micros"): "local",
    ("bytes", "decimal"): "decimal",
    ("fixed", "decimal"): "decimal",
}
_PLAIN: Final = {"enum": "string", "fixed": "bytes"}
WRITERS_MAX: Final = 1000
"""Schemas of writers that are kept parsed."""
_WIDER: Final = ({"int", "long"}, {"float", "double"})


class AvroReader:
    """Reads bodies by one schema, or by the one that each names, as this schema has it."""

    def __init__(self, text: str, find: Callable[[int], str] | None = None) -> None:
        """Take the schema as JSON.

        With `find`, bodies begin with the id of the schema by which they were written, and `find`
        returns that. Raises UsageError.
        """
        import fastavro  # noqa: PLC0415  (only this kind of body needs it)
        import pyarrow as pa  # noqa: PLC0415

        self._find = find
        self._writers: dict[int, Any] = {}
        self._schema, named = parsed(text)
        self.shape = _Shapes(named, is_strict=find is not None).of(self._schema)
        if not pa.types.is_struct(self.shape.type):
            raise UsageError("schema: an Avro schema of bodies has to be a record")
        if find is not None:
            avro_limits.set_defaults(self._schema, named)
        library: Any = fastavro
        self._read: Callable[..., Any] = library.schemaless_reader

    def read(self, body: bytes) -> Any:
        """Return the record as a dict. Raises ValueError when bytes are left, and others."""
        if self._find is not None:
            writer = self._writer(avro_writers.identified(body), self._find)
            return self._whole(body[avro_writers.HEADER :], writer, self._schema)
        try:
            return self._whole(body, self._schema, None)
        except Exception as error:
            if len(body) > avro_writers.HEADER and body[0] == 0:
                text = "it ends too early" if isinstance(error, EOFError | IndexError) else error
                raise ValueError(
                    f"{text}; if a zero byte and the id of its schema,"
                    f" {avro_writers.identified(body)}, are in front of it, give the option schemas"
                ) from error
            raise

    def _whole(self, body: bytes, writer: Any, reader: Any) -> Any:
        stream = io.BytesIO(body)
        found = self._read(stream, writer, reader)
        if stream.tell() != len(body):
            raise ValueError("there is more than a record")
        return found

    def _writer(self, number: int, find: Callable[[int], str]) -> Any:
        found = self._writers.get(number)
        if found is None:
            text = find(number)
            try:
                found, _ = parsed(text)
            except UsageError as error:
                # A fault of this body, and not of the options.
                found = ValueError(f"its schema {number}: {error}")
            if len(self._writers) >= WRITERS_MAX:
                self._writers.clear()
            self._writers[number] = found
        if isinstance(found, ValueError):
            raise found
        return found


def parsed(text: str) -> tuple[Any, dict[str, Any]]:
    """Return a schema as fastavro has it, and its named types. Raises UsageError."""
    import fastavro  # noqa: PLC0415  (only this kind of body needs it)
    from fastavro.schema import SchemaParseException  # noqa: PLC0415

    named: dict[str, Any] = {}
    try:
        found: Any = fastavro.parse_schema(_plain(json.loads(text)), named_schemas=named)
        avro_limits.check(found, named)
    except RecursionError as error:
        raise UsageError(avro_limits.TOO_DEEP) from error
    except (SchemaParseException, ValueError, KeyError, TypeError) as error:
        raise UsageError(f"schema: no Avro schema: {str(error)[:300]}") from error
    return found, named


class _Shapes:
    """Shapes of the types of one schema."""

    def __init__(self, named: dict[str, Any], *, is_strict: bool) -> None:
        self._named = named
        self._is_strict = is_strict
        self._count = 0

    def of(self, schema: Any) -> Shape:
        self._count += 1
        if self._count > TYPES_MAX:
            raise UsageError(f"schema: more than {TYPES_MAX:,} types of columns")
        if is_union(schema):
            return self._union(schema)
        if isinstance(schema, str):
            known = self._named.get(schema)
            return _primitive(schema) if known is None else self.of(known)
        return self._complex(schema)

    def _complex(self, schema: dict[str, Any]) -> Shape:
        kind = schema["type"]
        if not isinstance(kind, str):
            return self.of(kind)
        logical = _LOGICAL.get((kind, schema.get("logicalType")))
        if logical is not None:
            return _logical(logical, schema, is_strict=self._is_strict)
        if kind in _PLAIN:
            return _primitive(_PLAIN[kind])
        made = {
            "record": self._record,
            "error": self._record,
            "array": self._array,
            "map": self._map,
        }.get(kind)
        return self.of(kind) if made is None else made(schema)

    def _array(self, schema: dict[str, Any]) -> Shape:
        return shapes.repeated(self.of(schema["items"]))

    def _map(self, schema: dict[str, Any]) -> Shape:
        return shapes.mapped(_primitive("string"), self.of(schema["values"]))

    def _record(self, schema: dict[str, Any]) -> Shape:
        fields = {field["name"]: self.of(field["type"]) for field in schema["fields"]}
        return shapes.record(schema["name"], fields)

    def _union(self, branches: list[Any]) -> Shape:
        others = [branch for branch in branches if branch != "null"]
        if len(others) == 1:
            return self.of(others[0])
        for wide in _WIDER:
            if others and all(isinstance(it, str) and it in wide for it in others):
                return self.of("long" if "long" in wide else "double")
        raise UsageError(f"schema: a union of {str(branches)[:200]} has no type in a table")


def _primitive(name: str) -> Shape:
    import pyarrow as pa  # noqa: PLC0415  (slow to import)

    known = {
        "boolean": pa.bool_(),
        "int": pa.int32(),
        "long": pa.int64(),
        "float": pa.float32(),
        "double": pa.float64(),
        "bytes": pa.binary(),
        "string": pa.string(),
    }
    if name not in known:
        raise UsageError(f"schema: {name[:100]} has no type in a table")
    return Shape(known[name])


def _logical(name: str, schema: dict[str, Any], *, is_strict: bool) -> Shape:
    import pyarrow as pa  # noqa: PLC0415

    # A number of another writer's plain type has a unit that nobody knows.
    timed = _time if is_strict else None
    if name == "date":
        return Shape(pa.date32())
    if name == "moment":
        return Shape(pa.timestamp("us", "UTC"), timed)
    if name == "local":
        return Shape(pa.timestamp("us"), timed)
    digits = schema["precision"]
    if digits > DECIMAL_DIGITS_MAX:
        raise UsageError(f"schema: a decimal of {digits} digits, {DECIMAL_DIGITS_MAX} at most")
    return Shape(pa.decimal128(digits, schema.get("scale", 0)))


def _time(found: Any) -> dt.datetime:
    if not isinstance(found, dt.datetime):
        raise TypeError("a number that its own schema calls no time is none")
    return found


def _plain(schema: Any) -> Any:
    """Return a schema without the logical types that are not for tables."""
    if is_union(schema):
        return [_plain(it) for it in schema]
    if not isinstance(schema, dict):
        return schema
    found = {name: _plain(it) for name, it in cast("dict[str, Any]", schema).items()}
    logical = found.get("logicalType")
    if logical is not None and (str(found.get("type")), logical) not in _LOGICAL:
        del found["logicalType"]
    return found
