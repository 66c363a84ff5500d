"""Who is fed, and from where: a slave's connection whose thread only notes what it is told."""

from __future__ import annotations

import asyncio
import os
import socket
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from typing_extensions import override

from pair_harness import Native, Transport, feed_rules
from remoting_harness import on_loop
from roquet.base.errors import UsageError
from roquet.ha import places
from roquet.ha import tail as tails
from roquet.ha.frames import REPORT
from roquet.ha.master import STRANGER_MS, Entrance, HaMaster, SlaveLink
from roquet.ha.replicas import ReplicaConfig, Replicas
from roquet.ha.secret import SlaveGate
from roquet.ha.tail import Tail, Verdict, encode_verdict, is_same, tail_of
from roquet.store.results import PutStatus
from roquet.testing.clock import FakeClock

if TYPE_CHECKING:
    from roquet.ha.feed import FeedConfig

RULES = feed_rules(batch=4, heartbeat_ms=5_000, housekeeping_ms=20_000, file_bytes=16)
SECRET = "sixteen bytes or more"


class Log:
    """Bytes from `begin` on."""

    def __init__(self, data: bytes, begin: int = 0) -> None:
        self.data = data
        self.begin = begin
        self.fault: OSError | None = None
        self.fed: list[Native] = []
        self.rules: list[FeedConfig] = []

    @property
    def limit(self) -> int:
        return self.begin + len(self.data)

    def read(self, offset: int, size_max: int) -> bytes:
        return self.data[offset - self.begin :][:size_max]

    def feed(self, fd: int, rules: FeedConfig, tls: object) -> Native:
        assert tls is None
        self.rules.append(rules)
        if self.fault is not None:
            os.close(fd)
            raise self.fault
        native = Native(fd)
        self.fed.append(native)
        return native


class World:
    """A master that listens, without a port."""

    def __init__(self, data: bytes = b"x" * 40, begin: int = 0, *, slaves: int = 1) -> None:
        self.log = Log(data, begin)
        self.replicas = Replicas(ReplicaConfig(slaves=slaves))
        self.master = HaMaster(
            cast("Any", self.log),
            self.replicas,
            RULES,
            entrance=Entrance(),
            clock=FakeClock(),
        )
        self.master._server = cast("Any", SimpleNamespace())

    def link(self, host: str = "10.0.0.1") -> tuple[SlaveLink, Native]:
        """Return a connection that has said nothing, and its thread."""
        link, transport = SlaveLink(self.master), Transport(host)
        link.connection_made(transport)
        assert transport.aborted, "the loop keeps no connection"
        return link, self.log.fed[-1]

    def slave(self, report: int = 0, host: str = "10.0.0.1") -> tuple[SlaveLink, Native]:
        """Return the connection of a slave that has reported."""
        link, native = self.link(host)
        link._said(REPORT.pack(report))
        return link, native

    async def tell(self, native: Native, kind: str, text: str = "") -> None:
        """Let a thread end."""
        native.tell(kind, text)
        await native.heard()


@on_loop
async def test_slave_is_fed_from_its_report_on() -> None:
    it = World(b"abcdefghij")
    link, native = it.slave(3)
    assert (native.begun, native.said) == ((3, REPORT.pack(3)), b"")
    native.acked, native.position = 3, 10
    view = link.view()
    assert view is not None
    assert (view.acked, view.position, view.address) == (3, 10, "10.0.0.1:9")
    link._acked(10)
    assert it.replicas.by_slave() == {"10.0.0.1": 10}


@on_loop
async def test_what_follows_the_first_report_is_the_thread_s() -> None:
    it = World()
    link, native = it.link()
    for byte in REPORT.pack(8)[:7]:
        link._said(bytes((byte,)))
    assert native.begun is None
    link._said(REPORT.pack(8)[7:] + b"more")
    link._said(b"and more")
    begun: object = native.begun
    assert begun == (8, REPORT.pack(8) + b"more")


@on_loop
async def test_stranger_has_no_view_and_counts_for_nothing() -> None:
    it = World()
    link, native = it.link()
    assert (link.view(), native.said, it.master.slaves) == (None, b"", [])
    link._acked(30)
    assert it.replicas.by_slave() == {}
    link._said(REPORT.pack(0)[:7])
    assert it.master.slaves == []
    link._said(REPORT.pack(0)[7:])
    assert [view.acked for view in it.master.slaves] == [0]


@on_loop
async def test_slave_that_reports_the_beginning_of_the_log_has_nothing() -> None:
    it = World(b"")
    link, _ = it.slave(0)
    for _ in range(2):
        assert it.replicas.by_slave() == {"10.0.0.1": 0}
        link._acked(0)


@on_loop
async def test_slave_with_the_secret_is_fed_under_its_id_and_a_liar_is_dropped() -> None:
    it = World()
    it.master.entrance = Entrance(secret=SECRET)
    link, native = it.link()
    gate = SlaveGate(SECRET, 7, b"s" * 32)
    answer, rest = gate.receive(native.said)
    assert rest is None
    link._said(answer[:-1])
    assert it.master.slaves == []
    link._said(answer[-1:] + REPORT.pack(40))
    assert gate.receive(native.said[40:]) == (b"", b""), "the master knows it, too"
    assert native.begun == (40, REPORT.pack(40))
    assert it.replicas.by_slave() == {"id 7": 40}
    liar, other = it.link()
    liar._said(bytes(72))
    assert (other.ended, other.begun) == ("stop", None)
    # What it has sent behind is not looked at.
    liar._said(REPORT.pack(40))
    assert other.begun is None


@on_loop
async def test_slave_whose_thread_has_ended_is_gone() -> None:
    it = World()
    for kind in ("lost", "fault", "stopped", "store"):
        link, native = it.slave()
        assert len(it.master.slaves) == 1
        await it.tell(native, kind, "why")
        assert (it.master.slaves, it.replicas.by_slave(), it.master._links) == ([], {}, set())
        await link.ended()


@on_loop
async def test_connection_without_a_thread_is_dropped_and_forgotten() -> None:
    it = World()
    it.log.fault = OSError("no thread")
    link, transport = SlaveLink(it.master), Transport("10.0.0.1")
    link.connection_made(transport)
    assert transport.aborted
    assert (it.master._places.all(), it.master._links) == ([], set())
    link.close()
    await link.ended()


@on_loop
async def test_stranger_is_dropped_a_moment_after_its_time_and_a_slave_is_not(
    caplog: pytest.LogCaptureFixture,
) -> None:
    it = World()
    wait_ms = STRANGER_MS + RULES.heartbeat_ms
    assert it.master.stranger_ms == wait_ms
    stranger, native = it.link()
    slave, other = it.slave()
    began_ms = stranger._since_ms
    stranger.check(began_ms + wait_ms)
    slave.check(began_ms + wait_ms)
    assert (native.ended, other.ended) == ("", "")
    stranger._said(b"abc")
    stranger.check(began_ms + wait_ms + 1)
    slave.check(began_ms + wait_ms + 1)
    assert (native.ended, other.ended) == ("stop", "")
    why = f"it wrote 3 bytes, which is no report, in {wait_ms + 1} ms"
    assert caplog.messages == [f"slave 10.0.0.1:9 is dropped: {why}"]


@on_loop
async def test_master_with_a_secret_or_little_patience_waits_less_for_strangers() -> None:
    it = World()
    it.master.entrance = Entrance(secret="s")
    assert it.master.stranger_ms == STRANGER_MS
    it.master.rules = feed_rules(heartbeat_ms=5_000, housekeeping_ms=2_000)
    assert it.master.stranger_ms == 2_000


@on_loop
async def test_changed_rules_reach_strangers_and_slaves() -> None:
    it = World()
    _, slave = it.slave()
    _, stranger = it.link("10.0.0.2")
    it.master.follow(feed_rules(batch=9))
    assert [native.tuned[0]["batch"] for native in (slave, stranger)] == [9, 9]
    it.link("10.0.0.3")
    assert [rules.batch for rules in it.log.rules] == [4, 4, 9]


@on_loop
async def test_proven_slave_that_takes_a_place_sends_an_unproven_one_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(places, "SLAVES_MAX", 1)
    it = World(b"x" * 40)
    _, doubtful = it.slave(0, "10.0.0.1")
    link, native = it.link("10.0.0.2")
    tail = tail_of(cast("Any", it.log))
    link._said(tail.encode() + REPORT.pack(40))
    assert (doubtful.ended, native.ended) == ("stop", "")
    assert native.said == encode_verdict(Verdict.PROCEED, 40)
    assert it.replicas.by_slave() == {"10.0.0.2": 40}
    assert it.replicas.has(40)
    assert [view.address for view in it.master.slaves] == ["10.0.0.2:9"]
    # Nobody goes for one that has proven nothing.
    _, third = it.slave(0, "10.0.0.3")
    assert (third.ended, native.ended) == ("stop", "")


@on_loop
async def test_oldest_stranger_goes_when_there_are_too_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(places, "STRANGERS_MAX", 2)
    it = World()
    ended = [it.link(f"10.0.0.{number}")[1] for number in range(3)]
    assert [native.ended for native in ended] == ["stop", "", ""]


@on_loop
async def test_master_that_is_stopped_takes_nobody() -> None:
    it = World()
    it.master._server = None
    link, transport = SlaveLink(it.master), Transport("10.0.0.1")
    link.connection_made(transport)
    assert (transport.aborted, it.log.fed) == (True, [])


@pytest.mark.parametrize(
    ("tail", "report", "verdict"),
    [
        (Tail(50, 4, b"d" * 28), 50, Verdict.AHEAD),
        (Tail(8, 4, b"d" * 28), 8, Verdict.GONE),
        (Tail(30, 4, b"d" * 28), 30, Verdict.DIFFERS),
    ],
)
@on_loop
async def test_slave_whose_log_is_no_copy_is_told_so_and_does_not_count(
    tail: Tail, report: int, verdict: Verdict
) -> None:
    it = World(b"x" * 30, 10)
    link, native = it.link()
    link._said(tail.encode() + REPORT.pack(report))
    assert native.said == encode_verdict(verdict, 40)
    assert (native.ended, native.begun) == ("finish", None)
    assert (it.master.slaves, it.replicas.by_slave()) == ([], {})
    # One without a digest is sent away without a word.
    plain, silent = it.link()
    plain._said(REPORT.pack(50))
    assert (silent.said, silent.ended) == (b"", "finish")


@pytest.mark.parametrize("slaves", [0, 1, 2])
@on_loop
async def test_acknowledgements_are_news_only_where_a_send_waits_for_copies(slaves: int) -> None:
    it = World(slaves=slaves)
    _, native = it.slave(3)
    assert native.acks_told == [(slaves > 0, slaves == 1)]


@on_loop
async def test_slave_that_is_sent_away_is_heard_no_more(caplog: pytest.LogCaptureFixture) -> None:
    """What it says until its connection has ended is not looked at, and told to nobody."""
    it = World(b"x" * 40)
    link, native = it.slave(50)
    said = list(caplog.messages)
    link._said(REPORT.pack(8))
    link._acked(40)
    assert (native.begun, it.replicas.by_slave(), it.master.slaves) == (None, {}, [])
    await it.tell(native, "fault", "has said nonsense")
    assert caplog.messages == said


@on_loop
async def test_refusal_is_told_once_and_the_end_behind_it_is_not(
    caplog: pytest.LogCaptureFixture,
) -> None:
    it = World(b"x" * 40)
    for _ in range(3):
        _, native = it.slave(50)
        await it.tell(native, "stopped")
    assert len(caplog.messages) == 1
    assert caplog.messages[0].startswith("slave 10.0.0.1:9 has a log up to 50, this one ends at 40")
    it.slave(50, "10.0.0.2")
    assert len(caplog.messages) == 2, "another host is another matter"


@on_loop
async def test_port_that_is_taken_stops_the_start() -> None:
    it = World()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(UsageError, match=f"cannot listen for slaves on 127.0.0.1:{port}"):
            await it.master.listen("127.0.0.1", port)


@on_loop
async def test_master_is_as_far_ahead_as_the_best_slave_is_behind() -> None:
    it = World(b"x" * 40)
    assert it.master.behind() is None
    it.slave(8, "10.0.0.1")
    it.slave(30, "10.0.0.2")
    assert it.master.behind() == 10
    _, native = it.slave(40, "10.0.0.3")
    assert it.master.behind() == 0
    await it.tell(native, "lost")
    assert it.master.behind() == 10


@on_loop
async def test_slave_whose_address_is_not_known_any_more_is_shown_without_one() -> None:
    """It has gone before it could be asked for."""

    class Gone(Transport):
        @override
        def get_extra_info(self, name: str, default: Any = None) -> Any:
            return None if name == "peername" else super().get_extra_info(name, default)

    it = World()
    link = SlaveLink(it.master)
    link.connection_made(Gone("10.0.0.1"))
    link._said(REPORT.pack(8))
    assert [view.address for view in it.master.slaves] == ["?:0"]
    assert it.replicas.by_slave() == {"?": 8}


@on_loop
async def test_tick_of_the_master_looks_at_what_slaves_have() -> None:
    it = World(b"abcd")
    _, native = it.slave(2)
    native.acked = 4
    await it.master.tick()
    assert it.replicas.by_slave() == {"10.0.0.1": 4}


@on_loop
async def test_view_of_a_slave_is_that_of_the_last_whole_second() -> None:
    it = World()
    link, native = it.slave(8)
    native.acked, native.position = 3, 4
    for second, moved, rate in ((1, 100, 100), (2, 170, 70), (2, 400, 70), (3, 450, 280)):
        native.moved = moved
        link.check(second * 1000)
        view = link.view()
        assert view is not None
        # It never has less than it first reported.
        assert (view.bytes_per_second, view.acked, view.position) == (rate, 8, 8)
    native.acked, native.position = 20, 30
    link.check(3_500)
    view = link.view()
    assert view is not None
    assert (view.acked, view.position) == (20, 30)
    assert it.replicas.by_slave() == {"10.0.0.1": 20}
    link._is_fed = False
    assert link.view() is None


@pytest.mark.parametrize(("begin", "size"), [(0, 40), (10, 30), (39, 1), (40, 0)])
def test_tail_is_what_the_log_still_has_and_at_most_a_window(
    monkeypatch: pytest.MonkeyPatch, begin: int, size: int
) -> None:
    log = cast("Any", Log(bytes(range(40))[begin:], begin))
    whole = tail_of(log)
    assert (whole.end, whole.size, whole.begin) == (40, size, begin)
    monkeypatch.setattr(tails, "WINDOW", 8)
    few = tail_of(log)
    assert (few.end, few.size) == (40, min(8, size))
    assert is_same(log, few) is (True if size else None)
    other = cast("Any", Log(bytes(40 - begin), begin))
    assert is_same(other, few) is (False if size else None)
    # What lies before the log, or behind it, is not compared.
    assert is_same(cast("Any", Log(b"x", 39)), Tail(40, 2, few.digest)) is None
    assert is_same(log, Tail(41, 1, few.digest)) is None


def test_tail_of_a_log_that_gives_no_more_bytes_is_that_of_what_it_gave(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    short = Log(b"abcd")
    whole = tail_of(cast("Any", short))
    monkeypatch.setattr(short, "read", lambda offset, _size: b"abcd"[offset:3])
    assert tail_of(cast("Any", short)).digest == tail_of(cast("Any", Log(b"abc"))).digest
    assert tail_of(cast("Any", short)).digest != whole.digest


@on_loop
async def test_master_that_stops_closes_its_port_and_every_connection() -> None:
    it = World()
    did: list[str] = []

    async def wait_closed() -> None:
        did.append("waited")

    server = SimpleNamespace(close=lambda: did.append("closed"), wait_closed=wait_closed)
    it.master._server = cast("Any", server)
    _, slave = it.slave()
    _, stranger = it.link("10.0.0.2")
    refused, leaving = it.link("10.0.0.3")
    refused._said(REPORT.pack(50))
    stopping = asyncio.create_task(it.master.stop())
    await asyncio.sleep(0)
    assert (slave.ended, stranger.ended, leaving.ended) == ("stop", "stop", "finish")
    for native in (slave, stranger, leaving):
        assert not stopping.done(), "a thread may use the store"
        await it.tell(native, "stopped")
    await stopping
    await it.master.stop()
    assert did == ["closed", "waited"]


@on_loop
@pytest.mark.parametrize(
    ("slaves", "waits", "told"),
    [
        (0, True, (False, False)),
        (1, False, (False, True)),
        (1, True, (True, True)),
        (2, False, (True, False)),
    ],
)
async def test_acknowledgements_count_by_themselves_where_one_copy_is_enough(
    slaves: int, waits: bool, told: tuple[bool, bool]
) -> None:
    it = World(slaves=slaves)
    it.master.is_awaited = lambda: waits
    _, native = it.slave(3)
    await it.master.tick()
    assert native.acks_told[-1] == told
    it.replicas.follow(ReplicaConfig(slaves=2))
    it.master.follow(RULES)
    assert native.acks_told[-1] == (True, False)


@on_loop
async def test_what_no_slave_can_prove_is_given_up_before_its_acknowledgements_count() -> None:
    it = World()
    given_up: list[tuple[int, list[object]]] = []
    it.replicas.on_lapse(lambda end: given_up.append((end, list(it.log.fed[-1].acks_told))))
    _, native = it.slave(3)
    assert given_up == [(40, [])]
    assert native.acks_told[-1][1]


@on_loop
async def test_send_that_begins_to_wait_on_the_loop_hears_of_each_acknowledgement() -> None:
    it = World()
    it.master.is_awaited = lambda: False
    _, native = it.slave(3)
    native.acked = 3
    await it.master.tick()
    assert native.acks_told[-1] == (False, True)
    native.acked = 50
    assert it.replicas.has(50), "what came while nobody listened"
    waiting = asyncio.ensure_future(it.replicas.copied(60))
    await asyncio.sleep(0)
    assert native.acks_told[-1] == (True, True)
    native.acked = 60
    native.hear(b"")
    assert (await waiting)[0] == PutStatus.PUT_OK
    await it.master.tick()
    assert native.acks_told[-1] == (False, True)
