"""What a connection gets of the fast path for a read with pops."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from roquet.protocol.command import Command
from roquet.remoting.codec import encode
from roquet.remoting.connections.fast_ingest import IDLE_TICK_S, TICK_S, FastPath
from roquet.remoting.connections.ingest import FeedResult
from roquet.testing.clock import FakeClock

FRAME = encode(Command(200_050))
POP = (9, "T", "g", -1, 1, 60_000, 0, 0, "*", FRAME)


def _path(answer: bytes | None, *, broken: str | None = None, held: int = 0) -> FastPath:
    owner = cast("Any", SimpleNamespace(before=lambda *_: None))
    path = FastPath(owner, FakeClock())
    native = SimpleNamespace(
        feed=lambda *_: (b"sent,", [], broken, [], [POP]),
        held=lambda _: held,
    )
    path._native = cast("Any", native)
    path.settle = lambda: None  # type: ignore[method-assign]
    path.pop_by(lambda *_: answer, lambda _: 0)
    return path


def test_a_read_whose_pops_are_all_answered_is_only_bytes_to_write() -> None:
    assert _path(b"popped").feed(1, memoryview(b""), 0) == b"sent,popped"


@pytest.mark.parametrize(("broken", "held"), [("bad", 0), (None, 3)])
def test_a_read_that_leaves_bytes_or_ends_the_connection_is_told_whole(
    broken: str | None, held: int
) -> None:
    fed = _path(b"popped", broken=broken, held=held).feed(1, memoryview(b""), 0)
    assert fed == FeedResult(b"sent,popped", [], broken=broken or "")


def test_a_pop_without_an_answer_goes_to_the_processors() -> None:
    fed = _path(None).feed(1, memoryview(b""), 0)
    assert isinstance(fed, FeedResult)
    assert (fed.replies, [it.code for it in fed.commands]) == (b"sent,", [200_050])


def test_ticks_are_rare_while_nothing_is_stored_or_pulled() -> None:
    stored = ("T", 0, 1, 100, 1, 5)
    takes: list[list[Any]] = [[stored], [], []]
    told: list[Any] = []
    owner = SimpleNamespace(before=lambda *_: None, stored=told.append)
    path = FastPath(cast("Any", owner), FakeClock())
    nothing: Any = list
    path._native = cast(
        "Any",
        SimpleNamespace(
            expire=lambda _: [],
            serve=lambda _: ([], [], False),
            take_stored=lambda: takes.pop(0),
            take_halves=dict,
            take_pulled=nothing,
            take_answered=nothing,
            take_called=nothing,
            counters=lambda: {"waiting": 0},
        ),
    )
    assert path.pause_s() == TICK_S, "it begins as a busy one"
    path.settle()  # a processor asked for figures before the tick
    asyncio.run(path.tick())
    assert path.pause_s() == TICK_S, "something was stored since the last tick"
    asyncio.run(path.tick())
    assert path.pause_s() == IDLE_TICK_S
    assert len(told) == 1


@pytest.mark.parametrize(("held_ms", "pause_s"), [(None, 1), (5_000, 1), (437, 0.437), (-20, 0.05)])
def test_at_rest_the_next_tick_is_when_a_held_pull_is_given_up(
    held_ms: int | None, pause_s: float
) -> None:
    clock, waiting = FakeClock(), [0]
    path = FastPath(cast("Any", SimpleNamespace(before=lambda *_: None)), clock)
    nothing: Any = list
    path._native = cast(
        "Any",
        SimpleNamespace(
            expire=lambda _: [],
            serve=lambda _: ([], [], False),
            take_stored=nothing,
            take_halves=dict,
            take_pulled=nothing,
            take_answered=nothing,
            take_called=nothing,
            counters=lambda: {"waiting": waiting[0]},
            held_until_ms=lambda: None if held_ms is None else clock.now_ms() + held_ms,
        ),
    )

    def ticked() -> float:
        asyncio.run(path.tick())
        return path.pause_s()

    assert ticked() == IDLE_TICK_S, "the start counts as a request"
    assert ticked() == pytest.approx(pause_s)
    waiting[0] = 1
    assert ticked() == IDLE_TICK_S, "a send waits for a flush"
    waiting[0] = 0
    assert ticked() == pytest.approx(pause_s)
    path.fresh()
    assert ticked() == IDLE_TICK_S, "another front has asked"
