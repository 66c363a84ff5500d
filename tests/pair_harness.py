"""Master and slave in the test's own process, over real sockets and files."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
import socket
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from roquet.base.clock import SystemClock
from roquet.ha.config import HaConfig
from roquet.protocol.command import Command
from roquet.remoting.client import Client, ClientConfig
from roquet.testing.cluster import (
    pull_command,
    running_broker,
    running_name_server,
    send_command,
)

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncGenerator, Callable
    from pathlib import Path

    from roquet.base.clock import Clock
    from roquet.broker.app import Broker
    from roquet.ha.feed import FeedConfig
    from roquet.protocol.codes import RequestCode

SOON = {
    "haReconnectInterval": "50",
    "slaveSyncInterval": "100",
    "haSendHeartbeatInterval": "200",
    "registerNameServerPeriod": "10000",
}
"""Settings that let a pair find each other within a test."""


@dataclasses.dataclass(slots=True)
class PairWorld:
    """A name server, where the brokers' stores are, and a client."""

    folder: Path
    name_servers: str
    client: Client
    clock: Clock | None = None
    """What brokers that are run from now on take for the wall clock."""

    @contextlib.asynccontextmanager
    async def master(self, **changes: str) -> AsyncGenerator[Broker]:
        """Run the master over its folder."""
        async with running_broker(
            self.folder / "master", self.name_servers, changes={**SOON, **changes}, clock=self.clock
        ) as broker:
            yield broker

    @contextlib.asynccontextmanager
    async def slave(
        self, of: Broker | None = None, folder: str = "slave", **changes: str
    ) -> AsyncGenerator[Broker]:
        """Run a slave; it learns its master from the name server unless `of` is given."""
        more = {"haMasterAddress": of.identity.ha_address} if of is not None else {}
        async with running_broker(
            self.folder / folder,
            self.name_servers,
            changes={"brokerRole": "SLAVE", "brokerId": "1", **SOON, **more, **changes},
            clock=self.clock,
        ) as broker:
            yield broker

    async def send(
        self, to: Broker, body: bytes = b"hello", properties: str = "", **fields: str
    ) -> Command:
        """Send one message to queue 0 of topic `Pair`."""
        command = send_command("Pair", body, 0, properties, **fields)
        return await self.client.call(to.identity.address, command, 20.0)

    async def pull(self, to: Broker, offset: int = 0, **fields: str) -> Command:
        """Pull from queue 0 of topic `Pair`."""
        return await self.client.call(to.identity.address, pull_command("Pair", offset, **fields))

    async def ask(self, to: Broker, code: RequestCode, **fields: str) -> Command:
        """Send a request that has fields only."""
        return await self.client.call(to.identity.address, Command(code, ext=fields), 20.0)


@contextlib.asynccontextmanager
async def pair_world(folder: Path) -> AsyncGenerator[PairWorld]:
    """Run what both brokers need."""
    # A loop with much to do accepts late.
    client = Client(clock=SystemClock(), config=ClientConfig(connect_s=20.0))
    async with running_name_server(folder / "namesrv") as server:
        await client.start()
        try:
            yield PairWorld(folder, f"127.0.0.1:{server.server.port}", client)
        finally:
            await client.stop()


async def until(holds: Callable[[], object], what: str, within_s: float = 90.0) -> None:
    """Wait until something holds; fail when it never does."""
    for _ in range(int(within_s / 0.01)):
        if holds():
            return
        await asyncio.sleep(0.01)
    raise AssertionError(f"never: {what}")


def log_end(broker: Broker) -> int:
    """Return where a broker's log ends."""
    return broker.store.native.max_physical_offset()


async def caught_up(master: Broker, slave: Broker) -> None:
    """Wait until the slave has and has dispatched all that the master has."""
    await until(
        lambda: log_end(slave) == log_end(master) and slave.store.dispatch_behind() == 0,
        "the slave has the whole log",
    )


def log_files(store: Path) -> dict[str, bytes]:
    """Return the commit-log files of a store by name."""
    return {path.name: path.read_bytes() for path in sorted((store / "commitlog").iterdir())}


def assert_same_log(master: Path, slave: Path) -> None:
    """Compare the logs of two stopped brokers, byte for byte."""
    ours, theirs = log_files(master), log_files(slave)
    assert theirs
    for name, data in theirs.items():
        assert data == ours[name], f"{name} differs"
    assert max(ours) == max(theirs)


async def connect(
    broker: Broker, tls: ssl.SSLContext | None = None
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect to a master's port for slaves."""
    host, _, port = broker.identity.ha_address.rpartition(":")
    return await asyncio.open_connection(host, int(port), ssl=tls)


def feed_rules(**changes: int) -> FeedConfig:
    """Return how a slave is fed with the defaults of the settings, but for `changes`."""
    return dataclasses.replace(HaConfig().feed(1 << 30), **changes)


class Transport(asyncio.Transport):
    """A connection that was made, with a socket to give away."""

    def __init__(self, host: str) -> None:
        self.socket = socket.socket()
        super().__init__({"peername": (host, 9), "socket": self.socket})
        self.aborted = False

    @override
    def abort(self) -> None:
        self.aborted = True
        self.socket.close()


class Native:
    """A thread of the core that notes what it is told; a test says what it has to tell."""

    def __init__(self, fd: int, *, ends_at_once: bool = False) -> None:
        """Have a descriptor until the end, or as long as the object is there."""
        self.fd = fd
        self.ends_at_once = ends_at_once
        self.bell = os.eventfd(0, os.EFD_NONBLOCK)
        self.words: list[bytes] = []
        self.begun: tuple[int, bytes] | None = None
        self.ended = ""
        self.tuned: list[dict[str, Any]] = []
        self.acks_told: list[tuple[bool, bool]] = []
        self.acked = self.position = self.moved = 0
        self.silent_ms = (0, 0)
        self.news: list[tuple[bytes, int, tuple[str, str] | None]] = []

    def event_fd(self) -> int:
        return self.bell

    def take(self) -> tuple[bytes, int, tuple[str, str] | None]:
        os.eventfd_read(self.bell)
        one = self.news.pop(0)
        if self.news:
            os.eventfd_write(self.bell, 1)
        return one

    def view(self) -> tuple[int, int, int, int, int]:
        return self.acked, self.position, self.moved, *self.silent_ms

    @property
    def said(self) -> bytes:
        """All that it was told to say."""
        return b"".join(self.words)

    def say(self, data: bytes) -> None:
        assert self.begun is None
        self.words.append(data)

    def begin(self, position: int, heard: bytes) -> None:
        assert self.begun is None
        self.begun = (position, heard)

    def tune(self, **rules: Any) -> None:
        self.tuned.append(rules)

    def tell_acks(self, *, loud: bool, counts: bool) -> None:
        self.acks_told.append((loud, counts))

    def finish(self) -> None:
        self.ended = self.ended or "finish"

    def stop(self) -> None:
        if self.ends_at_once and not self.ended:
            self.tell("stopped")
        self.ended = self.ended or "stop"

    def hear(self, data: bytes) -> None:
        """Hand over what the peer has said."""
        self.news.append((data, self.acked, None))
        os.eventfd_write(self.bell, 1)

    async def heard(self) -> None:
        """Wait until the loop has taken all the news."""
        async with asyncio.timeout(20):
            while self.news:  # noqa: ASYNC110  (the loop's reader takes it)
                await asyncio.sleep(0)

    def tell(self, kind: str, text: str = "") -> None:
        """End, as the thread itself does."""
        self.news.append((b"", self.acked, (kind, text)))
        os.eventfd_write(self.bell, 1)

    def join(self) -> None:
        for fd in {self.fd, self.bell} - {-1}:
            os.close(fd)
        self.fd = self.bell = -1

    __del__ = join
