"""Sending the rows of a task in sequence: brokers of ours store each of them once.

A queue's rows are numbered from 0 in each epoch. A repeated task has to give each row the number
that it had: so all rows of a queue come from one task (`roquet.spark.once.by_queue`), which sorts
them by their content before it numbers them. How tasks and partitions were cut does not matter.
Rows that are not the same as before are noticed by their chain, and fail the write.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from array import array
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from roquet import _native as native
from roquet.base.clock import SystemClock
from roquet.base.errors import Refused, UsageError
from roquet.client import SequencedPart, connect
from roquet.model.queue import MessageQueue
from roquet.protocol.codes import ResponseCode
from roquet.protocol.messages import batch
from roquet.protocol.messages.sequences import START, chain
from roquet.spark.account import account
from roquet.spark.sink.columns import LEFT_OUT, SIZE_MAX, columns_of, encode
from roquet.spark.sink.epochs import kept_queues
from roquet.spark.sink.routing import BATCH_ROWS
from roquet.spark.sink.sender import Pace, Sent
from roquet.spark.sink.tries import Tries

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from roquet.client import Known, Sequences
    from roquet.spark.options import SinkOptions
    from roquet.spark.sink.columns import Frame

BYTES_MAX: Final = 512 * 1024 * 1024
"""Arrow bytes of a task: it holds all of its rows until they are sorted."""
QUEUES_AT_ONCE: Final = 8
CLOCKS_MS: Final = 60_000
"""How far the clocks of driver and broker may differ."""
_SORTED_BY: Final = ("body", "tags", "keys", "shardingKey", "properties")


class Epoch(NamedTuple):
    """Which write this is."""

    run: str
    number: int
    started_ms: int
    """When its first try began, by the driver's clock."""

    @property
    def producer(self) -> str:
        """How brokers know the run."""
        return hashlib.sha256(self.run.encode()).hexdigest()[:24]

    def prefix(self, queue: MessageQueue) -> str:
        """Return what the unique keys of a queue's rows begin with."""
        return f"{self.run}/{self.number}/{queue.topic}/{queue.broker_name}/{queue.queue_id}/"


class SequencedSender:
    """Gathers the rows of a task, then sends those of each queue in sequence."""

    def __init__(self, options: SinkOptions, sequences: Sequences, epoch: Epoch) -> None:
        self._options = options
        self._sequences = sequences
        self._epoch = epoch
        clock = SystemClock()
        self._tries = Tries(options.wire, clock)
        self._pace = Pace(options.rows_per_s, clock)
        self._slots = asyncio.Semaphore(QUEUES_AT_ONCE)
        self._given: list[Any] = []
        self._bytes = 0
        self.sent = Sent()

    def add(self, given: Any) -> None:
        """Take the rows of an Arrow batch. Raises UsageError when the task has too many."""
        self._bytes += given.nbytes
        if self._bytes > BYTES_MAX:
            raise UsageError(
                f"delivery = idempotent: a task has more than {BYTES_MAX >> 20} MiB; take less in a"
                " micro-batch (maxOffsetsPerTrigger), or a topic of more queues"
            )
        if given.num_rows:
            self._given.append(given)

    async def finish(self) -> None:
        """Send everything. Raises UsageError, Refused, Unreachable, OutcomeUnknown."""
        if not self._given:
            return
        table = pa.Table.from_batches(self._given)
        self._given = []
        for name in ("brokerName", "queueId"):
            if table.column(name).null_count:
                raise UsageError(f"delivery = idempotent: a row has no {name}")
        table = table.take(pc.sort_indices(_keys(table), sort_keys=_ORDER)).combine_chunks()
        places = zip(
            table.column("brokerName").to_pylist(), table.column("queueId").to_pylist(), strict=True
        )
        rows: dict[tuple[str, int], array[int]] = {}
        for row, place in enumerate(places):
            rows.setdefault(place, array("q")).append(row)
        try:
            async with asyncio.TaskGroup() as tasks:
                for (broker, queue_id), numbers in rows.items():
                    queue = MessageQueue(self._options.topic or "", broker, queue_id)
                    part = table.take(pa.array(numbers, pa.int64()))
                    tasks.create_task(self._send_queue(queue, part))
        except BaseExceptionGroup as group:
            # Spark shows the text of one error.
            raise group.exceptions[0] from group
        self.sent.retries = self._tries.again

    # --- inside ------------------------------------------------------------------------------

    async def _send_queue(self, queue: MessageQueue, rows: Any) -> None:
        async with self._slots:
            known = await known_of(self._sequences, self._tries, queue, self._epoch, self._options)
            first, before = 0, START
            for _, body, count, _ in _frames(self._epoch.prefix(queue), rows):
                links = chain(before, batch.decode(body))
                self._compare(queue, known.next, known.chain, first, links)
                part = SequencedPart(
                    queue.topic, body, self._epoch.producer, self._epoch.number, first, before
                )
                first, before = first + count, links[-1]
                if first > known.next:
                    known = await self._send(queue, part, count, known)
                    self._compare(queue, known.next, known.chain, part.first, links)
            if known.next > first:
                raise UsageError(
                    f"{_named(queue)} has {known.next} rows of epoch {self._epoch.number}, and"
                    f" there are {first} now: an earlier try had others"
                )
            self.sent.rows += first
            self.sent.by_plan += first
            self.sent.ends[queue.broker_name, queue.queue_id] = first

    async def _send(
        self, queue: MessageQueue, part: SequencedPart, count: int, known: Known
    ) -> Known:
        await self._pace.wait(count)
        self.sent.requests += 1
        self.sent.bytes += len(part.body)
        try:
            done = await self._tries.make(
                lambda: self._sequences.send(part, queue, self._options.wire.timeout_s)
            )
        except Refused as refused:
            raise _explained(refused, queue) from refused
        return known._replace(next=done.next, chain=done.chain)

    def _compare(
        self, queue: MessageQueue, number: int, link: bytes, first: int, links: Sequence[bytes]
    ) -> None:
        """Raise UsageError when what is stored up to `number` was made of other rows."""
        if first < number <= first + len(links) and links[number - 1 - first] != link:
            raise UsageError(
                f"{_named(queue)} has other rows of epoch {self._epoch.number}: a repeated task has"
                " to give the same ones (no random values, no time of day), and all of a queue"
                " (roquet.spark.once.by_queue)"
            )


async def known_of(
    sequences: Sequences,
    tries: Tries,
    queue: MessageQueue,
    epoch: Epoch,
    options: SinkOptions,
) -> Known:
    """Return how far an epoch has come in a queue. Raises UsageError when that can't be known."""
    try:
        known = await tries.make(
            lambda: sequences.known(queue, epoch.producer, options.wire.timeout_s)
        )
    except Refused as refused:
        raise _explained(refused, queue) from refused
    if known.epoch > epoch.number:
        raise UsageError(
            f"{_named(queue)} has rows of epoch {known.epoch} already: epoch {epoch.number} of run"
            f" {epoch.run} is over"
        )
    if epoch.started_ms + CLOCKS_MS < known.since_ms:
        raise UsageError(
            f"epoch {epoch.number} of run {epoch.run} began so long ago that {queue.broker_name}"
            " may have forgotten what it has written: nothing is sent"
        )
    return known if known.epoch == epoch.number else known._replace(next=0, chain=START)


async def check_ends(
    options: SinkOptions, epoch: Epoch, ends: Mapping[tuple[str, int], int]
) -> None:
    """Compare the rows of an epoch with what brokers have, in queues without rows, too.

    Raises UsageError, Refused, Unreachable, OutcomeUnknown.
    """
    topic = options.topic or ""
    kept = kept_queues(options.transaction_path or "", topic) or []
    places = sorted({(it.broker_name, it.queue_id) for it in kept} | set(ends))
    tries = Tries(options.wire, SystemClock())
    async with connect(options.wire.url, credentials=account(options.wire)) as mq:
        sequences = mq.sequences(options.group)
        for broker, queue_id in places:
            queue = MessageQueue(topic, broker, queue_id)
            known = await known_of(sequences, tries, queue, epoch, options)
            if known.next != ends.get((broker, queue_id), 0):
                raise UsageError(
                    f"{_named(queue)} has {known.next} rows of epoch {epoch.number}, and the tasks"
                    f" gave {ends.get((broker, queue_id), 0)}"
                )


def _explained(refused: Refused, queue: MessageQueue) -> Exception:
    if refused.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
        return UsageError(
            f"delivery = idempotent: broker {queue.broker_name} does not take messages in sequence,"
            " which brokers of Roquet do; delivery = transactional works with every broker"
        )
    if refused.code == ResponseCode.ILLEGAL_OPERATION:
        return UsageError(f"{_named(queue)}: {refused.remark}")
    return refused


def _named(queue: MessageQueue) -> str:
    return f"queue {queue.queue_id} of topic {queue.topic} at {queue.broker_name}"


_ORDER: Final = [(name, "ascending") for name in _SORTED_BY]


def _keys(table: Any) -> Any:
    """Return the columns by which rows are sorted: equal rows are equal in all of them."""
    rows, arrays = table.num_rows, {}
    for name in _SORTED_BY:
        if name not in table.column_names:
            arrays[name] = pa.array([""] * rows)
            continue
        column = table.column(name).combine_chunks()
        if pa.types.is_map(column.type):
            texts = (None if it is None else json.dumps(sorted(it)) for it in column.to_pylist())
            arrays[name] = pa.array(list(texts), pa.string())
        elif pa.types.is_list(column.type):
            arrays[name] = pc.binary_join(column, " ")
        else:
            arrays[name] = column
    return pa.table(arrays)


def _frames(prefix: str, rows: Any) -> list[Frame]:
    """Return the bodies of requests, in order, and the rows in each."""
    encoder = native.SinkEncoder(
        prefix, LEFT_OUT, size_max=SIZE_MAX, chunk_rows=BATCH_ROWS, alone=False
    )
    frames: list[Frame] = []
    for part in rows.drop_columns(["brokerName", "queueId"]).to_batches():
        columns = columns_of(part)
        lots = memoryview(array("i", bytes(4 * columns.rows))).cast("B")
        frames += encode(encoder, columns, lots, None, None)
    return [*frames, *encoder.finish()]
