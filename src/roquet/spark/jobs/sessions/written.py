"""The folder that `dedup` and `sessionize` fill: OUT/batch=N has what micro-batch N made.

Invariant: all of them are of one query, whose id is noted in OUT/_query.json before the first. Its
checkpoint alone says which numbers are taken: with another, or an older copy, some folders would be
written over and others left, and messages would be there twice or not at all.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Final

from roquet.base.errors import UsageError
from roquet.spark.jobs.storage import checkpoints
from roquet.spark.jobs.storage.files import Files

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

NOTE: Final = "_query.json"
_PART: Final = re.compile(r"batch=([0-9]{1,18})")


class Written:
    """The folder of one run."""

    def __init__(self, spark: SparkSession, out: str, checkpoint: str) -> None:
        """Remember the places; nothing is read."""
        self._files = Files(spark)
        self._out, self._checkpoint = out, checkpoint
        self._is_noted = False

    def check(self, say: Callable[[str], None]) -> None:
        """See that folder and checkpoint belong together. Raises UsageError."""
        found = map(_PART.fullmatch, self._files.names(self._out))
        parts = {int(it[1]) for it in found if it is not None}
        done = checkpoints.done(self._files, self._checkpoint)
        query, last = done or (checkpoints.query(self._files, self._checkpoint), -1)
        known = self._known()
        text = wrong(self._out, self._checkpoint, parts, last=last, query=query, known=known)
        if text is not None:
            raise UsageError(text)
        self._is_noted = bool(query) and known == query
        lacking = last + 1 - len({it for it in parts if it <= last})
        if lacking:
            say(
                f"{self._out} lacks {lacking:,} of {last + 1:,} micro-batches that were written:"
                " what was in them does not come again"
            )

    def write(self, frame: DataFrame, number: int) -> str:
        """Write a micro-batch; return its folder.

        The same micro-batch has the same rows and replaces what a killed try has left.
        """
        if not self._is_noted:
            query = checkpoints.query(self._files, self._checkpoint)
            if query:
                self._files.replace(f"{self._out}/{NOTE}", json.dumps({"query": query}))
            self._is_noted = True
        path = f"{self._out}/batch={number}"
        frame.write.mode("overwrite").parquet(path)
        return path

    def _known(self) -> str | None:
        path = f"{self._out}/{NOTE}"
        if not self._files.exists(path):
            return None
        try:
            return str(json.loads(self._files.read(path))["query"])
        except (ValueError, TypeError, KeyError) as error:
            raise UsageError(
                f"{path} is damaged: {error}. Remove it if {self._checkpoint} is the checkpoint"
                f" that {self._out} was filled with"
            ) from error


def wrong(
    out: str, checkpoint: str, parts: set[int], *, last: int, query: str, known: str | None
) -> str | None:
    """Return why a folder must not be filled on from a checkpoint; None when it may.

    `parts` are the micro-batches of the folder, `last` is the last one that the checkpoint has done
    (-1 without one), `query` the checkpoint's query ("" when nobody knows) and `known` the folder's
    (None for one of earlier releases).
    """
    anew = (
        f"Name the checkpoint that belongs to {out}; or, to begin anew, another folder, or remove"
        f" {out} and {checkpoint}"
    )
    top = max(parts, default=-1)
    if top >= 0 and known is not None and known != query:
        return f"{checkpoint} is not the checkpoint that {out} was filled with. {anew}"
    if top >= 0 and last < 0 and not query:
        return f"{out} has {len(parts)} micro-batches, and {checkpoint} knows of none. {anew}"
    # A try that was killed has left the one behind the last.
    if top > last + 1:
        return (
            f"{checkpoint} has done micro-batches up to {last}, and {out} has them up to {top}: it"
            f" is an older copy. {anew}"
        )
    if top > last and known is None:
        return (
            f"{out} has micro-batch {top}, which {checkpoint} has not done, and no {NOTE} says"
            f" whose it is. If a run from {checkpoint} was killed in it, move {out}/batch={top}"
            f" away, and it is made again. {anew}"
        )
    return None
