"""The merge buffer without I/O: what is kept in memory, what has to be stored, how offsets move."""

from __future__ import annotations

import dataclasses
import random
from typing import TYPE_CHECKING

import pytest

from roquet.broker.pop.buffer.merge import BACK_MS, RETRY_MS, SLACK_MS, MergeBuffer
from roquet.broker.pop.buffer.rules import BufferConfig
from roquet.protocol.pop.records import PopCheckpoint

if TYPE_CHECKING:
    from roquet.broker.pop.buffer.merge import Key

NOW = 1_700_000_000_000
KEY = ("T", "g", 0)
ON = BufferConfig(enabled=True)


class World:
    """A buffer and the offsets that it committed."""

    def __init__(self, **rules: object) -> None:
        self.commits: list[tuple[Key, int]] = []
        self.rules = dataclasses.replace(ON, **rules)  # type: ignore[arg-type]
        self.buffer = MergeBuffer(
            self.rules, lambda key, _, offset: self.commits.append((key, offset))
        )

    def pop(
        self,
        start: int,
        count: int = 2,
        at_ms: int = NOW,
        invisible_ms: int = 60_000,
        queue: int = 0,
    ) -> PopCheckpoint:
        """Return the checkpoint of a pop of `count` messages from `start` on."""
        return PopCheckpoint(
            topic="T",
            group="g",
            queue_id=queue,
            start_offset=start,
            pop_time_ms=at_ms,
            invisible_ms=invisible_ms,
            broker_name="b",
            diffs=tuple(range(count)),
            count=count,
        )

    def add(self, checkpoint: PopCheckpoint, now_ms: int = NOW) -> bool:
        """Add a checkpoint whose queue goes on behind its last message."""
        end = checkpoint.start_offset + checkpoint.count
        return self.buffer.add(checkpoint, 3, end, now_ms)

    def ack(self, checkpoint: PopCheckpoint, *offsets: int, now_ms: int = NOW) -> bool:
        """Acknowledge."""
        return self.buffer.ack(checkpoint.merge_key, offsets, now_ms)


def test_buffer_that_is_off_takes_nothing() -> None:
    world = World(enabled=False)
    assert not world.add(world.pop(0))
    assert len(world.buffer) == 0


def test_checkpoint_acknowledged_whole_is_never_due_and_moves_the_offset() -> None:
    world = World()
    popped = world.pop(0)
    assert world.add(popped)
    assert world.buffer.position(KEY) == 2
    assert world.ack(popped, 1)
    assert world.commits == []
    assert world.ack(popped, 0)
    assert world.commits == [(KEY, 2)]
    assert (len(world.buffer), world.buffer.offsets, world.buffer.unsaved) == (0, 0, 1)
    assert world.buffer.position(KEY) is None
    assert world.buffer.take_due(NOW + 100_000, 10) == []
    assert world.buffer.due_in_ms(NOW) is None


def test_offset_waits_for_the_oldest_checkpoint() -> None:
    world = World()
    first, second = world.pop(0), world.pop(2)
    assert world.add(first)
    assert world.add(second)
    assert world.ack(second, 2, 3)
    assert world.commits == []
    assert world.ack(first, 0, 1)
    assert world.commits == [(KEY, 4)]


def test_queue_read_without_messages_moves_behind_what_waits() -> None:
    world = World()
    world.buffer.passed(KEY, 5)
    assert world.commits == [(KEY, 5)]
    popped = world.pop(5)
    assert world.add(popped)
    world.buffer.passed(KEY, 9)
    world.buffer.passed(KEY, 12)
    assert (world.buffer.position(KEY), world.buffer.offsets) == (12, 2)
    assert world.commits == [(KEY, 5)]
    assert world.ack(popped, 5, 6)
    assert world.commits == [(KEY, 5), (KEY, 12)]


@pytest.mark.parametrize(("after_ms", "is_due"), [(9_999, False), (10_000, True), (10_001, True)])
def test_checkpoint_is_due_after_its_stay(after_ms: int, is_due: bool) -> None:
    world = World()
    assert world.add(world.pop(0))
    assert bool(world.buffer.take_due(NOW + after_ms, 10)) is is_due


@pytest.mark.parametrize(("left_ms", "is_due"), [(3_001, False), (3_000, True), (2_999, True)])
def test_checkpoint_is_due_before_its_messages_come_again(
    left_ms: int,
    is_due: bool,
) -> None:
    world = World()
    assert world.add(world.pop(0, invisible_ms=8_000))
    assert bool(world.buffer.take_due(NOW + 8_000 - left_ms, 10)) is is_due


@pytest.mark.parametrize(("left_ms", "is_taken"), [(4_499, False), (4_500, True), (4_501, True)])
def test_checkpoint_with_too_little_time_left_is_not_taken(
    left_ms: int,
    is_taken: bool,
) -> None:
    world = World()
    assert world.add(world.pop(0, invisible_ms=left_ms)) is is_taken


@pytest.mark.parametrize(("after_ms", "is_taken"), [(8_499, True), (8_500, True), (8_501, False)])
def test_acknowledgement_near_the_end_of_the_stay_is_not_taken(
    after_ms: int,
    is_taken: bool,
) -> None:
    world = World()
    popped = world.pop(0)
    assert world.add(popped)
    assert world.ack(popped, 0, now_ms=NOW + after_ms) is is_taken


@pytest.mark.parametrize(("left_ms", "is_taken"), [(4_501, True), (4_500, True), (4_499, False)])
def test_acknowledgement_shortly_before_the_return_is_not_taken(
    left_ms: int,
    is_taken: bool,
) -> None:
    world = World()
    popped = world.pop(0, invisible_ms=5_000)
    assert world.add(popped)
    assert world.ack(popped, 0, now_ms=NOW + 5_000 - left_ms) is is_taken


def test_buffer_takes_as_many_checkpoints_as_it_may_and_no_more() -> None:
    world = World(checkpoints_max=2)
    first = world.pop(0)
    assert world.add(first)
    assert world.add(world.pop(0, queue=1))
    assert not world.add(world.pop(0, queue=2))
    assert world.ack(first, 0, 1)
    assert world.add(world.pop(0, queue=2))


def test_queue_takes_as_many_checkpoints_as_it_may_and_no_more() -> None:
    world = World(queue_max=2)
    first = world.pop(0)
    assert world.add(first)
    assert world.add(world.pop(2))
    assert not world.add(world.pop(4))
    assert world.add(world.pop(4, queue=1))
    assert world.ack(first, 0, 1)
    assert world.add(world.pop(4))


def test_same_checkpoint_is_known_until_it_leaves() -> None:
    world = World()
    popped = world.pop(0)
    assert not world.buffer.knows(popped)
    assert world.add(popped)
    assert world.buffer.knows(world.pop(0))
    assert not world.buffer.knows(world.pop(0, at_ms=NOW + 1))
    assert world.ack(popped, 0, 1)
    assert not world.buffer.knows(popped)


def test_acknowledgement_without_its_checkpoint_is_not_taken() -> None:
    world = World()
    assert not world.ack(world.pop(0), 0)
    assert world.add(world.pop(0))
    assert not world.ack(world.pop(0, at_ms=NOW + 1), 0)


def test_acknowledgement_of_a_message_of_another_checkpoint_changes_nothing() -> None:
    world = World()
    popped = world.pop(4)
    assert world.add(popped)
    assert world.ack(popped, 3, 6)
    assert len(world.buffer) == 1
    assert world.buffer.take_all(1)[0].acked == 0


def test_stored_checkpoint_leaves_when_its_acknowledgements_are_stored() -> None:
    world = World()
    popped = world.pop(0)
    assert world.add(popped)
    assert world.ack(popped, 1)
    (entry,) = world.buffer.take_due(NOW + 10_000, 10)
    assert (entry.revive_queue, entry.unstored()) == (3, [1])
    world.buffer.checkpoint_stored(entry)
    # From here on acknowledgements go to the log themselves.
    assert not world.ack(popped, 0)
    world.buffer.settled(entry, NOW + 10_000)
    assert world.commits == []
    assert world.buffer.take_due(NOW + 10_000 + RETRY_MS - 1, 10) == []
    assert world.buffer.take_due(NOW + 10_000 + RETRY_MS, 10) == [entry]
    world.buffer.ack_stored(entry, [1])
    world.buffer.settled(entry, NOW + 11_000)
    assert world.commits == [(KEY, 2)]
    assert len(world.buffer) == 0


def test_checkpoint_that_cannot_be_stored_still_takes_acknowledgements() -> None:
    world = World()
    popped = world.pop(0)
    assert world.add(popped)
    (entry,) = world.buffer.take_all(10)
    assert world.ack(popped, 0, 1)
    # Its record may be in the log by now: it may not leave before that is known.
    assert world.commits == []
    world.buffer.settled(entry, NOW)
    assert world.commits == [(KEY, 2)]


def test_dropped_checkpoint_leaves_unsaved() -> None:
    world = World()
    assert world.add(world.pop(0))
    (entry,) = world.buffer.take_all(10)
    world.buffer.drop(entry)
    world.buffer.settled(entry, NOW)
    assert (len(world.buffer), world.buffer.offsets) == (0, 0)


def test_queue_that_begins_elsewhere_is_moved_no_more_by_what_waits() -> None:
    world = World()
    old = world.pop(0)
    assert world.add(old)
    before = world.buffer.may_repeat
    world.buffer.forget_offsets(KEY)
    # The queue may begin where it began before.
    assert (before, world.buffer.may_repeat) == (False, True)
    assert world.buffer.position(KEY) is None
    again = world.pop(0, at_ms=NOW + 1)
    assert world.add(again)
    assert world.ack(old, 0, 1)
    assert world.commits == []
    assert world.ack(again, 0, 1)
    assert world.commits == [(KEY, 2)]
    assert not world.buffer.may_repeat, "all that could be met again has left"


def test_checkpoints_of_one_queue_are_taken_alone() -> None:
    world = World()
    assert world.add(world.pop(0))
    assert world.add(world.pop(0, queue=1))
    (mine,) = world.buffer.take_queue(("T", "g", 1))
    assert mine.key == ("T", "g", 1)
    (other,) = world.buffer.take_all(10)
    assert other.key == KEY


def test_switching_off_makes_everything_due_at_once() -> None:
    world = World()
    popped = world.pop(0)
    assert world.add(popped)
    world.buffer.follow(dataclasses.replace(world.rules, enabled=False))
    assert not world.ack(popped, 0)
    assert world.buffer.due_in_ms(NOW) == 0
    assert len(world.buffer.take_due(NOW, 10)) == 1


def test_shorter_stay_counts_for_what_waits_already() -> None:
    world = World()
    assert world.add(world.pop(0))
    world.buffer.follow(dataclasses.replace(world.rules, stay_ms=2_000))
    assert world.buffer.due_in_ms(NOW) == 2_000


@pytest.mark.parametrize(("back_ms", "due"), [(BACK_MS, 0), (BACK_MS + 1, 1)])
def test_clock_that_goes_back_makes_everything_due(back_ms: int, due: int) -> None:
    world = World()
    assert world.add(world.pop(0))
    assert world.buffer.take_due(NOW, 10) == []
    assert len(world.buffer.take_due(NOW - back_ms, 10)) == due


def test_times_of_checkpoints_that_left_take_no_memory() -> None:
    world = World()
    for number in range(10_000):
        popped = world.pop(2 * number)
        assert world.add(popped)
        assert world.ack(popped, 2 * number, 2 * number + 1)
    assert world.buffer.times <= 1_030


def test_slack_is_the_one_of_java() -> None:
    assert SLACK_MS == 1_500


@pytest.mark.parametrize("seed", range(40))
def test_acknowledgements_taken_together_are_taken_as_one_by_one(seed: int) -> None:
    rng = random.Random(seed)
    together, alone = World(), World()
    popped = together.pop(5, count=4)
    for world in (together, alone):
        assert world.add(popped)
        assert world.add(world.pop(9))
        if seed % 4 == 0:
            world.buffer.take_all(1)
    for _ in range(4):
        offsets = [rng.randrange(3, 11) for _ in range(rng.randrange(6))]
        now_ms = NOW + rng.choice((0, 0, 0, 9_000))
        taken = together.buffer.ack_each(popped.merge_key, offsets, now_ms)
        each = [alone.ack(popped, one, now_ms=now_ms) for one in offsets]
        assert [True] * taken + [False] * (len(offsets) - taken) == each
        assert together.commits == alone.commits
        assert len(together.buffer) == len(alone.buffer)
        counted = together.buffer.merged_acks, together.buffer.unsaved
        assert counted == (alone.buffer.merged_acks, alone.buffer.unsaved)
