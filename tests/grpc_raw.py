"""A client of gRPC that says what a test wants, and shows whole answers: for any proxy."""

from __future__ import annotations

import contextlib
import queue
import time
from typing import TYPE_CHECKING, Any, Self

import grpc  # type: ignore[import-untyped]  # has no types

from roquet.proxy import messages as pb
from roquet.proxy.rules.methods import SERVICE

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

LIMIT_S = 30.0


class RawClient:
    """One client id at one proxy; its telemetry streams last until it is closed."""

    def __init__(self, endpoint: str, client_id: str) -> None:
        self._channel = grpc.insecure_channel(endpoint)
        self._metadata = (
            ("x-mq-client-id", client_id),
            ("x-mq-client-version", "5.1.2"),
            ("x-mq-language", "PYTHON"),
            ("x-mq-protocol", "v2"),
        )
        self._streams: list[queue.Queue[Any]] = []
        """What is said on each telemetry stream; None ends it."""
        self._types = pb.methods()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for said in self._streams:
            said.put(None)
        self._channel.close()

    def show(self, settings: Any) -> Any:
        """Open a telemetry stream with settings; return those that the proxy answers."""
        said: queue.Queue[Any] = queue.Queue()
        said.put(pb.TelemetryCommand(settings=settings))
        self._streams.append(said)
        stream = self._channel.stream_stream(
            f"/{SERVICE}/Telemetry",
            request_serializer=lambda it: it.SerializeToString(),
            response_deserializer=pb.TelemetryCommand.FromString,
        )
        answers = stream(iter(said.get, None), metadata=self._metadata)
        for answer in answers:
            if answer.WhichOneof("command") == "settings":
                return answer.settings
        raise AssertionError("the stream ended without settings")

    def call(self, method: str, request: Any) -> Any:
        """Return the answer of a method that has one."""
        made = self._channel.unary_unary(
            f"/{SERVICE}/{method}",
            request_serializer=lambda it: it.SerializeToString(),
            response_deserializer=self._types[method][1].FromString,
        )
        return made(request, timeout=LIMIT_S, metadata=self._metadata)

    def receive(self, request: Any) -> tuple[int, list[Any]]:
        """Receive once; return the code and the messages."""
        made = self._channel.unary_stream(
            f"/{SERVICE}/ReceiveMessage",
            request_serializer=lambda it: it.SerializeToString(),
            response_deserializer=pb.ReceiveMessageResponse.FromString,
        )
        code, found = 0, []
        for part in made(request, timeout=LIMIT_S, metadata=self._metadata):
            if part.WhichOneof("content") == "status":
                code = int(part.status.code)
            elif part.WhichOneof("content") == "message":
                found.append(part.message)
        return code, found

    def receive_until(self, request: Any, count: int, limit_s: float = 60.0) -> list[Any]:
        """Receive until so many messages came."""
        found: list[Any] = []
        end = time.monotonic() + limit_s
        while len(found) < count:
            assert time.monotonic() < end, f"{len(found)} of {count} messages came"
            found += self.receive(request)[1]
        return found


@contextlib.contextmanager
def raw_clients(endpoints: Sequence[str], name: str) -> Iterator[list[RawClient]]:
    """Give a client at each proxy, with ids of their own."""
    with contextlib.ExitStack() as stack:
        yield [
            stack.enter_context(RawClient(endpoint, f"{name}-{number}"))
            for number, endpoint in enumerate(endpoints)
        ]
