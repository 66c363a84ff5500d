"""What clients say of themselves and what is told about them: 34, 38, 46, 203, 204, 328."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, Self

from roquet.model.subscription import (
    SUB_ALL,
    ConsumeFromWhere,
    ConsumeType,
    ExpressionType,
    MessageModel,
    SubscriptionData,
)
from roquet.protocol import fastjson
from roquet.protocol.bodies import fields

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from roquet.protocol.bodies.fields import Json

_TYPES = {str(item): item for item in ConsumeType}
_MODELS = {str(item): item for item in MessageModel}
_STARTS = {str(item): item for item in ConsumeFromWhere}


def subscription_json(subscription: SubscriptionData) -> Json:
    """Return a subscription's fields."""
    return {
        "classFilterMode": subscription.class_filter,
        "codeSet": sorted(subscription.codes),
        "expressionType": str(subscription.expression_type),
        "subString": subscription.expression,
        "subVersion": subscription.version,
        "tagsSet": sorted(subscription.tags),
        "topic": subscription.topic,
    }


def subscription_of(source: Mapping[str, Any]) -> SubscriptionData:
    """Read a subscription. Raises JsonError."""
    codes = fields.array(source, "codeSet")
    return SubscriptionData(
        topic=fields.text(source, "topic"),
        expression=fields.text(source, "subString", SUB_ALL),
        expression_type=fields.text(source, "expressionType", ExpressionType.TAG),
        tags=frozenset(fields.texts(source, "tagsSet")),
        codes=frozenset(fields.number(code, "codeSet", fields.I32_MAX) for code in codes),
        version=fields.i64(source, "subVersion"),
        class_filter=fields.boolean(source, "classFilterMode"),
    )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerData:
    """One consumer group of a client. An unknown enum name is None, as Java has it."""

    group: str
    consume_type: ConsumeType | None = ConsumeType.PASSIVELY
    message_model: MessageModel | None = MessageModel.CLUSTERING
    consume_from_where: ConsumeFromWhere | None = ConsumeFromWhere.LAST_OFFSET
    subscriptions: tuple[SubscriptionData, ...] = ()
    unit_mode: bool = False

    def to_json(self) -> Json:
        """Return the fields."""
        return {
            "consumeFromWhere": _text(self.consume_from_where),
            "consumeType": _text(self.consume_type),
            "groupName": self.group,
            "messageModel": _text(self.message_model),
            "subscriptionDataSet": [subscription_json(it) for it in self.subscriptions],
            "unitMode": self.unit_mode,
        }

    @classmethod
    def of_json(cls, source: Mapping[str, Any]) -> fields.Steps[Self]:
        """Read the fields, in steps. Raises JsonError."""
        start = fields.text(source, "consumeFromWhere")
        subscriptions: list[SubscriptionData] = []
        for item, is_due in fields.paced_objects(source, "subscriptionDataSet"):
            subscriptions.append(subscription_of(item))
            if is_due:
                yield
        return cls(
            group=fields.text(source, "groupName"),
            consume_type=_TYPES.get(fields.text(source, "consumeType")),
            message_model=_MODELS.get(fields.text(source, "messageModel")),
            consume_from_where=_STARTS.get(start),
            subscriptions=tuple(subscriptions),
            unit_mode=fields.boolean(source, "unitMode"),
        )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatData:
    """Body of HEART_BEAT (34). A fingerprint of 0 is the first version (spec: wire §12)."""

    client_id: str | None
    producers: tuple[str, ...] = ()
    """Producer groups."""
    consumers: tuple[ConsumerData, ...] = ()
    fingerprint: int = 0
    without_sub: bool = False

    def encode(self) -> bytes:
        """Write the body."""
        return fastjson.java(
            {
                "clientID": self.client_id,
                "consumerDataSet": [consumer.to_json() for consumer in self.consumers],
                "heartbeatFingerprint": self.fingerprint,
                "producerDataSet": [{"groupName": group} for group in self.producers],
                "withoutSub": self.without_sub,
            }
        )

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Read the body. Raises JsonError."""
        source = fastjson.read_object(data, tolerant_size_max=fastjson.REQUEST_SIZE_MAX)
        return fields.at_once(cls.of_json(source))

    @classmethod
    def of_json(cls, source: Mapping[str, Any]) -> fields.Steps[Self]:
        """Read the fields, in steps; arrays may be parts. Raises JsonError."""
        producers: list[str] = []
        for item, is_due in fields.paced_objects(source, "producerDataSet"):
            producers.append(fields.text(item, "groupName"))
            if is_due:
                yield
        consumers: list[ConsumerData] = []
        for item, is_due in fields.paced_objects(source, "consumerDataSet", in_parts=True):
            consumers.append((yield from ConsumerData.of_json(item)))
            if is_due:
                yield
        return cls(
            client_id=fields.optional_text(source, "clientID"),
            producers=tuple(producers),
            consumers=tuple(consumers),
            fingerprint=fields.i32(source, "heartbeatFingerprint"),
            without_sub=fields.boolean(source, "withoutSub"),
        )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class CheckClient:
    """Body of CHECK_CLIENT_CONFIG (46)."""

    client_id: str
    group: str
    subscription: SubscriptionData | None
    namespace: str | None = None

    def encode(self) -> bytes:
        """Write the body."""
        subscription = self.subscription
        return fastjson.java(
            {
                "clientId": self.client_id,
                "group": self.group,
                "namespace": self.namespace,
                "subscriptionData": subscription and subscription_json(subscription),
            }
        )

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Read the body. Raises JsonError."""
        source = fastjson.read_object(data)
        given = source.get("subscriptionData") is not None
        return cls(
            client_id=fields.text(source, "clientId"),
            group=fields.text(source, "group"),
            subscription=(
                subscription_of(fields.obj(source, "subscriptionData")) if given else None
            ),
            namespace=fields.optional_text(source, "namespace"),
        )


def encode_consumer_ids(ids: Iterable[str]) -> bytes:
    """Write the answer to GET_CONSUMER_LIST_BY_GROUP (38)."""
    return fastjson.java({"consumerIdList": list(ids)})


def decode_consumer_ids(data: bytes) -> list[str]:
    """Read the answer to 38. Raises JsonError."""
    return fields.texts(fastjson.read_object(data), "consumerIdList")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """One client connection as tools see it."""

    client_id: str
    client_address: str
    language: str = "JAVA"
    version: int = 0

    def to_json(self) -> Json:
        """Return the fields."""
        return {
            "clientAddr": self.client_address,
            "clientId": self.client_id,
            "language": self.language,
            "version": self.version,
        }

    @classmethod
    def of_json(cls, source: Mapping[str, Any]) -> Self:
        """Read the fields. Raises JsonError."""
        return cls(
            client_id=fields.text(source, "clientId"),
            client_address=fields.text(source, "clientAddr"),
            language=fields.text(source, "language", "OTHER"),
            version=fields.i32(source, "version"),
        )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerConnection:
    """Answer to GET_CONSUMER_CONNECTION_LIST (203)."""

    connections: tuple[Connection, ...]
    consume_type: ConsumeType | None
    message_model: MessageModel | None
    consume_from_where: ConsumeFromWhere | None
    subscriptions: Mapping[str, SubscriptionData]
    """Topic -> subscription."""

    def encode(self) -> bytes:
        """Write the body."""
        return fastjson.java(
            {
                "connectionSet": [connection.to_json() for connection in self.connections],
                "consumeFromWhere": _text(self.consume_from_where),
                "consumeType": _text(self.consume_type),
                "messageModel": _text(self.message_model),
                "subscriptionTable": {
                    topic: subscription_json(it) for topic, it in self.subscriptions.items()
                },
            }
        )

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Read the body. Raises JsonError."""
        source = fastjson.read_object(data)
        table = fields.obj(source, "subscriptionTable")
        return cls(
            connections=connections_of(source, "connectionSet"),
            consume_type=_TYPES.get(fields.text(source, "consumeType")),
            message_model=_MODELS.get(fields.text(source, "messageModel")),
            consume_from_where=_STARTS.get(fields.text(source, "consumeFromWhere")),
            subscriptions={
                topic: subscription_of(fields.as_object(item, topic))
                for topic, item in table.items()
            },
        )


def connections_of(source: Mapping[str, Any], name: str) -> tuple[Connection, ...]:
    """Read an array of connections. Raises JsonError."""
    return tuple(Connection.of_json(item) for item in fields.objects(source, name))


def encode_producer_connections(connections: Iterable[Connection]) -> bytes:
    """Write the answer to GET_PRODUCER_CONNECTION_LIST (204)."""
    return fastjson.java({"connectionSet": [connection.to_json() for connection in connections]})


def decode_producer_connections(data: bytes) -> tuple[Connection, ...]:
    """Read the answer to 204. Raises JsonError."""
    return connections_of(fastjson.read_object(data), "connectionSet")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ProducerInfo:
    """One producer of a group (328). `last_update` is Unix milliseconds."""

    client_id: str
    remote_ip: str
    language: str
    version: int
    last_update: int


def encode_producer_table(table: Mapping[str, Iterable[ProducerInfo]]) -> bytes:
    """Write the answer to GET_ALL_PRODUCER_INFO (328): group -> producers."""
    return fastjson.java(
        {
            "data": {
                group: [
                    {
                        "clientId": it.client_id,
                        "language": it.language,
                        "lastUpdateTimestamp": it.last_update,
                        "remoteIP": it.remote_ip,
                        "version": it.version,
                    }
                    for it in infos
                ]
                for group, infos in table.items()
            }
        }
    )


def decode_producer_table(data: bytes) -> dict[str, tuple[ProducerInfo, ...]]:
    """Read the answer to 328. Raises JsonError."""
    groups = fields.obj(fastjson.read_object(data), "data")
    return {
        group: tuple(
            ProducerInfo(
                client_id=fields.text(item, "clientId"),
                remote_ip=fields.text(item, "remoteIP"),
                language=fields.text(item, "language"),
                version=fields.i32(item, "version"),
                last_update=fields.i64(item, "lastUpdateTimestamp"),
            )
            for item in fields.objects(groups, group)
        )
        for group in groups
    }


def _text(value: ConsumeType | MessageModel | ConsumeFromWhere | None) -> str | None:
    return None if value is None else str(value)
