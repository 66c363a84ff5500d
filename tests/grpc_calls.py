"""Calls of gRPC to a front in the test's process, with no bytes on a wire."""

from __future__ import annotations

import contextlib
import dataclasses
import hmac
import struct
from typing import TYPE_CHECKING, Any

import http2_peer as http2
from roquet.base.overriding import override
from roquet.model.topic import TopicConfig
from roquet.protocol.pop.handle import ReceiptHandle
from roquet.proxy import messages as pb
from roquet.proxy.app import build_local
from roquet.proxy.rules.context import Head
from roquet.proxy.rules.limits import ProxyLimits
from roquet.proxy.rules.methods import SERVICE
from roquet.testing.cluster import running_broker

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterator
    from pathlib import Path

    from roquet.broker.app import Broker
    from roquet.proxy.front import Front
    from roquet.proxy.rules.codes import Rejected
    from roquet.proxy.transport import GrpcPort
    from roquet.remoting.tls import TlsConfig

TOPICS = {
    "Normal": "NORMAL",
    "Fifo": "FIFO",
    "Delay": "DELAY",
    "Transaction": "TRANSACTION",
    "Mixed": "MIXED",
}
DATE = "20261123T090000Z"


class Answered:
    """What one call was answered with."""

    def __init__(self) -> None:
        self.parts: list[bytes] = []
        self.framed = 0
        """Writes of several parts, which the core has made."""
        self.ended: tuple[int, str] | None = None

    async def send(self, message: bytes) -> bool:
        assert self.ended is None, "nothing comes behind the end"
        self.parts.append(message)
        return True

    async def send_framed(self, messages: bytes) -> bool:
        self.framed += 1
        for part in parts_of(messages):
            await self.send(part)
        return True

    def has_room(self) -> bool:
        return True

    @contextlib.asynccontextmanager
    async def turn(self) -> AsyncGenerator[None]:
        yield

    def finish(self, status: int, text: str) -> None:
        assert self.ended is None, "a call ends once"
        self.ended = status, text


class Gone(Answered):
    """A call whose client has gone before the core's answer."""

    @override
    async def send_framed(self, messages: bytes) -> bool:
        assert messages
        return False


class Told:
    """A telemetry stream that keeps what it is told."""

    def __init__(self) -> None:
        self.commands: list[Any] = []
        self.ended: Rejected | None = None

    def send(self, message: bytes) -> bool:
        self.commands.append(pb.TelemetryCommand.FromString(message))
        return True

    def end(self, rejected: Rejected) -> None:
        self.ended = rejected


@dataclasses.dataclass
class Calls:
    """A client of a front."""

    front: Front
    broker: Broker
    port: GrpcPort
    client_id: str = "client-1"
    access_key: str = ""
    secret: str = ""
    more: tuple[tuple[str, str], ...] = ()
    remote: str = "127.0.0.1:40001"
    told: Told = dataclasses.field(default_factory=Told)

    def head(self, method: str) -> Head:
        """Return how a call begins."""
        metadata = [("x-mq-client-version", "5.1.2"), *self.more]
        if self.client_id:
            metadata.append(("x-mq-client-id", self.client_id))
        if self.access_key:
            signature = hmac.digest(self.secret.encode(), DATE.encode(), "sha1").hex().upper()
            metadata.append(("x-mq-date-time", DATE))
            credential = f"Credential={self.access_key}/cn/RocketMQ"
            text = f"MQv2-HMAC-SHA1 {credential}, SignedHeaders=x-mq-date-time"
            metadata.append(("authorization", f"{text}, Signature={signature}"))
        return Head(
            path=f"/{SERVICE}/{method}",
            remote=self.remote,
            local="127.0.0.1:8081",
            authority="localhost:8081",
            metadata=metadata,
        )

    async def call(self, method: str, request: Any) -> Any:
        """Return the answer of a method that has one; the call itself succeeds."""
        answered = await self.raw(method, request.SerializeToString())
        assert answered.ended == (0, "")
        assert len(answered.parts) == 1
        answer_type = pb.methods()[method][1]
        return answer_type.FromString(answered.parts[0])

    async def raw(self, method: str, data: bytes) -> Answered:
        """Call a method with any bytes."""
        answered = Answered()
        await self.front.serve(self.head(method), data, answered)
        return answered

    async def send(self, message: Any) -> Any:
        """Send one message; return the whole answer."""
        return await self.call("SendMessage", pb.SendMessageRequest(messages=[message]))

    async def receive(self, topic: str, group: str, **more: Any) -> list[Any]:
        """Receive once; return all parts of the answer."""
        request = received(topic, group, **more)
        answered = await self.raw("ReceiveMessage", request.SerializeToString())
        assert answered.ended == (0, "")
        return [pb.ReceiveMessageResponse.FromString(part) for part in answered.parts]

    async def show(self, settings: Any) -> tuple[int, str] | None:
        """Show settings on a telemetry stream of its own; return how that ends."""
        command = pb.TelemetryCommand(settings=settings)
        telemetry = self.front.telemetry(self.head("Telemetry"))
        return await telemetry.take(command.SerializeToString(), self.told)


def received(topic: str, group: str, **more: Any) -> Any:
    """Return a request for messages."""
    request = pb.ReceiveMessageRequest(batch_size=32)
    request.group.name = group
    request.message_queue.topic.name = topic
    request.message_queue.id = -1
    request.filter_expression.expression = more.get("expression", "*")
    request.filter_expression.type = more.get("type", 1)
    request.invisible_duration.FromMilliseconds(more.get("invisible_ms", 30_000))
    request.long_polling_timeout.FromMilliseconds(more.get("wait_ms", 5_000))
    request.auto_renew = more.get("auto_renew", False)
    return request


def acknowledgement(topic: str, group: str, *messages: Any) -> Any:
    """Return a request that acknowledges messages."""
    request = pb.AckMessageRequest()
    request.topic.name, request.group.name = topic, group
    for one in messages:
        system = one.system_properties
        request.entries.add(message_id=system.message_id, receipt_handle=system.receipt_handle)
    return request


def message(topic: str = "Normal", body: bytes = b"x", **system: Any) -> Any:
    """Return a message with an id of its own."""
    made = pb.Message(body=body)
    made.topic.name = topic
    made.system_properties.message_id = system.pop(
        "message_id", "0102030405060708090A0B0C0D0E0F1011"
    )
    keys = system.pop("keys", [])
    made.system_properties.keys.extend(keys)
    for name, value in system.pop("user", {}).items():
        made.user_properties[name] = value
    for name, value in system.items():
        setattr(made.system_properties, name, value)
    return made


def consumer(group: str, kind: int = 3, *topics: str) -> Any:
    """Return the settings of a consumer; 2 is a push consumer, 3 a simple one."""
    settings = pb.Settings(client_type=kind)
    settings.request_timeout.seconds = 3
    settings.subscription.group.name = group
    for topic in topics:
        entry = settings.subscription.subscriptions.add()
        entry.topic.name = topic
        entry.expression.type = 1
        entry.expression.expression = "*"
    return settings


def producer(*topics: str) -> Any:
    """Return the settings of a producer."""
    settings = pb.Settings(client_type=1)
    for topic in topics:
        settings.publishing.topics.add(name=topic)
    if not topics:
        settings.publishing.SetInParent()
    return settings


def plain_messages(make: Callable[..., Any]) -> dict[str, Callable[[], Any]]:
    """Return messages that the core stores and shows: by name what makes each, with `make`."""
    return {
        "bare": make,
        "everything": lambda: make(
            body=b"b" * 5000,
            tag="Tag-é",
            keys=["k1", "k2"],
            user={"a": "1", "blank ": " "},
            born_host="10.0.0.7",
            trace_context="00-trace",
            delivery_attempt=3,
            body_encoding=1,
            message_type=1,
            queue_id=7,
        ),
        "gzip": lambda: make(body=b"\x1f\x8b-not-looked-at", body_encoding=2),
        "a group": lambda: make(topic="Fifo", message_group="group 1"),
    }


SHOWN: dict[str, Callable[[], Any]] = {
    **plain_messages(message),
    "a body of 128 bytes": lambda: message(body=b"x" * 128),
}
"""Messages whose receive the core answers."""


def shown(part: bytes) -> bytes:
    """Return a part of an answer in one form, without what differs from pop to pop."""
    found = pb.ReceiveMessageResponse.FromString(part)
    whole = found.SerializeToString(deterministic=True)
    assert len(whole) == len(part), "nothing is there twice, and nothing that is not known"
    if found.HasField("delivery_timestamp"):
        found.delivery_timestamp.Clear()
    if found.HasField("message"):
        system = found.message.system_properties
        text, _, place = system.receipt_handle.rpartition(" ")
        handle = ReceiptHandle.decode(text)._replace(pop_time_ms=0, revive_queue=0)
        system.receipt_handle = f"{handle.encode()} {place}"
    return bytes(found.SerializeToString(deterministic=True))


@contextlib.asynccontextmanager
async def fronted(
    folder: Path,
    rules: ProxyLimits | None = None,
    tls: TlsConfig | None = None,
    **changes: str,
) -> AsyncGenerator[Calls]:
    """Run a broker with a front of gRPC; `changes` are the broker's settings."""
    async with running_broker(folder, changes={"brokerName": "b", **changes}) as broker:
        for name, kind in TOPICS.items():
            config = TopicConfig(
                name=name, read_queues=1, write_queues=1, attributes={"message.type": kind}
            )
            broker.metadata.topics.put(config)
        rules = rules or ProxyLimits(port=0)
        built = build_local(broker.local, "127.0.0.1", rules, tls)
        async with built.app:
            yield Calls(built.front, broker, built.port)


@contextlib.asynccontextmanager
async def ready(folder: Path, **changes: str) -> AsyncGenerator[Calls]:
    """Run a front whose topics are on disk: until then calls about them are the front's."""
    async with fronted(folder, None, None, **changes) as calls:
        # Their timer does so every 10 s.
        await calls.broker.metadata.persist_configs()
        assert all(map(calls.broker.metadata.topics.is_durable, TOPICS))
        yield calls


class Counting:
    """A front that counts the calls that reach it."""

    def __init__(self, calls: Calls) -> None:
        self.count = 0
        front: Any = calls.front
        self._serve = front.serve
        front.serve = self.serve

    async def serve(self, *call: Any) -> None:
        self.count += 1
        await self._serve(*call)


def called(
    port: int, method: str, *requests: bytes, client: str = "c", source: str = "127.0.0.1"
) -> list[list[bytes]]:
    """Make calls on one connection, in one write; return the parts of each answer, in order."""
    frames = bytearray()
    for number, data in enumerate(requests):
        stream, part = 2 * number + 1, struct.pack(">BI", 0, len(data)) + data
        head = http2.headers(f"/{SERVICE}/{method}", ("x-mq-client-id", client))
        frames += http2.frame(http2.HEADERS, stream, head, http2.END_HEADERS)
        pieces = [part[at : at + 16_000] for at in range(0, len(part), 16_000)] or [b""]
        for piece in pieces:
            flags = http2.END_STREAM if piece is pieces[-1] else 0
            frames += http2.frame(http2.DATA, stream, piece, flags)
    found: dict[int, bytearray] = {2 * number + 1: bytearray() for number in range(len(requests))}
    open_streams = set(found)
    with http2.Peer.connect(port, source=source) as peer:
        peer.send(bytes(frames))
        while open_streams:
            received = peer.read()
            assert received is not None, "the connection lasts"
            kind, flags, stream, payload = received
            if kind == http2.DATA:
                found[stream] += payload
            if kind == http2.HEADERS and flags & http2.END_STREAM:
                open_streams.discard(stream)
    return [list(parts_of(bytes(found[stream]))) for stream in sorted(found)]


def parts_of(framed: bytes) -> Iterator[bytes]:
    """Yield the messages of an answer."""
    while framed:
        end = 5 + int.from_bytes(framed[1:5], "big")
        yield framed[5:end]
        framed = framed[end:]
