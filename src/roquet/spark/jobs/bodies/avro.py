"""Bodies in Avro, by a schema in JSON: one record a body, without a file's or an object's header.

Types become what Spark's own reader of Avro makes of them: an enum is a string, a union with null
its other branch, dates, times since 1970 and decimals those of Spark. Other logical types stay the
plain type below.
"""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING, Any, Final, TypeGuard, cast

from roquet.base.errors import UsageError
from roquet.spark.jobs.bodies import shapes
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
_WIDER: Final = ({"int", "long"}, {"float", "double"})


class AvroReader:
    """Reads bodies by one schema."""

    def __init__(self, text: str) -> None:
        """Take the schema as JSON. Raises UsageError."""
        import fastavro  # noqa: PLC0415  (only this kind of body needs it)
        import pyarrow as pa  # noqa: PLC0415
        from fastavro.schema import SchemaParseException  # noqa: PLC0415

        named: dict[str, Any] = {}
        try:
            self._schema: Any = fastavro.parse_schema(_plain(json.loads(text)), named_schemas=named)
        except (SchemaParseException, ValueError, KeyError, TypeError, RecursionError) as error:
            raise UsageError(f"schema: no Avro schema: {str(error)[:300]}") from error
        self.shape = _Shapes(named).of(self._schema)
        if not pa.types.is_struct(self.shape.type):
            raise UsageError("schema: an Avro schema of bodies has to be a record")
        library: Any = fastavro
        self._read: Callable[..., Any] = library.schemaless_reader

    def read(self, body: bytes) -> Any:
        """Return the record as a dict. Raises ValueError when bytes are left, and others."""
        stream = io.BytesIO(body)
        found = self._read(stream, self._schema, None)
        if stream.tell() != len(body):
            raise ValueError("there is more than a record")
        return found


class _Shapes:
    """Shapes of the types of one schema."""

    def __init__(self, named: dict[str, Any]) -> None:
        self._named = named
        self._within: list[str] = []

    def of(self, schema: Any) -> Shape:
        if _is_union(schema):
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
            return _logical(logical, schema)
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
        item = schema["items"]
        shape = None if item == "null" else self.of(item)
        if shape is None or not self._has_bytes(item):
            # A count without bytes behind it would be believed, however large.
            raise UsageError("schema: items of an Avro array have to take bytes")
        return shapes.repeated(shape)

    def _map(self, schema: dict[str, Any]) -> Shape:
        return shapes.mapped(_primitive("string"), self.of(schema["values"]))

    def _record(self, schema: dict[str, Any]) -> Shape:
        name = schema["name"]
        if name in self._within:
            raise UsageError(f"schema: {name} is a part of itself, which no table can keep")
        self._within.append(name)
        fields = {field["name"]: self.of(field["type"]) for field in schema["fields"]}
        self._within.pop()
        return shapes.record(name, fields)

    def _union(self, branches: list[Any]) -> Shape:
        others = [branch for branch in branches if branch != "null"]
        if len(others) == 1:
            return self.of(others[0])
        for wide in _WIDER:
            if others and all(isinstance(it, str) and it in wide for it in others):
                return self.of("long" if "long" in wide else "double")
        raise UsageError(f"schema: a union of {str(branches)[:200]} has no type in a table")

    def _has_bytes(self, schema: Any) -> bool:
        """Tell whether a value takes any bytes, of a type that has a shape."""
        if isinstance(schema, str):
            known = self._named.get(schema)
            return known is None or self._has_bytes(known)
        if _is_union(schema):
            return True
        kind = schema["type"]
        if kind in ("record", "error"):
            return any(self._has_bytes(field["type"]) for field in schema["fields"])
        if kind == "fixed":
            return bool(schema["size"] > 0)
        return kind in ("array", "map", "enum") or self._has_bytes(kind)


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


def _logical(name: str, schema: dict[str, Any]) -> Shape:
    import pyarrow as pa  # noqa: PLC0415

    if name == "date":
        return Shape(pa.date32())
    if name == "moment":
        return Shape(pa.timestamp("us", "UTC"))
    if name == "local":
        return Shape(pa.timestamp("us"))
    digits = schema["precision"]
    if digits > DECIMAL_DIGITS_MAX:
        raise UsageError(f"schema: a decimal of {digits} digits, {DECIMAL_DIGITS_MAX} at most")
    return Shape(pa.decimal128(digits, schema.get("scale", 0)))


def _is_union(schema: object) -> TypeGuard[list[Any]]:
    return isinstance(schema, list)


def _plain(schema: Any) -> Any:
    """Return a schema without the logical types that are not for tables."""
    if _is_union(schema):
        return [_plain(it) for it in schema]
    if not isinstance(schema, dict):
        return schema
    found = {name: _plain(it) for name, it in cast("dict[str, Any]", schema).items()}
    logical = found.get("logicalType")
    if logical is not None and (str(found.get("type")), logical) not in _LOGICAL:
        del found["logicalType"]
    return found
