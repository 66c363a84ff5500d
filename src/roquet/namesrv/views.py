"""What clients and operators ask of the route tables: read-only pictures of them."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from roquet.model.route import MASTER_ID, BrokerData, TopicRoute
from roquet.model.topic import TOPIC_SYS_FLAG_UNIT, TOPIC_SYS_FLAG_UNIT_SUB, can_write
from roquet.namesrv.table import BrokerKey
from roquet.protocol.bodies.routes import ClusterInfo

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from roquet.model.route import QueueData
    from roquet.namesrv.table import BrokerEntry, RouteTable

MEMBER_SYNC_PREFIX = "rmq_sys_SYNC_BROKER_MEMBER_"


def route(table: RouteTable, topic: str, *, acting_master: bool = False) -> TopicRoute | None:
    """Return where the topic's queues are; None when no known broker serves it.

    With `acting_master` (Java: supportActingMaster) the smallest slave of a broker without a
    master is shown as id 0 where the topic is read-only, so that clients go on consuming.
    """
    queues = table.topics.get(topic, {})
    brokers: list[BrokerData] = []
    filters: dict[str, tuple[str, ...]] = {}
    acting_master = acting_master and not topic.startswith(MEMBER_SYNC_PREFIX)
    for name, queue in queues.items():
        entry = table.brokers.get(name)
        if entry is None:
            continue
        addresses = dict(entry.addresses)
        if acting_master and _is_headless(entry, queue):
            addresses[MASTER_ID] = addresses.pop(min(addresses))
        brokers.append(_broker_data(entry, addresses))
        for address in entry.addresses.values():
            servers = table.filters.get(BrokerKey(entry.cluster, address))
            if servers is not None:
                filters[address] = servers
    if not brokers:
        return None
    return TopicRoute(
        queues=tuple(queues.values()),
        brokers=tuple(brokers),
        filter_servers=filters,
        queue_mapping_by_broker=table.mappings.get(topic),
    )


def in_zone(found: TopicRoute, zone: str) -> TopicRoute:
    """Keep the brokers of a zone and those without a master; there may be none left."""
    kept = tuple(
        broker
        for broker in found.brokers
        if MASTER_ID not in broker.addresses or (broker.zone_name or "").lower() == zone.lower()
    )
    names = {broker.broker_name for broker in kept}
    gone = {
        address
        for broker in found.brokers
        if broker.broker_name not in names
        for address in broker.addresses.values()
    }
    return dataclasses.replace(
        found,
        brokers=kept,
        queues=tuple(queue for queue in found.queues if queue.broker_name in names),
        filter_servers={k: v for k, v in found.filter_servers.items() if k not in gone},
    )


def _is_headless(entry: BrokerEntry, queue: QueueData) -> bool:
    return entry.acting_master and entry.without_master() and not can_write(queue.perm)


def _broker_data(entry: BrokerEntry, addresses: Mapping[int, str]) -> BrokerData:
    return BrokerData(
        cluster=entry.cluster,
        broker_name=entry.name,
        addresses=addresses,
        zone_name=entry.zone,
        enable_acting_master=entry.acting_master,
    )


def clusters(table: RouteTable) -> ClusterInfo:
    """Return all brokers by name and all broker names by cluster (request 106)."""
    return ClusterInfo(
        brokers={n: _broker_data(e, dict(e.addresses)) for n, e in table.brokers.items()},
        clusters={name: frozenset(brokers) for name, brokers in table.clusters.items()},
    )


def members(table: RouteTable, name: str) -> dict[int, str]:
    """Return the addresses under a broker name by id; empty for an unknown one."""
    entry = table.brokers.get(name)
    return {} if entry is None else dict(entry.addresses)


def topics_of_cluster(table: RouteTable, cluster: str, topics: Iterable[str]) -> Iterator[str]:
    """Yield those of the topics that some broker of the cluster serves."""
    names = table.clusters.get(cluster, set())
    return (topic for topic in topics if not names.isdisjoint(table.topics.get(topic, ())))


@dataclasses.dataclass(frozen=True, slots=True)
class SystemNames:
    """Names that are topics of the system: clusters and brokers; and one broker to ask more."""

    names: tuple[str, ...]
    broker_address: str | None


def system_names(table: RouteTable) -> SystemNames:
    """Return what request 304 answers."""
    names: dict[str, None] = {}
    for cluster, brokers in table.clusters.items():
        names[cluster] = None
        names.update(dict.fromkeys(sorted(brokers)))
    addresses = (a for entry in table.brokers.values() for a in entry.addresses.values())
    return SystemNames(tuple(names), next(addresses, None))


def is_unit(flag: int) -> bool:
    """Whether the topic belongs to a unit (request 311)."""
    return bool(flag & TOPIC_SYS_FLAG_UNIT)


def has_unit_subscribers(flag: int) -> bool:
    """Whether groups of a unit subscribe to the topic (request 312)."""
    return bool(flag & TOPIC_SYS_FLAG_UNIT_SUB)


def has_unit_subscribers_only(flag: int) -> bool:
    """Whether groups of a unit subscribe to a topic that belongs to none (request 313)."""
    return has_unit_subscribers(flag) and not is_unit(flag)


def topics_by_flag(
    table: RouteTable, wanted: Callable[[int], bool], topics: Iterable[str]
) -> Iterator[str]:
    """Yield those of the topics whose first broker registered such a system flag."""
    for topic in topics:
        queues = table.topics.get(topic)
        if queues and wanted(next(iter(queues.values())).topic_sys_flag):
            yield topic
