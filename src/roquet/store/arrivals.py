"""Who hears of messages that have become readable, and whether anybody waits for some.

The loop is woken for such messages only while a listener waits for them: with connections on
threads of the core most brokers have nobody in Python who does. News are kept meanwhile, so that
a listener that begins to wait hears of what came since they were taken last.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    News = Sequence[tuple[str, int, int]]
    """(topic, queue id, max offset) of queues that have grown."""


class Arrivals:
    """The listeners of a store. On the loop only."""

    def __init__(self) -> None:
        """Have no listener, and nobody who wakes the loop."""
        self._each: list[Callable[[str, int, int], None]] = []
        self._all: list[Callable[[News], None]] = []
        self._waits: list[Callable[[], bool]] = []
        self._await: Callable[[bool], None] = _nobody
        self._is_awaited = True

    def on_each(
        self, listener: Callable[[str, int, int], None], waits: Callable[[], bool] | None
    ) -> None:
        """Have `listener(topic, queue id, max offset)` called; `waits` None: it always waits."""
        self._each.append(listener)
        self._waits.append(waits or _always)

    def on_all(self, listener: Callable[[News], None], waits: Callable[[], bool] | None) -> None:
        """Have `listener` called with all of that at once."""
        self._all.append(listener)
        self._waits.append(waits or _always)

    def wake_by(self, wake: Callable[[bool], None] | None) -> None:
        """Say by `wake(awaited)` from now on whether the loop is to be woken; at first it is.

        None forgets whom to tell: the store is closed.
        """
        self._await = wake or _nobody
        self._is_awaited = True

    def begin(self) -> None:
        """Hear that a listener has begun to wait, after it has noted that it does."""
        if not self._is_awaited:
            self._is_awaited = True
            self._await(True)

    def tell(self, news: News) -> None:
        """Call the listeners, and have nobody woken any more if none of them waits behind that."""
        for hear in self._all:
            hear(news)
        for topic, queue_id, max_offset in news:
            for listener in self._each:
                listener(topic, queue_id, max_offset)
        if self._is_awaited and not any(waits() for waits in self._waits):
            self._is_awaited = False
            self._await(False)


def _always() -> bool:
    return True


def _nobody(awaited: bool) -> None:
    """Wake no loop: the store is not open."""
    del awaited
