"""The master's port for slaves: accepts them, feeds each its log, hears what they have.

Who may come and from where it gets the log is decided here: a connection is a stranger's until its
first report is there, with the digest of a slave of ours or without. The copying is done by a
thread of the core for each slave; over TLS by the loop, at most a mebibyte a turn for each slave.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import os
from typing import TYPE_CHECKING, cast

from roquet.base.clock import steady_ms
from roquet.base.errors import UsageError
from roquet.base.overriding import override
from roquet.ha.feed import Feed, start_of
from roquet.ha.frames import REPORT, PeerFault
from roquet.ha.places import Places
from roquet.ha.secret import MasterGate
from roquet.ha.tail import Arrival, Tail, Verdict, encode_verdict, is_same
from roquet.ha.threads import LogThread, take_socket
from roquet.service.listening import port_of
from roquet.service.ratelog import RateLog
from roquet.store.results import StoreFault

if TYPE_CHECKING:
    import ssl

    from roquet.base.clock import Clock
    from roquet.ha.feed import FeedRules
    from roquet.ha.log import Log
    from roquet.ha.replicas import Replicas


log = logging.getLogger(__name__)

STRANGER_MS = 3_000
"""How long a connection may take to prove that it knows the secret."""
TURN_BYTES = 1 << 20
"""What one slave gets in one turn of the loop."""
_HIGH_WATER = 1 << 20
_BEGINS = "slave %s has the log up to %d and gets it from %s"


@dataclasses.dataclass(frozen=True, slots=True)
class SlaveView:
    """What a master knows of a slave's connection."""

    address: str
    acked: int
    position: int
    bytes_per_second: int
    """Of the last whole second."""


@dataclasses.dataclass(frozen=True, slots=True)
class Entrance:
    """What a slave must show, and how the master speaks."""

    secret: str | None = None
    tls: ssl.SSLContext | None = None


class HaMaster:
    """Feeds slaves from `start` to `stop`."""

    def __init__(
        self,
        log_: Log,
        replicas: Replicas,
        rules: FeedRules,
        *,
        entrance: Entrance,
        clock: Clock,
    ) -> None:
        self.log = log_
        self.replicas = replicas
        self.rules = rules
        self.entrance = entrance
        self.rated = RateLog(log, clock)
        self._places: Places[SlaveLink] = Places()
        self._server: asyncio.Server | None = None
        self._port = 0

    @property
    def port(self) -> int:
        """The port slaves connect to, once it listens."""
        return self._port

    @property
    def slaves(self) -> list[SlaveView]:
        """The connected slaves that have reported."""
        return [view for link in self._places.slaves if (view := link.view()) is not None]

    async def listen(self, host: str, port: int) -> int:
        """Open the port, 0 for any, and return it. Raises UsageError when it cannot be had."""
        loop = asyncio.get_running_loop()
        within_s = None if self.entrance.tls is None else STRANGER_MS / 1000
        try:
            self._server = await loop.create_server(
                lambda: SlaveLink(self),
                host,
                port,
                ssl=self.entrance.tls,
                ssl_handshake_timeout=within_s,
                ssl_shutdown_timeout=within_s,
            )
        except OSError as error:
            raise UsageError(f"cannot listen for slaves on {host}:{port}: {error}") from error
        self._port = port_of(self._server, host, port)
        return self._port

    def follow(self, rules: FeedRules) -> None:
        """Go by other rules from now on, on the connections that there are as well."""
        self.rules = rules
        for link in self._places.all():
            link.follow(rules)

    async def stop(self) -> None:
        """Close the port and the slaves' connections."""
        server, self._server = self._server, None
        if server is None:
            return
        server.close()
        links = self._places.all()
        for link in links:
            link.close()
        await server.wait_closed()
        for link in links:
            await link.ended()

    def wake(self) -> None:
        """Send what there is: the log has grown. Threads see that themselves."""
        slaves = self._places.slaves
        if slaves and self.entrance.tls is not None:
            end = self.log.limit
            for link in slaves:
                link.pump(end)

    async def tick(self) -> None:
        """Send heartbeats, end silent connections, and send what there is: a timer's action."""
        now_ms = steady_ms()
        for link in self._places.all():
            link.check(now_ms)
        self.wake()

    def behind(self) -> int | None:
        """Return the bytes that the best slave lacks; None without slaves."""
        offsets = self.replicas.by_slave().values()
        return max(0, self.log.limit - max(offsets)) if offsets else None

    @property
    def stranger_ms(self) -> int:
        """How long a connection may say nothing that counts.

        Java's slaves may be silent for a heartbeat's time after they have connected.
        """
        wait_ms = 0 if self.entrance.secret is not None else self.rules.heartbeat_ms
        return min(STRANGER_MS + wait_ms, self.rules.housekeeping_ms)

    def knocked(self, link: SlaveLink, host: str) -> bool:
        """Take a stranger; the oldest goes when there are too many. False while stopped."""
        if self._server is None:
            return False
        leaver = self._places.knock(link, host)
        if leaver is not None:
            leaver.turn_away("has not said what its log is, and others wait")
        return True

    def joined(self, link: SlaveLink, host: str, *, proven: bool) -> bool:
        """Take a slave that has reported; False when there is no place for it."""
        taken, leaver = self._places.join(link, host, proven=proven)
        if leaver is not None:
            leaver.turn_away("has proven nothing, and its place is needed")
        return taken

    def gone(self, link: SlaveLink) -> None:
        """Forget a connection."""
        self._places.leave(link)
        self.replicas.left(link)


class SlaveLink(asyncio.Protocol):
    """One slave's connection."""

    def __init__(self, master: HaMaster) -> None:
        self._master = master
        self._feed = Feed(master.rules, steady_ms())
        self._gate: MasterGate | None = None
        self._arrival: Arrival | None = Arrival()
        self._say = b""
        self._since_ms = steady_ms()
        self._host = "?"
        self._transport: asyncio.Transport | None = None
        self._thread: LogThread | None = None
        self._is_fed = False
        self._first = 0
        self._paused = False
        self._again = False
        self._address = "?"
        self._slave = "?"
        self._second = 0
        self._sent_before = 0
        self._sent_now = 0
        self._moved = 0

    # --- what the transport says ----------------------------------------------------------------

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin: the slave speaks first, unless it has to know the secret."""
        # The transports of uvloop are no subclasses of asyncio's.
        transport = cast("asyncio.Transport", transport)
        self._transport = transport
        peer = transport.get_extra_info("peername") or ("?", 0)
        self._address = f"{peer[0]}:{peer[1]}"
        self._host = self._slave = str(peer[0])
        if not self._master.knocked(self, self._host):
            transport.abort()
            return
        log.debug("%s has connected to the port for slaves", self._address)
        transport.set_write_buffer_limits(high=_HIGH_WATER)
        secret = self._master.entrance.secret
        if secret is not None:
            self._gate = MasterGate(secret, os.urandom(32))
            transport.write(self._gate.challenge())

    @override
    def data_received(self, data: bytes) -> None:
        """Take reports."""
        if self._transport is None:
            return
        try:
            if self._gate is not None:
                passed = self._gate.receive(data)
                if passed is None:
                    return
                slave, self._say, data = passed
                self._gate = None
                self._slave = f"id {slave}"
            if self._arrival is not None:
                self._arrive(self._arrival, data)
            else:
                self._take(data)
        except (PeerFault, StoreFault, OSError) as fault:
            self._drop(str(fault))

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the slave, unless a thread has it now."""
        if self._thread is not None:
            return
        level = logging.INFO if self._arrival is None else logging.DEBUG
        log.log(level, "slave %s is gone%s", self._address, f": {exc}" if exc else "")
        self._transport = None
        self._master.gone(self)

    @override
    def pause_writing(self) -> None:
        """Send no more for now."""
        self._paused = True

    @override
    def resume_writing(self) -> None:
        """Go on."""
        self._paused = False
        self.pump(self._master.log.limit)

    # --- what the master does -------------------------------------------------------------------

    def follow(self, rules: FeedRules) -> None:
        """Go by other rules from now on."""
        self._feed.follow(rules)
        if self._thread is not None:
            self._thread.tune(rules, loud=self._master.replicas.wanted > 0)

    def close(self) -> None:
        """Close in order: what was written is sent."""
        if self._thread is not None:
            self._thread.stop()
        elif self._transport is not None:
            self._transport.close()

    async def ended(self) -> None:
        """Wait until the thread has ended, if there is one."""
        if self._thread is not None:
            await self._thread.gone.wait()

    def view(self) -> SlaveView | None:
        """Return what is known of the slave, None before it has reported."""
        if self._thread is not None:
            if not self._is_fed:
                return None
            acked = max(self._first, self._thread.acked)
            position = max(self._first, self._thread.position)
            return SlaveView(self._address, acked, position, self._sent_before)
        feed = self._feed
        if feed.acked is None or feed.position is None:
            return None
        return SlaveView(self._address, feed.acked, feed.position, self._sent_before)

    def check(self, now_ms: int) -> None:
        """Send a heartbeat if one is due, and end a silent connection."""
        if now_ms // 1000 != self._second:
            self._second = now_ms // 1000
            self._sent_before, self._sent_now = self._sent_now, 0
            if self._thread is not None:
                moved = self._thread.moved
                self._sent_before, self._moved = moved - self._moved, moved
        if self._thread is not None:
            # It keeps its own time; acknowledgements that nobody waits for are looked at here.
            if self._is_fed:
                acked = max(self._first, self._thread.acked)
                self._master.replicas.acked(self, self._slave, acked)
            return
        try:
            if self._arrival is not None:
                self._check_stranger(self._arrival, now_ms)
            self._feed.check(now_ms)
        except PeerFault as fault:
            self._drop(str(fault))
            return
        heartbeat = None if self._paused else self._feed.heartbeat(now_ms)
        if heartbeat is not None:
            self._write(heartbeat)

    def pump(self, end: int) -> None:
        """Send what the slave lacks up to `end`, as much as a turn allows."""
        sent = 0
        now_ms = steady_ms()
        try:
            while not self._paused and self._transport is not None:
                due = self._feed.due(end, now_ms)
                if due is None:
                    return
                if sent >= TURN_BYTES:
                    self._pump_again()
                    return
                piece = self._master.log.read(*due)
                if not piece:
                    return
                self._write(self._feed.header(len(piece), now_ms) + piece)
                sent += len(piece)
                self._sent_now += len(piece)
        except StoreFault as fault:
            self._drop(str(fault))

    def _pump_again(self) -> None:
        if not self._again:
            self._again = True
            asyncio.get_running_loop().call_soon(self._go_on)

    def _go_on(self) -> None:
        self._again = False
        if self._transport is not None:
            self.pump(self._master.log.limit)

    def _take(self, data: bytes) -> None:
        master = self._master
        if data and self._feed.receive(data, steady_ms(), master.log.begin, master.log.limit):
            master.replicas.acked(self, self._slave, self._feed.acked or 0)

    # --- the first report -----------------------------------------------------------------------

    def _check_stranger(self, arrival: Arrival, now_ms: int) -> None:
        silent_ms = now_ms - self._since_ms
        if silent_ms <= self._master.stranger_ms:
            return
        if self._gate is not None:
            raise PeerFault(f"has not shown within {silent_ms} ms that it knows haSharedSecret")
        raise PeerFault(f"{arrival.missing}, in {silent_ms} ms")

    def _arrive(self, arrival: Arrival, data: bytes) -> None:
        """Take the first words; once they are whole, feed the slave or send it away."""
        came = arrival.receive(data)
        if came is None:
            if self._say:
                self._write(self._say)
                self._say = b""
            return
        tail, report, rest = came
        master = self._master
        begin, end = master.log.begin, master.log.limit
        try:
            position = start_of(report, begin, end, master.rules.file_bytes)
        except PeerFault as fault:
            self._refuse(tail, Verdict.AHEAD if report > end else Verdict.GONE, str(fault))
            return
        same = None if tail is None else is_same(master.log, tail)
        if same is False:
            why = f"has other bytes than this log before offset {report}: it is no copy of it"
            self._refuse(tail, Verdict.DIFFERS, why)
            return
        known = same is True or master.entrance.secret is not None
        if not master.joined(self, self._host, proven=known):
            self.turn_away("finds no place: there are enough slaves")
            return
        self._arrival = None
        self._first = report
        log.info(_BEGINS, self._address, report, position)
        if tail is not None:
            self._say += encode_verdict(Verdict.PROCEED, end)
        heard = REPORT.pack(report) + rest
        if master.entrance.tls is None and self._transport is not None:
            self._hand_over(self._transport, self._say, heard, position)
            master.replicas.came(self, self._slave, report, proven=same is True)
            return
        self._write(self._say)
        self._feed.receive(heard[: REPORT.size], steady_ms(), begin, end)
        master.replicas.came(self, self._slave, report, proven=same is True)
        self._take(rest)
        self.pump(end)

    def _refuse(self, tail: Tail | None, verdict: Verdict, why: str) -> None:
        """Send a slave away, and tell one of ours why."""
        self._master.rated.warning(("refused", self._host), f"slave {self._address} {why}")
        self._master.gone(self)
        if tail is not None:
            self._write(self._say + encode_verdict(verdict, self._master.log.limit))
        transport, self._transport = self._transport, None
        if transport is not None:
            transport.close()

    def turn_away(self, why: str) -> None:
        """End a connection whose place is needed."""
        self._drop(why)

    # --- with a thread --------------------------------------------------------------------------

    def _hand_over(
        self, transport: asyncio.Transport, say: bytes, heard: bytes, position: int
    ) -> None:
        """Give the connection to a thread, which goes on from `position`."""
        self._transport = None
        fd = take_socket(transport)
        loud = self._master.replicas.wanted > 0
        native = self._master.log.feed(fd, self._master.rules, say=say, heard=heard, loud=loud)
        self._thread = LogThread(native, self._heard, self._thread_ended)
        native.begin(position)
        self._is_fed = True

    def _heard(self, _first: int | None, acked: int) -> None:
        if self._is_fed:
            self._master.replicas.acked(self, self._slave, max(self._first, acked))

    def _thread_ended(self, kind: str, text: str) -> None:
        self._is_fed = False
        if kind == "lost":
            log.info("slave %s is gone%s", self._address, f": {text}" if text else "")
        elif kind != "stopped":
            log.error("slave %s is dropped: it %s", self._address, text)
        self._master.gone(self)

    def _write(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)

    def _drop(self, why: str) -> None:
        if self._arrival is None:
            log.error("slave %s is dropped: it %s", self._address, why)
        else:
            # Anybody can cause this line.
            self._master.rated.warning(
                ("stranger", self._host), f"slave {self._address} is dropped: it {why}"
            )
        self._is_fed = False
        self._master.gone(self)
        if self._thread is not None:
            self._thread.stop()
        if self._transport is not None:
            self._transport.abort()
