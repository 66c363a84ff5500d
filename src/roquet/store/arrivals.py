"""Who is told of dispatched messages.

The store's threads wake the loop for a dispatched message only while somebody on the loop waits for
one: a wake-up costs more than many a message. What arrives meanwhile is kept, merged by queue, and
told with the next flush or as soon as somebody begins to wait, so that a message which arrives
between a look at its queue and the wait for it is not missed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Arrival = tuple[str, int, int]
    """(topic, queue id, max offset)."""


def always() -> bool:
    """Wait for messages at all times."""
    return True


class Arrivals:
    """The listeners of one store."""

    def __init__(self) -> None:
        self._of_each: list[Callable[[str, int, int], None]] = []
        self._of_all: list[Callable[[Sequence[Arrival]], None]] = []
        self._waits: list[Callable[[], bool]] = []

    def listen(self, listener: Callable[[str, int, int], None], waits: Callable[[], bool]) -> None:
        """Have `listener` told of each arrival, at once while `waits` says that it waits."""
        self._of_each.append(listener)
        self._waits.append(waits)

    def listen_to_all(
        self, listener: Callable[[Sequence[Arrival]], None], waits: Callable[[], bool]
    ) -> None:
        """Have `listener` told of all that arrived together."""
        self._of_all.append(listener)
        self._waits.append(waits)

    def tell(self, arrivals: Sequence[Arrival]) -> None:
        """Tell everybody."""
        for hear in self._of_all:
            hear(arrivals)
        for topic, queue_id, max_offset in arrivals:
            for listener in self._of_each:
                listener(topic, queue_id, max_offset)

    @property
    def awaited(self) -> bool:
        """Whether anybody waits now."""
        return any(waits() for waits in self._waits)
