"""Bytes in and out: the server of the core, and a task for each call.

The only module of the front that knows how bytes travel. A transport is `start`, `stop`, a `port`,
and calls of `Front.serve` and `Front.telemetry`.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import logging
import socket
import weakref
from typing import TYPE_CHECKING, Any, Protocol

from roquet._native import GrpcServer
from roquet.protocol.hosts import networks_of
from roquet.proxy.front import STREAMING
from roquet.proxy.rules.codes import Rejected
from roquet.proxy.rules.context import Head
from roquet.proxy.rules.methods import WAITING, Status, method_of, telemetry_status
from roquet.service.process.listening import cannot_listen
from roquet.service.ratelog import RateLog

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Coroutine, Iterable, Mapping
    from contextlib import AbstractAsyncContextManager

    from roquet.base.clock import Clock
    from roquet.proxy.front import Conversation, Front
    from roquet.proxy.rules.limits import ProxyLimits
    from roquet.proxy.tls import GrpcPortTls

log = logging.getLogger(__name__)

BACKLOG = 1024
DRAIN_S = 5.0
"""Calls that are under way when the port stops have so long to end."""
STOPPING = "the server is stopping"
UNREAD_MAX = 64
"""Messages of a telemetry stream that wait for their turn; with more the stream ends."""


class PlainCalls(Protocol):
    """Answers plain calls before the front."""

    def take(self, server: GrpcServer) -> list[tuple[Any, ...]]:
        """Take the news of a server, but for the calls that are answered without the front."""
        ...


class GrpcPort:
    """Listens, and hands calls to the front."""

    def __init__(
        self,
        front: Front,
        host: str,
        rules: ProxyLimits,
        tls: GrpcPortTls,
        clock: Clock,
        *,
        fast: PlainCalls | None = None,
    ) -> None:
        """With `fast`, calls that are plain do not come to the front."""
        self._fast = fast
        self._front = front
        self._host = host
        self._rules = rules
        self._tls = tls
        self._log = RateLog(log, clock)
        self._secrets: Mapping[str, bytes] | None = None
        self.port = rules.port
        self._server: Any = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._calls: dict[int, _Call] = {}
        self._slow: dict[int, list[asyncio.Future[None]]] = {}
        self._turns: weakref.WeakValueDictionary[int, asyncio.Lock] = weakref.WeakValueDictionary()
        """Those that a call of the connection has or waits for."""
        self._is_stopping = False

    @property
    def counts(self) -> tuple[int, int]:
        """Connections and calls."""
        found: tuple[int, int] = (0, 0) if self._server is None else self._server.counts()
        return found

    async def start(self) -> None:
        """Listen. Raises UsageError when the port cannot be had."""
        rules = self._rules
        family = socket.AF_INET6 if ":" in self._host else socket.AF_INET
        listener = socket.socket(family, socket.SOCK_STREAM)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((self._host, self.port))
            listener.listen(BACKLOG)
        except OSError as error:
            listener.close()
            raise cannot_listen(f"{self._host}:{self.port}", error) from error
        self.port = int(listener.getsockname()[1])
        self._server = GrpcServer(
            listener.detach(),
            list(STREAMING),
            connections=rules.connections_max,
            address_connections=rules.address_connections_max,
            calls=rules.calls_max,
            header_bytes=rules.header_max,
            message_bytes=rules.inbound_max,
            inbound_bytes=rules.inbound_total,
            connection_inbound_bytes=rules.inbound_of_connection,
            account_inbound_bytes=rules.inbound_of_account,
            outbound_bytes=rules.outbound_max,
            resets=rules.resets_max,
            idle_ms=rules.idle_ms,
            patience_ms=rules.patience_ms,
            tls=self._tls.context,
            only_tls=self._tls.required,
            balancers=[
                (network.network_address, network.prefixlen)
                for network in networks_of(rules.balancers)
            ],
            secrets=self._front.secrets,
        )
        self._secrets = self._front.secrets
        asyncio.get_running_loop().add_reader(self._server.descriptor(), self._news)
        self._front.routes.port = self.port

    async def stop(self) -> None:
        """Tell clients to go elsewhere, serve what still comes of them, and close.

        They are told by a command on their telemetry streams, and by GOAWAY of HTTP/2, after which
        a client makes the calls elsewhere that this port has not begun. Receives wait for messages
        that need not come: they end at once.
        """
        loop = asyncio.get_running_loop()
        self._is_stopping = True
        self._front.sessions.send_away()
        self._server.leave()
        for call in list(self._calls.values()):
            if call.is_receive and call.task is not None:
                call.task.cancel()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(DRAIN_S):
                await self._settled()
        await self._end_tasks()
        for call in list(self._calls.values()):
            if call.conversation is not None:
                call.finish(Status.OK, "")
            elif call.task is None or call.task.done():
                call.finish(Status.UNAVAILABLE, STOPPING)
        # Calls that a client made before it knew are answered meanwhile.
        await loop.run_in_executor(None, self._server.stop)
        loop.remove_reader(self._server.descriptor())
        await self._end_tasks()

    async def _settled(self) -> None:
        """Wait until nothing is under way but streams, whose clients keep them open."""

        def is_under_way() -> bool:
            # Plain calls are known to the core alone.
            streams = sum(call.conversation is not None for call in self._calls.values())
            return bool(self._tasks) or self._server.counts()[1] > streams

        while is_under_way():
            if self._tasks:
                await asyncio.wait(set(self._tasks))
            else:
                await asyncio.sleep(0.01)  # noqa: TID251  (real sockets, whatever the clock)

    async def _end_tasks(self) -> None:
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(set(self._tasks))

    async def reload_tls(self) -> None:
        """Show another certificate once its files have changed: the action of a timer."""
        before = self._tls.context
        await self._tls.reload()
        context = self._tls.context
        if context is not None and context is not before:
            self._server.set_tls(context)

    # --- news ------------------------------------------------------------------------------------

    def _news(self) -> None:
        secrets = self._front.secrets
        if secrets is not self._secrets:
            # What the core believes meanwhile decides about its memory alone: the front asks again.
            self._secrets = secrets
            self._server.set_secrets(secrets)
        self.act(self._taken())

    def act(self, news: Iterable[tuple[Any, ...]]) -> None:
        """Act on what has happened."""
        for what, number, *more in news:
            if what == "call":
                self._begin(number, *more)
            elif what == "refused":
                self._refused(*more)
            elif what in {"drained", "closed"}:
                self._wake(number)
            else:
                call = self._calls.get(number)
                if call is not None:
                    call.heard(what, *more)

    def _taken(self) -> list[tuple[Any, ...]]:
        """Take news, but for calls that are answered without the front."""
        # Where accounts are kept the front asks what each may do.
        is_fast = self._fast is not None and self._secrets is None and not self._is_stopping
        found: list[tuple[Any, ...]]
        found = self._fast.take(self._server) if is_fast and self._fast else self._server.take()
        return found

    def _begin(self, number: int, connection: int, *more: Any) -> None:
        path, remote, local, authority, metadata, data = more
        head = Head(path=path, remote=remote, local=local, authority=authority, metadata=metadata)
        call = self._calls[number] = _Call(self, number, connection)
        call.is_receive = method_of(path) in WAITING
        if self._is_stopping and (call.is_receive or path in STREAMING):
            call.finish(Status.UNAVAILABLE, STOPPING)
            return
        if data is not None:
            call.task = self.run(self._front.serve(head, data, call))
            return
        streams = path in STREAMING
        try:
            most = self._front.admits(head)
            if streams:
                call.conversation = self._front.conversation(head)
            else:
                call.head = head
        except Rejected as rejected:
            if streams:
                call.finish(telemetry_status(rejected.code), rejected.text)
            else:
                call.task = self.run(self._front.refuse(head, rejected, call))
            return
        self._server.admit(number, most)

    def _refused(self, peer: str, why: str) -> None:
        host = peer.rpartition(":")[0]
        self._log.warning((host, why[:24]), f"{peer} is closed: {why}")

    def serve(self, head: Head, data: bytes, call: _Call) -> asyncio.Task[None]:
        """Answer a call whose request has come after its head."""
        return self.run(self._front.serve(head, data, call))

    def run(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run the work of a call; the port waits for it when it stops."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.error("a call failed", exc_info=task.exception())

    # --- what calls need -------------------------------------------------------------------------

    def send(self, number: int, message: bytes) -> bool:
        """Send a message of an answer."""
        found: bool = self._server.send(number, message)
        return found

    def send_framed(self, number: int, messages: bytes) -> bool:
        """Send messages of an answer that are framed already."""
        found: bool = self._server.send_framed(number, messages)
        return found

    def finish(self, number: int, status: int, text: str) -> None:
        """End a call."""
        self._calls.pop(number, None)
        self._server.finish(number, status, text[:1024])

    def forget(self, number: int) -> None:
        """Note that nobody waits for an answer any more."""
        self._calls.pop(number, None)

    async def drained(self, number: int, connection: int) -> None:
        """Wait until a connection has room for further answers."""
        while self._server.is_slow(number):
            waiting = asyncio.get_running_loop().create_future()
            self._slow.setdefault(connection, []).append(waiting)
            await waiting

    def has_room(self, number: int) -> bool:
        """Tell whether the connection of a call takes further answers."""
        return not self._server.is_slow(number)

    @contextlib.asynccontextmanager
    async def turn(self, number: int, connection: int) -> AsyncGenerator[None]:
        """Wait for the turn of a call among those of its connection, and for room there."""
        lock = self._turns.get(connection)
        if lock is None:
            lock = self._turns[connection] = asyncio.Lock()
        async with lock:
            await self.drained(number, connection)
            yield

    def _wake(self, connection: int) -> None:
        for waiting in self._slow.pop(connection, ()):
            if not waiting.done():
                waiting.set_result(None)


class _Call:
    """One call as the front sees it."""

    def __init__(self, port: GrpcPort, number: int, connection: int) -> None:
        self._port = port
        self._number = number
        self._connection = connection
        self.task: asyncio.Task[None] | None = None
        self.conversation: Conversation | None = None
        self.head: Head | None = None
        """Of a call whose only request has not come yet."""
        self.is_receive = False
        self._has_ended = False
        """Whether the client sends no further messages."""
        self._unread: collections.deque[bytes] = collections.deque()
        self._stream = _Stream(self, port, number)

    async def send(self, message: bytes) -> bool:
        """Send a message when there is room."""
        await self._port.drained(self._number, self._connection)
        return self._port.send(self._number, message)

    async def send_framed(self, messages: bytes) -> bool:
        """Send messages that are framed already when there is room."""
        await self._port.drained(self._number, self._connection)
        return self._port.send_framed(self._number, messages)

    def has_room(self) -> bool:
        """Tell whether the client's connection takes a message at once."""
        return self._port.has_room(self._number)

    def turn(self) -> AbstractAsyncContextManager[None]:
        """Be the only call of its connection with a turn, from when that takes messages again."""
        return self._port.turn(self._number, self._connection)

    def finish(self, status: int, text: str) -> None:
        """End the call."""
        if self.conversation is not None:
            self.conversation.left(self._stream)
            self.conversation = None
        self._port.finish(self._number, status, text)

    def heard(self, what: str, data: bytes = b"") -> None:
        """Take what the client did."""
        if what == "gone":
            self._port.forget(self._number)
            if self.conversation is not None:
                self.conversation.left(self._stream)
                self.conversation = None
            elif self.task is not None:
                self.task.cancel()
        elif self.head is not None:
            head, self.head = self.head, None
            self.task = self._port.serve(head, data, self)
        elif what == "ended":
            self._has_ended = True
            if self.task is None or self.task.done():
                self.finish(Status.OK, "")
        elif len(self._unread) >= UNREAD_MAX:
            self.finish(Status.INVALID_ARGUMENT, f"{UNREAD_MAX} messages are not answered yet")
        else:
            self._unread.append(data)
            if self.task is None or self.task.done():
                self.task = self._port.run(self._converse())

    async def _converse(self) -> None:
        """Answer the messages of a stream in turn."""
        while self._unread and self.conversation is not None:
            ended = await self.conversation.take(self._unread.popleft(), self._stream)
            if ended is not None:
                self.finish(*ended)
        if self._has_ended and self.conversation is not None:
            self.finish(Status.OK, "")


class _Stream:
    """A telemetry stream as a session keeps it."""

    def __init__(self, call: _Call, port: GrpcPort, number: int) -> None:
        self._call = call
        self._port = port
        self._number = number

    def send(self, message: bytes) -> bool:
        """Send a message; false when the stream has ended."""
        return self._port.send(self._number, message)

    def end(self, rejected: Rejected) -> None:
        """End the stream for this reason."""
        self._call.finish(telemetry_status(rejected.code), rejected.text)
