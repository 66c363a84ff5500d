"""How many popped messages of a queue wait for their acknowledgement.

A message whose invisible time is over counts no more: it is redelivered, whoever does that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from roquet.base.clock import Clock
    from roquet.broker.pop.receive.locks import Key

Checkpoint = tuple[int, int]
"""(pop time, start offset): names the messages that one pop took from one queue."""


class PopInFlight:
    """Messages in flight by topic read, group and queue. Counts nothing unless it is enabled."""

    def __init__(self, clock: Clock, *, is_enabled: bool) -> None:
        self._clock = clock
        self.is_enabled = is_enabled
        self._queues: dict[Key, dict[Checkpoint, tuple[int, int]]] = {}

    @property
    def is_idle(self) -> bool:
        """Whether there is nothing to count."""
        return not self.is_enabled and not self._queues

    def enable(self, is_enabled: bool) -> None:
        """Count from now on, or not; what was counted is forgotten then."""
        self.is_enabled = is_enabled
        if not is_enabled:
            self._queues.clear()

    def popped(self, key: Key, checkpoint: Checkpoint, revive_ms: int, messages: int) -> None:
        """Note messages that become visible again at `revive_ms`."""
        if self.is_enabled:
            self._queues.setdefault(key, {})[checkpoint] = revive_ms, messages

    def settled(self, key: Key, checkpoint: Checkpoint, messages: int = 1) -> None:
        """Note acknowledgements."""
        queue = self._queues.get(key)
        entry = None if queue is None else queue.get(checkpoint)
        if queue is None or entry is None:
            return
        revive_ms, left = entry
        if left > messages:
            queue[checkpoint] = revive_ms, left - messages
            return
        del queue[checkpoint]
        if not queue:
            del self._queues[key]

    def forget(self, key: Key) -> None:
        """Forget a queue whose offset was reset."""
        self._queues.pop(key, None)

    def count(self, key: Key) -> int:
        """Return how many messages of a queue are in flight."""
        queue = self._queues.get(key)
        if queue is None:
            return 0
        now_ms = self._clock.now_ms()
        live = {ck: entry for ck, entry in queue.items() if entry[0] > now_ms}
        if live:
            self._queues[key] = live
        else:
            del self._queues[key]
        return sum(messages for _, messages in live.values())
