"""Writing rows as messages, at least once: a task that Spark repeats sends its rows again.

Columns: `body` (binary or string), and if wanted `topic`, `keys` (string, or an array of them),
`tags`, `properties` (map of strings), `brokerName`, `queueId`, `shardingKey`, `uniqKey` and `delay`
(a level). Further columns of the source may be there: a broker sets them anew.
"""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import logging
import os
import uuid
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from roquet.base.clock import SystemClock
from roquet.base.errors import Unreachable, UsageError
from roquet.base.overriding import override
from roquet.client import Message, MessageQueue, ProducerOptions, connect
from roquet.protocol import properties
from roquet.protocol.message_id import UniqueIds
from roquet.spark import keys
from roquet.spark.placing import Placement, first_turn
from roquet.spark.schema import COLUMNS
from roquet.spark.tries import Tries

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyspark.sql.types import StructType

    from roquet.client import Producer
    from roquet.spark.keys import KeyMaker
    from roquet.spark.options import SinkOptions

log = logging.getLogger(__name__)

BATCH_ROWS: Final = 256
"""Messages of one request, all of one queue."""
IN_FLIGHT: Final = 8
"""Requests of a task that wait for an answer."""
DELAY_MAX: Final = 1000
"""Levels of a broker at most, by far; one above the broker's own is its highest."""

_WHOLE = {"int", "bigint", "smallint", "tinyint"}
_ALLOWED = {
    "body": {"binary", "string"},
    "topic": {"string"},
    "keys": {"string", "array<string>"},
    "tags": {"string"},
    "properties": {"map<string,string>"},
    "brokerName": {"string"},
    "queueId": _WHOLE,
    "shardingKey": {"string"},
    "uniqKey": {"string"},
    "delay": _WHOLE,
}


@dataclasses.dataclass
class Written(WriterCommitMessage):
    """What a task has sent."""

    rows: int
    requests: int
    by_plan: int
    """Rows whose unique key a repeated task makes again."""
    by_column: int
    """Rows whose unique key is theirs."""


class BatchWriter(DataSourceArrowWriter):
    """Sends the rows of a DataFrame."""

    def __init__(self, options: SinkOptions, schema: StructType, *, overwrite: bool) -> None:
        """Check everything that can be known before a row is there. Raises UsageError."""
        if overwrite:
            raise UsageError("mode 'overwrite': a topic cannot be replaced; use mode 'append'")
        _check(options, schema)
        self._options = options
        # Made once for all tasks of this write and all their tries.
        self._run = options.run_id or uuid.uuid4().hex

    @override
    def write(self, iterator: Iterator[Any]) -> Written:
        turn = first_turn(*keys.place_of_task(self._options, self._run))
        return write(self._options, iterator, keys.of_task(self._options, self._run), turn)

    @override
    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        _tell(messages)


class StreamWriter(DataSourceStreamArrowWriter):
    """Sends the rows of each micro-batch."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        """Check as `BatchWriter` does."""
        _check(options, schema)
        self._options = options

    @override
    def write(self, iterator: Iterator[Any]) -> Written:
        turn = first_turn(*keys.place_of_task(self._options, None))
        return write(self._options, iterator, keys.of_task(self._options, None), turn)

    @override
    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Say what was written; it is there already."""
        _tell(messages)

    @override
    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Leave what was written: messages cannot be taken back."""


def write(
    options: SinkOptions, batches: Iterator[Any], maker: KeyMaker | None = None, turn: int = 0
) -> Written:
    """Send the rows of Arrow batches; returns once brokers have all of them.

    `maker` makes unique keys of the rows' numbers; without it they are as a client makes them.
    The first batch that may go anywhere goes to the queue of `turn`.

    Raises UsageError for a row that cannot be a message, Refused, Unreachable, OutcomeUnknown.
    """
    return asyncio.run(_write(options, batches, maker, turn))


async def _write(
    options: SinkOptions, batches: Iterator[Any], maker: KeyMaker | None, turn: int
) -> Written:
    sending = ProducerOptions(timeout_s=options.wire.timeout_s)
    async with (
        connect(options.wire.url) as mq,
        mq.producer(options.group, options=sending) as producer,
    ):
        sender = _Sender(options, producer, maker, turn)
        for batch in batches:
            for row in batch.to_pylist():
                await sender.add(row)
            await sender.drain()
        await sender.finish()
        return Written(sender.rows, sender.requests, sender.by_plan, sender.by_column)


class _Lot(NamedTuple):
    """Where messages go that may share a request."""

    queue: MessageQueue
    delayed: bool


class _Sender:
    """Gathers rows by queue and sends full batches, several at a time."""

    def __init__(
        self, options: SinkOptions, producer: Producer, maker: KeyMaker | None, turn: int = 0
    ) -> None:
        self._options = options
        self._producer = producer
        self._maker = maker
        self._clock = SystemClock()
        self._ids = UniqueIds(uuid.uuid4().bytes[:4], os.getpid(), uuid.uuid4().int & 0xFFFFFFFF)
        self._tries = Tries(options.wire, self._clock)
        self._placements: dict[str, Placement] = {}
        self._waiting: dict[_Lot, list[Message]] = {}
        self._keys: dict[_Lot, list[str]] = {}
        self._turn = turn
        self._slots = asyncio.Semaphore(IN_FLIGHT)
        self._tails: dict[MessageQueue, asyncio.Lock] = {}
        self._full: list[tuple[_Lot, list[Message], list[str]]] = []
        self.rows = 0
        self.requests = 0
        self.by_plan = 0
        self.by_column = 0

    async def add(self, row: Mapping[str, Any]) -> None:
        message = message_of(row, self._options.topic)
        queue = await self._queue(message, row)
        lot = _Lot(queue, message.delay_level > 0)
        waiting = self._waiting.setdefault(lot, [])
        waiting.append(message)
        self._keys.setdefault(lot, []).append(self._key(row))
        self.rows += 1
        if len(waiting) >= BATCH_ROWS:
            self._full.append((lot, self._waiting.pop(lot), self._keys.pop(lot)))
            self._turn += 1

    def _key(self, row: Mapping[str, Any]) -> str:
        given = row.get("uniqKey")
        if given:
            self.by_column += 1
            return str(given)
        if self._maker is None:
            # Made here, so that a request that is sent again has the same.
            return self._ids.make(self._clock.now_ms())
        self.by_plan += 1
        return self._maker(self.rows)

    async def drain(self) -> None:
        """Send the full batches, those of one queue in order."""
        full, self._full = self._full, []
        await asyncio.gather(*(self._send(*each) for each in full))

    async def finish(self) -> None:
        """Send everything that is left."""
        self._full += [(lot, messages, self._keys[lot]) for lot, messages in self._waiting.items()]
        self._waiting, self._keys = {}, {}
        await self.drain()

    async def _send(self, lot: _Lot, messages: list[Message], unique_keys: list[str]) -> None:
        queue = lot.queue
        async with self._tails.setdefault(queue, asyncio.Lock()), self._slots:
            if lot.delayed:
                await self._send_delayed(queue, messages, unique_keys)
                return
            self.requests += 1
            await self._tries.make(
                lambda: self._producer.send_batch(
                    queue.topic,
                    messages,
                    queue=queue,
                    unique_keys=unique_keys,
                    timeout_s=self._options.wire.timeout_s,
                )
            )

    async def _send_delayed(
        self, queue: MessageQueue, messages: list[Message], unique_keys: list[str]
    ) -> None:
        # Brokers take delayed messages one by one only.
        for message, key in zip(messages, unique_keys, strict=True):
            self.requests += 1
            await self._tries.make(
                functools.partial(self._producer.send, message, queue=queue, unique_key=key)
            )

    async def _queue(self, message: Message, row: Mapping[str, Any]) -> MessageQueue:
        named = row.get("brokerName") if self._options.partitioner == "queue" else None
        broker = named or self._options.broker
        placement = self._placements.get(message.topic)
        if placement is None or not placement.has(broker):
            placement = await self._tries.make(lambda: self._place(message.topic, broker))
            self._placements[message.topic] = placement
        return placement.queue(message, self._turn, named, row.get("queueId"))

    async def _place(self, topic: str, broker: str | None) -> Placement:
        """Return the queues of a topic, those of `broker` too. Raises Unreachable, Refused."""
        queues = await self._producer.queues(topic)
        placement = Placement(topic, queues, self._options.partitioner, self._options.broker)
        if not placement.has(broker):
            # It may be restarting: what is not in the route now is not gone for that.
            raise Unreachable(f"broker {broker} has no queue of topic {topic} that takes messages")
        return placement


def message_of(row: Mapping[str, Any], default_topic: str | None) -> Message:
    """Return the message that a row stands for. Raises UsageError."""
    topic = row.get("topic") or default_topic
    if not topic:
        raise UsageError("a row has no topic, and the option `topic` is not given")
    body = row.get("body")
    if not body:
        raise UsageError("a row has no body; a message needs one")
    given = row.get("keys") or ()
    delay = row.get("delay") or 0
    if not 0 <= delay <= DELAY_MAX:
        raise UsageError(f"delay {delay}: must be a level from 0 (at once) to {DELAY_MAX}")
    found: dict[str, str] = dict(row.get("properties") or ())
    if row.get("shardingKey"):
        found[properties.SHARDING_KEY] = str(row["shardingKey"])
    return Message(
        topic,
        body.encode() if isinstance(body, str) else bytes(body),
        row.get("tags") or None,
        tuple(given.split()) if isinstance(given, str) else tuple(given),
        {
            name: str(value)
            for name, value in found.items()
            # What a broker or a producer set when the message was read from a topic.
            if name not in properties.RESERVED or name == properties.SHARDING_KEY
        },
        delay_level=delay,
    )


def _tell(messages: Sequence[WriterCommitMessage | None]) -> None:
    """Say how much was sent, and whose unique keys a repeated write makes again."""
    done = [message for message in messages if isinstance(message, Written)]
    rows = sum(it.rows for it in done)
    by_plan, by_column = sum(it.by_plan for it in done), sum(it.by_column for it in done)
    log.info(
        "%d messages in %d requests; unique keys: %d by column, %d by plan, %d random",
        rows,
        sum(it.requests for it in done),
        by_column,
        by_plan,
        rows - by_plan - by_column,
    )


def _check(options: SinkOptions, schema: StructType) -> None:
    types = {field.name: field.dataType.simpleString() for field in schema.fields}
    for name, kind in types.items():
        if name not in _ALLOWED:
            if name in COLUMNS:
                # Of a message that was read: the broker that gets it sets its own.
                continue
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
