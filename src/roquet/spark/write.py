"""Writing rows as messages, at least once: a task that Spark repeats sends its rows again.

Columns: `body` (binary or string), and if wanted `topic`, `keys` (string, or an array of them),
`tags`, `properties` (map of strings) and `queueId`.
"""

from __future__ import annotations

import asyncio
import dataclasses
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from roquet.base.errors import UsageError
from roquet.client import Message, MessageQueue, connect
from roquet.protocol import properties
from roquet.protocol.java_hash import java_hash
from roquet.spark.marks import override

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyspark.sql.types import StructType

    from roquet.client import Producer
    from roquet.spark.options import SinkOptions

BATCH_ROWS: Final = 256
"""Messages of one request, all of one queue."""
IN_FLIGHT: Final = 8
"""Requests of a task that wait for an answer."""
SEND_TIMEOUT_S: Final = 10.0

_ALLOWED = {
    "body": {"binary", "string"},
    "topic": {"string"},
    "keys": {"string", "array<string>"},
    "tags": {"string"},
    "properties": {"map<string,string>"},
    "queueId": {"int", "bigint", "smallint", "tinyint"},
}


@dataclasses.dataclass
class Written(WriterCommitMessage):
    """What a task has sent."""

    rows: int
    requests: int


class BatchWriter(DataSourceArrowWriter):
    """Sends the rows of a DataFrame."""

    def __init__(self, options: SinkOptions, schema: StructType, *, overwrite: bool) -> None:
        """Check everything that can be known before a row is there. Raises UsageError."""
        if overwrite:
            raise UsageError("mode 'overwrite': a topic cannot be replaced; use mode 'append'")
        _check(options, schema)
        self._options = options

    @override
    def write(self, iterator: Iterator[Any]) -> Written:
        return write(self._options, iterator)


class StreamWriter(DataSourceStreamArrowWriter):
    """Sends the rows of each micro-batch."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        """Check as `BatchWriter` does."""
        _check(options, schema)
        self._options = options

    @override
    def write(self, iterator: Iterator[Any]) -> Written:
        return write(self._options, iterator)

    @override
    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Nothing is left to do: what was written is there."""

    @override
    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Leave what was written: messages cannot be taken back."""


def write(options: SinkOptions, batches: Iterator[Any]) -> Written:
    """Send the rows of Arrow batches; returns once brokers have all of them.

    Raises UsageError for a row that cannot be a message, Refused, Unreachable, OutcomeUnknown.
    """
    return asyncio.run(_write(options, batches))


async def _write(options: SinkOptions, batches: Iterator[Any]) -> Written:
    async with connect(options.wire.url) as mq, mq.producer(options.group) as producer:
        sender = _Sender(options, producer)
        for batch in batches:
            for row in batch.to_pylist():
                await sender.add(row)
            await sender.drain()
        await sender.finish()
        return Written(sender.rows, sender.requests)


class _Sender:
    """Gathers rows by queue and sends full batches, several at a time."""

    def __init__(self, options: SinkOptions, producer: Producer) -> None:
        self._options = options
        self._producer = producer
        self._queues: dict[str, tuple[MessageQueue, ...]] = {}
        self._waiting: dict[MessageQueue, list[Message]] = {}
        self._turn = 0
        self._slots = asyncio.Semaphore(IN_FLIGHT)
        self._tails: dict[MessageQueue, asyncio.Lock] = {}
        self._full: list[tuple[MessageQueue, list[Message]]] = []
        self.rows = 0
        self.requests = 0

    async def add(self, row: Mapping[str, Any]) -> None:
        message = message_of(row, self._options.topic)
        queue = await self._queue(message, row.get("queueId"))
        waiting = self._waiting.setdefault(queue, [])
        waiting.append(message)
        self.rows += 1
        if len(waiting) >= BATCH_ROWS:
            self._full.append((queue, self._waiting.pop(queue)))
            self._turn += 1

    async def drain(self) -> None:
        """Send the full batches, those of one queue in order."""
        full, self._full = self._full, []
        await asyncio.gather(*(self._send(queue, messages) for queue, messages in full))

    async def finish(self) -> None:
        """Send everything that is left."""
        self._full += self._waiting.items()
        self._waiting = {}
        await self.drain()

    async def _send(self, queue: MessageQueue, messages: list[Message]) -> None:
        async with self._tails.setdefault(queue, asyncio.Lock()), self._slots:
            self.requests += 1
            await self._producer.send_batch(
                queue.topic, messages, queue=queue, timeout_s=SEND_TIMEOUT_S
            )

    async def _queue(self, message: Message, queue_id: int | None) -> MessageQueue:
        queues = self._queues.get(message.topic)
        if queues is None:
            queues = self._queues[message.topic] = await self._producer.queues(message.topic)
        if self._options.partitioner == "queue":
            return _numbered(queues, queue_id, message.topic)
        if self._options.partitioner == "key" and message.keys:
            return queues[java_hash(message.keys[0]) % len(queues)]
        return queues[self._turn % len(queues)]


def _numbered(queues: Sequence[MessageQueue], queue_id: int | None, topic: str) -> MessageQueue:
    for queue in queues:
        if queue.queue_id == queue_id:
            return queue
    raise UsageError(f"queueId {queue_id}: topic {topic} has queues 0 to {len(queues) - 1}")


def message_of(row: Mapping[str, Any], default_topic: str | None) -> Message:
    """Return the message that a row stands for. Raises UsageError."""
    topic = row.get("topic") or default_topic
    if not topic:
        raise UsageError("a row has no topic, and the option `topic` is not given")
    body = row.get("body")
    if not body:
        raise UsageError("a row has no body; a message needs one")
    keys = row.get("keys") or ()
    found: dict[str, str] = dict(row.get("properties") or ())
    return Message(
        topic,
        body.encode() if isinstance(body, str) else bytes(body),
        row.get("tags") or None,
        tuple(keys.split()) if isinstance(keys, str) else tuple(keys),
        {
            name: str(value)
            for name, value in found.items()
            # What a broker or a producer set when the message was read from a topic.
            if name not in properties.RESERVED or name == properties.SHARDING_KEY
        },
    )


def _check(options: SinkOptions, schema: StructType) -> None:
    types = {field.name: field.dataType.simpleString() for field in schema.fields}
    for name, kind in types.items():
        if name not in _ALLOWED:
            raise UsageError(f"column {name!r} means nothing; there are {', '.join(_ALLOWED)}")
        if kind not in _ALLOWED[name]:
            wanted = " or ".join(sorted(_ALLOWED[name]))
            raise UsageError(f"column {name!r} is {kind}: must be {wanted}")
    if "body" not in types:
        raise UsageError("there is no column `body`")
    if "topic" not in types and options.topic is None:
        raise UsageError("give the option `topic` or a column of that name")
    if options.partitioner == "queue" and "queueId" not in types:
        raise UsageError("partitioner `queue` needs a column `queueId`")
