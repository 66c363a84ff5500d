"""A client of gRPC by grpcio and the message definitions alone: no line of the product's front."""

from __future__ import annotations

import itertools
import time
from typing import TYPE_CHECKING, Any, Self

import grpc  # type: ignore[import-untyped]  # has no types

from roquet.proxy import messages as pb

if TYPE_CHECKING:
    from collections.abc import Sequence

OK, NONE = 20000, 40401
TAG, ALL = 1, "*"
_NUMBERS = itertools.count(1)


class Failed(Exception):  # noqa: N818  (an answer that is none)
    """A call without an answer: its status of gRPC."""

    def __init__(self, error: grpc.RpcError) -> None:
        code: Any = error.code()
        super().__init__(f"{code.name}: {error.details()}")
        self.code = code


class GrpcClient:
    """One channel. Each call waits so many seconds at most."""

    def __init__(self, address: str, name: str = "", authority: str = "") -> None:
        """Connect to `host:port` at the first call; an `authority` is another name for it."""
        options: list[tuple[str, int | str]] = [
            ("grpc.use_local_subchannel_pool", 1),
            ("grpc.max_reconnect_backoff_ms", 200),
            ("grpc.min_reconnect_backoff_ms", 50),
            ("grpc.initial_reconnect_backoff_ms", 50),
        ]
        if authority:
            options.append(("grpc.default_authority", authority))
        self._channel = grpc.insecure_channel(address, options=options)
        identity = name or f"attacker-{next(_NUMBERS)}"
        self.metadata: list[tuple[str, str | bytes]] = [
            ("x-mq-client-id", identity),
            ("x-mq-client-version", "5.2.0"),
            ("x-mq-language", "PYTHON"),
        ]

    def call(self, method: str, request: Any, timeout_s: float = 10.0) -> Any:
        """Return the answer of a method that has one. Raises Failed."""
        answer = pb.methods()[method][1]
        ask = self._channel.unary_unary(f"/{pb.SERVICE}/{method}", _bytes, answer.FromString)
        try:
            return ask(request, timeout=timeout_s, metadata=self.metadata)
        except grpc.RpcError as error:
            raise Failed(error) from error

    def send(self, topic: str, bodies: Sequence[bytes], timeout_s: float = 10.0) -> Any:
        """Send messages with one request. Raises Failed."""
        request = pb.SendMessageRequest()
        for body in bodies:
            message = request.messages.add(body=body)
            message.topic.name = topic
            system = message.system_properties
            system.message_id = f"01{next(_NUMBERS):032X}"
            system.message_type = 1
            system.born_timestamp.FromMilliseconds(int(time.time() * 1000))
        return self.call("SendMessage", request, timeout_s)

    def receive(
        self, topic: str, group: str, *, wait_ms: int = 5000, invisible_ms: int = 10_000
    ) -> tuple[int, list[Any]]:
        """Receive once; return the code and the messages. Raises Failed."""
        request = pb.ReceiveMessageRequest(batch_size=32)
        request.group.name = group
        request.message_queue.topic.name = topic
        request.message_queue.id = -1
        request.filter_expression.type, request.filter_expression.expression = TAG, ALL
        request.invisible_duration.FromMilliseconds(invisible_ms)
        request.long_polling_timeout.FromMilliseconds(wait_ms)
        path, read = f"/{pb.SERVICE}/ReceiveMessage", pb.ReceiveMessageResponse.FromString
        code, found = 0, list[Any]()
        try:
            parts = self._channel.unary_stream(path, _bytes, read)(
                request, timeout=wait_ms / 1000 + 10.0, metadata=self.metadata
            )
            for part in parts:
                if part.HasField("status"):
                    code = part.status.code
                elif part.HasField("message"):
                    found.append(part.message)
        except grpc.RpcError as error:
            if not found:
                raise Failed(error) from error
        return code, found

    def ack(self, topic: str, group: str, messages: Sequence[Any], timeout_s: float = 10.0) -> Any:
        """Acknowledge messages. Raises Failed."""
        request = pb.AckMessageRequest()
        request.group.name, request.topic.name = group, topic
        for message in messages:
            system = message.system_properties
            request.entries.add(message_id=system.message_id, receipt_handle=system.receipt_handle)
        return self.call("AckMessage", request, timeout_s)

    def close(self) -> None:
        """Close the channel."""
        self._channel.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _bytes(message: Any) -> bytes:
    data: bytes = message.SerializeToString()
    return data
