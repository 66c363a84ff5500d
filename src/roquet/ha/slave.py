"""The slave's side: connects to its master, appends what comes, reports how far it is.

A thread of the core has the connection, TLS included; it copies once the master is known to be the
right one, and has found that the log here is a copy of its own.
"""

from __future__ import annotations

import asyncio
import enum
import logging
import os
from typing import TYPE_CHECKING, cast

from roquet.base.clock import steady_ms
from roquet.base.errors import RoquetError
from roquet.base.overriding import override
from roquet.ha.frames import REPORT, PeerFault
from roquet.ha.secret import SlaveGate
from roquet.ha.tail import Answer, Verdict, tail_of
from roquet.ha.threads import LogThread, take_socket
from roquet.protocol.hosts import split_address
from roquet.service.background import Tasks
from roquet.service.ratelog import RateLog
from roquet.store.results import StoreFault

if TYPE_CHECKING:
    from collections.abc import Callable

    from roquet._native import PairTls
    from roquet.base.clock import Clock
    from roquet.ha.config import HaConfig
    from roquet.ha.log import ReplicatedLog
    from roquet.remoting.tls import Certificates


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
        log_: ReplicatedLog,
        rules: HaConfig,
        clock: Clock,
        *,
        broker_id: int,
        tls: Certificates[PairTls] | None = None,
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

    def forget(self) -> None:
        """Know no master any more but the one that was configured."""
        self._address = self.rules.configured_master
        if self._address is None:
            self._known.clear()

    def follow(self, rules: HaConfig) -> None:
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
        """Take a connection that was made; False when nothing is copied any more."""
        if self.state is State.SHUTDOWN:
            return False
        self._link = link
        return True

    async def tick(self) -> None:
        """Look at the connection: a timer's action."""
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
            # A record that was copied in part is in no digest, and may be another one there.
            await self.log.settle()
            async with asyncio.timeout(5):
                _, link = await asyncio.get_running_loop().create_connection(
                    lambda: MasterLink(self, address), host, port
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
    """The connection to the master: a thread of the core has its socket."""

    def __init__(self, slave: HaSlave, address: str) -> None:
        self._slave = slave
        self._clock = slave.clock
        self._address = address
        self._gate: SlaveGate | None = None
        self._answer: Answer | None = None
        self._thread: LogThread | None = None
        self._end = slave.log.written
        self._moved = 0
        self.gone = asyncio.Event()
        self.is_copying = False
        """Whether the handshake is over."""
        self._closed = False
        self._second = 0
        self.bytes_per_second = 0

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Give the socket to a thread, and report at once: the master waits for it."""
        # The transports of uvloop are no subclasses of asyncio's.
        transport = cast("asyncio.Transport", transport)
        slave = self._slave
        if not slave.joined(self):
            transport.abort()
            self.gone.set()
            return
        slave.state = State.HANDSHAKE
        tls = None if slave.tls is None else slave.tls.fresh()
        try:
            native = slave.log.follow(take_socket(transport), slave.rules.copier(), tls)
        except OSError as error:
            self._tell_closed(f"it cannot be given a thread: {error}")
            self.gone.set()
            return
        self._thread = LogThread(native, self._said, _no_reports, self._thread_ended)
        if slave.rules.secret is not None:
            self._gate = SlaveGate(slave.rules.secret, slave.broker_id, os.urandom(32))
        else:
            self._show_tail(self._thread)

    def _said(self, data: bytes) -> None:
        """Go on with the handshake."""
        if self._thread is None or self._closed or self.is_copying:
            return
        try:
            self._greet(self._thread, data)
        except PeerFault as fault:
            self.close(f"it {fault}")
        except (StoreFault, OSError) as fault:
            self.close(str(fault))

    def _greet(self, thread: LogThread, data: bytes) -> None:
        if self._gate is not None:
            answer, rest = self._gate.receive(data)
            if answer:
                thread.say(answer)
            if rest is None:
                return
            self._gate = None
            self._show_tail(thread)
            data = rest
        if self._answer is None:
            return
        answered = self._answer.receive(data)
        if answered is None:
            return
        verdict, rest = answered
        if verdict is None:
            log.info("the master at %s compares no logs: it is not of our make", self._address)
        elif verdict is Verdict.PROCEED:
            self._slave.judged(None)
        else:
            self._refused(verdict)
        log.info("copying the log of %s from %d", self._address, self._end)
        self.is_copying = True
        thread.begin(self._end, rest)
        self._slave.state = State.TRANSFER

    def _show_tail(self, thread: LogThread) -> None:
        """Write a digest of the log's end and where it is, together: the master waits for them."""
        try:
            tail = tail_of(self._slave.log)
        except StoreFault as fault:
            self.close(str(fault))
            return
        self._answer = Answer()
        thread.say(tail.encode() + REPORT.pack(self._end))

    def _refused(self, verdict: Verdict) -> None:
        if verdict is Verdict.GONE:
            raise PeerFault(f"keeps no files as old as offset {self._end} any more: {_EMPTY_IT}")
        if verdict is Verdict.AHEAD:
            why = f"the log here ends at {self._end}, behind the end of the log of {self._address}"
        else:
            why = f"the log here differs from that of {self._address} before offset {self._end}"
        self._slave.judged(why)
        raise PeerFault("refuses this log as no copy of its own")

    def check(self) -> None:
        """Count what came in the last second, and leave a master that is silent at first.

        Once it copies, the thread keeps its own time.
        """
        thread = self._thread
        if thread is None:
            return
        second = steady_ms() // 1000
        if second != self._second:
            self._second = second
            moved = thread.moved
            self.bytes_per_second, self._moved = moved - self._moved, moved
        if not self.is_copying:
            silent_ms = thread.silent_ms[0]
            if silent_ms > self._slave.rules.housekeeping_ms:
                self.close(f"it has said nothing for {silent_ms} ms")

    def follow(self) -> None:
        """Go by the rules of the moment."""
        if self._thread is not None:
            self._thread.tune(self._slave.rules.feed(0))

    def close(self, why: str) -> None:
        """Leave the master; the reason is logged, twice is once."""
        if self._thread is None:
            return
        if why and not self._closed:
            self._tell_closed(why)
        self._closed = True
        self._thread.stop()

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
        return (0, 0) if self._thread is None else self._thread.silent_ms

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


def _no_reports(_acked: int) -> None:
    """Hear nothing: a master reports to nobody."""
