"""A slave's handshake with its master, whose thread only carries what both say."""

from __future__ import annotations

import asyncio
import os
from typing import Any, cast

import pytest

from pair_harness import Native, Transport
from remoting_harness import on_loop
from roquet.ha import slave as module
from roquet.ha.config import HaConfig
from roquet.ha.feed import CopierConfig
from roquet.ha.frames import HEADER, REPORT
from roquet.ha.secret import MasterGate
from roquet.ha.slave import HaSlave, MasterLink, State
from roquet.ha.tail import Verdict, encode_verdict, tail_of
from roquet.store.results import StoreFault
from roquet.testing.clock import FakeClock

SECRET = "sixteen bytes or more"
CLOSED = "the connection to the master at m:1 is closed: "


class Log:
    """Ten bytes; `fault` is raised by a read, `refused` when a thread is wanted."""

    begin = 0
    limit = written = 10

    def __init__(self) -> None:
        self.fault: Exception | None = None
        self.refused: OSError | None = None
        self.followed: list[tuple[Native, CopierConfig, object]] = []

    def read(self, offset: int, size_max: int) -> bytes:
        if self.fault is not None:
            raise self.fault
        return b"0123456789"[offset:][:size_max]

    def follow(self, fd: int, rules: CopierConfig, tls: object) -> Native:
        if self.refused is not None:
            os.close(fd)
            raise self.refused
        native = Native(fd)
        self.followed.append((native, rules, tls))
        return native


class Tls:
    """Certificates that are another context for each connection."""

    def __init__(self) -> None:
        self.given: list[object] = []

    def fresh(self) -> object:
        self.given.append(object())
        return self.given[-1]


class World:
    """A slave that looks for its master, and its connections."""

    def __init__(self, *, tls: Tls | None = None, **rules: Any) -> None:
        self.log = Log()
        self.judged: list[str | None] = []
        self.clock = FakeClock()
        self.slave = HaSlave(
            cast("Any", self.log),
            HaConfig(**rules),
            self.clock,
            broker_id=1,
            tls=cast("Any", tls),
            judged=self.judged.append,
        )
        self.slave.state = State.READY

    def link(self) -> MasterLink:
        """Return a connection; its socket is not the loop's any more."""
        link, transport = MasterLink(self.slave, "m:1"), Transport("m")
        link.connection_made(transport)
        assert transport.aborted
        return link

    def connect(self) -> tuple[MasterLink, Native]:
        """Return a connection and its thread."""
        link = self.link()
        return link, self.log.followed[-1][0]

    @property
    def shown(self) -> bytes:
        """What a slave says of its log."""
        return tail_of(cast("Any", Log())).encode() + REPORT.pack(10)


async def hears(native: Native, *pieces: bytes) -> None:
    """Let a thread hand over what the master says, piece by piece."""
    for data in pieces:
        if data:
            native.hear(data)
            await native.heard()


def frame(offset: int, body: bytes) -> bytes:
    return HEADER.pack(offset, len(body)) + body


def closed(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return why connections were closed."""
    return [it.removeprefix(CLOSED) for it in caplog.messages if it.startswith(CLOSED)]


@on_loop
async def test_slave_shows_the_end_of_its_log_and_where_it_is_in_one_write() -> None:
    it = World()
    link, native = it.connect()
    assert native.words == [it.shown]
    # Nothing is said before the answer, whatever the timer does.
    link.check()
    await hears(native, encode_verdict(Verdict.PROCEED, 99)[:-1])
    assert (native.words, native.begun) == ([it.shown], None)
    assert (it.slave.state, link.is_copying, it.slave.link) == (State.HANDSHAKE, False, link)


@on_loop
async def test_connection_has_ended_when_its_thread_has() -> None:
    """The thread writes to the store, which is closed next."""
    it = World()
    link, native = it.connect()
    assert link.bytes_per_second == 0
    ending = asyncio.create_task(link.ended())
    link.close("a test says so")
    for _ in range(3):
        await asyncio.sleep(0)
    assert (native.ended, ending.done(), link.gone.is_set()) == ("stop", False, False)
    native.tell("stopped", "")
    await native.heard()
    await asyncio.wait_for(ending, 20)
    assert link.gone.is_set()


@on_loop
async def test_each_connection_gets_the_rules_and_the_tls_of_the_moment() -> None:
    tls = Tls()
    it = World(tls=tls, heartbeat_ms=11, housekeeping_ms=13)
    it.connect()
    it.slave.follow(HaConfig(heartbeat_ms=17, housekeeping_ms=19))
    it.connect()
    assert [rules for _, rules, _ in it.log.followed] == [
        CopierConfig(11, 13),
        CopierConfig(17, 19),
    ]
    assert [given for _, _, given in it.log.followed] == tls.given
    plain = World()
    plain.connect()
    assert [given for _, _, given in plain.log.followed] == [None]


@on_loop
async def test_slave_that_looks_for_no_master_any_more_follows_none() -> None:
    it = World()
    it.slave.state = State.SHUTDOWN
    link = it.link()
    assert link.gone.is_set()
    assert (it.log.followed, it.slave.link) == ([], None)


@on_loop
async def test_connection_without_a_thread_has_ended(caplog: pytest.LogCaptureFixture) -> None:
    it = World()
    it.log.refused = OSError("no thread")
    link = it.link()
    assert link.gone.is_set()
    assert closed(caplog) == ["it cannot be given a thread: no thread"]
    # Nothing is there to be looked at, closed, or waited for.
    link.check()
    link.follow()
    link.close("too late")
    await link.ended()
    now_ms = it.clock.now_ms()
    assert (link.last_read_ms, link.last_write_ms) == (now_ms, now_ms)
    assert len(caplog.messages) == 1


@on_loop
async def test_slave_whose_log_cannot_be_read_leaves(caplog: pytest.LogCaptureFixture) -> None:
    it = World()
    it.log.fault = StoreFault("io", "a test says so")
    _, native = it.connect()
    assert (native.words, native.ended) == ([], "stop")
    (why,) = closed(caplog)
    assert "a test says so" in why
    await hears(native, encode_verdict(Verdict.PROCEED, 99))
    assert (native.begun, it.judged) == (None, [])


@on_loop
async def test_slave_copies_behind_the_answer_whatever_the_cuts() -> None:
    answer, behind = encode_verdict(Verdict.PROCEED, 99), frame(10, b"abc")
    for cut in range(len(answer)):
        it = World()
        link, native = it.connect()
        await hears(native, answer[:cut], answer[cut:] + behind)
        assert native.begun == (10, behind)
        assert (it.judged, it.slave.state, link.is_copying) == ([None], State.TRANSFER, True)
        assert native.ended == ""


@on_loop
async def test_slave_of_a_master_that_compares_nothing_copies_all_that_it_says(
    caplog: pytest.LogCaptureFixture,
) -> None:
    said = frame(10, b"abc")
    for cut in range(HEADER.size):
        caplog.clear()
        it = World()
        _, native = it.connect()
        with caplog.at_level("INFO", "roquet.ha"):
            await hears(native, said[:cut], said[cut:])
        assert (native.begun, it.judged) == ((10, said), [])
        assert caplog.messages == [
            "the master at m:1 compares no logs: it is not of our make",
            "copying the log of m:1 from 10",
        ]


@on_loop
@pytest.mark.parametrize(
    ("verdict", "judged", "why"),
    [
        (
            Verdict.DIFFERS,
            ["the log here differs from that of m:1 before offset 10"],
            "it refuses this log as no copy of its own",
        ),
        (
            Verdict.AHEAD,
            ["the log here ends at 10, behind the end of the log of m:1"],
            "it refuses this log as no copy of its own",
        ),
        (Verdict.GONE, [], f"it keeps no files as old as offset 10 any more: {module._EMPTY_IT}"),
    ],
)
async def test_slave_that_is_refused_leaves_and_copies_nothing(
    caplog: pytest.LogCaptureFixture, verdict: Verdict, judged: list[str], why: str
) -> None:
    it = World()
    link, native = it.connect()
    await hears(native, encode_verdict(verdict, 99) + frame(10, b"abc"))
    assert closed(caplog) == [why]
    assert (it.judged, native.begun, native.ended) == (judged, None, "stop")
    await hears(native, encode_verdict(Verdict.PROCEED, 99))
    assert (it.judged, native.begun, link.is_copying) == (judged, None, False), "it has left"
    # The same comes back with every connection: each is judged, one in a minute is told.
    for _ in range(2):
        _, again = it.connect()
        await hears(again, encode_verdict(verdict, 99))
        assert again.ended == "stop"
    assert (it.judged, closed(caplog)) == (judged * 3, [why])


@on_loop
async def test_slave_with_a_secret_shows_nothing_before_its_master_knows_it() -> None:
    for cut in (1, 20, 31):
        it = World(secret=SECRET)
        _, native = it.connect()
        assert native.words == []
        gate = MasterGate(SECRET, os.urandom(32))
        challenge = gate.challenge()
        await hears(native, challenge[:cut])
        assert native.words == []
        await hears(native, challenge[cut:])
        (answer,) = native.words
        passed = gate.receive(answer)
        assert passed is not None
        slave, proof, rest = passed
        assert (slave, rest) == (1, b"")
        await hears(native, proof[:cut])
        assert native.words == [answer]
        await hears(native, proof[cut:])
        assert native.words == [answer, it.shown]
        await hears(native, encode_verdict(Verdict.PROCEED, 99) + frame(10, b"a"))
        assert (native.begun, it.judged) == ((10, frame(10, b"a")), [None])


@on_loop
async def test_verdict_may_come_together_with_the_proof() -> None:
    it = World(secret=SECRET)
    _, native = it.connect()
    gate = MasterGate(SECRET, os.urandom(32))
    await hears(native, gate.challenge())
    passed = gate.receive(native.said)
    assert passed is not None
    await hears(native, passed[1] + encode_verdict(Verdict.PROCEED, 99) + frame(10, b"a"))
    assert native.words[1:] == [it.shown]
    assert native.begun == (10, frame(10, b"a"))


@on_loop
async def test_master_without_the_secret_gets_nothing_of_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    it = World(secret=SECRET)
    _, native = it.connect()
    await hears(native, frame(10, b"abc") * 9)
    assert (native.words, native.ended) == ([], "stop")
    _, other = it.connect()
    gate = MasterGate("another secret, not this one", os.urandom(32))
    await hears(other, gate.challenge(), bytes(32))
    assert (len(other.words), other.begun, other.ended) == (1, None, "stop")
    assert closed(caplog) == [
        "it does not ask for haSharedSecret",
        "it does not know haSharedSecret",
    ]


@on_loop
async def test_master_that_is_silent_is_left_after_the_time_of_the_settings(
    caplog: pytest.LogCaptureFixture,
) -> None:
    it = World(housekeeping_ms=700)
    link, native = it.connect()
    native.silent_ms = (700, 0)
    link.check()
    assert native.ended == ""
    native.silent_ms = (701, 0)
    link.check()
    assert native.ended == "stop"
    assert closed(caplog) == ["it has said nothing for 701 ms"]
    # Once it copies, the thread keeps its own time.
    copying, other = it.connect()
    await hears(other, encode_verdict(Verdict.PROCEED, 99))
    other.silent_ms = (9_000, 0)
    copying.check()
    assert other.ended == ""
