"""Which clients are here: producers and consumers by group and connection (spec: broker (b), (d)).

A connection belongs to a group from its first heartbeat that names the group until it says goodbye,
closes, or is silent for two minutes. Nothing here sends, waits or reads a clock: methods are told
the time, by a clock that nobody can set, and answer what changed; the caller tells the members.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from roquet.model.subscription import ConsumeFromWhere, ConsumeType, MessageModel
from roquet.service.shares import Shares

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from roquet.model.subscription import SubscriptionData
    from roquet.remoting.router import Peer

EXPRESSION_WEIGHT = 256
"""Characters of an expression that count as much as a topic."""
IDLE_MS = 120_000
"""A connection that has sent no heartbeat for longer is closed and forgotten."""


@dataclasses.dataclass(frozen=True, slots=True)
class Client:
    """One client as one connection showed it. A consumer's id may be missing (Java keeps null)."""

    peer: Peer
    client_id: str | None
    language: str
    version: int
    access_key: str = ""
    """Of the account that its heartbeats are signed by."""
    heard_at_ms: int = 0
    """When the heartbeat came that showed it, Unix milliseconds: for people, not for ages."""
    secret: bytes | None = dataclasses.field(default=None, repr=False, compare=False)
    """What the account signed that heartbeat with; None where nobody has to sign."""
    balances: bool = True
    """Whether it shares queues out with the other members, and so is told when they change."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Consuming:
    """How a group consumes, by its latest heartbeat; a name nobody knows is None, as in Java."""

    consume_type: ConsumeType | None = ConsumeType.PASSIVELY
    model: MessageModel | None = MessageModel.CLUSTERING
    from_where: ConsumeFromWhere | None = ConsumeFromWhere.LAST_OFFSET


@dataclasses.dataclass(slots=True)
class Member:
    """A client within a group, and when it was last heard of."""

    client: Client
    seen_ms: int
    """By a clock that nobody can set."""


@dataclasses.dataclass(slots=True)
class ConsumerGroup:
    """A consumer group that has at least one member. Read it; only the registry writes."""

    name: str
    consuming: Consuming
    members: dict[int, Member] = dataclasses.field(default_factory=dict[int, Member])
    """By the key of the connection, in the order of joining."""
    balancing: dict[int, Peer] = dataclasses.field(default_factory=dict[int, "Peer"])
    """Connections of the members that share queues out, by key, in the order of joining."""
    subscriptions: dict[str, SubscriptionData] = dataclasses.field(
        default_factory=dict[str, "SubscriptionData"]
    )
    """By topic."""
    fingerprint: int | None = None
    """Of the latest V2 heartbeat; None while only V1 heartbeats have come."""

    @property
    def is_broadcasting(self) -> bool:
        """Whether each member gets every message, so that nobody has to balance."""
        return self.consuming.model == MessageModel.BROADCASTING

    @property
    def client_ids(self) -> list[str]:
        """The members' ids, each once, in the order of joining.

        A client that reconnected is here twice until its old connection is noticed dead; were it
        named twice, the others would leave a share of the queues to nobody.
        """
        ids = (member.client.client_id for member in self.members.values())
        return list(dict.fromkeys(id_ for id_ in ids if id_ is not None))

    def member_with_id(self, client_id: str) -> Member | None:
        """Find a member by client id: the latest to join when several share it."""
        for member in reversed(self.members.values()):
            if member.client.client_id == client_id:
                return member
        return None


@dataclasses.dataclass(frozen=True, slots=True)
class Departed:
    """What the loss of connections changed."""

    peers: tuple[Peer, ...]
    consumer_groups: tuple[str, ...]
    """Groups that lost a member, gone ones included."""


class Registry:
    """All producers and consumers of a broker."""

    def __init__(self, idle_ms: int = IDLE_MS) -> None:
        self._idle_ms = idle_ms
        self._consumers: dict[str, ConsumerGroup] = {}
        self._producers: dict[str, dict[int, Member]] = {}
        # By connection, so that losing one does not search every group.
        self._consumer_groups_of: dict[int, set[str]] = {}
        self._producer_groups_of: dict[int, set[str]] = {}
        self._listeners: list[Callable[[str], None]] = []
        self.subscribed = 0
        """How many topics groups subscribe to, counted for each group; long expressions more."""
        self.memberships = Shares()
        """How many groups connections are in, counted for each connection, by account."""

    def listen(self, listener: Callable[[str], None]) -> None:
        """Have `listener(group)` called whenever a consumer group may have changed."""
        self._listeners.append(listener)

    # --- producers -------------------------------------------------------------------------------

    def register_producer(self, group: str, client: Client, now_ms: int) -> None:
        """Add or refresh a producer."""
        members = self._producers.setdefault(group, {})
        self._join(members, Member(client, now_ms))
        self._producer_groups_of.setdefault(client.peer.key, set()).add(group)

    def unregister_producer(self, group: str, key: int) -> bool:
        """Remove a connection from a producer group; tell whether it was in it."""
        members = self._producers.get(group)
        if members is None or not self._leave(members, key):
            return False
        if not members:
            del self._producers[group]
        _discard(self._producer_groups_of, key, group)
        return True

    def producers(self, group: str) -> list[Member]:
        """List the members of a producer group, in the order of joining."""
        return list(self._producers.get(group, {}).values())

    @property
    def producer_groups(self) -> list[str]:
        """Names of the producer groups that have a member."""
        return list(self._producers)

    def producer_with_id(self, client_id: str) -> Member | None:
        """Find a producer by client id in any group: where a reply message is pushed to."""
        for members in self._producers.values():
            for member in reversed(members.values()):
                if member.client.client_id == client_id:
                    return member
        return None

    # --- consumers -------------------------------------------------------------------------------

    def register_consumer(
        self,
        group: str,
        client: Client,
        consuming: Consuming,
        subscriptions: Iterable[SubscriptionData] | None,
        now_ms: int,
        *,
        fingerprint: int | None = None,
    ) -> bool:
        """Add or refresh a consumer; tell whether the members have to balance anew.

        That is so when the connection is new in the group, or a topic came or went. A subscription
        replaces the known one only when its version is greater. None means that the heartbeat left
        the subscriptions out and the known ones stay.
        """
        known = self._consumers.get(group)
        if known is None:
            known = self._consumers[group] = ConsumerGroup(group, consuming)
        key = client.peer.key
        joined = self._join(known.members, Member(client, now_ms))
        if client.balances:
            known.balancing[key] = client.peer
        known.consuming = consuming
        if fingerprint is not None:
            known.fingerprint = fingerprint
        self._consumer_groups_of.setdefault(key, set()).add(group)
        topics_changed = subscriptions is not None and self._merge(known, subscriptions)
        self._changed(group)
        return joined or topics_changed

    def must_resend(self, group: str, fingerprint: int, *, without_sub: bool) -> bool:
        """Tell whether a V2 heartbeat's sender has to send its subscriptions (once more).

        Ask before `register_consumer`. It must when the group is known by another fingerprint,
        and when it left out subscriptions that this broker does not have (it has restarted).
        """
        known = self._consumers.get(group)
        if known is None or known.fingerprint is None:
            return without_sub
        return known.fingerprint != fingerprint

    def unregister_consumer(self, group: str, key: int) -> bool:
        """Remove a connection from a consumer group; tell whether it was in it."""
        known = self._consumers.get(group)
        if known is None or not self._leave(known.members, key):
            return False
        known.balancing.pop(key, None)
        if not known.members:
            self.subscribed -= sum(map(weight_of, known.subscriptions.values()))
            del self._consumers[group]
        _discard(self._consumer_groups_of, key, group)
        self._changed(group)
        return True

    def consumer(self, group: str) -> ConsumerGroup | None:
        """Return a consumer group, None when it has no member."""
        return self._consumers.get(group)

    def subscription(self, group: str, topic: str) -> SubscriptionData | None:
        """Return what a group wants of a topic, None when it has no member or does not want it."""
        known = self._consumers.get(group)
        return None if known is None else known.subscriptions.get(topic)

    @property
    def consumer_groups(self) -> Mapping[str, ConsumerGroup]:
        """The consumer groups that have a member, by name."""
        return self._consumers

    def groups_of_topic(self, topic: str) -> list[str]:
        """Names of the groups with a member that subscribe to a topic."""
        return [name for name, group in self._consumers.items() if topic in group.subscriptions]

    # --- connections -----------------------------------------------------------------------------

    def joins(self, key: int, consumers: Iterable[str], producers: Iterable[str]) -> int:
        """Count the groups named that a connection is not in yet."""
        new = set(consumers) - self._consumer_groups_of.get(key, set())
        return len(new) + len(set(producers) - self._producer_groups_of.get(key, set()))

    def groups_of(self, key: int) -> int:
        """Count the groups that a connection is in."""
        consumers = self._consumer_groups_of.get(key, ())
        return len(consumers) + len(self._producer_groups_of.get(key, ()))

    def drop(self, key: int) -> tuple[str, ...]:
        """Forget a closed connection; return the consumer groups that lost it."""
        for group in list(self._producer_groups_of.get(key, ())):
            self.unregister_producer(group, key)
        lost = tuple(self._consumer_groups_of.get(key, ()))
        for group in lost:
            self.unregister_consumer(group, key)
        return lost

    def expire(self, now_ms: int) -> Departed:
        """Forget memberships without a heartbeat for the idle time.

        The connections named in the answer are to be closed: a client that still lives connects
        again and registers anew, one that hangs holds no queues.
        """
        peers: dict[int, Peer] = {}
        groups: dict[str, None] = {}
        for name, members in list(self._producers.items()):
            for key, member in self._idle(members, now_ms):
                peers[key] = member.client.peer
                self.unregister_producer(name, key)
        for group in list(self._consumers.values()):
            for key, member in self._idle(group.members, now_ms):
                peers[key] = member.client.peer
                groups[group.name] = None
                self.unregister_consumer(group.name, key)
        return Departed(tuple(peers.values()), tuple(groups))

    def growth(self, group: str, wanted: Iterable[SubscriptionData]) -> int:
        """Return by how much `subscribed` grows when a group subscribes to these instead."""
        known = self._consumers.get(group)
        before = 0 if known is None else sum(map(weight_of, known.subscriptions.values()))
        return sum(map(weight_of, wanted)) - before

    def _join(self, members: dict[int, Member], member: Member) -> bool:
        """Put a member into a group, or in its own place; tell whether it is new."""
        key, account = member.client.peer.key, member.client.access_key
        known = members.get(key)
        members[key] = member
        if known is None:
            self.memberships.add(account)
        else:
            self.memberships.move(known.client.access_key, account, 1)
        return known is None

    def _leave(self, members: dict[int, Member], key: int) -> bool:
        member = members.pop(key, None)
        if member is not None:
            self.memberships.add(member.client.access_key, -1)
        return member is not None

    def _merge(self, group: ConsumerGroup, wanted: Iterable[SubscriptionData]) -> bool:
        """Make the group's topics those wanted; tell whether a topic came or went."""
        changed = False
        topics: set[str] = set()
        for subscription in wanted:
            topics.add(subscription.topic)
            known = group.subscriptions.get(subscription.topic)
            changed = changed or known is None
            if known is None or subscription.version > known.version:
                self.subscribed += weight_of(subscription)
                self.subscribed -= 0 if known is None else weight_of(known)
                group.subscriptions[subscription.topic] = subscription
        if len(topics) < len(group.subscriptions):
            for topic in [topic for topic in group.subscriptions if topic not in topics]:
                self.subscribed -= weight_of(group.subscriptions.pop(topic))
                changed = True
        return changed

    def _changed(self, group: str) -> None:
        for listener in self._listeners:
            listener(group)

    def _idle(self, members: Mapping[int, Member], now_ms: int) -> list[tuple[int, Member]]:
        return [
            (key, member)
            for key, member in members.items()
            if now_ms - member.seen_ms > self._idle_ms
        ]


def weight_of(subscription: SubscriptionData) -> int:
    """Return what a subscription counts: 1, and more for the memory of a long expression."""
    return 1 + len(subscription.expression) // EXPRESSION_WEIGHT


def _discard(table: dict[int, set[str]], key: int, group: str) -> None:
    groups = table.get(key)
    if groups is not None:
        groups.discard(group)
        if not groups:
            del table[key]
