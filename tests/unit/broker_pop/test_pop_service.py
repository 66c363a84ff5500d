"""What one pop takes from which queues, what it moves, and what it leaves."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from pop_queues import RETRY, RETRY_V2, World, result, shown
from remoting_harness import on_loop
from roquet.broker.api.pop import NotificationRequest, PeekRequest
from roquet.broker.clients.expressions import EVERYTHING, Choice
from roquet.broker.pop.buffer.rules import BufferConfig
from roquet.broker.pop.receive import orders
from roquet.broker.pop.receive.rules import PopConfig
from roquet.store.records import read_records
from roquet.store.results import GetStatus, PutStatus, StoreFault

if TYPE_CHECKING:
    from pathlib import Path


@on_loop
async def test_pop_goes_from_queue_to_queue_while_there_is_room(tmp_path: Path) -> None:
    it = World(tmp_path)
    it.store.fill("t", 0, 1, 1, 1)
    it.store.fill("t", 1, 1, 1, 1)
    got = await it.pop(4)
    # It begins with the queue that was drawn.
    assert shown(got) == [("t", 1, [0, 1, 2]), ("t", 0, [0])]
    assert (got.messages, got.rest, got.revive_queue, got.advanced) == (4, 2, 5, False)
    assert got.pop_time_ms == it.clock.now_ms()
    assert got.order_counts is None
    assert it.known == {("t", 1): 3, ("t", 0): 1}
    assert it.counted() == {("t", 1): 3, ("t", 0): 1}
    assert [(ck.queue_id, ck.start_offset, ck.diffs, at) for ck, at in it.stored] == [
        (1, 0, (0, 1, 2), 5),
        (0, 0, (0,), 5),
    ]
    got = await it.pop(1)
    assert (shown(got), got.rest) == ([("t", 0, [1])], 1)
    # No queue is looked at once there is no room; what it has is counted all the same.
    it.store.fill("t", 1, 1, 1)
    got = await it.pop(2)
    assert (shown(got), got.rest) == ([("t", 1, [3, 4])], 1)
    # Of a queue that has no more nothing is left, also when its offset is behind its end.
    it.known["t", 0] = 9
    it.store.fill("t", 1, 1)
    got = await it.pop(1)
    assert (shown(got), got.rest) == ([("t", 1, [5])], 0)
    assert len(it.locks) == 0


@on_loop
async def test_redelivered_messages_are_not_counted_as_left_where_there_is_no_room_for_them(
    tmp_path: Path,
) -> None:
    it = World(tmp_path)
    it.retry()
    it.store.fill("t", 0, 1)
    it.store.fill(RETRY, 0, 1, 1, ORIGIN_GROUP="g")
    got = await it.pop(1)
    assert (shown(got), got.rest) == ([("t", 0, [0])], 0)
    got = await it.pop(1)
    assert (shown(got), got.rest) == ([(RETRY, 0, [0])], 1)


@on_loop
async def test_pop_of_one_queue_takes_from_no_other(tmp_path: Path) -> None:
    it = World(tmp_path)
    it.store.fill("t", 0, 1)
    it.store.fill("t", 1, 1)
    assert shown(await it.pop(queue_id=0)) == [("t", 0, [0])]
    assert shown(await it.pop(queue_id=0)) == []


@pytest.mark.parametrize(
    ("draw", "percent", "first"), [(19, 20, RETRY), (20, 20, "t"), (0, 0, "t"), (99, 100, RETRY)]
)
@on_loop
async def test_so_many_pops_look_at_redelivered_messages_first(
    tmp_path: Path, draw: int, percent: int, first: str
) -> None:
    it = World(tmp_path, draw, retry_percent=percent)
    it.retry()
    it.store.fill("t", 0, 1)
    it.store.fill(RETRY, 0, 1, ORIGIN_GROUP="g")
    assert [place[0] for place in shown(await it.pop(1))] == [first]
    # Ordered pops take no redelivered message.
    ordered = World(tmp_path, draw, retry_percent=percent)
    ordered.retry()
    ordered.store.fill(RETRY, 0, 1, ORIGIN_GROUP="g")
    assert shown(await ordered.pop(is_ordered=True)) == []


@pytest.mark.parametrize(
    ("v2", "v1_too", "draw", "topic"),
    [
        (False, False, 98, RETRY),
        (False, True, 99, RETRY),
        (True, False, 98, RETRY_V2),
        (True, True, 98, RETRY),
        (True, True, 99, RETRY_V2),
    ],
)
@on_loop
async def test_redelivered_messages_of_both_names_are_read_in_turn(
    tmp_path: Path, topic: str, *, v2: bool, v1_too: bool, draw: int
) -> None:
    it = World(tmp_path, draw, retry_v2=v2, read_retry_v1=v1_too)
    for name in (RETRY, RETRY_V2):
        it.retry(name)
        it.store.fill(name, 0, 1, ORIGIN_GROUP="g")
    assert [place[0] for place in shown(await it.pop())] == [topic]
    peeked = it.browser.peek(PeekRequest(topic="t", group="g", queue_id=-1, max_messages=9))
    names = [each.topic for each in read_records(peeked.records, check_crc=False)]
    assert names == [] or topic in names
    other = RETRY if topic == RETRY_V2 else RETRY_V2
    assert it.known == {(topic, 0): 1}
    assert (other, 0) not in it.known


@on_loop
async def test_queue_that_another_pop_has_is_passed_over_and_who_wanted_it_is_called(
    tmp_path: Path,
) -> None:
    it = World(tmp_path)
    it.store.fill("t", 0, 1, 1)
    key = "t", "g", 0
    assert it.locks.take(key)
    got = await it.pop()
    assert (shown(got), got.rest, it.contended) == ([], 2, [])
    assert it.locks.release(key), "it was wanted"
    it.on_store = lambda: cast("Any", it.locks.take(key))
    assert (await it.pop(1)).messages == 1
    assert it.contended == [("t", "g", 0)]


@on_loop
async def test_pop_of_too_much_in_flight_gives_no_more_and_counts_what_is_there(
    tmp_path: Path,
) -> None:
    it = World(tmp_path, limits_in_flight=True, in_flight_max=2)
    it.store.fill("t", 0, *[1] * 9)
    assert (await it.pop(2)).messages == 2
    assert (await it.pop(1)).messages == 1
    got = await it.pop(1)
    assert (got.messages, got.rest) == (0, 6)
    # A reset forgets them.
    it.in_flight.forget(("t", "g", 0))
    assert (await it.pop(1)).messages == 1


@on_loop
async def test_limit_in_flight_that_is_set_later_counts_from_then_on(tmp_path: Path) -> None:
    it = World(tmp_path)
    it.store.fill("t", 0, 1, 1, 1)
    assert (await it.pop(2)).messages == 2
    it.service.follow(PopConfig(limits_in_flight=True, in_flight_max=1))
    assert (await it.pop(1)).messages == 0


@on_loop
async def test_read_of_a_pop_is_counted_with_the_time_it_took(tmp_path: Path) -> None:
    it = World(tmp_path)
    it.store.fill("t", 0, 1, 1)
    get = it.store.get
    for passes_ms, took_ms in ((0, 0), (7, 7), (-7, 0)):

        def later(*where: Any, by_ms: int = passes_ms, **how: Any) -> Any:
            it.clock.be_busy(by_ms / 1000)
            return get(*where, **how)

        it.store.get = later  # type: ignore[method-assign]
        it.known.clear()
        await it.pop(2, queue_id=0)
        group, topic, queue_id, read, took = it.pulled.pop()
        assert (group, topic, queue_id, read.messages, took) == ("g", "t", 0, 2, took_ms)
        assert it.pulled == []


@pytest.mark.parametrize("why", ["reset", "moved"])
@on_loop
async def test_offset_is_not_set_while_what_was_popped_is_in_memory_alone(
    tmp_path: Path, why: str
) -> None:
    it = World(tmp_path)
    it.store.fill("t", 0, 1, 1, 1)
    it.known["t", 0] = 1
    if why == "reset":
        it.resets = {"t"}
    else:
        it.store.answers["t", 0] = [result(GetStatus.OFFSET_TOO_SMALL, 2, 3)]

    async def settle(_key: object) -> bool:
        return False

    it.service._buffer = cast("Any", SimpleNamespace(settle=settle, merge=it.service._buffer.merge))
    got = await it.pop(queue_id=0)
    # What is there is counted, and nothing moves.
    assert (got.messages, got.rest, it.known, it.stored) == (0, 2, {("t", 0): 1}, [])


@on_loop
async def test_ordered_batch_for_which_there_is_no_room_stays_and_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    it = World(tmp_path)
    it.store.fill("t", 0, 1, 1)
    monkeypatch.setattr(orders, "BATCHES_MAX", 0)
    got = await it.pop(queue_id=0, is_ordered=True)
    assert (got.messages, got.rest, it.known) == (0, 2, {})
    monkeypatch.setattr(orders, "BATCHES_MAX", 1)
    assert (await it.pop(queue_id=0, is_ordered=True)).messages == 2


@pytest.mark.parametrize("actual", [False, True])
@on_loop
async def test_messages_are_shown_as_they_are_stored_but_for_redelivered_ones(
    tmp_path: Path, *, actual: bool
) -> None:
    it = World(tmp_path, actual_retry_topic=actual)
    it.retry()
    it.store.fill("t", 0, 1)
    it.store.fill(RETRY, 0, 1, ORIGIN_GROUP="g")
    stored = it.store.queues["t", 0][0][1], it.store.queues[RETRY, 0][0][1]
    got = await it.pop()
    first, second = read_records(got.records, check_crc=False)
    assert got.records.startswith(stored[0])
    assert (first.topic, b"POP_CK" in first.properties) == ("t", False)
    assert (second.topic, b"POP_CK" in second.properties) == (RETRY if actual else "t", not actual)
    assert got.records.endswith(stored[1]) is actual


@on_loop
async def test_reset_forgets_what_is_in_flight_and_the_ordered_batch(tmp_path: Path) -> None:
    it = World(tmp_path)
    it.store.fill("t", 0, 1, 1)
    await it.pop()
    assert (await it.pop(is_ordered=True, queue_id=0)).messages == 0
    it.known["t", 0] = 0
    await it.pop(is_ordered=True, queue_id=0)
    assert (len(it.orders), it.counted()) == (1, {("t", 0): 2})
    it.known["t", 0] = 2
    await it.pop()
    assert (len(it.orders), it.counted()) == (1, {("t", 0): 2}), "nothing was reset"
    it.resets = {"t"}
    await it.pop()
    assert (len(it.orders), it.counted()) == (0, {})


@pytest.mark.parametrize(
    "status",
    [GetStatus.OFFSET_TOO_SMALL, GetStatus.OFFSET_OVERFLOW_BADLY, GetStatus.OFFSET_FOUND_NULL],
)
@on_loop
async def test_position_that_is_not_in_the_queue_moves_to_where_the_store_says(
    tmp_path: Path, status: GetStatus
) -> None:
    it = World(tmp_path)
    it.store.fill("t", 0, 1, 1, 1)
    for to, bodies in ((2, [2]), (0, [0, 1, 2])):
        it.store.answers["t", 0] = [result(status, to, 3)]
        it.known["t", 0] = 7
        assert shown(await it.pop(queue_id=0)) == [("t", 0, bodies)]
    it.store.answers["t", 0] = [result(status, -1, 3)]
    it.known["t", 0] = 7
    assert shown(await it.pop(queue_id=0)) == []
    assert it.known["t", 0] == 7


@on_loop
async def test_messages_that_are_for_nobody_here_are_passed_for_good(tmp_path: Path) -> None:
    it = World(tmp_path)
    it.wanted = Choice(codes=(2,))
    it.store.fill("t", 0, 1, 1, 2, 1)
    got = await it.pop(queue_id=0)
    assert (shown(got), got.advanced, it.known) == ([("t", 0, [2])], False, {("t", 0): 4})
    it.store.fill("t", 0, 1)
    got = await it.pop(queue_id=0)
    assert (shown(got), got.advanced, got.rest, it.known["t", 0]) == ([], True, 0, 5)
    # A read that says so and does not go on moves nothing.
    it.store.answers["t", 0] = [result(GetStatus.NO_MATCHED_MESSAGE, 5, 9)]
    got = await it.pop(queue_id=0)
    assert (got.advanced, got.rest, it.known["t", 0]) == (False, 4, 5)


@on_loop
async def test_queue_that_was_made_anew_is_read_from_its_start_once_it_is_whole(
    tmp_path: Path,
) -> None:
    it = World(tmp_path)
    empty = result(GetStatus.NO_MESSAGE_IN_QUEUE, 0, 0)
    for behind, offset, after in ((1, 4, 4), (0, 4, 0), (0, 1, 0), (0, 0, 0)):
        it.store.answers["t", 0] = [empty]
        it.store.behind, it.known["t", 0] = behind, offset
        await it.pop(queue_id=0)
        assert it.known["t", 0] == after
    it.store.answers["t", 0] = [result(GetStatus.OFFSET_OVERFLOW_ONE, 4, 4)]
    it.known["t", 0] = 4
    await it.pop(queue_id=0)
    assert it.known["t", 0] == 4


@on_loop
async def test_ordered_batch_of_a_queue_that_was_made_anew_is_forgotten_with_its_offset(
    tmp_path: Path,
) -> None:
    it = World(tmp_path)
    it.store.fill("t", 0, 1, 1, 1)
    it.known["t", 0] = 1
    assert (await it.pop(queue_id=0, is_ordered=True)).messages == 2
    for behind, offset, batches in ((1, 1, 1), (0, 0, 0)):
        it.store.answers["t", 0] = [result(GetStatus.NO_MESSAGE_IN_QUEUE, 0, 0)]
        it.store.behind = behind
        await it.pop(queue_id=0)
        assert (it.known["t", 0], len(it.orders)) == (offset, batches)


@on_loop
async def test_messages_popped_again_in_the_same_millisecond_stay_where_they_are(
    tmp_path: Path,
) -> None:
    """A buffered checkpoint of the same name could not be told from the first."""
    it = World(tmp_path)
    it.service._buffer.follow(BufferConfig(enabled=True))
    it.store.fill("t", 0, 1, 1)
    assert shown(await it.pop(queue_id=0)) == [("t", 0, [0, 1])]
    again = await it.pop(queue_id=0)
    assert (shown(again), again.messages, again.rest) == ([], 0, 2)
    assert (it.stored, it.counted()) == ([], {("t", 0): 2})
    it.clock.be_busy(0.001)
    assert shown(await it.pop(queue_id=0)) == [("t", 0, [0, 1])]
    assert it.stored == [], "both are in memory"


@on_loop
async def test_fault_is_raised_unless_messages_were_taken(tmp_path: Path) -> None:
    it = World(tmp_path, 0)
    fault = StoreFault("io", "disk")
    it.store.fill("t", 0, 1)
    it.store.answers["t", 1] = [fault]
    assert (await it.pop()).messages == 1
    it.store.answers["t", 1] = [fault]
    with pytest.raises(StoreFault):
        await it.pop()
    assert len(it.locks) == 0


@on_loop
async def test_messages_whose_checkpoint_is_not_stored_stay_where_they_are(tmp_path: Path) -> None:
    it = World(tmp_path)
    it.store.fill("t", 0, 1, 1)
    it.status = PutStatus.SERVICE_NOT_AVAILABLE
    got = await it.pop()
    assert (got.messages, got.rest, it.known, it.counted()) == (0, 2, {}, {})
    it.status = PutStatus.PUT_OK
    it.on_store = lambda: cast("Any", it.topics.pop("t", None))
    topic = it.topics["t"]
    it.service._checks = cast(
        "Any", SimpleNamespace(pop=lambda _r: (topic, EVERYTHING), urgent_percent=lambda *_: 0)
    )
    got = await it.pop()
    assert (got.messages, it.known) == (0, {}), "the topic was deleted meanwhile"
    it.full = True
    assert (await it.pop()).messages == 0


@on_loop
async def test_ordered_pop_waits_for_its_batch_and_its_attempt_gets_it_again(
    tmp_path: Path,
) -> None:
    it = World(tmp_path)
    it.store.fill("t", 0, 1, 1, 1)
    ordered: dict[str, Any] = {"is_ordered": True, "queue_id": 0}
    got = await it.pop(2, attempt_id="a", **ordered)
    assert (shown(got), got.rest, got.revive_queue) == ([("t", 0, [0, 1])], 1, 999)
    assert got.order_counts == {("0", 0, None): 0}
    assert (it.known, it.alarms, it.stored) == ({("t", 0): 0}, [("t", "g", 0)], [])
    got = await it.pop(2, attempt_id="b", **ordered)
    assert (got.messages, got.rest) == (0, 0)
    assert (await it.pop(2, attempt_id="a", **ordered)).messages == 2
    # A pop without order is not blocked.
    assert (await it.pop(2, queue_id=0)).messages == 2
    notify: dict[str, Any] = {"topic": "t", "group": "g", "queue_id": 0, "poll_ms": 0, "born_ms": 0}
    it.known["t", 0] = 0
    for more, has in (
        ({}, True),
        ({"is_ordered": True}, False),
        ({"is_ordered": True, "attempt_id": "a"}, True),
    ):
        assert it.browser.has_messages(NotificationRequest(**(notify | more))) is has
