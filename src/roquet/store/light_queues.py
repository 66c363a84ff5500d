"""The light queues (LMQ) of the message store, for those that list and remove them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from roquet.protocol import names

if TYPE_CHECKING:
    from roquet.store.store import MessageStore


class LightQueueStore:
    """What the store knows of its light queues. Everything here raises StoreFault."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store

    def light_queues(self) -> int:
        """Return how many there are."""
        return self._store.light_queues()

    def knows_light_queue(self, name: str) -> bool:
        """Tell whether a light queue exists, or goes on where it ended."""
        return self._store.knows_light_queue(name)

    def light_bounds(self) -> list[tuple[str, int, int]]:
        """Return (name, first offset, end) of each, by name; goes through all queues."""
        rows = self._store.native.queues()
        return [(name, begin, end) for name, _, begin, end in rows if names.is_lmq(name)]

    def queue_count(self) -> int:
        """Return how many topics have queues; goes through all of them."""
        return len({name for name, *_ in self._store.native.queues()})

    def min_offset(self, topic: str, queue_id: int) -> int:
        """Return the first offset of a queue that is still there."""
        return self._store.min_offset(topic, queue_id)

    def max_offset(self, topic: str, queue_id: int) -> int:
        """Return the offset behind the last message that is in a queue."""
        return self._store.max_offset(topic, queue_id)

    def next_offset(self, topic: str, queue_id: int) -> int:
        """Return the offset of the next message, those that are not in the queue yet counted."""
        return self._store.native.next_offset(topic, queue_id)

    def store_time(self, topic: str, queue_id: int, offset: int) -> int:
        """Return when a message was stored, -1 when there is none."""
        return self._store.store_time(topic, queue_id, offset)

    def delete_topic(self, topic: str) -> int:
        """Delete the queues of a topic, durably."""
        return self._store.native.delete_topic(topic)
