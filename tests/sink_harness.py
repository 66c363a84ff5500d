"""A transactional write as Spark drives it, without a Spark: driver, tasks, and their deaths."""

from __future__ import annotations

import contextlib
import types
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql.types import StringType, StructField, StructType

from roquet.client import TransactionProducer, TransactionState
from roquet.spark.cluster.metadata import Metadata
from roquet.spark.options import SinkOptions, SourceOptions, Wire
from roquet.spark.reading.batch import BatchReader
from roquet.spark.sink import keys
from roquet.spark.sink.release import caught_up
from roquet.spark.sink.write import StreamWriter

if TYPE_CHECKING:
    from pathlib import Path

ROWS = 40
SCHEMA = StructType([StructField("body", StringType())])


class Query:
    """A streaming query as Spark drives its sink; each object is a driver's life."""

    def __init__(self, names: str, topic: str, checkpoint: Path, patch: pytest.MonkeyPatch) -> None:
        given = {
            "nameServers": names,
            "topic": topic,
            "delivery": "transactional",
            "checkpointLocation": str(checkpoint),
            "timeoutMs": "2500",
        }
        self.writer = StreamWriter(SinkOptions.parse(given), SCHEMA)
        self._patch = patch

    def task(self, epoch: int, partition: int = 0) -> Any:
        local = {"sql.streaming.queryId": "q", "streaming.sql.batchId": str(epoch)}
        task = types.SimpleNamespace(partitionId=lambda: partition, getLocalProperty=local.get)
        self._patch.setattr(keys, "TaskContext", types.SimpleNamespace(get=lambda: task))
        bodies = [f"{epoch}/{partition}/{number:04}" for number in range(ROWS)]
        return self.writer.write(iter([pa.RecordBatch.from_pydict({"body": bodies})]))


def bodies(names: str, topic: str) -> list[str]:
    """Return the bodies of a topic, in the order of its queues."""
    wire = Wire(name_servers=(names,), unreachable_s=60.0)
    with contextlib.closing(Metadata(wire)) as metadata:
        caught_up(wire, metadata.clusters().brokers)
    given = {"nameServers": names, "subscribe": topic, "columns": "body"}
    reader = BatchReader(SourceOptions.parse(given, streaming=False))
    found = [it for part in reader.partitions() for it in reader.read(part)]
    every: list[bytes] = [body for it in found for body in it.column("body").to_pylist()]
    return [body.decode() for body in every]


def wanted(*places: tuple[int, int]) -> list[str]:
    return sorted(f"{epoch}/{part}/{n:04}" for epoch, part in places for n in range(ROWS))


class Killed(BaseException):
    """Stands for the end of the driver."""


def interrupted(  # noqa: PLR0917
    names: str,
    topic: str,
    checkpoint: Path,
    patch: pytest.MonkeyPatch,
    epoch: int,
    ends: int,
    executed: bool,
) -> int:
    """Write an epoch and die in its commit after some ends; return how many rows are seen then.

    With `executed` each queue's last end had its effect, and nobody heard of it.
    """
    before = len(bodies(names, topic))
    query = Query(names, topic, checkpoint, patch)
    part = query.task(epoch)
    real, done = TransactionProducer.end, 0

    async def end(self: TransactionProducer, *given: Any) -> None:
        nonlocal done
        done += 1
        if done > ends:
            if executed:
                await real(self, *given)
            raise Killed
        await real(self, *given)

    with patch.context() as context:
        context.setattr(TransactionProducer, "end", end)
        with pytest.raises(Killed):
            query.writer.commit([part], epoch)
    return len(bodies(names, topic)) - before


def finished(
    names: str, topic: str, checkpoint: Path, patch: pytest.MonkeyPatch, epoch: int
) -> int:
    """Repeat an epoch in a new driver; return how many half messages it committed."""
    real, committed = TransactionProducer.end, 0

    async def counted(self: TransactionProducer, *given: Any) -> None:
        nonlocal committed
        committed += given[-1] is TransactionState.COMMIT
        await real(self, *given)

    query = Query(names, topic, checkpoint, patch)
    with patch.context() as context:
        context.setattr(TransactionProducer, "end", counted)
        query.writer.commit([query.task(epoch)], epoch)
    return committed
