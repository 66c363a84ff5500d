"""When the core may settle popped messages, and what it is told."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from roquet.broker.fastpath.pop_rows import PopRows
from roquet.broker.pop.receive.in_flight import PopInFlight
from roquet.broker.state import BrokerState
from roquet.broker.timers.rules import TimerConfig, TimerConversion
from roquet.model.topic import TopicConfig
from roquet.store.tables.deletions import Deletions
from roquet.testing.clock import FakeClock

if TYPE_CHECKING:
    from collections.abc import Callable

REVIVE = "rmq_sys_REVIVE_LOG_c"


class World:
    """Everything that the rows depend on, as a test wants it."""

    def __init__(self, revive_topic: str = REVIVE) -> None:
        self.state = BrokerState()
        self.topics = {revive_topic: TopicConfig(name=revive_topic, read_queues=8, write_queues=6)}
        self.in_flight = PopInFlight(FakeClock(), is_enabled=False)
        self.slots = SimpleNamespace(is_turning=True)
        self.wheel = TimerConversion(
            TimerConfig(), cast("Any", self.slots), FakeClock(), cast("Any", None)
        )
        self.buffer = SimpleNamespace(is_used=False)
        self.clock = FakeClock()
        self.deletions = Deletions(None, self.clock)
        self.acks_async = False
        self.checkpoints_async = False
        self.durability = SimpleNamespace(sync_flush=False)
        self.rows = PopRows(
            identity=cast("Any", SimpleNamespace(name="broker-a")),
            state=self.state,
            topics=cast("Any", self.topics),
            revive_topic=revive_topic,
            wheel=self.wheel,
            in_flight=self.in_flight,
            buffer=cast("Any", self.buffer),
            deletions=self.deletions,
            acks_async=lambda: self.acks_async,
            checkpoints_async=lambda: self.checkpoints_async,
            durability=cast("Any", self.durability),
            clock=FakeClock(),
        )


def test_the_core_is_told_what_handles_and_the_wheel_allow() -> None:
    world = World()
    told = ("broker-a", REVIVE, 8, 259_200_000, 1000, False, True, False, False, -1)
    assert world.rows.write(allowed=True) == told
    assert not world.rows.is_stale
    world.topics[REVIVE] = TopicConfig(name=REVIVE, read_queues=8, write_queues=9)
    found = world.rows.write(allowed=True)
    assert found is not None
    assert found.revive_queues == 9


def test_the_core_is_told_when_something_was_deleted_last() -> None:
    world = World()
    told: list[int] = []

    def tell() -> None:
        assert world.rows.is_stale, "it is told in the step of the deletion"
        found = world.rows.write(allowed=True)
        assert found is not None
        told.append(found.deleted_ms)

    world.rows.write(allowed=True)
    world.deletions.listen(tell)
    undo = world.deletions.topic("t")
    asyncio.run(world.clock.advance(1))
    world.deletions.group("g")
    undo()
    assert told == [world.clock.now_ms() - 1000, world.clock.now_ms()]
    assert world.deletions.latest_ms() == told[-1]


def test_the_core_is_told_that_checkpoints_may_be_in_memory() -> None:
    world = World()
    world.rows.write(allowed=True)
    world.buffer.is_used = True
    found = world.rows.write(allowed=True)
    assert found is not None
    assert found.merges


def test_what_is_not_allowed_is_not_stale_for_ever() -> None:
    world = World()
    assert world.rows.write(allowed=False) is None
    assert not world.rows.is_stale


def _slave(world: World) -> None:
    world.state.is_slave = True


def _waits_for_slave(world: World) -> None:
    world.state.waits_for_slave = True


def _lacks_slave(world: World) -> None:
    world.state.lacks_slave = True


def _counts(world: World) -> None:
    world.in_flight.enable(True)


def _sync(world: World) -> None:
    world.durability.sync_flush = True


def _stopped_wheel(world: World) -> None:
    world.slots.is_turning = False


def _no_wheel(world: World) -> None:
    world.wheel.rules = TimerConfig(enabled=False)


def _crowds(world: World) -> None:
    world.wheel.rules = TimerConfig(congestion=10)


def _no_revive_topic(world: World) -> None:
    world.topics.clear()


@pytest.mark.parametrize(
    "change",
    [
        *(_slave, _counts),
        *(_stopped_wheel, _no_wheel, _crowds, _no_revive_topic),
    ],
)
def test_the_processors_settle_while_more_than_the_record_decides(
    change: Callable[[World], None],
) -> None:
    world = World()
    world.rows.write(allowed=True)
    change(world)
    assert world.rows.is_stale
    assert world.rows.write(allowed=True) is None


def test_answers_of_acks_may_wait_in_the_core_for_a_flush_or_a_slave() -> None:
    for change in (_sync, _waits_for_slave, _lacks_slave):
        world = World()
        change(world)
        found = world.rows.write(allowed=True)
        assert found is not None
        assert not found.acks_async
        world.acks_async = True
        assert world.rows.is_stale
        found = world.rows.write(allowed=True)
        assert found is not None
        assert found.acks_async


def test_pops_are_the_cores_unless_their_checkpoints_wait_for_a_flush_or_a_slave() -> None:
    for change, waits in ((_sync, True), (_waits_for_slave, True), (_lacks_slave, False)):
        world = World()
        change(world)
        found = world.rows.write(allowed=True)
        assert found is not None
        assert found.pops == (not waits)
        # In memory they wait for nothing.
        world.buffer.is_used = True
        found = world.rows.write(allowed=True)
        assert found is not None
        assert found.pops
        world.buffer.is_used = False
        world.checkpoints_async = True
        found = world.rows.write(allowed=True)
        assert found is not None
        assert found.pops


def test_a_revive_topic_that_cannot_be_stored_is_for_the_processors() -> None:
    assert World("rmq_sys_REVIVE_LOG_a b").rows.write(allowed=True) is None


def test_what_was_counted_in_flight_is_forgotten_with_the_limit() -> None:
    in_flight = PopInFlight(FakeClock(), is_enabled=True)
    in_flight.popped(("T", "g", 0), (1, 2), 2_000_000_000_000, 3)
    assert (in_flight.is_idle, in_flight.count(("T", "g", 0))) == (False, 3)
    in_flight.enable(False)
    assert (in_flight.is_idle, in_flight.count(("T", "g", 0))) == (True, 0)


def test_only_the_revive_topic_changes_the_state() -> None:
    rows = World().rows
    assert rows.depends_on({"T", REVIVE})
    assert not rows.depends_on({"T"})
