"""Pops that wait in a task of their own: how a wait ends, and what is forgotten with it."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Any, cast

import pytest

from pop_queues import Queues
from remoting_harness import on_loop
from roquet.broker.api.pop import PopRequest
from roquet.broker.clients.expressions import EVERYTHING, Choice
from roquet.broker.pop import waits
from roquet.broker.pop.receive.polls import PopPolls, Waiting
from roquet.broker.pop.receive.rules import PopConfig
from roquet.broker.pop.waits import PopWaits
from roquet.testing.clock import FakeClock

ALL = -1


@dataclasses.dataclass
class SomePeer:
    """A client."""

    key: int
    is_open: bool = True


class Checks:
    """Expressions: a text is the tag code that it wants."""

    def wanted(self, topic: str, expression: str | None, kind: str | None) -> Choice:
        assert topic
        assert kind is None
        return Choice(codes=(int(expression),)) if expression else EVERYTHING


class World:
    """Waits of group g for topic t."""

    def __init__(self, **limits: Any) -> None:
        self.clock = FakeClock()
        self.store = Queues()
        self.polls = PopPolls(self.clock, PopConfig(**limits))
        self.waits = PopWaits(self.polls, cast("Any", Checks()), self.store)

    def wanted(self, **changes: Any) -> PopRequest:
        fields: dict[str, Any] = {
            "topic": "t",
            "group": "g",
            "queue_id": ALL,
            "max_messages": 1,
            "invisible_ms": 1000,
            "poll_ms": 1000,
            "born_ms": self.clock.now_ms(),
        }
        return PopRequest(**(fields | changes))

    async def begin(self, peer: SomePeer | None = None, **changes: Any) -> asyncio.Task[Waiting]:
        wait = self.waits.wait(self.wanted(**changes), cast("Any", peer or SomePeer(1)))
        task = asyncio.create_task(wait)
        await asyncio.sleep(0)
        return task


async def _turns() -> None:
    for _ in range(4):
        await asyncio.sleep(0)


@on_loop
async def test_wait_ends_when_messages_are_left_for_others_of_its_key() -> None:
    it = World()
    await it.polls.start()
    of_all, of_queue = await it.begin(), await it.begin(queue_id=3)
    assert len(it.polls) == 2
    it.waits.wake(it.wanted(queue_id=3))
    await _turns()
    assert (of_all.done(), of_queue.result()) == (False, Waiting.HELD)
    it.waits.wake(it.wanted(group="other"))
    it.waits.wake(it.wanted(topic="other"))
    await _turns()
    assert not of_all.done()
    it.waits.wake(it.wanted())
    assert await of_all is Waiting.HELD
    assert len(it.polls) == 0


@on_loop
async def test_wait_ends_at_the_end_of_its_poll_time() -> None:
    it = World()
    await it.polls.start()
    task = await it.begin(poll_ms=1000)
    await it.clock.advance(0.95)
    it.polls.expire()
    await _turns()
    assert not task.done()
    await it.clock.advance(0.001)
    it.polls.expire()
    assert await task is Waiting.HELD


@on_loop
async def test_wait_without_room_or_time_is_over_at_once() -> None:
    it = World(held_max=1)
    first = await it.begin()
    assert await (await it.begin()) is Waiting.FULL
    assert len(it.polls) == 1
    first.cancel()
    await asyncio.wait([first])
    assert await (await it.begin(poll_ms=49)) is Waiting.LATE
    assert await (await it.begin(SomePeer(1, is_open=False))) is Waiting.LATE
    assert len(it.polls) == 0


@on_loop
async def test_wait_that_is_cancelled_is_forgotten_also_when_it_was_woken() -> None:
    it = World()
    await it.polls.start()
    for is_woken in (False, True):
        task = await it.begin()
        if is_woken:
            it.waits.wake(it.wanted())
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()
        assert len(it.polls) == 0
        await _turns()


@on_loop
async def test_polls_of_a_client_that_has_gone_are_forgotten_and_no_others() -> None:
    it = World()
    await it.polls.start()
    gone, stays = SomePeer(1), SomePeer(2)
    left = [await it.begin(gone), await it.begin(gone, queue_id=0)]
    kept = await it.begin(stays)
    it.waits.drop(cast("Any", gone))
    assert len(it.polls) == 1
    it.waits.wake(it.wanted())
    assert await kept is Waiting.HELD
    assert not any(task.done() for task in left)
    for task in left:
        task.cancel()
    await asyncio.wait(left)


@pytest.mark.parametrize("expression", [None, "", "*"])
@on_loop
async def test_wait_for_every_message_is_ended_by_any(expression: str | None) -> None:
    it = World()
    await it.polls.start()
    task = await it.begin(expression=expression)
    it.polls.arrived("t", 0, 1)
    assert await task is Waiting.HELD


@on_loop
async def test_wait_for_some_messages_is_ended_by_one_of_them() -> None:
    it = World(force_interval=0)
    await it.polls.start()
    task = await it.begin(expression="2")
    it.store.fill("t", 1, 1)
    it.polls.arrived("t", 1, 1)
    await _turns()
    assert not task.done()
    it.store.fill("t", 1, 2)
    it.polls.arrived("t", 1, 2)
    assert await task is Waiting.HELD


@pytest.mark.parametrize(("before", "is_woken"), [(2, False), (3, True)])
@on_loop
async def test_wait_is_ended_by_more_messages_than_are_looked_at(
    monkeypatch: pytest.MonkeyPatch, before: int, *, is_woken: bool
) -> None:
    monkeypatch.setattr(waits, "LOOKS_MAX", 2)
    it = World(force_interval=0)
    await it.polls.start()
    it.store.fill("t", 1, 1)
    task = await it.begin(expression="2")
    it.polls.arrived("t", 1, 1)
    it.store.fill("t", 1, *[1] * before)
    it.polls.arrived("t", 1, 1 + before)
    await _turns()
    assert task.done() is is_woken
    task.cancel()
    await asyncio.wait([task])


@pytest.mark.parametrize("judges", [True, False])
@on_loop
async def test_wait_is_not_ended_by_messages_that_the_caller_may_not_read(*, judges: bool) -> None:
    it = World(force_interval=0)
    await it.polls.start()
    asked: list[str] = []

    def may_read(topic: str) -> bool:
        asked.append(topic)
        return False

    task = await it.begin(topic="%RETRY%g", may_read=may_read if judges else None)
    copied = {"INNER_MULTI_DISPATCH": "%LMQ%a", "LMQ_ORIGIN_TOPIC": "other"}
    it.store.fill("%RETRY%g", 0, 1, **copied)
    it.polls.arrived("%RETRY%g", 0, 1)
    await _turns()
    assert (task.done(), asked) == ((False, ["other"]) if judges else (True, []))
    task.cancel()
    await asyncio.wait([task])
