"""What a plan makes of positions and bounds, rule by rule, without a cluster and without a JVM."""

from __future__ import annotations

import gc
import logging

import pytest

from roquet.spark.cluster.metadata import View
from roquet.spark.offsets import EARLIEST, LATEST, Bounds, DataLoss, QueueKey, Range
from roquet.spark.options import Position, SourceOptions
from roquet.spark.reading import planning
from roquet.spark.reading.marks import Reach
from roquet.spark.reading.partitions import NothingPartition, QueuePartition
from roquet.spark.reading.presence import Need
from spark_metadata import ADDRESSES, Asked

A, B, C = (QueueKey("t", "b0", number) for number in range(3))
FAR = QueueKey("t", "b1", 0)


def options(**given: str) -> SourceOptions:
    return SourceOptions.parse({"nameServers": "a:1", **given}, streaming=False)


def seen(known: Asked) -> View:
    return known.view(options(subscribe="t").topics)


# --- positions ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("position", "expected"),
    [
        (Position(default=EARLIEST), {A: 5, B: 0}),
        (Position(default=LATEST), {A: 10, B: 7}),
        (Position(default=EARLIEST, offsets={A: LATEST}), {A: 10, B: 0}),
        (Position(default=LATEST, offsets={A: EARLIEST}), {A: 5, B: 7}),
        # An offset is taken as it is: whether it is still there is judged with the range.
        (Position(default=EARLIEST, offsets={A: 2, B: 99, C: 4}), {A: 2, B: 99}),
    ],
)
def test_position_of_a_queue_is_its_own_offset_or_the_default(
    position: Position, expected: dict[QueueKey, int]
) -> None:
    known = Asked({A: Bounds(5, 10), B: Bounds(0, 7)})
    assert planning.resolve(position, seen(known), known) == expected
    assert known.asked == []


@pytest.mark.parametrize(("found", "expected"), [(4, 5), (5, 5), (8, 8), (10, 10), (11, 10)])
@pytest.mark.parametrize("offsets", [{}, {FAR: 6}])
def test_position_by_time_is_what_the_broker_finds_within_the_bounds(
    offsets: dict[QueueKey, int], found: int, expected: int
) -> None:
    known = Asked({FAR: Bounds(5, 10)}, found)
    # A time goes before everything else.
    position = Position(default=EARLIEST, offsets=offsets, timestamp_ms=0)
    assert planning.resolve(position, seen(known), known) == {FAR: expected}
    assert known.asked == [(FAR, 0, ADDRESSES["b1"])]


def test_position_by_time_of_a_topic_leaves_other_topics_to_the_default() -> None:
    other = QueueKey("u", "b1", 0)
    known = Asked({FAR: Bounds(5, 10), other: Bounds(2, 4)}, 8)
    position = Position(default=EARLIEST, timestamps={FAR.topic: 77})
    assert planning.resolve(position, seen(known), known) == {FAR: 8, other: 2}
    assert known.asked == [(FAR, 77, ADDRESSES["b1"])]


def test_position_by_time_asks_nothing_about_an_empty_queue() -> None:
    known = Asked({A: Bounds(5, 5)}, 3)
    assert planning.resolve(Position(default=LATEST, timestamp_ms=9), seen(known), known) == {A: 5}
    assert known.asked == []


# --- queues that were made anew -----------------------------------------------------------------


def test_queue_with_another_last_message_is_named_or_fails_the_read(
    caplog: pytest.LogCaptureFixture,
) -> None:
    known = Asked({A: Bounds(0, 9), B: Bounds(0, 9), C: Bounds(0, 9)})
    reach = Reach({A: 4, B: 4, C: 4}, {A: known.time(A, 3), B: 77, C: 99})
    view = seen(known)
    with caplog.at_level(logging.WARNING, "roquet.spark"):
        found = planning.judged(reach, view, known, "g", fail_on_data_loss=False)
    assert known.asked == [({A: 3, B: 3, C: 3}, "g")]
    assert found.keys() == {B, C}
    said = [f"queue {queue}: {found[queue]}; it is read from its beginning" for queue in (B, C)]
    assert caplog.messages == said
    with pytest.raises(DataLoss, match=r"^queue t/b0/1: the message at offset 3, .* at 77 ms"):
        planning.judged(reach, view, known, "g", fail_on_data_loss=True)


def test_queues_without_marks_are_judged_by_their_ends_alone_and_nothing_is_asked() -> None:
    known = Asked({A: Bounds(0, 9), B: Bounds(2, 9)})
    view = seen(known)
    assert planning.judged(Reach({A: 9}, {}), view, known, "g", fail_on_data_loss=True) == {}
    start = {A: 4, B: 10, C: 3}
    # One that is not there has no beginning: it is judged elsewhere.
    assert planning.begun(start, view, known, "g", fail_on_data_loss=False) == {A: 4, B: 2, C: 3}
    with pytest.raises(DataLoss, match="its end moved back"):
        planning.begun(start, view, known, "g", fail_on_data_loss=True)
    assert known.asked == []


# --- what must be there -------------------------------------------------------------------------


def test_read_needs_the_queues_that_its_options_name_up_to_their_highest_offset() -> None:
    assigned = options(assign='{"t": {"b0": [0, 1]}}')
    positions = (
        Position(default=EARLIEST, offsets={A: 7, B: LATEST, C: 9}),
        Position(default=LATEST, offsets={A: 3}),
    )
    need = planning.needed(assigned, *positions)
    assert need == Need({A: 7, B: 0}, frozenset(), everything=False)


def test_read_needs_of_queues_that_positions_name_alone_those_that_it_reads() -> None:
    position = Position(default=EARLIEST, offsets={A: LATEST, B: 3, QueueKey("other", "b0", 0): 4})
    assert planning.needed(options(subscribe="t"), position).queues == {A: 0, B: 3}


@pytest.mark.parametrize(
    ("given", "everything"),
    [
        ({"subscribe": "t"}, True),
        ({"subscribePattern": ".*"}, True),
        ({"subscribe": "t", "brokers": "b0"}, False),
        ({"assign": '{"t": {"b0": [0]}}'}, False),
    ],
)
def test_read_needs_every_broker_unless_its_options_name_some(
    given: dict[str, str], *, everything: bool
) -> None:
    need = planning.needed(options(**given))
    assert need.everything is everything
    assert set(need.brokers) == ({"b0"} if "brokers" in given else set())


def test_queue_that_is_named_and_not_there_fails_the_read_or_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    view = View({A: Bounds(0, 1)}, ADDRESSES)
    need = Need({C: 0, A: 0, B: 0})
    planning.present(need, view, fail_on_data_loss=False)
    text = "queue {} is named in the options and its broker does not have it"
    assert caplog.messages == [text.format(B), text.format(C)]
    with pytest.raises(DataLoss, match=str(B)):
        planning.present(need, view, fail_on_data_loss=True)
    planning.present(Need({A: 0}), view, fail_on_data_loss=True)


@pytest.mark.parametrize(
    ("bounds", "left", "said"),
    [
        (Bounds(3, 8), Range(A, 3, 8), None),
        (Bounds(0, 9), Range(A, 3, 8), None),
        (Bounds(4, 8), Range(A, 4, 8), f"1 messages of {A} [3, 8) are lost; reading {A} [4, 8)"),
        (Bounds(3, 7), Range(A, 3, 7), f"1 messages of {A} [3, 8) are lost; reading {A} [3, 7)"),
        (Bounds(8, 9), None, f"5 messages of {A} [3, 8) are lost; reading nothing"),
        (None, None, f"5 messages of {A} [3, 8) are lost; reading nothing"),
    ],
)
def test_range_is_cut_to_what_its_queue_holds_and_the_log_says_what_is_lost(
    caplog: pytest.LogCaptureFixture, bounds: Bounds | None, left: Range | None, said: str | None
) -> None:
    view = View({} if bounds is None else {A: bounds}, ADDRESSES)
    found = planning.within([Range(A, 3, 8)], view, fail_on_data_loss=False)
    assert found == ([] if left is None else [left])
    assert caplog.messages == ([] if said is None else [said])
    if said:
        with pytest.raises(DataLoss, match="are lost"):
            planning.within([Range(A, 3, 8)], view, fail_on_data_loss=True)


def test_empty_range_of_a_queue_that_is_gone_loses_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert planning.within([Range(A, 3, 3)], View({}, {}), fail_on_data_loss=True) == []
    assert caplog.messages == []


# --- tasks --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tasks_max", "sizes"),
    [(5, [1, 1, 1, 1, 1]), (4, [2, 1, 2]), (3, [2, 1, 2]), (2, [3, 2]), (1, [3, 2])],
)
def test_ranges_share_tasks_within_their_broker_once_there_are_more_than_tasks(
    monkeypatch: pytest.MonkeyPatch, tasks_max: int, sizes: list[int]
) -> None:
    monkeypatch.setattr(planning, "PARTITIONS_MAX", tasks_max)
    near = [Range(queue, 0, 5) for queue in (A, B, C)]
    far = [Range(FAR, 0, 5), Range(FAR, 5, 9)]
    made = planning.partitions([near[0], far[0], near[1], near[2], far[1]], View({}, ADDRESSES))
    parts = [it for it in made if isinstance(it, QueuePartition)]
    assert [len(it.ranges) for it in parts] == sizes
    assert [it for part in parts for it in part.ranges] == [*near, *far]
    assert [it.addresses for it in parts] == [ADDRESSES[it.ranges[0].queue.broker] for it in parts]


def test_plan_of_nothing_is_one_task_without_ranges() -> None:
    (part,) = planning.partitions([], View({}, ADDRESSES))
    assert isinstance(part, NothingPartition)


@pytest.mark.parametrize("was_enabled", [True, False])
@pytest.mark.parametrize("fails", [True, False])
def test_plan_is_made_without_the_collector_which_is_as_it_was_afterwards(
    *, was_enabled: bool, fails: bool
) -> None:
    @planning.uncollected()
    def plan() -> None:
        assert not gc.isenabled()
        if fails:
            raise DataLoss("so it is said")

    gc.enable() if was_enabled else gc.disable()
    try:
        if fails:
            with pytest.raises(DataLoss):
                plan()
        else:
            plan()
        assert gc.isenabled() is was_enabled
    finally:
        gc.enable()
