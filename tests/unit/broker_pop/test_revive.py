"""What was popped and not acknowledged comes again, once; a failed read settles nothing."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from typing import Any

import pytest

from pop_world import GROUP, IDENTITY, REVIVE, TOPIC, PopWorld
from roquet.broker.pop.revive_queue import ReviveQueue
from roquet.broker.pop.revive_rules import RE_PUT_STEPS_S, ReviveConfig, re_put
from roquet.broker.pop.stray_acks import StrayAcks
from roquet.model.topic import TopicConfig
from roquet.protocol import names
from roquet.protocol import properties as props
from roquet.protocol.pop.records import PopAck, PopCheckpoint
from roquet.store.results import PutStatus

RETRY = f"%RETRY%{GROUP}_{TOPIC}"
DLQ = names.dlq_topic(GROUP)


def test_unacked_message_comes_again_once_and_soon_after_its_time() -> None:
    async def story() -> None:
        world = PopWorld()
        offsets = [world.send(b"%d" % number, KEYS="k", TAGS="t") for number in range(3)]
        checkpoint = await world.pop(offsets, 10_000)
        await world.ack(checkpoint, offsets[1])
        await world.run(12)
        assert world.again() == []
        await world.run(3)
        assert [draft.body for draft in world.again()] == [b"0", b"2"]
        await world.run(60)
        assert len(world.again()) == 2
        first = world.again()[0]
        assert (first.queue_id, first.reconsume_times) == (0, 1)
        assert first.born_host == first.store_host == IDENTITY.store_host
        assert first.properties == {
            "KEYS": "k",
            "TAGS": "t",
            "1ST_POP_TIME": str(checkpoint.pop_time_ms),
            "ORIGIN_GROUP": GROUP,
        }
        assert world.tables.committed(GROUP, RETRY, 0) == 0

    asyncio.run(story())


def test_batch_of_acks_settles_a_checkpoint() -> None:
    async def story() -> None:
        world = PopWorld()
        offsets = [world.send(b"x") for _ in range(4)]
        checkpoint = await world.pop(offsets, 5000)
        await world.ack(checkpoint, *offsets)
        await world.run(30)
        assert world.again() == []
        assert world.settled() == 1

    asyncio.run(story())


def test_ack_in_the_last_moment_counts() -> None:
    async def story() -> None:
        world = PopWorld()
        offset = world.send(b"x")
        checkpoint = await world.pop([offset], 10_000)
        await world.run(9.75)
        await world.ack(checkpoint, offset)
        await world.run(30)
        assert world.again() == []

    asyncio.run(story())


def test_ack_that_overtakes_its_checkpoint_counts() -> None:
    queue = ReviveQueue(-1, "b")
    checkpoint = PopCheckpoint(
        topic="T",
        group="g",
        queue_id=0,
        start_offset=7,
        pop_time_ms=1000,
        invisible_ms=0,
        broker_name="b",
        diffs=(0, 1),
        count=2,
    )
    ack = PopAck(topic="T", group="g", queue_id=0, start_offset=7, pop_time_ms=1000, offset=8)
    queue.take(0, {props.TAGS: "ack"}, ack.encode(), 1000)
    queue.take(1, {props.TAGS: "ck"}, checkpoint.encode(), 1000)
    queue.caught_up(10_000)
    assert queue.is_due()
    assert queue.settle().unacked() == [(0, 7)]


def test_record_that_did_not_pass_the_wheel_does_not_make_others_due() -> None:
    """While the wheel lags, acknowledgements in it must still count."""

    async def story() -> None:
        world = PopWorld()
        offset = world.send(b"x")
        checkpoint = await world.pop([offset], 5000)
        await world.run(4.75)
        await world.ack(checkpoint, offset)
        world.log.fires = False
        await world.run(20)
        late = await world.pop([world.send(b"late")], 500)
        await world.ack(late, late.start_offset)
        await world.run(5)
        assert world.again() == []
        world.log.fires = True
        await world.run(20)
        assert world.again() == []

    asyncio.run(story())


def test_offset_moves_past_acks_without_a_checkpoint_5408() -> None:
    async def story() -> None:
        world = PopWorld()
        offset = world.send(b"x")
        checkpoint = await world.pop([offset], 5000)
        for _ in range(3):
            await world.ack(checkpoint, offset)
        await world.run(30)
        assert world.settled() == 3
        assert world.service.lag(0) == 0

    asyncio.run(story())


def test_offset_never_passes_an_unsettled_checkpoint() -> None:
    async def story() -> None:
        world = PopWorld()
        first = await world.pop([world.send(b"x")], 5000)
        await world.pop([world.send(b"y")], 5000)
        await world.ack(first, first.start_offset)
        world.log.statuses = [PutStatus.SERVICE_NOT_AVAILABLE] * 20
        await world.run(12)
        assert world.settled() == 0
        assert world.service.latency_ms(0) > 0
        world.log.statuses.clear()
        await world.run(2)
        assert [draft.body for draft in world.again()] == [b"y"]
        # The broker's own acknowledgement is behind the two checkpoints and the other one.
        assert world.settled() == 3

    asyncio.run(story())


def test_offsets_wait_for_the_flush_of_what_was_read() -> None:
    """A power loss would bring records again at offsets that count as settled."""

    async def story() -> None:
        world = PopWorld()
        offset = world.send(b"x")
        checkpoint = await world.pop([offset], 5000)
        await world.ack(checkpoint, offset)
        await world.run(8)
        assert world.settled() == 1
        assert world.log.flushed > world.log.queues[REVIVE, 0][1]

    asyncio.run(story())


def test_message_that_cannot_be_read_comes_when_it_can_8479() -> None:
    async def story() -> None:
        world = PopWorld()
        offsets = [world.send(b"x"), world.send(b"y")]
        await world.pop(offsets, 5000)
        world.log.faults = {0}
        await world.run(10)
        assert [draft.body for draft in world.again()] == [b"y"]
        (again,) = [
            PopCheckpoint.decode(draft.body)
            for draft in world.log.of(names.TIMER_TOPIC)
            if b'"rp"' in draft.body
        ]
        assert (again.offsets(), again.re_puts, again.invisible_ms) == ((0,), "1", 15_000)
        world.log.faults.clear()
        await world.run(15)
        assert [draft.body for draft in world.again()] == [b"y", b"x"]

    asyncio.run(story())


def test_revive_queue_that_cannot_be_read_is_not_passed_over_10985() -> None:
    async def story() -> None:
        world = PopWorld()
        await world.pop([world.send(b"x")], 5000)
        world.log.faults = {2}
        await world.run(20)
        assert len(world.log.queues[REVIVE, 0]) == 1
        assert (world.settled(), world.again()) == (None, [])
        world.log.faults.clear()
        await world.run(2)
        assert [draft.body for draft in world.again()] == [b"x"]

    asyncio.run(story())


def test_deleted_message_is_settled_and_no_other_one_comes_in_its_place_7724() -> None:
    async def story() -> None:
        world = PopWorld()
        offsets = [world.send(b"%d" % number) for number in range(3)]
        await world.pop(offsets[:2], 5000)
        world.log.first[TOPIC, 0] = 1
        await world.run(10)
        assert [draft.body for draft in world.again()] == [b"1"]
        assert world.service.copies.counts.gone == 1
        assert world.settled() == 1

    asyncio.run(story())


def test_message_behind_the_end_of_a_queue_made_again_is_settled_8479() -> None:
    async def story() -> None:
        world = PopWorld()
        await world.pop([7], 5000)
        world.log.behind = 1
        await world.run(10)
        assert world.service.copies.counts.gone == 0
        world.log.behind = 0
        await world.run(40)
        assert world.service.copies.counts.gone == 1
        assert world.again() == []

    asyncio.run(story())


def test_message_of_another_broker_waits_for_it() -> None:
    async def story() -> None:
        world = PopWorld()
        await world.pop([world.send(b"x")], 5000, broker_name="other")
        await world.run(30)
        assert world.again() == []
        assert world.service.copies.counts.re_puts >= 1

    asyncio.run(story())


@pytest.mark.parametrize("what", ["topic", "group"])
def test_checkpoint_of_a_topic_or_group_that_is_gone_is_settled(what: str) -> None:
    async def story() -> None:
        world = PopWorld()
        await world.pop([world.send(b"x")], 5000)
        if what == "topic":
            del world.tables.topics[TOPIC]
        else:
            del world.tables.groups[GROUP]
        await world.run(10)
        assert (world.settled(), world.again()) == (0, [])
        assert world.service.copies.counts.orphans == 1

    asyncio.run(story())


def test_tries_used_up_lead_to_the_dead_letters() -> None:
    async def story() -> None:
        world = PopWorld()
        last = world.send(b"last", tries=2, DELAY="3")
        dead = world.send(b"dead", tries=3, DELAY="3", UNIQ_KEY="u")
        await world.pop([last, dead], 5000)
        await world.run(10)
        assert [(it.body, it.reconsume_times) for it in world.again()] == [(b"last", 3)]
        (letter,) = world.log.of(DLQ)
        assert (letter.body, letter.queue_id, letter.reconsume_times) == (b"dead", 0, 4)
        assert letter.properties["RETRY_TOPIC"] == TOPIC
        assert letter.properties["DLQ_ORIGIN_MESSAGE_ID"] == "u"
        assert "DELAY" not in letter.properties
        assert world.tables.topics[DLQ].write_queues == 1
        assert world.counted.dead == 1

    asyncio.run(story())


def test_without_dead_letters_a_message_comes_again_for_ever_as_with_java() -> None:
    async def story() -> None:
        world = PopWorld(dead_letters=False)
        await world.pop([world.send(b"x", tries=99)], 5000)
        await world.run(10)
        assert [draft.reconsume_times for draft in world.again()] == [100]
        assert world.log.of(DLQ) == []

    asyncio.run(story())


def test_suspended_message_counts_no_try() -> None:
    async def story() -> None:
        world = PopWorld()
        await world.pop([world.send(b"x", tries=3)], 5000, suspended=True)
        await world.run(10)
        assert [draft.reconsume_times for draft in world.again()] == [3]

    asyncio.run(story())


def test_message_popped_from_a_retry_topic_goes_back_there() -> None:
    async def story() -> None:
        world = PopWorld(retry_v2=True)
        world.tables.ensure(RETRY, 1, 6)
        offset = world.send(b"x", RETRY, tries=1, **{"1ST_POP_TIME": "5"})
        await world.pop([offset], 5000, topic=RETRY)
        await world.pop([world.send(b"y")], 5000)
        await world.run(10)
        (_, copy) = world.again()
        assert (copy.body, copy.reconsume_times) == (b"x", 2)
        assert copy.properties["1ST_POP_TIME"] == "5"
        assert [it.body for it in world.log.of(f"%RETRY%{GROUP}+{TOPIC}")] == [b"y"]

    asyncio.run(story())


def test_separate_retry_queues_grow_with_the_topic() -> None:
    async def story() -> None:
        world = PopWorld(separate_queues=True)
        world.tables.put(TopicConfig(name=TOPIC, read_queues=4, write_queues=4))
        await world.pop([world.send(b"x")], 5000)
        await world.run(10)
        assert world.tables.topics[RETRY].write_queues == 4
        assert [world.tables.committed(GROUP, RETRY, queue) for queue in range(4)] == [0] * 4
        world.tables.put(TopicConfig(name=TOPIC, read_queues=6, write_queues=6))
        await world.pop([world.send(b"y")], 5000)
        await world.run(10)
        assert world.tables.topics[RETRY].write_queues == 6

    asyncio.run(story())


def test_damaged_record_is_counted_and_the_queue_goes_on() -> None:
    async def story() -> None:
        world = PopWorld()
        for body in (b"{", b"null", json.dumps({"n": 99}).encode()):
            world.send(body, REVIVE, TAGS="ck")
        world.send(b"no tag", REVIVE)
        await world.pop([world.send(b"x")], 5000)
        await world.run(10)
        assert [draft.body for draft in world.again()] == [b"x"]
        assert world.service.queues[0].counts.unreadable == 3

    asyncio.run(story())


def test_checkpoint_that_is_due_much_later_goes_to_the_wheel_with_its_acks() -> None:
    async def story() -> None:
        world = PopWorld()
        offsets = [world.send(b"0"), world.send(b"1")]
        far = await world.pop(offsets, 600_000)
        world.log.waiting.clear()
        world.send(far.encode(), REVIVE, TAGS="ck")
        await world.ack(far, offsets[0])
        world.log.waiting.clear()
        world.send(
            PopAck(
                topic=TOPIC,
                group=GROUP,
                queue_id=0,
                start_offset=far.start_offset,
                pop_time_ms=far.pop_time_ms,
                broker_name="b",
                offset=offsets[0],
            ).encode(),
            REVIVE,
            TAGS="ack",
        )
        await world.pop([world.send(b"near")], 5000)
        await world.run(10)
        assert [draft.body for draft in world.again()] == [b"near"]
        await world.run(600)
        assert [draft.body for draft in world.again()] == [b"near", b"1"]

    asyncio.run(story())


def test_clock_set_back_makes_nothing_due_early() -> None:
    async def story() -> None:
        world = PopWorld()
        await world.pop([world.send(b"x")], 5000)
        await world.run(10)
        world.clock.ms -= 3_600_000
        again = await world.pop([world.send(b"y")], 5000)
        await world.ack(again, again.start_offset)
        await world.run(30)
        assert [draft.body for draft in world.again()] == [b"x"]

    asyncio.run(story())


def test_queues_above_the_number_of_the_topic_are_still_read() -> None:
    async def story() -> None:
        world = PopWorld()
        await world.pop([world.send(b"x")], 5000, queue=7)
        await world.run(30)
        assert [draft.body for draft in world.again()] == [b"x"]

    asyncio.run(story())


def test_without_a_timer_wheel_nothing_is_revived() -> None:
    async def story() -> None:
        world = PopWorld()
        await world.pop([world.send(b"x")], 5000)
        world.log.is_on = False
        await world.run(20)
        assert world.again() == []

    asyncio.run(story())


@pytest.mark.parametrize(
    ("rules", "pauses"),
    [({}, (2.0, 4.0, 1.0)), ({"interval_ms": 500, "slow_max": 5}, (1.0, 3.0, 0.5))],
)
def test_full_round_is_followed_at_once_and_an_idle_one_later_and_later(
    rules: dict[str, Any], pauses: tuple[float, float, float]
) -> None:
    async def story() -> None:
        world = PopWorld(None, **rules)
        (timer,) = world.service.timers
        await world.service.tick()
        assert timer.pause_s == pauses[0]
        for _ in range(8):
            await world.service.tick()
        assert timer.pause_s == pauses[1]
        await world.pop([world.send(b"x")], 5000)
        await world.run(5)
        assert timer.pause_s == pauses[2]

    asyncio.run(story())


@pytest.mark.parametrize(
    ("rules", "wait_ms"), [(ReviveConfig(), 180_000), (ReviveConfig(ack_wait_ms=5_000), 5_000)]
)
def test_acks_without_a_checkpoint_are_forgotten_after_a_while(
    rules: ReviveConfig, wait_ms: int
) -> None:
    ack = PopAck(topic="T", group="g", queue_id=0, start_offset=7, pop_time_ms=1000, offset=7)
    for later_ms, unacked in ((wait_ms, []), (wait_ms + 1, [(0, 7)])):
        strays = StrayAcks()
        queue = ReviveQueue(-1, "b", strays)
        queue.take(0, {props.TAGS: "ack"}, ack.encode(), 1000)
        strays.expire(1000 + later_ms, rules.ack_wait_ms)
        checkpoint = PopCheckpoint(
            topic="T",
            group="g",
            queue_id=0,
            start_offset=7,
            pop_time_ms=1000,
            invisible_ms=0,
            broker_name="b",
            count=1,
        )
        queue.take(1, {props.TAGS: "ck"}, checkpoint.encode(), 1000 + later_ms)
        assert queue.settle().unacked() == unacked


def test_reading_ends_after_its_time_and_goes_on_in_the_next_round() -> None:
    async def story() -> None:
        world = PopWorld(scan_ms=10)
        for _ in range(600):
            world.send(b"no tag", REVIVE)
        world.log.record_ms = 1
        seen: list[int] = []
        for _ in range(3):
            await world.service.tick()
            seen.append(world.service.queues[0].next_offset)
        assert seen == [256, 512, 600]

    asyncio.run(story())


def test_pauses_before_another_try_grow_as_in_java() -> None:
    rules = ReviveConfig()
    checkpoint = PopCheckpoint(
        topic="T", group="g", queue_id=0, start_offset=3, pop_time_ms=0, invisible_ms=10, count=1
    )
    waits: list[int] = []
    current, now_ms = checkpoint, 0
    for _ in range(19):
        now_ms = current.revive_ms
        following = re_put(current, 3, now_ms, rules)
        assert following is not None
        waits.append((following.revive_ms - now_ms) // 1000)
        current = following
    assert waits == [*RE_PUT_STEPS_S, 7200, 7200]
    assert re_put(current, 3, 0, rules).invisible_ms == current.invisible_ms  # type: ignore[union-attr]
    assert re_put(current, 3, now_ms, dataclasses.replace(rules, gives_up=True)) is None
