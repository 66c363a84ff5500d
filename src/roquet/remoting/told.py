"""What the compiled part tells of what it did without a handler."""

from __future__ import annotations

from typing import NamedTuple

from roquet._native import Ingest as NativeIngest


class PulledHere(NamedTuple):
    """What pulls of one queue for one group came to without a handler."""

    group: str
    topic: str
    queue_id: int
    offset: int | None
    """Offset that the last of them asked for; None when all had asked before."""
    commit: int | None
    """Offset that the last commit among them gave."""
    commits: int
    reads: int
    """Answers that found messages."""
    misses: int
    """Answers that found none."""
    messages: int
    size: int
    behind: int
    """Messages left unread behind each answer that found some, added up."""
    took_us: int
    """Microseconds that reading took for the answers that found some, added up."""


class StoredHere(NamedTuple):
    """Messages that were stored without a handler, and sends that were answered."""

    topic: str
    queue_id: int
    messages: int
    size: int
    sends: int
    """Answers: with a flush to wait for they come later than their messages."""
    took_us: int
    """Microseconds from the arrival of these sends on, added up."""


CLASSES_MS = tuple(float(bound) for bound in NativeIngest.CLASSES_MS)
"""Upper bounds of the classes that answers are counted by, in milliseconds; one more has none."""


class AnsweredHere(NamedTuple):
    """How long the answers of one kind took that no handler gave, from arrival on."""

    request_code: int
    response_code: int
    held: bool
    """Whether they are answers to pulls that waited for a message."""
    one_way: bool
    """Whether nobody waited for them."""
    counts: list[int]
    """Answers by class."""
    took_us: int
    """Microseconds of all of them."""
