"""Reads of POP, peeks and notifications: what is for whom, and what is looked at."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from pop_queues import RETRY, Queues, World, record, result
from roquet.broker.api.pop import NotificationRequest, PeekRequest
from roquet.broker.clients.expressions import EVERYTHING, Choice
from roquet.broker.pop.receive.reads import (
    Draw,
    Draws,
    as_original,
    has_wanted,
    offsets_of,
    read_for,
)
from roquet.broker.pop.receive.rules import PopConfig
from roquet.protocol import properties as props
from roquet.protocol.pop.handle import ReceiptHandle
from roquet.store.records import read_records
from roquet.store.results import GetStatus

if TYPE_CHECKING:
    from pathlib import Path


def test_read_of_a_retry_topic_gives_what_is_the_groups() -> None:
    store = Queues()
    store.fill(RETRY, 0, 1, ORIGIN_GROUP="other")
    store.fill(RETRY, 0, 1, 1, ORIGIN_GROUP="g")
    store.fill(RETRY, 0, 1, ORIGIN_GROUP="other")
    found = read_for(store, (RETRY, 0), 0, group="g", most=9, wanted=EVERYTHING)
    assert (found.status, found.messages, found.next_begin_offset) == (GetStatus.FOUND, 2, 4)
    assert list(offsets_of(found, 0, RETRY)) == [1, 2]
    nothing = read_for(store, (RETRY, 0), 3, group="g", most=9, wanted=EVERYTHING)
    assert (nothing.status, nothing.messages, nothing.records) == (
        GetStatus.NO_MATCHED_MESSAGE,
        0,
        b"",
    )
    store.fill("t", 0, 1, ORIGIN_GROUP="other")
    assert read_for(store, ("t", 0), 0, group="g", most=9, wanted=EVERYTHING).messages == 1


def test_offsets_of_a_read_are_those_of_its_records() -> None:
    store = Queues()
    store.fill("t", 0, 1, 2, 1, 2)
    assert list(offsets_of(store.get("t", 0, 1, 9), 1, "t")) == [1, 2, 3]
    assert list(offsets_of(store.get("t", 0, 0, 9, tag_codes=(2,)), 0, "t")) == [1, 3]
    assert list(offsets_of(store.get("t", 0, 4, 9), 4, "t")) == []


def test_offsets_of_a_read_of_a_light_queue_are_those_within_it() -> None:
    found = [
        record(
            *("t", 3, 40 + at),
            INNER_MULTI_DISPATCH="%LMQ%b,%LMQ%a",
            INNER_MULTI_QUEUE_OFFSET=f"0,{at}",
        )
        for at in (5, 7)
    ]
    read = result(GetStatus.FOUND, 8, 9, found)
    assert list(offsets_of(read, 5, "%LMQ%a")) == [5, 7]


@pytest.mark.parametrize("by", ["codes", "filter"])
def test_queue_has_something_wanted_among_as_many_as_are_looked_at(by: str) -> None:
    store = Queues()
    store.fill("t", 0, 1, 1, 2)
    wanted = Choice(codes=(2,)) if by == "codes" else Choice(filter_by=cast("Any", (2,)))
    nothing = Choice(codes=(9,)) if by == "codes" else Choice(filter_by=cast("Any", (9,)))

    def has(begin: int, end: int, what: Choice, most: int = 9) -> bool:
        return has_wanted(store, ("t", 0), begin, end, wanted=what, most=most)

    assert has(0, 3, wanted)
    assert has(2, 3, wanted)
    assert not has(0, 3, nothing)
    assert not has(3, 3, wanted)
    assert not has(3, 3, EVERYTHING)
    assert has(2, 3, EVERYTHING)
    if by == "codes":
        assert not has(1, 2, wanted), "what lies behind the end is not looked at"
    # More than are looked at: it may be so.
    assert not has(0, 3, nothing, 3)
    assert has(0, 3, nothing, 2)
    assert not has(3, 3, nothing, -1)
    assert not has(2, 3, nothing, 1)


def test_only_messages_that_the_caller_may_read_are_something_to_pop() -> None:
    store = Queues()
    copy = {"INNER_MULTI_DISPATCH": "%LMQ%a", "LMQ_ORIGIN_TOPIC": "mine"}
    store.fill(RETRY, 0, 1, 1, **copy)
    for owner in ("mine", "theirs"):

        def may_read(topic: str, owner: str = owner) -> bool:
            return topic == owner

        found = [
            has_wanted(store, (RETRY, 0), begin, 2, wanted=EVERYTHING, most=9, may_read=may_read)
            for begin in (0, 1, 2)
        ]
        assert found == [owner == "mine", owner == "mine", False]


def test_filtered_look_ends_where_a_read_does_not_go_on() -> None:
    store = Queues()
    wanted = Choice(filter_by=cast("Any", (2,)))
    for answer, has in (
        (result(GetStatus.NO_MATCHED_MESSAGE, 0, 3), False),
        (result(GetStatus.OFFSET_TOO_SMALL, 2, 3), False),
        (result(GetStatus.FOUND, 1, 3), True),
    ):
        store.answers["t", 0] = [answer]
        assert has_wanted(store, ("t", 0), 0, 3, wanted=wanted, most=9) is has
    stands = [
        result(GetStatus.NO_MATCHED_MESSAGE, 1, 3),
        result(GetStatus.NO_MATCHED_MESSAGE, 1, 3),
    ]
    store.answers["t", 0] = [*stands, result(GetStatus.FOUND, 2, 3)]
    assert not has_wanted(store, ("t", 0), 0, 3, wanted=wanted, most=9)


def test_of_a_hundred_requests_as_many_as_per_cent_look_at_redelivered_messages_first() -> None:
    for percent in (0, 1, 99, 100):
        rules = PopConfig(retry_percent=percent)
        asked: list[int] = []

        def draw(most: int, asked: list[int] = asked) -> int:
            asked.append(most)
            return len(asked) - 1

        draws = Draws(cast("Any", SimpleNamespace(randrange=draw)))
        assert sum(Draw(rules, draws.take()).retry_first for _ in range(100)) == percent
        assert set(asked) == {100}


def test_redelivered_message_is_shown_under_its_own_topic_with_its_handle() -> None:
    handle = ReceiptHandle(4, 1, 2, 3, "1", "b", 0, 0)
    own = handle._replace(queue_id=1, queue_offset=7).encode()
    (one,) = read_records(as_original(record(RETRY, 1, 7, a="b"), "t", handle), check_crc=False)
    assert (one.topic, props.read(one.properties)) == ("t", {"a": "b", "POP_CK": own})
    # As long as properties may be, and a byte longer.
    spare = props.SIZE_MAX + 1 - len(props.write({"a": "x", "POP_CK": own}).encode())
    for size, topic in ((spare, "t"), (spare + 1, RETRY)):
        data = record(RETRY, 1, 7, a="x" * size)
        (one,) = read_records(as_original(data, "t", handle), check_crc=False)
        assert (one.topic, "POP_CK" in props.read(one.properties)) == (topic, topic == "t")


@pytest.mark.parametrize(("draw", "first"), [(0, RETRY), (19, RETRY), (20, "t"), (99, "t")])
def test_peek_takes_nothing_and_counts_what_is_left(tmp_path: Path, draw: int, first: str) -> None:
    it = World(tmp_path, draw)
    it.retry()
    it.store.fill("t", 0, 1, 1)
    it.store.fill("t", 1, 1, 1)
    it.store.fill(RETRY, 0, 1, ORIGIN_GROUP="g")

    def peek(most: int, queue_id: int = -1) -> tuple[list[str], int, int]:
        found = it.browser.peek(
            PeekRequest(topic="t", group="g", queue_id=queue_id, max_messages=most)
        )
        names = [each.topic for each in read_records(found.records, check_crc=False)]
        return names, found.messages, found.rest

    names, messages, rest = peek(1)
    assert (names, messages, rest) == ([first], 1, 4)
    assert len(it.store.reads) == 1, "what does not fit is counted, not read"
    assert peek(3)[1:] == (3, 2)
    assert peek(5)[1:] == (5, 0)
    assert peek(9)[1:] == (5, 0)
    assert peek(9, 1)[1:] == (3, 0)
    assert it.known == {}


@pytest.mark.parametrize(
    ("rules", "has"),
    [
        ({}, False),
        ({"filter_notifications": False}, True),
        ({"filter_notifications_max": 4}, False),
        ({"filter_notifications_max": 3}, True),
    ],
)
def test_notification_looks_at_so_many_messages_for_its_filter(
    tmp_path: Path, rules: dict[str, Any], *, has: bool
) -> None:
    it = World(tmp_path, **rules)
    it.store.fill("t", 0, 1, 1, 1)
    it.wanted = Choice(codes=(2,))
    request = NotificationRequest(topic="t", group="g", queue_id=0, poll_ms=0, born_ms=0)
    assert it.browser.has_messages(request) is has
    it.browser.follow(PopConfig(filter_notifications=False))
    assert it.browser.has_messages(request) is True
    it.browser.follow(it.rules)
    it.known["t", 0] = 3
    assert it.browser.has_messages(request) is False
    # Redelivered messages count, unless the pop is ordered.
    it.retry()
    it.wanted = EVERYTHING
    it.store.fill(RETRY, 0, 1, ORIGIN_GROUP="g")
    fields: dict[str, Any] = {"topic": "t", "group": "g", "queue_id": 0, "poll_ms": 0, "born_ms": 0}
    assert it.browser.has_messages(NotificationRequest(**fields))
    assert not it.browser.has_messages(NotificationRequest(**fields, is_ordered=True))
