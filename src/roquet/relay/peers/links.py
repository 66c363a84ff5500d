"""Links to inner servers: dialled, or accepted where that is on; whoever holds one hears of it."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import socket
import ssl
from typing import TYPE_CHECKING, Protocol

from roquet.base.overriding import override
from roquet.protocol.hosts import join_address
from roquet.remoting.connections.connection import KEYS, RECEIVE_SIZE, Connection
from roquet.remoting.connections.limits import MIB, Budget, ConnectionConfig
from roquet.remoting.tls import without_tickets
from roquet.service.background import Tasks
from roquet.service.http.listening import port_of
from roquet.service.process.listening import cannot_listen
from roquet.service.ratelog import RateLog

if TYPE_CHECKING:
    import random
    from collections.abc import Iterable

    from roquet.base.clock import Clock
    from roquet.protocol.command import Command
    from roquet.remoting.connections.ingest import Ingest


log = logging.getLogger(__name__)

CONNECTIONS_MAX = 20_000
HANDSHAKE_S = 5.0
"""How long a TLS handshake may take."""
HIGH_WATER = 256 * 1024
"""Bytes in a transport's buffer above which a link is given no more."""


class Holder(Protocol):
    """The service that owns a link at the moment."""

    def received(self, link: RelayLink, command: Command) -> None:
        """Take a request that is no packet for another server."""
        ...

    def lost(self, link: RelayLink, why: str) -> None:
        """Hear that it has gone."""
        ...

    def writable(self, link: RelayLink) -> None:
        """Hear that it takes output again."""
        ...


class RelayLink(Connection):
    """A link, and who holds it."""

    holder: Holder
    why = ""
    """Why it was closed, where this side knows."""
    server_id = 0
    """The inner server at the other end; 0 while that is not known."""
    proof = ""
    """What proves to the other end that this one knows the shared secret."""
    opened_ms = 0
    """When it was connected."""
    gone: asyncio.Event
    """Set when the link is closed."""

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Learn the peer's address."""
        if not self.address:
            peer = transport.get_extra_info("peername") or ("?", 0)
            self.address = join_address(peer[0], peer[1])
        raw = transport.get_extra_info("socket")
        if raw is not None:
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        super().connection_made(transport)

    @override
    def resume_writing(self) -> None:
        """Tell the holder, who has more."""
        super().resume_writing()
        self.holder.writable(self)

    @override
    def close(self, why: str) -> None:
        """Note why."""
        self.why = self.why or why
        super().close(why)

    def end(self, why: str) -> None:
        """Close at once: a peer that takes nothing must not hold what is left for it."""
        self.why = self.why or why
        self.abort()

    def flush(self) -> None:
        """Write out now what waits for the end of the loop's turn."""
        self._flush()


class Links:
    """All links of a process: makes them, bounds them, closes them. A service."""

    def __init__(
        self,
        *,
        clock: Clock,
        ingest: Ingest,
        holder: Holder,
        frame_size_max: int,
        rng: random.Random | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """Give every new link to `holder` at first; with `rng`, calls begin at a drawn number."""
        self._clock = clock
        self._ingest = ingest
        self._holder = holder
        self._tls = tls
        self._rng = rng
        self._config = ConnectionConfig(
            bytes_max=frame_size_max + 64 * MIB,
            high_water=HIGH_WATER,
            stops_reading=False,
        )
        self._budget = Budget(1024 * MIB)
        self._buffer = memoryview(bytearray(RECEIVE_SIZE))
        self._links: dict[int, RelayLink] = {}
        self._log = RateLog(log, clock)
        self.tasks = Tasks()

    def __len__(self) -> int:
        return len(self._links)

    def find(self, key: int) -> RelayLink | None:
        """Return an open link by its key."""
        return self._links.get(key)

    def all(self) -> Iterable[RelayLink]:
        """Return the links that are there now."""
        return tuple(self._links.values())

    def make(self) -> RelayLink:
        """Make a link that is not connected yet."""
        config = self._config
        if self._rng is not None:
            config = dataclasses.replace(config, first_opaque=self._rng.getrandbits(30))
        link = RelayLink(
            owner=self,
            key=next(KEYS),
            address="",
            ingest=self._ingest,
            buffer=self._buffer,
            budget=self._budget,
            config=config,
        )
        link.holder = self._holder
        link.gone = asyncio.Event()
        return link

    async def dial(self, host: str, port: int, timeout_s: float) -> RelayLink:
        """Connect. Raises OSError (TimeoutError among them) and ssl.SSLError, which is one."""
        link = self.make()
        link.address = join_address(host, port)
        async with asyncio.timeout(timeout_s):
            await asyncio.get_running_loop().create_connection(
                lambda: link, host, port, ssl=self._tls
            )
        return link

    async def start(self) -> None:
        """Be ready to make tasks."""
        self.tasks = Tasks()

    async def stop(self) -> None:
        """Close every link; what is written goes out first, within a second."""
        await self.tasks.stop()
        for link in self.all():
            link.close("")
        for _ in range(100):
            if not self._links:
                return
            await asyncio.sleep(0.01)  # noqa: TID251  (real sockets, whatever the clock)
        for link in self.all():
            link.abort()
        await asyncio.sleep(0)  # noqa: TID251  (the transports tell us at the loop's next turn)

    # --- what links ask of their owner -----------------------------------------------------

    def now_ms(self) -> int:
        """Return the time."""
        return self._clock.steady_ms()

    def opened(self, link: Connection) -> None:
        """Know a connection."""
        assert isinstance(link, RelayLink)
        link.opened_ms = self._clock.steady_ms()
        self._links[link.key] = link
        if len(self._links) > CONNECTIONS_MAX:
            link.close("too many connections")

    def closed(self, link: Connection) -> None:
        """Tell the holder."""
        assert isinstance(link, RelayLink)
        link.gone.set()
        if self._links.pop(link.key, None) is not None:
            link.holder.lost(link, link.why or "the peer closed the connection")

    def request(self, link: Connection, command: Command) -> None:
        """Have the holder handle a request."""
        assert isinstance(link, RelayLink)
        try:
            link.holder.received(link, command)
        except Exception:
            log.exception("request %d of %s failed", command.code, link.address)
        finally:
            link.done(command)

    def complain(self, link: Connection, what: str) -> None:
        """Log what a peer did wrong, within limits."""
        self._log.warning((link.address, what[:24]), f"link to {link.address} is closed: {what}")


class Listener:
    """Accepts links. A service."""

    def __init__(
        self, links: Links, host: str, port: int, tls: ssl.SSLContext | None = None
    ) -> None:
        """Listen nowhere yet; port 0 means any free one."""
        self._links = links
        self._host = host
        self._port = port
        self._tls = tls
        self._server: asyncio.Server | None = None

    @property
    def port(self) -> int:
        """The port that is listened on."""
        return self._port

    async def start(self) -> None:
        """Listen. Raises UsageError when the address cannot be had."""
        try:
            self._server = await asyncio.get_running_loop().create_server(
                self._links.make,
                self._host,
                self._port,
                ssl=self._tls,
                ssl_handshake_timeout=None if self._tls is None else HANDSHAKE_S,
                backlog=1024,
            )
        except (OSError, OverflowError) as error:
            raise cannot_listen(f"{self._host}:{self._port}", error) from error
        self._port = port_of(self._server, self._host, self._port)

    async def stop(self) -> None:
        """Listen no more; links stay."""
        if self._server is not None:
            self._server.close()
            self._server = None


def tls_to_servers(
    ca_file: str | None, cert_file: str | None, key_file: str | None
) -> ssl.SSLContext:
    """Make the TLS side that dials; its certificate is shown where it has one."""
    context = ssl.create_default_context(cafile=ca_file)
    _load(context, cert_file, key_file)
    return context


def tls_of_server(
    cert_file: str | None, key_file: str | None, ca_file: str | None
) -> ssl.SSLContext:
    """Make the TLS side that listens; with `ca_file` it wants a certificate of its peers, too."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _load(context, cert_file, key_file)
    if ca_file is not None:
        context.load_verify_locations(ca_file)
        context.verify_mode = ssl.CERT_REQUIRED
        without_tickets(context)
    return context


def _load(context: ssl.SSLContext, cert_file: str | None, key_file: str | None) -> None:
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if cert_file is not None:
        context.load_cert_chain(cert_file, key_file)
