"""Envelopes of Debezium in message bodies, as changes of rows.

A body is an envelope with `before`, `after` and `op`, in JSON also within `payload`. A body without
content, and in JSON a null or a null payload, is a tombstone: it follows a deletion and changes
nothing. `source` says which table it is of, if it is there.
"""

from __future__ import annotations

from base64 import b64encode
from typing import TYPE_CHECKING, Any, Final

from roquet.base.errors import UsageError
from roquet.spark.jobs.bodies.column import Bodies, json_column

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

PLACE: Final = ("topic", "brokerName", "queueId", "queueOffset", "storeTimestamp")
"""Where a change comes from, and when it was stored."""
UPSERT: Final = "upsert"
DELETE: Final = "delete"
TOMBSTONE: Final = "tombstone"
MESSAGE: Final = "message"
"""What an application has written into the database's log; no change of a row."""
BAD: Final = "bad"
OTHER: Final = "other"
"""A change of a table that is not wanted."""
_NULL: Final = r"^\s*null\s*$"
_SOURCE: Final = ("db", "schema", "table")
"""What names a table in `source`, in this order."""
_UNAVAILABLE: Final = "__debezium_unavailable_value"
"""What Debezium sends in the place of a large value that a change has left as it was."""
_PLACED: Final = tuple(f"_{name}" for name in PLACE)


def parsed(
    rows: DataFrame,
    bodies: Bodies,
    columns: str,
    keys: Sequence[str],
    tables: Sequence[str] = (),
) -> DataFrame:
    """Return a row for each message: `PLACE`, `body`, `kind`, `error`, `source`, and `row`.

    An update that gave a row another key is two, the deletion of the old one besides.
    `columns` are those of the table as DDL, for JSON; changes of other tables than `tables`, if
    there are any, are OTHER. Raises UsageError, and Spark's AnalysisException for columns.
    """
    value = _value(bodies, columns)
    shown = rows.select(*PLACE, "body", value.alias("value"))
    kind = shown.schema["value"].dataType
    shown = shown.select("*", _reason(bodies, kind).alias("why"))
    envelope = _envelope(kind)
    table = _table(kind)
    _check(keys, table)
    found = shown.select("*", envelope.alias("e"))
    wrong = f"coalesce({_wrong(table, json=bodies.kind == 'json')})"
    found = found.selectExpr("*", f"if(e.op in ('c', 'r', 'u'), {wrong}, null) as wrong")
    found = found.selectExpr(
        *PLACE,
        "body",
        f"{_kind(keys, tables, json=bodies.kind == 'json')} as kind",
        f"{_error(keys)} as error",
        "e.source as source",
        "coalesce(if(e.op = 'd', e.before, e.after), e.after, e.before) as row",
        f"if({_moved(keys)}, e.before, null) as former",
    )
    both = f"array(struct(kind, row), struct('{DELETE}' as kind, former as row))"
    made = f"if(kind = '{UPSERT}' and former is not null, {both}, array(struct(kind, row)))"
    return found.selectExpr(*PLACE, "body", "error", "source", f"inline({made})")


# --- inside --------------------------------------------------------------------------------------


def _value(bodies: Bodies, columns: str) -> Column:
    from pyspark.sql.types import DataType, StringType, StructField, StructType  # noqa: PLC0415

    if bodies.kind != "json":
        found = bodies.column()
        assert found is not None
        return found
    row = DataType.fromDDL(columns)
    if not isinstance(row, StructType):
        raise UsageError("columns: must be names and types, as in `id bigint, name string`")
    fields = [StructField("before", row), StructField("after", row)]
    # A text keeps a source of any shape.
    texts = [StructField("op", StringType()), StructField("source", StringType())]
    envelope = StructType([*fields, *texts])
    return json_column(StructType([StructField("payload", envelope), *envelope.fields]))


def _reason(bodies: Bodies, kind: Any) -> Column:
    """Return why a body is no envelope, for those that are none; null for others."""
    from pyspark.sql import functions as f  # noqa: PLC0415  (slow to import)

    return f.when(f.col("value").isNull(), bodies.reason(kind))


def _envelope(kind: Any) -> Column:
    from pyspark.sql import functions as f  # noqa: PLC0415

    missing = [name for name in ("before", "after", "op") if name not in kind.names]
    if missing:
        raise UsageError(f"schema: an envelope of Debezium has {', '.join(missing)}")
    value = f.col("value")
    bare = _parts(value, kind)
    if "payload" not in kind.names:
        return bare
    within = value.getField("payload")
    return f.when(within.isNotNull(), _parts(within, kind["payload"].dataType)).otherwise(bare)


def _parts(value: Column, kind: Any) -> Column:
    from pyspark.sql import functions as f  # noqa: PLC0415

    parts = [value.getField(it).alias(it) for it in ("before", "after", "op")]
    return f.struct(*parts, _source(value, kind).alias("source"))


def _source(value: Column, kind: Any) -> Column:
    """Return the table that a change is of, as `shop.public.orders`; null if it does not say."""
    from pyspark.sql import functions as f  # noqa: PLC0415
    from pyspark.sql.types import StringType, StructType  # noqa: PLC0415

    found = kind["source"].dataType if "source" in kind.names else None
    if isinstance(found, StructType):
        source, there = value.getField("source"), found.names
    elif isinstance(found, StringType):
        ddl = ", ".join(f"`{it}` string" for it in _SOURCE)
        source, there = f.from_json(value.getField("source"), ddl), list(_SOURCE)
    else:
        return f.lit(None).cast("string")
    names = [source.getField(it).cast("string") for it in _SOURCE if it in there]
    if "table" not in there:
        return f.lit(None).cast("string")
    return f.when(source.getField("table").isNotNull(), f.concat_ws(".", *names))


def _table(kind: Any) -> StructType:
    from pyspark.sql.types import StructType  # noqa: PLC0415

    before, after = kind["before"].dataType, kind["after"].dataType
    if not isinstance(after, StructType) or before != after:
        raise UsageError("schema: before and after have to be the same record")
    return after


def _check(keys: Sequence[str], table: StructType) -> None:
    unknown = [it for it in keys if it not in table.names]
    if unknown or not keys:
        raise UsageError(
            f"key: {', '.join(unknown) or 'name one column at least'}; the table has"
            f" {', '.join(table.names)[:500]}"
        )
    lower: dict[str, str] = dict.fromkeys(_PLACED, "that every table has")
    lower = {name.lower(): why for name, why in lower.items()}
    for name in table.names:
        if not name or name.lower() in lower:
            why = lower.get(name.lower(), "whose name is empty")
            raise UsageError(f"columns: {name[:100]!r} is one {why}; Spark tells no case apart")
        lower[name.lower()] = "that is there twice"
    for name in keys:
        kind = table[name].dataType
        if not _comparable(kind):
            raise UsageError(f"key: {name} is {kind.simpleString()[:200]}, which cannot be one")


def _comparable(kind: Any) -> bool:
    """Tell whether values of a type can be told apart."""
    from pyspark.sql import types as t  # noqa: PLC0415

    if isinstance(kind, t.StructType):
        return all(_comparable(it.dataType) for it in kind.fields)
    if isinstance(kind, t.ArrayType):
        return _comparable(kind.elementType)
    return not isinstance(kind, t.MapType | t.VariantType | t.NullType)


def _wrong(table: StructType, *, json: bool) -> str:
    """Return SQL, by comma: what is wrong with values of `after`, null for each that is right."""
    from pyspark.sql import types as t  # noqa: PLC0415

    texts = ", ".join(_text(it) for it in (_UNAVAILABLE, b64encode(_UNAVAILABLE.encode()).decode()))
    lacks = "is left out by the database (REPLICA IDENTITY FULL sends it)"
    far = "is not within the years 1 to 9999 (a number is seconds: keep others as bigint)"
    found: list[str] = []
    for it in table.fields:
        name = f"e.after.{_quoted(it.name)}"
        if isinstance(it.dataType, t.StringType):
            found.append(f"if({name} in ({texts}), {_text(f'after.{it.name} {lacks}')}, null)")
        elif isinstance(it.dataType, t.BinaryType):
            value = f"X'{_UNAVAILABLE.encode().hex()}'"
            found.append(f"if({name} = {value}, {_text(f'after.{it.name} {lacks}')}, null)")
        elif json and isinstance(it.dataType, t.DateType | t.TimestampType | t.TimestampNTZType):
            years = f"year({name}) not between 1 and 9999"
            found.append(f"if({years}, {_text(f'after.{it.name} {far}')}, null)")
    return ", ".join(found) or "cast(null as string)"


def _text(value: str) -> str:
    """Return a text in SQL, whatever is in it."""
    return f"cast(X'{value.encode().hex()}' as string)"


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"


def _kind(keys: Sequence[str], tables: Sequence[str], *, json: bool) -> str:
    text = "try_validate_utf8(cast(body as string))"
    without = f" when {text} rlike r'{_NULL}' then '{TOMBSTONE}'" if json else ""
    empty = "e.op is null and e.before is null and e.after is null"
    has = f"array_contains(json_object_keys({text}), 'payload')"
    payload = f" when {empty} and {has} then '{TOMBSTONE}'" if json else ""
    named = ", ".join(_text(it) for it in tables)
    other = f" when e.source not in ({named}) then '{OTHER}'" if tables else ""
    return (
        f"case when body is null or length(body) = 0 then '{TOMBSTONE}'{without}"
        f" when value is null then '{BAD}'{payload}{other}"
        f" when wrong is not null then '{BAD}'"
        f" when e.op in ('c', 'r', 'u') and {_whole('after', keys)} then '{UPSERT}'"
        f" when e.op = 'd' and {_whole('before', keys)} then '{DELETE}'"
        f" when e.op = 'm' then '{MESSAGE}' else '{BAD}' end"
    )


def _error(keys: Sequence[str]) -> str:
    lacking = f"'lacks a column of the key: {', '.join(keys)}'"
    return (
        "case when value is null then why"
        " when e.op is null then 'no op: it is no envelope'"
        " when wrong is not null then wrong"
        " when e.op in ('c', 'r', 'u') then"
        f" if(e.after is null, concat('op ', e.op, ' without after'), concat('after ', {lacking}))"
        f" when e.op = 'd' then if(e.before is null, 'op d without before',"
        f" concat('before ', {lacking}))"
        " when e.op = 't' then 'op t: a truncated table is not followed'"
        " else concat('op ', left(e.op, 20), ' is not known') end"
    )


def _moved(keys: Sequence[str]) -> str:
    """Return SQL: whether an update has given a row another key.

    Debezium sends a deletion and an insert when the key is the database's own; the job's may be
    another one.
    """
    same = " and ".join(f"e.before.{_quoted(it)} <=> e.after.{_quoted(it)}" for it in keys)
    return f"e.op = 'u' and {_whole('before', keys)} and not ({same})"


def _whole(side: str, keys: Sequence[str]) -> str:
    return " and ".join(f"e.{side}.{_quoted(it)} is not null" for it in keys)
