"""Which client subscribes to which light topics; in memory alone, clients say it again and again.

Invariant: the two directions agree: a client is among the subscribers of a queue exactly while the
queue is in its subscription, and `references` counts these pairs, by who asked for them. A client
is one of a group: what somebody says about another group's client of the same id does not touch it.

A group that has all light topics of its parent (a wildcard group) is noted under a name of its own,
`topic@group`, which no queue can have.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from roquet.protocol.light import light_topics
from roquet.service.shares import Shares

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

Client = tuple[str, str]
"""(client id, group)."""


@dataclasses.dataclass(slots=True, eq=False)
class Subscription:
    """What one client subscribes to."""

    topic: str
    updated_ms: int
    tell: Callable[[str], None]
    """How the client hears that it lost a light topic."""
    user: Hashable
    """Who renewed it last, for whose share it counts: an account, or a connection without one."""
    queues: dict[str, None] = dataclasses.field(default_factory=dict[str, None])
    next_walk: int = 0
    """Where the next pop that goes through all of them begins."""


class Members:
    """The clients of one group that subscribe to a queue, in no order."""

    __slots__ = ("_places", "clients")

    def __init__(self) -> None:
        self.clients: list[str] = []
        self._places: dict[str, int] = {}

    def add(self, client: str) -> bool:
        """Add a client; tell whether it is new."""
        if client in self._places:
            return False
        self._places[client] = len(self.clients)
        self.clients.append(client)
        return True

    def remove(self, client: str) -> bool:
        """Remove a client; tell whether it was there."""
        place = self._places.pop(client, None)
        if place is None:
            return False
        last = self.clients.pop()
        if last != client:
            self.clients[place] = last
            self._places[last] = place
        return True


class LightSubscriptions:
    """The subscriptions of all clients."""

    def __init__(self) -> None:
        self._clients: dict[Client, Subscription] = {}
        self._groups: dict[str, dict[str, None]] = {}
        """Group -> its clients."""
        self._members: dict[str, dict[str, Members]] = {}
        """Queue -> group -> clients."""
        self._wildcards: dict[str, dict[str, str]] = {}
        """Topic -> wildcard group -> the name it is noted under."""
        self.references = Shares()
        """Pairs of a client and a light topic, by user."""
        self.users = Shares()
        """Clients, by user."""

    def __len__(self) -> int:
        return len(self._clients)

    def get(self, client: Client) -> Subscription | None:
        """Return a client's subscription."""
        return self._clients.get(client)

    def clients(self) -> list[Client]:
        """Return all clients."""
        return list(self._clients)

    def clients_of(self, group: str) -> list[str]:
        """Return the clients of a group."""
        return list(self._groups.get(group, ()))

    def subscribers(self, queue: str, group: str | None = None) -> list[tuple[str, Sequence[str]]]:
        """Return the groups, or the one group, that subscribe to a queue, and their clients."""
        found = self._members.get(queue, {})
        split = light_topics.split(queue)
        wildcards = self._wildcards.get(split[0], {}) if split is not None else {}
        names = (
            [group] if group is not None else [*found, *(it for it in wildcards if it not in found)]
        )
        pairs: list[tuple[str, Sequence[str]]] = []
        for name in names:
            noted = wildcards.get(name)
            members = found.get(name) if noted is None else self._members[noted].get(name)
            if members is not None and members.clients:
                pairs.append((name, members.clients))
        return pairs

    def opened(
        self,
        client: Client,
        topic: str,
        tell: Callable[[str], None],
        now_ms: int,
        *,
        user: Hashable = None,
    ) -> Subscription:
        """Return a client's subscription, which is as new as of now and counts for `user`."""
        known = self._clients.get(client)
        if known is not None and known.topic != topic:
            # The group is bound to another topic now.
            self.closed(client)
            known = None
        if known is None:
            known = self._clients[client] = Subscription(topic, now_ms, tell, user)
            self._groups.setdefault(client[1], {})[client[0]] = None
            self.users.add(user)
        self.references.move(known.user, user, len(known.queues))
        self.users.move(known.user, user, 1)
        known.user = user
        known.updated_ms = now_ms
        known.tell = tell
        return known

    def add(self, client: Client, queue: str) -> bool:
        """Add a queue to a subscription that is open; tell whether it is new."""
        held = self._clients[client]
        name, group = client
        members = self._members.setdefault(queue, {}).setdefault(group, Members())
        if not members.add(name):
            return False
        held.queues[queue] = None
        self.references.add(held.user)
        return True

    def add_wildcard(self, client: Client) -> bool:
        """Have a client get all light topics of its parent; tell whether that is new."""
        topic, group = self._clients[client].topic, client[1]
        noted = f"{topic}@{group}"
        self._wildcards.setdefault(topic, {})[group] = noted
        return self.add(client, noted)

    def remove(self, client: Client, queue: str) -> bool:
        """Take a queue out of a subscription; tell whether it was there."""
        held = self._clients.get(client)
        if held is None or queue not in held.queues:
            return False
        del held.queues[queue]
        self.references.add(held.user, -1)
        name, group = client
        groups = self._members[queue]
        groups[group].remove(name)
        if not groups[group].clients:
            del groups[group]
        if not groups:
            del self._members[queue]
            self._forget_wildcard(held.topic, group, queue)
        return True

    def closed(self, client: Client) -> Subscription | None:
        """Forget a client; return what it had."""
        held = self._clients.get(client)
        if held is None:
            return None
        for queue in list(held.queues):
            self.remove(client, queue)
        del self._clients[client]
        self.users.add(held.user, -1)
        name, group = client
        del self._groups[group][name]
        if not self._groups[group]:
            del self._groups[group]
        return held

    def forget_queue(self, queue: str) -> None:
        """Take a queue that is deleted out of every subscription."""
        for group, members in list(self._members.get(queue, {}).items()):
            for name in list(members.clients):
                self.remove((name, group), queue)

    def expired(self, before_ms: int) -> list[Client]:
        """Return the clients that said nothing since then."""
        return [client for client, held in self._clients.items() if held.updated_ms < before_ms]

    def _forget_wildcard(self, topic: str, group: str, noted: str) -> None:
        groups = self._wildcards.get(topic)
        if groups is not None and groups.get(group) == noted:
            del groups[group]
            if not groups:
                del self._wildcards[topic]
