"""Where Spark finds the format `roquet`: no session has to register it.

Spark imports each package of the Python path whose name begins with `pyspark_` and knows its
`DefaultSource` from then on, in SQL, `spark-sql`, the Thrift server and Spark Connect as well.

`whole_topic` is one table over a lake of the job `archive` and its live topics.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from roquet.spark.source import RoquetDataSource as DefaultSource

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame, SparkSession

__all__ = ["DefaultSource", "whole_topic"]


def whole_topic(
    spark: SparkSession, lake: str, options: Mapping[str, str], **how: str
) -> DataFrame:
    """Return each message of some topics once: archived ones, and those since from the brokers.

    Arguments and errors are those of `roquet.spark.jobs.archiving.whole.read`.
    """
    # Spark imports this package in each worker, for the source alone.
    from roquet.spark.jobs.archiving import whole  # noqa: PLC0415

    return whole.read(spark, lake, options, **how)
