"""SQL over frames that are named in its text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame


def sql(
    spark: Any, text: str, args: Mapping[str, object] | None = None, **frames: DataFrame
) -> DataFrame:
    """Run a query. `{name}` in it is a frame, `:name` a value: neither is ever pasted in."""
    found: DataFrame = spark.sql(text, args=None if args is None else dict(args), **frames)
    return found
