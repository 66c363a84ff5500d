"""Brokers that left and what they served, for those who must not take absence for an answer.

A route shows who is there. A reader of all messages of a topic needs to know as well who is not
there now: a broker that restarts leaves the route, and so half of the messages seem not to be. So
brokers are kept by name for a while after the last of their members has gone, whether it
unregistered, lost its connection or fell silent: none of the three says that it will not be back.
Only who asks for them is told (`protocol.departed`); what other clients get does not change.

Pure state: the time is passed in. What is kept is lost when the name server stops.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

NAMES_MAX: Final = 1_000
"""Names that are kept; the one that left first makes room."""
TOPICS_MAX: Final = 1_000_000
"""Topics that are kept, over all names."""


class _Left(NamedTuple):
    at_ms: int
    topics: set[str]


@dataclasses.dataclass(slots=True)
class DepartedBrokers:
    """The table of those who left."""

    _left: dict[str, _Left] = dataclasses.field(default_factory=dict[str, "_Left"])

    def add(self, served: Mapping[str, Collection[str]], now_ms: int) -> None:
        """Keep what brokers served, by name, that have just left."""
        for name, topics in served.items():
            self._left.pop(name, None)
            self._left[name] = _Left(now_ms, set(topics))
        while len(self._left) > NAMES_MAX or (
            self._left and sum(len(it.topics) for it in self._left.values()) > TOPICS_MAX
        ):
            del self._left[next(iter(self._left))]

    def back(self, name: str) -> None:
        """Drop a broker that says itself again what it serves."""
        self._left.pop(name, None)

    def delete_topic(self, topic: str) -> None:
        """Drop a topic that was deleted: it is not missed."""
        for it in self._left.values():
            it.topics.discard(topic)

    def expire(self, oldest_ms: int) -> None:
        """Drop those who left before a time."""
        for name in [name for name, it in self._left.items() if it.at_ms < oldest_ms]:
            del self._left[name]

    def of(self, topic: str) -> list[str]:
        """Return the names of those that served a topic when they left, sorted."""
        return sorted(name for name, it in self._left.items() if topic in it.topics)

    def topics(self) -> set[str]:
        """Return all topics that somebody served who left."""
        return set[str]().union(*(it.topics for it in self._left.values()))
