"""Sessions of one key: messages, each less than a gap after the one before. Pure.

What is open is kept as text in Spark's state: JSON, a list for each session.
"""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable


class Event(NamedTuple):
    """A message: its time in Unix milliseconds, its stored bytes, what is collected of it."""

    at_ms: int
    size: int
    value: str | None


@dataclasses.dataclass(slots=True)
class Session:
    """Messages that follow one another. Times are Unix milliseconds."""

    begin_ms: int
    end_ms: int
    messages: int
    size: int
    values: list[tuple[int, str]]
    """What was collected, with its time, in that order."""


@dataclasses.dataclass(frozen=True, slots=True)
class Rules:
    """When a session ends, and how many values of it are kept."""

    gap_ms: int
    values_max: int

    def grown(self, sessions: Iterable[Session], events: Iterable[Event]) -> list[Session]:
        """Return the sessions with more messages in them; any order of messages gives the same.

        One that comes late may join two sessions into one.
        """
        parts = [*sessions]
        for at_ms, size, value in events:
            values = [] if value is None else [(at_ms, value)]
            parts.append(Session(at_ms, at_ms, 1, size, values))
        parts.sort(key=lambda it: (it.begin_ms, it.end_ms, it.values))
        found: list[Session] = []
        for part in parts:
            if found and part.begin_ms - found[-1].end_ms < self.gap_ms:
                found[-1] = self._joined(found[-1], part)
            else:
                found.append(part)
        return found

    def split(
        self, sessions: Iterable[Session], watermark_ms: int
    ) -> tuple[list[Session], list[Session]]:
        """Return those that nothing can join any more, and the others."""
        done: list[Session] = []
        still: list[Session] = []
        for it in sessions:
            (done if self.ends_ms(it) <= watermark_ms else still).append(it)
        return done, still

    def ends_ms(self, session: Session) -> int:
        """Return from when on a message begins a new session."""
        return session.end_ms + self.gap_ms

    def _joined(self, one: Session, other: Session) -> Session:
        return Session(
            min(one.begin_ms, other.begin_ms),
            max(one.end_ms, other.end_ms),
            one.messages + other.messages,
            one.size + other.size,
            sorted([*one.values, *other.values])[: self.values_max],
        )


def to_text(sessions: Iterable[Session]) -> str:
    """Return the form that is kept."""
    return json.dumps([dataclasses.astuple(it) for it in sessions], separators=(",", ":"))


def from_text(text: str) -> list[Session]:
    """Read that form."""
    return [
        Session(begin, end, messages, size, [(at, value) for at, value in values])
        for begin, end, messages, size, values in json.loads(text)
    ]
