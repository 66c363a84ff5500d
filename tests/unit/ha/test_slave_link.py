"""A slave's connection fed by the loop, as over TLS: without a socket, with a log in memory."""

from __future__ import annotations

import asyncio
import socket
from types import SimpleNamespace
from typing import Any, cast

import pytest
from typing_extensions import override

from remoting_harness import on_loop
from roquet.base.clock import steady_ms
from roquet.base.errors import UsageError
from roquet.ha import master as module
from roquet.ha import places
from roquet.ha import tail as tails
from roquet.ha.feed import FeedRules
from roquet.ha.frames import HEADER, REPORT
from roquet.ha.master import STRANGER_MS, Entrance, HaMaster, SlaveLink
from roquet.ha.replicas import ReplicaRules, Replicas
from roquet.ha.tail import Tail, Verdict, encode_verdict, is_same, tail_of
from roquet.testing.clock import FakeClock

RULES = FeedRules(batch=4, heartbeat_ms=5_000, housekeeping_ms=20_000, file_bytes=16)


class Log:
    """Bytes from `begin` on."""

    def __init__(self, data: bytes, begin: int = 0) -> None:
        self.data = data
        self.begin = begin

    @property
    def limit(self) -> int:
        return self.begin + len(self.data)

    def read(self, offset: int, size_max: int) -> bytes:
        return self.data[offset - self.begin :][:size_max]


class Transport(asyncio.Transport):
    """Keeps what is written."""

    def __init__(self, host: str) -> None:
        super().__init__({"peername": (host, 9)})
        self.written = b""
        self.ended = ""

    @override
    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += bytes(data)

    @override
    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    @override
    def abort(self) -> None:
        self.ended = self.ended or "abort"

    @override
    def close(self) -> None:
        self.ended = self.ended or "close"


class World:
    """A master that listens, without a port."""

    def __init__(self, data: bytes = b"x" * 40, begin: int = 0, *, slaves: int = 1) -> None:
        self.log = Log(data, begin)
        self.replicas = Replicas(ReplicaRules(slaves=slaves))
        self.master = HaMaster(
            cast("Any", self.log),
            self.replicas,
            RULES,
            entrance=Entrance(tls=cast("Any", object())),
            clock=FakeClock(),
        )
        self.master._server = cast("Any", SimpleNamespace())

    def link(self, host: str = "10.0.0.1") -> tuple[SlaveLink, Transport]:
        link, transport = SlaveLink(self.master), Transport(host)
        link.connection_made(transport)
        return link, transport

    def slave(self, report: int = 0, host: str = "10.0.0.1") -> tuple[SlaveLink, Transport]:
        """Return the connection of a slave that has reported."""
        link, transport = self.link(host)
        link.data_received(REPORT.pack(report))
        return link, transport


def pieces(data: bytes) -> list[tuple[int, bytes]]:
    """Return (offset, bytes) of each frame."""
    found: list[tuple[int, bytes]] = []
    while data:
        offset, size = HEADER.unpack_from(data)
        found.append((offset, data[HEADER.size : HEADER.size + size]))
        data = data[HEADER.size + size :]
    return found


@on_loop
async def test_slave_gets_the_log_from_its_report_on_in_pieces_of_a_batch() -> None:
    it = World(b"abcdefghij")
    link, transport = it.slave(3)
    assert pieces(transport.written) == [(3, b"defg"), (7, b"hij")]
    view = link.view()
    assert view is not None
    assert (view.acked, view.position, view.address) == (3, 10, "10.0.0.1:9")
    link.data_received(REPORT.pack(10))
    assert it.replicas.by_slave() == {"10.0.0.1": 10}
    it.log.data += b"k"
    it.master.wake()
    assert pieces(transport.written)[2:] == [(10, b"k")]


@on_loop
async def test_stranger_has_no_view_and_gets_nothing() -> None:
    it = World()
    link, transport = it.link()
    it.master.wake()
    assert (link.view(), transport.written, it.master.slaves) == (None, b"", [])
    link.data_received(REPORT.pack(0)[:7])
    assert it.master.slaves == []
    link.data_received(REPORT.pack(0)[7:])
    assert [view.acked for view in it.master.slaves] == [0]


@on_loop
async def test_slave_whose_buffer_is_full_gets_no_more_until_it_is_not() -> None:
    it = World(b"abcd")
    link, transport = it.slave(0)
    link.pause_writing()
    it.log.data += b"efgh"
    it.master.wake()
    assert pieces(transport.written) == [(0, b"abcd")]
    link.resume_writing()
    assert pieces(transport.written) == [(0, b"abcd"), (4, b"efgh")]


@on_loop
async def test_slave_gets_so_many_bytes_a_turn_and_the_rest_in_the_next_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "TURN_BYTES", 8)
    it = World(b"x" * 16 + bytes(range(40)))
    _, transport = it.slave(16)
    assert len(pieces(transport.written)) == 2
    # News of growth while a turn is due makes no second one.
    it.master.wake()
    for sent in (4, 6, 8, 10, 10):
        assert len(pieces(transport.written)) == sent
        await asyncio.sleep(0)
    assert b"".join(piece for _, piece in pieces(transport.written)) == it.log.data[16:]


@on_loop
async def test_slave_that_is_closed_is_ended_in_order_and_gone_when_it_is_lost() -> None:
    it = World()
    link, transport = it.slave()
    link.close()
    await link.ended()
    assert transport.ended == "close"
    link.connection_lost(None)
    assert (it.master.slaves, it.replicas.by_slave()) == ([], {})
    link.close()
    it.log.data += b"more"
    before = transport.written
    link.pump(it.log.limit)
    assert transport.written == before


@on_loop
async def test_stranger_is_dropped_a_moment_after_its_time_and_a_slave_is_not() -> None:
    it = World()
    wait_ms = STRANGER_MS + RULES.heartbeat_ms
    assert it.master.stranger_ms == wait_ms
    stranger, transport = it.link()
    slave, other = it.slave()
    began_ms = stranger._since_ms
    stranger.check(began_ms + wait_ms)
    slave.check(began_ms + wait_ms)
    assert (transport.ended, other.ended) == ("", "")
    stranger.check(began_ms + wait_ms + 1)
    slave.check(began_ms + wait_ms + 1)
    assert (transport.ended, other.ended) == ("abort", "")


@on_loop
async def test_master_with_a_secret_or_little_patience_waits_less_for_strangers() -> None:
    it = World()
    it.master.entrance = Entrance(secret="s")
    assert it.master.stranger_ms == STRANGER_MS
    it.master.rules = FeedRules(heartbeat_ms=5_000, housekeeping_ms=2_000)
    assert it.master.stranger_ms == 2_000


@on_loop
async def test_slave_gets_a_heartbeat_after_a_silence_unless_its_buffer_is_full() -> None:
    it = World(b"abcd")
    link, transport = it.slave(4)
    now_ms = steady_ms()
    link.check(now_ms + RULES.heartbeat_ms - 1_000)
    assert transport.written == b""
    link.pause_writing()
    link.check(now_ms + 2 * RULES.heartbeat_ms)
    assert transport.written == b""
    link.resume_writing()
    link.check(now_ms + 2 * RULES.heartbeat_ms)
    assert pieces(transport.written) == [(4, b"")]
    link.check(now_ms + 4 * RULES.housekeeping_ms)
    assert transport.ended == "abort"


@on_loop
async def test_proven_slave_that_takes_a_place_sends_an_unproven_one_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(places, "SLAVES_MAX", 1)
    it = World(b"x" * 40)
    _, doubtful = it.slave(0, "10.0.0.1")
    link, transport = it.link("10.0.0.2")
    tail = tail_of(cast("Any", it.log))
    link.data_received(tail.encode() + REPORT.pack(40))
    assert (doubtful.ended, transport.ended) == ("abort", "")
    assert transport.written == encode_verdict(Verdict.PROCEED, 40)
    assert it.replicas.by_slave() == {"10.0.0.2": 40}
    assert it.replicas.has(40)
    assert [view.address for view in it.master.slaves] == ["10.0.0.2:9"]
    # Nobody goes for one that has proven nothing.
    _, third = it.slave(0, "10.0.0.3")
    assert (third.ended, transport.ended) == ("abort", "")


@on_loop
async def test_oldest_stranger_goes_when_there_are_too_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(places, "STRANGERS_MAX", 2)
    it = World()
    ended = [it.link(f"10.0.0.{number}")[1] for number in range(3)]
    assert [transport.ended for transport in ended] == ["abort", "", ""]


@on_loop
async def test_master_that_is_stopped_takes_nobody() -> None:
    it = World()
    it.master._server = None
    _, transport = it.link()
    assert transport.ended == "abort"


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
    link, transport = it.link()
    link.data_received(tail.encode() + REPORT.pack(report))
    assert transport.written == encode_verdict(verdict, 40)
    assert transport.ended == "close"
    assert (it.master.slaves, it.replicas.by_slave()) == ([], {})
    # One without a digest is sent away without a word.
    plain, silent = it.link()
    plain.data_received(REPORT.pack(50))
    assert (silent.written, silent.ended) == (b"", "close")


@on_loop
async def test_port_that_is_taken_stops_the_start() -> None:
    it = World()
    it.master.entrance = Entrance()
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


@on_loop
async def test_tick_of_the_master_sends_what_has_grown() -> None:
    it = World(b"abcd")
    _, transport = it.slave(4)
    it.log.data += b"ef"
    await it.master.tick()
    assert pieces(transport.written) == [(4, b"ef")]


@on_loop
async def test_view_of_a_slave_fed_by_a_thread_is_that_of_the_last_whole_second() -> None:
    it = World()
    link, _ = it.slave(8)
    thread = SimpleNamespace(moved=100, acked=3, position=4)
    link._thread, link._is_fed = cast("Any", thread), True
    for second, moved, rate in ((1, 100, 100), (2, 170, 70), (2, 400, 70), (3, 450, 280)):
        thread.moved = moved
        link.check(second * 1000)
        view = link.view()
        assert view is not None
        # It never has less than it first reported.
        assert (view.bytes_per_second, view.acked, view.position) == (rate, 8, 8)
    thread.acked, thread.position = 20, 30
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
    await it.master.stop()
    await it.master.stop()
    assert (did, slave.ended, stranger.ended) == (["closed", "waited"], "close", "close")
