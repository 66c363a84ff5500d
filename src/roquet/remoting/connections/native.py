"""Connections that threads of the core serve, as the loop sees them.

A thread reads, answers what the table admits and writes; every other frame comes here. The state of
such a connection (requests in hand, calls, pauses) is that of any `Connection`: only its transport
is another.
"""

from __future__ import annotations

import asyncio
import ssl
from typing import TYPE_CHECKING, Protocol

from roquet import _native
from roquet.protocol.codes import RequestCode
from roquet.protocol.hosts import host_bytes
from roquet.remoting.codec import command_of
from roquet.remoting.connections.connection import RECEIVE_SIZE
from roquet.remoting.connections.ingest import FeedResult, Ingest
from roquet.remoting.connections.limits import (
    MIB,
    Budget,
    ConnectionConfig,
    Standing,
    stranger_bounds,
)
from roquet.remoting.connections.native_connection import NativeConnection, NativeTransport
from roquet.remoting.connections.tls_socket import SEALED_SIZE, HandshakeError
from roquet.remoting.tls import HANDSHAKE_S
from roquet.service.background import Tasks

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from roquet._native import Ingest as NativeIngest
    from roquet._native import NetThreads, RemotingTls
    from roquet.protocol.command import Command
    from roquet.remoting.connections.connection import Connection
    from roquet.remoting.connections.owner import ConnectionOwner
    from roquet.remoting.connections.waits import KernelWaits

POPS = frozenset(
    {
        RequestCode.POP_MESSAGE,
        RequestCode.POP_LITE_MESSAGE,
        RequestCode.PEEK_MESSAGE,
        RequestCode.ACK_MESSAGE,
        RequestCode.BATCH_ACK_MESSAGE,
        RequestCode.CHANGE_MESSAGE_INVISIBLETIME,
        RequestCode.NOTIFICATION,
    }
)
"""Requests of connections that pop: the loop decides about them, and serves such connections."""


def threads_here(wanted: int) -> int:
    """Return how many of the wanted threads there can be: none where the core is without epoll."""
    return wanted if hasattr(_native, "NetThreads") else 0


class NativeConnections:
    """The threads and their connections, there from `open` to `close`; one for all ports."""

    def __init__(self, threads: int) -> None:
        """Serve nothing yet; with no threads, never."""
        self._threads = threads
        self._net: NetThreads | None = None
        self._connections: dict[int, NativeConnection] = {}
        self._handshakes: dict[int, asyncio.Future[None]] = {}
        self._ingest: NativeIngest | None = None
        self._tasks = Tasks()
        """Connections on their way back to the loop: two turns of it each."""
        self._budgets: list[Budget] = []
        """What the ports count for connections that the loop serves."""
        self._buffer: memoryview | None = None
        self._sealed: memoryview | None = None
        self.returned = 0
        """How many connections have gone back to the loop."""
        self.bounds = ConnectionConfig()
        """Limits of each connection, from `open` on."""
        self.clock_stands = False
        """Whether the clock moves only when that is told: one of tests."""
        self.refresh: Callable[[], None] = _nothing
        """Brings the rows up to date: an answer is about to be written."""
        self.settle: Callable[[], None] = _nothing
        """Books what the threads have counted: handlers are about to ask."""
        self.resume: Callable[[int, Command], None] = _nowhere
        """Takes a held pull that may no longer be answered by a thread."""
        self.asked: Callable[[], None] = _nothing
        """Hears that a peer has written: with news, and after `is_quiet` without."""
        self.serve: Callable[[], None] = _nothing
        """Answers the held pulls that are due on the loop."""

    @property
    def threads(self) -> int:
        """How many threads there are once it is open."""
        return self._threads

    @property
    def is_open(self) -> bool:
        """Whether there are threads."""
        return self._net is not None

    @property
    def used(self) -> int:
        """Bytes kept for all their connections."""
        return 0 if self._net is None else self._net.used()

    def open(
        self,
        ingest: NativeIngest | None,
        *,
        frame_size_max: int,
        total_max: int = 512 * MIB,
    ) -> None:
        """Start the threads, each with an ingest of `ingest`; on the loop.

        Raises OSError.
        """
        if not self._threads:
            return
        self._net = _native.NetThreads(
            self._threads,
            ingest,
            frame_size_max=frame_size_max,
            connection_max=self.bounds.bytes_max,
            total_max=total_max,
            water=self.bounds.water,
            strangers=stranger_bounds(total_max),
        )
        self._ingest = ingest
        loop = asyncio.get_running_loop()
        for thread, descriptor in enumerate(self._net.descriptors()):
            loop.add_reader(descriptor, self._news, thread)

    def close(self) -> None:
        """End the threads and what is left of their connections."""
        net, self._net = self._net, None
        self._ingest = None  # it keeps the store and its descriptors
        if net is None:
            return
        loop = asyncio.get_running_loop()
        for descriptor in net.descriptors():
            loop.remove_reader(descriptor)
        net.stop()
        for connection in tuple(self._connections.values()):
            self._lost(connection)

    def port(self, *, pulls: bool, popped: OnLoop | None = None) -> NativePort:
        """Return what one port gives its connections to."""
        return NativePort(self, popped, pulls=pulls)

    def fail(self, remark: str) -> None:
        """Refuse all sends that wait for a flush."""
        if self._net is not None:
            self._net.fail(remark)

    def set_replicated(self, offset: int) -> None:
        """Tell how far slaves have copied the log."""
        if self._net is not None:
            self._net.set_replicated(offset)

    def lapse(self, offset: int) -> None:
        """Tell that no slave can prove a copy up to `offset`."""
        if self._net is not None:
            self._net.lapse(offset)

    def removed(self, topic: str) -> None:
        """Have pulls answered that wait for a topic that has gone."""
        if self._net is not None:
            self._net.removed(topic)

    def tell_time(self, now_ms: int) -> None:
        """Have the threads go by the clock that says this now, and know what the loop keeps."""
        if self._net is not None:
            self._net.set_now(now_ms, self.clock_stands)
            self._net.set_beside(sum(budget.used for budget in self._budgets))

    def is_quiet(self) -> bool:
        """Tell whether no peer has written since this was asked; the first wakes the loop."""
        return self._net is None or self._net.listen()

    def budget(self, bytes_max: int) -> Budget:
        """Return a port's, for its connections on the loop: one bound for all ports and threads.

        The threads hear of the loop's with the time, some moments late.
        """
        budget = Budget(bytes_max)
        self._budgets.append(budget)
        budget.beside = lambda: (
            self.used + sum(other.used for other in self._budgets if other is not budget)
        )
        return budget

    async def adopt(
        self,
        own: socket.socket,
        connection: NativeConnection,
        tls: RemotingTls | None,
        *,
        pulls: bool,
    ) -> None:
        """Give a connected socket to a thread; `own` is empty afterwards.

        With `tls` wait until it is agreed on. Raises HandshakeError.
        """
        if tls is None:
            self._give(own, connection, None, pulls=pulls)
            connection.connection_made(connection.transport)
            return
        waiting = self._handshakes[connection.key] = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(HANDSHAKE_S):
                self._give(own, connection, tls, pulls=pulls)
                await waiting
        except TimeoutError:
            why = f"not within {HANDSHAKE_S:g} s"
            raise HandshakeError(why) from None
        finally:
            # The error's frames hold the future, and the future the error: a cycle that would keep
            # the connection until it is collected.
            del self._handshakes[connection.key], waiting
            if connection.key in self._connections and not connection.is_open:
                connection.transport.abort()

    def _give(
        self,
        own: socket.socket,
        connection: NativeConnection,
        tls: RemotingTls | None,
        *,
        pulls: bool,
    ) -> None:
        assert self._net is not None, "the threads do not run"
        try:
            host = host_bytes(connection.address)
        except ValueError:
            host = b""
        connection.net = self._net.adopt(own.detach(), connection.key, host, pulls, tls)
        connection.transport = NativeTransport(connection.net, connection)
        self._connections[connection.key] = connection

    def find(self, key: int) -> NativeConnection | None:
        """Return a connection by its key."""
        return self._connections.get(key)

    def _news(self, thread: int) -> None:
        net = self._net
        if net is None:
            return
        self.asked()
        news = net.take(thread)
        # A handler may ask for figures: let them be right.
        self.settle()
        for what, key, frames, at_ms, waited_ms, size, why, count, raw in news:
            connection = self._connections.get(key)
            if connection is None:
                continue
            if what == "frames":
                connection.begins_with(size)
                if raw:
                    fed = connection.decide(raw)
                else:
                    fed = FeedResult(b"", [command_of(frame) for frame in frames], broken=why)
                connection.take_frames(fed, (at_ms, waited_ms), count)
                if raw or any(command.code in POPS for command in fed.commands):
                    # Behind what it has read, so that this is taken in its order.
                    connection.ask_back()
            elif what == "left":
                self.resume(key, command_of(frames[0]))
            elif what == "closed":
                self._lost(connection, why)
            else:
                self._goes_on(connection, what)
        # Leavers and questions without an answer change rows as well.
        self.refresh()

    def _goes_on(self, connection: NativeConnection, what: str) -> None:
        if what == "agreed":
            self._agreed(connection)
        elif what == "drained":
            connection.transport.drained()
        elif what == "stays":
            connection.stays()
        else:
            assert what == "back", what
            del self._connections[connection.key]
            self._tasks.spawn(connection.come_home(), "a connection's way back")

    @property
    def buffer(self) -> memoryview:
        """What connections are read into that have come back; made with the first."""
        if self._buffer is None:
            self._buffer = memoryview(bytearray(RECEIVE_SIZE))
        return self._buffer

    @property
    def sealed(self) -> memoryview:
        """What sockets of those over TLS are read into; made with the first."""
        if self._sealed is None:
            self._sealed = memoryview(bytearray(SEALED_SIZE))
        return self._sealed

    def take_over(self, connection: NativeConnection) -> bytes:
        """Give the loop what a thread knew of a connection; return the start of a frame."""
        self.returned += 1
        kept, due = connection.net.take_back(
            self._ingest, works=connection.in_hand > 0, waits=connection.has_kept_back
        )
        if due:
            self.serve()
        return kept

    def _agreed(self, connection: NativeConnection) -> None:
        waiting = self._handshakes.get(connection.key)
        if waiting is not None and not waiting.done():
            connection.connection_made(connection.transport)
            waiting.set_result(None)

    def _lost(self, connection: NativeConnection, why: str = "") -> None:
        del self._connections[connection.key]
        waiting = self._handshakes.get(connection.key)
        if waiting is not None and not waiting.done():
            waiting.set_exception(HandshakeError(why or "the peer has gone"))
        else:
            connection.ended(why)
        connection.transport.lost()


class OnLoop(Ingest, Protocol):
    """An ingest of the loop that decides what threads leave to it, or serves what comes back."""

    def enter(self, key: int, address: str) -> None:
        """Know a connection of another thread."""
        ...

    def leave(self, key: int) -> None:
        """Forget it."""
        ...


class NativePort:
    """The threads as one port's connections see them (`remoting.ingest.Ingest`)."""

    def __init__(
        self, connections: NativeConnections, popped: OnLoop | None = None, *, pulls: bool
    ) -> None:
        """Serve a port with or without pulls; `popped` decides about popped messages."""
        self.connections = connections
        self._popped = popped
        self._entered: set[int] = set()
        """Connections that `popped` knows."""
        self._pulls = pulls

    def budget(self, bytes_max: int) -> Budget:
        """Return what the port counts for its connections on the loop."""
        return self.connections.budget(bytes_max)

    @property
    def is_open(self) -> bool:
        """Whether connections are taken."""
        return self.connections.is_open

    def takes(self, tls: RemotingTls | ssl.SSLContext | None) -> bool:
        """Tell whether a connection over this TLS is taken: one of OpenSSL is the loop's."""
        return self.is_open and not isinstance(tls, ssl.SSLContext)

    async def adopt(
        self,
        own: socket.socket,
        tls: RemotingTls | ssl.SSLContext | None,
        *,
        owner: ConnectionOwner[Connection],
        key: int,
        address: str,
        budget: Budget,
        config: ConnectionConfig,
        waits: KernelWaits | None = None,
    ) -> None:
        """Serve a connected socket, which is empty afterwards. Raises HandshakeError."""
        assert not isinstance(tls, ssl.SSLContext), "`takes` has looked"
        connection = NativeConnection(
            owner=owner,
            key=key,
            address=address,
            ingest=self,
            buffer=_NO_BUFFER,
            budget=budget,
            config=config,
            waits=waits,
        )
        if self._popped is not None:
            connection.home = self
        await self.connections.adopt(own, connection, tls, pulls=self._pulls)

    @property
    def buffer(self) -> memoryview:
        """What connections are read into that have come back."""
        return self.connections.buffer

    @property
    def sealed(self) -> memoryview:
        """What sockets of those over TLS are read into."""
        return self.connections.sealed

    def enter(self, key: int) -> Ingest:
        """Return what decides about a connection that has come back."""
        assert self._popped is not None, "nothing comes back where nobody decides"
        self._entered.discard(key)
        return self._popped

    def take_over(self, connection: NativeConnection) -> bytes:
        """Take what a thread knew of a connection; return the start of a frame."""
        return self.connections.take_over(connection)

    def open(self, key: int, address: str) -> None:
        """Nothing: the thread knows it already."""

    def feed(
        self, key: int, data: memoryview, now_ms: int, fd: int | None = None
    ) -> FeedResult | bytes:
        """Take whole frames that a thread has read and left to the loop."""
        del fd
        assert self._popped is not None, "threads leave them only where somebody decides"
        if key not in self._entered:
            connection = self.connections.find(key)
            assert connection is not None, "it has not ended"
            self._entered.add(key)
            self._popped.enter(key, connection.address)
        return self._popped.feed(key, data, now_ms)

    def resume(self, key: int) -> FeedResult:
        """Nothing is kept by the loop."""
        del key
        return FeedResult(b"", [])

    def idle(self, key: int) -> None:
        """Let the thread answer the connection's frames again."""
        connection = self.connections.find(key)
        if connection is not None:
            connection.finish()
        if self._popped is not None and key in self._entered:
            self._popped.idle(key)

    def held(self, key: int) -> int:
        """Bytes that the loop keeps of it: none."""
        del key
        return 0

    def standing(self, key: int) -> Standing:
        """Everybody counts as proven: nothing is kept by the loop."""
        del key
        return Standing.PROVEN

    def prove(self, key: int) -> None:
        """Tell the connection's thread."""
        connection = self.connections.find(key)
        if connection is not None:
            connection.net.prove()

    def close(self, key: int) -> None:
        """Have it forgotten where the loop knows it; the thread has forgotten it."""
        if self._popped is not None and key in self._entered:
            self._entered.remove(key)
            self._popped.leave(key)


_NO_BUFFER = memoryview(bytearray(0))


def _nothing() -> None:
    """Do nothing, as long as nobody has said what."""


def _nowhere(key: int, what: object) -> None:
    """Drop what is for a connection, as long as nobody has said how to reach one."""
    del key, what
