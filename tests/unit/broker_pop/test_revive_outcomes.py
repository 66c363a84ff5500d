"""What redelivery counts, and which checkpoint is too early for it."""

from __future__ import annotations

import pytest

from pop_world import GROUP, TOPIC, PopWorld
from remoting_harness import on_loop
from roquet.broker.pop.revive_copies import CopyCounts, Outcome
from roquet.broker.pop.revive_queue import EARLY_MS, ReviveQueue
from roquet.model.message import ATTEMPTS_MAX
from roquet.protocol import properties as props
from roquet.protocol.pop.records import PopCheckpoint
from roquet.store.results import PutStatus


@on_loop
async def test_messages_are_counted_by_what_became_of_them() -> None:
    world = PopWorld()
    copies = world.service.copies
    for tries in (0, 3, 3, 0, 0, 0, 0):
        world.send(b"x", tries=tries)
    checkpoint = await world.pop(list(range(11)), 5000)
    # Two behind the end of the queue are gone, three cannot be read, one finds no room.
    world.log.faults = {3, 4, 5}
    offsets = [0, 1, 2, 3, 4, 5, 6, 7, 8]
    for turn in (1, 2):
        world.log.statuses = [PutStatus.PUT_OK] * 3 + [PutStatus.SERVICE_NOT_AVAILABLE]
        assert await copies.store(checkpoint, offsets) == [
            Outcome.STORED,
            Outcome.DEAD,
            Outcome.DEAD,
            *[Outcome.FAILED] * 3,
            Outcome.WAIT,
            Outcome.GONE,
            Outcome.GONE,
        ]
        assert copies.counts == CopyCounts(
            stored=turn, dead=2 * turn, gone=2 * turn, failed=3 * turn
        )
        assert dict(copies.counts.puts.rows()) == {
            ("PUT_OK", TOPIC, GROUP): 3.0 * turn,
            ("SERVICE_NOT_AVAILABLE", TOPIC, GROUP): float(turn),
        }


@on_loop
async def test_message_whose_sender_counted_the_most_tries_is_a_dead_letter() -> None:
    world = PopWorld()
    for tries in (0, ATTEMPTS_MAX, 0):
        world.send(b"x", tries=tries)
    checkpoint = await world.pop([0, 1, 2], 5000)
    outcomes = await world.service.copies.store(checkpoint, [0, 1, 2])
    assert outcomes == [Outcome.STORED, Outcome.DEAD, Outcome.STORED]
    counts = [entry.draft.reconsume_times for entry in world.log.entries[-3:]]
    assert sorted(counts) == [1, 1, ATTEMPTS_MAX]


@on_loop
@pytest.mark.parametrize("core", [0, 1, 2])
async def test_what_goes_wrong_with_a_message_counts_for_none_that_is_stored(
    core: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = PopWorld()
    for _ in range(3):
        world.send(b"x")
    checkpoint = await world.pop([0, 1, 2], 5000)
    copies = world.service.copies

    async def copied(*_: object) -> int:
        return core

    async def moved(*_: object) -> list[Outcome]:
        raise OverflowError("a number is too large")

    monkeypatch.setattr(copies, "_copied", copied)
    monkeypatch.setattr(copies, "_moved", moved)
    expected = [Outcome.STORED] * core + [Outcome.FAILED] * (3 - core)
    assert await copies.store(checkpoint, [0, 1, 2]) == expected


@on_loop
async def test_message_that_no_try_can_store_has_failed_and_one_without_room_waits() -> None:
    world = PopWorld()
    world.send(b"x")
    checkpoint = await world.pop([0], 5000)
    for status, outcome in (
        (PutStatus.MESSAGE_ILLEGAL, Outcome.FAILED),
        (PutStatus.PROPERTIES_SIZE_EXCEEDED, Outcome.FAILED),
        (PutStatus.SERVICE_NOT_AVAILABLE, Outcome.WAIT),
        (PutStatus.CREATE_MAPPED_FILE_FAILED, Outcome.WAIT),
        (PutStatus.PUT_OK, Outcome.STORED),
    ):
        world.log.statuses = [status]
        assert await world.service.copies.store(checkpoint, [0]) == [outcome]


@pytest.mark.parametrize("group", ["other", "g"])
def test_checkpoints_without_an_owner_are_counted_each_time(group: str) -> None:
    world = PopWorld()
    checkpoint = PopCheckpoint(
        topic=TOPIC,
        group=group,
        queue_id=0,
        start_offset=0,
        pop_time_ms=0,
        invisible_ms=0,
        count=1,
    )
    copies = world.service.copies
    is_orphan = group != GROUP
    assert [copies.is_orphan(checkpoint) for _ in range(2)] == [is_orphan] * 2
    assert copies.counts.orphans == 2 * is_orphan


def test_checkpoint_due_more_than_a_minute_from_now_is_early() -> None:
    queue = ReviveQueue(-1, "b")
    assert not queue.is_early(0), "there is none"
    checkpoint = PopCheckpoint(
        topic=TOPIC,
        group=GROUP,
        queue_id=0,
        start_offset=7,
        pop_time_ms=1000,
        invisible_ms=EARLY_MS,
        count=1,
    )
    queue.take(0, {props.TAGS: "ck"}, checkpoint.encode(), 1000)
    assert EARLY_MS == 60_000
    assert [queue.is_early(now_ms) for now_ms in (999, 1000, 1001)] == [True, False, False]
