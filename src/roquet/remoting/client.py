"""The calling side: one cached connection per address, many requests in flight on each."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import socket
from typing import TYPE_CHECKING, Self

from roquet.base.errors import OutcomeUnknown, Unreachable, UsageError
from roquet.base.limits import FRAME_SIZE_MAX
from roquet.protocol.codes import ResponseCode
from roquet.protocol.command import reply_to
from roquet.remoting.connections.connection import KEYS, RECEIVE_SIZE, Connection
from roquet.remoting.connections.in_flight import ClockJumpDetector
from roquet.remoting.connections.ingest import PlainIngest
from roquet.remoting.connections.limits import (
    MIB,
    Budget,
    ConnectionConfig,
    OutgoingConfig,
    WriteBufferConfig,
)
from roquet.remoting.router import Request, Route, Router
from roquet.remoting.tls import HANDSHAKE_S, SHUTDOWN_S, why_not_connected, why_not_plain
from roquet.service.background import Tasks
from roquet.service.lanes import LaneConfig, Lanes
from roquet.service.ratelog import RateLog

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from roquet.base.clock import Clock
    from roquet.protocol.command import Command
    from roquet.remoting.connections.ingest import Ingest
    from roquet.remoting.router import Peer
    from roquet.remoting.tls import ClientTls

log = logging.getLogger(__name__)

FAILED_MAX = 256
"""Addresses whose last failure is remembered."""
_LATE_MS = 1000
"""How long after its deadline the scan gives up a call that its own timer has not."""


@dataclasses.dataclass(frozen=True, slots=True)
class ClientConfig:
    """Limits of a client. Sizes are bytes."""

    connect_s: float = 3.0
    idle_s: float = 120.0
    """A connection with neither reads nor writes for so long is closed."""
    calls_max: int = 65_535
    """Calls that may wait for an answer, over all connections."""
    one_way_max: int = 65_535
    """One-way requests that may wait for a peer that takes nothing."""
    frame_size_max: int = FRAME_SIZE_MAX
    bytes_max: int = 512 * MIB
    high_water: int = MIB
    low_water: int | None = None
    send_buffer: int = 0
    receive_buffer: int = 0
    """Socket buffer sizes; 0 leaves them to the system."""
    handlers_at_once: int = 64
    handlers_waiting_max: int = 10_000
    encoding: int = 0
    """Header encoding of answers to the peer's requests: 0 JSON, 1 binary."""

    @classmethod
    def of(cls, outgoing: OutgoingConfig, write_buffer: WriteBufferConfig) -> Self:
        """Return what these settings say."""
        high, low = write_buffer.marks
        return cls(
            connect_s=outgoing.connect_ms / 1000,
            idle_s=outgoing.idle_s,
            send_buffer=outgoing.send_buffer,
            receive_buffer=outgoing.receive_buffer,
            high_water=high,
            low_water=low,
        )


@dataclasses.dataclass(slots=True)
class _Slot:
    """What is known of one address."""

    lock: asyncio.Lock = dataclasses.field(default_factory=asyncio.Lock)
    connection: Connection | None = None


class Client:
    """Calls peers by address. A service; it answers what peers ask back on its connections."""

    def __init__(
        self,
        *,
        clock: Clock,
        config: ClientConfig | None = None,
        handlers: Sequence[Route] = (),
        on_close: Callable[[Peer], None] | None = None,
        tls: ClientTls | None = None,
        sign: Callable[[Command], Command] | None = None,
        explain_tls: bool = False,
    ) -> None:
        """Connect nowhere yet. `handlers` answer requests that come from the other side.

        With `explain_tls` a peer that closes a connection without an answer is asked once more,
        whether it wants TLS: the error then says so.
        """
        self._explain_tls = explain_tls and tls is None
        self._tls = tls
        self._sign = sign
        self._clock = clock
        self._config = config or ClientConfig()
        self._on_close = on_close
        names = dict.fromkeys(route.lane for route in handlers)
        self._lanes = Lanes(
            [
                LaneConfig(name, self._config.handlers_at_once, self._config.handlers_waiting_max)
                for name in names
            ],
            clock,
        )
        self._router = Router(handlers, None, self._lanes, clock)
        self._ingest = PlainIngest(self._config.frame_size_max)
        self._budget = Budget(self._config.bytes_max)
        self._buffer = memoryview(bytearray(RECEIVE_SIZE))
        self._connection_config = ConnectionConfig(
            bytes_max=self._config.bytes_max,
            calls_max=self._config.calls_max,
            high_water=self._config.high_water,
            low_water=self._config.low_water,
            stops_reading=False,
            frame_max=self._config.frame_size_max,
        )
        self._log = RateLog(log, clock)
        self._tasks = Tasks()
        self._clock_jumps = ClockJumpDetector()
        self._slots: dict[str, _Slot] = {}
        self._failed: dict[str, Unreachable] = {}
        """Why the last try to reach an address failed."""
        self._connections: dict[int, Connection] = {}
        self._calls = 0
        self._one_ways_waiting = 0
        self._stopped = False

    async def start(self) -> None:
        """Begin the scan for late calls and idle connections."""
        self._stopped = False
        self._tasks.repeat(
            self._scan, self._clock, name="scan calls", every_s=1.0, first_after_s=3.0
        )

    async def stop(self) -> None:
        """Close every connection; calls that wait end with OutcomeUnknown."""
        self._stopped = True
        await self._tasks.stop()
        await self._lanes.stop()
        connections = tuple(self._connections.values())
        for connection in connections:
            connection.close("")
        for _ in range(100):
            if not self._connections:
                break
            await asyncio.sleep(0.01)  # noqa: TID251  (real sockets, whatever the clock)
        for connection in tuple(self._connections.values()):
            connection.abort()

    async def call(self, address: str, command: Command, timeout_s: float = 3.0) -> Command:
        """Ask the peer at `host:port`; return its answer, whatever its code.

        Raises Unreachable when nothing was sent, OutcomeUnknown when it was and no answer came,
        RequestTooLong, UsageError when `address` is none.
        """
        if self._calls >= self._config.calls_max:
            raise Unreachable("too many calls wait for an answer")
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        self._calls += 1
        try:
            connection = self._open_at(address) or await self._connected(address, timeout_s)
            if self._sign is not None:
                command = self._sign(command)
            answer = await self._ask(connection, command, deadline)
            if answer.code == ResponseCode.GO_AWAY and deadline > loop.time():
                # The peer is stopping and has not looked at the request: once more, elsewhere
                # perhaps, since a new connection may meet the peer that took its place.
                self._retire(address, connection)
                connection = await self._connected(address, deadline - loop.time())
                answer = await self._ask(connection, command, deadline)
            return answer
        finally:
            self._calls -= 1

    async def _ask(self, connection: Connection, command: Command, deadline: float) -> Command:
        left_s = deadline - asyncio.get_running_loop().time()
        if left_s <= 0:
            raise Unreachable(
                f"connecting to {connection.address} took all the time that there was"
            )
        if connection.is_stuck:
            # What waits here has not left, and is not kept a second time as a frame.
            await connection.drained(left_s)
            left_s = deadline - asyncio.get_running_loop().time()
        try:
            return await connection.call(command, left_s)
        except OutcomeUnknown:
            if self._explain_tls and not connection.has_answered and not connection.is_open:
                mismatch = await asyncio.to_thread(why_not_plain, connection.address)
                if mismatch is not None:
                    raise mismatch from None
            raise

    async def call_one_way(self, address: str, command: Command, timeout_s: float = 3.0) -> None:
        """Tell the peer at `host:port`. Raises Unreachable when it could not be handed over."""
        if self._one_ways_waiting >= self._config.one_way_max:
            raise Unreachable("too many one-way requests wait")
        self._one_ways_waiting += 1
        try:
            connection = await self._connected(address, timeout_s)
            await connection.drained(timeout_s)
            connection.send_one_way(command if self._sign is None else self._sign(command))
        finally:
            self._one_ways_waiting -= 1

    async def connect(self, address: str, timeout_s: float = 3.0) -> Peer:
        """Return the cached connection to `host:port`, made when there is none."""
        return await self._connected(address, timeout_s)

    async def dial(
        self, address: str, timeout_s: float = 3.0, ingest: Ingest | None = None
    ) -> Connection:
        """Return a new connection to `host:port`, for the caller alone, who closes it.

        It is kept within the limits of this client and closed with it; `handlers` and `on_close`
        tell it from others by its key. What it reads goes to `ingest` if there is one. Raises
        Unreachable, UsageError when `address` is none.
        """
        if self._stopped:
            raise Unreachable("the client is stopped")
        host, port = split_address(address)
        try:
            async with asyncio.timeout(min(timeout_s, self._config.connect_s)):
                return await self._connect(host, port, address, ingest)
        except TimeoutError:
            raise Unreachable(f"{address} did not accept a connection in time") from None
        except OSError as error:
            raise why_not_connected(address, error, uses_tls=self._tls is not None) from error

    def can_go_beside(self, address: str) -> bool:
        """Tell whether a thread may ask `host:port` on a plain socket of its own; any may ask.

        That is while this client's own connection stands, and not with TLS, whose handshake and
        explanations of failures are for the loop.
        """
        return self._tls is None and not self._stopped and self._open_at(address) is not None

    @property
    def sign(self) -> Callable[[Command], Command] | None:
        """What signs each request, where there are credentials."""
        return self._sign

    def disconnect(self, address: str) -> None:
        """Close the connection to `host:port` if there is one; the next call makes a new one."""
        slot = self._slots.get(address)
        if slot is not None and slot.connection is not None:
            slot.connection.close("")

    def key_of(self, address: str) -> int | None:
        """Return the key of the open connection to `host:port`, None when there is none."""
        shared = self._open_at(address)
        return None if shared is None else shared.key

    def connected(self) -> list[str]:
        """Return the addresses with an open connection."""
        return [
            a for a, s in self._slots.items() if s.connection is not None and s.connection.is_open
        ]

    # --- what connections ask of their owner -----------------------------------------------------

    def now_ms(self) -> int:
        """Return the time."""
        return self._clock.now_ms()

    def opened(self, connection: Connection) -> None:
        """Know a new connection."""
        self._connections[connection.key] = connection

    def closed(self, connection: Connection) -> None:
        """Forget a connection."""
        self._connections.pop(connection.key, None)
        for address, slot in tuple(self._slots.items()):
            if slot.connection is connection:
                slot.connection = None
                if not slot.lock.locked():
                    del self._slots[address]
        if self._on_close is not None:
            self._on_close(connection)

    def request(self, connection: Connection, command: Command) -> None:
        """Have a request of the peer answered."""
        replied = False

        def reply(answer: Command) -> None:
            nonlocal replied
            if replied or command.is_one_way:
                return
            replied = True
            answer.opaque = command.opaque
            answer.encoding = self._config.encoding
            connection.reply(answer)

        request = Request(command, connection, connection.last_ms, reply, self._done)
        if self._stopped:
            reply(reply_to(command, ResponseCode.SYSTEM_ERROR, remark="the client is stopping"))
            self._done(request)
            return
        self._router.dispatch(request)

    def complain(self, connection: Connection, what: str) -> None:
        """Log what a peer did wrong."""
        self._log.warning(
            (connection.address, what[:24]), f"connection to {connection.address}: {what}"
        )

    # --- inside ----------------------------------------------------------------------------

    def _done(self, request: Request) -> None:
        connection = self._connections.get(request.peer.key)
        if connection is not None:
            connection.done(request.command)
        else:
            self._budget.in_hand -= len(request.command.body)

    def _retire(self, address: str, connection: Connection) -> None:
        slot = self._slots.get(address)
        if slot is not None and slot.connection is connection:
            slot.connection = None
        if not connection.calls:
            connection.close("")

    def _open_at(self, address: str) -> Connection | None:
        slot = self._slots.get(address)
        shared = None if slot is None else slot.connection
        return None if shared is None or not shared.is_open else shared

    async def _connected(self, address: str, timeout_s: float) -> Connection:
        shared = self._open_at(address)
        if shared is not None:
            return shared
        if self._stopped:
            raise Unreachable("the client is stopped")
        host, port = split_address(address)
        slot = self._slots.setdefault(address, _Slot())
        try:
            async with asyncio.timeout(min(timeout_s, self._config.connect_s)):
                async with slot.lock:
                    if slot.connection is None or not slot.connection.is_open:
                        slot.connection = await self._connect(host, port, address)
                        self._failed.pop(address, None)
                    return slot.connection
        except TimeoutError:
            # A caller that tries until its time is over ends with a try that has none: what the
            # tries before it met is the reason.
            earlier = self._failed.get(address)
            if earlier is not None and timeout_s < self._config.connect_s:
                raise type(earlier)(*earlier.args) from None
            raise Unreachable(f"{address} did not accept a connection in time") from None
        except OSError as error:
            why = why_not_connected(address, error, uses_tls=self._tls is not None)
            if len(self._failed) >= FAILED_MAX:
                self._failed.clear()
            self._failed[address] = why
            raise why from error
        finally:
            if (
                slot.connection is None
                and not slot.lock.locked()
                and self._slots.get(address) is slot
            ):
                del self._slots[address]

    async def _connect(
        self, host: str, port: int, address: str, ingest: Ingest | None = None
    ) -> Connection:
        connection = Connection(
            owner=self,
            key=next(KEYS),
            address=address,
            ingest=ingest or self._ingest,
            buffer=self._buffer,
            budget=self._budget,
            config=self._connection_config,
        )
        try:
            host.encode("idna")
        except UnicodeError as error:
            raise OSError(f"{host[:80]!r} is no name of a host") from error
        loop = asyncio.get_running_loop()
        if self._tls is None:
            transport, _ = await loop.create_connection(lambda: connection, host, port)
        else:
            # A peer that does not speak TLS closes the connection, which is an OSError here.
            transport, _ = await loop.create_connection(
                lambda: connection,
                host,
                port,
                ssl=self._tls.context(),
                ssl_handshake_timeout=HANDSHAKE_S,
                ssl_shutdown_timeout=SHUTDOWN_S,
            )
        raw = transport.get_extra_info("socket")
        if raw is not None:
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for option, size in (
                (socket.SO_SNDBUF, self._config.send_buffer),
                (socket.SO_RCVBUF, self._config.receive_buffer),
            ):
                if size:
                    raw.setsockopt(socket.SOL_SOCKET, option, size)
        if self._stopped:
            connection.abort()
            raise Unreachable("the client is stopped")
        return connection

    def _scan(self) -> None:
        now_ms = self._clock.now_ms()
        before_ms = now_ms - int(self._config.idle_s * 1000)
        jumped_ms = self._clock_jumps.jumped(now_ms)
        for connection in tuple(self._connections.values()):
            if jumped_ms:
                connection.clock_was_set(jumped_ms, now_ms)
            connection.expire(now_ms - _LATE_MS)
            if connection.last_ms < before_ms and not connection.calls:
                connection.close("")


def split_address(address: str) -> tuple[str, int]:
    """Split `host:port` (`[v6]:port` too). Raises UsageError."""
    host, colon, port = address.rpartition(":")
    if not colon or not host or not port.isascii() or not port.isdigit() or int(port) > 65_535:
        raise UsageError(f"{address[:80]!r} is no address: it should look like 127.0.0.1:9876")
    return host.removeprefix("[").removesuffix("]"), int(port)
