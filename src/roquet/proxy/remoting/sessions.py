"""The clients of the port, and the connections that each has to brokers.

A client that has gone takes its connections with it: brokers then forget its groups, its held
pulls and its locks as if it had been connected to them.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from typing import TYPE_CHECKING

from roquet.base.errors import Refused, Unreachable
from roquet.protocol.codes import ResponseCode
from roquet.protocol.command import bytes_of
from roquet.protocol.hosts import host_of
from roquet.proxy.remoting.limits import (
    CLIENT_BROKERS_MAX,
    CONNECT_S,
    HEARTBEATS_BYTES_MAX,
    REQUEST_S,
    RETRY_S,
    SMALL_HEARTBEAT_BYTES,
)
from roquet.service.shares import Shares, may_hold

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from roquet.protocol.command import Command
    from roquet.remoting.router import Peer

    Dial = Callable[[str, float], Awaitable[Peer]]

log = logging.getLogger(__name__)


async def _nobody(address: str, _: float) -> Peer:
    raise Unreachable(f"{address}: the proxy has not started")


def copy_of(command: Command) -> Command:
    """Return a command to pass on: what its sender signed stays as it is."""
    return dataclasses.replace(command)


class BrokerConnection:
    """A client's connection to one broker."""

    __slots__ = ("address", "answer", "broker", "failure", "heartbeat", "lock", "peer")

    def __init__(self, broker: str, address: str) -> None:
        self.broker = broker
        """The broker's name."""
        self.address = address
        self.peer: Peer | None = None
        self.lock = asyncio.Lock()
        self.heartbeat: Command | None = None
        """The heartbeat that was sent last on this connection."""
        self.answer: Command | None = None
        """The broker's answer to it."""
        self.failure: tuple[float, Unreachable] | None = None
        """When and why it could not be opened last; whoever waits meanwhile need not try again."""

    @property
    def is_open(self) -> bool:
        """Whether there is a connection."""
        return self.peer is not None and self.peer.is_open


class Session:
    """One connection of a client."""

    def __init__(self, peer: Peer, sessions: Sessions) -> None:
        """Know the client that has just said something."""
        self.peer = peer
        self.host = host_of(peer.address)
        self.is_closed = False
        self.heartbeat: Command | None = None
        """The last one, for brokers that the client comes to later."""
        self.routed: dict[str, None] = {}
        """Names of the brokers in the routes that it was given."""
        self.back_calls = 0
        """Requests of brokers that it has not answered."""
        self._sessions = sessions
        self._connections: dict[str, BrokerConnection] = {}
        """By broker name."""
        self._retired: set[BrokerConnection] = set()

    def connections(self) -> Iterator[BrokerConnection]:
        """Return the connections that are open, by broker name."""
        found = (self._connections[name] for name in sorted(self._connections))
        return (connection for connection in found if connection.is_open)

    def remember(self, brokers: set[str]) -> None:
        """Note the brokers of a route; beyond the limit the oldest are forgotten."""
        for name in sorted(brokers)[:CLIENT_BROKERS_MAX]:
            self.routed.pop(name, None)
            self.routed[name] = None
        while len(self.routed) > CLIENT_BROKERS_MAX:
            del self.routed[next(iter(self.routed))]

    async def connection(self, broker: str, address: str) -> Peer:
        """Return the client's connection to a broker, which has had the client's last heartbeat.

        Raises Unreachable, OutcomeUnknown, and Refused for one connection too many.
        """
        if self.is_closed:
            raise Unreachable(f"{self.peer.address} has gone")
        connection = self._connections.get(broker)
        if connection is None or connection.address != address:
            if connection is not None:
                self._retire(connection)
            self._make_room()
            connection = self._connections[broker] = BrokerConnection(broker, address)
        peer = connection.peer
        if peer is not None and peer.is_open and not self._lacks_heartbeat(connection):
            return peer
        async with connection.lock:
            if not connection.is_open:
                await self._open(connection)
            if self._lacks_heartbeat(connection):
                await self._introduce(connection)
            peer = connection.peer
        if peer is None:
            raise Unreachable(f"{address} closed the connection")
        return peer

    async def beat(self, broker: str, address: str, heartbeat: Command) -> Command:
        """Pass a heartbeat to a broker; return its answer. Raises Unreachable, OutcomeUnknown."""
        peer = await self.connection(broker, address)
        connection = self._connections.get(broker)
        if connection is not None and connection.heartbeat is heartbeat:
            assert connection.answer is not None, "both are set together"
            return connection.answer  # it went ahead of the first request
        answer = await peer.call(copy_of(heartbeat), REQUEST_S)
        if connection is not None and connection.peer is peer:
            connection.heartbeat, connection.answer = heartbeat, answer
        return answer

    def retire(self, broker: str, peer: Peer) -> None:
        """Send nothing more over a connection whose broker is stopping; answers may still come."""
        connection = self._connections.get(broker)
        if connection is not None and connection.peer is peer:
            self._retire(connection)

    def forget(self, connection: BrokerConnection) -> None:
        """Hear that a connection has ended."""
        self._retired.discard(connection)

    def keep(self, heartbeat: Command | None) -> None:
        """Remember the client's last heartbeat, None for no more. Raises Refused."""
        self._sessions.keep(self, heartbeat)

    def close(self) -> None:
        """End every connection to brokers."""
        self.is_closed = True
        self.keep(None)
        for connection in (*self._connections.values(), *self._retired):
            self._sessions.end(connection)
        self._connections.clear()
        self._retired.clear()

    def _lacks_heartbeat(self, connection: BrokerConnection) -> bool:
        return self.heartbeat is not None and connection.heartbeat is None

    def _retire(self, connection: BrokerConnection) -> None:
        self._connections.pop(connection.broker, None)
        if connection.is_open:
            self._retired.add(connection)

    def _make_room(self) -> None:
        """Forget a broker without a connection for a new one. Raises Refused when all have one."""
        if len(self._connections) < CLIENT_BROKERS_MAX:
            return
        for name, connection in self._connections.items():
            if not connection.is_open and not connection.lock.locked():
                del self._connections[name]
                return
        text = f"a client of the proxy may use {CLIENT_BROKERS_MAX} brokers at a time"
        raise Refused(ResponseCode.SYSTEM_BUSY, text)

    async def _introduce(self, connection: BrokerConnection) -> None:
        """Send the last heartbeat ahead of the first request on a new connection.

        Later requests wait until it is answered: a broker may do those of a connection out of
        order. One that refuses it answers the request itself, by its own rules.
        """
        heartbeat, peer = self.heartbeat, connection.peer
        if heartbeat is None or peer is None:
            return
        answer = await peer.call(copy_of(heartbeat), REQUEST_S)
        connection.heartbeat, connection.answer = heartbeat, answer
        if answer.code != ResponseCode.SUCCESS:
            log.debug("%s refuses a client's heartbeat: %s", connection.broker, answer.remark)

    async def _open(self, connection: BrokerConnection) -> None:
        now_s = asyncio.get_running_loop().time()
        if connection.failure is not None and now_s - connection.failure[0] < RETRY_S:
            raise Unreachable(*connection.failure[1].args)
        try:
            await self._sessions.open(self, connection)
        except Unreachable as error:
            connection.failure = (asyncio.get_running_loop().time(), error)
            raise
        connection.failure = None


class Sessions:
    """All clients, by the key of their connection, and all connections to brokers.

    Clients of one address share a bound of their own in each table, so that others find room.
    """

    def __init__(self, connections_max: int) -> None:
        """Allow at most `connections_max` connections to brokers, opened by `dial`."""
        self.dial: Dial = _nobody
        self._connections_max = connections_max
        self._sessions: dict[int, Session] = {}
        self._owners: dict[int, tuple[Session, BrokerConnection]] = {}
        """Whose a connection to a broker is, by its key."""
        self._places = Shares()
        """Connections that are open or being opened, by the client's host."""
        self._heartbeats = Shares()
        """Bytes of the last heartbeats, by the client's host."""

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def connections(self) -> int:
        """How many connections to brokers there are."""
        return len(self._owners)

    @property
    def heartbeat_bytes(self) -> int:
        """How much the last heartbeats of all clients take."""
        return self._heartbeats.total

    def of(self, peer: Peer) -> Session:
        """Return a client's session, made at its first request. Raises Unreachable."""
        found = self._sessions.get(peer.key)
        if found is None:
            if not peer.is_open:
                raise Unreachable(f"{peer.address} has gone")
            found = self._sessions[peer.key] = Session(peer, self)
        return found

    def client_closed(self, peer: Peer) -> None:
        """Forget a client."""
        session = self._sessions.pop(peer.key, None)
        if session is not None:
            session.close()

    def owner(self, key: int) -> tuple[Session, str] | None:
        """Return whose a connection to a broker is, and the broker's name."""
        found = self._owners.get(key)
        return None if found is None else (found[0], found[1].broker)

    def connection_closed(self, peer: Peer) -> None:
        """Forget a connection to a broker."""
        found = self._owners.pop(peer.key, None)
        if found is not None:
            session, connection = found
            self._places.add(session.host, -1)
            connection.peer = connection.heartbeat = connection.answer = None
            session.forget(connection)

    async def open(self, session: Session, connection: BrokerConnection) -> None:
        """Connect a client to a broker. Raises Unreachable, Refused when there are too many."""
        self._take_place(session.host)
        try:
            peer = await self._dial(session, connection)
        except BaseException:
            self._places.add(session.host, -1)
            raise
        connection.peer, connection.heartbeat, connection.answer = peer, None, None
        self._owners[peer.key] = (session, connection)

    async def _dial(self, session: Session, connection: BrokerConnection) -> Peer:
        peer = await self.dial(connection.address, CONNECT_S)
        if session.is_closed:
            peer.close("")
            raise Unreachable(f"{session.peer.address} has gone")
        if not peer.is_open:
            raise Unreachable(f"{connection.address} closed the connection")
        return peer

    def _take_place(self, host: str) -> None:
        """Count a connection more. Raises Refused when there are too many."""
        most, total = self._connections_max, self._places.total + 1
        if total > most:
            text = f"the proxy has {most} connections to brokers: it takes no more"
            raise Refused(ResponseCode.SYSTEM_BUSY, text)
        held = self._places.of(host) + 1
        if not may_hold(held, total, most):
            text = f"clients at {host} have {held - 1} of {most} connections to brokers: no more"
            raise Refused(ResponseCode.SYSTEM_BUSY, text)
        self._places.add(host)

    def end(self, connection: BrokerConnection) -> None:
        """Close a connection to a broker."""
        peer = connection.peer
        connection.peer = connection.heartbeat = connection.answer = None
        if peer is not None:
            found = self._owners.pop(peer.key, None)
            if found is not None:
                self._places.add(found[0].host, -1)
            peer.close("")

    def keep(self, session: Session, heartbeat: Command | None) -> None:
        """Remember a client's last heartbeat. Raises Refused when all need too much memory."""
        before = 0 if session.heartbeat is None else bytes_of(session.heartbeat)
        after = 0 if heartbeat is None else bytes_of(heartbeat)
        room = HEARTBEATS_BYTES_MAX // (1 if after <= SMALL_HEARTBEAT_BYTES else 2)
        more, held = after - before, self._heartbeats
        total = held.total + more
        if more > 0 and total > room:
            text = f"the clients' heartbeats have {room} bytes: no room for one of {after}"
            raise Refused(ResponseCode.SYSTEM_BUSY, text)
        if more > 0 and not may_hold(held.of(session.host) + more, total, room):
            text = f"heartbeats of {session.host} have {held.of(session.host)} bytes of {room}: no"
            raise Refused(ResponseCode.SYSTEM_BUSY, f"{text} room for one of {after}")
        held.add(session.host, more)
        session.heartbeat = heartbeat
