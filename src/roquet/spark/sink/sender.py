"""Sending the rows of a task: encoded by the core, several requests at a time, tried again."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import os
import uuid
from array import array
from typing import TYPE_CHECKING, Any, Final, cast

import pyarrow as pa
import pyarrow.compute as pc

from roquet import _native as native
from roquet.base.clock import SystemClock, steady_s
from roquet.base.errors import Unreachable, UsageError
from roquet.client import Encoded, ProducerOptions
from roquet.protocol import properties
from roquet.protocol.messages import batch, compression
from roquet.protocol.messages.message_id import UniqueIds, parse_offset_id
from roquet.spark.sink.columns import LEFT_OUT, SIZE_MAX, columns_of, encode
from roquet.spark.sink.decisions import HALVES_MAX, Half
from roquet.spark.sink.placing import Placement
from roquet.spark.sink.routing import BATCH_ROWS, Routing
from roquet.spark.sink.tries import Tries

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from roquet.base.clock import Clock
    from roquet.client import MessageQueue, Producer, TransactionProducer
    from roquet.spark.options import SinkOptions
    from roquet.spark.sink.columns import Columns, Frame

IN_FLIGHT: Final = 8
"""Requests of a task that wait for an answer."""
HALVES_IN_FLIGHT: Final = 64
"""Half messages of a task that wait for an answer."""
OPEN_BYTES_MAX: Final = 64 * 1024 * 1024
"""Bytes of requests that are not full; above it all of them are sent."""
_CLIENT: Final = ProducerOptions()


@dataclasses.dataclass
class Sent:
    """What a task has sent."""

    rows: int = 0
    requests: int = 0
    by_plan: int = 0
    """Rows whose unique key a repeated task makes again."""
    by_column: int = 0
    """Rows whose unique key is theirs."""
    retries: int = 0
    """Requests that were sent once more."""
    bytes: int = 0
    """Of the bodies of requests, each counted once."""
    halves: list[Half] = dataclasses.field(default_factory=list["Half"])
    """Of a transactional write: what is to be released, in the order of each queue."""
    ends: dict[tuple[str, int], int] = dataclasses.field(default_factory=dict[tuple[str, int], int])
    """Of an idempotent write: broker and queue -> rows that it has of this epoch."""


class Pace:
    """Holds rows back so that no more than a number of them go in a second."""

    def __init__(
        self, rows_per_s: int | None, clock: Clock, now: Callable[[], float] = steady_s
    ) -> None:
        """Take the limit; None: there is none."""
        self._rows_per_s = rows_per_s
        self._clock = clock
        self._now = now
        self._free_at = now()

    async def wait(self, rows: int) -> None:
        """Return when `rows` more may go: what was not used earlier is not made up for."""
        if self._rows_per_s is None:
            return
        now = self._now()
        begin = max(now, self._free_at)
        self._free_at = begin + rows / self._rows_per_s
        if begin > now:
            await self._clock.sleep(begin - now)


class Sender:
    """Gathers rows by queue and sends full batches, several at a time."""

    def __init__(
        self, options: SinkOptions, producer: Producer, prefix: str | None, turn: int = 0
    ) -> None:
        """Make keys of `prefix` and the number of the row; without it they are random."""
        self._options = options
        self._producer = producer
        self._clock = SystemClock()
        self._random = prefix is None
        self._halves = options.transactional
        self._ids = UniqueIds(uuid.uuid4().bytes[:4], os.getpid(), uuid.uuid4().int & 0xFFFFFFFF)
        self._encoder = native.SinkEncoder(
            prefix or "",
            LEFT_OUT,
            size_max=SIZE_MAX,
            chunk_rows=BATCH_ROWS,
            alone=self._halves,
        )
        self._routing = Routing(options, turn, alone=self._halves)
        self._tries = Tries(options.wire, self._clock)
        self._pace = Pace(options.rows_per_s, self._clock)
        self._placements: dict[str, Placement] = {}
        self._slots = asyncio.Semaphore(IN_FLIGHT)
        self._half_slots = asyncio.Semaphore(HALVES_IN_FLIGHT)
        self._tails: dict[MessageQueue, asyncio.Lock] = {}
        self._sent = Sent()

    @property
    def sent(self) -> Sent:
        """What was sent so far."""
        return dataclasses.replace(self._sent, retries=self._tries.again)

    async def add(self, given: Any) -> None:
        """Take the rows of an Arrow batch, and send the requests that became full.

        Raises UsageError for a row that cannot be a message, Refused, Unreachable, OutcomeUnknown.
        """
        columns = columns_of(given)
        topics = columns.topics(self._options.topic)
        if self._halves:
            self._check_halves(columns)
        delays = columns.delays(_CLIENT.delay_levels)
        await self._place(columns, set(topics))
        spread = delays or [0] * columns.rows
        lots = self._routing.lots_of(columns, topics, spread, self._placements)
        levels = None if delays is None else memoryview(array("i", delays)).cast("B")
        full = encode(
            self._encoder, columns, memoryview(lots).cast("B"), levels, self._keys(columns)
        )
        self._sent.rows += columns.rows
        await self._send_all(full)
        if self._encoder.bytes > OPEN_BYTES_MAX:
            await self.finish()

    async def finish(self) -> None:
        """Send everything that is left."""
        await self._send_all(self._encoder.finish())

    # --- inside ------------------------------------------------------------------------------

    def _check_halves(self, columns: Columns) -> None:
        """Raise UsageError for what a transactional write cannot have."""
        for name in ("uniqKey", "delay"):
            if name in columns.arrays:
                raise UsageError(f"delivery = transactional: there may be no column {name!r}")
        if self._sent.rows + columns.rows > HALVES_MAX:
            raise UsageError(
                f"delivery = transactional: more than {HALVES_MAX} rows in a task; take less in a"
                " micro-batch (maxOffsetsPerTrigger)"
            )

    def _keys(self, columns: Columns) -> Any:
        """Return the array of the keys that rows have, or get at random; None: all by the plan."""
        column = columns.arrays.get("uniqKey")
        has = (
            None if column is None else pc.fill_null(pc.greater(pc.binary_length(column), 0), False)
        )
        own = 0 if has is None else pc.sum(has).as_py() or 0
        self._sent.by_column += own
        if not self._random:
            self._sent.by_plan += columns.rows - own
            return column
        now_ms = self._clock.now_ms()
        made = pa.array([self._ids.make(now_ms) for _ in range(columns.rows)], pa.string())
        return made if has is None else pc.if_else(has, column, made)

    async def _place(self, columns: Columns, topics: set[str]) -> None:
        """Learn the queues of topics, those of the brokers that rows name too."""
        brokers = {self._options.broker}
        if self._options.partitioner == "queue":
            brokers |= {it or self._options.broker for it in columns.values("brokerName")}
        for topic in sorted(topics):
            for broker in sorted(brokers, key=str):
                placement = self._placements.get(topic)
                if placement is None or not placement.has(broker):
                    find = functools.partial(self._found, topic, broker)
                    self._placements[topic] = await self._tries.make(find)

    async def _found(self, topic: str, broker: str | None) -> Placement:
        """Return the queues of a topic, those of `broker` too. Raises Unreachable, Refused."""
        queues = await self._producer.queues(topic)
        placement = Placement(topic, queues, self._options.broker)
        if not placement.has(broker):
            # It may be restarting: what is not in the route now is not gone for that.
            raise Unreachable(f"broker {broker} has no queue of topic {topic} that takes messages")
        return placement

    async def _send_all(self, frames: Sequence[Frame]) -> None:
        """Send frames, those of one queue in order."""
        await asyncio.gather(*(self._send(*frame) for frame in frames))

    async def _send(self, number: int, body: bytes, rows: int, first_key: str) -> None:
        queue, alone = self._routing.lots[number]
        async with self._tails.setdefault(queue, asyncio.Lock()), self._slots:
            if self._halves:
                await self._send_halves(queue, body)
                return
            if alone:
                for _, one, written in batch.decode(body):
                    await self._request(queue, single(queue.topic, one, written.decode()), 1)
                return
            text = properties.write({properties.UNIQ_KEY: first_key})
            encoded = Encoded(queue.topic, body, text, (first_key,), is_batch=True)
            await self._request(queue, encoded, rows)

    async def _send_halves(self, queue: MessageQueue, body: bytes) -> None:
        """Send half messages, many at a time: it is their release that has an order."""

        async def send(one: bytes, text: str) -> Half:
            encoded = single(queue.topic, one, text)
            async with self._half_slots:
                await self._pace.wait(1)
                self._sent.requests += 1
                self._sent.bytes += len(encoded.body)
                producer = cast("TransactionProducer", self._producer)
                receipt = await self._tries.make(
                    lambda: producer.send_half(
                        encoded, queue=queue, timeout_s=self._options.wire.timeout_s
                    )
                )
            _, log_offset = parse_offset_id(receipt.offset_id)
            place = (queue.topic, queue.broker_name, queue.queue_id)
            return Half(*place, log_offset, receipt.queue_offset, encoded.message_ids[0])

        sends = (send(one, text.decode()) for _, one, text in batch.decode(body))
        self._sent.halves += await asyncio.gather(*sends)

    async def _request(self, queue: MessageQueue, encoded: Encoded, rows: int) -> None:
        await self._pace.wait(rows)
        self._sent.requests += 1
        self._sent.bytes += len(encoded.body)
        await self._tries.make(
            lambda: self._producer.send_encoded(
                encoded, queue=queue, timeout_s=self._options.wire.timeout_s
            )
        )


def single(topic: str, body: bytes, text: str) -> Encoded:
    """Return a message that is sent by itself, compressed as the client does. Pure."""
    key = properties.read(text)[properties.UNIQ_KEY]
    flag = 0
    if len(body) >= _CLIENT.compress_over:
        packed = compression.compress(body, _CLIENT.compression, _CLIENT.compression_level)
        if len(packed) < len(body):
            body, flag = packed, _CLIENT.compression.flag
    return Encoded(topic, body, text, (key,), flag)
