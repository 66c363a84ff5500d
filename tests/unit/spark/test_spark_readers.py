"""Source and sink as plain objects over a real broker: limits of batches, what the log says."""

from __future__ import annotations

import asyncio
import logging
import time
import types
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.types import StringType, StructField, StructType

import roquet
from remoting_harness import on_loop
from roquet.client import Message, MessageQueue
from roquet.spark.cluster.metadata import Metadata
from roquet.spark.options import SinkOptions, SourceOptions
from roquet.spark.reading.batch import BatchReader
from roquet.spark.sink import keys
from roquet.spark.sink.write import BatchWriter, write
from roquet.testing.cluster import cluster
from spark_world import World

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pa: Any = pytest.importorskip("pyarrow")
TOPIC = "Orders"
MIB = 1 << 20


async def fill(names: str, bodies: list[bytes], at_once: int) -> None:
    """Make the topic with one queue and put bodies into it, compressed where that is worth it."""
    async with roquet.connect(names) as mq, mq.producer("p") as producer:
        await mq.admin().topics.create(TOPIC, queues=1)
        queue = MessageQueue(TOPIC, "broker-a", 0)
        for at in range(0, len(bodies), at_once):
            made = [Message(TOPIC, body) for body in bodies[at : at + at_once]]
            if at_once == 1:
                # Java's batches carry plain bodies; a single message may be compressed.
                await producer.send(made[0], queue=queue)
            else:
                await producer.send_batch(TOPIC, made, queue=queue)
    await asyncio.to_thread(until_shown, names, len(bodies))


def until_shown(names: str, count: int) -> None:
    """Wait until the queue has as many: a send is answered before it is dispatched."""
    options = SourceOptions.parse({"nameServers": names, "subscribe": TOPIC}, streaming=False)
    metadata = Metadata(options.wire)
    try:
        end = time.monotonic() + 60
        while sum(it.high for it in metadata.view(options.topics).bounds.values()) < count:
            assert time.monotonic() < end
            time.sleep(0.02)
    finally:
        metadata.close()


def read(names: str, **options: str) -> list[Any]:
    """Plan and read the one queue as driver and task do; return its batches."""
    given = {"nameServers": names, "subscribe": TOPIC, **options}
    reader = BatchReader(SourceOptions.parse(given, streaming=False))
    (part,) = reader.partitions()
    return list(reader.read(part))


def bodies_of(batches: list[Any]) -> list[bytes]:
    return [body for batch in batches for body in batch.column("body").to_pylist()]


@on_loop
async def test_batches_of_small_bodies_are_large(tmp_path: Path) -> None:
    bodies = [b"%d" % number for number in range(20_000)]
    async with cluster(tmp_path, mappedFileSizeCommitLog="8388608") as it:
        await fill(it.name_servers, bodies, 500)
        batches = await asyncio.to_thread(read, it.name_servers, columns="body")
    assert bodies_of(batches) == bodies
    # A small batch costs Spark more than its rows do: only the last one may be short.
    assert len(batches) > 1
    assert all(1024 <= batch.num_rows <= 16_384 for batch in batches[:-1])


@on_loop
async def test_bodies_that_grow_when_unpacked_stay_within_the_bytes_of_a_batch(
    tmp_path: Path,
) -> None:
    bodies = [bytes([number]) * 300_000 for number in range(30)]
    async with cluster(tmp_path) as it:
        await fill(it.name_servers, bodies, 1)
        given = {"columns": "storeSize,body", "maxBytesPerBatch": str(MIB)}
        batches = await asyncio.to_thread(read, it.name_servers, **given)
    assert bodies_of(batches) == bodies
    stored = [size for batch in batches for size in batch.column("storeSize").to_pylist()]
    assert max(stored) < 10_000, "nothing was compressed"
    # A batch ends with the row that reaches the limit.
    assert all(batch.nbytes < MIB + len(bodies[0]) + 1000 for batch in batches)
    assert len(batches) == 8


def test_sink_rides_over_a_restart_of_its_broker(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.start()
    try:
        world.fill(TOPIC, 0, queues=1)
        given = {"nameServers": world.name_servers, "topic": TOPIC, "brokerName": "broker-b"}
        few = {"fetchOffset.numRetries": "1", "timeoutMs": "1000"}

        def rows() -> Iterator[Any]:
            for at in (0, 300):
                if at:
                    world.stop_broker("broker-b")
                    world.start_later("broker-b", 2.0)
                made = [f"{number}" for number in range(at, at + 300)]
                yield pa.RecordBatch.from_pydict({"body": made})

        write(SinkOptions.parse({**given, **few}), rows())
        given = {"nameServers": world.name_servers, "subscribe": TOPIC}
        reader = BatchReader(SourceOptions.parse(given, streaming=False))
        batches = [it for part in reader.partitions() for it in reader.read(part)]
    finally:
        world.stop()
    assert sorted(map(int, bodies_of(batches))) == list(range(600))
    assert {name for it in batches for name in it.column("brokerName").to_pylist()} == {"broker-b"}


@pytest.mark.parametrize(
    ("columns", "options", "counts"),
    [
        (("body",), {"uniqueKeys": "random"}, "0 by column, 0 by plan, 600 random"),
        (("body",), {}, "0 by column, 600 by plan, 0 random"),
        (("body", "uniqKey"), {}, "600 by column, 0 by plan, 0 random"),
    ],
)
@on_loop
async def test_a_write_says_whose_keys_a_second_try_makes_again(  # noqa: PLR0917
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    columns: tuple[str, ...],
    options: dict[str, str],
    counts: str,
) -> None:
    schema = StructType([StructField(name, StringType()) for name in columns])
    values = {name: [f"{name} {number}" for number in range(300)] for name in columns}
    task = types.SimpleNamespace(partitionId=lambda: 0, getLocalProperty=lambda _: None)
    monkeypatch.setattr(keys, "TaskContext", types.SimpleNamespace(get=lambda: task))
    async with cluster(tmp_path) as it:
        await fill(it.name_servers, [], 1)
        given = {"nameServers": it.name_servers, "topic": TOPIC, **options}
        writer = BatchWriter(
            SinkOptions.parse(
                given,
            ),
            schema,
            overwrite=False,
        )

        def task_writes() -> Any:
            return writer.write(iter([pa.RecordBatch.from_pydict(values)]))

        written = [await asyncio.to_thread(task_writes) for _ in range(2)]
        await asyncio.to_thread(until_shown, it.name_servers, 600)
        found = bodies_of(await asyncio.to_thread(read, it.name_servers, columns="body"))
    with caplog.at_level(logging.INFO, "roquet.spark.sink.write"):
        # Spark gives None for a task that it does not know the end of.
        writer.commit([*written, None])
    said = [it.getMessage() for it in caplog.records if it.name == "roquet.spark.sink.write"]
    assert said == [f"600 messages in 4 requests; unique keys: {counts}"]
    assert sorted(found) == sorted(value.encode() for value in values["body"] * 2)
