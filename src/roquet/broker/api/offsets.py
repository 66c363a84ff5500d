"""Requests about offsets: those of queues, and those that groups have committed."""

from __future__ import annotations

import dataclasses
import enum


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class QueueRequest:
    """Names one queue of a topic."""

    topic: str
    queue_id: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class OffsetByTimeRequest(QueueRequest):
    """Asks for the offset of the message stored at a time, or next to it."""

    time_ms: int
    """Unix milliseconds."""
    upper: bool = False
    """Of several messages stored at that time, the last one instead of the first."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class CommittedRequest(QueueRequest):
    """Asks where a group continues in a queue."""

    group: str
    may_begin_at_zero: bool = True
    """Whether 0 may be answered to a group that has never committed."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class CommitRequest(QueueRequest):
    """Tells how far a group has consumed a queue."""

    group: str
    offset: int
    """The offset of the next message that the group wants."""


class CommitResult(enum.Enum):
    """What became of a commit."""

    STORED = "stored"
    RESET_PENDING = "reset pending"
    """Ignored: an operator has reset the offset, and the group has not heard of it yet."""
