"""Bodies of messages parsed into a column, by a given schema."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from roquet.base.errors import UsageError

if TYPE_CHECKING:
    from pyspark.sql import Column

SCHEMA_MAX: Final = 1 << 20


def schema_text(kind: str, given: str | None) -> str:
    """Return the schema of bodies as Spark DDL, from the text or a file. Raises UsageError."""
    if kind == "raw":
        if given:
            raise UsageError("schema is for body json")
        return ""
    if not given:
        raise UsageError(f"body {kind} needs a schema")
    path = Path(given)
    if "/" not in given or not path.is_file():
        return given
    if path.stat().st_size > SCHEMA_MAX:
        raise UsageError(f"schema: {given[:200]} is larger than {SCHEMA_MAX} bytes")
    return path.read_text(encoding="utf-8").strip()


def parsed(kind: str, schema: str) -> Column | None:
    """Return the column `value` of the column `body`; None for raw bodies.

    The fields are null where a body is not as the schema says.
    """
    from pyspark.sql import functions as f  # noqa: PLC0415  (slow to import)

    if kind == "raw":
        return None
    # A body that is no UTF-8 is no JSON.
    return f.from_json(f.try_validate_utf8(f.col("body").cast("string")), schema)
