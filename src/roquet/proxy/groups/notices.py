"""What one proxy tells others of a consumer, as RocketMQ's proxies do (5.5.0, observed).

A notice is the body of one message: JSON, with the consumer's connection as JSON in a string, and
in that, once more as a string, what only its protocol knows: the settings of a client of gRPC, the
subscriptions of one of remoting.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Self

from roquet.protocol import fastjson
from roquet.protocol.bodies import fields
from roquet.protocol.bodies.clients import ConsumerData, subscription_json
from roquet.protocol.fastjson import JsonError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

GRPC, REMOTING = "GRPC_V2", "REMOTING"
REGISTER, UNREGISTER = "REGISTER", "UNREGISTER"
BYTES_MAX = 1 << 20
"""Of the body of a notice."""
_AT_BROKERS = "knownToBrokers"
"""Ours: brokers tell of this consumer themselves. Other proxies pass over it."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Channel:
    """How a consumer is connected to its proxy."""

    proxy_host: str
    client: str
    """The client's end, host:port. With the others it is what tells connections apart."""
    proxy: str
    """The proxy's end."""
    protocol: str
    extra: str | None = None

    def encode(self) -> str:
        """Write it."""
        return fastjson.java(
            {
                "extendAttribute": self.extra,
                "localAddress": self.proxy,
                "remoteAddress": self.client,
                "remoteProxyIp": self.proxy_host,
                "type": self.protocol,
            }
        ).decode()

    @classmethod
    def decode(cls, text: str) -> Self:
        """Read it. Raises JsonError."""
        source = fastjson.read_object(text.encode())
        return cls(
            proxy_host=fields.text(source, "remoteProxyIp"),
            client=fields.text(source, "remoteAddress"),
            proxy=fields.text(source, "localAddress"),
            protocol=fields.text(source, "type"),
            extra=fields.optional_text(source, "extendAttribute"),
        )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """A consumer is in a group, or has left it."""

    is_member: bool
    client_id: str
    language: str
    version: int
    consumer: ConsumerData
    proxy_id: str
    channel: Channel
    at_brokers: bool = False
    """Whether brokers know the consumer as well, as they do those of our remoting port."""

    def encode(self, told_ms: int) -> bytes:
        """Write the body of a message that is sent at this time."""
        said = self.consumer.to_json()
        source = {
            "channelData": self.channel.encode(),
            "clientId": self.client_id,
            "consumeFromWhere": said["consumeFromWhere"],
            "consumeType": said["consumeType"],
            "group": self.consumer.group,
            "heartbeatType": REGISTER if self.is_member else UNREGISTER,
            "language": self.language,
            "lastUpdateTimestamp": told_ms,
            "localProxyId": self.proxy_id,
            "messageModel": said["messageModel"],
            "subscriptionDataSet": said["subscriptionDataSet"],
            "version": self.version,
        }
        return fastjson.java({**source, _AT_BROKERS: True} if self.at_brokers else source)

    @classmethod
    def decode(cls, body: bytes) -> Self:
        """Read a body. Raises JsonError."""
        if len(body) > BYTES_MAX:
            raise JsonError(f"a notice of {len(body)} bytes: at most {BYTES_MAX} are read")
        source = fastjson.read_object(body)
        kind = fields.text(source, "heartbeatType")
        if kind not in {REGISTER, UNREGISTER}:
            raise JsonError(f"heartbeatType {kind[:40]!r} is none that is known")
        return cls(
            is_member=kind == REGISTER,
            client_id=fields.text(source, "clientId"),
            language=fields.text(source, "language", "OTHER"),
            version=fields.i32(source, "version"),
            consumer=_consumer(source),
            proxy_id=fields.text(source, "localProxyId"),
            channel=Channel.decode(fields.text(source, "channelData")),
            at_brokers=fields.boolean(source, _AT_BROKERS),
        )


def subscriptions_text(consumer: ConsumerData) -> str:
    """Return what a notice of a remoting client has as the extra of its channel."""
    return fastjson.java([subscription_json(one) for one in consumer.subscriptions]).decode()


def _consumer(source: Mapping[str, Any]) -> ConsumerData:
    said = {**source, "groupName": fields.text(source, "group")}
    return fields.at_once(ConsumerData.of_json(said))
