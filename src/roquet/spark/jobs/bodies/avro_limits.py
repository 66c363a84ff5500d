"""What a schema in Avro may ask of whoever reads by it, and its defaults as values.

fastavro reads by recursion in C, as deep as a schema or a body says, and believes a count of items
that take no bytes. So schemas are checked before anything is read by them.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeGuard, cast

from roquet.base.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

LEVELS_MAX: Final = 50
"""Types within one another, a map counts twice: Arrow sends Spark no more than 64."""
TOO_DEEP: Final = f"schema: no Avro schema: more than {LEVELS_MAX} types are within one another"
TYPES_MAX: Final = 10_000
"""Types of a table's columns, those within others too: names let a short schema have any number."""


class _Seen(NamedTuple):
    levels: int
    has_bytes: bool


def check(schema: Any, named: Mapping[str, Any]) -> None:
    """Raise UsageError for a parsed schema that no body may be read by."""
    _Check(named).of(schema, 1)


def is_union(schema: object) -> TypeGuard[list[Any]]:
    """Tell whether a schema is a union."""
    return isinstance(schema, list)


def set_defaults(schema: Any, named: Mapping[str, Any]) -> None:
    """Replace defaults in a parsed schema by what fastavro would have read of a body.

    It gives them as JSON has them: texts for bytes, numbers for times and decimals.
    """
    fields = list({id(it): it for it in _fields([schema, *named.values()])}.values())
    made = [_value(it["type"], it["default"], named) for it in fields if "default" in it]
    for it, value in zip((it for it in fields if "default" in it), made, strict=True):
        it["default"] = value


# --- inside --------------------------------------------------------------------------------------


def _fields(schemas: list[Any]) -> Iterator[dict[str, Any]]:
    """Yield the fields of all records, some more than once."""
    done: set[int] = set()
    waiting = list(schemas)
    while waiting:
        it = waiting.pop()
        if is_union(it):
            waiting += it
        elif isinstance(it, dict) and id(cast("Any", it)) not in done:
            held = cast("dict[str, Any]", it)
            done.add(id(held))
            waiting += [held[part] for part in ("items", "values", "type") if part in held]
            for field in held.get("fields", ()):
                waiting.append(field["type"])
                yield field


class _Check:
    def __init__(self, named: Mapping[str, Any]) -> None:
        self._named = named
        self._known: dict[str, _Seen] = {}
        self._within: list[str] = []

    def of(self, schema: Any, level: int) -> _Seen:
        if level > LEVELS_MAX:
            raise UsageError(TOO_DEEP)
        if is_union(schema):
            found = [self.of(it, level) for it in schema]
            # Its branch takes a byte.
            return _Seen(max((it.levels for it in found), default=0), has_bytes=True)
        if isinstance(schema, str):
            known = self._named.get(schema)
            if known is None:
                return _Seen(1, schema != "null")
            return self._by_name(schema, known, level)
        return self._complex(schema, level)

    def _complex(self, schema: dict[str, Any], level: int) -> _Seen:
        kind = schema["type"]
        if kind in ("record", "error"):
            return self._by_name(schema["name"], schema, level)
        if kind == "array":
            inner = self.of(schema["items"], level + 1)
            if not inner.has_bytes:
                # A count without bytes behind it would be believed, however large.
                raise UsageError("schema: items of an Avro array have to take bytes")
            return _Seen(inner.levels + 1, has_bytes=True)
        if kind == "map":
            return _Seen(self.of(schema["values"], level + 2).levels + 2, has_bytes=True)
        if kind in ("fixed", "enum"):
            return _Seen(1, kind == "enum" or schema["size"] > 0)
        return self.of(kind, level)

    def _by_name(self, name: str, schema: Any, level: int) -> _Seen:
        if name in self._within:
            raise UsageError(f"schema: {name} is a part of itself, which no table can keep")
        known = self._known.get(name)
        if known is None:
            self._within.append(name)
            if schema["type"] in ("record", "error"):
                types = [field["type"] for field in schema["fields"]]
                known = self._most(types, level)
            else:
                known = self.of(schema, level)
            self._within.pop()
            self._known[name] = known
        if level + known.levels > LEVELS_MAX + 1:
            raise UsageError(TOO_DEEP)
        return known

    def _most(self, types: list[Any], level: int) -> _Seen:
        found = [self.of(it, level + 1) for it in types]
        levels = 1 + max((it.levels for it in found), default=0)
        return _Seen(levels, any(it.has_bytes for it in found))


def _value(schema: Any, given: Any, named: Mapping[str, Any]) -> Any:
    """Return a default, which fastavro has checked, as a body has it."""
    if is_union(schema):
        others = [it for it in schema if it != "null"]
        return None if given is None else _value(others[0], given, named)
    if isinstance(schema, str):
        if schema in named:
            return _value(named[schema], given, named)
        return given.encode("latin-1") if schema == "bytes" and isinstance(given, str) else given
    return _within(schema, given, named)


def _within(schema: dict[str, Any], given: Any, named: Mapping[str, Any]) -> Any:
    kind = schema["type"]
    if kind in ("record", "error"):
        return {
            it["name"]: _value(it["type"], given.get(it["name"], it.get("default")), named)
            for it in schema["fields"]
        }
    if kind == "array":
        return [_value(schema["items"], it, named) for it in given]
    if kind == "map":
        return {name: _value(schema["values"], it, named) for name, it in given.items()}
    return given if kind == "enum" or not isinstance(kind, str) else _leaf(schema, given)


def _leaf(schema: dict[str, Any], given: Any) -> Any:
    import fastavro  # noqa: PLC0415  (only this kind of body needs it)

    library: Any = fastavro
    plain = {name: it for name, it in schema.items() if name != "logicalType"}
    if plain["type"] in ("bytes", "fixed") and isinstance(given, str):
        given = given.encode("latin-1")
    out = io.BytesIO()
    library.schemaless_writer(out, plain, given)
    return library.schemaless_reader(io.BytesIO(out.getvalue()), schema, None)
