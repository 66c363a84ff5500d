"""A relay, its configuration server and inner servers in one loop, on real sockets."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import json
import socket
import struct
from typing import TYPE_CHECKING, Any, Self

import trustme

from roquet.base.clock import SystemClock
from roquet.protocol.command import Command, reply_to
from roquet.relay.app import Relay, build
from roquet.relay.client import ClientOptions, InnerServer, Packet
from roquet.relay.codes import RelayCode
from roquet.relay.config import RelayConfig
from roquet.relay.config_server import ConfigServer
from roquet.relay.peers import packets
from roquet.relay.peers.links import tls_of_server
from roquet.remoting.codec import decode, encode

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator, Callable, Coroutine
    from pathlib import Path

ECHO = 1
COUNT = 2
SLOW = 3
GENEROUS_S = 30.0
OPTIONS = ClientOptions(
    heartbeat_s=0.2, heartbeat_timeout_s=5.0, probe_s=0.5, reconnect_first_s=0.02
)


def looped(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run a test on a loop of its own."""

    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        asyncio.run(test(*args, **kwargs))

    return run


async def until(reached: Callable[[], bool], within_s: float = GENEROUS_S) -> None:
    """Wait for a condition, with a deadline that a loaded machine keeps."""
    async with asyncio.timeout(within_s):
        while not reached():  # noqa: ASYNC110  (any condition)
            await asyncio.sleep(0.005)


def settings(folder: Path, **changes: Any) -> RelayConfig:
    """Return settings for tests: short periods, ports that are free."""
    base = RelayConfig(
        http_port=0,
        inbound_port=0,
        workers=2,
        config_copy=str(folder / "copy.json"),
        tick_ms=10,
        load_config_ms=100,
        reconnect_ms=100,
        connect_timeout_ms=2_000,
        heartbeat_ms=200,
        heartbeat_timeout_ms=5_000,
    )
    return dataclasses.replace(base, **changes)


class Node(InnerServer):
    """An inner server of tests: echoes, counts, is slow when asked to be."""

    def __init__(self, server_id: int, server_type: int, **more: Any) -> None:
        more.setdefault("options", OPTIONS)
        super().__init__(server_id=server_id, server_type=server_type, **more)
        self.got: list[Packet] = []
        self.handle(ECHO, self.echo)
        self.handle(COUNT, self.count)
        self.handle(SLOW, self.slow)
        self.release = asyncio.Event()

    async def request(  # type: ignore[explicit-override]
        self, to: int, kind: int, body: bytes = b"", *, timeout_s: float = GENEROUS_S
    ) -> bytes:
        """Ask with a deadline that a loaded machine keeps."""
        return await super().request(to, kind, body, timeout_s=timeout_s)

    async def request_by_type(  # type: ignore[explicit-override]
        self,
        server_type: int,
        key: str,
        kind: int,
        body: bytes = b"",
        *,
        timeout_s: float = GENEROUS_S,
    ) -> bytes:
        """Ask with a deadline that a loaded machine keeps."""
        return await super().request_by_type(server_type, key, kind, body, timeout_s=timeout_s)

    async def echo(self, packet: Packet) -> bytes:
        return b"%d:" % self.server_id + packet.body

    async def count(self, packet: Packet) -> None:
        self.got.append(packet)

    async def slow(self, packet: Packet) -> bytes:
        await self.release.wait()
        return packet.body


class ShiftedClock(SystemClock):
    """The clock of a process that may have slept, and that somebody may set."""

    shift_ms = 0
    set_by_ms = 0

    def now_ms(self) -> int:  # type: ignore[explicit-override]
        return super().now_ms() + self.shift_ms + self.set_by_ms

    def steady_ms(self) -> int:  # type: ignore[explicit-override]
        return super().steady_ms() + self.shift_ms


@dataclasses.dataclass
class World:
    """What runs."""

    folder: Path
    config_server: ConfigServer
    stack: contextlib.AsyncExitStack
    nodes: dict[int, Node] = dataclasses.field(default_factory=dict[int, Node])
    version: int = 0
    clock: ShiftedClock = dataclasses.field(default_factory=ShiftedClock)
    """The relays' clock."""

    @property
    def file(self) -> Path:
        return self.folder / "servers.json"

    def entry(self, node: Node) -> dict[str, Any]:
        """Return a server's entry of the list."""
        entry: dict[str, Any] = {"id": node.server_id, "type": node.server_type}
        if node.port:
            entry |= {"host": "127.0.0.1", "port": node.port}
        return entry

    def publish(self, *more: dict[str, Any]) -> None:
        """Have the configuration server list the nodes, and `more`."""
        self.version += 1
        listed = [*map(self.entry, self.nodes.values()), *more]
        text = json.dumps({"version": self.version, "servers": listed})
        side = self.file.with_suffix(".new")
        side.write_text(text)
        side.replace(self.file)

    async def node(self, server_id: int, server_type: int, **more: Any) -> Node:
        """Start a server."""
        node = Node(server_id, server_type, **more)
        await self.stack.enter_async_context(node)
        self.nodes[server_id] = node
        return node

    async def relay(self, **changes: Any) -> Relay:
        """Start a relay."""
        changes.setdefault("config_url", self.config_server.url)
        relay = build(settings(self.folder, **changes), self.clock)
        await self.stack.enter_async_context(relay.app)
        return relay

    async def whole(self, *more: int) -> None:
        """Wait until each node knows exactly all others, and those of `more`."""
        there = {*self.nodes, *more}

        def is_whole() -> bool:
            return all(
                node.is_ready and node.others.keys() == there - {node.server_id}
                for node in self.nodes.values()
            )

        await until(is_whole)


@contextlib.asynccontextmanager
async def world(folder: Path) -> AsyncIterator[World]:
    """Run a configuration server; relays and nodes are added by the test."""
    folder.mkdir(parents=True, exist_ok=True)  # noqa: ASYNC240
    async with contextlib.AsyncExitStack() as stack:
        server = ConfigServer(folder / "servers.json")
        made = World(folder, server, stack)
        made.publish()
        await server.start()
        stack.push_async_callback(server.stop)
        yield made


@contextlib.asynccontextmanager
async def fleet(
    folder: Path, nodes: dict[int, int], **changes: Any
) -> AsyncIterator[tuple[World, Relay]]:
    """Run a relay and servers (id -> type) that all know each other."""
    async with world(folder) as made:
        for server_id, server_type in nodes.items():
            await made.node(server_id, server_type, secret=changes.get("secret"))
        made.publish()
        relay = await made.relay(**changes)
        await made.whole()
        yield made, relay


class RawServer:
    """An inner server by hand: it answers the register packet and, unless told, nothing else."""

    def __init__(self, server_id: int, server_type: int) -> None:
        self.server_id = server_id
        self.server_type = server_type
        self.beats = True
        self.reads = asyncio.Event()
        self.reads.set()
        self.registers: list[Command] = []
        self.got: list[Command] = []
        self.answer: Callable[[Command], bytes] = self.registered
        self.writer: asyncio.StreamWriter | None = None
        self.port = 0
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()

    async def __aenter__(self) -> Self:
        # A small buffer of the system's, so that what is not read is soon felt.
        raw = socket.socket()
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        raw.bind(("127.0.0.1", 0))
        self._server = await asyncio.start_server(self._serve, sock=raw, limit=4096)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        self.reads.set()
        for writer in self._writers:
            writer.transport.abort()
        await until(lambda: not self._writers)

    @property
    def entry(self) -> dict[str, Any]:
        return {
            "id": self.server_id,
            "type": self.server_type,
            "host": "127.0.0.1",
            "port": self.port,
        }

    def registered(self, command: Command) -> bytes:
        """Return a good register answer."""
        answer = packets.Registered(server_id=self.server_id, max_online=0, nonce="", proof="")
        return encode(reply_to(command, ext=packets.registered_ext(answer)))

    def send(self, data: bytes) -> None:
        assert self.writer is not None
        self.writer.write(data)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writer = writer
        self._writers.add(writer)
        kept = b""
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                commands, used = decode(kept + data)
                kept = (kept + data)[used:]
                for command in commands:
                    self._take(command, writer)
                await self.reads.wait()
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
        self._writers.remove(writer)

    def _take(self, command: Command, writer: asyncio.StreamWriter) -> None:
        if command.code == RelayCode.REGISTER and not command.is_response:
            self.registers.append(command)
            writer.write(self.answer(command))
        elif command.code == RelayCode.HEARTBEAT and not command.is_response:
            if self.beats:
                writer.write(encode(packets.heartbeat(7)))
        else:
            self.got.append(command)


class Wire:
    """A wire to an inner server that can be cut: both ends then hear nothing, not even an end."""

    def __init__(self, port: int) -> None:
        self.port = 0
        self.whole = asyncio.Event()
        self.whole.set()
        self._target = port
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for writer in self._writers:
            writer.transport.abort()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        await self.whole.wait()
        further, back = await asyncio.open_connection("127.0.0.1", self._target)
        self._writers.add(back)
        for source, sink in ((reader, back), (further, writer)):
            self._tasks.add(asyncio.ensure_future(self._carry(source, sink)))

    async def _carry(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await source.read(65536):
                await self.whole.wait()
                sink.write(data)
        await self.whole.wait()
        sink.close()


class RawLink:
    """A connection by hand, to a relay's inbound port or to an inner server."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self._kept = b""
        self._commands: list[Command] = []

    @classmethod
    async def to(cls, port: int) -> RawLink:
        return cls(*await asyncio.open_connection("127.0.0.1", port))

    def write(self, data: bytes) -> None:
        self.writer.write(data)

    async def read(self) -> Command:
        """Return the next frame."""
        async with asyncio.timeout(GENEROUS_S):
            while not self._commands:
                data = await self.reader.read(65536)
                assert data, "the connection was closed"
                self._commands, used = decode(self._kept + data)
                self._kept = (self._kept + data)[used:]
        return self._commands.pop(0)

    async def trickle(self) -> None:
        """Write a frame byte by byte, too slowly for it to end."""
        self.writer.write(struct.pack(">iI", 100_000, 90_000))
        while True:
            self.writer.write(b"x")
            await asyncio.sleep(0.01)

    async def is_closed(self) -> bool:
        """Read to the end."""
        async with asyncio.timeout(GENEROUS_S):
            with contextlib.suppress(OSError):
                while await self.reader.read(65536):
                    pass
        return True

    async def close(self) -> None:
        self.writer.close()
        with contextlib.suppress(OSError):
            await self.writer.wait_closed()


class Pki:
    """A certificate authority, and the files of one certificate."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        authority = trustme.CA()
        self.ca = str(folder / "ca.pem")
        authority.cert_pem.write_to_path(self.ca)
        leaf = authority.issue_cert("127.0.0.1")
        self.cert, self.key = str(folder / "cert.pem"), str(folder / "key.pem")
        leaf.private_key_pem.write_to_path(self.key)
        for blob in leaf.cert_chain_pems:
            blob.write_to_path(self.cert, append=True)

    @property
    def settings(self) -> dict[str, object]:
        """Return a relay's settings."""
        return {
            "tls": True,
            "tls_ca_file": self.ca,
            "tls_cert_file": self.cert,
            "tls_key_file": self.key,
        }

    def server(self) -> ssl.SSLContext:
        """Return the context of an inner server that listens and wants a certificate."""
        return tls_of_server(self.cert, self.key, self.ca)
