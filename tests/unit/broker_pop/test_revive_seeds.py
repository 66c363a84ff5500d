"""Drawn pops, acks, changes, restarts and crashes: what must hold whatever happens.

* a message whose pop was not acknowledged comes again, in the retry topic or as a dead letter;
* one that was acknowledged in time never does, also over a kill: its record is in the log;
* without a crash each comes again once, and not before its time;
* no committed offset has an unsettled checkpoint at or below it, also after a power loss.
"""

from __future__ import annotations

import asyncio
import dataclasses
import os
import random
from typing import TYPE_CHECKING

import pytest

from pop_world import GROUP, REVIVE, TOPIC, Crash, PopWorld
from roquet.protocol import names
from roquet.protocol import properties as props
from roquet.protocol.pop.records import MergeKey, PopAck, PopCheckpoint

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

SEEDS = int(os.environ.get("POP_SEEDS", "300"))
"""`make seeds` draws more."""
STEPS = 60
MESSAGES = 30
RETRY = f"%RETRY%{GROUP}_{TOPIC}"
DLQ = names.dlq_topic(GROUP)


@dataclasses.dataclass(slots=True)
class Popped:
    """A message that was popped, and what became of it."""

    topic: str
    offset: int
    body: bytes
    attempt: int
    checkpoint: PopCheckpoint
    queue: int
    is_acked: bool = False
    is_open: bool = True
    """Whether what was asked for is known to be done: a crash may leave that open."""


class Story:
    """One seed."""

    def __init__(self, seed: int, *, by_core: bool) -> None:
        self.rng = random.Random(seed)
        self.world = PopWorld(self.rng, by_core=by_core, dead_letters=self.rng.random() < 0.7)
        self.fresh: list[tuple[str, int]] = []
        self.popped: list[Popped] = []
        self.saved: dict[tuple[str, str, int], int] = {}
        self.crashes = 0
        self.power_losses = 0

    async def play(self) -> None:
        world, rng = self.world, self.rng
        for number in range(MESSAGES):
            self.fresh.append((TOPIC, world.send(b"%d" % number)))
        await world.log.flush()
        steps: list[Callable[[], Awaitable[None]]] = [
            self.pop,
            self.pop,
            self.ack,
            self.ack,
            self.change,
            self.wait,
            self.wait,
            self.restart,
            self.plan_a_crash,
        ]
        for _ in range(STEPS):
            try:
                await rng.choice(steps)()
            except Crash:
                self.crash()
            self.judge_offsets()
        world.log.writes_left = None
        await world.run(60)
        self.judge_offsets()
        self.judge()

    # --- steps ----------------------------------------------------------------------------------

    async def pop(self) -> None:
        rng = self.rng
        topic = rng.choice((TOPIC, RETRY))
        known = {(it.topic, it.offset) for it in self.popped}
        count = self.world.log.max_offset(topic, 0)
        free = [offset for offset in range(count) if (topic, offset) not in known]
        offsets = free[: rng.randint(1, 4)]
        if not offsets:
            return
        invisible_ms, queue = rng.randrange(500, 9000), rng.randrange(2)
        planned = PopCheckpoint(
            topic=topic,
            group=GROUP,
            queue_id=0,
            start_offset=offsets[0],
            pop_time_ms=self.world.clock.ms,
            invisible_ms=invisible_ms,
            broker_name="b",
        )
        mine: list[Popped] = []
        for offset in offsets:
            place = self.world.log.queues[topic, 0][offset]
            draft = self.world.log.entries[place].draft
            one = Popped(
                topic, offset, draft.body, draft.reconsume_times, planned, queue, is_open=False
            )
            mine.append(one)
        self.popped += mine
        checkpoint = await self.world.pop(offsets, invisible_ms, queue, topic=topic)
        for one in mine:
            one.checkpoint, one.is_open = checkpoint, True

    async def ack(self) -> None:
        mine = [it for it in self.popped if it.is_open and not it.is_acked]
        if not mine:
            return
        first = self.rng.choice(mine)
        batch = [it for it in mine if it.checkpoint is first.checkpoint]
        if self.rng.random() < 0.5:
            batch = [first]
        for one in batch:
            one.is_open = False
        await self.world.ack(first.checkpoint, *(one.offset for one in batch), queue=first.queue)
        in_time = self.world.clock.ms <= first.checkpoint.revive_ms
        for one in batch:
            one.is_acked, one.is_open = in_time, in_time

    async def change(self) -> None:
        mine = [it for it in self.popped if it.is_open and not it.is_acked]
        now_ms = self.world.clock.ms
        mine = [it for it in mine if it.checkpoint.revive_ms > now_ms]
        if not mine:
            return
        one = self.rng.choice(mine)
        one.is_open = False
        before = one.checkpoint
        # Were the pop times equal, the acknowledgement of one checkpoint would be that of both.
        pop_time_ms = max(now_ms, before.pop_time_ms + 1)
        after = await self.world.pop(
            [one.offset],
            self.rng.randrange(500, 9000),
            one.queue,
            topic=one.topic,
            pop_time_ms=pop_time_ms,
        )
        await self.world.ack(before, one.offset, queue=one.queue)
        one.checkpoint, one.is_open = after, True

    async def wait(self) -> None:
        await self.world.run(self.rng.choice((0.25, 0.5, 1.0, 3.0)))
        if self.rng.random() < 0.5:
            self.saved = dict(self.world.tables.offsets)

    async def restart(self) -> None:
        if self.rng.random() < 0.5:
            await self.world.service.stop()
            self.world.restart()

    async def plan_a_crash(self) -> None:
        if self.rng.random() < 0.5:
            self.world.log.writes_left = self.rng.randrange(6)

    def crash(self) -> None:
        world = self.world
        power_loss = self.rng.random() < 0.3
        self.crashes += 1
        self.power_losses += power_loss
        world.log.recover(power_loss=power_loss)
        # Offsets are saved at any moment after they are committed.
        if self.rng.random() < 0.7:
            world.tables.offsets = dict(self.saved)
        world.restart()
        if power_loss:
            self.forget_lost()

    def forget_lost(self) -> None:
        """After a power loss, only count on what is still in the log."""
        acks, checkpoints = self.acks(), self.checkpoints()
        count = {it: self.world.log.max_offset(it, 0) for it in (TOPIC, RETRY)}
        self.popped = [it for it in self.popped if it.offset < count[it.topic]]
        for one in self.popped:
            mine = {
                it.merge_key
                for it in checkpoints
                if it.topic == one.topic and it.index_of(one.offset) >= 0
            }
            unacked = {key for key in mine if (key, one.offset) not in acks}
            latest = one.checkpoint.merge_key
            if latest not in mine or unacked != (set() if one.is_acked else {latest}):
                one.is_open, one.is_acked = False, False

    # --- judging --------------------------------------------------------------------------------

    def records(self, tag: str) -> list[bytes]:
        entries = self.world.log.entries
        topics = (REVIVE, names.TIMER_TOPIC)
        # What redelivery says of itself proves nothing here.
        theirs = (it for at, it in enumerate(entries) if at not in self.world.log.own)
        drafts = (it.draft for it in theirs if it.draft.topic in topics)
        return [it.body for it in drafts if it.properties.get(props.TAGS) == tag]

    def checkpoints(self) -> list[PopCheckpoint]:
        return [PopCheckpoint.decode(body) for body in self.records("ck")]

    def acks(self) -> set[tuple[MergeKey, int]]:
        singles = [PopAck.decode(body, batch=False) for body in self.records("ack")]
        batches = [PopAck.decode(body, batch=True) for body in self.records("bAck")]
        return {(ack.merge_key("b"), it) for ack in singles + batches for it in ack.offsets}

    def copies(self) -> dict[tuple[bytes, int], list[int]]:
        """Return when each message was stored again, by body and attempt."""
        found: dict[tuple[bytes, int], list[int]] = {}
        for entry in self.world.log.entries:
            if entry.draft.topic in (RETRY, DLQ):
                key = entry.draft.body, entry.draft.reconsume_times
                found.setdefault(key, []).append(entry.stored_ms)
        return found

    def judge_offsets(self) -> None:
        log, copies, acks = self.world.log, self.copies(), self.acks()
        for queue in range(2):
            settled = self.world.settled(queue)
            places = log.queues.get((REVIVE, queue), [])
            for place in places[: 0 if settled is None else settled + 1]:
                draft = log.entries[place].draft
                if draft.properties[props.TAGS] != "ck":
                    continue
                checkpoint = PopCheckpoint.decode(draft.body)
                for offset in checkpoint.offsets():
                    if (checkpoint.merge_key, offset) in acks:
                        continue
                    message = log.entries[log.queues[checkpoint.topic or "", 0][offset]].draft
                    again = message.body, message.reconsume_times + 1
                    assert again in copies, f"settled {settled}, and {again} never came"

    def judge(self) -> None:
        copies = self.copies()
        # After a crash a message may be there twice, and each copy is popped for itself.
        alike: dict[tuple[bytes, int], list[Popped]] = {}
        for one in self.popped:
            alike.setdefault((one.body, one.attempt + 1), []).append(one)
        for key, group in alike.items():
            times = copies.get(key, [])
            is_known = all(one.is_open for one in group)
            unacked = [one for one in group if one.is_open and not one.is_acked]
            if is_known and not unacked:
                assert times == [], f"acknowledged, and came again: {group}"
            assert len(times) >= len(unacked), f"did not come again: {unacked}"
            if self.crashes == 0 and is_known and unacked:
                assert len(times) == 1, f"came more than once: {group}"
                assert times[0] >= group[0].checkpoint.revive_ms, f"came too early: {group}"


@pytest.mark.parametrize("by_core", [False, True])
@pytest.mark.parametrize("block", range(6))
def test_drawn_pops_acks_and_crashes_lose_nothing_and_settle_nothing_early(
    block: int, by_core: bool
) -> None:
    crashes = losses = again = 0
    for seed in range(block * SEEDS // 6, (block + 1) * SEEDS // 6):
        story = Story(seed, by_core=by_core)
        try:
            asyncio.run(story.play())
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
        crashes += story.crashes
        losses += story.power_losses
        again += sum(map(len, story.copies().values()))
    assert crashes > 20, "the stories hardly crash"
    assert losses > 5
    assert again > 200
