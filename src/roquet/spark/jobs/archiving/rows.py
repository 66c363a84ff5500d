"""Archived messages as the jobs read them that compare or join them: a lake, or other Parquet."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.errors import AnalysisException

from roquet.base.errors import UsageError
from roquet.spark.jobs.lake import Lake, configuration

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame, SparkSession

_EXTENSIONS = "spark.sql.extensions"


def archived(spark: SparkSession, root: str, columns: Sequence[str], ddl: str) -> DataFrame:
    """Return columns of what counts in a lake, or of all of another folder of Parquet.

    A lake keeps files for a while that others have replaced. Raises UsageError, LakeError.
    """
    lake = Lake.at(spark, root)
    if lake is None:
        known = parquet_columns(spark, root)
        # With types given, a topic that is called 007 stays one.
        found = spark.read.schema(ddl).parquet(root)
    else:
        settings = configuration(lake.kind)
        if _EXTENSIONS in settings and not spark.conf.get(_EXTENSIONS, ""):
            given = " ".join(f"--conf {name}={value}" for name, value in settings.items())
            raise UsageError(f"{root} is a Delta lake, and the session knows none: {given}")
        found = lake.read()
        known = set(found.columns)
    if lacking := [name for name in columns if name not in known]:
        raise UsageError(f"{root}: there is no column {', '.join(lacking)}")
    return found.select(*columns)


def parquet_columns(spark: SparkSession, folder: str) -> set[str]:
    """Return the columns of a Parquet folder. Raises UsageError when it is none."""
    try:
        return set(spark.read.parquet(folder).columns)
    except AnalysisException as error:
        raise UsageError(f"{folder!r} cannot be read as Parquet") from error
