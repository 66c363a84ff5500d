"""How many connections the port for slaves keeps, and which one goes when there are too many.

A connection is a stranger until its first report is there. Strangers never take a slave's place:
they are few, fewer of one address, and the oldest goes when another one comes. Among slaves, one
that has proven something (the secret, or that it has the log) takes the place of one that has not.
"""

from __future__ import annotations

from typing import Generic, TypeVar

SLAVES_MAX = 64
"""Slaves at a time."""
STRANGERS_MAX = 64
"""Connections at a time that have not reported yet."""
PER_ADDRESS_MAX = 8
"""Of one address: strangers, and slaves that have proven nothing."""

_Link = TypeVar("_Link")


class Places(Generic[_Link]):
    """Strangers and slaves, oldest first."""

    def __init__(self) -> None:
        self._strangers: dict[_Link, str] = {}
        self._slaves: dict[_Link, tuple[str, bool]] = {}

    @property
    def slaves(self) -> list[_Link]:
        """Return the connections of those who have reported."""
        return list(self._slaves)

    def all(self) -> list[_Link]:
        """Return every connection."""
        return [*self._strangers, *self._slaves]

    def knock(self, link: _Link, host: str) -> _Link | None:
        """Add a stranger; return the one that has to go for it."""
        same = [other for other, its in self._strangers.items() if its == host]
        leaver = None
        if len(same) >= PER_ADDRESS_MAX:
            leaver = same[0]
        elif len(self._strangers) >= STRANGERS_MAX:
            leaver = next(iter(self._strangers))
        if leaver is not None:
            del self._strangers[leaver]
        self._strangers[link] = host
        return leaver

    def join(self, link: _Link, host: str, *, proven: bool) -> tuple[bool, _Link | None]:
        """Make a stranger a slave; return (whether there is a place, who has to go for it)."""
        self._strangers.pop(link, None)
        leaver = None
        doubtful = [other for other, (_, known) in self._slaves.items() if not known]
        if not proven:
            same = [other for other in doubtful if self._slaves[other][0] == host]
            if len(same) >= PER_ADDRESS_MAX or len(self._slaves) >= SLAVES_MAX:
                return False, None
        elif len(self._slaves) >= SLAVES_MAX:
            if not doubtful:
                return False, None
            leaver = doubtful[0]
            del self._slaves[leaver]
        self._slaves[link] = (host, proven)
        return True, leaver

    def leave(self, link: _Link) -> None:
        """Forget a connection."""
        self._strangers.pop(link, None)
        self._slaves.pop(link, None)
