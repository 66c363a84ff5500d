"""Schemas between Spark and the sources: what users choose by one, and options of catalog tables.

Spark (4.2) shows a Python source the options of `CREATE TABLE` once, when it asks for the schema,
and none when the table is read. They are therefore kept where the catalog keeps them: in the
metadata of the schema's first column. A table that was created with columns has no such place.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from roquet.base.errors import UsageError
from roquet.spark.option_table import ENGINE, ENGINE_PREFIX

if TYPE_CHECKING:
    from collections.abc import Mapping

_KEPT: Final = "roquet.options"
_TABLE: Final = "provider"
"""Only `CREATE TABLE` gives an option of this name."""

_KINDS: Final[Mapping[str, DataType]] = {
    "string": StringType(),
    "int": IntegerType(),
    "bigint": LongType(),
    "timestamp": TimestampType(),
    "binary": BinaryType(),
    "map<string,string>": MapType(StringType(), StringType()),
}


def of(types: Mapping[str, str], options: Mapping[str, str]) -> StructType:
    """Return the schema of columns; for a table of the catalog its options are in it."""
    found = StructType([StructField(name, _KINDS[kind]) for name, kind in types.items()])
    if _TABLE not in {name.lower() for name in options}:
        return found
    own = {
        name: value
        for name, value in options.items()
        if name.lower() == "path"
        or (name.lower() not in ENGINE and not name.lower().startswith(ENGINE_PREFIX))
    }
    first, *others = found.fields
    kept = StructField(first.name, first.dataType, first.nullable, {_KEPT: json.dumps(own)})
    return StructType([kept, *others])


def options(given: Mapping[str, str], schema: StructType) -> dict[str, str]:
    """Return the options of a read: those that are given, else those that its table keeps.

    Raises UsageError when what the table keeps is not what `of` wrote.
    """
    found: dict[str, str] = {}
    for field in schema.fields:
        if (text := field.metadata.get(_KEPT)) is not None:
            try:
                found |= {str(name): str(value) for name, value in json.loads(text).items()}
            except (ValueError, AttributeError, TypeError) as error:
                raise UsageError(f"the table's options cannot be read: {error}") from error
    over = {name.lower() for name in given}
    return {name: it for name, it in found.items() if name.lower() not in over} | dict(given)


def projected(schema: StructType, types: Mapping[str, str]) -> tuple[str, ...]:
    """Return the columns that a schema chooses of those that there are, in its order.

    Raises UsageError for a column that there is not, another type, a column twice, or none.
    """
    known = {name: _KINDS[kind] for name, kind in types.items()}
    by_lower = {name.lower(): name for name in known}
    for field in schema.fields:
        if field.name not in known:
            near = by_lower.get(field.name.lower())
            hint = f"it is called {near}" if near else f"there are {', '.join(known)}"
            raise UsageError(f"schema: there is no column {field.name[:80]!r}; {hint}")
        if field.dataType != known[field.name]:
            raise UsageError(
                f"schema: column {field.name!r} is {known[field.name].simpleString()}, not"
                f" {field.dataType.simpleString()}; convert it with a cast when it is read"
            )
    names = tuple(field.name for field in schema.fields)
    if not names or len(set(names)) < len(names):
        raise UsageError("schema: name one column at least, and none twice")
    return names


def check(schema: StructType, types: Mapping[str, str]) -> None:
    """Raise UsageError unless a schema has exactly the columns that there are."""
    if projected(schema, types) != tuple(types):
        raise UsageError(f"schema: this table has the columns {', '.join(types)}")
