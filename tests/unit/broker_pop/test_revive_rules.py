"""Rounds of redelivery at their limits: where they begin, when they end, what they write down."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import TYPE_CHECKING, Any

import pytest

from pop_world import GROUP, REVIVE, START_MS, TOPIC, PopWorld
from remoting_harness import on_loop
from roquet.base.errors import TableFull
from roquet.broker.pop import revive
from roquet.broker.pop.revive import BATCH, LOOK_MS, QUEUES_MAX, ROUND_MS_MAX
from roquet.broker.pop.revive_copies import Outcome
from roquet.broker.pop.revive_metrics import watch_revive
from roquet.broker.pop.revive_queue import ReviveQueue
from roquet.model.topic import TopicConfig
from roquet.protocol import names
from roquet.protocol import properties as props
from roquet.protocol.pop.records import PopAck, PopCheckpoint
from roquet.protocol.pop.topics import REVIVE_GROUP
from roquet.service.metrics import Metrics
from roquet.store.results import PutStatus, StoreFault

if TYPE_CHECKING:
    from roquet.store.records import Record
    from roquet.store.results import Draft, PutResult

RETRY = f"%RETRY%{GROUP}_{TOPIC}"
DLQ = names.dlq_topic(GROUP)


# --- where a service begins ------------------------------------------------------------------


@on_loop
async def test_service_that_stops_notes_how_far_it_is_and_keeps_nothing_in_memory() -> None:
    world = PopWorld()
    it = world.service
    checkpoint = await world.pop([world.send(b"x")], 5000)
    await it.start()
    await it.tick()
    await world.ack(checkpoint, 0)
    world.send(b'{"ao":5,"so":5,"t":"T","c":"g","pt":1,"bn":"b"}', REVIVE, TAGS="ack")
    await world.run(8)
    assert len(it.strays) == 1
    world.tables.offsets.clear()
    it._committed.clear()
    await it.stop()
    assert world.settled() == 2
    assert (it.queues, len(it.strays)) == ({}, 0)


@on_loop
async def test_service_that_starts_again_makes_its_pauses_short_again() -> None:
    world = PopWorld()
    it = world.service
    (timer,) = it.timers
    await it.start()
    assert timer.pause_s == 1.0
    for _ in range(5):
        await it.tick()
    assert timer.pause_s == 4.0
    await it.stop()
    await it.start()
    assert timer.pause_s == 1.0


@pytest.mark.parametrize(
    ("known", "behind", "begins"),
    [(None, 0, 0), (0, 0, 1), (2, 0, 3), (3, 0, 3), (9, 0, 3), (9, 1, 10)],
)
@on_loop
async def test_queue_begins_behind_what_is_settled_and_behind_its_last_record_at_the_latest(
    known: int | None, behind: int, begins: int
) -> None:
    """Offsets ahead of the log come from a log that was cut, unless it is not dispatched yet."""
    world = PopWorld()
    for _ in range(3):
        world.send(b"no tag", REVIVE)
    if known is not None:
        world.tables.commit(REVIVE_GROUP, REVIVE, 0, known)
    world.log.behind = behind
    assert world.service._opened(0).next_offset == begins


@on_loop
async def test_wheel_that_is_off_is_said_once_each_time(caplog: pytest.LogCaptureFixture) -> None:
    world = PopWorld()
    for is_on, said in ((False, 1), (False, 0), (True, 0), (False, 1), (False, 0)):
        caplog.clear()
        world.log.is_on = is_on
        await world.service.tick()
        assert len(caplog.messages) == said


@on_loop
async def test_checkpoint_that_is_stored_again_waits_for_no_flush() -> None:
    """Offsets move behind a flush of their own; a wait for each record would be one a message."""
    world = PopWorld()
    append, waits = world.log.append, list[bool | None]()

    async def noted(draft: Draft, *, wait: bool | None = None) -> PutResult:
        waits.append(wait)
        return await append(draft)

    await world.pop([world.send(b"x")], 5000)
    world.log.append = noted  # type: ignore[method-assign]
    world.log.faults = {0}
    await world.run(8)
    assert waits == [False]


@on_loop
async def test_queue_that_was_cut_is_read_again_once_the_log_is_dispatched() -> None:
    world = PopWorld()
    for _ in range(3):
        world.send(b"no tag", REVIVE)
    await world.service.tick()
    assert world.service.queues[0].next_offset == 3
    del world.log.queues[REVIVE, 0][2:]
    world.log.behind = 1
    assert world.service._opened(0).next_offset == 3
    world.log.behind = 0
    assert world.service._opened(0).next_offset == 2
    # What it has is not settled by that: the next record is.
    world.send(b"no tag", REVIVE)
    await world.service.tick()
    assert world.settled() == 2


@on_loop
async def test_offsets_that_have_not_moved_are_not_committed_again() -> None:
    world = PopWorld()
    world.send(b"no tag", REVIVE)
    await world.service.tick()
    assert world.settled() == 0
    world.tables.offsets.clear()
    await world.service.tick()
    assert world.settled() is None
    world.restart()
    world.tables.commit(REVIVE_GROUP, REVIVE, 0, 0)
    flushed = world.log.flushed = 0
    await world.service.tick()
    assert world.log.flushed == flushed, "nothing new was settled"


# --- rounds ----------------------------------------------------------------------------------


@on_loop
async def test_queue_above_the_topics_is_found_at_the_next_look_and_kept_while_it_is_above() -> (
    None
):
    world = PopWorld()
    world.clock.ms = START_MS
    await world.service.tick()
    assert set(world.service.queues) == {0, 1}
    for queue in (2, QUEUES_MAX - 1, QUEUES_MAX):
        await world.pop([world.send(b"x")], 0, queue=queue)
    world.clock.ms += LOOK_MS - 1
    assert world.service._queue_ids() == [0, 1]
    world.clock.ms += 1
    assert world.service._queue_ids() == [0, 1, 2, QUEUES_MAX - 1]
    world.tables.put(TopicConfig(name=REVIVE, read_queues=4, write_queues=4))
    assert world.service._queue_ids() == [0, 1, 2, 3, QUEUES_MAX - 1], "each once"
    world.clock.ms += LOOK_MS - 1
    await world.pop([world.send(b"x")], 0, queue=5)
    assert 5 not in world.service._queue_ids()
    world.clock.ms += 1
    assert 5 in world.service._queue_ids()


@on_loop
async def test_without_its_topic_only_queues_with_records_are_read() -> None:
    world = PopWorld()
    del world.tables.topics[REVIVE]
    assert world.service._queue_ids() == []
    world.clock.ms += LOOK_MS
    world.send(b"no tag", REVIVE)
    assert world.service._queue_ids() == [0]


@pytest.mark.parametrize(("gone", "is_orphan"), [((), False), ((TOPIC,), True), ((RETRY,), False)])
def test_message_of_a_retry_topic_has_no_owner_without_the_topic_it_came_from(
    gone: tuple[str, ...], *, is_orphan: bool
) -> None:
    world = PopWorld()
    world.tables.ensure(RETRY, 1, 6)
    for name in gone:
        del world.tables.topics[name]
    checkpoints = [
        PopCheckpoint(
            topic=topic,
            group=GROUP,
            queue_id=0,
            start_offset=0,
            pop_time_ms=0,
            invisible_ms=0,
            count=1,
        )
        for topic in (TOPIC, RETRY)
    ]
    copies = world.service.copies
    assert [copies.is_orphan(one) for one in checkpoints] == [is_orphan] * 2
    # A table that was lost knows nothing.
    world.tables.was_lost = True
    assert [copies.is_orphan(one) for one in checkpoints] == [False] * 2


@on_loop
async def test_reading_goes_on_while_it_takes_no_longer_than_its_time() -> None:
    world = PopWorld(scan_ms=256)
    for _ in range(600):
        world.send(b"no tag", REVIVE)
    world.log.record_ms = 1
    await world.service.tick()
    # At the end of the first batch just so much time has passed.
    assert world.service.queues[0].next_offset == 512


@on_loop
async def test_others_have_their_turn_after_each_batch_and_each_checkpoint(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = PopWorld()
    seen: list[tuple[int, int]] = []

    async def give_way() -> None:
        queue = world.service.queues[0]
        seen.append((queue.next_offset, len(queue)))

    monkeypatch.setattr(revive, "give_way", give_way)
    for _ in range(BATCH + 1):
        world.send(b"no tag", REVIVE)
    await world.service.tick()
    assert seen == [(BATCH, 0), (BATCH + 1, 0)]
    for _ in range(2):
        await world.pop([world.send(b"x")], 5000)
    await world.run(5)
    seen.clear()
    await world.run(3)
    assert seen == [(BATCH + 3, 1), (BATCH + 3, 0)]


@on_loop
async def test_records_that_were_deleted_are_passed_over_and_said_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = PopWorld()
    for _ in range(3):
        world.send(b"no tag", REVIVE)
    world.log.first[REVIVE, 0] = 2
    await world.service.tick()
    assert world.service.queues[0].next_offset == 3
    assert [it for it in caplog.messages if "was deleted" in it] == [
        "revive queue 0 goes on at 2, not 0: the rest was deleted"
    ]
    caplog.clear()
    world.send(b"no tag", REVIVE)
    world.log.first[REVIVE, 0] = 3
    await world.service.tick()
    assert (world.service.queues[0].next_offset, caplog.messages) == (4, [])


@on_loop
async def test_damaged_record_is_counted_and_passed_over_and_another_fault_is_not() -> None:
    world = PopWorld()
    for _ in range(3):
        world.send(b"no tag", REVIVE)
    read, damaged = world.log.record, [StoreFault("corrupt", "x"), StoreFault("io", "y")]

    def fails(physical_offset: int, size: int | None = None) -> Record | None:
        if physical_offset >= 100 and damaged:
            raise damaged.pop(0)
        return read(physical_offset, size)

    world.log.record = fails  # type: ignore[method-assign]
    await world.service.tick()
    queue = world.service.queues[0]
    assert (queue.next_offset, queue.counts.unreadable) == (2, 1)
    await world.service.tick()
    assert (queue.next_offset, queue.counts.unreadable) == (3, 1)


@on_loop
async def test_round_that_stores_for_a_second_ends_and_goes_on_at_once() -> None:
    world = PopWorld()
    for _ in range(4):
        await world.pop([world.send(b"x")], 5000)
    (timer,) = world.service.timers
    world.log.fires = False
    await world.run(5)
    put = world.log.append_as_is

    async def slowly(drafts: object) -> object:
        world.clock.ms += ROUND_MS_MAX // 2
        return await put(drafts)  # type: ignore[arg-type]

    world.log.append_as_is = slowly  # type: ignore[assignment,method-assign]
    world.clock.ms += 10_000
    world.log.fires = True
    world.log.turn()
    await world.service.tick()
    # After two of them just a second has passed, and after the third it is over.
    assert (len(world.again()), timer.pause_s) == (3, 0.001)
    await world.service.tick()
    assert (len(world.again()), timer.pause_s) == (4, 1.0)
    # The next round has its own acknowledgements to read, and the one behind it nothing.
    await world.service.tick()
    await world.service.tick()
    assert timer.pause_s == 2.0


def test_oldest_checkpoint_is_as_late_as_its_time_is_over() -> None:
    async def story() -> None:
        world = PopWorld()
        assert (world.service.latency_ms(0), world.service.lag(0)) == (0, 0)
        for number in range(3):
            world.send(b"no tag", REVIVE)
            if number == 0:
                await world.service.tick()
            assert world.service.lag(0) == number
        await world.pop([world.send(b"x")], 5000)
        world.log.statuses = [PutStatus.SERVICE_NOT_AVAILABLE] * 99
        await world.run(6)
        assert world.service.latency_ms(0) == 1000
        world.clock.ms -= 2000
        assert world.service.latency_ms(0) == 0

    asyncio.run(story())


def test_read_up_to_now_though_a_record_says_later() -> None:
    """A record whose time lies ahead (a clock was set back) says nothing about now."""
    checkpoint = PopCheckpoint(
        topic="T", group="g", queue_id=0, start_offset=7, pop_time_ms=0, invisible_ms=0, count=1
    )
    for due_ms, now_ms, is_due in (
        (2001, 9000, True),
        (2000, 9000, False),
        (9000, 2001, True),
        (9000, 2000, False),
    ):
        queue = ReviveQueue(-1, "b")
        queue.take(0, {props.TAGS: "ck"}, checkpoint.encode(), now_ms)
        fired = {props.TIMER_OUT_MS: "1", props.TIMER_DELIVER_MS: str(due_ms)}
        queue.take(1, fired, b"", now_ms)
        assert queue.is_due() is is_due, (due_ms, now_ms)
        # An older record takes nothing back, and one without a time says nothing.
        queue.take(2, fired | {props.TIMER_DELIVER_MS: "1"}, b"", now_ms)
        queue.take(3, {props.TIMER_OUT_MS: "1"}, b"", now_ms)
        assert queue.is_due() is is_due


def test_ack_of_a_checkpoint_that_is_settled_is_without_one() -> None:
    checkpoint = PopCheckpoint(
        topic="T",
        group="g",
        queue_id=0,
        start_offset=7,
        pop_time_ms=0,
        invisible_ms=0,
        broker_name="b",
        count=1,
    )
    ack = PopAck(topic="T", group="g", queue_id=0, start_offset=7, pop_time_ms=0, offset=7)
    other = dataclasses.replace(checkpoint, invisible_ms=1)
    queue = ReviveQueue(-1, "b")
    for offset, one in enumerate((checkpoint, other)):
        queue.take(offset, {props.TAGS: "ck"}, one.encode(), 0)
    # The second has the same key: the first alone is settled.
    assert queue.settle().checkpoint == checkpoint
    queue.take(2, {props.TAGS: "ack"}, ack.encode(), 0)
    assert queue.counts.stray_acks == 0
    assert queue.settle().unacked() == []
    queue.take(3, {props.TAGS: "ack"}, ack.encode(), 0)
    assert (queue.counts.stray_acks, queue._by_key) == (1, {})


def test_time_of_a_record_has_eighteen_digits_at_most() -> None:
    checkpoint = PopCheckpoint(
        topic="T", group="g", queue_id=0, start_offset=7, pop_time_ms=0, invisible_ms=0, count=1
    )
    for text, is_due in (("9" * 18, True), ("9" * 19, False), ("x", False), ("\u0663" * 9, False)):
        queue = ReviveQueue(-1, "b")
        queue.take(0, {props.TAGS: "ck"}, checkpoint.encode(), 10**20)
        queue.take(1, {props.TIMER_OUT_MS: "1", props.TIMER_DELIVER_MS: text}, b"", 10**20)
        assert queue.is_due() is is_due, text


# --- messages --------------------------------------------------------------------------------


@on_loop
async def test_message_that_is_given_up_is_counted_and_settles_its_checkpoint() -> None:
    world = PopWorld(gives_up=True)
    await world.pop([world.send(b"x")], 5000, re_puts="17")
    world.log.faults = {0}
    await world.run(10)
    counts = world.service.copies.counts
    assert (counts.given_up, counts.re_puts, world.settled()) == (1, 0, 0)


@on_loop
async def test_messages_wait_while_there_is_no_room_for_their_topic() -> None:
    world = PopWorld()
    ensure = world.tables.ensure

    def full(*_: object) -> TopicConfig:
        raise TableFull("full")

    world.tables.ensure = full  # type: ignore[assignment,method-assign]
    await world.pop([world.send(b"x"), world.send(b"y")], 5000)
    await world.run(8)
    assert (world.again(), world.settled()) == ([], 0)
    assert world.service.copies.counts.re_puts == 2
    world.tables.ensure = ensure  # type: ignore[method-assign]
    await world.run(20)
    assert sorted(draft.body for draft in world.again()) == [b"x", b"y"]


@pytest.mark.parametrize(
    ("offset", "first", "behind", "outcome"),
    [
        (0, 0, 0, Outcome.STORED),
        (2, 0, 0, Outcome.GONE),
        (2, 0, 1, Outcome.FAILED),
        (2, 2, 1, Outcome.FAILED),
        (2, 3, 1, Outcome.GONE),
        (3, 0, 0, Outcome.GONE),
        (0, 1, 0, Outcome.GONE),
    ],
)
@on_loop
async def test_message_is_gone_when_it_lies_before_its_queue_or_at_its_end_or_behind(
    offset: int, first: int, behind: int, outcome: Outcome
) -> None:
    world = PopWorld()
    for _ in range(2):
        world.send(b"x")
    world.log.first[TOPIC, 0] = first
    world.log.behind = behind
    checkpoint = await world.pop([offset], 5000)
    assert await world.service.copies.store(checkpoint, [offset]) == [outcome]


@on_loop
async def test_topics_of_copies_are_durable_before_anything_is_stored_in_them() -> None:
    world = PopWorld()
    persisted: list[tuple[set[str], int]] = []

    async def persist() -> None:
        persisted.append((set(world.tables.topics), len(world.again()) + len(world.log.of(DLQ))))

    world.tables.persist = persist  # type: ignore[method-assign]
    checkpoint = await world.pop([world.send(b"x"), world.send(b"dead", tries=3)], 5000)
    await world.service.copies.store(checkpoint, [0, 1])
    assert [sorted(names & {RETRY, DLQ}) for names, _ in persisted] == [[RETRY], [DLQ, RETRY]]
    assert [stored for _, stored in persisted] == [0, 0]
    await world.service.copies.store(checkpoint, [0, 1])
    assert len(persisted) == 2, "they are there"


@pytest.mark.parametrize(("separate", "queue"), [(False, 0), (True, 2)])
@on_loop
async def test_copy_goes_to_the_queue_of_its_message_if_these_are_separate(
    queue: int, *, separate: bool
) -> None:
    world = PopWorld(separate_queues=separate)
    world.tables.put(TopicConfig(name=TOPIC, read_queues=3, write_queues=3))
    for from_queue in (2, 5):
        checkpoint = await _popped_from(world, from_queue)
        await world.service.copies.store(checkpoint, [0])
    # There is no queue 5 to copy to: the last one has it.
    assert [draft.queue_id for draft in world.again()] == [queue, queue]


async def _popped_from(world: PopWorld, queue_id: int) -> PopCheckpoint:
    world.send(b"x")
    draft = world.log.entries[-1].draft
    draft.queue_id = queue_id
    place = world.log.queues[TOPIC, 0].pop()
    world.log.queues.setdefault((TOPIC, queue_id), []).append(place)
    return await world.pop([0], 5000, queue_id=queue_id)


@on_loop
async def test_copies_of_a_message_of_light_queues_name_its_topic() -> None:
    world = PopWorld()
    light: dict[str, Any] = {"INNER_MULTI_DISPATCH": "%LMQ%a", "LMQ_ORIGIN_TOPIC": "forged"}
    checkpoint = await world.pop(
        [world.send(b"x", **light), world.send(b"dead", tries=3, **light)], 5000
    )
    await world.service.copies.store(checkpoint, [0, 1])
    for draft in (*world.again(), *world.log.of(DLQ)):
        assert draft.properties["LMQ_ORIGIN_TOPIC"] == TOPIC


@pytest.mark.parametrize("by_core", [False, True])
@on_loop
async def test_what_is_stored_again_is_counted_for_the_topic_that_has_it(*, by_core: bool) -> None:
    world = PopWorld(by_core=by_core)
    moved: list[tuple[str, int]] = []

    def note(topic: str, size: int, messages: int = 1) -> None:
        assert size == 100 * messages
        moved.append((topic, size))

    world.counted.moved = note  # type: ignore[method-assign]
    world.tables.ensure(RETRY, 1, 6)
    last = world.send(b"dead", RETRY, tries=3)
    checkpoint = await world.pop([last], 5000, topic=RETRY)
    again = await world.pop([world.send(b"x")], 5000)
    await world.service.copies.store(checkpoint, [last])
    await world.service.copies.store(again, [0])
    # The dead letter is told of the topic that the group subscribes to (`Counted` looks).
    assert (moved, world.counted.dead) == ([(DLQ, 100), (RETRY, 100)], 1)


def test_stray_acks_are_shown() -> None:
    world, metrics = PopWorld(), Metrics()
    watch_revive(world.service, metrics)
    for number in range(3):
        world.service.strays.add(("T", "g", 0, number, 1000, "b"), number, 1000)
    world.service.strays._push_out()
    lines = metrics.render().decode().splitlines()
    assert "roquet_pop_revive_stray_acks 2.0" in lines
    assert "roquet_pop_revive_stray_acks_pushed_out 1.0" in lines
