"""Which queues a pop reads at this moment: one pop a group, topic and queue at a time.

Invariant: an offset is read, its checkpoint stored and the offset moved under one lock, so that no
two pops take the same messages. A lock is held only while its pop runs; it needs no expiry.
"""

from __future__ import annotations

Key = tuple[str, str, int]
"""(topic read, group, queue id)."""


class PopLocks:
    """The locks that are held, and whether somebody was turned away meanwhile."""

    def __init__(self) -> None:
        """Begin with none."""
        self._held: dict[Key, bool] = {}

    def __len__(self) -> int:
        return len(self._held)

    def take(self, key: Key) -> bool:
        """Take a lock; False when another pop has it, which is noted."""
        if key in self._held:
            self._held[key] = True
            return False
        self._held[key] = False
        return True

    def is_taken(self, key: Key) -> bool:
        """Tell whether another pop has a lock."""
        return key in self._held

    def release(self, key: Key) -> bool:
        """Give a lock back; return whether another pop wanted it meanwhile."""
        return self._held.pop(key)
