"""Releasing and rolling back half messages, from the driver.

A commit that is sent twice makes two messages: brokers keep no list of what was committed. So
after an outcome that is not known the queues are read, from where they ended before the release,
and only what is in none of them is committed again.
"""

from __future__ import annotations

import asyncio
import json
import logging
from typing import TYPE_CHECKING, Final

from roquet.base.clock import SystemClock, pause, steady_s
from roquet.base.errors import OutcomeUnknown, Refused, Unreachable, UsageError
from roquet.client import ProducerOptions, TransactionState, connect
from roquet.spark.account import account
from roquet.spark.cluster.metadata import Metadata
from roquet.spark.options import SourceOptions, Topics
from roquet.spark.reading.batch import BatchReader
from roquet.spark.sink.decisions import Decision
from roquet.spark.sink.tries import may_again

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from roquet.client import StoredMessage, TransactionProducer
    from roquet.spark.offsets import Bounds, QueueKey
    from roquet.spark.options import SinkOptions, Wire
    from roquet.spark.sink.decisions import Decisions, Half

log = logging.getLogger(__name__)

IN_FLIGHT: Final = 64
"""Ends under way, of different queues; those of one queue follow each other."""


def commit(
    options: SinkOptions, decisions: Decisions, epoch: int, halves: Sequence[Half]
) -> tuple[int, int]:
    """Decide an epoch unless that was done, and release it; returns messages and rolled back.

    Where an earlier run has decided it, that decision is finished, and what `halves` name beside it
    is rolled back. Raises UsageError, also for rows that are not there afterwards, OSError,
    Refused, Unreachable, OutcomeUnknown: the decision stays, and the next run goes on.
    """
    known = decisions.get(epoch)
    found = known or Decision(tuple(halves), _ends(options, halves))
    if known is None:
        decisions.put(epoch, found)
    if not found.done:
        gone = asyncio.run(_release(options, found, begun=known is not None))
        again = {it.key: it for it in _beside(halves, found) if it.key in gone}
        if again:
            # Written down first: from now on these are the rows of the epoch.
            found = found._replace(halves=tuple(again.get(it.key, it) for it in found.halves))
            decisions.put(epoch, found)
            gone = asyncio.run(_release(options, found, begun=True))
        if gone:
            raise UsageError(
                f"delivery = transactional: {len(gone)} of {len(found.halves)} rows of epoch"
                f" {epoch} are not there, though they were released: brokers put half messages"
                " aside that nobody has decided on after transactionCheckMax checks. The next run"
                " writes these rows again; take less in a micro-batch"
            )
        decisions.put(epoch, found._replace(done=True))
    unwanted = _beside(halves, found)
    roll_back(options, unwanted)
    return len(found.halves), len(unwanted)


def abort(options: SinkOptions, decisions: Decisions, epoch: int, halves: Sequence[Half]) -> None:
    """Roll back what is in no decision: Spark aborts also when a commit has failed half-way.

    What was decided is finished by the next run. Raises UsageError for a damaged decision: nothing
    is rolled back then.
    """
    known = decisions.get(epoch)
    roll_back(options, halves if known is None else _beside(halves, known))


def _beside(halves: Iterable[Half], decision: Decision) -> list[Half]:
    """Return the half messages that a decision does not name."""
    chosen = {(it.broker, it.log_offset) for it in decision.halves}
    return [it for it in halves if (it.broker, it.log_offset) not in chosen]


def roll_back(options: SinkOptions, halves: Sequence[Half]) -> None:
    """Roll back; what cannot be now is when the broker gives up asking, so failures are logged."""
    failed = asyncio.run(_end_all(options, halves, TransactionState.ROLLBACK))
    if failed:
        log.warning("%d half messages are not rolled back, brokers will drop them", len(failed))


PAUSE_S: Final = 0.1


async def _release(options: SinkOptions, decision: Decision, *, begun: bool) -> frozenset[str]:
    """Commit what is not in its queue yet; `begun` when somebody may have released a part.

    Returns the unique keys of what is not there afterwards: a broker answers the end of a half
    message that is not open any more with a success, whatever has become of it.
    """
    if not decision.halves:
        return frozenset()
    clock, wire = SystemClock(), options.wire
    end_s, left = steady_s() + wire.unreachable_s, list(decision.halves)
    while True:
        if begun:
            # What is under way at a broker has to end before its queue is read.
            await clock.sleep(wire.timeout_s)
            there = await asyncio.to_thread(_released, options, decision.begins)
            left = [it for it in left if it.key not in there]
        failed = await _end_all(options, left, TransactionState.COMMIT)
        if not failed:
            return await asyncio.to_thread(_gone, options, decision)
        error = next((it for it in failed.values() if not may_again(it)), None)
        error = error or next(iter(failed.values()))
        if not may_again(error) or steady_s() >= end_s:
            raise error
        log.warning("%d half messages are not released yet: %s", len(failed), error)
        left, begun = list(failed), True


async def _end_all(
    options: SinkOptions, halves: Iterable[Half], state: TransactionState
) -> dict[Half, Refused | Unreachable | OutcomeUnknown]:
    """End half messages, those of one queue in order; returns what is not known to be ended."""
    queues: dict[tuple[str, str, int], list[Half]] = {}
    for half in halves:
        queues.setdefault((half.topic, half.broker, half.queue_id), []).append(half)
    failed: dict[Half, Refused | Unreachable | OutcomeUnknown] = {}
    slots = asyncio.Semaphore(IN_FLIGHT)
    sending = ProducerOptions(timeout_s=options.wire.timeout_s)

    async def one_queue(producer: TransactionProducer, these: list[Half]) -> None:
        async with slots:
            for number, half in enumerate(these):
                try:
                    await producer.end(
                        half.topic, half.broker, half.key, half.log_offset, half.half_offset, state
                    )
                except (Refused, Unreachable, OutcomeUnknown) as error:
                    # Those behind it wait: they stay in order.
                    failed.update(dict.fromkeys(these[number:], error))
                    return

    if not queues:
        return failed
    async with (
        connect(options.wire.url, credentials=account(options.wire)) as mq,
        mq.transaction_producer(options.group, undecided, options=sending) as producer,
    ):
        await asyncio.gather(*(one_queue(producer, these) for these in queues.values()))
    return failed


async def undecided(_: StoredMessage) -> TransactionState:
    """Leave to the decisions what a broker asks about: a commit by two ways would be two."""
    return TransactionState.UNKNOWN


def _ends(options: SinkOptions, halves: Sequence[Half]) -> dict[tuple[str, str, int], int]:
    """Return where the queues end that half messages are for. Raises Unreachable, Refused."""
    metadata = Metadata(options.wire)
    try:
        topics = tuple(sorted({it.topic for it in halves}))
        bounds: Mapping[QueueKey, Bounds] = {}
        if topics:
            bounds = metadata.view(Topics(names=topics)).bounds
    finally:
        metadata.close()
    found: dict[tuple[str, str, int], int] = {}
    queues = {(it.topic, it.broker, it.queue_id) for it in halves}
    for queue, held in bounds.items():
        place = (queue.topic, queue.broker, queue.queue_id)
        if place in queues:
            found[place] = held.high
    if missing := sorted(queues - found.keys()):
        raise Unreachable(f"queue {missing[0]} cannot be read now: nothing is released")
    return found


def caught_up(wire: Wire, brokers: Iterable[str]) -> None:
    """Wait until all that brokers have stored can be read from its queue.

    Raises Unreachable, also when that takes longer than is waited for what is away.
    """
    end_s = steady_s() + wire.unreachable_s
    metadata = Metadata(wire)
    try:
        known = metadata.clusters().brokers
        for broker in sorted(set(brokers)):
            entry = known.get(broker)
            master = None if entry is None else entry.addresses.get(0)
            if master is None:
                raise Unreachable(f"broker {broker} has no master now: nothing is released")
            while _behind(metadata, master) > 0:
                if steady_s() >= end_s:
                    raise Unreachable(f"broker {broker} does not catch up with its own log")
                pause(PAUSE_S)
    finally:
        metadata.close()


def _behind(metadata: Metadata, address: str) -> int:
    """Return how many bytes of its log a broker has not put into queues."""
    try:
        told = metadata.runtime(address)
    except Refused as error:
        log.warning("%s does not say how far its queues are: %s", address, error)
        return 0
    return int(told.get("dispatchBehindBytes", "0"))


def _gone(options: SinkOptions, decision: Decision) -> frozenset[str]:
    """Return the unique keys of a decision that are in none of its queues."""
    try:
        there = _released(options, decision.begins)
    except Refused as refused:
        # The right to send is enough for what is released.
        log.warning("nobody has looked whether all rows are there: %s", refused)
        return frozenset()
    return frozenset(it.key for it in decision.halves if it.key not in there)


def _released(options: SinkOptions, begins: dict[tuple[str, str, int], int]) -> set[str]:
    """Return the unique keys of what is in the queues behind the ends that are given."""
    caught_up(options.wire, {broker for _, broker, _ in begins})
    assign: dict[str, dict[str, list[int]]] = {}
    starting: dict[str, dict[str, dict[str, int]]] = {}
    for (topic, broker, number), offset in begins.items():
        assign.setdefault(topic, {}).setdefault(broker, []).append(number)
        starting.setdefault(topic, {}).setdefault(broker, {})[str(number)] = offset
    wire = options.wire
    given = {
        "nameServers": ";".join(wire.name_servers),
        "timeoutMs": str(int(wire.timeout_s * 1000)),
        "unreachableTimeoutMs": str(int(wire.unreachable_s * 1000)),
        "assign": json.dumps(assign),
        "startingOffsets": json.dumps(starting),
        "columns": "uniqKey",
    }
    reader = BatchReader(SourceOptions.parse(given, streaming=False))
    found: set[str] = set()
    for part in reader.partitions():
        for batch in reader.read(part):
            found.update(key for key in batch.column("uniqKey").to_pylist() if key)
    return found
