"""Whether a checkpoint and the folder that a job has filled belong together.

A checkpoint says up to where was read, the folder has what was read: without the folder all before
would be missing, and nothing would say so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from roquet.base.errors import UsageError
from roquet.spark.jobs.shared.connect import context
from roquet.spark.jobs.storage.files import Files

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def check(spark: SparkSession, checkpoint: str, mark: str) -> None:
    """See that a checkpoint from which was read has its folder. Raises UsageError.

    `mark` is the path of what the folder has from the first micro-batch on. Over Spark Connect
    nothing is known.
    """
    if context(spark) is None:
        return
    files, out = Files(spark), mark.rpartition("/")[0]
    if not files.exists(mark) and files.names(f"{checkpoint}/commits"):
        raise UsageError(
            f"{checkpoint} has been read from already, and {out} has nothing of it: all before"
            " would be missing. Remove the checkpoint to begin anew, or name the folder that"
            " belongs to it"
        )
