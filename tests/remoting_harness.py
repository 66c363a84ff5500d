"""A server with a few handlers, and raw sockets to be rude to it."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
from typing import TYPE_CHECKING, Any, ParamSpec

import uvloop

from roquet.base.clock import SystemClock
from roquet.base.errors import Refused
from roquet.protocol.codes import RequestCode
from roquet.protocol.command import Command, reply_to
from roquet.protocol.header import Header, wire
from roquet.remoting.client import Client, ClientConfig
from roquet.remoting.codec import decode, encode
from roquet.remoting.connections.limits import ConnectionConfig
from roquet.remoting.connections.native import NativeConnections
from roquet.remoting.router import Peer, Ports, Request, Route, Router
from roquet.remoting.server import Server, ServerConfig
from roquet.service.lanes import LaneConfig, Lanes

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Sequence

    from roquet.base.clock import Clock
    from roquet.remoting.connections.ingest import Ingest
    from roquet.remoting.tls import ClientTls, ServerTls

ECHO = RequestCode.SEND_MESSAGE
SLOW = RequestCode.PULL_MESSAGE
FAIL = RequestCode.QUERY_MESSAGE
NUMBER = RequestCode.GET_MAX_OFFSET
LATER = RequestCode.GET_MIN_OFFSET
BIG = RequestCode.GET_ALL_TOPIC_CONFIG
SOON = RequestCode.HEART_BEAT


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Numbered(Header):
    queue_id: int = wire("queueId", "i32")


P = ParamSpec("P")

IO_THREADS = 0
"""Threads of the core that serve the connections of `serving`, in place of the loop."""
PATIENCE_S = 30.0
"""How long anything may take on a machine that stands still."""


def on_loop(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Run a test on the loop that the product runs on."""

    @functools.wraps(test)
    def run(*given: P.args, **named: P.kwargs) -> None:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(test(*given, **named))

    return run


class Handlers:
    """Answers for tests; `gate` holds the slow ones back."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.seen: list[Command] = []
        self.parked: list[Request] = []
        self.big = b"x" * 1_000_000

    def echo(self, request: Request) -> Command:
        self.seen.append(request.command)
        return reply_to(request.command, ext=request.command.ext, body=request.command.body)

    async def slow(self, request: Request) -> Command:
        self.seen.append(request.command)
        await self.gate.wait()
        return reply_to(request.command, body=b"slow")

    async def soon(self, request: Request) -> Command:
        await asyncio.sleep(0)
        return self.echo(request)

    def fail(self, request: Request) -> Command:
        kind = (request.command.ext or {}).get("kind")
        if kind == "refused":
            raise Refused(17, "no such topic")
        raise RuntimeError("out of luck")

    def number(self, request: Request) -> Command:
        header = Numbered.decode(request.command.ext)
        return reply_to(request.command, body=str(header.queue_id).encode())

    def later(self, request: Request) -> None:
        self.parked.append(request)

    def large(self, request: Request) -> Command:
        self.seen.append(request.command)
        return reply_to(request.command, body=self.big)

    def routes(self) -> list[Route]:
        return [
            Route((ECHO,), self.echo, "work"),
            Route((SLOW,), self.slow, "work"),
            Route((SOON,), self.soon, "work"),
            Route((FAIL,), self.fail, "work"),
            Route((NUMBER,), self.number, "work"),
            Route((LATER,), self.later, "work"),
            Route((BIG,), self.large, "work", Ports.MAIN),
        ]


@dataclasses.dataclass
class Running:
    server: Server
    handlers: Handlers
    lanes: Lanes
    closed: list[Peer]

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server.port}"

    async def raw(self) -> Raw:
        return Raw(*await asyncio.open_connection("127.0.0.1", self.server.port))


class Raw:
    """A connection on which anything can be said."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._partial = b""
        self._got: list[Command] = []

    def write(self, data: bytes) -> None:
        self._writer.write(data)

    async def drain(self) -> None:
        await self._writer.drain()

    async def read(self) -> Command:
        async with asyncio.timeout(PATIENCE_S):
            while not self._got:
                data = await self._reader.read(65536)
                if not data:
                    raise EOFError
                self._got, used = decode(self._partial + data)
                self._partial = (self._partial + data)[used:]
        return self._got.pop(0)

    async def is_closed(self, within_s: float = PATIENCE_S) -> bool:
        """Whether the server closes it without saying another word."""
        try:
            async with asyncio.timeout(within_s):
                return await self._reader.read(1) == b""
        except TimeoutError:
            return False
        except ConnectionError:
            return True

    async def close(self) -> None:
        self._writer.close()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()


def ask(code: int, opaque: int = 1, body: bytes = b"", **ext: str) -> bytes:
    return encode(Command(code, ext or None, body, opaque=opaque))


@contextlib.asynccontextmanager
async def serving(
    config: ServerConfig | None = None,
    clock: Clock | None = None,
    lanes: Sequence[LaneConfig] = (LaneConfig("work", 64, 10_000),),
    *,
    ingest: Ingest | None = None,
    port: int = 0,
    tls: ServerTls | None = None,
) -> AsyncIterator[Running]:
    clock = clock or SystemClock()
    handlers = Handlers()
    closed: list[Peer] = []
    all_lanes = Lanes(lanes, clock)
    limits = config or ServerConfig()
    native = NativeConnections(IO_THREADS if ingest is None else 0)
    native.bounds = ConnectionConfig(
        bytes_max=limits.connection_bytes_max,
        high_water=limits.high_water,
        low_water=limits.low_water,
    )
    native.open(None, frame_size_max=limits.frame_size_max, total_max=limits.process_bytes_max)
    server = Server(
        host="127.0.0.1",
        port=port,
        router=Router(handlers.routes(), None, all_lanes, clock),
        clock=clock,
        config=config,
        on_close=closed.append,
        ingest=ingest,
        tls=tls,
        native=native.port(pulls=True) if native.is_open else None,
    )
    await server.start()
    try:
        yield Running(server, handlers, all_lanes, closed)
    finally:
        handlers.gate.set()
        await server.stop()
        native.close()
        await all_lanes.stop()


@contextlib.asynccontextmanager
async def calling(
    config: ClientConfig | None = None,
    clock: Clock | None = None,
    handlers: Sequence[Route] = (),
    tls: ClientTls | None = None,
    *,
    explain_tls: bool = False,
) -> AsyncIterator[Client]:
    client = Client(
        clock=clock or SystemClock(),
        config=config,
        handlers=handlers,
        tls=tls,
        explain_tls=explain_tls,
    )
    await client.start()
    try:
        yield client
    finally:
        await client.stop()


async def until(condition: object, within_s: float = PATIENCE_S) -> None:
    """Wait for something that sockets make true."""
    assert callable(condition)
    async with asyncio.timeout(within_s):
        while not condition():  # noqa: ASYNC110  (sockets set no events)
            await asyncio.sleep(0.005)
