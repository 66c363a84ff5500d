"""Rules of streams and sinks: where a new queue begins, and whose unique keys are whose."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from pyspark.sql.types import StringType, StructField, StructType

from roquet import _native as native
from roquet.client import MessageQueue
from roquet.protocol import properties
from roquet.protocol.messages import batch
from roquet.spark.offsets import Bounds, DataLoss, QueueKey, from_json
from roquet.spark.options import SinkOptions, SourceOptions
from roquet.spark.reading.partitions import QueuePartition
from roquet.spark.reading.stream import StreamReader
from roquet.spark.sink import keys
from roquet.spark.sink.sender import Pace, Sender
from roquet.spark.sink.write import StreamWriter, Written
from spark_metadata import Known

if TYPE_CHECKING:
    from pathlib import Path

    from roquet.client import Encoded, Producer

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
        self.sent: list[Encoded] = []

    async def queues(self, topic: str) -> list[MessageQueue]:
        return [MessageQueue(topic, "b0", number) for number in range(4)]

    async def send_encoded(
        self, encoded: Encoded, *, queue: MessageQueue, timeout_s: float
    ) -> None:
        assert (encoded.topic, queue.topic) == ("t", "t")
        assert timeout_s > 0
        self.sent.append(encoded)


def keys_of(columns: dict[str, list[Any]], prefix: str | None) -> dict[bytes, str]:
    """Send rows as a task does and return the unique key of each body."""
    options = SinkOptions.parse({"nameServers": "a:1", "topic": "t"})
    producer = Kept()

    async def send() -> None:
        sender = Sender(options, cast("Producer", producer), prefix, 0)
        whole = pa.RecordBatch.from_pydict(columns)
        for at in range(whole.num_rows):
            await sender.add(whole.slice(at, 1))
        await sender.finish()
        assert sender.sent.rows == whole.num_rows

    asyncio.run(send())
    return {
        body: properties.read(text)[properties.UNIQ_KEY]
        for encoded in producer.sent
        for _, body, text in batch.decode(encoded.body)
    }


def test_sink_gives_each_row_of_a_plan_the_key_of_its_number() -> None:
    rows = {"body": [f"m{n}" for n in range(300)]}
    prefix = keys.prefix("run", 3)
    found = keys_of(rows, prefix)
    assert found == {b"m%d" % number: native.sink_key(prefix, number) for number in range(300)}
    assert len(set(found.values())) == 300
    assert keys_of(rows, prefix) == found, "a repeated task makes others"


def test_sink_counts_rows_with_a_key_of_their_own_as_well() -> None:
    rows: dict[str, list[Any]] = {"body": ["a", "b", "c"], "uniqKey": [None, "theirs", ""]}
    make = [native.sink_key(keys.prefix("run", 3), number) for number in range(3)]
    assert keys_of(rows, keys.prefix("run", 3)) == {b"a": make[0], b"b": "theirs", b"c": make[2]}


def test_sink_random_keys_differ_and_those_of_rows_stay() -> None:
    rows: dict[str, list[Any]] = {"body": ["a", "b", "c"], "uniqKey": [None, "theirs", ""]}
    one, other = keys_of(rows, None), keys_of(rows, None)
    assert one[b"b"] == other[b"b"] == "theirs"
    assert len({one[b"a"], one[b"c"], other[b"a"], other[b"c"]}) == 4
    assert all(len(found[body]) == 32 for found in (one, other) for body in (b"a", b"c"))


class Sleeper:
    """A clock whose sleeps take no time and are kept."""

    def __init__(self) -> None:
        self.at_s = 0.0
        self.slept: list[float] = []

    def now_ms(self) -> int:
        return int(self.at_s * 1000)

    def steady_ms(self) -> int:
        return self.now_ms()

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.at_s += seconds


def test_pace_holds_back_what_is_beyond_the_rate() -> None:
    clock = Sleeper()
    options = SinkOptions.parse({"nameServers": "a:1", "topic": "t", "maxRowsPerSecond": "100"})
    pace = Pace(options.rows_per_s, clock, lambda: clock.at_s)

    async def go() -> None:
        for rows in (50, 25, 1):
            await pace.wait(rows)
        clock.at_s += 10.0
        await pace.wait(100)
        await pace.wait(1)
        await Pace(None, clock).wait(10**9)

    asyncio.run(go())
    assert clock.slept == pytest.approx([0.5, 0.25, 1.0])


def test_metrics_of_a_write_are_added_to_what_earlier_ones_wrote(tmp_path: Path) -> None:
    given = {"nameServers": "a:1", "topic": "t", "metricsPath": str(tmp_path / "m")}
    schema = StructType([StructField("body", StringType())])
    for batch_id in range(2):
        # Spark makes a new writer for each micro-batch.
        writer = StreamWriter(SinkOptions.parse(given), schema)
        writer.commit([Written(5, 2, retries=1, bytes=70), None, Written(1, 1, bytes=7)], batch_id)
    page = (tmp_path / "m/sink.prom").read_text()
    for line in ("rows_total 12", "requests_total 6", "retries_total 2", "bytes_total 154"):
        assert f"\nroquet_spark_sink_{line}\n" in page
    assert page.endswith("roquet_spark_sink_writes_total 2\n")


def test_metrics_a_disk_that_refuses_fails_no_write(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    given = {"nameServers": "a:1", "topic": "t", "metricsPath": str(tmp_path / "file" / "m")}
    schema = StructType([StructField("body", StringType())])
    StreamWriter(SinkOptions.parse(given), schema).commit([Written(5, 2)], 0)
    assert (tmp_path / "file").read_text() == ""
