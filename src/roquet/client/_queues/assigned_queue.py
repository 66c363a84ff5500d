"""A queue that is assigned to this member, with the work on it."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio

    from roquet.client._queues.process_queue import ProcessQueue
    from roquet.model.message import StoredMessage
    from roquet.service.background import Tasks


@dataclasses.dataclass(slots=True)
class AssignedQueue:
    """One queue of a consumer."""

    held: ProcessQueue
    tasks: Tasks
    waiting: asyncio.Queue[StoredMessage]
    """Ordered consumers: fetched messages in line."""
    given: int | None = None
    """Ordered consumers: offset of the message that is given out and not settled."""
