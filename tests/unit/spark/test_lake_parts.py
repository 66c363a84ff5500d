"""Options of `archive` and `replay`, the catalog's sums and the waves of a replay; no Spark."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from roquet.base.errors import UsageError
from roquet.cli import app
from roquet.spark.jobs import archive, replay
from roquet.spark.jobs.archiving import upkeep
from roquet.spark.jobs.archiving.replay_plan import (
    Origin,
    Place,
    Slice,
    from_text,
    places,
    to_text,
    wave_rows,
    waves,
)
from roquet.spark.jobs.archiving.replay_plan import merged as merged_lines
from roquet.spark.jobs.archiving.wanted import ArchiveOptions
from roquet.spark.jobs.options.lake import ARCHIVE, REPLAY
from roquet.spark.jobs.shared import metrics
from roquet.spark.jobs.storage.catalog import Entry, merged
from roquet.spark.jobs.storage.summary import Part
from roquet.spark.offsets import QueueKey, to_json

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

FROM = {"nameServers": "127.0.0.1:9876", "subscribe": "orders", "out": "/lake/"}
TO = {"nameServers": "127.0.0.1:9876", "lake": "/lake", "run": "r1"}


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({}, "out is needed"),
        ({"out": "/lake"}, "nothing to do"),
        ({"out": "/lake", "subscribe": "a"}, "subscribe needs nameServers"),
        ({**FROM, "subscribePattern": "b"}, "and not both"),
        ({**FROM, "format": "orc"}, "must be one of parquet, delta"),
        ({**FROM, "body": "xml"}, "must be one of raw, json, avro, protobuf"),
        ({**FROM, "body": "avro"}, "needs a schema"),
        ({**FROM, "schema": "n int"}, "schema is for body json"),
        ({**FROM, "body": "avro", "schema": "n int"}, "no Avro schema"),
        ({**FROM, "body": "protobuf", "schema": "/a.desc"}, "needs a message"),
        ({**FROM, "body": "json", "schema": "n int", "message": "a"}, "is for body protobuf"),
        ({**FROM, "startingOffsets": "yesterday"}, "offsets are no JSON"),
        ({**FROM, "interval": "5", "compact": "true"}, "in another run"),
        ({**FROM, "retainDays": "0"}, "from 1 to 100000"),
        ({**FROM, "compacting": "true"}, "did you mean: compact"),
    ],
)
def test_archive_options_that_are_wrong(options: Mapping[str, str], why: str) -> None:
    with pytest.raises(UsageError, match=why):
        archive.plan(options)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({}, "lake is needed"),
        ({"lake": "/lake", "run": "r"}, "nameServers is needed"),
        ({**TO, "run": "a/b"}, "run is needed"),
        ({**TO, "rate": "0"}, "from 1 to"),
        ({**TO, "tag": "a"}, "did you mean: tags"),
    ],
)
def test_replay_options_that_are_wrong(options: Mapping[str, str], why: str) -> None:
    with pytest.raises(UsageError, match=why):
        replay.plan(options)


def test_plans_say_what_would_be_done(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--out", "/lake/", "--retain-days", "7", "--compact", "--check", "--dry-run"]
    given = ["--nameServers", "a:1", "--subscribe", "orders"]
    assert app.run(["pipeline", "run", "archive", *given, *words]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "archive orders of a:1 up to the present",
        "go on where /lake ends, and begin queues at: earliest",
        "write parquet by topic and day to /lake, bodies raw",
        "keep offsets in /lake/_checkpoint",
        "merge files below 67,108,864 bytes of each topic and day",
        "remove days that ended more than 7 days ago",
        "compare the catalog with what can be read from the lake",
    ]
    assert replay.plan({**TO, "tags": "a || b", "rate": "100"}) == (
        "replay all topics of /lake",
        "to the topics they came from at 127.0.0.1:9876",
        "only: tags ['a', 'b']",
        "at most 100 messages a second",
        "progress is in /lake/_replays/r1",
    )
    for name, table in (("archive", ARCHIVE), ("replay", REPLAY)):
        assert app.run(["pipeline", "run", name, "--help"]) == 0
        shown = capsys.readouterr().out
        assert all(f"--{option.name}" in shown for option in table)


def test_a_schema_may_be_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "orders.ddl").write_text("n int, who string\n")
    given = {**FROM, "body": "json", "schema": str(tmp_path / "orders.ddl")}
    assert ArchiveOptions.parse(given).bodies.schema == "n int, who string"
    assert ArchiveOptions.parse({**given, "schema": "n int"}).bodies.schema == "n int"


def test_delta_needs_its_jar_and_nothing_else_does() -> None:
    assert archive.configuration(FROM) == {}
    assert replay.configuration(TO) == {}
    found = archive.configuration({**FROM, "format": "delta"})
    assert found["spark.jars.packages"] == "io.delta:delta-spark_4.2_2.13:4.4.0"
    # Spark has these in other versions, and Maven's folder may have them without their jars.
    assert {"org.apache.hadoop:*", "org.slf4j:*"} <= set(found["spark.jars.excludes"].split(","))


def held(part: str, low: int, high: int, queue: int = 0, day: str = "2026-11-21") -> Entry:
    return Entry(Part("orders", day, part), "b", queue, low, high, high - low, high)


def test_what_is_merged_has_the_sums_of_its_parts() -> None:
    parts = [held("b1", 0, 4), held("b2", 4, 9), held("b2", 0, 2, queue=1)]
    assert merged(parts, "c") == [
        Entry(Part("orders", "2026-11-21", "c"), "b", 0, 0, 9, 9, 13),
        Entry(Part("orders", "2026-11-21", "c"), "b", 1, 0, 2, 2, 2),
    ]


def test_only_small_parts_are_merged() -> None:
    sizes = {Part("t", "d", "a"): 10, Part("t", "d", "b"): 49, Part("t", "d", "c"): 50}
    assert list(upkeep.small_parts(sizes, sizes.__getitem__, 100)) == list(sizes)[:2]


def test_days_stay_as_long_as_they_are_to() -> None:
    noon = 1_763_726_400_000  # 2025-11-21 12:00 UTC
    assert upkeep.cutoff(noon, 1).isoformat() == "2025-11-20"
    assert upkeep.cutoff(noon + 43_200_000, 1).isoformat() == "2025-11-21"


def test_the_backlog_counts_queues_that_are_not_begun() -> None:
    done = to_json({QueueKey("t", "b", 0): 5})
    latest = to_json({QueueKey("t", "b", 0): 7, QueueKey("t", "b", 1): 3})
    assert archive.backlog(str(done).replace("'", '"'), str(latest).replace("'", '"')) == 5
    assert archive.backlog(None, None) == 0
    # As Spark tells of a query that has not read yet.
    assert archive.backlog("null", "null") == 0


@pytest.mark.parametrize("seed", range(20))
def test_waves_have_each_offset_once_and_keep_the_order_of_queues(seed: int) -> None:
    rng = random.Random(seed)
    entries: list[Entry] = []
    for queue in range(rng.randint(1, 5)):
        low = rng.randint(0, 50)
        for number in range(rng.randint(1, 6)):
            high = low + rng.randint(1, 40)
            entries.append(held(f"b{number}", low, high, queue, f"2026-11-{20 + number // 3}"))
            low = high
    rng.shuffle(entries)
    rows = rng.randint(1, 30)
    planned = waves(entries, rows)
    assert all(0 < sum(it.end - it.begin for it in wave) <= rows for wave in planned)
    reached: dict[int, int] = {}
    seen: set[tuple[int, int]] = set()
    for piece in (it for wave in planned for it in wave):
        assert piece.begin >= reached.get(piece.queue, 0)
        reached[piece.queue] = piece.end
        seen |= {(piece.queue, offset) for offset in range(piece.begin, piece.end)}
    wanted = {(it.queue, n) for it in entries for n in range(it.from_offset, it.to_offset)}
    assert seen == wanted
    assert sum(it.rows for it in entries) == len(seen)
    days = [it.day for wave in planned for it in wave]
    assert days == sorted(days)


def test_a_replay_goes_on_only_with_what_it_began_with() -> None:
    planned = [[Slice("t", "2026-11-21", "b", 0, 0, 5)]]
    text = to_text({"tags": ["a"]}, planned)
    assert from_text(text, {"tags": ["a"]}) == planned
    with pytest.raises(UsageError, match=r"other options \(tags\)"):
        from_text(text, {"tags": ["b"]})
    with pytest.raises(UsageError, match="cannot be read"):
        from_text("{", {})
    with pytest.raises(UsageError, match="of version 2"):
        from_text(text.replace('"version": 1', '"version": 2'), {"tags": ["a"]})


def test_a_rate_makes_waves_of_two_seconds() -> None:
    assert [wave_rows(100, rate) for rate in (None, 1000, 20, 1)] == [100, 100, 40, 2]


def test_metrics_are_a_textfile(tmp_path: Path) -> None:
    metrics.write_plain(str(tmp_path / "m"), "replay", {"messages": (5.0, "Messages sent.")})
    assert (tmp_path / "m/replay.prom").read_text() == (
        "# HELP roquet_replay_messages Messages sent.\n"
        "# TYPE roquet_replay_messages gauge\nroquet_replay_messages 5\n"
    )
    (tmp_path / "file").touch()
    metrics.write_plain(str(tmp_path / "file"), "replay", {})
    assert (tmp_path / "file").read_text() == ""


def test_replay_places_keep_broker_and_queue_where_the_topic_has_them() -> None:
    from_two = [Origin("t", broker, queue) for broker in ("a", "b") for queue in range(4)]
    same = [Place(it.broker, it.queue) for it in from_two]
    targets = dict.fromkeys(from_two, "t")
    kept = places(targets, {"t": same})
    assert kept == dict(zip(from_two, same, strict=True))
    assert merged_lines(targets, kept) == []


def test_replay_places_that_are_not_there_are_merged_and_said() -> None:
    from_two = [Origin("t", broker, queue) for broker in ("a", "b") for queue in range(4)]
    targets = dict.fromkeys(from_two, "copy")
    # Fewer queues: the broker stays.
    fewer = places(targets, {"copy": [Place(it, n) for it in "ab" for n in range(2)]})
    assert fewer == {it: Place(it.broker, it.queue % 2) for it in from_two}
    assert merged_lines(targets, fewer) == [
        "copy: 8 queues of the archive are merged into 4, 4 of them change broker or number"
    ]
    # Another broker: numbers stay, and all that has one number goes to one queue.
    moved = places(targets, {"copy": [Place("c", n) for n in range(4)]})
    assert moved == {it: Place("c", it.queue) for it in from_two}
    (line,) = merged_lines(targets, moved)
    assert line.endswith("into 4, 8 of them change broker or number; it has no broker a, b")
    # One of two brokers is another one.
    partly = places(targets, {"copy": [Place(it, n) for it in "ac" for n in range(4)]})
    assert {it: to for it, to in partly.items() if it.broker == "a"} == {
        it: Place("a", it.queue) for it in from_two if it.broker == "a"
    }
    renamed = places({from_two[0]: "copy"}, {"copy": [Place("c", 0)]})
    (line,) = merged_lines({from_two[0]: "copy"}, renamed)
    assert "1 queues of the archive go to 1, 1 of them change" in line
