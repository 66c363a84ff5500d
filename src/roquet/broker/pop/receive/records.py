"""What POP writes to the revive topic: checkpoints of what was popped, and acknowledgements.

A record counts as stored when it is in the log, however durable: that is what its message was
promised, too.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Protocol

from roquet.broker.pop.drafts import ack_draft, checkpoint_draft

if TYPE_CHECKING:
    from roquet.base.clock import Clock
    from roquet.broker.state import Identity
    from roquet.protocol.pop.records import PopAck, PopCheckpoint
    from roquet.store.results import Draft, PutResult
    from roquet.store.topics import TopicTable


class Appends(Protocol):
    """Appends behind the put hooks."""

    async def append(self, draft: Draft) -> PutResult:
        """Check, convert, append, wait."""
        ...


class ReviveLog:
    """The revive topic, as far as it is written to."""

    def __init__(
        self, appender: Appends, topics: TopicTable, topic: str, identity: Identity, clock: Clock
    ) -> None:
        """`topic` is the revive topic of the cluster."""
        self._appender = appender
        self._topics = topics
        self._topic = topic
        self._identity = identity
        self._clock = clock
        self._turn = itertools.count(1)

    def next_queue(self) -> int:
        """Return the revive queue of the next pop: one after the other."""
        config = self._topics.get(self._topic)
        return next(self._turn) % (1 if config is None else max(1, config.write_queues))

    async def checkpoint(self, checkpoint: PopCheckpoint, revive_queue: int) -> PutResult:
        """Store a checkpoint."""
        now_ms, host = self._clock.now_ms(), self._identity.store_host
        draft = checkpoint_draft(checkpoint, self._topic, revive_queue, now_ms, host)
        return await self._appender.append(draft)

    async def ack(self, ack: PopAck, revive_queue: int, revive_ms: int) -> PutResult:
        """Store an acknowledgement; `revive_ms` is when its checkpoint is due."""
        now_ms, host = self._clock.now_ms(), self._identity.store_host
        draft = ack_draft(ack, self._topic, revive_queue, now_ms, host, revive_ms=revive_ms)
        return await self._appender.append(draft)
