"""All that is written into the rows of the fast path, in order, and what threads lose at once."""

from __future__ import annotations

import asyncio
import dataclasses
import random
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from roquet.broker.clients.expressions import Choice, Expressions
from roquet.broker.clients.registry import Client, Consuming
from roquet.broker.fastpath.admission import BARRIER, Admission, FastIngest, Rules
from roquet.broker.fastpath.pop_rows import SETTLES, Popping
from roquet.broker.messages.schedule import DelayLevels
from roquet.broker.wiring.base import make_base, make_broker_properties
from roquet.model.group import SubscriptionGroupConfig
from roquet.model.subscription import MessageModel, SubscriptionData
from roquet.model.topic import FilterType, TopicConfig
from roquet.protocol.messages import sys_flag
from roquet.testing.clock import FakeClock
from roquet.testing.cluster import broker_config
from roquet.testing.peer import FakePeer

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path


class Noted:
    """Notes what is called on it, as (name, arguments)."""

    def __init__(self, calls: list[Any], prefix: str = "") -> None:
        self.calls = calls
        self.prefix = prefix

    def __getattr__(self, name: str) -> Any:
        def call(*given: Any, **named: Any) -> None:
            self.calls.append((self.prefix + name, *given, *([named] if named else [])))

        return call


class Accounts:
    """Accounts whose rows are written when a test says that they have changed."""

    def __init__(self) -> None:
        self.is_stale = True

    def write(self, rows: Any) -> None:
        rows.set_accounts()
        self.is_stale = False


class Pops:
    """What holds for popped messages, as a test says; `test_pop_rows.py` has the rules."""

    def __init__(self) -> None:
        self.is_stale = False
        self.found: Popping | None = None
        self.followed: list[object] = []

    def follow(self, durability: object) -> None:
        self.followed.append(durability)

    def depends_on(self, topics: Collection[str]) -> bool:
        return "revive" in topics

    def write(self, *, allowed: bool) -> Popping | None:
        self.is_stale = False
        return self.found if allowed else None


class Desk:
    """The admission of a broker that is not started; everything it tells is noted."""

    def __init__(self, folder: Path, **changes: str) -> None:
        self.calls: list[Any] = []
        self.config = broker_config(folder, **changes)
        self.base = make_base(self.config, FakeClock(), random.Random(1))
        self.expressions = Expressions(kept_max=2)
        self.accounts = Accounts()
        self.pops = Pops()
        self.takes_sends = True
        gate = SimpleNamespace(takes_sends=lambda: self.takes_sends, judges_reads=False)
        self.rules = Rules(
            True,
            make_broker_properties(self.base),
            self.config.pull,
            self.config.store,
            self.config.server.holds_max,
            DelayLevels(self.config.store.delay_levels).highest,
        )
        self.admission = self.made(gate, answers=Noted(self.calls, "answers."))
        self.rows = Noted(self.calls)

    def made(self, gate: Any, answers: Any) -> Admission:
        return Admission(
            metadata=self.base.metadata,
            registry=self.base.registry,
            state=self.base.state,
            gate=gate,
            traffic=cast("Any", Noted(self.calls, "traffic.")),
            rules=self.rules,
            expressions=self.expressions,
            halves=cast("Any", SimpleNamespace(place=None, opened=self._opened)),
            pop=cast("Any", self.pops),
            accounts=cast("Any", self.accounts),
            answers=answers,
        )

    def _opened(self, topic: str, halves: int) -> None:
        self.calls.append(("halves.opened", topic, halves))

    def written(self) -> list[Any]:
        """Return what the next bytes have written, in order."""
        self.calls.clear()
        self.admission.before(cast("Any", self.rows), 0)
        return list(self.calls)

    def state(self) -> dict[str, Any]:
        """Return the state as it is written now; it has to be written once."""
        (state,) = [it[1] for it in self.written() if it[0] == "set_state"]
        return cast("dict[str, Any]", state)

    def shared(self) -> None:
        """Let threads judge by the rows from now on; forget what was written before."""
        self.written()
        threads = Noted(self.calls, "threads.")
        threads.rows = Noted(self.calls, "shared.")  # type: ignore[attr-defined]
        self.admission.shared_by(cast("Any", threads))
        self.calls.clear()

    def told(self) -> list[Any]:
        """Return what was told since the last time."""
        told = list(self.calls)
        self.calls.clear()
        return told


SOON = ("threads.refresh_soon",)
SUSPENDED = [("shared.suspend",), SOON]


# --- when what is written ------------------------------------------------------------------------


def test_accounts_come_first_then_all_rows_then_the_state_and_nothing_twice(
    tmp_path: Path,
) -> None:
    desk = Desk(tmp_path)
    desk.expressions.note("TAG", "a", Choice([1]))
    first = desk.written()
    names = [it[0] for it in first]
    assert names[0] == "set_accounts"
    assert names[-2:] == ["set_state", "set_expression"]
    assert first[-2][1]["sync_here"] is False
    metadata = desk.base.metadata
    assert {it[1] for it in first if it[0] == "set_topic"} == set(metadata.topics.all())
    assert {it[1] for it in first if it[0] == "set_group"} == set(metadata.groups.all())
    assert len(first) == 3 + len(metadata.topics) + len(metadata.groups)
    assert desk.written() == []
    desk.accounts.is_stale = True
    assert desk.written() == [("set_accounts",)]


def test_state_is_written_again_when_the_port_or_a_fact_has_changed(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    desk.written()
    desk.base.identity.port = 10_911
    assert [it[0] for it in desk.written()] == ["set_state"]
    desk.base.state.lacks_slave = True
    assert desk.state()["lacks_slave"] is True
    for here in (True, True, False, False):
        desk.admission.sync_in_place(here)
        states = [it[1]["sync_here"] for it in desk.written()]
        assert states in ([here], [])
    # Each time that it has changed, and no other time.
    desk.admission.sync_in_place(True)
    assert desk.state()["sync_here"] is True
    desk.admission.sync_in_place(True)
    assert desk.written() == []


def test_with_accounts_the_core_pulls_nothing_where_messages_of_other_topics_may_lie(
    tmp_path: Path,
) -> None:
    desk = Desk(tmp_path)
    for name in ("%RETRY%g", "%RETRY%g_%LMQ%q", "%RETRY%g+%LMQ%q", "%DLQ%g", "t"):
        desk.base.metadata.topics.put(TopicConfig(name=name, read_queues=3))
    pulled = {it[1]: it[3] for it in desk.written() if it[0] == "set_topic"}
    assert {name for name, queues in pulled.items() if "%" in name and queues} == set()
    assert pulled["t"] == 3


def test_other_settings_write_everything_by_them(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    desk.accounts = cast("Any", None)
    gate = SimpleNamespace(takes_sends=lambda: True, judges_reads=False)
    desk.admission = desk.made(gate, answers=None)
    desk.base.metadata.topics.put(TopicConfig(name="%RETRY%g", read_queues=3))
    assert ("set_topic", "%RETRY%g", 0, 3, 0, 0, 3, 0, "NORMAL") in desk.written()
    pull = dataclasses.replace(
        desk.config.pull, filter_retries=True, slave_read=True, reject_pull_consumers=True
    )
    store = dataclasses.replace(desk.config.store, sync_flush_timeout_ms=7)
    desk.admission.follow(pull, store)
    written = desk.written()
    assert ("set_topic", "%RETRY%g", 0, 0, 0, 0, 3, 0, "NORMAL") in written
    assert not [it for it in written if it[0] == "set_group"], "without a heartbeat none may pull"
    (state,) = [it[1] for it in written if it[0] == "set_state"]
    assert (state["pulls"], state["flush_timeout_ms"]) == (False, 7)
    assert desk.pops.followed == [store]


def test_expressions_are_written_as_they_are_learnt_and_forgotten(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    desk.written()
    found = cast("Any", object())
    desk.expressions.note("TAG", "a", Choice([1]))
    desk.expressions.note("TAG", "a", Choice([9]))
    desk.expressions.note("SQL92", "x = 1", Choice(None, found))
    a, x = ("set_expression", "TAG", "a", [1], None), ("set_expression", "SQL92", "x = 1")
    assert desk.written() == [a, (*x, None, found)]
    assert desk.written() == []
    # There is room for two: a third one begins anew.
    desk.expressions.note("TAG", "c", Choice([3]))
    desk.expressions.note("TAG", "a", Choice([1]))
    c = ("set_expression", "TAG", "c", [3], None)
    assert desk.written() == [("drop_expressions",), c, a]


def test_choice_is_everything_when_neither_tags_nor_a_filter_leave_something_out() -> None:
    some = cast("Any", object())
    assert Choice().is_everything
    assert not Choice([]).is_everything
    assert not Choice(None, some).is_everything
    assert not Choice([1], some).is_everything


# --- what stands in a row ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, {"hold_ms": None, "lite_pulls": True, "sync_flush": False}),
        ({"longPollingEnable": "false", "shortPollingTimeMills": "70"}, {"hold_ms": 70}),
        ({"flushDiskType": "SYNC_FLUSH"}, {"sync_flush": True}),
        ({"litePullMessageEnable": "false"}, {"lite_pulls": False}),
        ({"maxMessageSize": "77777"}, {"body_max": 77_777}),
    ],
)
def test_state_says_what_the_settings_say(
    tmp_path: Path, changes: dict[str, str], said: dict[str, object]
) -> None:
    assert Desk(tmp_path, **changes).state().items() >= said.items()


def test_state_says_what_holds_for_popped_messages_and_what_must_not_be_overtaken(
    tmp_path: Path,
) -> None:
    desk = Desk(tmp_path)
    state = desk.state()
    assert (state["pop"], state["barrier"]) == (None, BARRIER)
    desk.pops.found = Popping(
        "broker-a",
        "revive",
        8,
        1000,
        100,
        merges=False,
        pops=True,
        acks_async=False,
        checkpoints_async=False,
        deleted_ms=-1,
    )
    desk.pops.is_stale = True
    assert desk.written() == [], "a timer looks at it"
    asyncio.run(desk.admission.tick())
    state = desk.state()
    assert (state["pop"], state["barrier"]) == (desk.pops.found, (*BARRIER, *SETTLES))
    asyncio.run(desk.admission.tick())
    assert desk.written() == [], "only when it has changed"
    desk.base.metadata.topics.put(TopicConfig(name="revive"))
    assert desk.state()["pop"] == desk.pops.found
    desk.base.metadata.topics.put(TopicConfig(name="t"))
    assert [it[0] for it in desk.written()] == ["set_topic"]
    # A slave leaves everything to the processors.
    desk.base.state.is_slave = True
    state = desk.state()
    assert (state["pop"], state["barrier"]) == (None, BARRIER)


def test_row_of_a_topic_has_its_flags_and_one_that_is_gone_is_empty(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    topics = desk.base.metadata.topics
    desk.written()
    topics.put(
        TopicConfig(name="many", filter_type=FilterType.MULTI_TAG, read_queues=3, sys_flag=1),
        TopicConfig(name="single", filter_type=FilterType.SINGLE_TAG, read_queues=3),
    )
    assert sorted(desk.written()) == [
        ("set_topic", "many", 0, 3, sys_flag.MULTI_TAGS, 1, 3, 0, "NORMAL"),
        ("set_topic", "single", 0, 3, 0, 0, 3, 0, "NORMAL"),
    ]
    topics.remove("many")
    assert desk.written() == [("set_topic", "many", 0, 0, 0, 0)]


def heard(desk: Desk, *subscriptions: SubscriptionData, broadcast: bool = False) -> Any:
    """Return the row of a group after a heartbeat of it."""
    model = MessageModel.BROADCASTING if broadcast else MessageModel.CLUSTERING
    client = Client(FakePeer(), "c", "JAVA", 513)
    desk.base.registry.register_consumer("g", client, Consuming(model=model), subscriptions, 0)
    (row,) = desk.written()
    return row


def test_row_of_a_group_has_the_subscriptions_that_pulls_may_go_by(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    metadata = desk.base.metadata
    metadata.groups.put(SubscriptionGroupConfig(name="g", sys_flag=2))
    metadata.groups.set_forbidden("g", "forbidden", 1)
    metadata.groups.set_forbidden("g", "other bit", 2)
    assert ("set_group", "g", 2, []) in desk.written(), "no heartbeat, no subscription"
    plain = SubscriptionData(topic="plain", expression="*", version=5)
    tags = SubscriptionData(topic="tags", expression="a||b", version=6, tags=frozenset("ab"))
    old = SubscriptionData(topic="old", expression="*", expression_type="", version=7)
    rest = [dataclasses.replace(plain, topic=topic) for topic in ("forbidden", "other bit")]
    kind, name, flag, rows = heard(desk, plain, tags, old, *rest)
    assert (kind, name, flag) == ("set_group", "g", 2)
    assert rows == [
        ("plain", 5, plain.wanted_codes, None),
        ("tags", 6, tags.wanted_codes, None),
        ("old", 7, old.wanted_codes, None),
        ("other bit", 5, plain.wanted_codes, None),
    ]
    # Whoever broadcasts without leave is for the processors.
    metadata.groups.put(SubscriptionGroupConfig(name="g", consume_broadcast_enable=False))
    assert heard(desk, plain, broadcast=True) == ("set_group", "g", 0, [])
    assert heard(desk, plain) == ("set_group", "g", 0, [("plain", 5, plain.wanted_codes, None)])
    metadata.groups.put(SubscriptionGroupConfig(name="g"))
    assert heard(desk, plain, broadcast=True)[3] == [("plain", 5, plain.wanted_codes, None)]


@pytest.mark.parametrize(
    ("known", "allowed", "version", "expression_type", "has_row"),
    [
        (4, "true", 4, "SQL92", True),
        (5, "true", 4, "SQL92", True),
        (3, "true", 4, "SQL92", False),
        (None, "true", 4, "SQL92", False),
        (4, "false", 4, "SQL92", False),
        (4, "true", 4, "CLASS", False),
    ],
)
def test_subscription_by_properties_has_a_row_with_a_filter_as_new_as_it(
    tmp_path: Path,
    known: int | None,
    allowed: str,
    version: int,
    expression_type: str,
    *,
    has_row: bool,
) -> None:
    desk = Desk(tmp_path, enablePropertyFilter=allowed)
    desk.base.metadata.groups.put(SubscriptionGroupConfig(name="g"))
    wanted = SubscriptionData(
        topic="t", expression="x = 1", expression_type=expression_type, version=version
    )
    if known is not None:
        filtered = dataclasses.replace(wanted, expression_type="SQL92", version=known)
        desk.base.metadata.filters.follow("g", {"t": filtered})
    desk.written()
    rows = heard(desk, wanted)[3]
    entry = desk.base.metadata.filters.find("t", "g")
    found = entry and entry.filter
    assert rows == ([("t", version, wanted.wanted_codes, found)] if has_row else [])
    assert found is not None or not has_row


# --- threads -------------------------------------------------------------------------------------


def test_threads_lose_what_has_changed_before_it_is_written_anew(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    metadata = desk.base.metadata
    desk.shared()
    metadata.topics.put(TopicConfig(name="t"))
    assert desk.told() == [("shared.set_topic", "t", 0, 0, 0, 0), SOON]
    metadata.groups.put(SubscriptionGroupConfig(name="g"))
    dropped = [("shared.drop_group", "g"), ("threads.settle",), SOON]
    assert desk.told() == dropped
    metadata.offsets.reset("g", "t", 0, 1)
    assert desk.told() == dropped
    metadata.filters.follow(
        "g", {"t": SubscriptionData(topic="t", expression="x = 1", expression_type="SQL92")}
    )
    assert desk.told() == dropped
    client = Client(FakePeer(), "c", "JAVA", 513)
    desk.base.registry.register_consumer("g", client, Consuming(), (), 0)
    assert desk.told() == dropped
    desk.base.registry.drop(client.peer.key)
    assert desk.told() == dropped
    desk.base.state.lacks_slave = True
    assert desk.told() == SUSPENDED
    desk.admission.follow(desk.config.pull, desk.config.store)
    assert desk.told() == SUSPENDED
    desk.takes_sends = False
    for _ in range(2):
        asyncio.run(desk.admission.tick())
    assert desk.told() == SUSPENDED, "only when it has changed"
    desk.admission.store_failed()
    assert desk.told() == SUSPENDED


def test_threads_admit_nothing_by_the_rows_of_another_permission(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    desk.base.metadata.topics.put(TopicConfig(name="orders", order=True))
    desk.shared()
    desk.written()
    for permission in (4, 6):
        desk.told()
        desk.base.state.permission = permission
        assert desk.told() == SUSPENDED
        names = [it[0] for it in desk.written()]
        assert names.count("set_state") == 1
        assert names[-1] == "set_state", "the rows that depend on it come first"
        assert {"set_topic", "set_group"} <= set(names)


def test_threads_are_called_again_while_rows_have_to_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = Desk(tmp_path)
    desk.shared()
    desk.base.metadata.topics.put(*(TopicConfig(name=f"t{number}") for number in range(5)))
    monkeypatch.setattr("roquet.broker.fastpath.admission.ROWS_AT_ONCE", 2)

    def shown() -> list[object]:
        return [it[1]["sends"] if it[0] == "set_state" else it[0] for it in desk.written()]

    assert shown() == ["set_topic", "set_topic", "threads.refresh_soon", False]
    assert shown() == ["set_topic", "set_topic", "threads.refresh_soon"]
    assert shown() == ["set_topic", True]
    assert shown() == []
    desk.base.metadata.topics.put(*(TopicConfig(name=f"u{number}") for number in range(2)))
    assert shown() == ["set_topic", "set_topic"], "they fit into one round"


# --- what was answered ---------------------------------------------------------------------------


def test_what_threads_answered_is_counted_as_a_processor_would(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    stored: dict[str, Any] = {"topic": "t", "queue_id": 1, "messages": 3, "size": 40}
    many = ("traffic.stored_many", "t", 1, 3, 40)
    for changes, told in (
        ({"sends": 0, "took_us": 0}, [many]),
        ({"sends": 2, "took_us": 1_499_600}, [many, ("traffic.sent_many", "t", 1, 2, 1500)]),
        ({"sends": 2, "took_us": 2_400, "messages": 0}, [("traffic.sent_many", "t", 1, 2, 2)]),
    ):
        desk.admission.stored(cast("Any", SimpleNamespace(**{**stored, **changes})))
        assert desk.told() == told
    desk.admission.opened("t", 4)
    assert desk.told() == [("halves.opened", "t", 4)]
    answers = cast("Any", object())
    desk.admission.answered(answers, "remoting")
    assert desk.told() == [("answers.answered_many", answers, "remoting")]
    nobody_asks = desk.made(SimpleNamespace(takes_sends=lambda: True), answers=None)
    nobody_asks.answered(answers, "remoting")
    assert desk.told() == []


def test_commit_of_before_a_reset_does_not_undo_it(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    offsets = desk.base.metadata.offsets
    pulls = SimpleNamespace(
        group="g", topic="t", queue_id=1, offset=4, commit=4, commits=1, reads=0, misses=0
    )
    offsets.reset("g", "t", 1, 2)
    desk.admission.pulled(cast("Any", pulls))
    assert (offsets.query("g", "t", 1), offsets.pulled("g", "t", 1)) == (2, 4)
    offsets.take_reset("g", "t", 1)
    desk.admission.pulled(cast("Any", pulls))
    assert offsets.query("g", "t", 1) == 4


# --- the part ------------------------------------------------------------------------------------


class Part:
    """The fast path as a part, with nothing behind it; everything it tells is noted."""

    def __init__(self) -> None:
        self.calls: list[Any] = []
        self.flushed: Any = None
        path, admission = Noted(self.calls, "path."), Noted(self.calls, "admission.")

        async def tick(name: str) -> None:
            self.calls.append((name,))

        path.tick = lambda: tick("path.tick")  # type: ignore[attr-defined]
        path.pause_s = lambda: 0.2  # type: ignore[attr-defined]
        admission.tick = lambda: tick("admission.tick")  # type: ignore[attr-defined]
        store = SimpleNamespace(
            native=SimpleNamespace(sync_times=lambda: (3, 5)), on_flush=self._on_flush
        )
        disk = SimpleNamespace(look=lambda count, total: (count, total) == (3, 5))
        self.store = store
        self.part = FastIngest(*cast("Any", (path, admission, store, 1000, disk)))

    def _on_flush(self, listener: Any, *, of_fast_path: bool) -> None:
        assert of_fast_path
        self.flushed = listener


def test_fast_path_opens_over_the_store_and_looks_before_it_gives_up() -> None:
    it = Part()
    asyncio.run(it.part.start())
    (timer,) = it.part.timers
    asyncio.run(cast("Any", timer.action()))
    asyncio.run(it.part.stop())
    assert (timer.pause_s, timer.first_after_s) == (0.2, 0.05)
    assert it.calls == [
        ("path.open", it.store.native, 1000),
        ("admission.tick",),
        ("admission.sync_in_place", True),
        ("path.tick",),
        ("path.close",),
    ]


def test_flush_is_told_on_and_one_that_failed_keeps_sends_out_before() -> None:
    it = Part()
    it.flushed(70, None)
    assert it.calls == [("path.flushed", 70, None)]
    it.calls.clear()
    it.flushed(70, "disk")
    said = "UNKNOWN_ERROR UNKNOWN_ERROR (disk)"
    assert it.calls == [("admission.store_failed",), ("path.flushed", 70, said)]
