"""Who serves which topic: the name server's six tables and their update rules, as pure state.

Nothing here knows a socket or a clock: the time is passed in, a connection is a number, and
what has to be done outside (connections to close) is returned. Thousands of topics are taken over
and forgotten in steps: whoever changes the table calls `advance` until nothing is left.
Registration, heartbeat, unregistration and expiry are here; what clients ask is in `views` (spec:
namesrv, Tables).
"""

from __future__ import annotations

import dataclasses
from collections import deque
from typing import TYPE_CHECKING, Any

from roquet.base.errors import Refused
from roquet.model.route import MASTER_ID, QueueData
from roquet.model.topic import READ_WRITE, Perm
from roquet.namesrv.departures.departed import DepartedBrokers, Served
from roquet.namesrv.steps import ChangedPerms, ends
from roquet.protocol.codes import ResponseCode

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from roquet.model.data_version import DataVersion
    from roquet.model.topic import TopicConfig
    from roquet.namesrv.steps import Work

    StaticMapping = Mapping[str, Any]
    """A static topic's mapping of one broker, kept as it came; `bname` names the broker."""

DEFAULT_EXPIRY_MS = 120_000
MAX_BROKER_NAMES = 10_000
"""More names than any cluster has: a bound on what strangers can make us remember."""
MAX_BROKERS = 20_000
"""Broker processes that are alive, over all names."""
MAX_MEMBERS = 1_000
"""Ids under one broker name."""
MAX_TOPICS = 1_000_000
"""Topics with a route, over all brokers."""


ROWS_AT_ONCE = 4_096
"""Topics that are changed before others have their turn."""


@dataclasses.dataclass(frozen=True, slots=True)
class BrokerKey:
    """One broker process, as the live table knows it."""

    cluster: str
    address: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """What a broker says of itself (request 103), decoded and checked."""

    cluster: str
    name: str
    broker_id: int
    address: str
    ha_address: str
    version: DataVersion
    topics: Mapping[str, TopicConfig]
    mappings: Mapping[str, StaticMapping] = dataclasses.field(
        default_factory=dict[str, "StaticMapping"]
    )
    filter_servers: Sequence[str] = ()
    timeout_ms: int | None = None
    acting_master: bool | None = None
    zone: str | None = None
    rows: Mapping[str, dict[str, QueueData]] | None = None
    """What topics come to in routes, where it was made already (`with_rows`)."""

    def with_rows(self) -> Registration:
        """Return the same with the rows of every topic made: of a long one, beside the loop."""
        alike: dict[tuple[int, ...], QueueData] = {}
        rows: dict[str, dict[str, QueueData]] = {}
        for name, it in self.topics.items():
            key = (it.read_queues, it.write_queues, it.perm, it.sys_flag)
            queues = alike.get(key)
            if queues is None:
                # Most topics are alike: one object for all of them spares the collector the rest.
                queues = alike[key] = QueueData(
                    broker_name=self.name,
                    read_queues=it.read_queues,
                    write_queues=it.write_queues,
                    perm=it.perm,
                    topic_sys_flag=it.sys_flag,
                )
            rows[name] = {self.name: queues}
        return dataclasses.replace(self, rows=rows)

    @property
    def key(self) -> BrokerKey:
        """The row of the live table that this registration writes."""
        return BrokerKey(self.cluster, self.address)


@dataclasses.dataclass(frozen=True, slots=True)
class Registered:
    """What a registering slave is told of its master; empty for a master."""

    ha_address: str | None = None
    master_address: str | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Departure:
    """A broker that leaves. `channel` is set when its connection ended, not when it said so."""

    cluster: str
    name: str
    address: str
    channel: int | None = None


@dataclasses.dataclass(slots=True)
class BrokerEntry:
    """All members of one broker name: id 0 is the master."""

    name: str
    cluster: str
    addresses: dict[int, str] = dataclasses.field(default_factory=dict[int, str])
    acting_master: bool = False
    zone: str | None = None

    def without_master(self) -> bool:
        """Whether members are alive, but not the master."""
        return bool(self.addresses) and MASTER_ID not in self.addresses


@dataclasses.dataclass(slots=True)
class LiveEntry:
    """When a broker was last heard of, and over which connection."""

    name: str
    last_ms: int
    timeout_ms: int
    version: DataVersion
    channel: int
    ha_address: str


class RouteTable:
    """The tables. One thread (the event loop) owns them; no row is ever half changed."""

    def __init__(self, *, drop_absent_topics: bool = False) -> None:
        """Start empty. `drop_absent_topics` is Java's deleteTopicWithBrokerRegistration."""
        self.drop_absent_topics = drop_absent_topics
        self.topics: dict[str, dict[str, QueueData]] = {}
        self.brokers: dict[str, BrokerEntry] = {}
        self.clusters: dict[str, set[str]] = {}
        self.live: dict[BrokerKey, LiveEntry] = {}
        self.filters: dict[BrokerKey, tuple[str, ...]] = {}
        self.mappings: dict[str, dict[str, StaticMapping]] = {}
        self.departed = DepartedBrokers()
        self._topics_of: dict[str, dict[str, None]] = {}
        """Broker name -> the topics that it has a row in."""
        self._taking: dict[str, Work[None]] = {}
        """Broker name -> what is left to do of its registration."""
        self._leaving: deque[Work[Any]] = deque()
        """What is left to do of departures."""

    def follow(self, *, drop_absent_topics: bool) -> None:
        """Drop the topics that a registration lacks, or keep them, from now on."""
        self.drop_absent_topics = drop_absent_topics

    # -- registration ---------------------------------------------------------------------

    def register(self, said: Registration, now_ms: int, channel: int) -> Registered | None:
        """Take a registration in; None means refused ("register broker failed").

        Raises Refused when the name belongs to another cluster whose broker is alive:
        accepting it would send that cluster's clients to a stranger; and when a table is full.
        A registration that is refused, or whose id an address with a later state holds, leaves
        every table as it was.
        """
        entry = self.brokers.get(said.name)
        self._check(entry, said)
        known = entry if entry is not None and entry.cluster == said.cluster else None
        if known is not None and self._is_outdated(known, said):
            return Registered()
        is_member = known is not None and said.broker_id in known.addresses
        if not is_member and len(said.topics) == 1:
            return None
        # Only from here on the tables change: nothing below refuses.
        first = entry is None
        entry = known or self._add_name(said)
        # A broker too old to know the header has no acting master.
        entry.acting_master = bool(said.acting_master)
        entry.zone = said.zone
        _forget_other_ids(entry, said)
        first = entry.addresses.get(said.broker_id) is None or first
        entry.addresses[said.broker_id] = said.address
        self._take_topics(entry, said, first=first)
        if said.broker_id == MASTER_ID:
            self.departed.back(said.name)
        self.live[said.key] = LiveEntry(
            name=said.name,
            last_ms=now_ms,
            timeout_ms=DEFAULT_EXPIRY_MS if said.timeout_ms is None else said.timeout_ms,
            version=said.version,
            channel=channel,
            ha_address=said.ha_address,
        )
        if said.filter_servers:
            self.filters[said.key] = tuple(said.filter_servers)
        else:
            self.filters.pop(said.key, None)
        return self._about_master(entry, said)

    def _check(self, entry: BrokerEntry | None, said: Registration) -> None:
        """Raise Refused for a registration that no table may show; change nothing."""
        if entry is not None and entry.cluster != said.cluster and entry.addresses:
            raise Refused(
                ResponseCode.INVALID_PARAMETER,
                f"broker name {said.name} is registered in cluster {entry.cluster}",
            )
        if entry is None and len(self.brokers) >= MAX_BROKER_NAMES:
            raise Refused(ResponseCode.SYSTEM_BUSY, f"{MAX_BROKER_NAMES} broker names are known")
        if said.key not in self.live and len(self.live) >= MAX_BROKERS:
            raise Refused(ResponseCode.SYSTEM_BUSY, f"{MAX_BROKERS} brokers are known")
        members = () if entry is None else entry.addresses
        if said.broker_id not in members and len(members) >= MAX_MEMBERS:
            raise Refused(
                ResponseCode.SYSTEM_BUSY, f"{said.name} has {MAX_MEMBERS} members already"
            )
        for table, more in ((self.topics, said.topics), (self.mappings, said.mappings)):
            self._check_topics(table, more)

    def _check_topics(self, table: Mapping[str, object], more: Collection[str]) -> None:
        if len(table) + len(more) <= MAX_TOPICS:
            return
        if len(table) + sum(topic not in table for topic in set(more)) > MAX_TOPICS:
            raise Refused(ResponseCode.SYSTEM_BUSY, f"{MAX_TOPICS} topics are known")

    def _add_name(self, said: Registration) -> BrokerEntry:
        old = self.brokers.get(said.name)
        if old is not None:
            self._remove_name(old)
        entry = self.brokers[said.name] = BrokerEntry(said.name, said.cluster)
        self.clusters.setdefault(said.cluster, set()).add(said.name)
        return entry

    def _remove_name(self, entry: BrokerEntry) -> None:
        del self.brokers[entry.name]
        names = self.clusters.get(entry.cluster, set())
        names.discard(entry.name)
        if not names:
            self.clusters.pop(entry.cluster, None)

    def _is_outdated(self, entry: BrokerEntry, said: Registration) -> bool:
        """Whether the id belongs to another address that knows a later state."""
        holder = entry.addresses.get(said.broker_id)
        if holder is None or holder == said.address:
            return False
        live = self.live.get(BrokerKey(said.cluster, holder))
        return live is not None and live.version.state_version > said.version.state_version

    def _take_topics(self, entry: BrokerEntry, said: Registration, *, first: bool) -> None:
        is_master = said.broker_id == MASTER_ID
        is_prime_slave = (
            said.acting_master is not None
            and not is_master
            and said.broker_id == min(entry.addresses)
        )
        if not (is_master or is_prime_slave):
            return
        for _ in self._taking.pop(said.name, ()):
            pass  # an earlier registration is taken over whole before the next begins
        if self.drop_absent_topics and not said.mappings:
            self._later(self._queues_dropped(said.name, self._absent(said)))
        changed = first or self.version_differs(said.key, said.version)
        taking = self._rows_taken(
            said, changed=changed, read_only=is_prime_slave and entry.acting_master
        )
        if not ends(taking):
            self._taking[said.name] = taking

    def _rows_taken(self, said: Registration, *, changed: bool, read_only: bool) -> Work[None]:
        """Take the topics of a registration over, in steps."""
        mine = self._topics_of.setdefault(said.name, {})
        rows = said.with_rows().rows if said.rows is None else said.rows
        change = ChangedPerms(lambda perm: perm & ~Perm.WRITE)
        for number, (topic, row) in enumerate((rows or {}).items(), 1):
            known = self.topics.get(topic)
            if known is None or changed or said.name not in known:
                if read_only:
                    row[said.name] = change.of(row[said.name])
                if known is None:
                    self.topics[topic] = row
                else:
                    known[said.name] = row[said.name]
                mine[topic] = None
            if number % ROWS_AT_ONCE == 0:
                yield
                mine = self._topics_of.setdefault(said.name, {})
        if not mine:
            self._topics_of.pop(said.name, None)
        if changed:
            yield from self._mappings_taken(said)

    def _mappings_taken(self, said: Registration) -> Work[None]:
        for number, (topic, mapping) in enumerate(said.mappings.items(), 1):
            self.mappings.setdefault(topic, {})[str(mapping["bname"])] = mapping
            if number % ROWS_AT_ONCE == 0:
                yield

    def _absent(self, said: Registration) -> list[str]:
        """Return the topics that the broker has no more, no longer noted as its own."""
        mine = self._topics_of.get(said.name, {})
        gone = [topic for topic in mine if topic not in said.topics]
        for topic in gone:
            del mine[topic]
        return gone

    def advance(self) -> bool:
        """Do a step of what is left of long registrations and departures; False: none is left."""
        if self._taking:
            name, taking = next(iter(self._taking.items()))
            if ends(taking):
                del self._taking[name]
        elif self._leaving and ends(self._leaving[0]):
            self._leaving.popleft()
        return bool(self._taking or self._leaving)

    def _about_master(self, entry: BrokerEntry, said: Registration) -> Registered:
        if said.broker_id == MASTER_ID:
            return Registered()
        master = entry.addresses.get(MASTER_ID)
        live = None if master is None else self.live.get(BrokerKey(said.cluster, master))
        return Registered() if live is None else Registered(live.ha_address, master)

    # -- signs of life --------------------------------------------------------------------

    def version_differs(self, key: BrokerKey, version: DataVersion) -> bool:
        """Whether the broker is unknown here or has other topics than it registered."""
        live = self.live.get(key)
        return live is None or live.version != version

    def version_of(self, key: BrokerKey) -> DataVersion | None:
        """Return the version last registered, None for an unknown broker."""
        live = self.live.get(key)
        return None if live is None else live.version

    def touch(self, key: BrokerKey, now_ms: int) -> None:
        """Note that the broker is alive; an unknown one stays unknown until it registers."""
        live = self.live.get(key)
        if live is not None:
            live.last_ms = now_ms

    def silent(self, now_ms: int) -> list[Departure]:
        """Return the brokers not heard of for longer than they allowed."""
        return [
            Departure(key.cluster, live.name, key.address, live.channel)
            for key, live in self.live.items()
            if live.last_ms + live.timeout_ms < now_ms
        ]

    def on_channel(self, channel: int) -> list[Departure]:
        """Return the brokers whose last registration came over this connection.

        Java forgets only the first of several brokers that share one connection, so the others
        linger until they expire; all of them are gone, and all are returned.
        """
        return [
            Departure(key.cluster, live.name, key.address, channel)
            for key, live in self.live.items()
            if live.channel == channel
        ]

    # -- leaving --------------------------------------------------------------------------

    def depart(self, leaving: Iterable[Departure], now_ms: int) -> None:
        """Forget brokers, as one step, and what only they served; `departed` keeps that."""
        removed: dict[str, str] = {}
        reduced: set[str] = set()
        for one in leaving:
            key = BrokerKey(one.cluster, one.address)
            live = self.live.get(key)
            if one.channel is not None and (live is None or live.channel != one.channel):
                continue  # it has come back over a new connection meanwhile
            self.live.pop(key, None)
            self.filters.pop(key, None)
            reduced.add(one.name)
            if self._forget_address(one):
                removed[one.name] = one.cluster
        gone: dict[str, Served] = {}
        for name, cluster in removed.items():
            gone[name] = Served(cluster, set(self._topics_of.get(name, ())))
            self._taking.pop(name, None)
            self._later(self._queues_dropped(name, list(self._topics_of.pop(name, ()))))
        for name in reduced - removed.keys():
            entry = self.brokers.get(name)
            if entry is not None and entry.acting_master and entry.without_master():
                self._later(self._perm_changed(name, lambda perm: perm & ~Perm.WRITE))
        self.departed.add(gone, now_ms)

    def served(self) -> dict[str, Served]:
        """Return what each broker that is there serves."""
        return {
            name: Served(entry.cluster, list(self._topics_of.get(name, ())))
            for name, entry in self.brokers.items()
        }

    def _later(self, work: Work[Any]) -> None:
        """Begin some work; what is left of it waits for `advance`."""
        if not ends(work):
            self._leaving.append(work)

    def _forget_address(self, one: Departure) -> bool:
        """Return whether nobody is left under the broker's name."""
        entry = self.brokers.get(one.name)
        if entry is None or entry.cluster != one.cluster:
            return False
        for broker_id, address in list(entry.addresses.items()):
            if address == one.address:
                del entry.addresses[broker_id]
        if entry.addresses:
            return False
        self._remove_name(entry)
        return True

    def _queues_dropped(self, name: str, topics: Iterable[str]) -> Work[None]:
        """Forget a broker's queues of topics, in steps, but for those that it has anew."""
        for number, topic in enumerate(topics, 1):
            queues = self.topics.get(topic)
            if queues is not None and topic not in self._topics_of.get(name, ()):
                self._forget_row(name, topic, queues)
            if number % ROWS_AT_ONCE == 0:
                yield

    def _forget_row(self, name: str, topic: str, queues: dict[str, QueueData]) -> None:
        queues.pop(name, None)
        if not queues:
            del self.topics[topic]
        mine = self._topics_of.get(name)
        if mine is not None:
            mine.pop(topic, None)
            if not mine:
                del self._topics_of[name]

    # -- what an operator changes -----------------------------------------------------------

    def wipe_write_perm(self, name: str) -> Work[int]:
        """Take the write permission from every topic of a broker, in steps; return how many.

        It lasts until the broker registers a changed version.
        """
        return self._perm_changed(name, lambda perm: perm & ~Perm.WRITE)

    def add_write_perm(self, name: str) -> Work[int]:
        """Set read and write, and nothing else, on every topic of a broker, in steps."""
        return self._perm_changed(name, lambda _: READ_WRITE)

    def _perm_changed(self, name: str, change: Callable[[int], int]) -> Work[int]:
        changed = ChangedPerms(change)
        touched = 0
        for number, topic in enumerate(list(self._topics_of.get(name, ())), 1):
            queues = self.topics.get(topic, {})
            if name in queues:
                queues[name] = changed.of(queues[name])
                touched += 1
            if number % ROWS_AT_ONCE == 0:
                yield
        return touched

    def delete_topic(self, topic: str, cluster: str | None) -> None:
        """Forget a topic everywhere, or only where brokers of one cluster serve it."""
        self.departed.delete_topic(topic, cluster)
        if topic not in self.topics:
            return
        if cluster is None:
            names: Iterable[str] = list(self.topics[topic])
        else:
            names = self.clusters.get(cluster, set()) & self.topics[topic].keys()
        for name in names:
            self._forget_row(name, topic, self.topics[topic])

    def register_topic(self, topic: str, queues: Sequence[QueueData]) -> None:
        """Note queues of known brokers; an unknown broker's name ends it there, as in Java.

        Raises Refused when the table of topics is full.
        """
        self._check_topics(self.topics, (topic,))
        for one in queues:
            if one.broker_name not in self.brokers:
                return
            self.topics.setdefault(topic, {})[one.broker_name] = one
            self._topics_of.setdefault(one.broker_name, {})[topic] = None


def _forget_other_ids(entry: BrokerEntry, said: Registration) -> None:
    """One address has one id: a slave that became master leaves its old place."""
    for broker_id, address in list(entry.addresses.items()):
        if address == said.address and broker_id != said.broker_id:
            del entry.addresses[broker_id]
