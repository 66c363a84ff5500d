"""Whether a checkpoint and the folder that a job has filled belong together.

A checkpoint says up to where was read, the folder has what was read: without the folder all before
would be missing, and nothing would say so.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from roquet.base.errors import UsageError
from roquet.spark.jobs.shared.connect import context
from roquet.spark.jobs.storage.files import Files, LakeError
from roquet.spark.offsets import from_json

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from roquet.spark.offsets import QueueKey


def check(spark: SparkSession, checkpoint: str, mark: str) -> None:
    """See that a checkpoint from which was read has its folder. Raises UsageError.

    `mark` is the path of what the folder has from the first micro-batch on. Over Spark Connect
    nothing is known.
    """
    if context(spark) is None:
        return
    files, out = Files(spark), mark.rpartition("/")[0]
    if not files.exists(mark) and done(files, checkpoint) is not None:
        raise UsageError(
            f"{checkpoint} has been read from already, and {out} has nothing of it: all before"
            " would be missing. Remove the checkpoint to begin anew, or name the folder that"
            " belongs to it"
        )


def done(files: Files, checkpoint: str) -> tuple[str, int] | None:
    """Return the query of a checkpoint and its last micro-batch that is done; None without one.

    A query that cannot be read is "".
    """
    numbers = [int(it) for it in files.names(f"{checkpoint}/commits") if it.isdecimal()]
    return (query(files, checkpoint), max(numbers)) if numbers else None


def query(files: Files, checkpoint: str) -> str:
    """Return the id of the query that began a checkpoint; "" when it cannot be read."""
    try:
        return str(json.loads(files.read(f"{checkpoint}/metadata"))["id"])
    except Exception:  # noqa: BLE001  (the file systems of Spark Connect and Java raise their own)
        return ""


def ends(files: Files, checkpoint: str) -> dict[QueueKey, int]:
    """Return the offset after the last, by queue, of the last micro-batch that is done.

    There is nothing without one. Raises LakeError when it cannot be read.
    """
    last = done(files, checkpoint)
    if last is None:
        return {}
    path = f"{checkpoint}/offsets/{last[1]}"
    try:
        # A version, a line of settings, and one for the source.
        return from_json(files.read(path).splitlines()[2])
    except (UsageError, IndexError) as error:
        raise LakeError(
            f"{path} is damaged: {error}. Without the folder {checkpoint} the job goes on where"
            " what it has filled ends"
        ) from error
