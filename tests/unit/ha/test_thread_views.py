"""Connections that a thread of the core serves: what they show, how they are tuned and ended."""

from __future__ import annotations

import asyncio
import contextlib
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pair_harness import Native, feed_rules
from remoting_harness import on_loop
from roquet.ha import master as module
from roquet.ha import slave as slave_module
from roquet.ha.config import HaConfig
from roquet.ha.master import Entrance, HaMaster, SlaveLink, SlaveView
from roquet.ha.replicas import ReplicaConfig, Replicas
from roquet.ha.slave import HaSlave, MasterLink
from roquet.ha.tail import Arrival
from roquet.ha.threads import LINGER_MS, LogThread
from roquet.testing.clock import FakeClock


def thread(native: Native) -> LogThread:
    return LogThread(cast("Any", native), lambda _: None, lambda _: None, lambda *_: None)


@on_loop
async def test_thread_shows_its_numbers_each_under_its_name() -> None:
    native = Native(-1)
    native.acked, native.position, native.moved, native.silent_ms = 11, 22, 33, (44, 55)
    it = thread(native)
    assert (it.acked, it.position, it.moved, it.silent_ms) == (11, 22, 33, (44, 55))


@on_loop
async def test_thread_is_tuned_by_every_rule() -> None:
    native = Native(-1)
    it = thread(native)
    it.tune(feed_rules(batch=1, heartbeat_ms=2, housekeeping_ms=3, bytes_per_second=4))
    it.tune(feed_rules(batch=1, heartbeat_ms=2, housekeeping_ms=3))
    wanted = {"batch": 1, "heartbeat_ms": 2, "housekeeping_ms": 3, "linger_ms": LINGER_MS}
    assert native.tuned == [
        {**wanted, "bytes_per_second": 4},
        {**wanted, "bytes_per_second": 0},
    ]


# --- the master's side --------------------------------------------------------------------------


def link_of(native: Native, wanted: int = 1) -> tuple[HaMaster, SlaveLink]:
    """Return the connection of a slave that reported 20 and is fed by a thread."""
    log = SimpleNamespace(begin=0, limit=100)
    master = HaMaster(
        cast("Any", log),
        Replicas(ReplicaConfig(slaves=wanted)),
        feed_rules(),
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
    wanted: int,
) -> None:
    native = Native(-1)
    _, link = link_of(native, wanted)
    link.follow(feed_rules(batch=7))
    assert [it["batch"] for it in native.tuned] == [7]
    assert native.acks_told == [(wanted > 0, wanted == 1)]


@on_loop
async def test_view_of_a_slave_is_never_before_its_first_report(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "steady_ms", lambda: 0)
    native = Native(-1)
    master, link = link_of(native)
    assert link.view() == SlaveView("s:9", 20, 20, 0)
    link.check(1000)
    assert master.replicas.by_slave() == {"s": 20}
    native.acked, native.position, native.moved = 25, 30, 10
    link.check(1999)
    assert link.view() == SlaveView("s:9", 25, 30, 0)
    link.check(2000)
    assert link.view() == SlaveView("s:9", 25, 30, 10)
    native.acked, native.moved = 30, 14
    link.check(3000)
    assert link.view() == SlaveView("s:9", 30, 30, 4)
    assert master.replicas.by_slave() == {"s": 30}


@on_loop
@pytest.mark.parametrize(
    ("kind", "text", "of_a_slave", "of_a_stranger"),
    [
        ("lost", "", ("INFO", "is gone"), ("DEBUG", "is gone")),
        ("lost", "reset", ("INFO", "is gone: reset"), ("DEBUG", "is gone: reset")),
        (
            "fault",
            "says nonsense",
            ("ERROR", "is dropped: it says nonsense"),
            ("WARNING", "is dropped: it says nonsense"),
        ),
        ("stopped", "", None, None),
    ],
)
async def test_end_of_a_thread_is_told_of_slaves_and_more_softly_of_strangers(
    caplog: pytest.LogCaptureFixture,
    kind: str,
    text: str,
    of_a_slave: tuple[str, str] | None,
    of_a_stranger: tuple[str, str] | None,
) -> None:
    """Anybody can be a stranger."""
    caplog.set_level("DEBUG", "roquet.ha")
    for told, arrival in ((of_a_slave, None), (of_a_stranger, Arrival())):
        caplog.clear()
        _, link = link_of(Native(-1))
        link._arrival, link._is_fed = arrival, arrival is None
        link._ended(kind, text)
        wanted = [] if told is None else [(told[0], f"slave s:9 {told[1]}")]
        assert [(it.levelname, it.getMessage()) for it in caplog.records] == wanted


@on_loop
@pytest.mark.parametrize("arrival", [None, Arrival()], ids=["slave", "stranger"])
async def test_connection_that_was_dropped_is_told_once_and_takes_no_words(
    caplog: pytest.LogCaptureFixture, arrival: Arrival | None
) -> None:
    native = Native(-1)
    master, link = link_of(native)
    link._arrival, link._is_fed = arrival, arrival is None
    link.turn_away("a test says so")
    assert native.ended == "stop"
    link._said(bytes(8))
    link._acked(40)
    assert (native.begun, link.view(), master.replicas.by_slave()) == (None, None, {})
    link._ended("fault", "says nonsense")
    assert caplog.messages == ["slave s:9 is dropped: it a test says so"]


@on_loop
async def test_slave_whose_thread_has_ended_counts_no_more() -> None:
    for kind in ("lost", "fault", "stopped"):
        master, link = link_of(Native(-1))
        link._acked(15)
        assert master.replicas.by_slave() == {"s": 20}
        link._acked(40)
        assert master.replicas.watermark == 40
        link._ended(kind, "")
        assert (link.view(), master.replicas.by_slave()) == (None, {})
        link._acked(50)
        link.check(9000)
        assert master.replicas.by_slave() == {}


@on_loop
async def test_slave_is_closed_by_its_thread_and_not_forgotten_before() -> None:
    native = Native(-1)
    _, link = link_of(native)
    link.close()
    assert native.ended == "stop"
    link.connection_lost(None)
    assert link.view() is not None
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(link.ended(), 0.001)
        raise AssertionError("its thread has not ended")
    native.tell("stopped")
    await asyncio.wait_for(link.ended(), 30)


# --- the slave's side ---------------------------------------------------------------------------


def master_link(native: Native, monkeypatch: pytest.MonkeyPatch) -> MasterLink:
    monkeypatch.setattr(slave_module, "steady_ms", lambda: 50_000)
    log = SimpleNamespace(begin=0, limit=0, written=0)
    slave = HaSlave(cast("Any", log), HaConfig(batch=7), FakeClock(), broker_id=1)
    link = MasterLink(slave, "m:1")
    link._thread = thread(native)
    return link


@on_loop
async def test_master_followed_by_a_thread_is_shown_by_its_numbers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    native = Native(-1)
    native.moved, native.silent_ms = 33, (44, 55)
    link = master_link(native, monkeypatch)
    now_ms = FakeClock().now_ms()
    assert (link.last_read_ms, link.last_write_ms) == (now_ms - 44, now_ms - 55)
    link.follow()
    assert [it["batch"] for it in native.tuned] == [7]
    link.check()
    assert link.bytes_per_second == 33
    native.moved = 40
    link.check()
    assert link.bytes_per_second == 33, "the second has not passed"
    monkeypatch.setattr(slave_module, "steady_ms", lambda: 51_000)
    link.check()
    assert link.bytes_per_second == 7


@on_loop
async def test_end_of_a_thread_that_follows_a_master_is_told_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    closed = "the connection to the master at m:1 is closed: "
    for reason, kind, text, said in (
        ("", "lost", "", ["the master at m:1 is gone"]),
        ("", "lost", "reset", ["the master at m:1 is gone: reset"]),
        ("", "fault", "sends nonsense", [f"{closed}it sends nonsense"]),
        ("", "store", "the disk is full", [f"{closed}the disk is full"]),
        ("this broker stops", "stopped", "", [f"{closed}this broker stops"]),
        ("this broker stops", "lost", "reset", [f"{closed}this broker stops"]),
    ):
        caplog.clear()
        native = Native(-1)
        link = master_link(native, monkeypatch)
        if reason:
            link.close(reason)
            link.close("and again")
            assert native.ended == "stop"
        link.connection_lost(None)
        assert not link.gone.is_set()
        link._thread_ended(kind, text)
        assert link.gone.is_set()
        assert caplog.messages == said
        link.close("too late")
        assert caplog.messages == said


@on_loop
async def test_master_that_is_left_without_a_reason_is_left_without_a_word(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    native = Native(-1)
    link = master_link(native, monkeypatch)
    link.close("")
    link._thread_ended("lost", "reset")
    assert (native.ended, caplog.messages) == ("stop", [])
