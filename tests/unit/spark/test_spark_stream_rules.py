"""What a stream keeps in its offsets, what it asks for, and what it says of brokers and queues."""

from __future__ import annotations

import itertools
import json
import pickle
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows

from roquet.base.errors import Unreachable, UsageError
from roquet.spark.cluster.metadata import Metadata
from roquet.spark.offsets import Bounds, DataLoss, QueueKey, Range, from_json
from roquet.spark.options import SourceOptions
from roquet.spark.reading import marks
from roquet.spark.reading.batch import TaskReader
from roquet.spark.reading.partitions import QueuePartition
from roquet.spark.reading.stream import StreamReader
from spark_metadata import Asked

if TYPE_CHECKING:
    from pathlib import Path

A, B, C = (QueueKey("t", "b0", number) for number in range(3))
FAR = QueueKey("t", "b1", 0)
ALL = ReadAllAvailable()


def stream(known: Asked, **given: str) -> StreamReader:
    base = {"nameServers": "a:1", "subscribe": "t", "startingOffsets": "earliest"}
    reader = StreamReader(SourceOptions.parse({**base, **given}, streaming=True))
    reader._metadata = known
    return reader


def planned(reader: StreamReader, start: Any, end: Any) -> list[Range]:
    found = reader.partitions(start, end)
    return [it for part in found if isinstance(part, QueuePartition) for it in part.ranges]


# --- the times of what was read last ------------------------------------------------------------


def test_offsets_at_the_end_of_a_queue_have_the_time_of_its_last_message() -> None:
    known = Asked({A: Bounds(0, 9), B: Bounds(0, 0), C: Bounds(4, 4)})
    start = stream(known, startingOffsets="latest").initialOffset()
    assert marks.from_json(start) == {A: known.time(A, 8), C: known.time(C, 3)}
    # Before its end, the message in front of an offset may be gone already.
    assert marks.from_json(stream(known).initialOffset()) == {C: known.time(C, 3)}
    assert known.asked == []


def test_offsets_that_move_get_the_time_of_the_message_before_and_others_keep_theirs() -> None:
    known = Asked({A: Bounds(0, 20), B: Bounds(0, 2), C: Bounds(5, 5)})
    reader = stream(known, group="readers")
    first = reader.latestOffset(reader.initialOffset(), ReadMaxRows(6))
    assert from_json(first) == {A: 5, B: 1, C: 5}
    asked = [({A: 4, B: 0}, "readers")]
    assert known.asked == asked
    times = {A: known.time(A, 4), B: known.time(B, 0), C: known.time(C, 4)}
    assert marks.from_json(first) == times
    # B comes to its end, whose time the view has; nothing comes for C.
    second = reader.latestOffset(first, ReadMaxRows(6))
    assert from_json(second) == {A: 10, B: 2, C: 5}
    judging = ({A: 4, B: 0}, "readers")
    assert known.asked == [*asked, judging, ({A: 9}, "readers")]
    times |= {A: known.time(A, 9), B: known.time(B, 1)}
    assert marks.from_json(second) == times


def test_position_without_times_keeps_none_while_it_stays() -> None:
    known = Asked({A: Bounds(0, 9)})
    # As an earlier release wrote it; were a time added, Spark would take it for new messages.
    start = {"v": 1, "q": {"t": {"b0": {"0": 9}}}}
    assert stream(known).latestOffset(start, ALL) == start
    assert known.asked == []


def test_queue_that_is_entered_at_its_beginning_has_no_time_before_it() -> None:
    known = Asked({A: Bounds(0, 9)})
    reader = stream(known)
    start = reader.latestOffset(reader.initialOffset(), ALL)
    known.held[B] = Bounds(3, 8)
    end = reader.latestOffset(start, ALL)
    assert from_json(end) == {A: 9, B: 3}
    assert marks.from_json(end) == {A: known.time(A, 8)}
    assert known.asked == []


# --- one question a micro-batch -----------------------------------------------------------------


def test_offsets_that_come_back_are_recognized_and_others_are_read_anew() -> None:
    known = Asked({A: Bounds(0, 30)})
    reader = stream(known)
    ends: list[Any] = [reader.initialOffset()]
    for _ in range(3):
        ends.append(reader.latestOffset(ends[-1], ReadMaxRows(10)))
    for number, (start, end) in enumerate(itertools.pairwise(ends)):
        copies = [json.loads(json.dumps(it)) for it in (start, end)]
        assert planned(reader, *copies) == [Range(A, 10 * number, 10 * number + 10)]


def test_plan_of_another_end_looks_at_the_cluster_again() -> None:
    known = Asked({A: Bounds(0, 30)})
    reader = stream(known)
    start = reader.initialOffset()
    first = reader.latestOffset(start, ReadMaxRows(10))
    second = reader.latestOffset(first, ReadMaxRows(10))
    known.held[A] = Bounds(2, 30)
    views = known.views
    assert planned(reader, first, second) == [Range(A, 10, 20)]
    assert known.views == views
    with pytest.raises(DataLoss, match="2 messages"):
        planned(reader, start, first)
    assert known.views == views + 1
    # Nothing to read is nothing to ask for.
    assert reader.partitions(first, first) == []
    assert known.views == views + 1


def test_latest_offset_is_that_of_the_last_plan_or_of_the_moment() -> None:
    known = Asked({A: Bounds(0, 9), B: Bounds(2, 5)})
    reader = stream(known)
    assert from_json(reader.reportLatestOffset()) == {A: 9, B: 5}
    reader.latestOffset(reader.initialOffset(), ReadMaxRows(1))
    known.held[A] = Bounds(0, 11)
    assert from_json(reader.reportLatestOffset()) == {A: 9, B: 5}


def test_commit_without_metrics_asks_nothing_and_with_them_says_what_is_behind(
    tmp_path: Path,
) -> None:
    known = Asked({A: Bounds(0, 9)})
    end: Any = {"v": 1, "q": {"t": {"b0": {"0": 4}}}}
    stream(known).commit(end)
    assert known.views == 0
    stream(known, metricsPath=str(tmp_path)).commit(end)
    assert known.views == 1
    line = 'roquet_spark_source_lag_messages{topic="t",broker="b0"} 5\n'
    assert line in (tmp_path / "lag.prom").read_text()


# --- how far ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "limit"),
    [
        ({}, ReadAllAvailable()),
        ({"maxOffsetsPerTrigger": "7"}, ReadMaxRows(7)),
        ({"maxBytesPerTrigger": "9"}, ReadMaxBytes(9)),
    ],
)
def test_limit_of_a_micro_batch_is_the_one_of_the_options(
    given: dict[str, str], limit: object
) -> None:
    assert stream(Asked({}), **given).getDefaultReadLimit() == limit


def test_end_of_a_limited_read_counts_what_is_there_and_not_what_expired() -> None:
    known = Asked({A: Bounds(90, 100), B: Bounds(0, 10)})
    reader = stream(known, failOnDataLoss="false")
    start: Any = {"v": 1, "q": {"t": {"b0": {"0": 0, "1": 0}}}}
    end = reader.latestOffset(start, ReadMaxRows(10))
    assert from_json(end) == {A: 95, B: 5}
    assert planned(reader, start, end) == [Range(A, 90, 95), Range(B, 0, 5)]
    end = reader.latestOffset(start, ReadMaxBytes(1000))
    assert from_json(end) == {A: 95, B: 5}


def test_available_now_freezes_the_end_again_when_it_is_prepared_again() -> None:
    known = Asked({A: Bounds(0, 10)})
    reader = stream(known)
    start: Any = reader.initialOffset()
    for high in (10, 20):
        known.held[A] = Bounds(0, high)
        reader.prepareForTriggerAvailableNow()
        start = reader.latestOffset(start, ALL)
        assert from_json(start) == {A: high}
        known.held[A] = Bounds(0, high + 5)
        assert reader.latestOffset(start, ALL) == start


def test_available_now_enters_no_queue_that_is_gone_by_then() -> None:
    known = Asked({A: Bounds(0, 10), B: Bounds(0, 10)})
    reader = stream(known, failOnDataLoss="false")
    start: Any = {"v": 1, "q": {"t": {"b0": {"0": 0}}}}
    reader.prepareForTriggerAvailableNow()
    reader.latestOffset(start, ReadMaxRows(1))
    del known.held[B]
    assert from_json(reader.latestOffset(start, ALL)) == {A: 10}


# --- brokers and queues that are gone -----------------------------------------------------------


def test_queues_of_brokers_that_are_not_named_are_left_and_said_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    known = Asked({A: Bounds(0, 5)})
    reader = stream(known, brokers="b0")
    gone = [QueueKey("t", "other", number) for number in range(3)]

    def start(*others: QueueKey) -> Any:
        queues = {str(it.queue_id): 7 for it in others}
        return {"v": 1, "q": {"t": {"b0": {"0": 0}, "other": queues}}}

    def said() -> list[str]:
        found = [it for it in caplog.messages if "not named are left" in it]
        caplog.clear()
        return found

    end = reader.latestOffset(start(gone[1], gone[2]), ALL)
    assert from_json(end) == {A: 5, gone[1]: 7, gone[2]: 7}
    text = "{} queues of brokers that are not named are left, as {}"
    assert said() == [text.format(2, gone[1])]
    # The same ones, and fewer, are no news; more are.
    for others, lines in (
        (gone[1:], []),
        (gone[1:2], []),
        (gone, [text.format(3, gone[0])]),
        ([], []),
        (gone[:1], [text.format(1, gone[0])]),
    ):
        reader.latestOffset(start(*others), ALL)
        assert said() == lines


def test_queue_of_a_named_or_registered_broker_that_does_not_have_it_is_gone() -> None:
    start: Any = {"v": 1, "q": {"t": {"b0": {"0": 0, "1": 3}}}}
    for brokers in ("b0", "b0,b1", ""):
        reader = stream(Asked({A: Bounds(0, 5)}), brokers=brokers)
        with pytest.raises(DataLoss, match="t/b0/1 is gone, read up to 3"):
            reader.latestOffset(start, ALL)
    # Registered although it is not named.
    far: Any = {"v": 1, "q": {"t": {"b1": {"0": 4}}}}
    with pytest.raises(DataLoss, match="t/b1/0 is gone, read up to 4"):
        stream(Asked({A: Bounds(0, 5)}), brokers="b0").latestOffset(far, ALL)


def test_stream_waits_for_the_brokers_of_its_last_plan_only_while_they_are_named() -> None:
    known = Asked({A: Bounds(0, 5)})
    start: Any = {"v": 1, "q": {"t": {"b0": {"0": 0}, "away": {"0": 3}}}}
    with pytest.raises(Unreachable, match="broker away is not registered"):
        stream(known, unreachableTimeoutMs="1").latestOffset(start, ALL)
    reader = stream(known, unreachableTimeoutMs="1", brokers="b0")
    assert from_json(reader.latestOffset(start, ALL))[A] == 5


def test_checkpoint_of_another_topic_is_named_as_that() -> None:
    known = Asked({A: Bounds(0, 5)})
    start: Any = {"v": 1, "q": {"t": {"b0": {"0": 0}}, "other": {"b0": {"0": 7}}}}
    with pytest.raises(DataLoss, match=r"checkpoint is of queue other/b0/0, read up to 7, which"):
        stream(known).latestOffset(start, ALL)
    assert from_json(stream(known, failOnDataLoss="false").latestOffset(start, ALL))[A] == 5


def test_stream_begins_only_when_what_its_options_name_is_there() -> None:
    known = Asked({A: Bounds(0, 5)})
    reader = stream(known, subscribe="", assign='{"t": {"b0": [0, 2]}}')
    with pytest.raises(DataLoss, match="queue t/b0/2 is named in the options"):
        reader.initialOffset()
    known.absent = ("topic t does not exist",)
    with pytest.raises(UsageError, match=r"^topic t does not exist$"):
        stream(known).initialOffset()
    # Topics may go while a query runs.
    start: Any = {"v": 1, "q": {"t": {"b0": {"0": 5}}}}
    assert stream(known).latestOffset(start, ALL) == start


@pytest.mark.parametrize("offset", [0, 3])
def test_queue_that_is_gone_keeps_its_offset_when_that_is_no_error(offset: int) -> None:
    start: Any = {"v": 1, "q": {"t": {"b0": {"0": 2, "1": offset}}}}
    reader = stream(Asked({A: Bounds(0, 5)}), failOnDataLoss="false")
    for limit in (ALL, ReadMaxRows(1)):
        assert from_json(reader.latestOffset(start, limit))[B] == offset


def test_plan_of_an_earlier_run_reads_no_queue_that_was_made_anew_since() -> None:
    known = Asked({A: Bounds(0, 9), B: Bounds(0, 9)})
    reader = stream(known)
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadMaxRows(8))
    known.times[A] = 1_000_000
    with pytest.raises(DataLoss, match="queue t/b0/0: the message at offset 3"):
        planned(stream(known), start, end)
    assert planned(stream(known, failOnDataLoss="false"), start, end) == [Range(B, 0, 4)]


# --- its life -----------------------------------------------------------------------------------


def test_stream_closes_its_connections_once_and_makes_new_ones_when_it_goes_on() -> None:
    known = Asked({})
    reader = stream(known)
    reader.stop()
    reader.stop()
    assert known.closes == 1
    fresh = reader._known()
    assert isinstance(fresh, Metadata)
    assert fresh is not known
    assert reader._known() is fresh


def test_task_gets_the_options_of_a_stream_and_nothing_that_only_the_driver_uses() -> None:
    reader = stream(Asked({A: Bounds(0, 5)}))
    reader.latestOffset(reader.initialOffset(), ALL)
    copy = pickle.loads(pickle.dumps(reader))
    assert isinstance(copy, TaskReader)
    assert vars(copy) == {"_options": reader._options}
