"""The slave's side: connects to its master, appends what comes, reports how far it is.

A thread of the core copies once the master is known to be the right one, and has found that the
log here is a copy of its own; over TLS the loop does.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import logging
import os
from typing import TYPE_CHECKING, cast

from roquet.base.clock import steady_ms
from roquet.base.errors import RoquetError
from roquet.base.overriding import override
from roquet.ha.copier import Copier
from roquet.ha.frames import PeerFault
from roquet.ha.secret import SlaveGate
from roquet.ha.tail import Answer, Verdict, tail_of
from roquet.ha.threads import LogThread, take_socket
from roquet.protocol.hosts import split_address
from roquet.service.background import Tasks
from roquet.service.ratelog import RateLog
from roquet.store.results import StoreFault

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable

    from roquet.base.clock import Clock
    from roquet.ha.config import HaRules
    from roquet.ha.log import Log


log = logging.getLogger(__name__)


_EMPTY_IT = "the store here has to be set aside, a new one begins with the master's last file"


class State(enum.IntEnum):
    """How far a slave is with its master; Java's HAConnectionState."""

    READY = 0
    HANDSHAKE = 1
    TRANSFER = 2
    SUSPEND = 3
    SHUTDOWN = 4


class HaSlave:
    """Copies a master's log from `start` to `stop`, once it knows the master's address."""

    def __init__(
        self,
        log_: Log,
        rules: HaRules,
        clock: Clock,
        *,
        broker_id: int,
        tls: ssl.SSLContext | None = None,
        judged: Callable[[str | None], None] = lambda _: None,
    ) -> None:
        """`judged` hears why the log here is no copy of the master's; None when it is one."""
        self.log = log_
        self.rules = rules
        self.clock = clock
        self.broker_id = broker_id
        self.tls = tls
        self.judged = judged
        self.rated = RateLog(log, clock, every_s=60.0)
        self._address = rules.configured_master
        self._known = asyncio.Event()
        self._tasks = Tasks()
        self._link: MasterLink | None = None
        self.state = State.SHUTDOWN

    @property
    def address(self) -> str | None:
        """The master's address for slaves, as far as it is known."""
        return self._address

    @property
    def link(self) -> MasterLink | None:
        """The connection to the master, if there is one."""
        return self._link

    def learn(self, address: str | None) -> None:
        """Take the address that name servers tell, unless one was configured."""
        if self.rules.configured_master is not None or not address or address == self._address:
            return
        log.info("the master is at %s", address)
        self._address = address
        self._known.set()
        if self._link is not None:
            self._link.close("the master has moved")

    def follow(self, rules: HaRules) -> None:
        """Go by other times from now on, on the connection that there is as well."""
        self.rules = rules
        if self._link is not None:
            self._link.follow()

    async def start(self) -> None:
        """Begin to look for the master."""
        self.state = State.READY
        if self._address is not None:
            self._known.set()
        self._tasks.spawn(self._follow(), "copy the master's log")

    async def stop(self) -> None:
        """Let go of the master."""
        self.state = State.SHUTDOWN
        link = self._link
        if link is not None:
            link.close("this broker stops")
        await self._tasks.stop()
        if link is not None:
            await link.ended()

    def joined(self, link: MasterLink) -> bool:
        """Take a connection that is about to copy; False when nothing is copied any more."""
        if self.state is State.SHUTDOWN:
            return False
        self._link = link
        return True

    def flushed(self) -> None:
        """Report what has become durable."""
        if self._link is not None:
            self._link.report()

    async def tick(self) -> None:
        """Report in good time, and leave a silent master: a timer's action."""
        if self._link is not None:
            self._link.check()

    async def _follow(self) -> None:
        while True:
            await self._known.wait()
            if self._address is not None:
                await self._copy_from(self._address)
            self.state = State.READY
            await self.clock.sleep(self.rules.reconnect_ms / 1000)

    async def _leave(self) -> None:
        """End a connection that was made too late: a second one must not copy beside it."""
        link, self._link = self._link, None
        if link is not None:
            link.close("")
            await link.ended()

    async def _copy_from(self, address: str) -> None:
        try:
            host, port = split_address(address)
            await self.log.settle()
            async with asyncio.timeout(5):
                _, link = await asyncio.get_running_loop().create_connection(
                    lambda: MasterLink(self, address), host, port, ssl=self.tls
                )
        except (OSError, ValueError, RoquetError) as error:
            log.warning("cannot reach the master at %s: %s", address, error)
            await self._leave()
            return
        self._link = link
        try:
            await link.gone.wait()
        finally:
            link.close("")
            self._link = None


class MasterLink(asyncio.Protocol):
    """The connection to the master."""

    def __init__(self, slave: HaSlave, address: str) -> None:
        self._slave = slave
        self._clock = slave.clock
        self._address = address
        self._gate: SlaveGate | None = None
        self._answer: Answer | None = None
        self._transport: asyncio.Transport | None = None
        self._thread: LogThread | None = None
        self._moved = 0
        self.copier = Copier(slave.rules.copier(), slave.log.written, steady_ms())
        self.gone = asyncio.Event()
        self._closed = False
        self._second = 0
        self._got_now = 0
        self.bytes_per_second = 0

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Report at once: the master waits for it."""
        # The transports of uvloop are no subclasses of asyncio's.
        transport = cast("asyncio.Transport", transport)
        self._transport = transport
        secret = self._slave.rules.secret
        self._slave.state = State.HANDSHAKE
        if secret is not None:
            self._gate = SlaveGate(secret, self._slave.broker_id, os.urandom(32))
        else:
            self._show_tail()

    @override
    def data_received(self, data: bytes) -> None:
        """Append what the master sends."""
        try:
            if self._transport is not None and not self.is_copying:
                data = self._greet(self._transport, data)
            if not data or not self.is_copying or self._thread is not None:
                return
            self._got_now += len(data)
            for offset, piece in self.copier.receive(data, steady_ms()):
                self._slave.log.append(offset, piece)
        except PeerFault as fault:
            self.close(f"it {fault}")
        except (StoreFault, OSError) as fault:
            self.close(str(fault))
        else:
            self.report()

    @property
    def is_copying(self) -> bool:
        """Whether the handshake is over."""
        return self._gate is None and self._answer is None

    def _greet(self, transport: asyncio.Transport, data: bytes) -> bytes:
        """Go on with the handshake; return what is left for the copier. Raises PeerFault."""
        if self._gate is not None:
            answer, rest = self._gate.receive(data)
            if answer:
                self._write(answer)
            if rest is None:
                return b""
            self._gate = None
            self._show_tail()
            data = rest
        if self._answer is None:
            return data
        answered = self._answer.receive(data)
        if answered is None:
            return b""
        verdict, rest = answered
        if verdict is None:
            log.info("the master at %s compares no logs: it is not of our make", self._address)
        elif verdict is Verdict.PROCEED:
            self._slave.judged(None)
        else:
            self._refused(verdict)
        self._answer = None
        self._begin(transport, rest)
        return b"" if self._thread is not None else rest

    def _show_tail(self) -> None:
        """Write a digest of the log's end and where it is, together: the master waits for them."""
        try:
            tail = tail_of(self._slave.log)
        except StoreFault as fault:
            self.close(str(fault))
            return
        self._answer = Answer()
        report = self.copier.report(self.copier.end, steady_ms()) or b""
        self._write(tail.encode() + report)

    def _refused(self, verdict: Verdict) -> None:
        end = self.copier.end
        if verdict is Verdict.GONE:
            raise PeerFault(f"keeps no files as old as offset {end} any more: {_EMPTY_IT}")
        if verdict is Verdict.AHEAD:
            why = f"the log here ends at {end}, behind the end of the log of {self._address}"
        else:
            why = f"the log here differs from that of {self._address} before offset {end}"
        self._slave.judged(why)
        raise PeerFault("refuses this log as no copy of its own")

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        """Tell whoever waits, unless a thread has the connection now."""
        if self._thread is not None:
            return
        if self._transport is not None:
            log.warning("the master at %s is gone%s", self._address, f": {exc}" if exc else "")
            self._transport = None
        self.gone.set()

    def report(self) -> None:
        """Say how far the log is, if it has grown or the last report is old."""
        if self._transport is None or not self.is_copying:
            return
        with contextlib.suppress(StoreFault):
            report = self.copier.report(self._slave.log.vouched, steady_ms())
            if report is not None:
                self._write(report)

    def check(self) -> None:
        """Report in good time, and leave a silent master."""
        second = steady_ms() // 1000
        if second != self._second:
            self._second = second
            self.bytes_per_second, self._got_now = self._got_now, 0
            if self._thread is not None:
                moved = self._thread.moved
                self.bytes_per_second, self._moved = moved - self._moved, moved
        if self._thread is not None:
            # It keeps its own time.
            return
        try:
            self.copier.check(steady_ms())
        except PeerFault as fault:
            self.close(f"it {fault}")
            return
        self.report()

    def follow(self) -> None:
        """Go by the rules of the moment."""
        self.copier.follow(self._slave.rules.copier())
        if self._thread is not None:
            self._thread.tune(self._slave.rules.feed(0))

    def close(self, why: str) -> None:
        """Leave the master; the reason is logged, twice is once."""
        if self._thread is not None:
            if why and not self._closed:
                self._tell_closed(why)
            self._closed = True
            self._thread.stop()
            return
        transport, self._transport = self._transport, None
        if transport is None:
            return
        if why:
            self._tell_closed(why)
        transport.abort()

    async def ended(self) -> None:
        """Wait until the thread has ended, if there is one."""
        if self._thread is not None:
            await self._thread.gone.wait()

    @property
    def last_read_ms(self) -> int:
        """When the master was last heard, Unix milliseconds."""
        return self._clock.now_ms() - self._silent_ms()[0]

    @property
    def last_write_ms(self) -> int:
        """When the last report was written, Unix milliseconds."""
        return self._clock.now_ms() - self._silent_ms()[1]

    def _silent_ms(self) -> tuple[int, int]:
        if self._thread is not None:
            return self._thread.silent_ms
        now_ms = steady_ms()
        return now_ms - self.copier.last_read_ms, now_ms - self.copier.last_write_ms

    def _begin(self, transport: asyncio.Transport, heard: bytes = b"") -> None:
        log.info("copying the log of %s from %d", self._address, self.copier.end)
        if self._slave.tls is None:
            self._transport = None
            if not self._slave.joined(self):
                transport.abort()
                return
            fd = take_socket(transport)
            native = self._slave.log.follow(fd, self._slave.rules.copier(), heard=heard)
            self._thread = LogThread(native, _no_reports, self._thread_ended)
            self._slave.state = State.TRANSFER
            return
        self._slave.state = State.TRANSFER

    def _thread_ended(self, kind: str, text: str) -> None:
        if not self._closed and kind == "lost":
            log.warning("the master at %s is gone%s", self._address, f": {text}" if text else "")
        elif not self._closed:
            self._tell_closed(f"it {text}" if kind == "fault" else text)
        self._closed = True
        self.gone.set()

    def _tell_closed(self, why: str) -> None:
        # The same fault may come back with every connection.
        text = f"the connection to the master at {self._address} is closed: {why}"
        self._slave.rated.warning(why[:40], text)

    def _write(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)


def _no_reports(_first: int | None, _acked: int) -> None:
    """Hear nothing: a master reports to nobody."""
