"""Where the queues of a lake end, while a job archives: what others have committed since counts.

Invariant: a lake has one message at an offset. Jobs for different topics may fill one lake, so a
part is compared with all commits that there are when it is about to be one, not only with those
that were there when the job began.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from roquet.spark.jobs.storage.files import LakeError
from roquet.spark.offsets import QueueKey

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from roquet.spark.jobs.storage.catalog import Catalog, Entry


class Ends:
    """The offset after the last that was ever archived, by queue."""

    def __init__(self, catalog: Catalog) -> None:
        """Know of nothing yet."""
        self._catalog = catalog
        self._seen: set[str] = set()
        self.by_queue: dict[QueueKey, int] = {}

    def read(self) -> None:
        """Take what the whole catalog says. Raises LakeError when it is damaged."""
        # Those that come in between are taken twice, and that is right.
        self._seen = set(self._catalog.names())
        for queue, end in self._catalog.summary().ends().items():
            self._take(QueueKey(*queue), end)

    def refresh(self) -> None:
        """Take the commits that are new since. Raises LakeError when one is damaged."""
        new = [it for it in self._catalog.names() if it not in self._seen]
        for queue, end in self._catalog.summed(new).ends().items():
            self._take(QueueKey(*queue), end)
        self._seen.update(new)

    def check(self, begins: Mapping[QueueKey, int]) -> None:
        """Raise LakeError when rows are in the lake already: another query put them there."""
        for queue, begin in sorted(begins.items()):
            if begin < self.by_queue.get(queue, 0):
                raise LakeError(
                    f"{queue} is in the lake up to offset {self.by_queue[queue]}, and this query"
                    f" reads it again from {begin}. Either its topic was made anew: a lake has"
                    " one message at an offset, so archive the new topic to a lake of its own. Or"
                    " its checkpoint is an older one: without the checkpoint folder the job goes on"
                    " where the lake ends. Or another job archives the topic to this lake as well:"
                    " let one of them do it"
                )

    def add(self, entries: Iterable[Entry]) -> None:
        """Take what was committed."""
        for it in entries:
            self._take(QueueKey(it.place.topic, it.broker, it.queue), it.to_offset)

    def _take(self, queue: QueueKey, end: int) -> None:
        self.by_queue[queue] = max(end, self.by_queue.get(queue, 0))


def begins(entries: Iterable[Entry]) -> dict[QueueKey, int]:
    """Return the first offset of each queue: it has a line for each day."""
    found: dict[QueueKey, int] = {}
    for it in entries:
        queue = QueueKey(it.place.topic, it.broker, it.queue)
        found[queue] = min(it.from_offset, found.get(queue, it.from_offset))
    return found
