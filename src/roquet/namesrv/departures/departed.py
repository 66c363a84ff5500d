"""Brokers that left and what they served, for those who must not take absence for an answer.

A route shows who is there. A reader of all messages of a topic needs to know as well who is not
there now: a broker that restarts leaves the route, and so half of the messages seem not to be. So
brokers are kept by name for a while after the last of their members has gone, whether it
unregistered, lost its connection or fell silent: none of the three says that it will not be back.
Only who asks for them is told (`protocol.registration`); what other clients get does not change.

Pure state: the time is passed in. `namesrv.memory` keeps it in a file.
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


class Served(NamedTuple):
    """What a broker served, in its cluster."""

    cluster: str
    topics: Collection[str]


class _Left(NamedTuple):
    at_ms: int
    cluster: str
    topics: set[str]


@dataclasses.dataclass(slots=True)
class DepartedBrokers:
    """The table of those who left."""

    _left: dict[str, _Left] = dataclasses.field(default_factory=dict[str, "_Left"])

    def add(self, served: Mapping[str, Served], at_ms: int) -> None:
        """Keep what brokers served, by name, that left at a time."""
        for name, it in served.items():
            self._left.pop(name, None)
            self._left[name] = _Left(at_ms, it.cluster, set(it.topics))
        while len(self._left) > NAMES_MAX or (
            self._left and sum(len(it.topics) for it in self._left.values()) > TOPICS_MAX
        ):
            del self._left[next(iter(self._left))]

    def back(self, name: str) -> None:
        """Drop a broker that says itself again what it serves."""
        self._left.pop(name, None)

    def delete_topic(self, topic: str, cluster: str | None) -> None:
        """Drop a topic that was deleted, in one cluster or in all: it is not missed there."""
        for it in self._left.values():
            if cluster in {None, it.cluster}:
                it.topics.discard(topic)

    def expire(self, oldest_ms: int) -> None:
        """Drop those who left before a time."""
        for name in [name for name, it in self._left.items() if it.at_ms < oldest_ms]:
            del self._left[name]

    def everyone(self) -> dict[str, tuple[int, Served]]:
        """Return when each left and what it served, those who left first in front."""
        return {
            name: (it.at_ms, Served(it.cluster, sorted(it.topics)))
            for name, it in self._left.items()
        }

    def of(self, topic: str) -> list[str]:
        """Return the names of those that served a topic when they left, sorted."""
        return sorted(name for name, it in self._left.items() if topic in it.topics)

    def topics(self) -> set[str]:
        """Return all topics that somebody served who left."""
        return set[str]().union(*(it.topics for it in self._left.values()))
