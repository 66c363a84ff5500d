"""SQL over frames that are named in its text."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from roquet.spark.jobs.shared.connect import context

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame, SparkSession

CORES_UNKNOWN: Final = 8
"""What a cluster is taken for whose session does not tell."""


def cores(spark: SparkSession) -> int:
    """Return how many tasks run at a time, about; over Spark Connect nobody tells."""
    found = context(spark)
    return CORES_UNKNOWN if found is None else int(found.defaultParallelism)


def sql(
    spark: Any, text: str, args: Mapping[str, object] | None = None, **frames: DataFrame
) -> DataFrame:
    """Run a query. `{name}` in it is a frame, `:name` a value. Raises TypeError as `bound` does.

    A frame that is persisted stays so. PySpark drops the view that it makes of a frame, and Spark
    then forgets what is kept for the plan of that view, which is one around the frame's for this.
    """
    around = {name: frame.where("true") for name, frame in frames.items()}
    found: DataFrame = spark.sql(bound(text, args or {}), **around)
    return found


def literally(text: str) -> str:
    """Return a part of a query in which no `{name}` is a frame: a name that somebody has chosen."""
    return text.replace("{", "{{").replace("}", "}}")


def in_one_task(frame: DataFrame) -> DataFrame:
    """Return a frame that is written as one file, whatever it takes to make its rows.

    Not `coalesce(1)`: that would have one task do the joins and aggregations before it, too.
    """
    return frame.repartition(1)


def bound(text: str, args: Mapping[str, object]) -> str:
    """Put literals in the place of the `:name`s that have a value: int, str, or None.

    Spark's own parameters are not bound in a session whose parser is an extension's: Delta's hands
    the text on without them. A string becomes hexadecimal digits, so that nothing in it can be read
    as SQL. Raises TypeError for a value of another type.
    """
    if not args:
        return text
    names = "|".join(map(re.escape, args))
    # Not a cast (`::`), nor what stands behind a word.
    pattern = re.compile(rf"(?<![\w:]):({names})\b")
    literals = {name: _literal(value) for name, value in args.items()}
    return pattern.sub(lambda found: literals[found[1]], text)


def _literal(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if isinstance(value, str):
        return f"cast(X'{value.encode().hex()}' as string)" if value else "''"
    raise TypeError(f"no literal for {type(value).__name__}")
