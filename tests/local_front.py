"""A front of its own over the broker's API: it knows operations and shapes, and no transport."""

from __future__ import annotations

import dataclasses
import time
from typing import TYPE_CHECKING

from roquet.broker.api.caller import Caller, Front
from roquet.broker.api.offsets import CommitRequest, CommittedRequest, QueueRequest
from roquet.broker.api.pop import PopAckRequest, PopRequest
from roquet.broker.api.query import QueryRequest, ViewRequest
from roquet.broker.api.receive import Filter, ReceiveRequest
from roquet.broker.api.send import SendBackRequest, SendBatchRequest, SendRequest
from roquet.broker.api.topics import PutTopic
from roquet.model.topic import TopicConfig

if TYPE_CHECKING:
    from roquet.broker.api.offsets import CommitResult
    from roquet.broker.api.pop import PopResult
    from roquet.broker.api.query import QueryResult
    from roquet.broker.api.receive import ReceiveResult
    from roquet.broker.api.send import SendResult
    from roquet.broker.operations.table import Operations

ALL_TIME_MS = 2**63 - 1


@dataclasses.dataclass(frozen=True, slots=True)
class LocalFront:
    """What a console or another protocol would do, in the broker's process."""

    calls: Operations
    access_key: str = ""
    group: str = "readers"

    @property
    def caller(self) -> Caller:
        """Who asks."""
        return Caller(
            address="127.0.0.1:1", access_key=self.access_key, version=513, front=Front.LOCAL
        )

    async def send(self, topic: str, body: bytes, queue_id: int = 0, **more: str) -> SendResult:
        """Send one message; `more` are its properties."""
        request = SendRequest(
            topic=topic, queue_id=queue_id, body=body, properties=more, born_ms=1, template="TBW102"
        )
        return await self.calls.send(request, self.caller)

    async def send_batch(self, topic: str, messages: bytes) -> SendResult:
        """Send messages that are encoded one behind the other."""
        request = SendBatchRequest(
            topic=topic, queue_id=0, messages=messages, properties={}, born_ms=1
        )
        return await self.calls.send_batch(request, self.caller)

    async def receive(
        self, topic: str, offset: int, *, wait_ms: int | None = None, tags: str = "*"
    ) -> ReceiveResult:
        """Read from queue 0."""
        request = ReceiveRequest(
            group=self.group,
            topic=topic,
            queue_id=0,
            offset=offset,
            messages_max=32,
            filter=Filter(expression=tags),
            wait_ms=wait_ms,
        )
        return await self.calls.receive(request, self.caller)

    def commit(self, topic: str, offset: int) -> CommitResult:
        """Commit an offset of queue 0."""
        request = CommitRequest(group=self.group, topic=topic, queue_id=0, offset=offset)
        return self.calls.commit(request, self.caller)

    def committed(self, topic: str) -> int:
        """Return where the group continues in queue 0."""
        request = CommittedRequest(group=self.group, topic=topic, queue_id=0)
        return self.calls.committed(request, self.caller)

    def ends(self, topic: str) -> tuple[int, int]:
        """Return the first offset of queue 0, and the one behind the last."""
        queue, calls = QueueRequest(topic=topic, queue_id=0), self.calls
        return calls.min_offset(queue, self.caller), calls.max_offset(queue, self.caller)

    def query(self, topic: str, key: str) -> QueryResult:
        """Find messages by key."""
        request = QueryRequest(
            topic=topic, key=key, messages_max=32, begin_ms=0, end_ms=ALL_TIME_MS
        )
        return self.calls.query(request, self.caller)

    async def view(self, physical_offset: int) -> bytes:
        """Return the message at a place of the log."""
        request = ViewRequest(physical_offset=physical_offset)
        return await self.calls.view(request, self.caller)

    async def send_back(self, physical_offset: int) -> None:
        """Have a message put among the dead letters."""
        request = SendBackRequest(group=self.group, physical_offset=physical_offset, delay_level=-1)
        await self.calls.send_back(request, self.caller)

    async def make_topic(self, topic: str) -> None:
        """Create a topic."""
        await self.calls.put_topics([PutTopic(config=TopicConfig(name=topic))], self.caller)

    async def pop(self, topic: str) -> PopResult:
        """Take messages and make them invisible for a minute."""
        request = PopRequest(
            topic=topic,
            group=self.group,
            queue_id=-1,
            max_messages=8,
            invisible_ms=60_000,
            poll_ms=0,
            born_ms=time.time_ns() // 1_000_000,
        )
        return await self.calls.pop(request, self.caller)

    async def ack(self, topic: str, offset: int, handle: str) -> None:
        """End the flight of a message of queue 0."""
        request = PopAckRequest(
            topic=topic, group=self.group, queue_id=0, offset=offset, handle=handle
        )
        await self.calls.ack(request, self.caller)
