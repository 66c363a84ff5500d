"""The ends of transactions: what producers decide about their half messages."""

from __future__ import annotations

import dataclasses
import enum


class Verdict(enum.Enum):
    """What becomes of a half message."""

    COMMIT = "commit"
    ROLLBACK = "rollback"
    UNKNOWN = "unknown"
    """The producer does not know yet: the broker asks again later."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class EndTransactionRequest:
    """Commits a half message or rolls it back."""

    producer_group: str
    physical_offset: int
    """Where the half message is in the log."""
    half_offset: int
    """Its offset in the half queue."""
    verdict: Verdict | None
    """None: something that is no verdict."""
    is_answer: bool = False
    """Whether the broker has asked: such a verdict counts however late it comes."""
    is_awaited: bool = True
    """Whether the producer waits for the result: a roll-back is then durable before that."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class FindHalfRequest:
    """Asks where a half message is that is known by its id."""

    topic: str
    """That of the message once it is committed."""
    message_id: str
    """The unique key that its producer gave it."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class HalfFound:
    """Where a half message is."""

    physical_offset: int
    half_offset: int
    """Its offset in the half queue."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ResumeChecksRequest:
    """Has a half message asked about again that was put aside, or is asked about too often."""

    message_id: str
    """Its offset id."""
