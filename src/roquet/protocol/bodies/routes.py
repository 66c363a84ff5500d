"""Routes and brokers: answers of the name server (105, 106, 901) in both key styles."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, Self

from roquet.model.route import BrokerData, QueueData, TopicRoute
from roquet.model.topic import READ_WRITE
from roquet.protocol import fastjson, versions
from roquet.protocol.bodies import fields

if TYPE_CHECKING:
    from collections.abc import Mapping

    from roquet.protocol.bodies.fields import Json


def queue_data_json(queues: QueueData) -> Json:
    """Return a QueueData's fields."""
    return {
        "brokerName": queues.broker_name,
        "perm": queues.perm,
        "readQueueNums": queues.read_queues,
        "topicSysFlag": queues.topic_sys_flag,
        "writeQueueNums": queues.write_queues,
    }


def queue_data_of(source: Mapping[str, Any]) -> QueueData:
    """Read a QueueData; the old spelling `topicSynFlag` too. Raises JsonError."""
    flag = "topicSysFlag" if source.get("topicSysFlag") is not None else "topicSynFlag"
    return QueueData(
        broker_name=fields.text(source, "brokerName"),
        read_queues=fields.i32(source, "readQueueNums"),
        write_queues=fields.i32(source, "writeQueueNums"),
        perm=fields.i32(source, "perm", READ_WRITE),
        topic_sys_flag=fields.i32(source, flag),
    )


def broker_data_json(broker: BrokerData) -> Json:
    """Return a BrokerData's fields."""
    out: Json = {
        "brokerAddrs": dict(broker.addresses),
        "brokerName": broker.broker_name,
        "cluster": broker.cluster,
        "enableActingMaster": broker.enable_acting_master,
    }
    if broker.zone_name is not None:
        out["zoneName"] = broker.zone_name
    return out


def broker_data_of(source: Mapping[str, Any]) -> BrokerData:
    """Read a BrokerData. Raises JsonError."""
    return BrokerData(
        cluster=fields.text(source, "cluster"),
        broker_name=fields.text(source, "brokerName"),
        addresses=addresses_of(source, "brokerAddrs"),
        zone_name=fields.optional_text(source, "zoneName"),
        enable_acting_master=fields.boolean(source, "enableActingMaster"),
    )


def addresses_of(source: Mapping[str, Any], name: str) -> dict[int, str]:
    """Read broker id -> address. Raises JsonError."""
    table = fields.obj(source, name)
    found = {fields.number(key, name): fields.text(table, key) for key in table}
    return dict(sorted(found.items()))


def wants_standard(version: int, accept_standard_json_only: bool | None) -> bool:
    """Tell whether a client that asked for a route gets quoted keys (spec: wire §13.2)."""
    return version >= versions.V4_9_4 or accept_standard_json_only is True


def encode_route(route: TopicRoute, *, standard: bool) -> bytes:
    """Write a route (105) with quoted or with bare integer keys."""
    body: Json = {
        "brokerDatas": [broker_data_json(broker) for broker in route.brokers],
        "filterServerTable": {name: list(it) for name, it in route.filter_servers.items()},
        "orderTopicConf": route.order_topic_conf,
        "queueDatas": [queue_data_json(queues) for queues in route.queues],
        "topicQueueMappingByBroker": route.queue_mapping_by_broker,
    }
    return fastjson.standard(body) if standard else fastjson.java(body)


def decode_route(data: bytes) -> TopicRoute:
    """Read a route in either style. Raises JsonError."""
    source = fastjson.read_object(data)
    servers = fields.obj(source, "filterServerTable")
    mapping = source.get("topicQueueMappingByBroker")
    return TopicRoute(
        queues=tuple(queue_data_of(item) for item in fields.objects(source, "queueDatas")),
        brokers=tuple(broker_data_of(item) for item in fields.objects(source, "brokerDatas")),
        order_topic_conf=fields.optional_text(source, "orderTopicConf"),
        filter_servers={name: tuple(fields.texts(servers, name)) for name in servers},
        queue_mapping_by_broker=None if mapping is None else fields.as_object(mapping, "mapping"),
    )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ClusterInfo:
    """All brokers and clusters that a name server knows (106)."""

    brokers: Mapping[str, BrokerData]
    clusters: Mapping[str, frozenset[str]]
    """Cluster name -> broker names."""

    def encode(self) -> bytes:
        """Write with bare integer keys, as Java does."""
        return fastjson.java(
            {
                "brokerAddrTable": {
                    name: broker_data_json(it) for name, it in self.brokers.items()
                },
                "clusterAddrTable": {name: sorted(it) for name, it in self.clusters.items()},
            }
        )

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Read in either style. Raises JsonError."""
        source = fastjson.read_object(data)
        brokers = fields.obj(source, "brokerAddrTable")
        clusters = fields.obj(source, "clusterAddrTable")
        return cls(
            brokers={
                name: broker_data_of(fields.as_object(item, name)) for name, item in brokers.items()
            },
            clusters={name: frozenset(fields.texts(clusters, name)) for name in clusters},
        )


def encode_member_group(cluster: str, broker_name: str, addresses: Mapping[int, str]) -> bytes:
    """Write the answer to 901: all addresses of one broker name."""
    group = {"brokerAddrs": dict(addresses), "brokerName": broker_name, "cluster": cluster}
    return fastjson.java({"brokerMemberGroup": group})


def decode_member_group(data: bytes) -> tuple[str, str, dict[int, str]] | None:
    """Read the answer to 901: (cluster, broker name, addresses). Raises JsonError."""
    source = fastjson.read_object(data)
    if source.get("brokerMemberGroup") is None:
        return None
    group = fields.obj(source, "brokerMemberGroup")
    return (
        fields.text(group, "cluster"),
        fields.text(group, "brokerName"),
        addresses_of(group, "brokerAddrs"),
    )
