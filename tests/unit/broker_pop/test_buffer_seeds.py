"""Drawn pops, acks, failures of the store and crashes over the merge buffer.

* nothing that is neither acknowledged nor in a stored checkpoint lies below the committed offset;
* what is acknowledged and lies below it never comes again: it has no stored checkpoint, or one
  with its acknowledgement stored as well;
* a checkpoint is stored once, before its acknowledgements; an orderly stop stores all.
"""

from __future__ import annotations

import asyncio
import dataclasses
import os
import random
from typing import TYPE_CHECKING

import pytest

from pop_world import Clock
from roquet.broker.pop.buffer.rules import BufferConfig
from roquet.broker.pop.buffer.service import PopBuffer
from roquet.protocol.pop.records import PopAck, PopCheckpoint
from roquet.store.results import PutResult, PutStatus

if TYPE_CHECKING:
    from collections.abc import Sequence

    from roquet.protocol.pop.records import MergeKey

SEEDS = int(os.environ.get("POP_SEEDS", "300"))
"""`make seeds` draws more."""
STEPS = 150
TOPIC, GROUP, QUEUES = "T", "g", 2


class Offsets:
    """Committed offsets of queues, and those of the last save."""

    def __init__(self) -> None:
        self.now = dict.fromkeys(range(QUEUES), 0)

    def advance(
        self, group: str, topic: str, queue_id: int, offset: int, *, begin: int | None = None
    ) -> None:
        assert (group, topic, queue_id in self.now) == (GROUP, TOPIC, True)
        if begin is None or self.now[queue_id] >= begin:
            self.now[queue_id] = max(self.now[queue_id], offset)


class Records:
    """The revive topic; whoever waits for an append lets others acknowledge."""

    def __init__(self, story: Story) -> None:
        self.story = story
        self.stored: dict[MergeKey, PopCheckpoint] = {}
        self.acked: set[tuple[MergeKey, int]] = set()
        self.failing = 0.0

    async def _append(self, take: list[tuple[MergeKey, object]]) -> list[PutResult]:
        results: list[PutResult] = []
        for key, record in take:
            if self.story.rng.random() < self.failing:
                results.append(PutResult(PutStatus.SERVICE_NOT_AVAILABLE, why="a test says so"))
                continue
            if isinstance(record, PopCheckpoint):
                assert key not in self.stored, "a checkpoint is stored once"
                self.stored[key] = record
            else:
                assert isinstance(record, PopAck)
                self.acked |= {(key, offset) for offset in record.offsets}
            results.append(PutResult(PutStatus.PUT_OK))
        if self.story.rng.random() < 0.3:
            await self.story.ack()
        return results

    async def checkpoints(
        self, checkpoints: Sequence[tuple[PopCheckpoint, int]]
    ) -> list[PutResult]:
        return await self._append([(it.merge_key, it) for it, _ in checkpoints])

    async def acks(
        self, acks: Sequence[tuple[PopAck, int, int]], *, of_buffer: bool = False
    ) -> list[PutResult]:
        for ack, _, _ in acks:
            if of_buffer:
                assert ack.merge_key("b") in self.stored, "the checkpoint goes first"
        return await self._append([(it.merge_key("b"), it) for it, _, _ in acks])


def _nothing_is_gone(_: str, __: str) -> bool:
    return False


class Story:
    """One seed."""

    def __init__(self, seed: int) -> None:
        self.rng = rng = random.Random(seed)
        self.clock = Clock()
        self.rules = BufferConfig(
            enabled=True,
            stay_ms=rng.choice((2_000, 10_000)),
            checkpoints_max=rng.choice((3, 200)),
            queue_max=rng.choice((2, 200)),
            batch_acks=rng.random() < 0.5,
        )
        self.offsets = Offsets()
        self.records = Records(self)
        self.buffer = self.made()
        self.popped: list[tuple[PopCheckpoint, int]] = []
        self.acked: set[tuple[int, int]] = set()
        """(queue id, offset) of what was acknowledged with success."""
        self.crashes = 0

    def made(self) -> PopBuffer:
        return PopBuffer(
            self.records,
            self.offsets,  # type: ignore[arg-type]
            is_gone=_nothing_is_gone,
            rules=self.rules,
            clock=self.clock,
        )

    async def play(self) -> None:
        steps = [self.pop, self.pop, self.ack, self.ack, self.ack, self.wait, self.wait]
        steps += [self.fail, self.crash, self.switch, self.settle]
        for _ in range(STEPS):
            await self.rng.choice(steps)()
            self.judge()
        self.records.failing = 0.0
        await self.buffer.stop()
        assert len(self.buffer.merge) == 0
        assert self.buffer.merge.offsets == 0
        self.judge()

    async def pop(self) -> None:
        queue = self.rng.randrange(QUEUES)
        self.clock.ms += 1
        key = TOPIC, GROUP, queue
        ahead = self.buffer.merge.position(key)
        begin = max(self.offsets.now[queue], -1 if ahead is None else ahead)
        if self.rng.random() < 0.1:
            # Nothing is for this group: it goes on behind, and all of it counts as settled.
            self.acked |= {(queue, offset) for offset in range(begin, begin + 2)}
            self.buffer.merge.passed(key, begin + 2)
            return
        count = self.rng.randint(1, 5)
        checkpoint = PopCheckpoint(
            topic=TOPIC,
            group=GROUP,
            queue_id=queue,
            start_offset=begin,
            pop_time_ms=self.clock.ms,
            invisible_ms=self.rng.choice((1_000, 5_000, 60_000)),
            broker_name="b",
            diffs=tuple(range(count)),
            count=count,
        )
        assert not self.buffer.merge.knows(checkpoint)
        if not self.buffer.merge.add(checkpoint, 0, begin + count, self.clock.ms):
            ((result),) = await self.records.checkpoints([(checkpoint, 0)])
            if not result.status.is_stored:
                return
            self.buffer.merge.passed(key, begin + count)
        self.popped += [(checkpoint, offset) for offset in checkpoint.offsets()]

    async def ack(self) -> None:
        if not self.popped:
            return
        checkpoint, offset = self.popped.pop(self.rng.randrange(len(self.popped)))
        ack = PopAck(
            topic=TOPIC,
            group=GROUP,
            queue_id=checkpoint.queue_id,
            start_offset=checkpoint.start_offset,
            pop_time_ms=checkpoint.pop_time_ms,
            broker_name="b",
            offset=offset,
        )
        key = ack.merge_key("b")
        is_done = self.buffer.merge.ack(key, (offset,), self.clock.ms)
        if not is_done:
            ((result),) = await self.records.acks([(ack, 0, checkpoint.revive_ms)])
            is_done = result.status.is_stored
        if is_done:
            self.acked.add((checkpoint.queue_id, offset))

    async def wait(self) -> None:
        for _ in range(self.rng.randrange(8)):
            self.clock.ms += self.rng.choice((5, 100, 1_000))
            await self.buffer.tick()
        if self.rng.random() < 0.05:
            self.clock.ms -= 5_000

    async def fail(self) -> None:
        self.records.failing = self.rng.choice((0.0, 0.0, 0.3, 1.0))

    async def switch(self) -> None:
        self.rules = dataclasses.replace(self.rules, enabled=self.rng.random() < 0.8)
        self.buffer.follow(self.rules)

    async def settle(self) -> None:
        key = TOPIC, GROUP, self.rng.randrange(QUEUES)
        if await self.buffer.settle(key):
            assert self.buffer.merge.position(key) is None

    async def crash(self) -> None:
        if self.rng.random() < 0.7:
            return
        self.crashes += 1
        self.buffer = self.made()
        # Pops begin again at the committed offsets; handles from before may still be used.
        self.acked = {(q, offset) for q, offset in self.acked if offset < self.offsets.now[q]}

    def judge(self) -> None:
        covered = {
            (checkpoint.queue_id, offset)
            for checkpoint in self.records.stored.values()
            for offset in checkpoint.offsets()
        }
        open_ones = {
            (checkpoint.queue_id, offset)
            for key, checkpoint in self.records.stored.items()
            for offset in checkpoint.offsets()
            if (key, offset) not in self.records.acked
        }
        for queue, committed in self.offsets.now.items():
            for offset in range(committed):
                one = queue, offset
                assert one in self.acked or one in covered, f"{one} is lost"
                if not self.crashes:
                    assert one not in self.acked or one not in open_ones, f"{one} comes again"


@pytest.mark.parametrize("part", range(3))
def test_buffer_loses_nothing_whatever_happens(part: int) -> None:
    crashes = 0
    for seed in range(part * SEEDS // 3, (part + 1) * SEEDS // 3):
        story = Story(seed)
        try:
            asyncio.run(story.play())
        except AssertionError as error:
            raise AssertionError(f"seed {seed}") from error
        crashes += story.crashes
    assert crashes > 50
