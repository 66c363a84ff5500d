"""One connection, either end of it: bytes in, commands out, and calls in both directions."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections import deque
from typing import TYPE_CHECKING, cast

from roquet.base.errors import BrokenFrame, OutcomeUnknown, Unreachable
from roquet.base.overriding import override
from roquet.protocol.codes import request_name
from roquet.protocol.command import FLAG_ONE_WAY, FLAG_RESPONSE
from roquet.remoting.codec import encode, encode_start
from roquet.remoting.connections.in_flight import Answer, Deadlines, InFlight
from roquet.remoting.connections.limits import NOTHING, Standing, Stop
from roquet.remoting.writing import write_through

if TYPE_CHECKING:
    import socket

    from roquet.protocol.command import Command
    from roquet.remoting.connections.ingest import FeedResult, Ingest
    from roquet.remoting.connections.limits import Budget, Charge, ConnectionConfig
    from roquet.remoting.connections.owner import ConnectionOwner
    from roquet.remoting.connections.waits import KernelWaits

log = logging.getLogger(__name__)

RECEIVE_SIZE = 256 * 1024
"""Bytes read, and so decoded and handled, at a time."""
COPY_MAX = 8 * 1024
"""A longer body is written as it is; shorter pieces are joined before they are."""
_ANSWER = FLAG_RESPONSE
_ASK = ~(FLAG_RESPONSE | FLAG_ONE_WAY)


_FREE = Stop.NOTHING
"""Compared by identity: flags are slow to look into, and this is asked for every command."""

KEYS = itertools.count(1)
"""Keys of connections: one row of numbers for all ports of a process."""


class Connection(asyncio.BufferedProtocol):
    """A connection. It implements `router.Peer`."""

    _keeps_back = Stop.OUTPUT
    """Why requests that were read are not given to the owner."""

    def __init__(
        self,
        *,
        owner: ConnectionOwner[Connection],
        key: int,
        address: str,
        ingest: Ingest,
        buffer: memoryview,
        budget: Budget,
        config: ConnectionConfig,
        waits: KernelWaits | None = None,
        own: socket.socket | None = None,
    ) -> None:
        """Be ready for `connection_made`; `waits` and the `own` socket tell when bytes came."""
        self.key = key
        self.address = address
        self.last_ms: int = owner.now_ms()
        """When something was read or written last."""
        self.received_ms: int = self.last_ms
        """When what was read last came, as far as known."""
        self._waits = waits
        self._own = own
        self.in_hand: int = 0
        """Requests that were given to the owner and are not done."""
        self.has_answered: bool = False
        """Whether the peer ever answered a call of ours."""
        self._owner = owner
        # Bound once: both are asked for every read.
        self._now_ms = owner.now_ms
        self._feed = ingest.feed
        self._ingest = ingest
        self._buffer = buffer
        self._budget = budget
        self._config = config
        self._calls: InFlight[Answer] = InFlight(config.calls_max, config.first_opaque)
        self._deadlines: Deadlines | None = None
        """Of calls; made with the first, which few connections of a server see."""
        self._transport: asyncio.Transport | None = None
        self._fd: int | None = None
        """The socket, when what is written to it is what the peer reads: not below TLS."""
        self._pending: deque[Command] = deque()
        self._stopped = _FREE
        self._stuck = False
        self._barrier: Command | None = None
        self._output: list[bytes] = []
        self._output_size = 0
        self._flush_is_due = False
        self._charged: Charge = NOTHING
        self._is_proven = False
        self._in_hand_bytes = 0
        self._writable: asyncio.Future[None] | None = None

    # --- the transport's side --------------------------------------------------------------

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's inherit from none
        self._transport.set_write_buffer_limits(*self._config.water)
        own = transport.get_extra_info("socket")
        if own is not None and transport.get_extra_info("sslcontext") is None:
            self._fd = own.fileno()
        self._ingest.open(self.key, self.address)
        self._owner.opened(self)

    @override
    def get_buffer(self, sizehint: int) -> memoryview:
        """Lend the loop's one receive buffer; what it gets is used up before anybody else reads."""
        del sizehint
        return self._buffer

    @override
    def buffer_updated(self, nbytes: int) -> None:
        """Take what was read."""
        self.received(self._buffer[:nbytes])

    def received(self, data: memoryview) -> None:
        """Take bytes of the peer; they are used up when this returns."""
        if self._transport is None:
            return
        now_ms = self.last_ms = self.received_ms = self._now_ms()
        if self._waits is not None and self._waits.matter(now_ms):
            self.received_ms -= self._waits.look(self._own)
        # Answers may go straight to the socket when nothing waits to be written before them.
        free = not self._output and not self._transport.get_write_buffer_size()
        try:
            fed = self._feed(self.key, data, now_ms, self._fd if free else None)
        except BrokenFrame as error:
            self.close(f"broken frame: {error}")
            return
        if not isinstance(fed, bytes):
            commands = fed.commands
            if len(commands) == 1 and commands[0].flag & _ANSWER and self._is_alone(fed):
                # Its caller goes on here, and may end the connection.
                self._settle(commands[0], at_once=True)
                return
            self._take_all(fed)
        elif fed:
            self._output.append(fed)
            self._output_size += len(fed)
            self._flush()
        if self._charged[1] or self._stuck or not isinstance(fed, bytes):
            self._account()

    def _is_alone(self, fed: FeedResult) -> bool:
        """Tell whether nothing is left to do beside the one answer that a read brought.

        Not below TLS, whose reading goes on behind this call with what its caller may have ended.
        """
        if self._fd is None:
            return False
        busy = fed.replies or fed.stopped or fed.broken or self._pending or self._stuck
        kept = self._charged[1] or self._ingest.held(self.key)
        return self._stopped is _FREE and not (busy or kept)

    def _take_all(self, fed: FeedResult) -> None:
        """Take what came of a read, and say at once what is wrong with the bytes behind it."""
        self._flush_is_due = True
        try:
            self._take(fed)
            if fed.commands and self._ingest.held(self.key) and not self._barred:
                # What follows whole frames may already be broken: say so now, not at the next read.
                self._take(self._ingest.resume(self.key))
        except BrokenFrame as error:
            self.close(f"broken frame: {error}")
        finally:
            self._flush()

    @override
    def eof_received(self) -> bool:
        """Close: nobody half-closes a RocketMQ connection."""
        return False

    @override
    def pause_writing(self) -> None:
        """Take no more requests of a peer that does not take our answers."""
        self._stuck = True
        if self._config.stops_reading:
            self._stop(Stop.OUTPUT)

    @override
    def resume_writing(self) -> None:
        """Go on."""
        self._stuck = False
        if self._writable is not None and not self._writable.done():
            self._writable.set_result(None)
        self._go_on(Stop.OUTPUT)
        self._account()

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        """Tell everybody who waits for this peer."""
        del exc
        self._transport = None
        self._fd = self._own = None
        self._pending.clear()
        if self._deadlines is not None:
            self._deadlines.clear()
            self._deadlines = None  # it refers to this connection
        self._ingest.close(self.key)
        self._budget.charge(self._charged, NOTHING)
        self._charged = NOTHING
        for waiter in self._calls.abandon():
            if not waiter.done():
                waiter.fail(OutcomeUnknown(f"{self.address} closed the connection"))
        if self._writable is not None and not self._writable.done():
            self._writable.set_exception(Unreachable(f"{self.address} closed the connection"))
        self._owner.closed(self)

    # --- the peer, as handlers see it ------------------------------------------------------

    @property
    def is_open(self) -> bool:
        """Whether an answer could still arrive."""
        return self._transport is not None and not self._transport.is_closing()

    def prove(self) -> None:
        """Hear that an account signed a request of this connection."""
        if not self._is_proven:
            self._is_proven = True
            self._ingest.prove(self.key)

    @property
    def calls(self) -> int:
        """How many calls of ours wait for an answer."""
        return len(self._calls)

    @property
    def is_stuck(self) -> bool:
        """Whether the peer does not take what we write."""
        return self._stuck

    @property
    def has_unsent(self) -> bool:
        """Whether something is not written yet, or the connection is being closed since long."""
        transport = self._transport
        if transport is None:
            return False
        return (
            self._stuck
            or bool(self._output)
            or transport.is_closing()
            or transport.get_write_buffer_size() > 0
        )

    def send_one_way(self, command: Command) -> None:
        """Tell the peer something; nothing happens when it has gone."""
        flag = (command.flag & _ASK) | FLAG_ONE_WAY
        self.write(encode(command, opaque=self._calls.number(), flag=flag))

    def reply(self, command: Command) -> None:
        """Write an answer."""
        if len(command.body) < COPY_MAX:
            self.write(encode(command))
        else:
            self.write(encode_start(command))
            self.write(command.body)

    async def call(self, command: Command, timeout_s: float) -> Command:
        """Ask the peer. Raises RequestTooLong, Unreachable or OutcomeUnknown."""
        if not self.is_open:
            raise Unreachable(f"{self.address} is not connected")
        waiter = Answer(loop := asyncio.get_running_loop())
        opaque = self._calls.begin(waiter, self._now_ms() + int(timeout_s * 1000))
        if opaque is None:
            raise Unreachable(f"too many calls to {self.address} wait for an answer")
        deadlines = self._deadlines = self._deadlines or Deadlines(self._late)
        deadlines.begin(opaque, loop, timeout_s)
        try:
            frame = encode(command, opaque=opaque, flag=command.flag & _ASK)
            self._config.check_request(command.code, len(frame))
            if len(self._calls) == 1:
                self.write_now(frame)  # nobody else is there whose frames could go with it
            else:
                self.write(frame)
            return await waiter
        except TimeoutError:
            name, waited_s = request_name(command.code), max(0.01, round(timeout_s, 2))
            text = f"{self.address} did not answer {name} within {waited_s:g} s"
            raise OutcomeUnknown(text) from None
        finally:
            deadlines.end(opaque)
            self._calls.end(opaque)

    async def drained(self, timeout_s: float) -> None:
        """Wait until the peer takes what we write. Raises Unreachable when it does not in time."""
        if not self.is_stuck:
            return
        if self._writable is None or self._writable.done():
            self._writable = asyncio.get_running_loop().create_future()
        try:
            await asyncio.wait_for(asyncio.shield(self._writable), timeout_s)
        except TimeoutError:
            raise Unreachable(f"{self.address} takes no more data") from None

    def expire(self, now_ms: int) -> None:
        """Give up calls whose deadline has passed."""
        for waiter in self._calls.expire(now_ms):
            if not waiter.done():
                waiter.fail(OutcomeUnknown(f"{self.address} did not answer in time"))

    def clock_was_set(self, by_ms: int, now_ms: int) -> None:
        """Begin to measure silence anew, and let calls wait for as long as they would have."""
        self.last_ms = now_ms
        self._calls.shift(by_ms)

    def last_heard_ms(self, now_ms: int) -> int:
        """Return when something was read or written last."""
        del now_ms
        return self.last_ms

    def close(self, why: str) -> None:
        """End the connection: what is written goes out first, what was read is dropped."""
        if self._transport is None or self._transport.is_closing():
            return
        if why:
            self._owner.complain(self, why)
        self._pending.clear()
        self._flush()
        self._transport.close()

    def abort(self) -> None:
        """End the connection now."""
        if self._transport is not None:
            self._transport.abort()

    # --- inside ----------------------------------------------------------------------------

    def write(self, data: bytes) -> None:
        """Write whole frames, with one system call for a turn; dropped when the peer has gone."""
        # As `is_open`, without a call: this is asked for every answer.
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        self._output.append(data)
        self._output_size += len(data)
        if self._output_size > RECEIVE_SIZE:
            self._flush()
        elif not self._flush_is_due:
            self._flush_is_due = True
            asyncio.get_running_loop().call_soon(self._flush)

    def write_now(self, data: bytes) -> None:
        """Write whole frames at once: all that there is for this peer in this turn of the loop."""
        transport = self._transport
        if self._output or transport is None or transport.is_closing():
            self.write(data)
            return
        self.last_ms = self._now_ms()
        write_through(transport, self._fd, data)
        if self._stuck:
            self._account()

    def done(self, command: Command) -> None:
        """Hear from the owner that a request needs no more work."""
        self.in_hand -= 1
        self._in_hand_bytes -= len(command.body)
        self._budget.in_hand -= len(command.body)
        if command is self._barrier and Stop.BARRIER not in self._stopped:
            self._barrier = None  # done before `_take` had to stop for it
        if not self.in_hand and not self._pending:
            self._ingest.idle(self.key)
        if self._stopped is _FREE:
            return
        if self._in_hand_bytes <= self._config.in_hand_max // 2:
            self._go_on(Stop.IN_HAND)
        if command is self._barrier and Stop.BARRIER in self._stopped:
            self.resume()

    def resume(self) -> None:
        """Go on with what the ingest held back."""
        self._barrier = None
        self._stopped &= ~Stop.BARRIER
        if not self.is_open:
            return
        try:
            self._take(self._ingest.resume(self.key))
        except BrokenFrame as error:
            self.close(f"broken frame: {error}")
        self._go_on(Stop.NOTHING)

    @property
    def _barred(self) -> bool:
        stopped = self._stopped is not _FREE and Stop.BARRIER in self._stopped
        return stopped or not self.is_open

    def _take(self, fed: FeedResult) -> None:
        # A loop and no recursion: a peer may pipeline thousands of commands that each stop it.
        while True:
            if fed.replies:
                self.write(fed.replies)
            self._barrier = fed.commands[-1] if fed.stopped and fed.commands else None
            self._pending.extend(fed.commands)
            self._pump()
            if fed.broken:
                raise BrokenFrame(fed.broken)
            if not fed.stopped:
                return
            if self._barrier is not None or not fed.commands:
                self._stop(Stop.BARRIER)
                return
            fed = self._ingest.resume(self.key)

    def _pump(self) -> None:
        pending = self._pending
        while pending and (self._stopped is _FREE or not self._stopped & self._keeps_back):
            command = pending.popleft()
            if command.flag & _ANSWER:
                self._settle(command)
                continue
            size = len(command.body)
            self.in_hand += 1
            self._in_hand_bytes += size
            self._budget.in_hand += size
            crowded = self._budget.in_hand > self._budget.bytes_max // 2
            if self._in_hand_bytes > (0 if crowded else self._config.in_hand_max):
                self._stop(Stop.IN_HAND)
            self._owner.request(self, command)

    def _pump_on(self) -> None:
        """Go on with requests that were kept back."""
        self._pump()

    def _late(self, opaque: int) -> None:
        waiter = self._calls.end(opaque)
        if waiter is not None and not waiter.done():
            waiter.fail(TimeoutError())

    def _settle(self, command: Command, *, at_once: bool = False) -> None:
        waiter = self._calls.end(command.opaque)
        if waiter is None:
            log.debug("%s answers what nobody asked: opaque %d", self.address, command.opaque)
        elif not waiter.done():
            self.has_answered = True
            if at_once:
                waiter.give_now(command)
            else:
                waiter.give(command)

    def _stop(self, reason: Stop) -> None:
        was = self._stopped
        self._stopped |= reason
        if not was and self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def _go_on(self, reason: Stop) -> None:
        was = self._stopped
        self._stopped &= ~reason
        if not self._stopped & self._keeps_back and self._pending:
            self._pump_on()
        if self._transport is None or self._transport.is_closing() or self._stopped:
            return
        if was or not self._transport.is_reading():
            self._transport.resume_reading()

    def _flush(self) -> None:
        self._flush_is_due = False
        output, size = self._output, self._output_size
        if not output:
            return
        self._output = []
        self._output_size = 0
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        self.last_ms = self._owner.now_ms()
        if len(output) > 1 and size >= COPY_MAX * len(output):
            transport.writelines(output)
        else:
            data = output[0] if len(output) == 1 else b"".join(output)
            write_through(transport, self._fd, data)
        if self._stuck:
            self._account()

    def _account(self) -> None:
        """Count what is kept for this connection; a peer that makes us keep too much is closed."""
        if self._transport is None:
            return
        kept = self._ingest.held(self.key)
        if self._stuck:
            kept += self._transport.get_write_buffer_size()
        before = self._charged
        if kept == before[1]:
            return
        self._charged = self._ingest.standing(self.key) if kept else Standing.PROVEN, kept
        fits = self._budget.charge(before, self._charged)
        if not fits or before[1] < kept > self._config.bytes_max:
            self._owner.complain(self, f"{kept} bytes wait for or from this peer: too many")
            self.abort()
