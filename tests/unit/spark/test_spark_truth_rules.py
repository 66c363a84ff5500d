"""What is away, what is gone, what was made anew; how long is waited; where rows go; tries."""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typing_extensions import override

from remoting_harness import on_loop
from roquet.base.errors import OutcomeUnknown, Refused, Unreachable, UsageError
from roquet.client import MessageQueue
from roquet.model.route import BrokerData
from roquet.protocol.bodies.routes import ClusterInfo
from roquet.protocol.codes import ResponseCode
from roquet.spark import table_schema
from roquet.spark.cluster.connections import Connections
from roquet.spark.cluster.metadata import Metadata, View
from roquet.spark.cluster.patience import Patience
from roquet.spark.cluster.pool import Pool
from roquet.spark.offsets import Bounds, QueueKey
from roquet.spark.options import LogOptions, SinkOptions, SourceOptions, Topics, Wire
from roquet.spark.reading import marks, planning
from roquet.spark.reading.marks import Reach
from roquet.spark.reading.presence import Need, settled
from roquet.spark.schema import TYPES
from roquet.spark.sink.placing import Placement, first_turn
from roquet.spark.sink.tries import Tries

if TYPE_CHECKING:
    from collections.abc import Iterable

A, B = QueueKey("orders", "broker-a", 0), QueueKey("orders", "broker-b", 0)
TOPICS = Topics(names=("orders",))
WIRE = Wire(name_servers=("a:1",), retries=2, retry_pause_s=0.0, unreachable_s=60.0)


class Time:
    """A clock that goes on by what is waited."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.said: list[str] = []

    def wait(self, seconds: float) -> None:
        self.now_s += seconds

    def patience(self, limit_s: float) -> Patience:
        return Patience(limit_s, self.wait, lambda: self.now_s, self.said.append)

    def now_ms(self) -> int:
        return int(1000 * self.now_s)

    def steady_ms(self) -> int:
        return self.now_ms()

    async def sleep(self, seconds: float) -> None:
        self.now_s += seconds


class Changing(Metadata):
    """Shows one view after the other, the last one for ever; `registered` likewise."""

    def __init__(self, views: list[View | Exception], registered: list[set[str]]) -> None:
        super().__init__(WIRE, Connections(WIRE))
        self.views, self.registered = views, registered

    @override
    def view(self, topics: Topics, *, missing_ok: bool = False) -> View:
        found = self.views.pop(0) if len(self.views) > 1 else self.views[0]
        if isinstance(found, Exception):
            raise found
        return found

    @override
    def clusters(self) -> ClusterInfo:
        names = self.registered.pop(0) if len(self.registered) > 1 else self.registered[0]
        brokers = {it: BrokerData(cluster="c", broker_name=it, addresses={}) for it in names}
        return ClusterInfo(brokers=brokers, clusters={})

    @override
    def confirmed(self, view: View, queues: Iterable[QueueKey]) -> View:
        if set(queues) and not view.masters:
            raise Unreachable("broker broker-a has no master now")
        return view


def view(*queues: QueueKey, high: int = 10, master: bool = True) -> View:
    names = {queue.broker for queue in queues}
    masters = dict.fromkeys(names, "127.0.0.1:1") if master else {}
    bounds = dict.fromkeys(queues, Bounds(0, high))
    return View(bounds, dict.fromkeys(names, ("127.0.0.1:1",)), masters)


def test_settled_broker_away_is_waited_for_until_it_is_back() -> None:
    time = Time()
    known = Changing([view(A), Unreachable("nobody"), view(A), view(A, B)], [{"broker-a"}])
    found = settled(known, TOPICS, Need({A: 5, B: 5}), time.patience(60))
    assert found.bounds.keys() == {A, B}
    assert "broker broker-b is not registered" in time.said[0]
    assert time.now_s == 103


def test_settled_broker_away_for_too_long_is_named() -> None:
    time = Time()
    known = Changing([view(A)], [{"broker-a"}])
    with pytest.raises(Unreachable, match=r"broker-b is not registered.*waited for 30 s"):
        settled(known, TOPICS, Need({A: 5, B: 5}), time.patience(30))
    assert time.now_s == 130
    assert len(time.said) == 3


def test_settled_broker_without_the_queue_is_not_away() -> None:
    known = Changing([view(A)], [{"broker-a", "broker-b"}])
    assert settled(known, TOPICS, Need({B: 5}), Time().patience(60)).bounds.keys() == {A}


def test_settled_plan_without_names_waits_for_who_left() -> None:
    time = Time()
    left = dataclasses.replace(view(A), departed=frozenset({"broker-b"}))
    known = Changing([left, left, left, view(A, B)], [{"broker-a"}, {"broker-a", "broker-b"}])
    # Registered again by a slave alone, which does not say what it has.
    found = settled(known, TOPICS, Need({}, everything=True), time.patience(60))
    assert found.bounds.keys() == {A, B}
    assert "broker broker-b is not registered" in time.said[0]
    assert time.now_s == 103
    # What a stream has read before says what it needs, and so do names.
    assert settled(Changing([left], [set()]), TOPICS, Need({A: 5}), time.patience(60)) is left


def test_settled_name_server_that_keeps_nobody_is_said(caplog: pytest.LogCaptureFixture) -> None:
    unsure = dataclasses.replace(view(A), departed=None)
    found = settled(
        Changing([unsure], [set()]), TOPICS, Need({}, everything=True), Time().patience(60)
    )
    assert found is unsure
    assert "brokers that are registered now: broker-a." in caplog.text


def test_needed_everything_unless_brokers_or_queues_are_named() -> None:
    given = {"nameServers": "a:1"}
    for more, everything in (
        ({"subscribe": "t"}, True),
        ({"subscribePattern": "t.*"}, True),
        ({"subscribe": "t", "brokers": "broker-a"}, False),
        ({"assign": '{"t": {"broker-a": [0]}}'}, False),
    ):
        options = SourceOptions.parse({**given, **more}, streaming=False)
        assert planning.needed(options).everything is everything


def test_settled_slave_with_less_waits_for_the_master() -> None:
    time = Time()
    behind, back = view(A, high=3, master=False), view(A, high=10)
    found = settled(
        Changing([behind, behind, back], [set()]), TOPICS, Need({A: 9}), time.patience(9)
    )
    assert found.bounds[A].high == 10
    # What the master itself says is so.
    found = settled(Changing([view(A, high=3)], [set()]), TOPICS, Need({A: 9}), time.patience(9))
    assert found.bounds[A].high == 3


def test_settled_broker_in_the_place_of_a_name_server_is_named_at_once() -> None:
    refused = Refused(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, "request type 105 not supported")
    time = Time()
    with pytest.raises(UsageError, match=r"no name server .*105 not supported"):
        settled(Changing([refused], [set()]), TOPICS, Need({}), time.patience(60))
    assert time.now_s == 100


def test_settled_topic_that_does_not_exist_fails_at_once_unless_nobody_is_registered() -> None:
    nowhere = View({}, {}, absent=("topic orders does not exist",))
    time = Time()
    with pytest.raises(UsageError, match="does not exist"):
        settled(Changing([nowhere], [{"broker-a"}]), TOPICS, Need({}), time.patience(60))
    assert time.now_s == 100
    with pytest.raises(Unreachable, match="no broker is registered"):
        settled(Changing([nowhere], [set()]), TOPICS, Need({}), time.patience(5))


@pytest.mark.parametrize(
    ("offset", "mark", "held", "last", "asked", "anew"),
    [
        (10, 50, Bounds(0, 10), 50, None, False),
        (10, 50, Bounds(0, 10), 99, None, True),
        (10, 50, Bounds(0, 9), 49, None, True),
        (10, None, Bounds(0, 9), 49, None, True),
        (10, 50, Bounds(0, 20), 99, 50, False),
        (10, 50, Bounds(0, 20), 99, 98, True),
        # Not there to be compared, or never noted.
        (10, 50, Bounds(10, 20), 99, None, False),
        (10, None, Bounds(0, 20), 99, 98, False),
        (0, None, Bounds(0, 20), 99, None, False),
    ],
)
def test_made_anew_compares_the_last_message_read(  # noqa: PLR0917
    offset: int, mark: int | None, held: Bounds, last: int, asked: int | None, anew: bool
) -> None:
    reach = Reach({A: offset}, {} if mark is None else {A: mark})
    wanted = marks.to_ask(reach, {A: held})
    assert bool(wanted) == (asked is not None and mark is not None)
    times = {} if asked is None else {A: asked}
    found = marks.made_anew(reach, {A: held}, {A: last}, times)
    assert bool(found) == anew


@settings(deadline=None)
@given(st.dictionaries(st.sampled_from([A, B]), st.integers(0, 2**62)))
def test_marks_are_read_back_from_json(known: dict[QueueKey, int]) -> None:
    made = marks.with_marks({"v": 1, "q": {}}, known)
    assert marks.from_json(made) == known
    assert ("s" in made) == bool(known)


@pytest.mark.parametrize("wrong", [5, {"t": {"b": {"0": -1}}}, {"t": {"b": {"0": "5"}}}])
def test_marks_that_are_wrong_are_refused(wrong: object) -> None:
    with pytest.raises(UsageError):
        marks.from_json({"s": wrong})


# --- the sink ------------------------------------------------------------------------------------

QUEUES = [MessageQueue("t", broker, number) for broker in ("a", "b") for number in range(4)]


@settings(deadline=None)
@given(st.text(), st.integers(1, 40))
def test_placement_small_tasks_use_all_queues_evenly(run: str, tasks: int) -> None:
    placement = Placement("t", QUEUES, None)
    used = [placement.in_turn(first_turn(run, n)) for n in range(tasks)]
    counts = [used.count(queue) for queue in QUEUES]
    assert max(counts) - min(counts) <= 1
    brokers = [queue.broker_name for queue in used]
    assert all(one != other for one, other in itertools.pairwise(brokers))


def test_placement_number_has_one_queue_and_all_brokers_have_some() -> None:
    placement = Placement("t", QUEUES, None)
    found = [placement.named(None, n % 4) for n in range(8)]
    assert found[:4] == found[4:]
    assert {queue.broker_name for queue in found} == {"a", "b"}
    assert placement.named("b", 2) == MessageQueue("t", "b", 2)
    assert Placement("t", QUEUES, "a").named(None, 3).broker_name == "a"
    for broker, number in (("c", 0), ("a", 9), (None, None)):
        with pytest.raises(UsageError, match="topic t has"):
            placement.named(broker, number)


def test_placement_broker_of_the_option_gets_all_rows() -> None:
    placement = Placement("t", QUEUES, "b")
    assert {placement.in_turn(n) for n in range(20)} == set(placement.for_keys)
    assert {queue.broker_name for queue in placement.for_keys} == {"b"}
    assert len(placement.for_keys) == 4
    assert [placement.has(name) for name in ("a", "b", "c", None)] == [True, True, False, True]


@pytest.mark.parametrize(
    ("error", "unreachable_s", "tries"),
    [
        (Unreachable("no"), 0.0, 3),
        (OutcomeUnknown("no"), 0.0, 3),
        (Refused(ResponseCode.SYSTEM_ERROR, "no"), 60.0, 3),
        (Refused(ResponseCode.NO_PERMISSION, "no"), 60.0, 1),
        (Unreachable("no"), 5.0, 13),
        (Refused(ResponseCode.SERVICE_NOT_AVAILABLE, "no"), 5.0, 13),
    ],
)
@on_loop
async def test_tries_follow_their_number_and_the_time_to_wait(
    error: Exception, unreachable_s: float, tries: int
) -> None:
    time, made = Time(), 0
    wire = dataclasses.replace(WIRE, unreachable_s=unreachable_s)

    async def call() -> None:
        nonlocal made
        made += 1
        await asyncio.sleep(0)
        raise error

    with pytest.raises(type(error)):
        await Tries(wire, time, lambda: time.now_s).make(call)
    assert made == tries


# --- options -------------------------------------------------------------------------------------


def test_options_of_reachability_have_their_effect() -> None:
    given = {"nameServers": "a:1", "subscribe": "t", "brokers": "x, y", "unreachableTimeoutMs": "9"}
    options = SourceOptions.parse(given, streaming=False)
    assert (options.brokers, options.wire.unreachable_s) == (frozenset({"x", "y"}), 0.009)
    plain = SourceOptions.parse({"nameServers": "a:1", "subscribe": "t"}, streaming=False)
    assert (plain.brokers, plain.wire.unreachable_s) == (frozenset(), 120.0)
    sink = {"nameServers": "a:1", "topic": "t", "brokerName": "x", "unreachableTimeoutMs": "0"}
    found = SinkOptions.parse(sink)
    assert (found.broker, found.wire.unreachable_s) == ("x", 0.0)


def test_options_of_create_table_are_let_through() -> None:
    more = {"provider": "roquet", "owner": "me", "option.nameservers": "a:1", "path": "/w"}
    SourceOptions.parse({"nameServers": "a:1", "subscribe": "t", **more}, streaming=False)


@pytest.mark.parametrize(
    ("path", "folder"),
    [
        ("/a/b", "/a/b"),
        ("file:/a/b", "/a/b"),
        ("file:///a/b%20c", "/a/b c"),
        ("FILE://localhost/a", "/a"),
        ("/a:/b", "/a:/b"),
    ],
)
def test_path_of_a_log_may_be_a_uri_of_a_file(path: str, folder: str) -> None:
    assert LogOptions.parse({"path": path}).paths == (folder,)


def test_path_of_a_log_on_another_host_is_refused() -> None:
    with pytest.raises(UsageError, match="every worker has"):
        LogOptions.parse({"path": "file://host/a"})


def test_pattern_leaves_system_topics_out() -> None:
    every = Topics(pattern=".*")
    assert every.matches("orders")
    assert every.matches("%DLQ%group")
    for topic in ("TBW102", "SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRACE_TOPIC", "rmq_sys_wheel_timer"):
        assert not every.matches(topic)


def test_table_schema_keeps_options_and_takes_a_projection() -> None:
    options = {"provider": "roquet", "owner": "me", "nameservers": "a:1", "option.topic": "t"}
    made = table_schema.of(TYPES, options)
    assert table_schema.options({}, made) == {"nameservers": "a:1"}
    assert table_schema.options({"NameServers": "b:1"}, made) == {"NameServers": "b:1"}
    assert table_schema.projected(made, TYPES) == tuple(TYPES)
    plain = table_schema.of({name: TYPES[name] for name in ("body", "topic")}, {})
    assert not plain.fields[0].metadata
    assert table_schema.projected(plain, TYPES) == ("body", "topic")
    for wrong in ({"Body": "binary"}, {"body": "string"}, {}):
        with pytest.raises(UsageError, match="schema: "):
            table_schema.projected(table_schema.of(wrong, {}), TYPES)


def test_pool_gives_idle_connections_to_the_next_reader_only() -> None:
    pool = Pool()
    one, other = pool.lease(WIRE), pool.lease(WIRE)
    assert one is not other
    pool.give_back(WIRE, one)
    assert pool.lease(dataclasses.replace(WIRE, retries=1)) is not one
    assert pool.lease(WIRE) is one
    pool.close()
