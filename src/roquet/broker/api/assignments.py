"""Requests about which queues a member of a group consumes, and how."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from roquet.model.queue import MessageQueue
    from roquet.model.request_mode import RequestMode


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class AssignmentRequest:
    """Asks for the queues of one member."""

    topic: str
    group: str
    client_id: str
    strategy: str
    """Name of the strategy by which the group shares queues."""
    is_broadcasting: bool = False
    """Whether every member gets every message."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class AssignmentResult:
    """The queues of one member."""

    queues: frozenset[MessageQueue] | None
    """None: nothing can be said, the member keeps what it has. Empty: it has none.

    Queue id -1 stands for all queues of that broker.
    """
    mode: RequestMode
