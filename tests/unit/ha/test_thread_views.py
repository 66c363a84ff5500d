"""Connections that a thread of the core serves: what they show, how they are tuned and ended."""

from __future__ import annotations

import asyncio
import contextlib
import os
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from remoting_harness import on_loop
from roquet.ha import master as module
from roquet.ha import slave as slave_module
from roquet.ha.config import HaRules
from roquet.ha.feed import FeedRules
from roquet.ha.frames import REPORT
from roquet.ha.master import Entrance, HaMaster, SlaveLink, SlaveView
from roquet.ha.replicas import ReplicaRules, Replicas
from roquet.ha.slave import HaSlave, MasterLink
from roquet.ha.threads import LINGER_MS, LogThread
from roquet.testing.clock import FakeClock

if TYPE_CHECKING:
    from collections.abc import Iterator


class Native:
    """A thread of the core whose numbers a test sets."""

    def __init__(self) -> None:
        self.fd = os.eventfd(0, os.EFD_NONBLOCK)
        self.numbers = (11, 22, 33, 44, 55)
        self.tuned: list[dict[str, Any]] = []
        self.said: list[str] = []

    def event_fd(self) -> int:
        return self.fd

    def view(self) -> tuple[int, int, int, int, int]:
        return self.numbers

    def tune(self, **rules: Any) -> None:
        self.tuned.append(rules)

    def stop(self) -> None:
        self.said.append("stop")


@pytest.fixture
def native() -> Iterator[Native]:
    found = Native()
    yield found
    os.close(found.fd)


def thread(native: Native) -> LogThread:
    return LogThread(cast("Any", native), lambda *_: None, lambda *_: None)


def untied(native: Native) -> None:
    asyncio.get_running_loop().remove_reader(native.fd)


@on_loop
async def test_thread_shows_its_numbers_each_under_its_name(native: Native) -> None:
    it = thread(native)
    assert (it.acked, it.position, it.moved, it.silent_ms) == (11, 22, 33, (44, 55))
    untied(native)


@on_loop
async def test_thread_is_tuned_by_every_rule(native: Native) -> None:
    it = thread(native)
    it.tune(FeedRules(batch=1, heartbeat_ms=2, housekeeping_ms=3, bytes_per_second=4), loud=True)
    it.tune(FeedRules(batch=1, heartbeat_ms=2, housekeeping_ms=3))
    wanted = {"batch": 1, "heartbeat_ms": 2, "housekeeping_ms": 3, "linger_ms": LINGER_MS}
    assert native.tuned == [
        {**wanted, "bytes_per_second": 4, "loud": True},
        {**wanted, "bytes_per_second": 0, "loud": False},
    ]
    untied(native)


def link_of(native: Native, wanted: int) -> tuple[HaMaster, SlaveLink]:
    """Return the connection of a slave that reported 20 and is fed by a thread."""
    log = SimpleNamespace(begin=0, limit=100)
    master = HaMaster(
        cast("Any", log),
        Replicas(ReplicaRules(slaves=wanted)),
        FeedRules(),
        entrance=Entrance(),
        clock=FakeClock(),
    )
    link = SlaveLink(master)
    link._address, link._slave, link._first = "s:9", "s", 20
    link._arrival, link._is_fed = None, True
    link._thread = thread(native)
    return master, link


@on_loop
@pytest.mark.parametrize("wanted", [0, 1])
async def test_thread_tells_each_acknowledgement_only_where_copies_are_asked_for(
    native: Native, wanted: int
) -> None:
    _, link = link_of(native, wanted)
    link.follow(FeedRules(batch=7))
    assert [(it["batch"], it["loud"]) for it in native.tuned] == [(7, wanted > 0)]
    untied(native)


@on_loop
async def test_view_of_a_slave_is_never_before_its_first_report(
    native: Native, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "steady_ms", lambda: 0)
    master, link = link_of(native, 1)
    native.numbers = (0, 0, 0, 0, 0)
    assert link.view() == SlaveView("s:9", 20, 20, 0)
    link.check(1000)
    assert master.replicas.by_slave() == {"s": 20}
    native.numbers = (25, 30, 10, 0, 0)
    link.check(1999)
    assert link.view() == SlaveView("s:9", 25, 30, 0)
    link.check(2000)
    assert link.view() == SlaveView("s:9", 25, 30, 10)
    native.numbers = (30, 30, 14, 0, 0)
    link.check(3000)
    assert link.view() == SlaveView("s:9", 30, 30, 4)
    assert master.replicas.by_slave() == {"s": 30}
    untied(native)


@on_loop
async def test_slave_whose_thread_has_ended_counts_no_more(
    native: Native, caplog: pytest.LogCaptureFixture
) -> None:
    for kind, text, said in (
        ("lost", "", "slave s:9 is gone"),
        ("lost", "reset", "slave s:9 is gone: reset"),
        ("fault", "says nonsense", "slave s:9 is dropped: it says nonsense"),
        ("stopped", "", None),
    ):
        caplog.clear()
        master, link = link_of(native, 1)
        link._heard(None, 15)
        assert master.replicas.by_slave() == {"s": 20}
        link._heard(None, 40)
        assert master.replicas.watermark == 40
        with caplog.at_level("INFO", "roquet.ha"):
            link._thread_ended(kind, text)
        assert caplog.messages == ([] if said is None else [said])
        assert (link.view(), master.replicas.by_slave()) == (None, {})
        link._heard(None, 50)
        link.check(9000)
        assert master.replicas.by_slave() == {}
        untied(native)


@on_loop
async def test_slave_with_a_thread_is_closed_by_its_thread_and_not_forgotten_before(
    native: Native,
) -> None:
    _, link = link_of(native, 1)
    link.close()
    assert native.said == ["stop"]
    link.connection_lost(None)
    assert link.view() is not None
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(link.ended(), 0.001)
        raise AssertionError("its thread has not ended")
    thread_of = link._thread
    assert thread_of is not None
    thread_of.gone.set()
    await asyncio.wait_for(link.ended(), 30)
    untied(native)


@on_loop
async def test_slave_that_reports_the_beginning_of_the_log_has_nothing() -> None:
    log = SimpleNamespace(begin=0, limit=0, read=lambda _offset, _size: b"")
    master = HaMaster(
        cast("Any", log),
        Replicas(ReplicaRules(slaves=1)),
        FeedRules(),
        entrance=Entrance(tls=cast("Any", object())),
        clock=FakeClock(),
    )
    link = SlaveLink(master)
    link._arrival = None
    for _ in range(2):
        link._take(REPORT.pack(0))
        assert list(master.replicas.by_slave().values()) == [0]


# --- the slave's side ---------------------------------------------------------------------------


def master_link(native: Native, monkeypatch: pytest.MonkeyPatch) -> MasterLink:
    monkeypatch.setattr(slave_module, "steady_ms", lambda: 50_000)
    log = SimpleNamespace(begin=0, limit=0, written=0, vouched=0)
    slave = HaSlave(cast("Any", log), HaRules(batch=7), FakeClock(), broker_id=1)
    link = MasterLink(slave, "m:1")
    link._thread = thread(native)
    return link


@on_loop
async def test_master_followed_by_a_thread_is_shown_by_its_numbers(
    native: Native, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = master_link(native, monkeypatch)
    now_ms = FakeClock().now_ms()
    assert (link.last_read_ms, link.last_write_ms) == (now_ms - 44, now_ms - 55)
    link.follow()
    assert [(it["batch"], it["loud"]) for it in native.tuned] == [(7, False)]
    link.check()
    assert link.bytes_per_second == 33
    link.check()
    assert link.bytes_per_second == 33, "the second has not passed"
    monkeypatch.setattr(slave_module, "steady_ms", lambda: 51_000)
    native.numbers = (0, 0, 40, 0, 0)
    link.check()
    assert link.bytes_per_second == 7
    untied(native)


@on_loop
async def test_end_of_a_thread_that_follows_a_master_is_told_once(
    native: Native, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    closed = "the connection to the master at m:1 is closed: "
    for reason, kind, text, said in (
        ("", "lost", "", ["the master at m:1 is gone"]),
        ("", "lost", "reset", ["the master at m:1 is gone: reset"]),
        ("", "fault", "sends nonsense", [f"{closed}it sends nonsense"]),
        ("", "store", "the disk is full", [f"{closed}the disk is full"]),
        ("this broker stops", "stopped", "", [f"{closed}this broker stops"]),
    ):
        caplog.clear()
        link = master_link(native, monkeypatch)
        if reason:
            link.close(reason)
            link.close("and again")
            assert native.said[-2:] == ["stop", "stop"]
        link.connection_lost(None)
        assert not link.gone.is_set()
        link._thread_ended(kind, text)
        assert link.gone.is_set()
        assert caplog.messages == said
        untied(native)
