"""The master's port for slaves: accepts them, feeds each its log, hears what they have.

Who may come and from where it gets the log is decided here: a connection is a stranger's until its
first report is there, with the digest of a slave of ours or without. A thread of the core has each
connection from its first byte on, TLS included, and copies once it is told to.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import os
from typing import TYPE_CHECKING, cast

from roquet.base.clock import steady_ms
from roquet.base.overriding import override
from roquet.ha.feed import start_of
from roquet.ha.frames import REPORT, PeerFault
from roquet.ha.places import Places
from roquet.ha.secret import MasterGate
from roquet.ha.strangers import is_listed
from roquet.ha.tail import Arrival, Tail, Verdict, doubtful_end, encode_verdict, is_same
from roquet.ha.threads import LogThread, take_socket
from roquet.protocol.hosts import join_address
from roquet.service.http.listening import port_of
from roquet.service.lifecycle import Rest
from roquet.service.process.listening import cannot_listen
from roquet.service.ratelog import RateLog
from roquet.store.results import StoreFault

if TYPE_CHECKING:
    from collections.abc import Callable

    from roquet._native import PairTls
    from roquet.base.clock import Clock
    from roquet.ha.feed import FeedConfig
    from roquet.ha.log import ReplicatedLog
    from roquet.ha.replicas import Replicas
    from roquet.remoting.tls import Certificates


log = logging.getLogger(__name__)

STRANGER_MS = 3_000
"""How long a connection may take to prove that it knows the secret."""
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
    addresses: str = ""
    """Of hosts that may connect, with commas; empty: all may."""
    tls: Certificates[PairTls] | None = None


class HaMaster:
    """Feeds slaves from `start` to `stop`."""

    def __init__(
        self,
        log_: ReplicatedLog,
        replicas: Replicas,
        rules: FeedConfig,
        *,
        entrance: Entrance,
        clock: Clock,
    ) -> None:
        self.log = log_
        self.replicas = replicas
        self.rules = rules
        self.entrance = entrance
        self.rated = RateLog(log, clock)
        self.alone = Rest()
        """Ends with the first connection."""
        self._places: Places[SlaveLink] = Places()
        self.is_awaited: Callable[[], bool] = lambda: True
        """Whether sends may wait for copies on the loop, besides those of `replicas`."""
        replicas.look, replicas.begins = self.look, self.listen_up
        self._is_loud = True
        self._links: set[SlaveLink] = set()
        """Every connection whose thread has not ended, those without a place as well."""
        self._server: asyncio.Server | None = None

    @property
    def slaves(self) -> list[SlaveView]:
        """The connected slaves that have reported."""
        return [view for link in self._places.slaves if (view := link.view()) is not None]

    async def listen(self, host: str, port: int) -> int:
        """Open the port, 0 for any, and return it. Raises UsageError when it cannot be had."""
        loop = asyncio.get_running_loop()
        try:
            self._server = await loop.create_server(lambda: SlaveLink(self), host, port)
        except OSError as error:
            raise cannot_listen(f"{host}:{port}", error, on="for slaves on") from error
        return port_of(self._server, host, port)

    def follow(self, rules: FeedConfig) -> None:
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
        links = list(self._links)
        for link in links:
            link.close()
        await server.wait_closed()
        for link in links:
            await link.ended()

    async def tick(self) -> None:
        """Look at how far slaves are, and end strangers that are late: a timer's action."""
        now_ms = steady_ms()
        links = self._places.all()
        self._is_loud = self.replicas.is_awaited or self.is_awaited()
        for link in links:
            link.hear()
            link.check(now_ms)
        self.alone.look(idle=not links)

    def look(self) -> None:
        """Take up what the slaves have acknowledged."""
        for link in self._places.slaves:
            link.look()

    def listen_up(self) -> None:
        """Have each acknowledgement be news: a send waits for some on the loop."""
        if self._is_loud:
            return
        self._is_loud = True
        for link in self._places.slaves:
            link.hear()

    @property
    def hears(self) -> tuple[bool, bool]:
        """Whether an acknowledgement is news here, and whether it counts without that.

        The threads of connections answer what waits there by themselves where one copy is enough;
        more of them are counted here.
        """
        copies = self.replicas.wanted
        return copies > 0 and (copies > 1 or self._is_loud), copies == 1

    def behind(self) -> int | None:
        """Return the bytes that the best slave lacks; None without slaves."""
        self.look()
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
        self._links.add(link)
        self.alone.asked()
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
        """Take a connection's place away."""
        self._places.leave(link)
        self.replicas.left(link)

    def ended(self, link: SlaveLink) -> None:
        """Forget a connection that has no thread any more."""
        self._links.discard(link)


class SlaveLink(asyncio.Protocol):
    """One slave's connection: a thread of the core has its socket."""

    def __init__(self, master: HaMaster) -> None:
        self._master = master
        self._gate: MasterGate | None = None
        self._arrival: Arrival | None = Arrival()
        self._since_ms = steady_ms()
        self._host = "?"
        self._thread: LogThread | None = None
        self._is_fed = False
        self._is_dropped = False
        self._first = 0
        self._address = "?"
        self._slave = "?"
        self._second = 0
        self._sent_before = 0
        self._moved = 0

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Give the socket to a thread; the slave speaks first, unless it has to know the secret."""
        # The transports of uvloop are no subclasses of asyncio's.
        transport = cast("asyncio.Transport", transport)
        peer = transport.get_extra_info("peername") or ("?", 0)
        self._address = join_address(peer[0], peer[1])
        self._host = self._slave = str(peer[0])
        master = self._master
        if not is_listed(self._host, master.entrance.addresses):
            text = f"{self._address} is no slave: haSlaveAddresses does not name it"
            master.rated.warning(("unlisted", self._host), text)
            transport.abort()
            return
        if not master.knocked(self, self._host):
            transport.abort()
            return
        log.debug("%s has connected to the port for slaves", self._address)
        tls = None if master.entrance.tls is None else master.entrance.tls.fresh()
        try:
            native = master.log.feed(take_socket(transport), master.rules, tls)
        except OSError as error:
            self._drop(f"cannot be given a thread: {error}")
            return
        self._thread = LogThread(native, self._said, self._acked, self._ended)
        if master.entrance.secret is not None:
            self._gate = MasterGate(master.entrance.secret, os.urandom(32))
            self._thread.say(self._gate.challenge())

    # --- what the master does -------------------------------------------------------------------

    def follow(self, rules: FeedConfig) -> None:
        """Go by other rules from now on."""
        if self._thread is not None:
            self._thread.tune(rules)
            self.hear()

    def hear(self) -> None:
        """Have acknowledgements be news, and count, as the master says now."""
        if self._thread is not None and self._is_fed:
            loud, counts = self._master.hears
            self._thread.tell_acks(loud=loud, counts=counts)
            # What came before that may have been no news for anybody.
            self.look()

    def look(self) -> None:
        """Take up what the slave has acknowledged."""
        if self._thread is not None and self._is_fed:
            self._acked(self._thread.acked)

    def close(self) -> None:
        """End the connection."""
        if self._thread is not None:
            self._thread.stop()

    async def ended(self) -> None:
        """Wait until the thread has ended, if there is one."""
        if self._thread is not None:
            await self._thread.gone.wait()

    def view(self) -> SlaveView | None:
        """Return what is known of the slave, None before it has reported."""
        if self._thread is None or not self._is_fed:
            return None
        acked = max(self._first, self._thread.acked)
        position = max(self._first, self._thread.position)
        return SlaveView(self._address, acked, position, self._sent_before)

    def check(self, now_ms: int) -> None:
        """Look at how far the slave is, and end the connection of a stranger that is late.

        The thread keeps its own time; acknowledgements that nobody waits for are looked at here.
        """
        thread = self._thread
        if thread is None:
            return
        if now_ms // 1000 != self._second:
            self._second = now_ms // 1000
            moved = thread.moved
            self._sent_before, self._moved = moved - self._moved, moved
        if self._is_fed:
            self.look()
        elif self._arrival is not None:
            self._check_stranger(self._arrival, now_ms)

    def turn_away(self, why: str) -> None:
        """End a connection whose place is needed."""
        self._drop(why)

    # --- the first report -----------------------------------------------------------------------

    def _check_stranger(self, arrival: Arrival, now_ms: int) -> None:
        silent_ms = now_ms - self._since_ms
        if silent_ms <= self._master.stranger_ms:
            return
        if self._gate is not None:
            self._drop(f"has not shown within {silent_ms} ms that it knows haSharedSecret")
        else:
            self._drop(f"{arrival.missing}, in {silent_ms} ms")

    def _said(self, data: bytes) -> None:
        """Take the slave's first words."""
        thread = self._thread
        if thread is None or self._is_dropped or self._arrival is None:
            return
        try:
            if self._gate is not None:
                passed = self._gate.receive(data)
                if passed is None:
                    return
                slave, proof, data = passed
                self._gate = None
                self._slave = f"id {slave}"
                thread.say(proof)
            self._arrive(thread, self._arrival, data)
        except (PeerFault, StoreFault, OSError) as fault:
            self._drop(str(fault))

    def _arrive(self, thread: LogThread, arrival: Arrival, data: bytes) -> None:
        """Once the first words are whole, feed the slave or send it away."""
        came = arrival.receive(data)
        if came is None:
            return
        tail, report, rest = came
        master = self._master
        begin, end = master.log.begin, master.log.limit
        try:
            position = start_of(report, begin, end, master.rules.file_bytes)
        except PeerFault as fault:
            verdict = Verdict.AHEAD if report > end else Verdict.GONE
            self._refuse(thread, tail, verdict, str(fault))
            return
        same = None if tail is None else is_same(master.log, tail)
        shown = tail is not None and same is True and tail.is_full(master.rules.file_bytes)
        proven = tail is not None and shown and tail.end == report
        # Nothing before `position` is sent on this connection.
        doubt = report if proven else max(position, doubtful_end(master.log, report, end))
        if same is False:
            why = f"has other bytes than this log before offset {report}: it is no copy of it"
            self._refuse(thread, tail, Verdict.DIFFERS, why)
            return
        known = shown or master.entrance.secret is not None
        if not master.joined(self, self._host, proven=known):
            self.turn_away("finds no place: there are enough slaves")
            return
        self._arrival = None
        self._first = report
        log.info(_BEGINS, self._address, report, position)
        if tail is not None:
            thread.say(encode_verdict(Verdict.PROCEED, end))
        thread.begin(position, REPORT.pack(report) + rest)
        master.replicas.came(self, self._slave, report, proven=proven, doubt=doubt)
        # Behind that: what is in doubt is given up before an acknowledgement counts.
        self._is_fed = True
        self.hear()

    def _refuse(self, thread: LogThread, tail: Tail | None, verdict: Verdict, why: str) -> None:
        """Send a slave away, and tell one of ours why."""
        self._master.rated.warning(("refused", self._host), f"slave {self._address} {why}")
        self._is_dropped = True
        self._master.gone(self)
        if tail is not None:
            thread.say(encode_verdict(verdict, self._master.log.limit))
        thread.finish()

    # --- what the thread says -------------------------------------------------------------------

    def _acked(self, acked: int) -> None:
        if self._is_fed:
            self._master.replicas.acked(self, self._slave, max(self._first, acked))

    def _ended(self, kind: str, text: str) -> None:
        is_stranger, self._is_fed = self._arrival is not None, False
        master = self._master
        if kind == "lost":
            level = logging.DEBUG if is_stranger else logging.INFO
            log.log(level, "slave %s is gone%s", self._address, f": {text}" if text else "")
        elif kind != "stopped" and not self._is_dropped:
            self._tell_dropped(f"it {text}" if kind == "fault" else text)
        master.gone(self)
        master.ended(self)

    def _drop(self, why: str) -> None:
        self._tell_dropped(f"it {why}")
        self._is_fed, self._is_dropped = False, True
        self._master.gone(self)
        if self._thread is None:
            self._master.ended(self)
        else:
            self._thread.stop()

    def _tell_dropped(self, why: str) -> None:
        text = f"slave {self._address} is dropped: {why}"
        if self._arrival is None:
            log.error("%s", text)
        else:
            # Anybody can cause this line.
            self._master.rated.warning(("stranger", self._host), text)
