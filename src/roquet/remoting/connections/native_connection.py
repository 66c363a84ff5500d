"""A connection that a thread of the core serves, as the loop sees it, and its way back there.

A connection that pops costs less on the loop, which has to decide about pops anyway. Its thread
gives it back then: first everything that the thread has read is taken and everything that it owes
is written, then the loop goes on with the socket as if it had accepted it. It is never given to a
thread again.

Invariants of that. The same object stands for the connection before and after, so that requests in
hand, calls, deadlines, pauses, address and account stay with it. From the question on (`ask_back`)
nothing is ordered of the thread; what is written meanwhile waits in the transport and is written
first, by whoever has the connection then. What the thread has read comes as news before it
says that it has given the connection back. Held pulls and the start of a frame go from the
thread's ingest to that of the loop. A session of TLS goes along with the start of a record that it
has: from then on the loop reads and writes for it (`tls_socket.py`).
"""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING, Protocol

from roquet.base.overriding import override
from roquet.remoting.codec import decode
from roquet.remoting.connections.connection import Connection
from roquet.remoting.connections.ingest import FeedResult
from roquet.remoting.connections.limits import Stop
from roquet.remoting.connections.tls_socket import go_on_with
from roquet.remoting.writing import write_through

if TYPE_CHECKING:
    from collections.abc import Callable

    from roquet._native import NetConnection
    from roquet.remoting.connections.ingest import Ingest


class Writer(Protocol):
    """Who writes, and has to know when the peer takes nothing."""

    def pause_writing(self) -> None:
        """Hear that it does not take what was written."""
        ...

    def resume_writing(self) -> None:
        """Hear that it does again."""
        ...


class NativeTransport(asyncio.Transport):
    """Writes to a connection that a thread serves, and stops its reading."""

    def __init__(self, net: NetConnection, connection: Writer) -> None:
        """Be open and read."""
        super().__init__()
        self._net = net
        self._connection: Writer | None = connection
        self._closing = False
        self._aborts = False
        self._reading = True
        self._stuck = False
        self._held: list[bytes] | None = None
        """What is written while it is not known who has the connection."""

    @override
    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Nothing: the limits are those of the threads."""

    @override
    def get_write_buffer_size(self) -> int:
        """Bytes that are not in the socket's buffer yet, wherever they are."""
        return self._net.unsent() + sum(map(len, self._held or ()))

    @override
    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Have whole frames written."""
        if self._held is not None:
            self._held.append(bytes(data))
        elif self._net.write(data) and not self._stuck and self._connection is not None:
            self._stuck = True
            self._connection.pause_writing()

    @override
    def is_closing(self) -> bool:
        """Whether it is closed or is being closed."""
        return self._closing

    @override
    def close(self) -> None:
        """Close when everything is written."""
        self._closing = True
        if self._held is None:
            self._net.close()

    @override
    def abort(self) -> None:
        """Close now."""
        self._closing = self._aborts = True
        if self._held is None:
            self._net.abort()

    @override
    def is_reading(self) -> bool:
        """Whether it is read, as far as the loop is concerned."""
        return self._reading

    @override
    def pause_reading(self) -> None:
        """Read no further."""
        if self._reading:
            self._reading = False
            self._net.pause(paused=True)

    @override
    def resume_reading(self) -> None:
        """Go on."""
        if not self._reading:
            self._reading = True
            self._net.pause(paused=False)

    def drained(self) -> None:
        """Hear that the peer takes what is written again."""
        if self._stuck and self._connection is not None:
            self._stuck = False
            self._connection.resume_writing()

    def hold(self) -> None:
        """Order nothing of the thread until it is known whether it keeps the connection."""
        self._held = []

    def go_on(self) -> None:
        """Hear that the thread keeps it: what was wanted meanwhile is done now."""
        held, self._held = self._held or [], None
        for data in held:
            self.write(data)
        if self._aborts:
            self._net.abort()
        elif self._closing:
            self._net.close()

    def move_to(self, transport: asyncio.Transport, write: Callable[[bytes], None]) -> None:
        """Have what was wanted meanwhile done by another transport, which has the connection."""
        held, self._held = self._held or [], []
        if not self._aborts:
            for data in held:
                write(data)
        if self._aborts:
            transport.abort()
        elif self._closing:
            transport.close()
        self.lost()

    def lost(self) -> None:
        """Let go of the connection: a cycle would keep the descriptors until it is collected."""
        self._connection = None


class Home(Protocol):
    """Where connections go on that the loop serves again."""

    @property
    def buffer(self) -> memoryview:
        """Return what they are read into."""
        ...

    @property
    def sealed(self) -> memoryview:
        """Return what sockets of those over TLS are read into."""
        ...

    def enter(self, key: int) -> Ingest:
        """Return the ingest that is fed with what a connection receives from now on."""
        ...

    def take_over(self, connection: NativeConnection) -> bytes:
        """Take what its thread knew of it; return the start of a frame."""
        ...


class NativeConnection(Connection):
    """A connection that a thread serves. It implements `router.Peer`."""

    net: NetConnection
    transport: NativeTransport
    given = 0
    """Frames that came here."""
    home: Home | None = None
    """Where it may go on; None: its thread keeps it."""
    _moves = False
    """Whether its thread was asked to give it back."""
    _is_home = False
    """Whether the loop serves it."""
    _traffic = 0
    _begins = 0
    """Bytes of the frames among them that no work has begun on yet."""
    # What the thread has read before it hears of a stop waits here.
    _keeps_back = Stop.OUTPUT | Stop.IN_HAND

    @override
    def _account(self) -> None:
        # Its thread counts what is kept for it, and closes it.
        if self._is_home:
            super()._account()

    @override
    def last_heard_ms(self, now_ms: int) -> int:
        """Return when its thread was seen to have read or written: the sweep looks every second."""
        if self._is_home:
            return self.last_ms
        traffic = self.net.traffic()
        if traffic != self._traffic:
            self._traffic = traffic
            self.last_ms = now_ms
        return self.last_ms

    @override
    def _pump_on(self) -> None:
        # In a turn of its own, as if it were read now: not ahead of what is about to be answered.
        asyncio.get_running_loop().call_soon(self._pump_now)

    def _pump_now(self) -> None:
        self._pump()
        self._took()

    @property
    def is_free(self) -> bool:
        """Whether the loop has nothing of it to do."""
        return not self.in_hand and not self._pending and not self.transport.is_closing()

    def take_frames(self, fed: FeedResult, times: tuple[int, int], count: int) -> None:
        """Take what came of one read that left `count` frames to the loop.

        The times are when it was read, and for how long it had waited then, in milliseconds.
        """
        self.given += count
        if self.transport.is_closing():
            return
        self.last_ms = self.received_ms = times[0]
        if times[1] and self._waits is not None and self._waits.matter(self._now_ms()):
            self.received_ms -= self._waits.count(times[1])
        self._take_all(fed)
        self._took()
        if not self.in_hand and not self._pending:
            self.finish()

    def decide(self, raw: bytes) -> FeedResult:
        """Have frames about popped messages decided in the core, as if the loop had read them.

        Not behind requests of its own that are in hand, which they might depend on.
        """
        if not self.is_free:
            return FeedResult(b"", decode(raw)[0])
        fed = self._feed(self.key, memoryview(raw), self._now_ms())
        return FeedResult(fed, []) if isinstance(fed, bytes) else fed

    def begins_with(self, size: int) -> None:
        """Hear what the frames take that come now."""
        self._begins += size

    def _took(self) -> None:
        if self._begins and not self._pending:
            self.net.took(self._begins)
            self._begins = 0

    def ended(self, why: str) -> None:
        """Hear that the thread has closed it, and why if that is the peer's fault."""
        if why:
            self._owner.complain(self, why)
        self.connection_lost(None)

    def finish(self) -> None:
        """Tell the thread that nothing of this connection is worked on any more."""
        self.net.finish(self.given)

    # --- back to the loop ------------------------------------------------------------------------

    def ask_back(self) -> None:
        """Have its thread give it back, if that has nothing left to do for it.

        Nothing is ordered of the thread until it has said so: it would be lost.
        """
        if self.home is not None and not self._moves and not self.transport.is_closing():
            self._moves = True
            self.transport.hold()
            self.net.give_back()

    def stays(self) -> None:
        """Hear that its thread keeps it; the next request of the kind asks again."""
        self._moves = False
        self.transport.go_on()

    async def come_home(self) -> None:
        """Be served by the loop, since its thread has given it back."""
        own = socket.socket(fileno=self.net.socket())
        self._own = own
        try:
            session = self.net.session()
            if session is None:
                loop = asyncio.get_running_loop()
                await loop.connect_accepted_socket(lambda: self, own)
            else:
                assert self.home is not None, "it has asked to go there"
                await go_on_with(session, own, self, self.home.sealed)
        except OSError:
            own.close()
            if not self._is_home:
                self.connection_lost(None)
                self.transport.lost()
            return
        # Transports of uvloop begin to read whatever they are told before.
        if self._stopped and self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport: that to its thread, or that of the loop which takes its place."""
        home = self.home
        if home is None or transport is self.transport:
            super().connection_made(transport)
            return
        self._is_home = True
        self._ingest = ingest = home.enter(self.key)
        self._feed = ingest.feed
        self._buffer = home.buffer
        super().connection_made(transport)
        fd, to = self._fd, self._transport
        assert to is not None, "it has just been made"
        self.last_ms = self._now_ms()
        if self._stopped:
            to.pause_reading()
        self.transport.move_to(to, lambda data: write_through(to, fd, data))
        kept = home.take_over(self)
        if self._is_proven:
            ingest.prove(self.key)
        if kept:
            self.received(memoryview(kept))

    @property
    def has_kept_back(self) -> bool:
        """Whether requests that were read are not worked on yet."""
        return bool(self._pending)
