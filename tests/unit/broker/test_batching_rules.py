"""Sends that wait one behind the other: what is appended together, who is answered when and how."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

import pytest

from roquet.broker.api.refusal import Reason, Refusal
from roquet.broker.remoting.send import batching
from roquet.broker.remoting.send.batching import SendBatching

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

SHUT = Refusal(Reason.FAILED, "shut")


class Sent:
    """A send by its name, as a request, a header, a message and a draft; `what` happens to it."""

    def __init__(self, what: str, size: int = 1, *, is_batch: bool = False) -> None:
        self.what = what
        self.body = b"x" * size
        self.batch = is_batch
        self.draft = self
        self.answers: list[object] = []
        self.reply = self.answers.append


class World:
    """Service, appender and log around the batching; everything that is done is noted in order."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.done: list[tuple[Any, ...]] = []
        self.is_open = True
        self.late: set[str] = set()
        """Messages that are not durable when they are appended."""
        self.durable = asyncio.Event()
        patch.setattr(batching, "header_of", self._header_of)
        patch.setattr(batching, "message", lambda request, header: (request, header)[0])
        it = cast("Any", self)
        self.batching = SendBatching(it, it, it, it, answers=it, alone=it.alone)

    def run(self, *requests: Sent) -> Awaitable[None] | None:
        self.done.clear()
        return self.batching.run(cast("Any", iter(requests)), cast("Any", self._fail))

    def _header_of(self, request: Sent) -> Sent:
        if request.what == "no header":
            raise ValueError(request.what)
        return request

    def _fail(self, request: Sent, error: Exception) -> None:
        self.done.append(("fail", request.what, str(error)))

    # The service.

    def check_open(self) -> None:
        if not self.is_open:
            raise SHUT

    def of(self, request: Sent) -> str:
        return f"caller of {request.what}"

    def ready(self, request: Sent, caller: str, known: dict[str, Any]) -> Sent | None:
        assert caller == f"caller of {request.what}"
        # What was found out for one message holds for those behind it.
        known[request.what] = len(known)
        self.done.append(("ready", request.what, len(known)))
        if request.what == "refused":
            raise Refusal(Reason.FAILED, "not ready")
        if request.what == "broken":
            raise ValueError(request.what)
        return None if request.what == "waits first" else request

    def finished(self, sending: Sent, result: str) -> str:
        if sending.what == "refused at the end":
            raise Refusal(Reason.FAILED, "not stored")
        if sending.what == "broken at the end":
            raise ValueError(sending.what)
        return result

    def count(self, stored: Sequence[tuple[Sent, str]]) -> None:
        assert not any(sending.answers for sending, _ in stored), "counted before it is answered"
        self.done.append(("count", *(sending.what for sending, _ in stored)))

    # The log, and waiting for it.

    def append(self, drafts: Sequence[Sent]) -> list[str]:
        self.done.append(("append", *(draft.what for draft in drafts)))
        if any(draft.what == "does not fit" for draft in drafts):
            raise ValueError("no room")
        return [draft.what for draft in drafts]

    def is_settled(self, result: str) -> bool:
        return result not in self.late

    async def settled(self, draft: Sent, result: str) -> str:
        assert draft.what == result
        await self.durable.wait()
        if result == "lost":
            raise ValueError("lost")
        return f"{result} at last"

    async def alone(self, request: Sent) -> str:
        self.done.append(("alone", request.what))
        if request.what == "breaks alone":
            raise ValueError("alone")
        return "sent alone"

    # Answers.

    def stored(self, request: Sent, outcome: str) -> str:
        return f"{request.what}: {outcome}"

    def refused(self, request: Sent, refusal: Refusal) -> str:
        return f"{request.what} refused: {refusal.text}"


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


def appended(world: World) -> list[tuple[str, ...]]:
    return [it[1:] for it in world.done if it[0] == "append"]


# --- what goes together --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sizes", "groups"),
    [
        ((), []),
        ((9,), ["0"]),
        ((4, 5), ["01"]),
        ((4, 6, 1), ["01", "2"]),
        ((4, 5, 1, 9, 1), ["012", "34"]),
        ((10, 10, 3), ["0", "1", "2"]),
        ((25, 9), ["0", "1"]),
        ((10,), ["0"]),
        ((0, 0), ["01"]),
    ],
)
def test_messages_are_appended_together_until_they_are_long_enough(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    sizes: tuple[int, ...],
    groups: list[str],
) -> None:
    monkeypatch.setattr(batching, "BYTES_MAX", 10)
    requests = [Sent(str(number), size) for number, size in enumerate(sizes)]
    assert world.run(*requests) is None
    assert appended(world) == [tuple(group) for group in groups]
    assert [it.answers for it in requests] == [[f"{it.what}: {it.what}"] for it in requests]


def test_each_is_answered_by_what_became_of_it(world: World) -> None:
    names = (
        "no header",
        "first",
        "refused",
        "broken",
        "second",
        "refused at the end",
        "broken at the end",
        "third",
    )
    requests = [Sent(name) for name in names]
    assert world.run(*requests) is None
    stored = ["first", "second", "refused at the end", "broken at the end", "third"]
    assert appended(world) == [tuple(stored)]
    assert world.done[-1] == ("count", "first", "second", "third")
    assert [it for it in world.done if it[0] == "fail"] == [
        ("fail", "no header", "no header"),
        ("fail", "broken", "broken"),
        ("fail", "broken at the end", "broken at the end"),
    ]
    assert {it.what: it.answers for it in requests} == {
        "no header": [],
        "first": ["first: first"],
        "refused": ["refused refused: not ready"],
        "broken": [],
        "second": ["second: second"],
        "refused at the end": ["refused at the end refused: not stored"],
        "broken at the end": [],
        "third": ["third: third"],
    }
    # The table of known topics is one for all of a run, and for that run alone.
    assert [it[2] for it in world.done if it[0] == "ready"] == [1, 2, 3, 4, 5, 6, 7]
    assert world.run(Sent("first")) is None
    assert world.done[0] == ("ready", "first", 1)


def test_group_that_cannot_be_appended_fails_and_the_next_one_goes_on(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batching, "BYTES_MAX", 2)
    requests = [Sent(name) for name in ("first", "does not fit", "third", "fourth")]
    assert world.run(*requests) is None
    assert world.done[2:5] == [
        ("append", "first", "does not fit"),
        ("fail", "first", "no room"),
        ("fail", "does not fit", "no room"),
    ]
    assert [len(it.answers) for it in requests] == [0, 0, 1, 1]


def test_closed_service_takes_none(world: World) -> None:
    world.is_open = False
    assert world.run(Sent("first"), Sent("second")) is None
    assert world.done == [("fail", "first", str(SHUT)), ("fail", "second", str(SHUT))]


# --- what has to wait ----------------------------------------------------------------------------


def test_durable_messages_are_answered_at_once_and_late_ones_each_when_they_are(
    world: World,
) -> None:
    world.late = {"late", "lost", "refused at the end"}
    requests = [Sent(name) for name in ("late", "first", "lost", "refused at the end", "second")]
    rest = world.run(*requests)
    assert rest is not None
    assert [len(it.answers) for it in requests] == [0, 1, 0, 0, 1]
    assert world.done[-1] == ("count", "first", "second")

    async def run() -> None:
        waiting = asyncio.ensure_future(cast("Any", rest))
        await asyncio.sleep(0)
        assert not waiting.done()
        world.durable.set()
        await waiting

    asyncio.run(run())
    assert {it.what: it.answers for it in requests} == {
        "late": ["late: late at last"],
        "first": ["first: first"],
        "lost": [],
        "refused at the end": ["refused at the end refused: not stored"],
        "second": ["second: second"],
    }
    assert ("fail", "lost", "lost") in world.done
    assert ("count", "late") in world.done


@pytest.mark.parametrize(
    "make", [lambda: Sent("waits first"), lambda: Sent("batch", is_batch=True)]
)
def test_message_that_goes_alone_waits_for_those_before_it_and_keeps_those_behind_it(
    world: World, make: Callable[[], Sent]
) -> None:
    world.late = {"late"}
    first, late, alone, behind = Sent("first"), Sent("late"), make(), Sent("behind")
    rest = world.run(first, late, alone, behind)
    assert appended(world) == [("first", "late")]
    assert [it.answers for it in (first, late, alone)] == [["first: first"], [], []]

    async def run() -> None:
        waiting = asyncio.ensure_future(cast("Any", rest))
        while not alone.answers:  # noqa: ASYNC110
            await asyncio.sleep(0)
        assert not waiting.done(), "the one that is late has no answer yet"
        world.durable.set()
        await waiting

    asyncio.run(run())
    assert world.done.count(("alone", alone.what)) == 1
    assert [it.answers for it in (late, alone)] == [["late: late at last"], ["sent alone"]]
    assert behind.answers == []
    assert not [it for it in world.done if it[1:2] == ("behind",)]


def test_message_that_fails_alone_fails_alone(world: World) -> None:
    request = Sent("breaks alone", is_batch=True)
    rest = world.run(request)
    asyncio.run(cast("Any", rest))
    assert world.done == [("alone", "breaks alone"), ("fail", "breaks alone", "alone")]
    assert request.answers == []
