"""Schemas of a lake, one after the other, and rows of an older one in the form of a newer.

Invariant: a schema has all fields of those before it, in their order, each of the same type or a
wider one. So rows of any part can be read as rows of the newest schema. The name of a part ends in
the number of its schema (`-s2`); parts of the first schema have no such end.
"""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING, Any, Final, cast

from roquet.base.errors import UsageError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType, StructType

SCHEMAS_MAX: Final = 1000
"""Schemas of one lake: a reader makes a plan for each that has parts."""
FIELDS_MAX: Final = 1000
"""Fields of bodies, those within others too, that are found in bodies."""
VALUE: Final = "value"
"""The column of parsed bodies."""
_DAY: Final = "day"
_NUMBERED: Final = re.compile(r".*-s([0-9]{1,4})")
_INTEGERS: Final = ("tinyint", "smallint", "int", "bigint")
_FLOATS: Final = ("float", "double")


def named(part: str, version: int) -> str:
    """Return the name of a part whose rows have this schema, the first is 1."""
    return part if version == 1 else f"{part}-s{version}"


def version_of(part: str) -> int:
    """Return the number of the schema that the rows of a part have."""
    found = _NUMBERED.fullmatch(part)
    return 1 if found is None else int(found[1])


def struct(kind: DataType) -> StructType:
    """Return a type that is a record. Raises UsageError for another."""
    from pyspark.sql.types import StructType  # noqa: PLC0415  (slow to import)

    if not isinstance(kind, StructType):
        raise UsageError(f"the lake's bodies are {kind.simpleString()[:200]}, and no records")
    return kind


def nullable(kind: Any) -> Any:
    """Return a type whose fields, items and values may all be null, without metadata."""
    from pyspark.sql import types as t  # noqa: PLC0415  (slow to import)

    if isinstance(kind, t.StructType):
        return t.StructType([t.StructField(it.name, nullable(it.dataType)) for it in kind.fields])
    if isinstance(kind, t.ArrayType):
        return t.ArrayType(nullable(kind.elementType))
    if isinstance(kind, t.MapType):
        return t.MapType(nullable(kind.keyType), nullable(kind.valueType))
    return kind


def merged(
    old: StructType, new: StructType, *, widen: bool = True, whole: str = "lake"
) -> StructType:
    """Return the columns that hold rows of both schemas of a lake, or of what `whole` says.

    Raises UsageError for types that have none in common, columns that are missing in the new one,
    and, without `widen`, for any other type.
    """
    lacking = [it for it in old.names if it not in new.names]
    if lacking:
        raise UsageError(f"the {whole} has the column {', '.join(lacking)}: parse bodies as before")
    found = cast("StructType", _common("", nullable(old), nullable(new), widen=widen, whole=whole))
    if VALUE in found.names and VALUE not in old.names and _DAY in found.names:
        # Among the columns of files: those of folders come last.
        fields = [it for it in found.fields if it.name != VALUE]
        at = next(place for place, it in enumerate(fields) if it.name == _DAY)
        fields.insert(at, found[VALUE])
        found = type(found)(fields)
    return found


def grown(old: StructType, value: StructType) -> tuple[StructType, list[str]]:
    """Return a lake's columns with the fields that were found in bodies, and what is left out.

    Types of the lake are widened, and never changed: bodies with other values do not fit.
    """
    from pyspark.sql import types as t  # noqa: PLC0415  (slow to import)

    held = nullable(old[VALUE].dataType) if VALUE in old.names else t.StructType([])
    left: list[str] = []
    wanted = _grown(VALUE, held, nullable(value), left)
    if _fields_of(wanted) > FIELDS_MAX:
        return old, [f"{VALUE}: new fields, {FIELDS_MAX:,} are kept at most"]
    if not wanted.fields:
        return old, left
    others = [it for it in nullable(old).fields if it.name != VALUE]
    new = t.StructType([*others, t.StructField(VALUE, wanted)])
    if VALUE not in old.names:
        return merged(old, new), left
    fields = [t.StructField(VALUE, wanted) if it.name == VALUE else it for it in nullable(old)]
    return t.StructType(fields), left


def changes(old: Any, new: Any, path: str = "") -> list[str]:
    """Return in words what the newer of two types has besides: `value.n bigint`, and so on."""
    from pyspark.sql import types as t  # noqa: PLC0415

    if isinstance(old, t.StructType) and isinstance(new, t.StructType):
        lines: list[str] = []
        for it in new.fields:
            below = f"{path}.{it.name}" if path else it.name
            if it.name in old.names:
                lines += changes(old[it.name].dataType, it.dataType, below)
            else:
                lines.append(f"{below} {it.dataType.simpleString()[:200]} is new")
        return lines
    if nullable(old) == nullable(new):
        return []
    return [f"{path} was {old.simpleString()[:200]} and is {new.simpleString()[:200]}"]


def as_newest(rows: DataFrame, newest: StructType) -> DataFrame:
    """Return rows of a schema in the form of a newer one; what they lack is null."""
    from pyspark.sql import functions as f  # noqa: PLC0415

    columns: list[Column] = []
    for it in newest.fields:
        if it.name in rows.columns:
            held = rows.schema[it.name].dataType
            made = converted(rows[f"`{it.name}`"], held, it.dataType)
        else:
            made = f.lit(None).cast(it.dataType)
        columns.append(made.alias(it.name))
    return rows.select(*columns)


def converted(column: Column, old: DataType, new: DataType) -> Column:
    """Return a value of a type in the form of a newer one of the same lake."""
    from pyspark.sql import functions as f  # noqa: PLC0415
    from pyspark.sql import types as t  # noqa: PLC0415

    if nullable(old) == nullable(new):
        return column
    if isinstance(old, t.StructType) and isinstance(new, t.StructType):
        fields = [_field(column, old, it).alias(it.name) for it in new.fields]
        return f.when(column.isNotNull(), f.struct(*fields))
    if isinstance(old, t.ArrayType) and isinstance(new, t.ArrayType):
        return f.transform(column, lambda it: converted(it, old.elementType, new.elementType))
    if isinstance(old, t.MapType) and isinstance(new, t.MapType):
        return f.transform_values(column, lambda _, it: converted(it, old.valueType, new.valueType))
    return column.cast(new)


# --- inside --------------------------------------------------------------------------------------


def _field(column: Column, old: StructType, wanted: Any) -> Column:
    from pyspark.sql import functions as f  # noqa: PLC0415

    if wanted.name not in old.names:
        return f.lit(None).cast(wanted.dataType)
    return converted(column.getField(wanted.name), old[wanted.name].dataType, wanted.dataType)


def _grown(path: str, old: Any, new: Any, left: list[str]) -> Any:
    from pyspark.sql import types as t  # noqa: PLC0415

    if isinstance(old, t.StructType) and isinstance(new, t.StructType):
        return t.StructType(_grown_fields(path, old, new, left))
    if isinstance(old, t.ArrayType) and isinstance(new, t.ArrayType):
        return t.ArrayType(_grown(f"{path}[]", old.elementType, new.elementType, left))
    return (
        old
        if (wider := _wider(old.simpleString(), new.simpleString())) is None
        else (next(it for it in (old, new, t.DoubleType()) if it.simpleString() == wider))
    )


def _grown_fields(path: str, old: StructType, new: StructType, left: list[str]) -> list[Any]:
    from pyspark.sql import types as t  # noqa: PLC0415

    found: list[Any] = []
    by_lower = {it.lower(): it for it in old.names}
    for it in old.fields:
        kind = it.dataType
        if it.name in new.names:
            kind = _grown(f"{path}.{it.name}", kind, new[it.name].dataType, left)
        found.append(t.StructField(it.name, kind))
    taken = set(old.names)
    for it in new.fields:
        same = by_lower.setdefault(it.name.lower(), it.name)
        if it.name in taken:
            # Also a name that an object has twice.
            continue
        taken.add(it.name)
        if same == it.name and it.name:
            kind = _fresh(f"{path}.{it.name}", it.dataType, left)
            if kind is not None:
                found.append(t.StructField(it.name, kind))
        else:
            left.append(f"{path}.{it.name[:100]}: Spark does not tell it from {same[:100]!r}")
    return found


def _fresh(path: str, kind: Any, left: list[str]) -> Any:
    """Return the type of a new field, each name in it once; None when nothing of it can be kept."""
    from pyspark.sql import types as t  # noqa: PLC0415

    if isinstance(kind, t.StructType):
        fields = _grown_fields(path, t.StructType([]), kind, left)
        return t.StructType(fields) if fields else None
    if isinstance(kind, t.ArrayType):
        item = _fresh(f"{path}[]", kind.elementType, left)
        return None if item is None else t.ArrayType(item)
    return kind


def _fields_of(kind: Any) -> int:
    from pyspark.sql import types as t  # noqa: PLC0415

    if isinstance(kind, t.StructType):
        return sum(1 + _fields_of(it.dataType) for it in kind.fields)
    return _fields_of(kind.elementType) if isinstance(kind, t.ArrayType) else 0


def _common(path: str, old: Any, new: Any, *, widen: bool, whole: str) -> Any:
    from pyspark.sql import types as t  # noqa: PLC0415

    if old == new:
        return old
    again = functools.partial(_common, widen=widen, whole=whole)
    if isinstance(old, t.StructType) and isinstance(new, t.StructType):
        return t.StructType(_fields(path, old, new, again, whole))
    if isinstance(old, t.ArrayType) and isinstance(new, t.ArrayType):
        return t.ArrayType(again(f"{path}[]", old.elementType, new.elementType))
    if isinstance(old, t.MapType) and isinstance(new, t.MapType) and old.keyType == new.keyType:
        return t.MapType(old.keyType, again(f"{path}{{}}", old.valueType, new.valueType))
    wider = _wider(old.simpleString(), new.simpleString())
    if wider is None or not (widen or wider == old.simpleString()):
        raise UsageError(
            f"{path} is {old.simpleString()[:300]} in the {whole}, and"
            f" {new.simpleString()[:300]} in the new schema: "
            + (f"a {whole} of Delta keeps its types" if wider else "no type holds both")
            + f"; such a schema needs a {whole} of its own"
        )
    return next(it for it in (old, new, t.DoubleType()) if it.simpleString() == wider)


def _fields(path: str, old: StructType, new: StructType, again: Any, whole: str) -> list[Any]:
    from pyspark.sql import types as t  # noqa: PLC0415

    found: list[Any] = []
    by_lower = {it.lower(): it for it in old.names}
    for it in old.fields:
        below = f"{path}.{it.name}" if path else it.name
        held = new[it.name].dataType if it.name in new.names else it.dataType
        found.append(t.StructField(it.name, again(below, it.dataType, held)))
    for it in new.fields:
        if it.name in old.names:
            continue
        if (same := by_lower.get(it.name.lower())) is not None:
            raise UsageError(
                f"{path}.{it.name}: the {whole} has {same}, and Spark tells no names apart by case"
            )
        by_lower[it.name.lower()] = it.name
        found.append(it)
    return found


def _wider(old: str, new: str) -> str | None:
    """Return the number type that holds both, a whole number or a double; None when none does."""
    known = (*_INTEGERS, *_FLOATS)
    if old not in known or new not in known:
        return None
    if old in _INTEGERS and new in _INTEGERS:
        return max(old, new, key=_INTEGERS.index)
    return old if old == new else "double"
