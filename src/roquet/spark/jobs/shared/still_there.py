"""Whether live topics are still those that a job began to read.

A plan names offsets, and its tasks read what is there when they run. A topic that was deleted and
made anew meanwhile has other messages at these offsets: with at least as many as before, no task
fails, and what a job wrote is of both topics, or of neither.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from roquet.base.errors import Refused, Unreachable
from roquet.spark.cluster.metadata import Metadata
from roquet.spark.options import SourceOptions
from roquet.spark.reading import marks
from roquet.spark.reading.marks import Reach

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from roquet.spark.offsets import QueueKey

SHOWN = 5
"""Topics that are named."""


class Found(NamedTuple):
    """What became of the topics: lines to say, and whether one of them is another one now."""

    lines: tuple[str, ...] = ()
    is_changed: bool = False


class StillThere:
    """What topics held before they were read. Asks once when it is made, and once at the end.

    Where nobody answers, a line says so: the source has its own patience, and this is no part of
    what is read.
    """

    def __init__(self, reading: Mapping[str, str]) -> None:
        """Take down the ends of the topics that the source's options name. Raises UsageError."""
        self._options = SourceOptions.parse(reading, streaming=False)
        self._reach: Reach | None = None
        self._why = ""
        metadata = Metadata(self._options.wire)
        try:
            view = metadata.view(self._options.topics, missing_ok=True)
        except (Unreachable, Refused) as error:
            self._why = str(error)
        else:
            ends = {queue: it.high for queue, it in view.bounds.items() if it.high > it.low}
            times = {queue: at for queue, at in view.stored.items() if queue in ends}
            self._reach = Reach(ends, times)
        finally:
            metadata.close()

    def found(self) -> Found:
        """Return a line for each topic that is not the one that was there any more.

        Queues of brokers that are away are passed over.
        """
        why = self._changed()
        if why is None:
            return Found((f"whether a topic was made anew meanwhile is not known: {self._why}",))
        by_topic: dict[str, str] = {}
        for queue, text in sorted(why.items()):
            by_topic.setdefault(queue.topic, f"queue {queue}: {text}")
        lines = [
            f"topic {topic} is not the one any more that was there at the beginning; what was read"
            f" may be of both, and of neither whole: run the job again ({text})"
            for topic, text in list(by_topic.items())[:SHOWN]
        ]
        if len(by_topic) > SHOWN:
            lines.append(f"so it is with {len(by_topic) - SHOWN} further topics")
        return Found(tuple(lines), bool(lines))

    def _changed(self) -> dict[QueueKey, str] | None:
        """Return the queues that are others now, and why; None when nobody can tell."""
        if self._reach is None:
            return None
        metadata = Metadata(self._options.wire)
        try:
            view = metadata.view(self._options.topics, missing_ok=True)
            asked = marks.to_ask(self._reach, view.bounds)
            times = metadata.stored_at(asked, view, self._options.group) if asked else {}
            brokers = metadata.clusters().brokers.keys()
        except (Unreachable, Refused) as error:
            self._why = str(error)
            return None
        finally:
            metadata.close()
        gone = {
            queue: "it was deleted"
            for queue in self._reach.offsets
            if queue not in view.bounds and queue.broker in brokers
        }
        return {**marks.made_anew(self._reach, view.bounds, view.stored, times), **gone}


def all_found(watched: Iterable[StillThere]) -> Found:
    """Return what several have found, each line once."""
    found = [it.found() for it in watched]
    lines = dict.fromkeys(line for it in found for line in it.lines)
    return Found(tuple(lines), any(it.is_changed for it in found))
