"""One queue of a topic on one broker."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True, slots=True, order=True)
class MessageQueue:
    """A queue's name. The order (topic, broker, id) is the one every client balances by."""

    topic: str
    broker_name: str
    queue_id: int
