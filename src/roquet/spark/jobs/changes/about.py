"""What a table of changes is: its key, its columns from the first schema on, how it is kept.

    OUT/_cdc.json          key, first columns, number of buckets and format
    OUT/_schemas/2.json    the second columns, and so on

Columns are added and never removed; those of the key keep their types, since the bucket of a row
follows from them.
"""

from __future__ import annotations

import dataclasses
import functools
import json
from typing import TYPE_CHECKING, Any, Final

from roquet.base.errors import UsageError
from roquet.spark.jobs.changes.envelope import PLACE
from roquet.spark.jobs.storage import schemas
from roquet.spark.jobs.storage.files import Files

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

VERSION: Final = 1
PARQUET: Final = "parquet"
DELTA: Final = "delta"
FILE: Final = "_cdc.json"
_SCHEMAS: Final = "_schemas"
PLACED: Final = tuple(f"_{name}" for name in PLACE)
"""The columns of a table that say where the last change of a row comes from."""


@dataclasses.dataclass(frozen=True, slots=True)
class About:
    """A table as its files say."""

    keys: tuple[str, ...]
    buckets: int
    kind: str
    """Its format: PARQUET or DELTA."""
    rows: tuple[StructType, ...]
    """Its columns, from the first schema to the one of now."""

    @property
    def row(self) -> StructType:
        """Return the columns of now."""
        return self.rows[-1]

    @property
    def key(self) -> str:
        """Return the columns of the key in SQL, by comma."""
        return ", ".join(f"row.{quoted(it)}" for it in self.keys)


def quoted(name: str) -> str:
    """Return the name of a column in SQL."""
    return f"`{name.replace('`', '``')}`"


def read(files: Files, root: str) -> About:
    """Return what a table is. Raises UsageError when there is none, or it cannot be read."""
    path = f"{root}/{FILE}"
    if not files.exists(path):
        raise UsageError(f"{root} is no table of changes: there is no {FILE}")
    found, first = _load(files, path)
    try:
        keys, buckets = tuple(map(str, found["keys"])), int(found["buckets"])
    except (ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{path} cannot be read: {error}") from error
    count = sum(it.endswith(".json") for it in files.names(f"{root}/{_SCHEMAS}"))
    later = [_load(files, f"{root}/{_SCHEMAS}/{it}.json")[1] for it in range(2, count + 2)]
    return About(keys, buckets, str(found.get("format", PARQUET)), (first, *later))


def create(
    files: Files,
    root: str,
    wanted: About,
    say: Callable[[str], None],
    grow: Callable[[StructType], None] | None = None,
) -> About:
    """Make a table, or let the one that is there have these columns too; return what it is.

    Columns that are missing in `wanted` stay. `grow` gets those that a table is to have before
    they are noted, so that it has all that its notes say, whenever a job is killed. Raises
    UsageError for another key or format, and for types that do not go with those that it has.
    """
    row = schemas.nullable(wanted.row)
    _check_names(row)
    if not files.exists(f"{root}/{FILE}"):
        _check_unused(files, root)
        made = {"version": VERSION, "format": wanted.kind, "keys": list(wanted.keys)}
        text = json.dumps({**made, "buckets": wanted.buckets, "row": row.jsonValue()})
        files.write_new(f"{root}/{FILE}", text)
        return read(files, root)
    known = read(files, root)
    if (known.keys, known.kind) != (wanted.keys, wanted.kind):
        raise UsageError(
            f"{root} is a table of the format {known.kind} with the key {', '.join(known.keys)};"
            " others need a folder of their own"
        )
    row = whole(known.row, row)
    merged = schemas.merged(known.row, row, widen=known.kind == PARQUET, whole="table")
    for name in known.keys:
        if merged[name].dataType != known.row[name].dataType:
            raise UsageError(
                f"{name} is {known.row[name].dataType.simpleString()} in the key of {root}, and"
                f" {row[name].dataType.simpleString()} now; a key of another type needs a folder"
                " of its own"
            )
    new = schemas.changes(known.row, merged)
    if not new:
        return known
    number = len(known.rows) + 1
    if number > schemas.SCHEMAS_MAX:
        raise UsageError(f"{root} has had {len(known.rows)} schemas: begin a table of its own")
    if grow is not None:
        grow(merged)
    text = json.dumps({"version": VERSION, "row": merged.jsonValue()})
    files.write_new(f"{root}/{_SCHEMAS}/{number}.json", text)
    say(f"schema {number} of the table: {'; '.join(new)[:2000]}")
    return dataclasses.replace(known, rows=(*known.rows, merged))


# --- inside --------------------------------------------------------------------------------------


def _load(files: Files, path: str) -> tuple[Any, StructType]:
    from pyspark.sql.types import StructType  # noqa: PLC0415  (slow to import)

    try:
        found = json.loads(files.read(path))
        version, row = found["version"], StructType.fromJson(found["row"])
    except (ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{path} cannot be read: {error}") from error
    if version != VERSION:
        raise UsageError(f"{path} is of version {version}, this release knows {VERSION}")
    return found, row


def _check_unused(files: Files, root: str) -> None:
    """Raise UsageError for a folder that has another table."""
    for name in ("_delta_log", "_lake.json"):
        if files.exists(f"{root}/{name}"):
            raise UsageError(
                f"{root} has a {name} and no {FILE}: it is another table. Name a folder of its own"
            )


def whole(old: StructType, new: StructType) -> StructType:
    """Return new columns with those that they lack: a database that drops one sends it no more."""
    lacking = [it for it in old.fields if it.name not in new.names]
    return type(new)([*new.fields, *lacking])


def _check_names(row: StructType) -> None:
    """Raise UsageError for columns that are named as those which every table has."""
    taken = {name.lower() for name in (*PLACED, "_kind", "_current", "_bucket")}
    if found := [name for name in row.names if name.lower() in taken]:
        raise UsageError(f"columns: {', '.join(found)} is a column that every table has")


def common(keys: Sequence[str]) -> str:
    """Return the condition in SQL that two rows `t` and `s` have the same key."""
    return " and ".join(f"t.{quoted(it)} = s.{quoted(it)}" for it in keys)


class Table:
    """A table of changes in a folder, whatever its format."""

    def __init__(self, spark: SparkSession, root: str) -> None:
        """Take its folder."""
        self.spark = spark
        self.root = root.rstrip("/")
        self.files = Files(spark)

    @functools.cached_property
    def about(self) -> About:
        """What it is. Raises UsageError when there is no table."""
        return read(self.files, self.root)
