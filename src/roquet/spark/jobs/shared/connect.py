"""What a session over Spark Connect lacks: its client has neither Spark's context nor a JVM."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.errors import PySparkAttributeError

from roquet.base.errors import UsageError

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession


def context(spark: SparkSession) -> SparkContext | None:
    """Return Spark's context; None over Spark Connect."""
    try:
        return spark.sparkContext
    except PySparkAttributeError:
        return None


def need_context(spark: SparkSession, job: str) -> None:
    """Let a job begin that uses Spark's context or JVM. Raises UsageError over Spark Connect."""
    if context(spark) is None:
        raise UsageError(
            f"the job {job} cannot run over Spark Connect: it needs the JVM of its own driver;"
            " start it with --master local[*] or spark://HOST:PORT, or with spark-submit"
        )
