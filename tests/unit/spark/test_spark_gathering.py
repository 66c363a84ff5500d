"""Micro-batches that wait until they are large enough."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, ReadMinRows

from roquet.spark.offsets import Bounds, DataLoss, QueueKey, from_json
from roquet.spark.options import SourceOptions
from roquet.spark.reading.stream import StreamReader
from roquet.spark.streaming.gathering import Gathering
from spark_metadata import Asked

A, B = (QueueKey("t", "b0", number) for number in range(2))


class Time:
    """Seconds, as a test sets them."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_rows_wait_for_enough_or_for_the_limit_since_they_were_seen() -> None:
    time = Time()
    gathering = Gathering(10, 60.0, time)
    assert not gathering.waits(0)
    time.now += 1000
    # Silence before does not count.
    assert gathering.waits(1)
    time.now += 59.9
    assert gathering.waits(9)
    time.now += 0.1
    assert not gathering.waits(9)
    # The time begins anew with what comes next.
    assert gathering.waits(1)
    time.now += 59
    assert not gathering.waits(10)
    assert gathering.waits(3)
    time.now += 59
    assert gathering.waits(3)


@pytest.mark.parametrize("rows", [0, 1, 10**9])
def test_nothing_waits_without_a_least_number(rows: int) -> None:
    assert not Gathering(None, 60.0).waits(rows)


def reader(known: Asked, **given: str) -> tuple[StreamReader, Time]:
    base = {"nameServers": "a:1", "subscribe": "t", "startingOffsets": "earliest"}
    more = {"minOffsetsPerTrigger": "10", "maxTriggerDelay": "60s"}
    found = StreamReader(SourceOptions.parse({**base, **more, **given}, streaming=True))
    found._metadata = known
    time = Time()
    found._gathering = Gathering(10, 60.0, time)
    return found, time


def test_stream_stays_where_it_is_until_enough_is_there_or_the_delay_is_over() -> None:
    known = Asked({A: Bounds(2, 6), B: Bounds(0, 0)})
    stream, time = reader(known)
    limit = stream.getDefaultReadLimit()
    assert limit == ReadMinRows(10)
    start = stream.initialOffset()
    # What expired is no message: four are there.
    assert stream.latestOffset(start, limit) is start
    known.held[B] = Bounds(0, 5)
    assert stream.latestOffset(start, limit) is start
    known.held[B] = Bounds(0, 6)
    full = stream.latestOffset(start, limit)
    assert from_json(full) == {A: 6, B: 6}
    known.held[A] = Bounds(2, 7)
    assert stream.latestOffset(full, limit) is full
    time.now += 60
    assert from_json(stream.latestOffset(full, limit)) == {A: 7, B: 6}


def test_most_and_least_offsets_hold_together() -> None:
    known = Asked({A: Bounds(0, 9)})
    stream, _ = reader(known, maxOffsetsPerTrigger="12")
    limit = stream.getDefaultReadLimit()
    assert limit == ReadMaxRows(12)
    start = stream.initialOffset()
    assert stream.latestOffset(start, limit) is start
    known.held[A] = Bounds(0, 30)
    end = stream.latestOffset(start, limit)
    assert from_json(end) == {A: 12}
    # 18 are left, and then 6, which wait.
    end = stream.latestOffset(end, limit)
    assert from_json(end) == {A: 24}
    assert stream.latestOffset(end, limit) is end


def test_what_has_an_end_waits_for_nothing() -> None:
    known = Asked({A: Bounds(0, 3)})
    stream, _ = reader(known)
    start: Any = stream.initialOffset()
    assert from_json(stream.latestOffset(start, ReadAllAvailable())) == {A: 3}
    stream, _ = reader(known)
    stream.prepareForTriggerAvailableNow()
    assert from_json(stream.latestOffset(start, stream.getDefaultReadLimit())) == {A: 3}


def test_new_queues_and_lost_messages_are_not_put_off() -> None:
    known = Asked({A: Bounds(0, 3)})
    stream, _ = reader(known)
    start = stream.initialOffset()
    known.held = {B: Bounds(0, 3)}
    with pytest.raises(DataLoss, match="is gone"):
        stream.latestOffset(start, stream.getDefaultReadLimit())
    known.held = {A: Bounds(0, 3), B: Bounds(0, 7)}
    # Seven of a queue that nobody has entered yet count.
    end = stream.latestOffset(start, stream.getDefaultReadLimit())
    assert from_json(end) == {A: 3, B: 0}
