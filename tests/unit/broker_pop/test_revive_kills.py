"""Kills of the broker while it delivers again: what was stored is not stored once more."""

from __future__ import annotations

import pytest

from pop_world import GROUP, REVIVE, TOPIC, Crash, PopWorld
from remoting_harness import on_loop
from roquet.broker.pop.revive import FIRST_READ_MS
from roquet.protocol import properties as props
from roquet.protocol.pop.records import PopAck

KILLS = 10


def bodies(world: PopWorld) -> list[bytes]:
    return sorted(draft.body for draft in world.again())


def kill(world: PopWorld) -> None:
    """End the process, with the offsets of the revive queues never saved."""
    world.log.recover(power_loss=False)
    world.tables.offsets.clear()
    world.restart()


@on_loop
@pytest.mark.parametrize("by_core", [False, True])
async def test_kills_one_after_the_other_repeat_nothing_that_was_stored(*, by_core: bool) -> None:
    world = PopWorld(by_core=by_core)
    sent = [world.send(b"%d" % number) for number in range(12)]
    for first in range(0, 12, 3):
        checkpoint = await world.pop(sent[first : first + 3], 5000, queue=first % 2)
        await world.ack(checkpoint, first, queue=first % 2)
    await world.run(15)
    expected = sorted(b"%d" % number for number in range(12) if number % 3)
    assert bodies(world) == expected
    for _ in range(KILLS):
        kill(world)
        await world.run(8)
        assert bodies(world) == expected
    assert world.service.copies.counts.stored == 0


@on_loop
async def test_kill_between_copies_and_their_note_repeats_one_checkpoint_at_most() -> None:
    """The first write of a round is a copy; the last is the note that it is done."""
    worst = 0
    for writes in range(8):
        world = PopWorld()
        sent = [world.send(b"%d" % number) for number in range(6)]
        for first in (0, 2, 4):
            await world.pop(sent[first : first + 2], 5000)
        world.log.fires = False
        await world.run(9)
        world.log.fires = True
        world.log.turn()
        world.log.writes_left = writes
        with pytest.raises(Crash):
            await world.service.tick()
        kill(world)
        await world.run(15)
        assert set(bodies(world)) == {b"%d" % number for number in range(6)}
        worst = max(worst, len(bodies(world)) - 6)
    assert 1 <= worst <= 2


@on_loop
async def test_message_that_is_tried_again_later_is_not_noted_as_stored() -> None:
    world = PopWorld()
    sent = [world.send(b"%d" % number) for number in range(2)]
    await world.pop(sent, 5000)
    world.log.faults = {0}
    await world.run(9)
    assert bodies(world) == [b"1"]
    world.log.faults = set()
    # Were it noted, the note would settle its new checkpoint too, which has the same names.
    kill(world)
    await world.run(40)
    assert set(bodies(world)) == {b"0", b"1"}
    assert bodies(world).count(b"1") == 1


@on_loop
async def test_note_is_an_acknowledgement_as_brokers_of_rocketmq_write_it() -> None:
    world = PopWorld()
    checkpoint = await world.pop([world.send(b"%d" % number) for number in range(3)], 5000)
    await world.ack(checkpoint, 1)
    await world.run(15)
    (place,) = world.log.own
    draft = world.log.entries[place].draft
    ack = PopAck.decode(draft.body, batch=True)
    assert (draft.topic, draft.properties[props.TAGS], ack.offsets) == (REVIVE, "bAck", (0, 2))
    assert ack.merge_key("") == checkpoint.merge_key
    assert (ack.topic, ack.group) == (TOPIC, GROUP)
    # The service that wrote it waits for no checkpoint of it.
    assert len(world.service.strays) == 0
    assert world.settled() == 2


@on_loop
async def test_nothing_is_settled_before_the_queue_was_read_whole() -> None:
    world = PopWorld()
    await world.pop([world.send(b"x")], 5000)
    await world.run(15)
    kill(world)
    world.log.behind = 1
    await world.run(FIRST_READ_MS / 1000 - 2)
    assert (world.settled(), len(world.service.queues[0])) == (None, 1)
    world.log.behind = 0
    await world.run(4)
    assert (bodies(world), world.settled()) == ([b"x"], 1)
