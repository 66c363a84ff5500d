"""How many offsets a number of bytes is: brokers tell offsets only, so some messages are looked at.

The mean size of a topic is that of a few messages at the beginning of what is to be read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from roquet.spark.offsets import ranges

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from roquet.spark.cluster.metadata import View
    from roquet.spark.offsets import QueueKey, Range

    Sample = Callable[[QueueKey, int, View], float | None]

TOPICS_MAX: Final = 64
"""Topics of a micro-batch that are looked at, the longest first; others get the common mean."""
UNKNOWN_BYTES: Final = 1024.0
"""What a message is taken for when none could be looked at."""


class Sizes:
    """Mean stored bytes of messages by topic, as last seen."""

    def __init__(self, sample: Sample) -> None:
        """`sample(queue, offset, view)` looks at some messages from an offset on."""
        self._sample = sample
        self._mean: dict[str, float] = {}

    def rows(
        self,
        start: Mapping[QueueKey, int],
        end: Mapping[QueueKey, int],
        bytes_max: int,
        view: View,
    ) -> int | None:
        """Return how many offsets have about `bytes_max` bytes, at least 1; None when all fit."""
        pending = ranges(start, end)
        longest: dict[str, Range] = {}
        for it in pending:
            known = longest.get(it.queue.topic)
            if it.queue in view.bounds and (known is None or len(it) > len(known)):
                longest[it.queue.topic] = it
        for it in sorted(longest.values(), key=len, reverse=True)[:TOPICS_MAX]:
            begin = max(it.begin, view.bounds[it.queue].low)
            mean = self._sample(it.queue, begin, view)
            if mean is not None:
                self._mean[it.queue.topic] = mean
        common = sum(self._mean.values()) / len(self._mean) if self._mean else UNKNOWN_BYTES
        total = sum(len(it) * self._mean.get(it.queue.topic, common) for it in pending)
        if total <= bytes_max:
            return None
        return max(1, int(sum(map(len, pending)) * bytes_max / total))
