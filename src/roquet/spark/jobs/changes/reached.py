"""How far a table of changes got, noted beside it after each micro-batch.

    OUT/_reached/b0b5e1a2c-9f31-0000000007.json   a query's last micro-batch, and offsets by queue

Invariant: the note of a micro-batch is made when the table has it, and before Spark's own. So the
table is never behind a note, and a checkpoint never ahead of that of its query. Where it is not so,
the table is an older one than was filled, or the checkpoint is not the table's: to go on would
leave changes out and say nothing.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from roquet.base.errors import UsageError
from roquet.spark.jobs.storage import checkpoints
from roquet.spark.jobs.storage.files import LakeError
from roquet.spark.offsets import QueueKey, leaves, nested

if TYPE_CHECKING:
    from collections.abc import Mapping

    from roquet.spark.jobs.storage.files import Files

FOLDER: Final = "_reached"
QUERIES_MAX: Final = 100
"""Queries that are known; the one whose note is the oldest is forgotten for another."""
_ANEW: Final = (
    "To merge anew what the topic still has, remove the folder {checkpoint} and run the job again"
)


class Reached(NamedTuple):
    """Offsets after the last message, by queue: of those that were read, and of changes."""

    read: dict[QueueKey, int]
    changed: dict[QueueKey, int]

    def add(self, other: Reached) -> None:
        """Take what another has more of."""
        for mine, more in zip(self, other, strict=True):
            for queue, end in more.items():
                mine[queue] = max(end, mine.get(queue, 0))


class Notes:
    """The notes of one table."""

    def __init__(self, files: Files, root: str) -> None:
        """Read them. Raises LakeError when one is damaged."""
        self._files = files
        self._folder = f"{root}/{FOLDER}"
        self.all = Reached({}, {})
        """How far all queries together got."""
        self._numbers: dict[str, tuple[int, str]] = {}
        for name in files.names(self._folder):
            if name.endswith(".json"):
                query, _, number = name.removesuffix(".json").rpartition("-")
                self.all.add(self._note(f"{self._folder}/{name}"))
                known = self._numbers.get(query, (-1, ""))
                self._numbers[query] = max(known, (int(number), name))

    def check(self, checkpoint: str, held: Mapping[QueueKey, int], root: str) -> None:
        """Raise LakeError when the table has less than was merged, or not what a checkpoint says.

        `held` has the offset after the last change of each queue that the table has. Without a
        checkpoint from which was read all is read again, and it is right. Tables of earlier
        releases have no note, and are not judged.
        """
        begun = checkpoints.done(self._files, checkpoint)
        if begun is None or not self._numbers:
            return
        anew = _ANEW.format(checkpoint=checkpoint)
        query, number = begun
        last = self._numbers.get(f"b{query[:13]}")
        if last is None or last[0] < number:
            has = "none of its micro-batches" if last is None else f"them up to {last[0]}"
            raise LakeError(
                f"{checkpoint} has read up to micro-batch {number}, and {root} has {has}: one of"
                f" both is of another table, or an older copy. {anew}"
            )
        for queue, end in sorted(self.all.changed.items()):
            if held.get(queue, 0) < end:
                raise LakeError(
                    f"{queue}: changes before offset {end} were merged into {root}, and it has"
                    f" those before {held.get(queue, 0)}: it was set back to an older version, or"
                    f" files of it are gone. {anew}"
                )

    def add(self, part: str, new: Reached) -> None:
        """Note that the table has a micro-batch, named by its query and number."""
        query, _, number = part.rpartition("-")
        self.all.add(new)
        name = f"{part}.json"
        path = f"{self._folder}/{name}"
        made = {"read": nested(self.all.read), "changed": nested(self.all.changed)}
        # An older copy of the checkpoint makes a micro-batch of this name again.
        self._files.delete(path)
        self._files.write_new(path, json.dumps(made))
        last = self._numbers.pop(query, (-1, name))
        self._numbers[query] = (int(number), name)
        old = {last[1]}
        while len(self._numbers) > QUERIES_MAX:
            old.add(self._numbers.pop(next(iter(self._numbers)))[1])
        for it in old - {name}:
            self._files.delete(f"{self._folder}/{it}")

    def _note(self, path: str) -> Reached:
        try:
            found: Any = json.loads(self._files.read(path))
            return Reached(_offsets(found["read"]), _offsets(found["changed"]))
        except (ValueError, TypeError, KeyError, UsageError) as error:
            raise LakeError(
                f"{path} is damaged: {error}. Remove it, and the checkpoint as well: all that the"
                " topic still has is merged anew then"
            ) from error


def _offsets(found: Any) -> dict[QueueKey, int]:
    return {queue: int(end) for queue, end in leaves(found)}
