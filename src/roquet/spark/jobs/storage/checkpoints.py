"""Whether a checkpoint and the folder that a job has filled belong together.

A checkpoint says up to where was read, the folder has what was read: with one of them gone, or
another's, messages would be left out or be there twice, and nothing would say so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from roquet.base.errors import UsageError
from roquet.spark.jobs.shared.connect import context
from roquet.spark.jobs.storage.files import Files

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def check(spark: SparkSession, checkpoint: str, mark: str, *, again: bool = False) -> None:
    """See that a checkpoint and a folder have both begun, or neither. Raises UsageError.

    `mark` is the path of what the folder has from the first micro-batch on; `again` is for jobs
    that may read all once more, without a checkpoint. Over Spark Connect nothing is known.
    """
    if context(spark) is None:
        return
    files, out = Files(spark), mark.rpartition("/")[0]
    there = files.exists(mark)
    if not there and files.names(f"{checkpoint}/commits"):
        raise UsageError(
            f"{checkpoint} has been read from already, and {out} has nothing of it: all before"
            " would be missing. Remove the checkpoint to begin anew, or name the folder that"
            " belongs to it"
        )
    if there and not again and not files.names(f"{checkpoint}/offsets"):
        raise UsageError(
            f"{out} has rows, and {checkpoint} has never been read from: they would be there twice,"
            " or others instead. Name the checkpoint that belongs to it, or another folder"
        )
