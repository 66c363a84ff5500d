"""Users and their policies as rows of the native ingest: the guard's rules, as data.

A right is in a row only if it is there whatever the peer's address is (`auth.policies.always`).
What the rows do not permit is refused by nobody here: it goes to the handlers, behind the guard,
which looks at the addresses as well and says exactly why.

Invariant: for every name a row permits what `auth.guard` permits, or less. Names in entries have
their own bits; any other name has those of its longest prefix in an entry, since no literal entry
and no longer prefix can decide about it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from roquet.auth.model import Action, ResourceType
from roquet.auth.policies import always
from roquet.protocol import names

if TYPE_CHECKING:
    from roquet.auth.directory import Directory
    from roquet.auth.model import User
    from roquet.auth.policies import Acl
    from roquet.broker.fastpath.account_rows import Names
    from roquet.remoting.connections.fast_ingest import Rows

    _White = tuple[bool, list[list[tuple[int, int]]]]
    _Known = tuple[Acl | None, Names, Names]

_BITS = ((Action.PUB, 4), (Action.SUB, 8))
_NOBODY: _White = (False, [])


class Source(Protocol):
    """Has the users in force."""

    @property
    def now(self) -> Directory:
        """The users and policies as they are now."""
        ...


class UserRows:
    """Knows whether the rows are those of the users in force, and writes them."""

    def __init__(self, source: Source, revive_topic: str) -> None:
        """Count as stale until they are written for the first time.

        `revive_topic` has the checkpoints of this broker.
        """
        self._source = source
        self._rooms = (*names.WAITING_ROOMS, revive_topic)
        self._written: Directory | None = None
        self._known: dict[str, _Known] = {}

    @property
    def is_stale(self) -> bool:
        """Whether the users in force are others than those written."""
        # The directory itself, not the news of it: the guard looks at the same one.
        return self._source.now is not self._written

    def write(self, rows: Rows) -> None:
        """Write all users who are let in."""
        directory = self._source.now
        users = [user for user in directory.users.values() if user.is_enabled]
        # What is as it was is not worked out again: there may be many entries.
        self._known = {user.name: self._rights(user.name, directory) for user in users}
        rows.set_accounts([], [self._row(user) for user in users])
        self._written = directory

    def _row(self, user: User) -> tuple[str, bytes, _White, bool, Names, Names]:
        _, topics, groups = self._known[user.name]
        return user.name, user.password.encode(), _NOBODY, user.is_super, topics, groups

    def _rights(self, name: str, directory: Directory) -> _Known:
        acl = directory.acls.get(name)
        known = self._known.get(name)
        if known is not None and known[0] is acl:
            return known
        return acl, topic_rights(acl, self._rooms), _rights(acl, ResourceType.GROUP)


def topic_rights(acl: Acl | None, rooms: tuple[str, ...]) -> Names:
    """Return the rights with topics; none with `rooms`, in which messages of others wait."""
    exact, prefixes, others = _rights(acl, ResourceType.TOPIC)
    exact |= {name: 0 for name in (*exact, *rooms) if names.is_waiting_room(name) or name in rooms}
    prefixes.setdefault(names.REVIVE_TOPIC_PREFIX, 0)
    return exact, prefixes, others


def _rights(acl: Acl | None, kind: ResourceType) -> Names:
    found = [policy.names(kind) for policy in (() if acl is None else acl.ranked)]
    literal = {name for names_of, _ in found for name in names_of}
    prefixes = {name for _, names_of in found for name in names_of}
    return (
        {name: _bits(acl, kind, name, literal=True) for name in literal},
        {name: _bits(acl, kind, name, literal=False) for name in prefixes},
        _bits(acl, kind, "", literal=False),
    )


def _bits(acl: Acl | None, kind: ResourceType, name: str, *, literal: bool) -> int:
    """Return the bits that are allowed for certain."""
    return sum(bit for action, bit in _BITS if always(acl, kind, name, action, literal=literal))
