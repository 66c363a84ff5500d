"""Rules of streams and sinks: where a new queue begins, and whose unique keys are whose."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from roquet.client import MessageQueue
from roquet.spark import keys
from roquet.spark.offsets import Bounds, DataLoss, QueueKey, from_json
from roquet.spark.options import SinkOptions, SourceOptions
from roquet.spark.partitions import QueuePartition
from roquet.spark.stream import StreamReader
from roquet.spark.write import _Sender
from spark_metadata import Known

if TYPE_CHECKING:
    from collections.abc import Sequence

    from roquet.client import Message, Producer

OLD, NEW = QueueKey("t", "b0", 0), QueueKey("t", "b0", 1)


def stream(held: dict[QueueKey, Bounds], **options: str) -> StreamReader:
    given = {"nameServers": "a:1", "subscribe": "t", **options}
    reader = StreamReader(SourceOptions.parse(given, streaming=True))
    reader._metadata = Known(held)
    return reader


@pytest.mark.parametrize("starting", ["earliest", "latest"])
@pytest.mark.parametrize("frozen", [False, True])
def test_stream_enters_a_new_queue_at_its_first_offset_and_reads_it_next(
    starting: str, *, frozen: bool
) -> None:
    held = {OLD: Bounds(0, 10)}
    reader = stream(held, startingOffsets=starting)
    start = reader.initialOffset()
    held[NEW] = Bounds(5, 9)
    if frozen:
        reader.prepareForTriggerAvailableNow()
    end = reader.latestOffset(start, ReadAllAvailable())
    assert from_json(end) == {OLD: 10, NEW: 5}
    assert NEW not in {it.queue for it in planned(reader, start, end)}
    # What has expired by then is missed in no plan of the micro-batch that enters the queue.
    further = reader.latestOffset(end, ReadMaxRows(3))
    assert from_json(further) == {OLD: 10, NEW: 8}
    assert [(it.queue, it.begin, it.end) for it in planned(reader, end, further)] == [(NEW, 5, 8)]


def planned(reader: StreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[Any]:
    found = reader.partitions(start, end)
    return [it for part in found if isinstance(part, QueuePartition) for it in part.ranges]


def test_stream_queue_that_ends_before_its_offset_fails_or_begins_anew() -> None:
    reader = stream({OLD: Bounds(0, 10)}, startingOffsets="latest")
    start = reader.initialOffset()
    assert from_json(start) == {OLD: 10}
    reader._metadata = Known({OLD: Bounds(0, 4)})
    with pytest.raises(DataLoss, match="its end moved back"):
        reader.latestOffset(start, ReadAllAvailable())
    reader = stream({OLD: Bounds(0, 4)}, failOnDataLoss="false")
    end = reader.latestOffset(start, ReadAllAvailable())
    assert from_json(end) == {OLD: 0}
    assert from_json(reader.latestOffset(end, ReadAllAvailable())) == {OLD: 4}


class Kept:
    """A producer that keeps what it is given."""

    def __init__(self) -> None:
        self.sent: list[tuple[Sequence[Message], Sequence[str] | None]] = []

    async def queues(self, topic: str) -> list[MessageQueue]:
        return [MessageQueue(topic, "b0", number) for number in range(4)]

    async def send_batch(
        self,
        topic: str,
        messages: Sequence[Message],
        *,
        queue: MessageQueue,
        unique_keys: Sequence[str] | None,
        timeout_s: float,
    ) -> None:
        assert (topic, queue.topic) == ("t", "t")
        assert timeout_s > 0
        self.sent.append((messages, unique_keys))


def keys_of(rows: list[dict[str, Any]], run: str = "run", partition: int = 3) -> dict[bytes, str]:
    """Send rows as a task does and return the unique key of each body."""
    options = SinkOptions.parse({"nameServers": "a:1", "topic": "t", "uniqueKeys": "plan"})
    producer = Kept()

    async def send() -> None:
        sender = _Sender(options, cast("Producer", producer), keys.maker(run, partition), 0)
        for row in rows:
            await sender.add(row)
            await sender.drain()
        await sender.finish()
        assert sender.rows == len(rows)

    asyncio.run(send())
    found: dict[bytes, str] = {}
    for messages, given in producer.sent:
        assert given is not None
        found |= dict(zip((it.body for it in messages), given, strict=True))
    return found


def test_sink_gives_each_row_of_a_plan_the_key_of_its_number() -> None:
    rows: list[dict[str, Any]] = pa.table({"body": [f"m{n}" for n in range(300)]}).to_pylist()
    found = keys_of(rows)
    make = keys.maker("run", 3)
    assert found == {b"m%d" % number: make(number) for number in range(300)}
    assert len(set(found.values())) == 300
    assert keys_of(rows) == found, "a repeated task makes others"


def test_sink_counts_rows_with_a_key_of_their_own_as_well() -> None:
    rows: list[dict[str, Any]] = [{"body": "a"}, {"body": "b", "uniqKey": "theirs"}, {"body": "c"}]
    make = keys.maker("run", 3)
    assert keys_of(rows) == {b"a": make(0), b"b": "theirs", b"c": make(2)}
