"""The demo's data, kills and chart."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from demo import chart, flights, kills
from demo.send import queue_of

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def departures() -> list[flights.Departure]:
    return flights.departures(3000)


def test_the_flights_come_in_a_stable_order_with_key_tag_and_nulls(
    departures: list[flights.Departure],
) -> None:
    found = departures
    bodies = [json.loads(it.body) for it in found]
    assert len({body["id"] for body in bodies}) == 3000
    names = ("time_hour", "minute", "origin", "carrier", "flight", "id")
    order = [tuple(body[name] for name in names) for body in bodies]
    assert order == sorted(order)
    for departure, body in zip(found, bodies, strict=True):
        assert tuple(body) == flights.FIELDS
        assert (departure.key, departure.tag) == (body["tailnum"], body["carrier"])
        assert None not in (body["carrier"], body["origin"], body["dest"], body["distance"])
    assert any(body["dep_time"] is None for body in bodies)
    assert any(it.key is None for it in found)


def test_a_key_stays_in_its_queue_and_all_queues_are_used(
    departures: list[flights.Departure],
) -> None:
    queues: dict[str, set[int]] = {}
    for number, departure in enumerate(departures):
        if departure.key is not None:
            queues.setdefault(departure.key, set()).add(queue_of(number, departure))
    assert all(len(it) == 1 for it in queues.values())
    assert {queue_of(number, it) for number, it in enumerate(departures)} == set(range(8))


@pytest.mark.parametrize("count", [0, 1, 2, 3, 5, 50])
@pytest.mark.parametrize("seed", [1, 2013])
def test_a_third_of_the_kills_is_between_write_and_commit(count: int, seed: int) -> None:
    planned = kills.plan(count, seed)
    assert planned == kills.plan(count, seed)
    assert len(planned) == count
    assert 3 * sum(kill.kind == "written" for kill in planned) >= count
    for kill in planned:
        # The job lingers that long after a write, so the kill comes before the commit.
        assert kill.kind == "any" or kill.after_s < kills.LINGER_S


def test_a_replayed_batch_is_one_that_was_written_twice() -> None:
    def written(batch: int, rows: int) -> dict[str, object]:
        return {"event": "written", "batch": batch, "rows": rows}

    events = [{"event": "begin", "batch": 0}, written(0, 5), written(1, 6), written(1, 6)]
    assert kills.replayed(events) == {1: 2}
    assert kills.replayed(events[:3]) == {}
    with pytest.raises(kills.JobFailed, match="micro-batch 1"):
        kills.replayed([*events, written(1, 7)])


def test_a_kill_takes_everything_below_with_it() -> None:
    child = "[sys.executable, '-c', 'import time; time.sleep(60)']"
    script = (
        "import subprocess, sys, time\n"
        f"subprocess.Popen({child}, start_new_session=True)\n"
        "print('up', flush=True)\ntime.sleep(60)"
    )
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE)
    assert process.stdout is not None
    with process.stdout as out:
        assert out.readline() == b"up\n"
        below = kills.descendants(process.pid)
        assert len(below) == 1
        kills.kill_tree(process)
        assert process.returncode == -9
        # The child held the pipe, too: this ends only when it is gone.
        assert out.read() == b""


def test_the_chart_is_a_picture(tmp_path: Path) -> None:
    rows = [
        {"origin": origin, "hour": hour, "departures": 100, "mean_delay": 5.0, "late_share": 0.2}
        for origin in ("EWR", "JFK")
        for hour in range(5, 23)
    ]
    chart.draw(rows, tmp_path / "delays.png")
    data = (tmp_path / "delays.png").read_bytes()
    assert data.startswith(b"\x89PNG")
    assert len(data) > 10_000


def test_warm_rows_and_seconds_are_those_behind_the_first_micro_batch_of_each_run() -> None:
    told = [(1, "started", 0.0, 0), (1, "written", 9.0, 50), (1, "written", 11.0, 40)]
    told += [(2, "started", 20.0, 0), (2, "written", 25.0, 30), (2, "written", 26.5, 20)]
    events = [{"pid": pid, "event": name, "at": at, "rows": n} for pid, name, at, n in told]
    assert kills.warm(events) == (60, 3.5)
    assert kills.warm(events[:2]) == (0, 0.0)
