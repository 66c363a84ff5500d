"""Which pops the core is asked to give messages, where, and what is noted of those it gives."""

from __future__ import annotations

import dataclasses
import random
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from roquet.broker.api.refusal import Reason, Refusal
from roquet.broker.clients.expressions import Choice
from roquet.broker.fastpath.core_pops import EXPRESSION_MAX, PLANS_MAX, CorePops
from roquet.broker.pop.buffer.merge import MergeBuffer
from roquet.broker.pop.buffer.rules import BufferConfig
from roquet.broker.pop.receive.locks import PopLocks
from roquet.broker.pop.receive.reads import Draws
from roquet.broker.pop.receive.rules import PopConfig
from roquet.model.topic import TopicConfig
from roquet.protocol.pop.records import PopCheckpoint
from roquet.remoting.connections.popped import PopHere, Wish
from roquet.testing.clock import FakeClock

if TYPE_CHECKING:
    from collections.abc import Callable

RETRY = "%RETRY%g_T"
POP = PopHere(9, "T", "g", -1, 8, 60_000, 0, 0, "*", b"frame")
Given = tuple[bytes, int, list[tuple[int, int, list[int], int]], list[tuple[int, int]]]


class World:
    """A group that pops a topic of two queues, and what the core answers."""

    def __init__(self, number: int = 50, **rules: Any) -> None:
        self.clock = FakeClock()
        self.topics = {
            "T": TopicConfig(name="T", read_queues=2, write_queues=2),
            RETRY: TopicConfig(name=RETRY, read_queues=1, write_queues=1),
        }
        self.committed = {("T", 0): 3, ("T", 1): 5, (RETRY, 0): 1}
        self.has_reset = False
        self.refused = False
        self.checked = 0
        self.wanted = Choice(codes=[7])
        self.locks = PopLocks()
        self.merge = MergeBuffer(BufferConfig(**rules), self._commit)
        self.draws = Draws(cast("Any", SimpleNamespace(randrange=lambda _: number)))
        self.turns = 0
        self.woken: list[tuple[str, str, int]] = []
        self.wishes: list[Wish] = []
        self.given: Given | None = b"answer", 0, [(0, 3, [0, 2], 6)], [(1, 9)]
        self.core = CorePops(
            checks=cast(
                "Any",
                SimpleNamespace(
                    pop=self._checked,
                    urgent_percent=lambda *_: 0,
                    is_late=lambda born_ms, poll_ms: self.clock.now_ms() - born_ms - poll_ms > 500,
                ),
            ),
            topics=cast("Any", self.topics),
            offsets=cast(
                "Any",
                SimpleNamespace(
                    queues=lambda _, topic: {
                        queue: offset
                        for (name, queue), offset in self.committed.items()
                        if name == topic
                    },
                    has_reset=lambda _: self.has_reset,
                ),
            ),
            buffer=self.merge,
            locks=self.locks,
            revive_log=cast(
                "Any", SimpleNamespace(look_queue=lambda: 4, next_queue=self._next_queue)
            ),
            draws=self.draws,
            broker_name="b",
            rules=PopConfig(),
            clock=self.clock,
            wake=lambda *key: self.woken.append(key),
        )

    def pop(self, **fields: Any) -> bytes | None:
        rows = cast("Any", SimpleNamespace(give=self._give))
        return self.core.answer(1, POP._replace(**fields), rows)

    def _give(self, wish: Wish) -> Given | None:
        self.wishes.append(wish)
        return self.given

    def _checked(self, request: Any) -> tuple[TopicConfig, Choice]:
        self.checked += 1
        if self.refused:
            raise Refusal(Reason.FORBIDDEN, "no")
        return self.topics[request.topic], self.wanted

    def _next_queue(self) -> int:
        self.turns += 1
        return 4

    def _commit(self, key: tuple[str, str, int], _: int | None, offset: int) -> None:
        self.committed[key[0], key[2]] = offset


def test_a_plain_pop_visits_the_queues_that_its_number_says() -> None:
    world = World(number=51)
    assert world.pop() == b"answer"
    now_ms = world.clock.now_ms()
    places = [(False, 1, 5), (False, 0, 3), (True, 0, 1)]
    names, times = ("g", "T", RETRY), (now_ms, 60_000, now_ms)
    assert world.wishes == [Wish(9, names, places, 8, [7], times, 4, False, False, False)]
    assert (world.committed["T", 0], world.committed["T", 1]) == (6, 9)
    assert (world.turns, world.woken) == (1, [])


def test_a_pop_with_a_low_number_visits_the_retry_topic_first() -> None:
    world = World(number=19)
    world.pop(queue_id=1)
    assert world.wishes[0].places == [(True, 0, 1), (False, 1, 5)]
    assert world.wishes[0].retry_first


def test_a_group_without_a_retry_topic_or_an_offset_in_it_has_no_place_there() -> None:
    world = World()
    del world.committed[RETRY, 0]
    world.pop(queue_id=0)
    assert world.wishes[-1].places == [(False, 0, 3), (True, 0, -1)]
    del world.topics[RETRY]
    world.core.forget()
    world.committed["T", 0] = 3
    world.pop(queue_id=0)
    assert world.wishes[-1].places == [(False, 0, 3)]


def test_messages_that_are_left_wake_a_pop_that_waits() -> None:
    world = World()
    world.given = b"answer", 3, [(0, 3, [0], 4)], []
    world.pop()
    assert world.woken == [("T", "g", -1)]


def _refuse(world: World) -> None:
    world.refused = True


def _reset(world: World) -> None:
    world.has_reset = True


def _filter(world: World) -> None:
    world.wanted = Choice(filter_by=cast("Any", object()))


def _begin(world: World) -> None:
    del world.committed["T", 1]


def _begin_anywhere(world: World) -> None:
    world.committed["T", 1] = -2


def _lock(world: World) -> None:
    world.locks.take(("T", "g", 1))


def _lock_retry(world: World) -> None:
    world.locks.take((RETRY, "g", 0))


@pytest.mark.parametrize(
    "change", [_refuse, _reset, _filter, _begin, _begin_anywhere, _lock, _lock_retry]
)
def test_what_is_not_common_is_for_the_service(change: Callable[[World], None]) -> None:
    world = World()
    change(world)
    committed = dict(world.committed)
    assert world.pop() is None
    assert (world.wishes, world.turns, world.committed) == ([], 0, committed)


def test_a_pop_that_gets_nothing_leaves_its_number_to_the_next() -> None:
    numbers = random.Random(1)
    world = World()
    world.draws = world.core._draws = Draws(numbers)
    world.given = None
    first = random.Random(1).randrange(100)
    assert world.pop() is None
    assert world.pop() is None
    assert (world.turns, world.draws.take()) == (0, first)
    assert world.draws.look() == world.draws.take() != first


class SomeHeld:
    """Where pops wait."""

    def __init__(self, *, has_room: bool = True) -> None:
        self.has_room = has_room
        self.held: list[tuple[int, PopHere, int]] = []

    def may_wait(self, pop: PopHere, now_ms: int) -> bool:
        assert (pop.topic, now_ms > 0) == ("T", True)
        return self.has_room

    def hold(self, key: int, pop: PopHere, now_ms: int) -> None:
        self.held.append((key, pop, now_ms))


def test_a_pop_for_which_nothing_is_there_waits_and_has_drawn_its_number() -> None:
    world, held = World(), SomeHeld()
    world.core.held = cast("Any", held)
    world.given = b"", 0, [], []
    committed = dict(world.committed)
    assert world.pop() == b""
    assert world.wishes[0].waits
    assert held.held == [(1, POP, world.clock.now_ms())]
    assert (world.turns, world.woken, world.committed) == (1, [], committed)
    assert world.draws._next is None


def test_a_pop_for_which_there_is_no_room_does_not_wait() -> None:
    world = World()
    world.core.held = cast("Any", SomeHeld(has_room=False))
    world.given = None
    assert world.pop() is None
    assert (world.wishes[0].waits, world.turns) == (False, 0)


def test_checks_are_asked_once_for_pops_of_one_kind_until_something_changes() -> None:
    world = World()
    now_ms = world.clock.now_ms()
    for _ in range(3):
        assert world.pop(born_ms=now_ms) == b"answer"
    assert world.checked == 1
    for other in ({"messages": 9}, {"queue_id": 1}, {"invisible_ms": 1}, {"expression": "a"}):
        world.pop(**other)
    assert world.checked == 5
    # What its client has given up is late, whatever was remembered.
    assert world.pop(born_ms=now_ms - 501) is None
    assert world.pop(born_ms=now_ms - 501, poll_ms=1) == b"answer"
    world.refused = True
    assert world.pop() == b"answer"
    world.core.forget()
    assert world.pop() is None
    world.refused = False
    long = "a" * (EXPRESSION_MAX + 1)
    before = world.checked
    for _ in range(2):
        world.pop(expression=long)
    assert world.checked == before + 2, "a long expression is not remembered"
    for number in range(2 * PLANS_MAX):
        world.pop(invisible_ms=number)
    assert 0 < len(world.core._plans) <= PLANS_MAX


def test_a_lock_of_another_group_holds_nobody_up() -> None:
    world = World()
    world.locks.take(("T", "other", 1))
    assert world.pop() == b"answer"


def test_checkpoints_go_to_the_merge_buffer_while_it_has_room() -> None:
    world = World(enabled=True)
    world.pop()
    assert world.wishes[0].merges
    assert len(world.merge) == 1
    now_ms = world.clock.now_ms()
    key = "T", "g", 0, 3, now_ms, "b"
    assert world.merge.knows_key(key)
    assert world.committed["T", 0] == 3, "the offset waits for what is in memory"
    # The same moment again: two checkpoints of one name could not be told apart.
    world.merge.forget_offsets(("T", "g", 0))
    assert world.pop() is None
    assert (len(world.wishes), len(world.merge)) == (1, 1)


def test_positions_in_memory_go_before_the_committed_offset() -> None:
    world = World(enabled=True)
    world.pop()
    world.given = None
    world.pop()
    assert world.wishes[1].places[:2] == [(False, 0, 6), (False, 1, 9)]


@pytest.mark.parametrize(
    ("rules", "invisible_ms", "admitted"),
    [
        ({"enabled": False}, 60_000, False),
        ({"enabled": True}, 60_000, True),
        ({"enabled": True}, 1_000, False),
        ({"enabled": True, "checkpoints_max": 1}, 60_000, None),
        ({"enabled": True, "queue_max": 1}, 60_000, True),
    ],
)
def test_the_buffer_says_whether_it_takes_all_checkpoints_of_a_pop(
    rules: dict[str, Any], invisible_ms: int, admitted: bool | None
) -> None:
    merge = MergeBuffer(BufferConfig(**rules), lambda *_: None)
    keys = [("T", "g", 0), ("T", "g", 1)]
    assert merge.admits(keys, 1_000_000 + invisible_ms, 1_000_000) is admitted


def test_a_buffer_that_is_full_for_one_queue_says_so() -> None:
    merge = MergeBuffer(BufferConfig(enabled=True, queue_max=1), lambda *_: None)
    checkpoint = PopCheckpoint(
        topic="T",
        group="g",
        queue_id=0,
        start_offset=0,
        pop_time_ms=1_000_000,
        invisible_ms=60_000,
        broker_name="b",
        count=1,
    )
    assert merge.add(checkpoint, 0, 1, 1_000_000)
    keys = [("T", "g", 0), ("T", "g", 1)]
    assert merge.admits(keys, 1_060_000, 1_000_000) is None
    assert merge.admits(keys[1:], 1_060_000, 1_000_000) is True
    full = dataclasses.replace(BufferConfig(enabled=True), checkpoints_max=1)
    merge.follow(full)
    assert merge.admits(keys[1:], 1_060_000, 1_000_000) is False
