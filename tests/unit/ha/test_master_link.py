"""A slave's connection to its master, served by the loop as over TLS: what it shows and appends."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Any, cast

import pytest
from typing_extensions import override

from remoting_harness import on_loop
from roquet.ha import slave as module
from roquet.ha.config import HaRules
from roquet.ha.frames import HEADER, REPORT
from roquet.ha.secret import MasterGate
from roquet.ha.slave import HaSlave, MasterLink, State
from roquet.ha.tail import Verdict, encode_verdict, tail_of
from roquet.store.results import StoreFault
from roquet.testing.clock import FakeClock

if TYPE_CHECKING:
    from collections.abc import Callable


class Log:
    """Bytes from offset 0 on; `vouched` is how far they are durable."""

    begin = 0

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.vouched = len(data)
        self.fault: Exception | None = None

    @property
    def limit(self) -> int:
        return len(self.data)

    written = limit

    def read(self, offset: int, size_max: int) -> bytes:
        if self.fault is not None:
            raise self.fault
        return self.data[offset:][:size_max]

    def append(self, offset: int, data: bytes) -> None:
        if self.fault is not None:
            raise self.fault
        assert offset == len(self.data)
        self.data += data


class Transport(asyncio.Transport):
    """Keeps what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.aborts = 0

    @override
    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += bytes(data)

    @override
    def abort(self) -> None:
        self.aborts += 1

    def taken(self) -> bytes:
        found, self.written = self.written, b""
        return found


class World:
    """A slave with one connection; time is what a test says."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, data: bytes = b"0123456789", **rules: Any
    ) -> None:
        self.now_ms = 50_000
        monkeypatch.setattr(module, "steady_ms", lambda: self.now_ms)
        self.log = Log(data)
        self.judged: list[str | None] = []
        self.clock = FakeClock()
        self.slave = HaSlave(
            cast("Any", self.log),
            HaRules(**rules),
            self.clock,
            broker_id=1,
            tls=cast("Any", object()),
            judged=self.judged.append,
        )
        self.link = MasterLink(self.slave, "m:1")
        self.transport = Transport()

    def connect(self) -> bytes:
        """Connect; return what the slave says first."""
        self.link.connection_made(self.transport)
        return self.transport.taken()

    def follow(self) -> None:
        """Connect to a master that has the same log."""
        self.connect()
        self.link.data_received(encode_verdict(Verdict.PROCEED, 99))
        self.transport.taken()

    def closed(self, caplog: pytest.LogCaptureFixture) -> list[str]:
        """Return why the connection was closed; it is closed once."""
        before = "the connection to the master at m:1 is closed: "
        said = [it.partition(before)[2] for it in caplog.messages if before in it]
        assert self.transport.aborts == len(said)
        assert self.link._transport is None or not said
        return said


def frame(offset: int, body: bytes) -> bytes:
    return HEADER.pack(offset, len(body)) + body


def beat(offset: int) -> bytes:
    return HEADER.pack(offset, 0)


@on_loop
async def test_slave_shows_the_end_of_its_log_and_where_it_is_in_one_write(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    it = World(monkeypatch)
    said = it.connect()
    assert said == tail_of(cast("Any", it.log)).encode() + REPORT.pack(10)
    assert (it.slave.state, it.link.is_copying) == (State.HANDSHAKE, False)
    # Nothing is reported before the answer, however much time passes.
    it.now_ms += 15_000
    it.link.report()
    it.link.check()
    assert it.transport.taken() == b""


@on_loop
async def test_slave_whose_log_cannot_be_read_leaves(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    it = World(monkeypatch)
    it.log.fault = StoreFault("io", "a test says so")
    assert it.connect() == b""
    (why,) = it.closed(caplog)
    assert "a test says so" in why
    assert it.link._answer is None


@on_loop
async def test_slave_appends_behind_the_answer_whatever_the_cuts_and_reports(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stream = encode_verdict(Verdict.PROCEED, 99) + frame(10, b"abc") + beat(13) + frame(13, b"de")
    for cut in range(len(stream) + 1):
        it = World(monkeypatch)
        it.connect()
        for data in (stream[:cut], stream[cut:]):
            if data:
                it.link.data_received(data)
        assert it.log.data == b"0123456789abcde"
        assert (it.judged, it.slave.state) == ([None], State.TRANSFER)
        assert (it.link.is_copying, it.link.copier.end) == (True, 15)


@on_loop
async def test_slave_of_a_master_that_compares_nothing_appends_all_that_it_says(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    it = World(monkeypatch)
    it.connect()
    with caplog.at_level("INFO", "roquet.ha"):
        it.link.data_received(frame(10, b"abc"))
    assert (it.log.data, it.judged) == (b"0123456789abc", [])
    assert "the master at m:1 compares no logs: it is not of our make" in caplog.messages
    assert "copying the log of m:1 from 10" in caplog.messages


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
async def test_slave_that_is_refused_leaves_and_appends_nothing(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    verdict: Verdict,
    judged: list[str],
    why: str,
) -> None:
    it = World(monkeypatch)
    it.connect()
    it.link.data_received(encode_verdict(verdict, 99) + frame(10, b"abc"))
    assert it.closed(caplog) == [why]
    assert (it.judged, it.log.data) == (judged, b"0123456789")
    it.link.data_received(frame(10, b"abc"))
    assert (it.judged, it.log.data) == (judged, b"0123456789"), "it has left"


@on_loop
async def test_slave_with_a_secret_shows_nothing_before_its_master_knows_it(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for at in (1, 20, 40):
        cut = at
        it = World(monkeypatch, secret="secret")
        assert it.connect() == b""
        gate = MasterGate("secret", os.urandom(32))
        challenge = gate.challenge()
        it.link.data_received(challenge[:cut])
        it.link.data_received(challenge[cut:])
        answer = it.transport.taken()
        assert not it.link.is_copying
        passed = gate.receive(answer)
        assert passed is not None
        slave, proof, rest = passed
        assert (slave, rest) == (1, b"")
        cut = min(cut, len(proof) - 1)
        it.link.data_received(proof[:cut])
        assert it.transport.taken() == b""
        it.link.data_received(proof[cut:] + encode_verdict(Verdict.PROCEED, 9) + frame(10, b"a"))
        said = it.transport.taken()
        assert said.startswith(tail_of(cast("Any", Log(b"0123456789"))).encode() + REPORT.pack(10))
        assert it.log.data == b"0123456789a"
    wrong = World(monkeypatch, secret="secret")
    wrong.connect()
    wrong.link.data_received(frame(10, b"abc") * 9)
    assert wrong.closed(caplog) == ["it does not ask for haSharedSecret"]
    assert wrong.transport.written == b""


@on_loop
async def test_slave_reports_what_is_durable_when_it_grows_and_now_and_then(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    it = World(monkeypatch)
    it.follow()
    it.link.data_received(frame(10, b"abc"))
    assert it.transport.taken() == b"", "what is not durable is not reported"
    it.log.vouched = 13
    it.link.report()
    it.link.report()
    assert it.transport.taken() == REPORT.pack(13)
    it.now_ms += it.slave.rules.copier().heartbeat_ms - 1
    it.link.check()
    assert it.transport.taken() == b""
    it.now_ms += 1
    it.link.check()
    assert it.transport.taken() == REPORT.pack(13)


@on_loop
@pytest.mark.parametrize(
    ("break_it", "why"),
    [
        (lambda it: it.link.data_received(frame(11, b"x")), "it sends offset 11, the log here"),
        (lambda it: it.link.data_received(HEADER.pack(10, -7)), "it announces a piece of -7 bytes"),
    ],
)
async def test_master_that_says_what_does_not_fit_is_left(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    break_it: Callable[[World], None],
    why: str,
) -> None:
    it = World(monkeypatch)
    it.follow()
    break_it(it)
    (said,) = it.closed(caplog)
    assert said.startswith(why)
    assert it.transport.taken() == b""


@on_loop
async def test_slave_whose_disk_refuses_leaves_without_a_report(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    it = World(monkeypatch)
    it.follow()
    it.log.fault, it.log.vouched = StoreFault("io", "a test says so"), 11
    it.link.data_received(frame(10, b"abc"))
    (why,) = it.closed(caplog)
    assert "a test says so" in why
    assert it.transport.taken() == b""


@on_loop
async def test_master_that_is_silent_is_left_after_the_time_of_the_settings(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    it = World(monkeypatch)
    it.follow()
    silence_ms = it.slave.rules.copier().housekeeping_ms
    it.now_ms += silence_ms
    it.link.check()
    assert it.closed(caplog) == []
    it.now_ms += 1
    it.link.check()
    assert it.closed(caplog) == [f"it has said nothing for {silence_ms + 1} ms"]


@on_loop
async def test_times_of_a_connection_are_those_of_the_last_words(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    it = World(monkeypatch)
    it.follow()
    it.now_ms += 700
    it.link.data_received(beat(10))
    it.now_ms += 300
    assert it.clock.now_ms() - it.link.last_read_ms == 300
    assert it.clock.now_ms() - it.link.last_write_ms == 1000


@on_loop
async def test_bytes_per_second_are_those_of_the_last_whole_second(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    it = World(monkeypatch)
    it.follow()
    it.link.check()
    it.now_ms += 500
    for offset in (10, 12):
        it.link.data_received(frame(offset, b"ab"))
    it.link.check()
    assert it.link.bytes_per_second == 0
    it.now_ms += 500
    it.link.check()
    assert it.link.bytes_per_second == 2 * (HEADER.size + 2)
    it.now_ms += 1000
    it.link.check()
    assert it.link.bytes_per_second == 0


@on_loop
async def test_connection_that_is_lost_or_closed_is_told_and_takes_nothing_more(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    lost = World(monkeypatch)
    lost.follow()
    lost.link.connection_lost(OSError("reset"))
    assert caplog.messages == ["the master at m:1 is gone: reset"]
    assert lost.link.gone.is_set()
    lost.link.close("too late")
    assert lost.transport.aborts == 0
    caplog.clear()
    closed = World(monkeypatch)
    closed.follow()
    for why in ("this broker stops", "and again"):
        closed.link.close(why)
    closed.link.connection_lost(None)
    assert closed.closed(caplog) == ["this broker stops"]
    assert len(caplog.messages) == 1
    assert closed.link.gone.is_set()
    closed.link.report()
    assert closed.transport.taken() == b""
    silent = World(monkeypatch)
    silent.follow()
    caplog.clear()
    silent.link.close("")
    assert (silent.transport.aborts, caplog.messages) == (1, [])
