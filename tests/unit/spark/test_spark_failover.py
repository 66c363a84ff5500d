"""Reading goes on at a slave when the master is killed, and at the master when it is back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.streaming.datasource import ReadMaxRows

from roquet.spark.options import SourceOptions
from roquet.spark.reading.batch import BatchReader
from roquet.spark.reading.stream import StreamReader
from spark_pair import QUEUES, ROWS, Pair, numbers, running_pair

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    with running_pair(tmp_path) as found:
        yield found


def read(reader: BatchReader | StreamReader, parts: Sequence[Any]) -> list[Any]:
    batches = [batch for part in parts for batch in reader.read(part)]
    return [body for batch in batches for body in batch.column("body").to_pylist()]


@pytest.mark.timeout(400)
def test_a_batch_goes_on_at_the_slave_and_at_the_restarted_master(pair: Pair) -> None:
    pair.fill("Orders", 0)
    given = {"nameServers": pair.names, "subscribe": "Orders", "maxBytesPerBatch": "65536"}
    reader = BatchReader(SourceOptions.parse(given, streaming=False))
    first, second = reader.partitions()
    rows = reader.read(first)
    got = [*next(rows).column("body").to_pylist()]
    assert 0 < len(got) < ROWS // QUEUES
    pair.kill_master()
    for batch in rows:
        got += batch.column("body").to_pylist()
    got += read(reader, [second])
    assert numbers(got) == list(range(ROWS))
    # Planned at the slave, read when the master is back and has more.
    parts = reader.partitions()
    pair.start_master()
    pair.fill("Orders", ROWS)
    assert numbers(read(reader, parts)) == list(range(ROWS))
    assert numbers(read(reader, reader.partitions())) == list(range(2 * ROWS))


@pytest.mark.timeout(400)
def test_a_stream_goes_on_at_the_slave_and_at_the_restarted_master(pair: Pair) -> None:
    pair.fill("Orders", 0)
    given = {"nameServers": pair.names, "subscribe": "Orders", "startingOffsets": "earliest"}
    reader = StreamReader(SourceOptions.parse(given, streaming=True))
    half: Any = ReadMaxRows(ROWS // 2)
    start = reader.initialOffset()
    offsets = [start, reader.latestOffset(start, half)]
    got = read(reader, reader.partitions(*offsets))
    assert len(got) == ROWS // 2
    pair.kill_master()
    offsets.append(reader.latestOffset(offsets[-1], half))
    got += read(reader, reader.partitions(*offsets[-2:]))
    assert numbers(got) == list(range(ROWS))
    assert reader.latestOffset(offsets[-1], half) == offsets[-1]
    pair.start_master()
    pair.fill("Orders", ROWS)
    offsets.append(reader.latestOffset(offsets[-1], reader.getDefaultReadLimit()))
    got += read(reader, reader.partitions(*offsets[-2:]))
    assert numbers(got) == list(range(2 * ROWS))
    reader.stop()
