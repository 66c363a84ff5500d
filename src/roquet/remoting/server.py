"""The listening side: accepts, bounds, feeds the ingest, answers, and stops in good order.

See architecture §3.2 and bad input B1-B6, B19 of the reliability page.
"""

from __future__ import annotations

import asyncio
import dataclasses
import errno
import logging
import socket
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

from roquet.base.limits import FRAME_SIZE_MAX
from roquet.protocol.codes import ResponseCode
from roquet.protocol.command import reply_to
from roquet.protocol.hosts import Network, join_address
from roquet.protocol.versions import V5_3_1
from roquet.remoting.accept_rate import AcceptRate
from roquet.remoting.balancer import Balancers
from roquet.remoting.connections.connection import KEYS, RECEIVE_SIZE, Connection
from roquet.remoting.connections.in_flight import ClockJumpDetector
from roquet.remoting.connections.ingest import Ingest, PlainIngest
from roquet.remoting.connections.limits import MIB, Budget, ConnectionConfig
from roquet.remoting.connections.reply import Reply
from roquet.remoting.connections.silence import SilentConnections
from roquet.remoting.connections.tls_socket import SEALED_SIZE, HandshakeError, accept_tls
from roquet.remoting.router import Request
from roquet.remoting.tls import CLIENT_HELLO
from roquet.service.background import Tasks
from roquet.service.process.listening import cannot_listen
from roquet.service.ratelog import RateLog

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from roquet.base.clock import Clock
    from roquet.protocol.command import Command
    from roquet.remoting.connections.native import NativePort
    from roquet.remoting.connections.waits import KernelWaits
    from roquet.remoting.router import Peer, Router
    from roquet.remoting.tls import ServerTls

log = logging.getLogger(__name__)

OnAnswer = Callable[["Command", "Command", int, bool], None]
"""Hears of a request, its answer, when it was received (ms), and whether it had been held."""

_SHORT_S = 30
"""Seconds after running out of descriptors in which silent connections have to speak soon."""
_QUIET_S = 0.1
"""A stopping server closes its connections once no request has come for so long."""
_LOOKS_MAX = 20
"""How often it waits for that."""
_GONE = (errno.ECONNABORTED, errno.EINTR)


@dataclasses.dataclass(frozen=True, slots=True)
class ServerConfig:
    """Limits of a server. Sizes are bytes."""

    idle_s: float = 120.0
    """A connection with neither reads nor writes for so long is closed."""
    first_byte_s: float = 5.0
    """Under pressure a connection that says nothing for so long after it was accepted is closed;
    otherwise one that has said nothing yet is closed like any other idle one."""
    pressure_share: float = 0.5
    """There is pressure from this share of `connections_max` on, and when descriptors run out."""
    connections_max: int = 20_000
    connections_per_address_max: int = 10_000
    """At a time, and as many may come at once."""
    accepts_per_second_max: int = 1_000
    """Of one address, for ever; more are closed at once. 0 is no limit."""
    frame_size_max: int = FRAME_SIZE_MAX
    process_bytes_max: int = 512 * MIB
    """Incomplete frames and output of all connections together."""
    connection_bytes_max: int = 32 * MIB
    in_hand_max: int = 16 * MIB
    """Bodies of one connection's requests that may be worked on before it is read no further."""
    high_water: int = MIB
    """Output of a connection above which it is neither read nor served."""
    low_water: int | None = None
    backlog: int = 1024
    drain_s: float = 5.0
    """How long a stop waits for requests in hand."""
    encoding: int = 0
    """Header encoding of replies: 0 JSON, 1 binary."""


class Server:
    """One listening port and its connections. A service."""

    def __init__(
        self,
        *,
        host: str,
        port: int,
        router: Router,
        clock: Clock,
        config: ServerConfig | None = None,
        on_close: Callable[[Peer], None] | None = None,
        ingest: Ingest | None = None,
        tls: ServerTls | None = None,
        on_answer: OnAnswer | None = None,
        waits: KernelWaits | None = None,
        native: NativePort | None = None,
        balancers: Sequence[Network] = (),
    ) -> None:
        """Listen nowhere yet. An empty `host` means all addresses, port 0 any free one.

        While `native` is open it serves all connections but those that OpenSSL has to serve. Peers
        in `balancers` are believed when they say for whom they speak.
        """
        self._native = native
        self.before_answer = None if native is None else native.connections.refresh
        self.on_answer = on_answer
        self._waits = waits
        self._host = host
        self._port = port
        self._router = router
        self._clock = clock
        self.now_ms = clock.now_ms
        self._config = config or ServerConfig()
        self.encoding: int = self._config.encoding
        """Header encoding of replies."""
        self._on_close = on_close
        self._ingest = ingest or PlainIngest(self._config.frame_size_max)
        self._tls = tls
        self._budget = (Budget if native is None else native.budget)(self._config.process_bytes_max)
        self._connection_config = ConnectionConfig(
            bytes_max=self._config.connection_bytes_max,
            in_hand_max=self._config.in_hand_max,
            high_water=self._config.high_water,
            low_water=self._config.low_water,
        )
        self._buffer = memoryview(bytearray(RECEIVE_SIZE))
        self._sealed = memoryview(bytearray(SEALED_SIZE if tls is not None and tls.is_on else 0))
        self._log = RateLog(log, clock)
        self._tasks = Tasks()
        self._clock_jumps = ClockJumpDetector()
        self._socket: socket.socket | None = None
        self._listening = False
        self._stopping = False
        """Nobody new is let in, and peers that know how are sent elsewhere."""
        self._refuses = False
        """What was in hand is done: whoever still asks is refused."""
        self._closes = False
        self._connections: dict[int, Connection] = {}
        self._addresses: dict[int, str] = {}
        self._per_address: Counter[str] = Counter()
        self._rate = AcceptRate(
            self._config.accepts_per_second_max, self._config.connections_per_address_max
        )
        self._silent = SilentConnections()
        self._balancers = Balancers(balancers, clock)
        self._short_for_s = 0
        """Seconds for which descriptors still count as short."""
        self._in_hand = self._requests = 0
        self._idle: asyncio.Event = asyncio.Event()

    @property
    def port(self) -> int:
        """The port that is listened on (the one asked for, before start)."""
        return self._port

    @property
    def connections(self) -> int:
        """How many connections there are, those included that have said nothing yet."""
        return len(self._addresses)

    @property
    def in_hand(self) -> int:
        """How many requests are being worked on."""
        return self._in_hand

    @property
    def bytes_kept(self) -> int:
        """Bytes of incomplete frames and output of all connections."""
        beside = 0 if self._native is None else self._native.connections.used
        return self._budget.used + beside

    def peers(self) -> Iterable[Peer]:
        """Return the connections that are there now."""
        return tuple(self._connections.values())

    def find(self, key: int) -> Connection | None:
        """Return a connection by its key."""
        return self._connections.get(key)

    def late(self, key: int, command: Command, received_ms: int | None = None) -> Request | None:
        """Return a request that is no work in hand, and when it came; None: its peer has gone."""
        if (connection := self._connections.get(key)) is None:
            return None
        received_ms = received_ms or connection.last_ms
        reply = Reply(self, connection, command, received_ms)
        reply.held = True
        return Request(command, connection, received_ms, reply)

    async def start(self) -> None:
        """Listen. Raises UsageError when the address cannot be had."""
        family = socket.AF_INET6 if ":" in self._host else socket.AF_INET
        try:
            listening = socket.create_server(
                (self._host, self._port), family=family, backlog=self._config.backlog
            )
        except (OSError, OverflowError) as error:
            where = f"{self._host or '0.0.0.0'}:{self._port}"  # noqa: S104  (only said)
            raise cannot_listen(where, error) from error
        listening.setblocking(False)
        self._socket = listening
        self._port = listening.getsockname()[1]
        self._stopping = self._refuses = self._closes = False
        self._tasks = Tasks()
        self._tasks.repeat(
            self._sweep, self._clock, name="close idle connections", every_s=1, first_after_s=1
        )
        self._listen()

    async def stop(self) -> None:
        """Accept no more, finish the requests in hand, send peers away, close."""
        self._stopping = True
        if self._listening:
            self._accept()  # those whom the kernel has let in get an answer as well
        self._deaf()
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        await self._until_idle(lambda: self._in_hand == 0, self._config.drain_s)
        self._refuses = True
        await self._until_quiet()
        self._closes = True
        for connection in tuple(self._connections.values()):
            connection.close("")
        await self._tasks.stop()
        await self._until_idle(lambda: not self._connections, 1.0)
        for connection in tuple(self._connections.values()):
            connection.abort()
        await self._until_idle(lambda: not self._connections, 1.0)

    # --- accepting -------------------------------------------------------------------------

    def _listen(self) -> None:
        if not self._listening and not self._stopping and self._socket is not None:
            asyncio.get_running_loop().add_reader(self._socket, self._accept)
            self._listening = True

    def _deaf(self) -> None:
        if self._listening and self._socket is not None:
            asyncio.get_running_loop().remove_reader(self._socket)
        self._listening = False

    def _accept(self) -> None:
        for _ in range(64):
            if self._socket is None:
                return
            if len(self._addresses) >= self._config.connections_max:
                self._log.warning("full", f"{len(self._addresses)} connections: accepting paused")
                self._deaf()
                return
            try:
                accepted, peer = self._socket.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno in _GONE:
                    continue
                # Out of descriptors, say. The sweep listens again: no spinning meanwhile.
                self._short_for_s = _SHORT_S
                self._log.warning("accept", f"accepting paused: {error}")
                self._deaf()
                return
            self._admit(accepted, str(peer[0]), int(peer[1]))

    def _admit(self, accepted: socket.socket, host: str, port: int) -> None:
        accepted.setblocking(False)
        if self._per_address[host] >= self._config.connections_per_address_max:
            self._log.warning(("many", host), f"{host} has too many connections: one was closed")
            accepted.close()
            return
        if not self._rate.takes(host, self._clock.now_ms()):
            self._log.warning(("fast", host), f"{host} connects too fast: one was closed")
            accepted.close()
            return
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        key = next(KEYS)
        self._addresses[key] = host
        self._per_address[host] += 1
        self._tasks.spawn(self._welcome(accepted, key, join_address(host, port)), "accept")

    async def _welcome(self, accepted: socket.socket, key: int, address: str) -> None:
        """Look at the first byte without taking it, then make the transport that it asks for."""
        try:
            first, address = await self._balancers.begin(
                accepted, address, lambda: self._first_byte(accepted, key)
            )
            if first is None or self._closes or not self._speaks(first, address):
                accepted.close()
                return
            tls = None if first != CLIENT_HELLO or self._tls is None else self._tls.context
            if self._native is not None and self._native.takes(tls):
                await self._native.adopt(
                    accepted,
                    tls,
                    owner=self,
                    key=key,
                    address=address,
                    budget=self._budget,
                    config=self._connection_config,
                    waits=self._waits,
                )
                return
            connection = Connection(
                owner=self,
                key=key,
                address=address,
                ingest=self._ingest,
                buffer=self._buffer,
                budget=self._budget,
                config=self._connection_config,
                waits=self._waits,
                own=accepted,
            )
            if tls is None:
                loop = asyncio.get_running_loop()
                await loop.connect_accepted_socket(lambda: connection, accepted)
            else:
                await accept_tls(accepted, connection, tls, self._sealed)
        except HandshakeError as error:
            self._tls_failed(address, str(error))
            accepted.close()
        except OSError:
            accepted.close()
        except asyncio.CancelledError:
            accepted.close()
            raise
        finally:
            if key not in self._connections:
                self._forget(key)

    def _speaks(self, first: int, address: str) -> bool:
        """Tell whether a connection that begins so is taken; one that is not is logged."""
        host = address.rpartition(":")[0]
        if first == CLIENT_HELLO:
            if self._tls is not None and self._tls.context is not None:
                return True
            why = "TLS is off here" if self._tls is None else self._tls.why_not
            self._log.warning(("tls", host), f"{address} wants TLS and is closed: {why}")
            return False
        if self._tls is not None and self._tls.required:
            self._log.warning(
                ("plain", host),
                f"{address} does not speak TLS and is closed: tls.server.mode is enforcing",
            )
            return False
        return True

    def _tls_failed(self, address: str, reason: str) -> None:
        text = f"{address} is closed: no TLS could be agreed on ({reason.replace('_', ' ')})"
        self._log.warning(("handshake", address.rpartition(":")[0]), text)

    async def _first_byte(self, accepted: socket.socket, key: int) -> int | None:
        """Return the first byte, or None when the peer left or said nothing in time."""
        try:
            peeked = accepted.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            if not await self._silent.readable(key, accepted.fileno(), self.now_ms()):
                return None
            peeked = accepted.recv(1, socket.MSG_PEEK)
        return peeked[0] if peeked else None

    # --- what connections ask of their owner -----------------------------------------------------

    def opened(self, connection: Connection) -> None:
        """Know a new connection."""
        self._connections[connection.key] = connection

    def closed(self, connection: Connection) -> None:
        """Forget a connection and tell who wants to know."""
        if self._connections.pop(connection.key, None) is None:
            return
        self._forget(connection.key)
        self._wake()
        if self._on_close is not None:
            self._on_close(connection)

    def request(self, connection: Connection, command: Command) -> None:
        """Give a request to the router, or send the peer away when stopping."""
        self._in_hand += 1
        self._requests += 1
        request = Request(
            command,
            connection,
            connection.received_ms,
            Reply(self, connection, command, connection.last_ms),
            self._done,
        )
        # What wants no answer, such as offsets, cannot be sent again elsewhere.
        if not self._stopping or command.is_one_way:
            self._router.dispatch(request)
            if request.is_proven:
                connection.prove()
        elif command.version > V5_3_1:
            request.reply(reply_to(command, ResponseCode.GO_AWAY, remark="please go away"))
            self._done(request)
        elif self._refuses:
            code = ResponseCode.SERVICE_NOT_AVAILABLE
            request.reply(reply_to(command, code, remark="the server is stopping"))
            self._done(request)
        else:
            self._router.dispatch(request)

    def complain(self, connection: Connection, what: str) -> None:
        """Log what a peer did wrong, one line per address and span."""
        host = connection.address.rpartition(":")[0]
        self._log.warning((host, what[:24]), f"{connection.address} is closed: {what}")

    # --- inside ----------------------------------------------------------------------------

    def _done(self, request: Request) -> None:
        self._in_hand -= 1
        if isinstance(request.reply, Reply):
            request.reply.held = True
        connection = self._connections.get(request.peer.key)
        if connection is not None:
            connection.done(request.command)
        else:
            self._budget.in_hand -= len(request.command.body)
        if self._stopping:
            self._wake()

    def _forget(self, key: int) -> None:
        host = self._addresses.pop(key, None)
        if host is None:
            return
        self._per_address[host] -= 1
        if not self._per_address[host]:
            del self._per_address[host]
        if not self._listening and len(self._addresses) < self._config.connections_max:
            self._listen()

    def _sweep(self) -> None:
        """Close idle connections, give up late calls, listen again after an error."""
        now_ms = self._clock.now_ms()
        before_ms = now_ms - int(self._config.idle_s * 1000)
        jumped_ms = self._clock_jumps.jumped(now_ms)
        self._close_silent(now_ms, before_ms, jumped_ms)
        for connection in tuple(self._connections.values()):
            if jumped_ms:
                connection.clock_was_set(jumped_ms, now_ms)
            connection.expire(now_ms)
            if connection.last_heard_ms(now_ms) < before_ms and not connection.in_hand:
                log.debug("%s is closed: idle", connection.address)
                # A peer that takes nothing would keep its descriptor until all was written.
                connection.abort() if connection.has_unsent else connection.close("")
        if len(self._addresses) < self._config.connections_max:
            self._listen()

    def _close_silent(self, now_ms: int, before_ms: int, jumped_ms: int) -> None:
        """Close connections that have said nothing for too long; sooner when places run short."""
        if jumped_ms:
            self._silent.clock_was_set(jumped_ms)
        self._short_for_s = max(0, self._short_for_s - 1)
        config = self._config
        crowded = len(self._addresses) >= config.connections_max * config.pressure_share
        if crowded or self._short_for_s:
            before_ms = max(before_ms, now_ms - int(config.first_byte_s * 1000))
        closed = self._silent.give_up(before_ms)
        if closed:
            log.debug("%d connections that have said nothing are closed", closed)

    def _wake(self) -> None:
        self._idle.set()

    async def _until_quiet(self) -> None:
        """Answer what peers had sent before they heard of the stop.

        A connection that is closed with a request unread leaves its peer without an answer.
        """
        for _ in range(_LOOKS_MAX):
            before = self._requests
            if not self._addresses:
                return
            await asyncio.sleep(_QUIET_S)  # noqa: TID251  (real sockets, whatever the clock)
            if self._requests == before and not self._in_hand:
                return

    async def _until_idle(self, reached: Callable[[], bool], within_s: float) -> None:
        try:
            async with asyncio.timeout(within_s):
                while not reached():
                    self._idle.clear()
                    await self._idle.wait()
        except TimeoutError:
            log.warning("stopping port %d: not all work ended within %g s", self._port, within_s)
