"""Offsets: JSON, limits, splits and what is lost."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roquet.base.errors import UsageError
from roquet.spark.offsets import (
    OFFSET_MAX,
    Bounds,
    DataLoss,
    Offsets,
    QueueKey,
    Range,
    available,
    from_json,
    limited,
    queues_from_json,
    ranges,
    split,
    to_json,
)

A, B, C = (QueueKey("orders", "broker-a", number) for number in range(3))

queue_keys = st.builds(
    QueueKey,
    st.sampled_from(["orders", "%RETRY%g"]),
    st.sampled_from(["broker-a", "broker-b"]),
    st.integers(0, 20),
)
tables = st.dictionaries(queue_keys, st.integers(0, 2**62), max_size=12)
backlogs = st.dictionaries(
    queue_keys, st.tuples(st.integers(0, 10**12), st.integers(0, 10**6)), min_size=1, max_size=12
)


@given(tables)
@settings(deadline=None)
def test_json_is_read_back(offsets: Offsets) -> None:
    assert from_json(json.dumps(to_json(offsets))) == offsets


def test_json_has_the_form_that_checkpoints_keep() -> None:
    assert to_json({A: 5, C: 7}) == {"v": 1, "q": {"orders": {"broker-a": {"0": 5, "2": 7}}}}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "offsets are no JSON"),
        ("[]", "offsets is '\\[\\]': must be a JSON object"),
        ("{}", "offsets of version None: this release reads version 1"),
        ('{"v":2,"q":{}}', "offsets of version 2"),
        ('{"q":{}}', "offsets of version None"),
        ('{"v":1}', "q is 'None': must be a JSON object"),
        ('{"v":1,"q":{"t":5}}', "t is '5': must be a JSON object"),
        ('{"v":1,"q":{"t":{"b":5}}}', "t/b is '5': must be a JSON object"),
        ('{"v":1,"q":{"t":{"b":{"x":5}}}}', "t: 'x' is no queue id"),
        ('{"v":1,"q":{"t":{"b":{"0":"5"}}}}', "t/b/0: '5' is no offset"),
        ('{"v":1,"q":{"t":{"b":{"0":true}}}}', "t/b/0: 'True' is no offset"),
        ('{"v":1,"q":{"t":{"b":{"0":-1}}}}', "t/b/0: '-1' is no offset"),
        ('{"v":1,"q":{"t":{"b":{"0":9223372036854775808}}}}', "t/b/0: '92.*8' is no offset"),
        ('{"v":1,"q":{"t":{"b":{"2147483648":0}}}}', "t: queue id 2147483648 is above 2147483647"),
    ],
)
def test_broken_json_is_refused_with_what_is_wrong_and_where(text: str, why: str) -> None:
    with pytest.raises(UsageError, match=f"^{why}"):
        from_json(text)


def test_text_of_a_refusal_is_cut_however_long_the_names_are() -> None:
    long = "n" * 1000
    for text in (
        json.dumps({"v": 1, "q": {long: 5}}),
        json.dumps({"v": 1, "q": {"t": {"b": long}}}),
        json.dumps({"v": 1, "q": {long: {"b": {long: 0}}}}),
        json.dumps({"v": 1, "q": {long: {"b": {"9" * 10: 0}}}}),
        json.dumps({"v": 1, "q": {"t": {"b": {"0": long}}}}),
    ):
        with pytest.raises(UsageError) as caught:
            from_json(text)
        assert len(str(caught.value)) < 250
        assert "n" * 80 in str(caught.value)
        assert "n" * 81 not in str(caught.value)


def test_options_may_use_the_bare_table_and_symbols() -> None:
    text = '{"orders": {"broker-a": {"0": -2, "1": -1, "2": 9}}}'
    assert from_json(text, symbols=True) == {A: -2, B: -1, C: 9}
    with pytest.raises(UsageError, match="no offset"):
        from_json('{"orders": {"broker-a": {"0": -3}}}', symbols=True)


def test_bare_table_of_topics_is_for_options_only() -> None:
    with pytest.raises(UsageError, match="offsets of version None"):
        from_json('{"orders": {"broker-a": {"0": 9}}}')
    full = '{"v": 1, "q": {"orders": {"broker-a": {"0": -2}}}}'
    assert from_json(full, symbols=True) == {A: -2}
    with pytest.raises(UsageError, match="no offset"):
        from_json(full)


def test_assign_names_queues() -> None:
    assert queues_from_json('{"orders": {"broker-a": [0, 2]}}') == {A, C}
    two = '{"orders": {"broker-a": [1], "broker-b": ["3"]}, "other": {"broker-a": [0]}}'
    assert queues_from_json(two) == {
        B,
        QueueKey("orders", "broker-b", 3),
        QueueKey("other", "broker-a", 0),
    }


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "assign is no JSON"),
        ("5", "assign is '5': must be a JSON object"),
        ("{}", "assign names no queue"),
        ('{"orders": {}}', "assign names no queue"),
        ('{"orders": [0]}', "orders is '\\[0\\]': must be a JSON object"),
        ('{"orders": {"broker-a": []}}', "assign: orders/broker-a needs a list"),
        ('{"orders": {"broker-a": {}}}', "assign: orders/broker-a needs a list"),
        ('{"orders": {"broker-a": {"0": 1}}}', "assign: orders/broker-a needs a list"),
        ('{"orders": {"broker-a": [true]}}', "orders: 'True' is no queue id"),
        ('{"orders": {"broker-a": [1.0]}}', "orders: '1.0' is no queue id"),
    ],
)
def test_assign_that_names_no_queues_is_refused_with_what_is_wrong(text: str, why: str) -> None:
    with pytest.raises(UsageError, match=f"^{why}"):
        queues_from_json(text)


@given(backlogs, st.integers(1, 10**7))
@settings(deadline=None)
def test_a_limit_is_shared_out_exactly(
    backlog: dict[QueueKey, tuple[int, int]], rows_max: int
) -> None:
    start = {queue: begin for queue, (begin, _) in backlog.items()}
    target = {queue: begin + count for queue, (begin, count) in backlog.items()}
    end = limited(start, target, rows_max)
    assert end.keys() == target.keys()
    assert all(start[queue] <= end[queue] <= target[queue] for queue in end)
    total = sum(count for _, count in backlog.values())
    waiting = {queue for queue, (_, count) in backlog.items() if count}
    assert sum(len(item) for item in ranges(start, end)) == min(total, max(rows_max, len(waiting)))
    # None waits for another one's backlog, however long that is.
    assert all(end[queue] > start[queue] for queue in waiting)


@given(backlogs, st.one_of(st.none(), st.integers(1, 40)), st.one_of(st.none(), st.integers(1000)))
@settings(deadline=None)
def test_splits_cover_ranges_exactly_once(
    backlog: dict[QueueKey, tuple[int, int]], parts_min: int | None, rows_max: int | None
) -> None:
    whole = [Range(queue, begin, begin + count) for queue, (begin, count) in backlog.items()]
    parts = split(whole, parts_min, rows_max)
    assert all(len(part) for part in parts)
    if rows_max is not None:
        assert all(len(part) <= rows_max for part in parts)
    if parts_min is not None:
        assert len(parts) >= min(parts_min, sum(len(item) for item in whole))
        if rows_max is None:
            assert len(parts) <= max(parts_min, len(whole)), "a task more costs time"
    for item in whole:
        mine = [part for part in parts if part.queue == item.queue]
        edges = [item.begin, *(part.end for part in mine)]
        assert [part.begin for part in mine] == edges[:-1]
        assert edges[-1] == item.end


def test_a_limit_reads_one_message_beside_a_long_backlog_at_once() -> None:
    start, target = {A: 0, B: 7}, {A: 10_000_000, B: 8}
    assert limited(start, target, 1000) == {A: 999, B: 8}
    assert limited(start, target, 1) == {A: 1, B: 8}


@given(backlogs, st.integers(1, 100))
@settings(deadline=None)
def test_a_limit_no_message_waits_longer_than_its_own_queue(
    backlog: dict[QueueKey, tuple[int, int]], rows_max: int
) -> None:
    start = {queue: begin for queue, (begin, _) in backlog.items()}
    short = {queue: begin + min(count, 50) for queue, (begin, count) in backlog.items()}
    long = QueueKey("backlog", "broker-a", 0)
    start[long], short[long] = 0, 10**9
    at, triggers = start, 0
    while any(at[queue] < short[queue] for queue in backlog):
        at, triggers = limited(at, short, rows_max), triggers + 1
    # The last message of a queue waits for those before it, one a trigger at worst.
    assert triggers <= max(min(count, 50) for _, count in backlog.values())


@pytest.mark.parametrize("rows_max", [1, 4, 5, 6])
def test_a_limit_leaves_a_queue_at_its_target_when_nothing_of_it_is_to_be_read(
    rows_max: int,
) -> None:
    # What was to be read of B has expired: it is behind its target already.
    end = limited({A: 0, B: 20}, {A: 5, B: 10}, rows_max)
    assert end == {A: min(5, rows_max), B: 10}


def test_a_new_queue_is_entered_before_it_is_read() -> None:
    assert ranges({A: 5}, {A: 7, B: 100}) == [Range(A, 5, 7)]
    assert limited({A: 5}, {A: 7, B: 100}, 1) == {A: 6, B: 100}


@pytest.mark.parametrize(
    ("bounds", "left", "lost"),
    [
        (Bounds(0, 100), Range(A, 10, 20), 0),
        (Bounds(10, 20), Range(A, 10, 20), 0),
        (Bounds(15, 100), Range(A, 15, 20), 5),
        (Bounds(0, 12), Range(A, 10, 12), 8),
        (Bounds(50, 100), None, 10),
        # Deleted and made again: what is there now was never asked for.
        (Bounds(0, 3), None, 10),
        (None, None, 10),
    ],
)
def test_what_is_lost_is_counted_and_nothing_else_is_read(
    bounds: Bounds | None, left: Range | None, lost: int
) -> None:
    wanted = Range(A, 10, 20)
    assert available(wanted, bounds, fail_on_data_loss=False) == (left, lost)
    if lost:
        has = "the queue is gone" if bounds is None else f"it has [{bounds.low}, {bounds.high})"
        text = f"{lost} messages of orders/broker-a/0 [10, 20) are lost: {has}. "
        with pytest.raises(DataLoss, match=re.escape(text)):
            available(wanted, bounds, fail_on_data_loss=True)
    else:
        assert available(wanted, bounds, fail_on_data_loss=True) == (left, 0)


@pytest.mark.parametrize("bounds", [None, Bounds(0, 0), Bounds(0, 9), Bounds(5, 9)])
def test_empty_range_has_nothing_to_lose_and_nothing_to_read(bounds: Bounds | None) -> None:
    for at in (0, 5, 12):
        assert available(Range(A, at, at), bounds, fail_on_data_loss=True) == (None, 0)


def test_range_from_the_beginning_of_a_queue_that_is_gone_is_lost() -> None:
    assert available(Range(A, 0, 3), None, fail_on_data_loss=False) == (None, 3)


@pytest.mark.parametrize("queue", ["00000000001", "1" * 11, "-1", "", "x", "\u0661", "2147483648"])
def test_queue_id_is_a_number_of_31_bits_in_ten_digits_at_most(queue: str) -> None:
    with pytest.raises(UsageError, match="queue id"):
        from_json(json.dumps({"v": 1, "q": {"orders": {"broker-a": {queue: 0}}}}))


@pytest.mark.parametrize("queue", [0, 1, 99_999, 100_000, 999_999_999, 2**31 - 1])
def test_queue_id_of_any_length_is_read_back(queue: int) -> None:
    offsets = {QueueKey("orders", "broker-a", queue): 7}
    assert from_json(json.dumps(to_json(offsets))) == offsets


def test_offset_is_a_number_up_to_the_largest_and_no_larger() -> None:
    def read(offset: object) -> Offsets:
        return from_json(json.dumps({"v": 1, "q": {"orders": {"broker-a": {"0": offset}}}}))

    assert read(OFFSET_MAX) == {A: OFFSET_MAX}
    for wrong in (OFFSET_MAX + 1, -3, True, "1", 1.0, None):
        with pytest.raises(UsageError, match="is no offset"):
            read(wrong)


def test_rest_of_a_division_of_rows_goes_to_the_largest_parts() -> None:
    # Beyond one each: 4, 3 and 2 rows of 9 share 4, which are 16/9, 12/9 and 8/9.
    assert limited({A: 0, B: 0, C: 0}, {A: 5, B: 4, C: 3}, 7) == {A: 3, B: 2, C: 2}


@pytest.mark.parametrize(("begin", "end", "size"), [(5, 5, 0), (5, 6, 1), (5, 4, 0), (0, 3, 3)])
def test_range_is_as_long_as_its_offsets_and_never_below_zero(
    begin: int, end: int, size: int
) -> None:
    assert len(Range(A, begin, end)) == size


def test_parts_of_a_range_are_in_order_and_equal_to_one_row() -> None:
    found = split([Range(A, 100, 111)], parts_min=4)
    assert [(it.begin, it.end) for it in found] == [(100, 102), (102, 105), (105, 108), (108, 111)]
    assert split([Range(A, 100, 111)], rows_max=4) == [
        Range(A, 100, 103),
        Range(A, 103, 107),
        Range(A, 107, 111),
    ]


def test_parts_are_asked_of_the_largest_ranges_first_and_empty_ones_give_none() -> None:
    whole = [Range(A, 0, 10), Range(B, 5, 5), Range(C, 0, 100)]
    # Both count: 100 rows in three parts are still longer than 10.
    assert [it.queue for it in split(whole, parts_min=4)] == [A, C, C, C]
    # Parts of equal length are asked of the first range.
    assert [it.queue for it in split([Range(A, 0, 8), Range(B, 0, 8)], parts_min=3)] == [A, A, B]
    assert split(whole) == [whole[0], whole[2]]
    assert [it.queue for it in split(whole, parts_min=3, rows_max=50)] == [A, C, C]
    assert [it.queue for it in split(whole, parts_min=3, rows_max=49)] == [A, C, C, C]
