"""Envelopes of Debezium in message bodies, as changes of rows.

A body is an envelope with `before`, `after` and `op`, in JSON also within `payload`. A body without
content, and in JSON a null or a null payload, is a tombstone: it follows a deletion and changes
nothing.
"""

from __future__ import annotations

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
_NULL_PAYLOAD: Final = r'^\s*(null|\{.*"payload"\s*:\s*null\s*\})\s*$'


def parsed(rows: DataFrame, bodies: Bodies, columns: str, keys: Sequence[str]) -> DataFrame:
    """Return a row for each message: `PLACE`, `body`, `kind`, `error`, and the table's `row`.

    `columns` are those of the table as DDL, for JSON. Raises UsageError, and Spark's ParseException
    for them.
    """
    value = _value(bodies, columns)
    shown = rows.select(*PLACE, "body", value.alias("value"))
    kind = shown.schema["value"].dataType
    shown = shown.select("*", _reason(bodies, kind).alias("why"))
    envelope = _envelope(kind)
    table = _table(kind)
    _check(keys, table)
    found = shown.select("*", envelope.alias("e"))
    return found.selectExpr(
        *PLACE,
        "body",
        f"{_kind(keys, json=bodies.kind == 'json')} as kind",
        f"{_error(keys)} as error",
        "coalesce(if(e.op = 'd', e.before, e.after), e.after, e.before) as row",
    )


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
    envelope = StructType([*fields, StructField("op", StringType())])
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
    bare = f.struct(*[f.col("value").getField(it).alias(it) for it in ("before", "after", "op")])
    if "payload" not in kind.names:
        return bare
    within = f.col("value").getField("payload")
    return f.coalesce(within, bare)


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


def _kind(keys: Sequence[str], *, json: bool) -> str:
    text = "try_validate_utf8(cast(body as string))"
    without = f" when {text} rlike r'{_NULL_PAYLOAD}' then '{TOMBSTONE}'" if json else ""
    return (
        f"case when body is null or length(body) = 0 then '{TOMBSTONE}'{without}"
        f" when value is null then '{BAD}'"
        f" when e.op in ('c', 'r', 'u') and {_whole('after', keys)} then '{UPSERT}'"
        f" when e.op = 'd' and {_whole('before', keys)} then '{DELETE}'"
        f" when e.op = 'm' then '{MESSAGE}' else '{BAD}' end"
    )


def _error(keys: Sequence[str]) -> str:
    lacking = f"'lacks a column of the key: {', '.join(keys)}'"
    return (
        "case when value is null then why"
        " when e.op is null then 'no op: it is no envelope'"
        " when e.op in ('c', 'r', 'u') then"
        f" if(e.after is null, concat('op ', e.op, ' without after'), concat('after ', {lacking}))"
        f" when e.op = 'd' then if(e.before is null, 'op d without before',"
        f" concat('before ', {lacking}))"
        " when e.op = 't' then 'op t: a truncated table is not followed'"
        " else concat('op ', left(e.op, 20), ' is not known') end"
    )


def _whole(side: str, keys: Sequence[str]) -> str:
    return " and ".join(f"e.{side}.`{it.replace('`', '``')}` is not null" for it in keys)
