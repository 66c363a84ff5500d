"""The job `cdc` into Delta, in a process of its own: a session has Delta or has not."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tools.spark_kills.world import SHORT_LIVED, world

from cdc_harness import Database, envelope
from roquet import sync
from roquet.client import Message, MessageQueue
from roquet.model.topic import TopicConfig

if TYPE_CHECKING:
    from tools.spark_kills.world import World

pytestmark = pytest.mark.spark
SCRIPT = Path(__file__).parents[1] / "cdc_delta_jobs.py"
Row = dict[str, Any]


def send(it: World, topic: str, made: dict[int, list[bytes]]) -> None:
    with sync.connect(it.names) as mq, mq.producer("fill") as producer:
        for number, bodies in made.items():
            for body in bodies:
                producer.send(Message(topic, body), queue=MessageQueue(topic, "b", number))


def steps(folder: Path, names: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, str(SCRIPT), str(folder / "table"), names],
        capture_output=True,
        text=True,
        check=False,
        timeout=3000,
        cwd=folder,
        env={**os.environ, **SHORT_LIVED, "PYSPARK_PYTHON": sys.executable},
    )
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
    made = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return {it["step"]: it for it in made}


def rows(found: Any, *names: str) -> dict[int, Row]:
    return {it["id"]: {name: it[name] for name in names} for it in found["rows"]}


@pytest.mark.timeout(7000)
def test_delta_has_the_table_of_the_database_over_repetitions_and_new_columns(
    tmp_path: Path,
) -> None:
    base, rng = Database(), random.Random(21)
    with world(tmp_path) as it:
        with sync.connect(it.names) as mq:
            for topic in ("First", "Second", "Third", "Fourth"):
                config = TopicConfig(name=topic, read_queues=2, write_queues=2)
                mq.admin().topics.put(config)
        send(it, "First", base.changes(rng, 80))
        first = dict(base.rows)
        city = {"zip": "8000", "at lake": True}
        send(it, "Second", {0: [envelope("c", None, {"id": 90, "name": "new", "city": city})]})
        moved = [envelope("u", None, {"id": 90, "name": "moved", "total sum": 2.5})]
        moved.append(envelope("d", {"id": next(iter(first))}, None))
        send(it, "Third", {1: moved})
        theirs = [envelope("u", None, {"id": it, "name": "theirs"}) for it in (90, 91)]
        mine = envelope("u", None, {"id": 91, "name": "mine"}).replace(b'"t"', b'"wanted"')
        send(it, "Fourth", {0: [theirs[0], mine, theirs[1]]})
        found = steps(tmp_path, it.names)
    names = ("id", "name", "total sum")
    merged = found["merged"]
    assert rows(merged, *names) == first
    assert merged["current"] == sorted(first)
    held, whole, keys = merged["held"]
    assert held == whole == keys >= len(first)
    # Nothing is written for what the table has already.
    for step in ("without Spark's note", "in another cut"):
        assert found[step]["version"] == merged["version"], step
        assert found[step]["rows"] == merged["rows"], step
    for step, why in (
        ("another type", "name is string in the table, and bigint in the new schema"),
        ("a wider type", "a table of Delta keeps its types"),
        ("a key of another type", "id is bigint in the table, and string in the new schema"),
        ("another key", "others need a folder of their own"),
        ("Parquet", "a table of the format delta with the key id"),
    ):
        assert why in found[step]["lines"][0], found[step]["lines"]
        assert found[step]["version"] == merged["version"]
    grown = found["new columns"]
    assert grown["said"] == [
        "schema 2 of the table: city struct<zip:string,at lake:boolean> is new"
    ]
    assert rows(grown, *names, "city") == {
        **{key: {**row, "city": None} for key, row in first.items()},
        90: {"id": 90, "name": "new", "total sum": None, "city": city},
    }
    other = rows(found["another queue"], *names, "city")
    assert other.pop(90) == {"id": 90, "name": "moved", "total sum": 2.5, "city": None}
    assert sorted(other) == sorted(set(first) - {next(iter(first))})
    assert found["another queue"]["current"] == sorted([*other, 90])
    assert "was set back to an older version" in found["set back"]["lines"][0]
    assert found["set back, without the checkpoint"]["rows"] == found["another queue"]["rows"]
    passed = found["other tables"]
    assert "2 changes of other tables, 1 inserts and updates" in passed["lines"][0]
    assert passed["current"] == sorted([*other, 90, 91])
    assert "_checkpoint has been read from already" in found["without its log"]["lines"][0]
