"""The master's port for slaves: accepts them, feeds each its log, hears what they have.

A service without threads: the loop copies pieces from the log's files to sockets, at most a
mebibyte a turn for each slave, and stops where a socket takes no more.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import os
from typing import TYPE_CHECKING, cast

from roquet.base.errors import UsageError
from roquet.base.overriding import override
from roquet.ha.feed import Feed
from roquet.ha.frames import PeerFault
from roquet.ha.secret import MasterGate
from roquet.store.results import StoreFault

if TYPE_CHECKING:
    import ssl

    from roquet.base.clock import Clock
    from roquet.ha.feed import FeedRules
    from roquet.ha.log import Log
    from roquet.ha.replicas import Replicas


log = logging.getLogger(__name__)

SLAVES_MAX = 64
"""Connections at a time; more are closed at once."""
TURN_BYTES = 1 << 20
"""What one slave gets in one turn of the loop."""
_HIGH_WATER = 1 << 20


@dataclasses.dataclass(frozen=True, slots=True)
class SlaveView:
    """What a master knows of a slave's connection."""

    address: str
    acked: int
    position: int
    bytes_per_second: int
    """Of the last whole second."""


@dataclasses.dataclass(frozen=True, slots=True)
class Entrance:
    """What a slave must show, and how the master speaks."""

    secret: str | None = None
    tls: ssl.SSLContext | None = None


class HaMaster:
    """Feeds slaves from `start` to `stop`."""

    def __init__(
        self,
        log_: Log,
        replicas: Replicas,
        rules: FeedRules,
        clock: Clock,
        *,
        entrance: Entrance,
    ) -> None:
        self.log = log_
        self.replicas = replicas
        self.rules = rules
        self.clock = clock
        self.entrance = entrance
        self._links: set[SlaveLink] = set()
        self._server: asyncio.Server | None = None
        self._port = 0

    @property
    def port(self) -> int:
        """The port slaves connect to, once it listens."""
        return self._port

    @property
    def slaves(self) -> list[SlaveView]:
        """The connected slaves that have reported."""
        return [view for link in self._links if (view := link.view()) is not None]

    async def listen(self, host: str, port: int) -> int:
        """Open the port, 0 for any, and return it. Raises UsageError when it cannot be had."""
        loop = asyncio.get_running_loop()
        try:
            self._server = await loop.create_server(
                lambda: SlaveLink(self), host, port, ssl=self.entrance.tls
            )
        except OSError as error:
            raise UsageError(f"cannot listen for slaves on {host}:{port}: {error}") from error
        self._port = int(self._server.sockets[0].getsockname()[1])
        return self._port

    async def stop(self) -> None:
        """Close the port and the slaves' connections."""
        server, self._server = self._server, None
        if server is None:
            return
        server.close()
        links = list(self._links)
        for link in links:
            link.close()
        await server.wait_closed()

    def wake(self) -> None:
        """Send what there is: the log has grown."""
        if self._links:
            end = self.log.limit
            for link in tuple(self._links):
                link.pump(end)

    async def tick(self) -> None:
        """Send heartbeats, end silent connections, and send what there is: a timer's action."""
        now_ms = self.clock.now_ms()
        for link in tuple(self._links):
            link.check(now_ms)
        self.wake()

    def behind(self) -> int | None:
        """Return the bytes that the best slave lacks; None without slaves."""
        offsets = self.replicas.by_slave().values()
        return max(0, self.log.limit - max(offsets)) if offsets else None

    def joined(self, link: SlaveLink) -> bool:
        """Take a connection; False when there are too many."""
        if self._server is None or len(self._links) >= SLAVES_MAX:
            return False
        self._links.add(link)
        return True

    def gone(self, link: SlaveLink) -> None:
        """Forget a connection."""
        self._links.discard(link)
        self.replicas.left(link)


class SlaveLink(asyncio.Protocol):
    """One slave's connection."""

    def __init__(self, master: HaMaster) -> None:
        self._master = master
        self._clock = master.clock
        self._feed = Feed(master.rules, self._clock.now_ms())
        self._gate: MasterGate | None = None
        self._transport: asyncio.Transport | None = None
        self._paused = False
        self._again = False
        self._address = "?"
        self._slave = "?"
        self._second = 0
        self._sent_before = 0
        self._sent_now = 0

    # --- what the transport says ----------------------------------------------------------------

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin: the slave speaks first, unless it has to know the secret."""
        # The transports of uvloop are no subclasses of asyncio's.
        transport = cast("asyncio.Transport", transport)
        self._transport = transport
        peer = transport.get_extra_info("peername") or ("?", 0)
        self._address = f"{peer[0]}:{peer[1]}"
        self._slave = str(peer[0])
        if not self._master.joined(self):
            log.warning("slave %s is turned away: there are %d", self._address, SLAVES_MAX)
            transport.abort()
            return
        log.info("slave %s has connected", self._address)
        transport.set_write_buffer_limits(high=_HIGH_WATER)
        secret = self._master.entrance.secret
        if secret is not None:
            self._gate = MasterGate(secret, os.urandom(32))
            transport.write(self._gate.challenge())

    @override
    def data_received(self, data: bytes) -> None:
        """Take reports."""
        try:
            if self._gate is not None:
                passed = self._gate.receive(data)
                if passed is None:
                    return
                slave, proof, data = passed
                self._gate = None
                self._slave = f"id {slave}"
                self._write(proof)
            self._take(data)
        except (PeerFault, StoreFault) as fault:
            self._drop(str(fault))

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the slave."""
        log.info("slave %s is gone%s", self._address, f": {exc}" if exc else "")
        self._transport = None
        self._master.gone(self)

    @override
    def pause_writing(self) -> None:
        """Send no more for now."""
        self._paused = True

    @override
    def resume_writing(self) -> None:
        """Go on."""
        self._paused = False
        self.pump(self._master.log.limit)

    # --- what the master does -------------------------------------------------------------------

    def close(self) -> None:
        """Close in order: what was written is sent."""
        if self._transport is not None:
            self._transport.close()

    def view(self) -> SlaveView | None:
        """Return what is known of the slave, None before it has reported."""
        feed = self._feed
        if feed.acked is None or feed.position is None:
            return None
        return SlaveView(self._address, feed.acked, feed.position, self._sent_before)

    def check(self, now_ms: int) -> None:
        """Send a heartbeat if one is due, and end a silent connection."""
        if now_ms // 1000 != self._second:
            self._second = now_ms // 1000
            self._sent_before, self._sent_now = self._sent_now, 0
        try:
            self._feed.check(now_ms)
        except PeerFault as fault:
            self._drop(str(fault))
            return
        heartbeat = None if self._paused else self._feed.heartbeat(now_ms)
        if heartbeat is not None:
            self._write(heartbeat)

    def pump(self, end: int) -> None:
        """Send what the slave lacks up to `end`, as much as a turn allows."""
        sent = 0
        now_ms = self._clock.now_ms()
        try:
            while not self._paused and self._transport is not None:
                due = self._feed.due(end, now_ms)
                if due is None:
                    return
                if sent >= TURN_BYTES:
                    self._pump_again()
                    return
                piece = self._master.log.read(*due)
                if not piece:
                    return
                self._write(self._feed.header(len(piece), now_ms) + piece)
                sent += len(piece)
                self._sent_now += len(piece)
        except StoreFault as fault:
            self._drop(str(fault))

    def _pump_again(self) -> None:
        if not self._again:
            self._again = True
            asyncio.get_running_loop().call_soon(self._go_on)

    def _go_on(self) -> None:
        self._again = False
        if self._transport is not None:
            self.pump(self._master.log.limit)

    def _take(self, data: bytes) -> None:
        master = self._master
        first = self._feed.acked is None
        if not data or not self._feed.receive(
            data, self._clock.now_ms(), master.log.begin, master.log.limit
        ):
            return
        acked = self._feed.acked or 0
        if first:
            log.info(
                "slave %s has the log up to %d and gets it from %s",
                self._address,
                acked,
                self._feed.position,
            )
        master.replicas.acked(self, self._slave, acked)
        if first:
            self.pump(master.log.limit)

    def _write(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)

    def _drop(self, why: str) -> None:
        log.error("slave %s is dropped: it %s", self._address, why)
        self._master.gone(self)
        if self._transport is not None:
            self._transport.abort()
