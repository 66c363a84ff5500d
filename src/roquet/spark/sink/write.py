"""Writing rows as messages, at least once: a task that Spark repeats sends its rows again.

Columns: `body` (binary or string), and if wanted `topic`, `keys` (string, or an array of them),
`tags`, `properties` (map of strings), `brokerName`, `queueId`, `shardingKey`, `uniqKey` and `delay`
(a level). Further columns of the source may be there: a broker sets them anew.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import uuid
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from roquet.base.clock import SystemClock
from roquet.base.errors import UsageError
from roquet.base.overriding import override
from roquet.client import ProducerOptions, connect
from roquet.spark.account import account
from roquet.spark.schema import COLUMNS
from roquet.spark.sink import keys, metrics
from roquet.spark.sink.decisions import HALVES_MAX, Decisions
from roquet.spark.sink.epochs import Epochs
from roquet.spark.sink.placing import first_turn
from roquet.spark.sink.release import abort, commit, roll_back, undecided
from roquet.spark.sink.sender import Sender, Sent
from roquet.spark.sink.sequenced import Epoch, SequencedSender, check_ends

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyspark.sql.types import StructType

    from roquet.client import MQ, Producer
    from roquet.spark.options import SinkOptions
    from roquet.spark.sink.decisions import Half
    from roquet.spark.sink.epochs import Begun

log = logging.getLogger(__name__)

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
class Written(Sent, WriterCommitMessage):
    """What a task has sent, for the driver."""

    run: str | None = None
    """Of an idempotent write."""


class BatchWriter(DataSourceArrowWriter):
    """Sends the rows of a DataFrame."""

    def __init__(self, options: SinkOptions, schema: StructType, *, overwrite: bool) -> None:
        """Check everything that can be known before a row is there. Raises UsageError."""
        if overwrite:
            raise UsageError("mode 'overwrite': a topic cannot be replaced; use mode 'append'")
        _check(options, schema)
        self._options = options
        if is_once(options) and not (options.run_id and options.transaction_path):
            raise UsageError(
                f"delivery = {delivery(options)}: a batch needs runId and transactionPath"
            )
        # Made once for all tasks of this write and all their tries.
        self._run = options.run_id or uuid.uuid4().hex
        self._begun = _begin(options, options.run_id)

    @override
    def write(self, iterator: Iterator[Any]) -> Written:
        if self._begun is not None:
            return write_once(self._options, iterator, self._begun, self._run)
        turn = first_turn(*keys.place_of_task(self._options, self._run))
        return write(self._options, iterator, keys.of_task(self._options, self._run), turn)

    @override
    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        _release(self._options, self._options.run_id, 0, messages)
        if self._begun is not None:
            _verify(self._options, self._begun, (self._run, 0), messages)
            _epochs(self._options, self._run).commit(0)
        _tell(self._options, messages)

    @override
    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Roll back half messages that nobody decided on; others cannot be taken back."""
        _abort(self._options, self._options.run_id, 0, messages)


class StreamWriter(DataSourceStreamArrowWriter):
    """Sends the rows of each micro-batch."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        """Check as `BatchWriter` does."""
        _check(options, schema)
        if is_once(options) and not options.transaction_path:
            raise UsageError(f"delivery = {delivery(options)}: transactionPath is needed")
        self._options = options
        self._begun = _begin(options, None)

    @override
    def write(self, iterator: Iterator[Any]) -> Written:
        if self._begun is not None:
            return write_once(self._options, iterator, self._begun, None)
        turn = first_turn(*keys.place_of_task(self._options, None))
        return write(self._options, iterator, keys.of_task(self._options, None), turn)

    @override
    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Release what was written, unless it is there already, and say how much it was."""
        _release(self._options, None, batchId, messages)
        if self._begun is not None:
            _verify(self._options, self._begun, (None, batchId), messages)
            _epochs(self._options, None).commit(batchId)
        _tell(self._options, messages)

    @override
    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Roll back half messages that nobody decided on; others cannot be taken back."""
        _abort(self._options, None, batchId, messages)


def write(
    options: SinkOptions, batches: Iterator[Any], prefix: str | None = None, turn: int = 0
) -> Written:
    """Send the rows of Arrow batches; returns once brokers have all of them.

    Unique keys are made of `prefix` and the rows' numbers; without it they are as a client makes
    them. The first batch that may go anywhere goes to the queue of `turn`.

    Raises UsageError for a row that cannot be a message, Refused, Unreachable, OutcomeUnknown.
    """
    return asyncio.run(_write(options, batches, prefix, turn))


async def _write(
    options: SinkOptions, batches: Iterator[Any], prefix: str | None, turn: int
) -> Written:
    sending = ProducerOptions(timeout_s=options.wire.timeout_s)
    async with (
        connect(options.wire.url, credentials=account(options.wire)) as mq,
        _producer(mq, options, sending) as producer,
    ):
        sender = Sender(options, producer, prefix, turn)
        for batch in batches:
            await sender.add(batch)
        await sender.finish()
        return Written(**vars(sender.sent))


def write_once(
    options: SinkOptions, batches: Iterator[Any], begun: Begun, run: str | None
) -> Written:
    """Send the rows of Arrow batches in sequence: brokers store each of them once.

    Raises UsageError also for rows that are not those of an earlier try, and as `write` does.
    """
    name, number = keys.epoch_of_task(options, run)
    epoch = Epoch(name, number, begun.of(number))

    async def work() -> Written:
        async with connect(options.wire.url, credentials=account(options.wire)) as mq:
            sender = SequencedSender(options, mq.sequences(options.group), epoch)
            for batch in batches:
                sender.add(batch)
            await sender.finish()
            return Written(**vars(sender.sent), run=name)

    return asyncio.run(work())


def is_once(options: SinkOptions) -> bool:
    """Whether each row is to come once."""
    return options.transactional or options.idempotent


def delivery(options: SinkOptions) -> str:
    """Return the value of the option `delivery` of a write that is to come once."""
    return "idempotent" if options.idempotent else "transactional"


def _epochs(options: SinkOptions, run: str | None) -> Epochs:
    return Epochs(options.transaction_path or "", run)


def _begin(options: SinkOptions, run: str | None) -> Begun | None:
    """Note when a write begins, on the driver: tasks get a copy of the writer that knows it."""
    if not options.idempotent:
        return None
    return _epochs(options, run).begin(SystemClock().now_ms())


def _verify(
    options: SinkOptions,
    begun: Begun,
    place: tuple[str | None, int],
    messages: Sequence[WriterCommitMessage | None],
) -> None:
    """Ask brokers for the rows of each queue. Raises UsageError when they are not those sent."""
    done = [it for it in messages if isinstance(it, Written)]
    run = place[0] or next((it.run for it in done if it.run), None)
    if run is None:
        return
    ends: dict[tuple[str, int], int] = {}
    for it in done:
        for queue, rows in it.ends.items():
            if queue in ends:
                raise UsageError(
                    f"delivery = idempotent: two tasks wrote to queue {queue[1]} at {queue[0]}; the"
                    " rows of a queue come from one (roquet.spark.once.by_queue)"
                )
            ends[queue] = rows
    epoch = Epoch(run, place[1], begun.of(place[1]))
    asyncio.run(check_ends(options, epoch, ends))


def _producer(mq: MQ, options: SinkOptions, sending: ProducerOptions) -> Producer:
    if options.transactional:
        return mq.transaction_producer(options.group, undecided, options=sending)
    return mq.producer(options.group, options=sending)


def _halves(messages: Sequence[WriterCommitMessage | None]) -> list[Half]:
    return [half for it in messages if isinstance(it, Written) for half in it.halves]


def _release(
    options: SinkOptions,
    run: str | None,
    epoch: int,
    messages: Sequence[WriterCommitMessage | None],
) -> None:
    if not options.transactional:
        return
    halves = _halves(messages)
    if len(halves) > HALVES_MAX:
        roll_back(options, halves)
        raise UsageError(f"delivery = transactional: more than {HALVES_MAX} rows in a write")
    kept = Decisions(options.transaction_path or "", run)
    released, dropped = commit(options, kept, epoch, halves)
    log.info("epoch %d: %d messages released, %d rolled back", epoch, released, dropped)


def _abort(
    options: SinkOptions,
    run: str | None,
    epoch: int,
    messages: Sequence[WriterCommitMessage | None],
) -> None:
    if options.transactional:
        kept = Decisions(options.transaction_path or "", run)
        abort(options, kept, epoch, _halves(messages))


def _tell(options: SinkOptions, messages: Sequence[WriterCommitMessage | None]) -> None:
    """Say how much was sent, and whose unique keys a repeated write makes again."""
    done = [message for message in messages if isinstance(message, Written)]
    rows, requests = sum(it.rows for it in done), sum(it.requests for it in done)
    by_plan, by_column = sum(it.by_plan for it in done), sum(it.by_column for it in done)
    log.info(
        "%d messages in %d requests; unique keys: %d by column, %d by plan, %d random",
        rows,
        requests,
        by_column,
        by_plan,
        rows - by_plan - by_column,
    )
    if options.metrics_path is not None:
        figures = {
            "rows_total": rows,
            "requests_total": requests,
            "retries_total": sum(it.retries for it in done),
            "bytes_total": sum(it.bytes for it in done),
            "writes_total": 1,
        }
        metrics.add(options.metrics_path, figures)


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
    if options.idempotent:
        _check_once(options, types)
    if options.partitioner == "queue" and "queueId" not in types:
        raise UsageError("partitioner `queue` needs a column `queueId`")


def _check_once(options: SinkOptions, types: Mapping[str, str]) -> None:
    if wrong := [it for it in ("topic", "uniqKey", "delay") if it in types]:
        raise UsageError(f"delivery = idempotent: there may be no column {wrong[0]!r}")
    if options.topic is None or not {"brokerName", "queueId"} <= set(types):
        raise UsageError(
            "delivery = idempotent needs the option `topic`, and rows that"
            " roquet.spark.once.by_queue has made ready (columns brokerName and queueId)"
        )
