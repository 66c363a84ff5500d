"""What the application still has in hand when a consumer is drained."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from roquet.client._queues.assigned_queue import AssignedQueue
    from roquet.client._received import Received


class Given:
    """The unfinished messages that were given out and can still be settled."""

    def __init__(
        self, queues: Iterable[AssignedQueue], withheld: Iterable[Received], *, ordered: bool
    ) -> None:
        """Look at what is unfinished now, but for what was never given out."""
        self._ordered = ordered
        never = {(received.queue, received.queue_offset) for received in withheld}
        self._left: list[tuple[AssignedQueue, set[int]]] = []
        for one in queues:
            queue = one.held.queue
            offsets = {it for it in one.held.unfinished() if (queue, it) not in never}
            self._left.append((one, offsets & {one.given} if ordered else offsets))

    async def settled(self, news: asyncio.Event, timeout_s: float) -> bool:
        """Wait until all are settled, or their queues are others'; tell whether that is so."""
        try:
            async with asyncio.timeout(timeout_s):
                while self._count():
                    news.clear()
                    await news.wait()
        except TimeoutError:
            return not self._count()
        return True

    def _count(self) -> int:
        return sum(
            # A message that an ordered consumer is to try again stays unfinished.
            one.given == offset if self._ordered else one.held.holds(offset)
            for one, offsets in self._left
            if not one.held.dropped
            for offset in offsets
        )
