"""Why a body is not as a schema for JSON says: for people, of bodies that Spark could not parse."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, cast

if TYPE_CHECKING:
    from pyspark.sql.types import DataType

SHOWN: Final = 60
"""Characters of a value that are shown."""
_KINDS: Final[dict[str, tuple[type, ...]]] = {
    "boolean": (bool,),
    "tinyint": (int,),
    "smallint": (int,),
    "int": (int,),
    "bigint": (int,),
    "float": (int, float),
    "double": (int, float),
}
_BITS: Final = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}
UNKNOWN: Final = "it is not as the schema says"


def why(body: bytes | None, schema: DataType) -> str:
    """Return in a line why a body is none of this schema; a common text if that is not found."""
    try:
        found: object = json.loads((body or b"").decode("utf-8"))
    except UnicodeDecodeError as error:
        return f"no UTF-8 at byte {error.start}"
    except RecursionError:
        return "no JSON: too deep"
    except ValueError as error:
        return f"no JSON: {error}" if body else "empty"
    if not isinstance(found, dict):
        return f"no JSON object: {_shown(found)}"
    return _differs("$", cast("object", found), schema) or UNKNOWN


def _differs(path: str, found: object, schema: Any) -> str | None:
    """Return the first value that a type cannot hold."""
    from pyspark.sql import types as t  # noqa: PLC0415  (slow to import)

    if found is None:
        return None
    value = found
    items: list[tuple[str, object, Any]] | None = None
    if isinstance(schema, t.StructType) and isinstance(found, dict):
        held = cast("dict[str, object]", found)
        items = [(f".{it.name}", held.get(it.name), it.dataType) for it in schema.fields]
    elif isinstance(schema, t.ArrayType) and isinstance(found, list):
        every = enumerate(cast("list[object]", found))
        items = [(f"[{place}]", it, schema.elementType) for place, it in every]
    elif isinstance(schema, t.MapType) and isinstance(found, dict):
        held = cast("dict[str, object]", found)
        items = [(f".{name}", it, schema.valueType) for name, it in held.items()]
    if items is not None:
        lines = (_differs(path + name, it, kind) for name, it, kind in items)
        return next((it for it in lines if it is not None), None)
    return (
        None
        if _holds(value, schema)
        else f"{path} is no {schema.simpleString()[:SHOWN]}: {_shown(value)}"
    )


def _holds(found: object, schema: Any) -> bool:
    from pyspark.sql import types as t  # noqa: PLC0415

    kind: str = schema.simpleString()
    if isinstance(schema, t.StructType | t.ArrayType | t.MapType):
        return False
    if kind not in _KINDS:
        return True
    if isinstance(found, bool):
        return kind == "boolean"
    if isinstance(found, int) and kind in _BITS:
        half = 1 << (_BITS[kind] - 1)
        return -half <= found < half
    return isinstance(found, _KINDS[kind])


def _shown(found: object) -> str:
    text = json.dumps(found)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"
