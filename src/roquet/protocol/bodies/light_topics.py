"""Bodies of light topics: subscriptions (200071), and answers to tools (200074 to 200078)."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from roquet.protocol import fastjson
from roquet.protocol.bodies import fields
from roquet.protocol.fastjson_reader import JsonError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

ACTIONS = ("PARTIAL_ADD", "PARTIAL_REMOVE", "COMPLETE_ADD", "COMPLETE_REMOVE")
START_KINDS = ("POLICY", "OFFSET", "TAIL_N", "TIMESTAMP")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionEntry:
    """One change of a client's subscription (Java: LiteSubscriptionDTO)."""

    action: str
    client_id: str
    group: str
    topic: str
    names: tuple[str, ...] = ()
    start: tuple[str, int] | None = None
    """Kind and value of the offset option."""
    version: int = 0


def encode_subscriptions(entries: Iterable[SubscriptionEntry]) -> bytes:
    """Write the body of 200071."""
    rows: list[dict[str, Any]] = []
    for entry in entries:
        row: dict[str, Any] = {
            "action": entry.action,
            "clientId": entry.client_id,
            "group": entry.group,
            "liteTopicSet": list(entry.names),
        }
        if entry.start is not None:
            row["offsetOption"] = {"type": entry.start[0], "value": entry.start[1]}
        rows.append({**row, "topic": entry.topic, "version": entry.version})
    return fastjson.java({"subscriptionSet": rows})


def decode_subscriptions(data: bytes) -> list[SubscriptionEntry]:
    """Read the body of 200071. Raises JsonError."""
    source = fastjson.read_object(data, tolerant_size_max=fastjson.REQUEST_SIZE_MAX)
    return [_entry(item) for item in fields.objects(source, "subscriptionSet")]


def _entry(source: Mapping[str, Any]) -> SubscriptionEntry:
    action = fields.text(source, "action")
    if action not in ACTIONS:
        raise JsonError(f"action: {action[:40]!r} is none of {', '.join(ACTIONS)}")
    start = None
    option = source.get("offsetOption")
    if option is not None:
        given = fields.as_object(option, "offsetOption")
        kind = fields.text(given, "type")
        if kind not in START_KINDS:
            raise JsonError(f"offsetOption: {kind[:40]!r} is none of {', '.join(START_KINDS)}")
        start = kind, fields.i64(given, "value")
    return SubscriptionEntry(
        action=action,
        client_id=fields.text(source, "clientId"),
        group=fields.text(source, "group"),
        topic=fields.text(source, "topic"),
        names=tuple(fields.texts(source, "liteTopicSet")),
        start=start,
        version=fields.i64(source, "version"),
    )


# --- answers to tools ------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class BrokerLight:
    """Answer to 200074 (Java: GetBrokerLiteInfoResponseBody)."""

    store_type: str
    queues_max: int
    queues: int
    subscriptions: int
    orders: int
    queue_tables: int
    offsets: int
    clients: int
    parents: Mapping[str, int]
    groups: Mapping[str, Sequence[str]]

    def encode(self) -> bytes:
        """Write the body."""
        return fastjson.java(
            {
                "cqTableSize": self.queue_tables,
                "currentLmqNum": self.queues,
                "eventMapSize": self.clients,
                "groupMeta": {name: list(groups) for name, groups in self.groups.items()},
                "liteSubscriptionCount": self.subscriptions,
                "maxLmqNum": self.queues_max,
                "offsetTableSize": self.offsets,
                "orderInfoCount": self.orders,
                "storeType": self.store_type,
                "topicMeta": dict(self.parents),
            }
        )

    @classmethod
    def decode(cls, data: bytes) -> BrokerLight:
        """Read the body. Raises JsonError."""
        source = fastjson.read_object(data)
        parents, groups = fields.obj(source, "topicMeta"), fields.obj(source, "groupMeta")
        return cls(
            store_type=fields.text(source, "storeType"),
            queues_max=fields.i32(source, "maxLmqNum"),
            queues=fields.i32(source, "currentLmqNum"),
            subscriptions=fields.i32(source, "liteSubscriptionCount"),
            orders=fields.i32(source, "orderInfoCount"),
            queue_tables=fields.i32(source, "cqTableSize"),
            offsets=fields.i32(source, "offsetTableSize"),
            clients=fields.i32(source, "eventMapSize"),
            parents={name: fields.i32(parents, name) for name in parents},
            groups={name: fields.texts(groups, name) for name in groups},
        )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ParentLight:
    """Answer to 200075 (Java: GetParentTopicInfoResponseBody)."""

    topic: str
    minutes: int
    groups: Sequence[str] | None
    queues: int
    light_topics: int

    def encode(self) -> bytes:
        """Write the body."""
        groups = {} if self.groups is None else {"groups": list(self.groups)}
        return fastjson.java(
            {
                **groups,
                "liteTopicCount": self.light_topics,
                "lmqNum": self.queues,
                "topic": self.topic,
                "ttl": self.minutes,
            }
        )

    @classmethod
    def decode(cls, data: bytes) -> ParentLight:
        """Read the body. Raises JsonError."""
        source = fastjson.read_object(data)
        return cls(
            topic=fields.text(source, "topic"),
            minutes=fields.i32(source, "ttl"),
            groups=None if source.get("groups") is None else fields.texts(source, "groups"),
            queues=fields.i32(source, "lmqNum"),
            light_topics=fields.i32(source, "liteTopicCount"),
        )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LightTopic:
    """Answer to 200076 (Java: GetLiteTopicInfoResponseBody)."""

    parent: str
    name: str
    subscribers: Sequence[tuple[str, str]]
    """(client id, group)."""
    min_offset: int
    max_offset: int
    newest_ms: int
    is_here: bool

    def encode(self) -> bytes:
        """Write the body."""
        return fastjson.java(
            {
                "liteTopic": self.name,
                "parentTopic": self.parent,
                "shardingToBroker": self.is_here,
                "subscriber": [
                    {"clientId": client, "group": group} for client, group in self.subscribers
                ],
                "topicOffset": {
                    "lastUpdateTimestamp": self.newest_ms,
                    "maxOffset": self.max_offset,
                    "minOffset": self.min_offset,
                },
            }
        )

    @classmethod
    def decode(cls, data: bytes) -> LightTopic:
        """Read the body. Raises JsonError."""
        source = fastjson.read_object(data)
        bounds = fields.obj(source, "topicOffset")
        clients = fields.objects(source, "subscriber")
        return cls(
            parent=fields.text(source, "parentTopic"),
            name=fields.text(source, "liteTopic"),
            subscribers=[(fields.text(it, "clientId"), fields.text(it, "group")) for it in clients],
            min_offset=fields.i64(bounds, "minOffset"),
            max_offset=fields.i64(bounds, "maxOffset"),
            newest_ms=fields.i64(bounds, "lastUpdateTimestamp"),
            is_here=fields.boolean(source, "shardingToBroker"),
        )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LightClient:
    """Answer to 200077 (Java: GetLiteClientInfoResponseBody)."""

    parent: str
    group: str
    client_id: str
    asked_ms: int
    count: int
    queues: Sequence[str] | None

    def encode(self) -> bytes:
        """Write the body."""
        queues = {} if self.queues is None else {"liteTopicSet": list(self.queues)}
        return fastjson.java(
            {
                "clientId": self.client_id,
                "group": self.group,
                "lastAccessTime": self.asked_ms,
                "lastConsumeTime": 0,
                "liteTopicCount": self.count,
                **queues,
                "parentTopic": self.parent,
            }
        )

    @classmethod
    def decode(cls, data: bytes) -> LightClient:
        """Read the body. Raises JsonError."""
        source = fastjson.read_object(data)
        has_queues = source.get("liteTopicSet") is not None
        return cls(
            parent=fields.text(source, "parentTopic"),
            group=fields.text(source, "group"),
            client_id=fields.text(source, "clientId"),
            asked_ms=fields.i64(source, "lastAccessTime"),
            count=fields.i32(source, "liteTopicCount"),
            queues=fields.texts(source, "liteTopicSet") if has_queues else None,
        )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Lag:
    """How far a group is behind in a light topic (Java: LiteLagInfo)."""

    name: str
    lag: int
    oldest_ms: int

    def row(self) -> dict[str, Any]:
        """Return what the body has of it."""
        return {
            "earliestUnconsumedTimestamp": self.oldest_ms,
            "lagCount": self.lag,
            "liteTopic": self.name,
        }


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LightGroup:
    """Answer to 200078 (Java: GetLiteGroupInfoResponseBody)."""

    group: str
    parent: str
    name: str | None
    total: int
    oldest_ms: int
    by_lag: Sequence[Lag] | None = None
    by_age: Sequence[Lag] | None = None
    offsets: tuple[int, int, int] | None = None
    """End of the light topic, offset of the group, when the message before that was stored."""

    def encode(self) -> bytes:
        """Write the body."""
        found: dict[str, Any] = {
            "earliestUnconsumedTimestamp": self.oldest_ms,
            "group": self.group,
        }
        if self.by_lag is not None:
            found["lagCountTopK"] = [it.row() for it in self.by_lag]
        if self.by_age is not None:
            found["lagTimestampTopK"] = [it.row() for it in self.by_age]
        if self.name is not None:
            found["liteTopic"] = self.name
        if self.offsets is not None:
            end, committed, last_ms = self.offsets
            found["liteTopicOffsetWrapper"] = {
                "brokerOffset": end,
                "consumerOffset": committed,
                "lastTimestamp": last_ms,
                "pullOffset": 0,
            }
        found |= {"parentTopic": self.parent, "totalLagCount": self.total}
        return fastjson.java(found)

    @classmethod
    def decode(cls, data: bytes) -> LightGroup:
        """Read the body. Raises JsonError."""
        source = fastjson.read_object(data)
        offsets = None
        if source.get("liteTopicOffsetWrapper") is not None:
            given = fields.obj(source, "liteTopicOffsetWrapper")
            names = ("brokerOffset", "consumerOffset", "lastTimestamp")
            end, committed, last_ms = (fields.i64(given, name) for name in names)
            offsets = end, committed, last_ms
        return cls(
            group=fields.text(source, "group"),
            parent=fields.text(source, "parentTopic"),
            name=fields.optional_text(source, "liteTopic"),
            total=fields.i64(source, "totalLagCount"),
            oldest_ms=fields.i64(source, "earliestUnconsumedTimestamp"),
            by_lag=_lags(source, "lagCountTopK"),
            by_age=_lags(source, "lagTimestampTopK"),
            offsets=offsets,
        )


def _lags(source: Mapping[str, Any], name: str) -> list[Lag] | None:
    if source.get(name) is None:
        return None
    return [
        Lag(
            name=fields.text(row, "liteTopic"),
            lag=fields.i64(row, "lagCount"),
            oldest_ms=fields.i64(row, "earliestUnconsumedTimestamp"),
        )
        for row in fields.objects(source, name)
    ]
