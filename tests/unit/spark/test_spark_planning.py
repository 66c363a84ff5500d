"""Planning a stream whatever queues do, filters, keys, sizes, progress, very many queues."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from bench.spark.planning import measure
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
)

from roquet import _native as native
from roquet.base.errors import UsageError
from roquet.spark.cluster.metadata import View
from roquet.spark.offsets import Bounds, DataLoss, Offsets, QueueKey, Range, from_json, split
from roquet.spark.options import SinkOptions, SourceOptions
from roquet.spark.reading import planning
from roquet.spark.reading.batch import PushdownReader
from roquet.spark.reading.partitions import QueuePartition
from roquet.spark.reading.pushdown import Scope
from roquet.spark.reading.stream import StreamReader
from roquet.spark.sink import keys
from spark_metadata import ADDRESSES, Known

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

BASE = {"nameServers": "a:1", "subscribePattern": ".*", "startingOffsets": "earliest"}
QUEUES = [QueueKey(f"t{n % 3}", f"b{n % 2}", n // 6) for n in range(12)]


def stream(known: Known, **options: str) -> StreamReader:
    reader = StreamReader(SourceOptions.parse({**BASE, **options}, streaming=True))
    reader._metadata = known
    return reader


def planned(reader: StreamReader, start: Any, end: Any) -> list[Range]:
    found = reader.partitions(start, end)
    return [it for part in found if isinstance(part, QueuePartition) for it in part.ranges]


CHANGES = st.lists(
    st.tuples(
        st.sampled_from(["grow", "trim", "vanish", "appear", "recreate", "trigger", "restart"]),
        st.sampled_from(QUEUES),
        st.integers(1, 50),
    ),
    max_size=40,
)


def apply(held: dict[QueueKey, Bounds], what: str, queue: QueueKey, count: int) -> None:
    bounds = held.get(queue)
    if what == "appear" and bounds is None:
        held[queue] = Bounds(0, count)
    elif bounds is not None:
        low, high = bounds
        changed = {
            "grow": Bounds(low, high + count),
            "trim": Bounds(min(high, low + count), high),
            "recreate": Bounds(0, count),
        }
        held[queue] = changed.get(what, bounds)
        if what == "vanish":
            del held[queue]


def begin_anew(
    seen: dict[QueueKey, int], begin: Offsets, end: Offsets, held: dict[QueueKey, Bounds]
) -> None:
    """Forget what was seen of queues that are not the ones that were read any more."""
    for queue, offset in end.items():
        if offset < begin.get(queue, 0):
            assert offset == held[queue].low
            seen.pop(queue, None)


@given(changes=CHANGES, rows_max=st.none() | st.integers(1, 100), parts=st.integers(1, 9))
@settings(max_examples=150, deadline=None)
def test_whatever_queues_do_nothing_is_read_twice_or_out_of_bounds(
    changes: list[tuple[str, QueueKey, int]], rows_max: int | None, parts: int
) -> None:
    held = {queue: Bounds(0, 10) for queue in QUEUES[:4]}
    known = Known(held)
    options = {"failOnDataLoss": "false", "minPartitions": str(parts)}
    if rows_max is not None:
        options["maxOffsetsPerTrigger"] = str(rows_max)
    reader = stream(known, **options)
    at: Any = reader.initialOffset()
    seen: dict[QueueKey, int] = {}
    for what, queue, count in [*changes, *[("trigger", QUEUES[0], 1)] * 300]:
        if what == "restart":
            reader = stream(known, **options)
        if what != "trigger":
            apply(held, what, queue, count)
            if what in {"recreate", "appear"}:
                known.times[queue] = known.times.get(queue, 1) + 1_000_000
            continue
        end = json.loads(json.dumps(reader.latestOffset(at, reader.getDefaultReadLimit())))
        found = planned(reader, at, end)
        assert found == planned(stream(known, **options), at, end), "a plan is not repeatable"
        assert rows_max is None or sum(map(len, found)) <= max(rows_max, len(held))
        begin_anew(seen, from_json(at), from_json(end), known.held)
        for it in sorted(found):
            assert seen.get(it.queue, 0) <= it.begin < it.end
            assert known.held[it.queue].low <= it.begin
            assert it.end <= known.held[it.queue].high
            seen[it.queue] = it.end
        if end == at:
            break
        at = end
    done = from_json(at)
    # In the end every queue is read up to its end, also those that were made anew.
    for queue, bounds in held.items():
        assert done[queue] == bounds.high


@given(
    counts=st.lists(st.integers(0, 500), min_size=1, max_size=12),
    parts=st.none() | st.integers(1, 60),
    rows=st.none() | st.integers(1, 200),
)
@settings(deadline=None)
def test_splits_cover_each_offset_once(
    counts: list[int], parts: int | None, rows: int | None
) -> None:
    whole = [Range(QUEUES[n], 7, 7 + count) for n, count in enumerate(counts)]
    found = split(whole, parts, rows)
    covered = [(it.queue, n) for it in found for n in range(it.begin, it.end)]
    assert sorted(covered) == [(it.queue, n) for it in sorted(whole) for n in range(7, it.end)]
    assert all(len(it) <= rows for it in found) if rows else True
    assert len(found) >= min(parts or 0, sum(counts))


def test_limits_are_what_the_engine_says() -> None:
    known = Known({queue: Bounds(0, 100) for queue in QUEUES})

    def rows(reader: StreamReader, limit: ReadLimit) -> int:
        start = reader.initialOffset()
        return sum(map(len, planned(reader, start, reader.latestOffset(start, limit))))

    plain = stream(known)
    assert isinstance(plain.getDefaultReadLimit(), ReadAllAvailable)
    limited = stream(known, maxOffsetsPerTrigger="30")
    assert limited.getDefaultReadLimit() == ReadMaxRows(30)
    assert rows(limited, ReadMaxRows(30)) == 30
    # The engine may ask for everything whatever we prefer.
    assert rows(limited, ReadAllAvailable()) == 1200
    by_bytes = stream(known, maxBytesPerTrigger="5000")
    assert by_bytes.getDefaultReadLimit() == ReadMaxBytes(5000)
    assert rows(by_bytes, ReadMaxBytes(5000)) == 50
    known.size = 1e9
    assert rows(by_bytes, ReadMaxBytes(5000)) == 12, "one message of each, or some would not move"
    known.size = 0.001
    assert rows(by_bytes, ReadMaxBytes(5000)) == 1200


def test_stream_micro_batch_asks_the_cluster_once(tmp_path: Path) -> None:
    known = Known({queue: Bounds(0, 100) for queue in QUEUES})
    reader = stream(known, maxOffsetsPerTrigger="30", metricsPath=str(tmp_path))
    at: Any = reader.initialOffset()
    known.views = 0
    for number in range(1, 4):
        end = reader.latestOffset(at, reader.getDefaultReadLimit())
        reader.reportLatestOffset()
        reader.partitions(at, end)
        reader.commit(end)
        assert known.views == number
        at = end


def test_available_now_ends_where_its_first_plan_saw_the_end() -> None:
    known = Known({QUEUES[0]: Bounds(0, 10)})
    reader = stream(known)
    start: Any = reader.initialOffset()
    reader.prepareForTriggerAvailableNow()
    middle = reader.latestOffset(start, ReadMaxRows(4))
    assert from_json(middle) == {QUEUES[0]: 4}
    known.held[QUEUES[0]] = Bounds(0, 99)
    known.held[QUEUES[1]] = Bounds(0, 99)
    end = reader.latestOffset(middle, ReadAllAvailable())
    assert from_json(end) == {QUEUES[0]: 10}
    assert reader.latestOffset(end, ReadAllAvailable()) == end


def test_available_now_reads_a_broker_that_was_away_when_it_began() -> None:
    known = Known({QUEUES[0]: Bounds(0, 10), QUEUES[1]: Bounds(0, 10)})
    start: Any = stream(known).initialOffset()
    assert {queue.broker for queue in known.held} == {"b0", "b1"}
    # A query that goes on, started while a broker is away that it has read before.
    reader = stream(known, unreachableTimeoutMs="1")
    known.away = {"b1"}
    reader.prepareForTriggerAvailableNow()
    end = reader.latestOffset(start, ReadAllAvailable())
    assert from_json(end) == {QUEUES[0]: 10, QUEUES[1]: 10}


def test_a_queue_that_is_gone_fails_or_is_left() -> None:
    known = Known({QUEUES[0]: Bounds(0, 10), QUEUES[1]: Bounds(0, 10)})
    reader = stream(known)
    start: Any = reader.initialOffset()
    del known.held[QUEUES[1]]
    with pytest.raises(DataLoss, match="is gone, read up to 0"):
        reader.latestOffset(start, ReadAllAvailable())
    reader = stream(known, failOnDataLoss="false")
    end = reader.latestOffset(start, ReadAllAvailable())
    assert planned(reader, start, end) == [Range(QUEUES[0], 0, 10)]


def test_twenty_thousand_queues_are_planned_in_little_time_and_space() -> None:
    # A million take fifty times as much: `python -m bench.spark.planning 1000000`.
    found = measure(20_000)
    assert found["first_cpu_s"] + found["next_cpu_s"] < 20
    assert found["offsets_mib"] < 1


def test_so_many_queues_share_tasks_by_broker() -> None:
    count = 3 * planning.PARTITIONS_MAX
    whole = [Range(QueueKey("t", f"b{n % 2}", n), 0, 5) for n in range(count)]
    parts = planning.partitions(whole, View({}, ADDRESSES))
    assert len(parts) <= planning.PARTITIONS_MAX + 2
    held = [part for part in parts if isinstance(part, QueuePartition)]
    assert sorted(it for part in held for it in part.ranges) == sorted(whole)
    for part in held:
        assert {ADDRESSES[it.queue.broker] for it in part.ranges} == {part.addresses}


# --- filters ------------------------------------------------------------------------------------

VALUES = st.integers(-2, 12)
TEXTS = st.sampled_from(["t0", "t1", "t9", "b0", "", "a || b", "*", None])
FILTERS = st.one_of(
    st.builds(EqualTo, st.just(("queueOffset",)), VALUES),
    st.builds(In, st.just(("queueOffset",)), st.lists(VALUES, min_size=1).map(tuple)),
    st.builds(GreaterThan, st.just(("queueOffset",)), VALUES),
    st.builds(GreaterThanOrEqual, st.just(("queueOffset",)), VALUES),
    st.builds(LessThan, st.just(("queueOffset",)), VALUES),
    st.builds(LessThanOrEqual, st.just(("queueOffset",)), VALUES),
    st.builds(EqualTo, st.just(("queueId",)), VALUES),
    st.builds(GreaterThan, st.just(("queueId",)), VALUES),
    st.builds(In, st.sampled_from([("topic",), ("tags",)]), st.lists(TEXTS).map(tuple)),
    st.builds(EqualTo, st.sampled_from([("topic",), ("brokerName",), ("tags",)]), TEXTS),
    st.builds(IsNotNull, st.just(("queueOffset",))),
    st.builds(EqualTo, st.just(("properties", "topic")), TEXTS),
    st.builds(Not, st.builds(EqualTo, st.just(("topic",)), TEXTS)),
)


def matches(found: Filter, row: dict[str, Any]) -> bool:
    path: tuple[str, ...] = getattr(found, "attribute", ())
    value: Any = row.get(path[0] if len(path) == 1 else "")
    wanted: Any = getattr(found, "value", None)
    rules: dict[type[Filter], Callable[[], bool]] = {
        EqualTo: lambda: value == wanted and wanted is not None,
        In: lambda: value is not None and value in (wanted or ()),
        GreaterThan: lambda: value > wanted,
        GreaterThanOrEqual: lambda: value >= wanted,
        LessThan: lambda: value < wanted,
        LessThanOrEqual: lambda: value <= wanted,
    }
    return bool(rules[type(found)]()) if type(found) in rules and len(path) == 1 else True


@given(filters=st.lists(FILTERS, max_size=4), offset=st.integers(0, 10), tag=TEXTS)
@settings(deadline=None)
def test_a_scope_is_never_too_narrow(filters: list[Filter], offset: int, tag: str | None) -> None:
    scope = Scope.of(filters)
    for queue in QUEUES:
        row = {
            "topic": queue.topic,
            "brokerName": queue.broker,
            "queueId": queue.queue_id,
            "queueOffset": offset,
            "tags": tag,
        }
        if not all(matches(found, row) for found in filters):
            continue
        assert scope.has(queue)
        cut = scope.cut(Range(queue, 0, 11))
        assert cut.begin <= offset < cut.end
        expression = scope.tag_expression()
        assert expression is None or tag in expression.split(" || ")


def test_filters_narrow_what_is_read() -> None:
    given = {"nameServers": "a:1", "subscribe": "t0,t1", "pushdown": "true"}
    reader = PushdownReader(SourceOptions.parse(given, streaming=False))
    filters = [EqualTo(("topic",), "t1"), In(("tags",), ("x", "y")), LessThan(("queueOffset",), 5)]
    assert list(reader.pushFilters(list(filters))) == filters
    assert reader._options.tags == "x || y"
    assert not reader._scope.has(QUEUES[0])
    assert reader._scope.cut(Range(QUEUES[1], 3, 9)) == Range(QUEUES[1], 3, 5)


# --- keys and progress --------------------------------------------------------------------------


def test_planned_keys_are_the_same_again_and_differ_between_rows_tasks_and_runs() -> None:
    def made(run: str, partition: int) -> list[str]:
        prefix = keys.prefix(run, partition)
        return [native.sink_key(prefix, row) for row in range(100)]

    assert made("q/1", 2) == made("q/1", 2)
    every = [*made("q/1", 2), *made("q/1", 3), *made("q/2", 2), *made("q/12", 2), *made("q/1", 22)]
    assert len(set(every)) == len(every)
    assert all(len(key) == 32 and int(key, 16) >= 0 and key == key.upper() for key in every)
    options = SinkOptions.parse({"nameServers": "a:1", "topic": "t", "uniqueKeys": "random"})
    assert keys.of_task(options, "run") is None
    options = SinkOptions.parse({"nameServers": "a:1", "topic": "t"})
    with pytest.raises(UsageError, match="no Spark task"):
        keys.of_task(options, "run")


def test_progress_is_a_table_and_a_page_for_prometheus(tmp_path: Path) -> None:
    known = Known({QUEUES[0]: Bounds(0, 10), QUEUES[1]: Bounds(5, 9)})
    reader = stream(known, metricsPath=str(tmp_path / "m"), failOnDataLoss="false")
    start: Any = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    page = (tmp_path / "m/lag.prom").read_text()
    assert 'roquet_spark_source_lag_messages{topic="t0",broker="b0"} 10\n' in page
    assert 'roquet_spark_source_lag_messages{topic="t1",broker="b1"} 4\n' in page
    known.held[QUEUES[0]] = Bounds(4, 30)
    # A query that is started again plans anew what was planned before.
    again = stream(known, metricsPath=str(tmp_path / "m"), failOnDataLoss="false")
    planned(again, start, end)
    again.commit(end)
    (line,) = (tmp_path / "m/progress.jsonl").read_text().splitlines()
    found = json.loads(line)
    assert (found["offsets"], found["lost"], found["queues"]) == (14, 4, 2)
    page = (tmp_path / "m/lag.prom").read_text()
    assert 'roquet_spark_source_lag_messages{topic="t0",broker="b0"} 20\n' in page
    assert 'roquet_spark_source_lag_messages{topic="t1",broker="b1"} 0\n' in page
    assert "roquet_spark_source_lost_total 4\n" in page
    assert [file.name for file in (tmp_path / "m").iterdir() if file.name.endswith(".new")] == []
