"""The rows of the fast path: each rule that keeps a frame for the processors, seen in its row."""

from __future__ import annotations

import asyncio
import random
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from roquet.broker.clients.expressions import Expressions
from roquet.broker.fastpath.admission import ROWS_AT_ONCE, Admission
from roquet.broker.messages.put_hooks import Check, PutHooks, put_hooks
from roquet.broker.messages.schedule import DelayLevels
from roquet.broker.state import BrokerState
from roquet.broker.wiring.base import Base, make_base
from roquet.broker.wiring.messages import make_admission
from roquet.model.group import SubscriptionGroupConfig
from roquet.model.topic import TopicConfig
from roquet.testing.clock import FakeClock
from roquet.testing.cluster import broker_config

if TYPE_CHECKING:
    from pathlib import Path

    from roquet.broker.messages.put_hooks import Put
    from roquet.store.results import Draft, PutResult


class Rows:
    """What was written last."""

    def __init__(self) -> None:
        self.state: dict[str, Any] = {}
        self.topics: dict[str, tuple[int, int]] = {}
        self.groups: set[str] = set()
        self.written = 0

    def set_state(self, **state: object) -> None:
        self.state = dict(state)

    def set_topic(self, name: str, sends: int, pulls: int, *_flags: int) -> None:
        self.written += 1
        self.topics[name] = (sends, pulls)

    def set_group(self, name: str, *_rest: object) -> None:
        self.written += 1
        self.groups.add(name)

    def drop_group(self, name: str) -> None:
        self.written += 1
        self.groups.discard(name)


class _NoPop:
    """Leaves popped messages to the processors; `test_pop_rows.py` has the rules."""

    is_stale = False

    def follow(self, durability: object) -> None:
        del durability

    def depends_on(self, topics: object) -> bool:
        del topics
        return False

    def write(self, *, allowed: bool) -> None:
        del allowed


class World:
    """The admission of a broker that is not started, with a gate that a test opens and closes."""

    def __init__(self, folder: Path, hooks: PutHooks | None = None, **changes: str) -> None:
        self.clock = FakeClock()
        config = broker_config(folder, **changes)
        self.base: Base = make_base(config, self.clock, random.Random(1))
        self.is_open = True
        self.gate = SimpleNamespace(takes_sends=lambda: self.is_open, judges_reads=False)
        self.admission: Admission = make_admission(
            self.base,
            cast("Any", self.gate),
            Expressions(),
            levels := DelayLevels(config.store.delay_levels),
            None,
            hooks=hooks or put_hooks(self.base.state, levels),
            halves=cast("Any", SimpleNamespace(place=None)),
            pop=cast("Any", _NoPop()),
        )
        self.rows = Rows()

    def look(self) -> Rows:
        """Return the rows as the next bytes find them."""
        self.admission.before(cast("Any", self.rows), self.clock.now_ms())
        return self.rows

    def topic(self, **changes: Any) -> tuple[int, int]:
        """Return the row (sends, pulls) of a durable topic."""
        config = TopicConfig(**{"name": "orders", "read_queues": 3, "write_queues": 4, **changes})
        self.base.metadata.topics.put(config)
        asyncio.run(self.base.metadata.topics.persist())
        return self.look().topics[config.name]

    def group(self, **changes: Any) -> bool:
        """Tell whether the group of these settings has a row."""
        config = SubscriptionGroupConfig(**{"name": "g", **changes})
        self.base.metadata.groups.put(config)
        return "g" in self.look().groups


def test_first_look_writes_the_state(tmp_path: Path) -> None:
    assert World(tmp_path).look().state["sends"] is True


def test_sends_kept_out_by_overload_are_admitted_with_the_first_bytes_after_it(
    tmp_path: Path,
) -> None:
    it = World(tmp_path)
    it.is_open = False
    asyncio.run(it.admission.tick())
    assert it.look().state["sends"] is False
    it.is_open = True
    assert it.look().state["sends"] is True


def test_overload_is_looked_for_before_every_read_only_while_reads_are_judged(
    tmp_path: Path,
) -> None:
    it = World(tmp_path)
    assert it.look().state["sends"] is True
    it.is_open = False
    assert it.look().state["sends"] is True
    it.gate.judges_reads = True
    assert it.look().state["sends"] is False


def test_sends_are_admitted_from_the_millisecond_on_that_the_broker_opens(tmp_path: Path) -> None:
    it = World(tmp_path)
    it.base.state.accept_sends_from_ms = it.clock.now_ms() + 1
    asyncio.run(it.admission.tick())
    assert it.look().state["sends"] is False
    it.clock.set_by(0.001)
    assert it.look().state["sends"] is True


def test_failed_flush_keeps_sends_out_for_good(tmp_path: Path) -> None:
    it = World(tmp_path)
    it.look()
    it.admission.store_failed()
    assert it.look().state["sends"] is False
    assert it.look().state["pulls"] is True


def test_slave_and_switched_off_path_admit_nothing(tmp_path: Path) -> None:
    it = World(tmp_path)
    it.base.state.is_slave = True
    state = it.look().state
    assert (state["sends"], state["pulls"]) == (False, False)
    state = World(tmp_path / "off", fastPathEnable="false").look().state
    assert (state["sends"], state["pulls"]) == (False, False)


def test_pulls_of_an_unreadable_broker_and_of_one_whose_slave_reads_are_the_processors(
    tmp_path: Path,
) -> None:
    it = World(tmp_path)
    assert it.look().state["pulls"] is True
    it.base.state.permission = 2
    assert it.look().state["pulls"] is False
    assert World(tmp_path / "reads", slaveReadEnable="true").look().state["pulls"] is False


@pytest.mark.parametrize("kinds", ["topics", "groups", "both"])
def test_rows_at_once_are_bounded_and_nothing_is_admitted_until_all_are_written(
    tmp_path: Path, kinds: str
) -> None:
    it = World(tmp_path)
    it.look()
    before = it.rows.written
    many = range(ROWS_AT_ONCE + 1)
    if kinds != "groups":
        it.base.metadata.topics.put(*(TopicConfig(name=f"t{number}") for number in many))
    if kinds != "topics":
        it.base.metadata.groups.put(*(SubscriptionGroupConfig(name=f"g{n}") for n in many))
    total = len(many) * (2 if kinds == "both" else 1)
    while it.rows.written - before + ROWS_AT_ONCE < total:
        written = it.rows.written
        assert it.look().state["sends"] is False
        assert it.rows.written - written == ROWS_AT_ONCE
    assert it.look().state["sends"] is True
    assert it.rows.written - before == total


def test_exactly_the_rows_of_one_round_are_written_without_a_pause(tmp_path: Path) -> None:
    it = World(tmp_path)
    it.look()
    it.base.metadata.topics.put(*(TopicConfig(name=f"t{number}") for number in range(ROWS_AT_ONCE)))
    assert it.look().state["sends"] is True


def test_row_of_a_plain_topic_counts_its_queues(tmp_path: Path) -> None:
    it = World(tmp_path)
    assert it.topic() == (4, 3)
    assert it.topic(read_queues=6) == (6, 6)


def test_topic_that_may_not_be_read_has_no_pulls(tmp_path: Path) -> None:
    assert World(tmp_path).topic(perm=2) == (4, 0)


def test_order_topic_is_admitted_unless_the_broker_is_read_only(tmp_path: Path) -> None:
    it = World(tmp_path)
    assert it.topic(order=True) == (4, 3)
    it.base.state.permission = 4
    assert it.topic(order=True) == (0, 3)
    assert it.topic(name="plain") == (4, 3)


@pytest.mark.parametrize(
    ("attributes", "sends"),
    [
        ({"message.type": "FIFO"}, 4),
        ({"cleanup.policy": "DELETE", "topic.reserve.time": "9"}, 4),
        ({"cleanup.policy": "COMPACTION"}, 0),
        ({"queue.type": "BatchCQ"}, 0),
        ({"message.type": "FIFO", "other": "x"}, 0),
    ],
)
def test_topic_with_attributes_has_sends_unless_they_change_how_a_message_is_stored(
    tmp_path: Path, attributes: dict[str, str], sends: int
) -> None:
    assert World(tmp_path).topic(attributes=attributes) == (sends, 3)


@pytest.mark.parametrize("name", ["SCHEDULE_TOPIC_XXXX", "%RETRY%g"])
def test_topics_of_the_broker_and_retries_have_no_sends(tmp_path: Path, name: str) -> None:
    assert World(tmp_path).topic(name=name) == (0, 3)


def test_retries_have_no_pulls_where_filters_hold_for_them(tmp_path: Path) -> None:
    it = World(tmp_path, filterSupportRetry="true")
    assert it.topic(name="%RETRY%g")[1] == 0
    assert it.topic(name="orders")[1] == 3


def test_topic_that_is_not_durable_yet_has_no_sends(tmp_path: Path) -> None:
    it = World(tmp_path)
    it.base.metadata.topics.put(TopicConfig(name="orders", read_queues=4, write_queues=4))
    assert it.look().topics["orders"] == (0, 4)
    asyncio.run(it.base.metadata.topics.persist())
    assert it.look().topics["orders"] == (4, 4)


def test_deleted_topic_has_an_empty_row(tmp_path: Path) -> None:
    it = World(tmp_path)
    assert it.topic() == (4, 3)
    it.base.metadata.topics.remove("orders")
    assert it.look().topics["orders"] == (0, 0)


def test_change_of_the_broker_s_permission_writes_every_row_again(tmp_path: Path) -> None:
    it = World(tmp_path)
    it.topic(order=True)
    it.base.state.permission = 4
    assert it.look().topics["orders"] == (0, 3)


def test_group_has_a_row_unless_it_may_not_consume(tmp_path: Path) -> None:
    it = World(tmp_path)
    assert it.group()
    assert not it.group(consume_enable=False)


def test_group_without_a_heartbeat_has_no_row_where_such_pulls_are_refused(tmp_path: Path) -> None:
    it = World(tmp_path, rejectPullConsumerEnable="true")
    assert not it.group()


def test_group_with_a_pending_reset_has_no_row(tmp_path: Path) -> None:
    it = World(tmp_path)
    assert it.group()
    it.base.metadata.offsets.reset("g", "orders", 0, 7)
    assert "g" not in it.look().groups
    assert it.base.metadata.offsets.take_reset("g", "orders", 0) == 7
    assert "g" in it.look().groups


def test_change_of_another_fact_of_the_broker_writes_its_state_alone(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.topic()
    before = world.look().written
    world.base.state.slave_timeout_ms += 1
    rows = world.look()
    assert rows.state["slave_timeout_ms"] == world.base.state.slave_timeout_ms
    assert rows.written == before


class Counted:
    """Notes which figures are told of, with what."""

    def __init__(self) -> None:
        self.told: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []

    def __getattr__(self, name: str) -> Any:
        return lambda *given, **named: self.told.append((name, given, named))


PULLS = {
    "group": "g",
    "topic": "t",
    "queue_id": 1,
    "offset": None,
    "commit": None,
    "commits": 0,
    "reads": 0,
    "misses": 0,
    "messages": 3,
    "size": 40,
    "behind": 5,
    "took_us": 1_499_600,
}


@pytest.mark.parametrize(
    ("changes", "pulled", "committed", "told"),
    [
        ({}, None, None, []),
        ({"offset": 0}, 0, None, []),
        ({"commit": 0, "commits": 2}, None, 0, []),
        (
            {"reads": 2},
            None,
            None,
            [("found_many", ("g", "t", 1, 3, 40), {"behind": 5, "reads": 2, "took_ms": 1500})],
        ),
        ({"misses": 4}, None, None, [("missed_many", (4,), {})]),
    ],
)
def test_pulls_of_the_fast_path_are_noted_as_a_processor_would(
    tmp_path: Path,
    *,
    changes: dict[str, Any],
    pulled: int | None,
    committed: int | None,
    told: list[Any],
) -> None:
    world = World(tmp_path)
    counted = Counted()
    world.admission._traffic = cast("Any", counted)
    world.admission.pulled(cast("Any", SimpleNamespace(**(PULLS | changes))))
    offsets = world.base.metadata.offsets
    assert (offsets.pulled("g", "t", 1), offsets.committed("g", "t", 1)) == (pulled, committed)
    assert counted.told == told


class _Hook:
    """A put hook of a test."""

    name = "of a test"

    def __init__(self, acts_on: frozenset[str] | None) -> None:
        self.acts_on = acts_on

    def __call__(self, draft: Draft, put: Put) -> PutResult | None:
        del draft, put
        return None


def test_fast_path_leaves_messages_to_a_put_hook_that_the_core_does_not_know(
    tmp_path: Path,
) -> None:
    own = World(tmp_path / "own").look().state
    assert (own["sends"], own["pulls"], own["special"]) == (True, True, [])
    check = Check(BrokerState())
    one = PutHooks(check, _Hook(frozenset({"secret", "DELAY"})))
    state = World(tmp_path / "one", one).look().state
    assert (state["sends"], state["special"]) == (True, ["secret"])
    every = PutHooks(check, _Hook(frozenset({"secret"})), _Hook(None))
    assert every.beyond_core is None
    assert World(tmp_path / "all", every).look().state["sends"] is False
