"""What POP writes to the revive topic: checkpoints of what was popped, and acknowledgements.

A record counts as stored when it is in the log, however durable: that is what its message was
promised, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from roquet.broker.pop.drafts import (
    ACKS,
    CHECKPOINTS,
    ack_draft,
    checkpoint_draft,
    put_status,
)
from roquet.service.counting import LabelCounts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from roquet.base.clock import Clock
    from roquet.broker.pop.buffer.rules import BufferConfig
    from roquet.broker.state import Identity
    from roquet.protocol.pop.records import PopAck, PopCheckpoint
    from roquet.store.results import Draft, PutResult
    from roquet.store.tables.topics import TopicTable


class Appends(Protocol):
    """Appends behind the put hooks."""

    async def append_all(
        self, drafts: Sequence[Draft], *, wait: bool | None = None
    ) -> list[PutResult]:
        """Check, convert, append together, wait; each has an outcome of its own."""
        ...


class ReviveLog:
    """The revive topic, as far as it is written to."""

    def __init__(
        self,
        appender: Appends,
        topics: TopicTable,
        topic: str,
        *,
        identity: Identity,
        rules: BufferConfig,
        clock: Clock,
    ) -> None:
        """`topic` is the revive topic of the cluster."""
        self._appender = appender
        self._topics = topics
        self._topic = topic
        self._identity = identity
        self._rules = rules
        self._clock = clock
        self._turn = 1
        self.puts = LabelCounts()
        """Attempts to store records, by (kind, outcome, topic, group)."""

    def follow(self, rules: BufferConfig) -> None:
        """Go by other settings from now on."""
        self._rules = rules

    @property
    def checkpoints_async(self) -> bool:
        """Whether messages leave before their checkpoint is durable."""
        return self._rules.checkpoints_async

    @property
    def acks_async(self) -> bool:
        """Whether an acknowledgement is a success before it is durable."""
        return self._rules.acks_async

    def next_queue(self) -> int:
        """Return the revive queue of the next pop: one after the other."""
        queue = self.look_queue()
        self._turn += 1
        return queue

    def look_queue(self) -> int:
        """Return that of the next pop, and leave it to that one."""
        config = self._topics.get(self._topic)
        return self._turn % (1 if config is None else max(1, config.write_queues))

    async def checkpoint(self, checkpoint: PopCheckpoint, revive_queue: int) -> PutResult:
        """Store a checkpoint."""
        return (await self.checkpoints([(checkpoint, revive_queue)]))[0]

    async def ack(self, ack: PopAck, revive_queue: int, revive_ms: int) -> PutResult:
        """Store an acknowledgement; `revive_ms` is when its checkpoint is due."""
        return (await self.acks([(ack, revive_queue, revive_ms)]))[0]

    async def checkpoints(
        self, checkpoints: Sequence[tuple[PopCheckpoint, int]]
    ) -> list[PutResult]:
        """Store checkpoints in their revive queues, together."""
        now_ms, host = self._clock.now_ms(), self._identity.store_host
        drafts = [
            checkpoint_draft(checkpoint, self._topic, queue, now_ms, host)
            for checkpoint, queue in checkpoints
        ]
        results = await self._append(drafts, is_async=self._rules.checkpoints_async)
        for (record, _), result in zip(checkpoints, results, strict=True):
            owner = (record.topic or "", record.group or "")
            self.puts.add((CHECKPOINTS, put_status(result), *owner))
        return results

    async def acks(
        self, acks: Sequence[tuple[PopAck, int, int]], *, of_buffer: bool = False
    ) -> list[PutResult]:
        """Store acknowledgements together: (ack, revive queue, revive time).

        `of_buffer`: the merge buffer stores them, which names batches in another way.
        """
        now_ms, host = self._clock.now_ms(), self._identity.store_host
        drafts = [
            ack_draft(
                *(ack, self._topic, queue, now_ms, host),
                revive_ms=revive_ms,
                of_buffer=of_buffer,
            )
            for ack, queue, revive_ms in acks
        ]
        results = await self._append(drafts, is_async=self._rules.acks_async)
        for (record, _, _), result in zip(acks, results, strict=True):
            self.puts.add((ACKS, put_status(result), record.topic or "", record.group or ""))
        return results

    async def _append(self, drafts: Sequence[Draft], *, is_async: bool) -> list[PutResult]:
        if not drafts:
            return []
        return await self._appender.append_all(drafts, wait=False if is_async else None)
