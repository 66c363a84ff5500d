"""Each limit of a POP request, at it and one beyond it, and each state that refuses one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from roquet.broker.api.pop import MESSAGES_MAX, NotificationRequest, PeekRequest, PopRequest
from roquet.broker.api.refusal import Reason, Refusal
from roquet.broker.pop.receive.checks import (
    AGE_MS_MIN,
    AHEAD_MS_MAX,
    INVISIBLE_MS_MAX,
    LATE_MS,
    PopChecks,
)
from roquet.broker.pop.receive.in_flight import PopInFlight
from roquet.broker.pop.receive.locks import Key, PopLocks
from roquet.broker.pop.receive.offsets import PopOffsets
from roquet.broker.state import BrokerState
from roquet.model.group import SubscriptionGroupConfig
from roquet.model.topic import TopicConfig
from roquet.protocol.pop.handle import ReceiptHandle
from roquet.testing.clock import FakeClock

if TYPE_CHECKING:
    from collections.abc import Callable

    from roquet.broker.clients.expressions import Choice

NAME = "broker-a"
REVIVE = "rmq_sys_REVIVE_LOG_c"
KEY = "t", "g", 0

FORMER = 6
"""A revive queue that the topic had once."""


class Checks:
    """The checks of a broker with one topic of three queues."""

    def __init__(self, **timers: Any) -> None:
        self.clock = FakeClock()
        self.newest_ms = 0
        self.state = BrokerState()
        self.topics = {
            "t": TopicConfig(name="t", read_queues=3, write_queues=5),
            "hidden": TopicConfig(name="hidden", read_queues=3, perm=2),
            REVIVE: TopicConfig(name=REVIVE, read_queues=2, write_queues=4),
        }
        self.groups = {
            "g": SubscriptionGroupConfig(name="g"),
            "off": SubscriptionGroupConfig(name="off", consume_enable=False),
        }
        self.checks = PopChecks(
            cast("Any", self.topics),
            cast("Any", SimpleNamespace(find=self.groups.get, get=self.groups.get)),
            identity=cast("Any", SimpleNamespace(ip="10.0.0.1", name=NAME)),
            state=self.state,
            timers=cast("Any", SimpleNamespace(**{"enabled": True, "delay_max_s": 60} | timers)),
            revive_topic=REVIVE,
            has_records=lambda queue_id: queue_id == FORMER,
            newest_ms=lambda: self.newest_ms,
            clock=self.clock,
        )

    def pop(self, **changes: Any) -> tuple[TopicConfig, Choice]:
        fields: dict[str, Any] = {
            "topic": "t",
            "group": "g",
            "queue_id": -1,
            "max_messages": 1,
            "invisible_ms": 0,
            "poll_ms": 0,
            "born_ms": self.clock.now_ms(),
        }
        return self.checks.pop(PopRequest(**(fields | changes)))

    def peek(self, **changes: Any) -> TopicConfig:
        fields: dict[str, Any] = {"topic": "t", "group": "g", "queue_id": -1, "max_messages": 1}
        return self.checks.peek(PeekRequest(**(fields | changes)))

    def notification(self, **changes: Any) -> tuple[TopicConfig, Choice]:
        fields: dict[str, Any] = {
            "topic": "t",
            "group": "g",
            "queue_id": -1,
            "poll_ms": 0,
            "born_ms": 0,
        }
        return self.checks.notification(NotificationRequest(**(fields | changes)))

    def polling(self, topic: str = "t", group: str = "g", queue_id: int = -1) -> None:
        self.checks.polling(topic, group, queue_id)


def refused(reason: Reason, action: Callable[[], object]) -> None:
    with pytest.raises(Refusal) as caught:
        action()
    assert caught.value.reason is reason


# --- pops --------------------------------------------------------------------------------------


def test_pop_that_is_older_than_its_client_waits_is_refused_a_moment_later() -> None:
    it = Checks()
    born_ms = it.clock.now_ms() - 1000 - LATE_MS
    assert it.pop(born_ms=born_ms, poll_ms=1000)[0].name == "t"
    refused(Reason.POLLING_TIMEOUT, lambda: it.pop(born_ms=born_ms - 1, poll_ms=1000))


@pytest.mark.parametrize("ask", ["pop", "peek"])
def test_pop_and_peek_ask_for_one_message_or_as_many_as_the_limit(ask: str) -> None:
    it = Checks()
    for most in (1, MESSAGES_MAX):
        getattr(it, ask)(max_messages=most)
    for wrong in (0, -1, MESSAGES_MAX + 1):
        refused(Reason.INVALID_ARGUMENT, lambda n=wrong: getattr(it, ask)(max_messages=n))  # type: ignore[misc]


@pytest.mark.parametrize("ask", ["pop", "peek", "notification", "polling"])
def test_each_request_names_a_queue_that_can_be_read(ask: str) -> None:
    it = Checks()
    asked = getattr(it, ask)
    for queue_id in (-1, 0, 2):
        asked(queue_id=queue_id)
    refused(Reason.INVALID_ARGUMENT, lambda: asked(queue_id=3))
    refused(Reason.UNKNOWN_TOPIC, lambda: asked(topic="none"))
    refused(Reason.FORBIDDEN, lambda: asked(topic="hidden"))
    refused(Reason.UNKNOWN_GROUP, lambda: asked(group="none"))
    refused(Reason.FORBIDDEN, lambda: asked(group="off"))
    it.state.permission = 2
    refused(Reason.FORBIDDEN, asked)
    it.state.permission = 6
    it.state.is_slave = True
    refused(Reason.NOT_MASTER, asked)


def test_pop_alone_needs_the_timer_wheel() -> None:
    it = Checks(enabled=False)
    refused(Reason.FAILED, it.pop)
    it.peek()
    it.notification()
    it.polling()
    it.checks.follow(cast("Any", SimpleNamespace(enabled=True, delay_max_s=60)))
    it.pop()


@pytest.mark.parametrize(
    ("delay_max_s", "most"), [(60, 60_000), (INVISIBLE_MS_MAX // 1000 + 1, INVISIBLE_MS_MAX)]
)
def test_invisible_time_is_as_long_as_the_wheel_takes(delay_max_s: int, most: int) -> None:
    it = Checks(delay_max_s=delay_max_s)
    for invisible_ms in (0, most):
        it.pop(invisible_ms=invisible_ms)
        it.checks.check_invisible(invisible_ms)
    for invisible_ms in (-1, most + 1):
        refused(Reason.INVALID_ARGUMENT, lambda n=invisible_ms: it.pop(invisible_ms=n))  # type: ignore[misc]


def test_expression_says_what_is_wanted() -> None:
    it = Checks()
    for nothing in (None, "", "*"):
        assert it.pop(expression=nothing)[1].is_everything or nothing == "*"
    _, by_tag = it.pop(expression="a || b")
    assert by_tag.codes is not None
    assert (len(by_tag.codes), by_tag.filter_by, by_tag.is_everything) == (2, None, False)
    assert it.notification(expression="a", expression_type="TAG")[1].codes is not None
    _, by_sql = it.pop(expression="a > 3", expression_type="SQL92")
    assert (by_sql.codes, by_sql.filter_by is None, by_sql.is_everything) == (None, False, False)
    for text, kind in (("a >", "SQL92"), ("a", "XPATH")):
        refused(
            Reason.UNPARSABLE_FILTER,
            lambda t=text, k=kind: it.pop(expression=t, expression_type=k),  # type: ignore[misc]
        )


def test_priority_of_the_group_counts_for_unordered_pops_of_a_priority_topic_alone() -> None:
    it = Checks()
    urgent = TopicConfig(name="t", attributes={"message.type": "PRIORITY"})
    plain = TopicConfig(name="t", attributes={"message.type": "NORMAL"})
    it.groups["half"] = SubscriptionGroupConfig(name="half", attributes={"priority.factor": "50"})

    def percent(topic: TopicConfig, group: str, *, is_ordered: bool = False) -> int:
        request = PopRequest(
            topic="t",
            group=group,
            queue_id=-1,
            max_messages=1,
            invisible_ms=0,
            poll_ms=0,
            born_ms=0,
            is_ordered=is_ordered,
        )
        return it.checks.urgent_percent(topic, request)

    assert [percent(urgent, group) for group in ("g", "half", "none")] == [100, 50, 0]
    assert percent(urgent, "g", is_ordered=True) == 0
    assert percent(plain, "g") == 0


# --- what settles messages -----------------------------------------------------------------------


def test_queue_of_an_acknowledgement_exists() -> None:
    it = Checks()
    for queue_id in (0, 2):
        it.checks.settled_queue("t", queue_id, "c")
    for queue_id in (-1, 3):
        refused(
            Reason.ILLEGAL_MESSAGE,
            lambda n=queue_id: it.checks.settled_queue("t", n, "c"),  # type: ignore[misc]
        )
    refused(Reason.UNKNOWN_TOPIC, lambda: it.checks.settled_queue("none", 0, "c"))
    it.state.permission = 2
    it.checks.settled_queue("t", 0, "c")
    it.state.is_slave = True
    refused(Reason.NOT_MASTER, lambda: it.checks.settled_queue("t", 0, "c"))


def test_handle_names_this_broker_and_a_revive_queue_that_it_has() -> None:
    it = Checks()

    def text(revive_queue: int, broker: str = NAME) -> str:
        return ReceiptHandle(0, 1, 2, revive_queue, "0", broker, 0, 0).encode()

    for queue_id in (0, 3, FORMER, 999):
        assert it.checks.handle(text(queue_id)).revive_queue == queue_id
    for queue_id in (-1, 4, 998):
        refused(Reason.INVALID_ARGUMENT, lambda n=queue_id: it.checks.handle(text(n)))  # type: ignore[misc]
    for queue_id in (0, 999):
        refused(
            Reason.INVALID_ARGUMENT,
            lambda n=queue_id: it.checks.handle(text(n, "other")),  # type: ignore[misc]
        )
    refused(Reason.FAILED, lambda: it.checks.handle("1 2"))
    # Queues that are only read count, and without the topic there is none.
    it.topics[REVIVE] = TopicConfig(name=REVIVE, read_queues=5, write_queues=1)
    it.checks.check_place(NAME, 4)
    del it.topics[REVIVE]
    refused(Reason.INVALID_ARGUMENT, lambda: it.checks.check_place(NAME, 0))
    it.checks.check_place(NAME, 0, is_ordered=True)


@pytest.mark.parametrize(
    ("delay_max_s", "age_ms"), [(60, AGE_MS_MIN), (2 * 86_400, 2 * AGE_MS_MIN)]
)
def test_pop_time_of_a_handle_is_within_a_day_or_the_longest_delay_and_a_minute_ahead(
    delay_max_s: int, age_ms: int
) -> None:
    it = Checks(delay_max_s=delay_max_s)
    now_ms = it.clock.now_ms()
    for pop_time_ms in (now_ms - age_ms, now_ms + AHEAD_MS_MAX):
        it.checks.popped("g", 0, pop_time_ms, 0)
    for pop_time_ms in (now_ms - age_ms - 1, now_ms + AHEAD_MS_MAX + 1):
        refused(
            Reason.INVALID_ARGUMENT,
            lambda ms=pop_time_ms: it.checks.popped("g", 0, ms, 0),  # type: ignore[misc]
        )
    refused(Reason.INVALID_ARGUMENT, lambda: it.checks.popped("g", -1, now_ms, 0))
    refused(Reason.UNKNOWN_GROUP, lambda: it.checks.popped("none", 0, now_ms, 0))


# --- messages in flight -----------------------------------------------------------------------


def test_messages_are_in_flight_until_their_time_or_their_acknowledgements() -> None:
    clock = FakeClock()
    now_ms = clock.now_ms()
    it = PopInFlight(clock, is_enabled=True)
    it.popped(KEY, (now_ms, 0), now_ms + 1, 3)
    it.popped(KEY, (now_ms, 3), now_ms, 5)
    assert it.count(KEY) == 3, "those that are due count no more"
    assert it._queues == {KEY: {(now_ms, 0): (now_ms + 1, 3)}}, "and take no room"
    assert it.count(("t", "g", 1)) == 0
    it.settled(KEY, (now_ms, 0), 2)
    it.settled(KEY, (now_ms, 9))
    it.settled(("t", "h", 0), (now_ms, 0))
    assert it.count(KEY) == 1
    it.settled(KEY, (now_ms, 0))
    assert it._queues == {}
    assert it.count(KEY) == 0
    it.popped(KEY, (now_ms, 0), now_ms + 1, 2)
    it.popped(KEY, (now_ms, 2), now_ms + 1, 2)
    it.settled(KEY, (now_ms, 0), 2)
    assert it.count(KEY) == 2
    it.forget(KEY)
    it.forget(KEY)
    assert it.count(KEY) == 0
    it.popped(KEY, (now_ms, 0), now_ms, 2)
    assert (it.count(KEY), it._queues) == (0, {})
    off = PopInFlight(clock, is_enabled=False)
    off.popped(KEY, (now_ms, 0), now_ms + 1, 3)
    assert (off.count(KEY), off.is_idle) == (0, True)


def test_messages_in_flight_are_forgotten_when_nobody_counts_them_any_more() -> None:
    clock = FakeClock()
    it = PopInFlight(clock, is_enabled=True)
    it.popped(KEY, (1, 0), clock.now_ms() + 1, 3)
    it.enable(is_enabled=True)
    assert (it.count(KEY), it.is_idle) == (3, False)
    it.enable(is_enabled=False)
    assert (it.count(KEY), it.is_idle) == (0, True)
    it.popped(KEY, (1, 0), clock.now_ms() + 1, 3)
    assert it.count(KEY) == 0
    it.enable(is_enabled=True)
    it.popped(KEY, (1, 0), clock.now_ms() + 1, 3)
    assert it.count(KEY) == 3


def test_lock_is_held_once_and_tells_who_was_turned_away() -> None:
    it = PopLocks()
    assert it.take(KEY)
    assert it.take(("t", "g", 1))
    assert len(it) == 2
    assert not it.take(KEY)
    assert it.release(KEY) is True
    assert it.take(KEY)
    assert it.release(KEY) is False
    assert it.release(("t", "g", 1)) is False
    assert len(it) == 0


# --- where a pop begins -----------------------------------------------------------------------


class Offsets:
    """Committed offsets and resets of one queue of each topic."""

    def __init__(self, *, has_room: bool = True) -> None:
        self.has_room = has_room
        self.known: dict[str, int] = {}
        self.reset: int | None = None

    def take_reset(self, _group: str, _topic: str, _queue_id: int) -> int | None:
        found, self.reset = self.reset, None
        return found

    def pending_reset(self, _group: str, _topic: str, _queue_id: int) -> int | None:
        return self.reset

    def committed(self, _group: str, topic: str, _queue_id: int) -> int | None:
        return self.known.get(topic)

    def query(self, _group: str, topic: str, _queue_id: int) -> int | None:
        return self.known.get(topic) if self.reset is None else self.reset

    def commit(self, _group: str, topic: str, _queue_id: int, offset: int) -> bool:
        if self.has_room or topic in self.known:
            self.known[topic] = offset
            return True
        return False


class Ahead:
    """What was popped waits nowhere but in the log, until `at` says so."""

    def __init__(self) -> None:
        self.at: int | None = None
        self.is_lowered = False

    def position(self, key: Key) -> int | None:
        assert len(key) == 3
        return self.at

    def passed(self, key: Key, next_offset: int, begin: int | None = None) -> None:
        assert len(key) == 3
        assert begin is None
        self.at = next_offset

    def is_set_back(self, key: Key, committed: int) -> bool:
        assert len(key) == 3
        assert committed >= 0
        return self.is_lowered

    def forget_offsets(self, key: Key) -> None:
        assert len(key) == 3
        self.at = None


def positions(
    lowest: int, highest: int, *, cached: bool = False, by_memory: bool = False
) -> tuple[Offsets, PopOffsets]:
    offsets = Offsets()
    store = SimpleNamespace(
        min_offset=lambda *_: lowest,
        max_offset=lambda *_: highest,
        is_in_memory=lambda *_: cached,
    )
    ahead = Ahead()
    return offsets, PopOffsets(
        cast("Any", offsets), cast("Any", store), ahead, init_by_memory=by_memory
    )


@pytest.mark.parametrize(
    ("lowest", "highest", "from_first", "first"),
    [
        (3, 9, True, 3),
        (-1, 0, True, 0),
        (3, 9, False, 8),
        (0, 1, False, 0),
        (0, 0, False, 0),
    ],
)
def test_new_group_begins_with_the_first_message_or_the_last(
    lowest: int, highest: int, *, from_first: bool, first: int
) -> None:
    offsets, it = positions(lowest, highest)
    assert it.seen("g", "t", 0, from_first=from_first) == first
    assert it.rest("g", "t", 0, from_first=from_first) == max(0, highest - first)
    assert offsets.known == {}
    # It begins anew: what is noted of a group of this name before it counts no more.
    assert it.begin("g", "t", 0, from_first=from_first) == (first, True)
    assert offsets.known == {"t": first}
    # A retry topic is read from its first message in any case.
    assert it.seen("g", "%RETRY%g_t", 0, from_first=False) == max(0, lowest)
    # Known offsets count, 0 as well; a negative one does not.
    offsets.known["t"] = 0
    assert it.begin("g", "t", 0, from_first=from_first) == (0, False)
    assert it.seen("g", "t", 0) == 0
    offsets.known["t"] = -1
    assert it.begin("g", "t", 0, from_first=from_first) == (first, True)
    offsets.known["t"] = highest + 5
    assert it.rest("g", "t", 0) == 0


@pytest.mark.parametrize(
    ("by_memory", "cached", "lowest", "first"),
    [(True, True, 0, 0), (True, False, 0, 8), (False, True, 0, 8), (True, True, 1, 8)],
)
def test_group_gets_the_whole_of_a_young_queue_when_that_is_on(
    lowest: int, first: int, *, by_memory: bool, cached: bool
) -> None:
    _, it = positions(lowest, 9, cached=cached, by_memory=by_memory)
    assert it.begin("g", "t", 0, from_first=False) == (first, True)


def test_position_that_was_reset_counts_once_and_a_full_table_gives_none() -> None:
    offsets, it = positions(0, 9)
    offsets.known["t"], offsets.reset = 7, 2
    assert (it.seen("g", "t", 0), it.rest("g", "t", 0)) == (2, 7)
    # What was popped meanwhile counts no more.
    it.passed("g", "t", 0, 8)
    assert (it.is_reset(KEY), it.seen("g", "t", 0)) == (True, 2)
    assert it.begin("g", "t", 0, from_first=True) == (2, True)
    assert (it.is_reset(KEY), it.seen("g", "t", 0)) == (False, 2)
    assert it.begin("g", "t", 0, from_first=True) == (2, False)
    offsets.has_room = False
    assert it.begin("g", "other", 0, from_first=True) is None
    it.passed("g", "t", 0, 9)
    assert (it.seen("g", "t", 0), offsets.known) == (9, {"t": 2})
    it.move("g", "t", 0, 5)
    assert (it.seen("g", "t", 0), offsets.known) == (5, {"t": 5})


def test_position_that_somebody_lowered_counts_and_the_group_begins_anew() -> None:
    offsets, it = positions(0, 9)
    offsets.known["t"] = 2
    it.passed("g", "t", 0, 8)
    assert it.begin("g", "t", 0, from_first=True) == (8, False)
    ahead = cast("Any", it._ahead)
    for is_lowered in (True, False):
        ahead.is_lowered = is_lowered
        assert it.begin("g", "t", 0, from_first=True) == (2, is_lowered)
        assert ahead.at is None


def test_lock_is_taken_until_it_is_given_back_and_of_its_own_queue_alone() -> None:
    it = PopLocks()
    assert it.take(KEY)
    keys = (KEY, ("t", "g", 1), ("t", "h", 0))
    assert [it.is_taken(key) for key in keys] == [True, False, False]
    assert not it.release(KEY)
    assert not it.is_taken(KEY)
