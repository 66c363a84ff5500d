"""Results of the Spark benchmarks as Markdown, and what is measured in them."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

from bench.spark.page import markdown
from bench.spark.sources import CASES
from bench.weights import tree_cpu_s

WHERE = {
    "machine": "2 cores",
    "commit": "abc",
    "command": "python -m bench.x",
    "time": "2026-11-21T10:00:00+00:00",
    "load_average": 1.25,
    "took_s": 120.0,
}
SAID = "2 cores, load average 1.2, commit abc, `python -m bench.x`, 2026-11-21T10:00:00+00:00"


def test_shares_of_the_ceiling() -> None:
    row: dict[str, Any] = {"data": "flights", "name": "live read", "rows_per_s": 1234.5}
    row |= {"share": 0.712, "at_least": 0.6, "broker_cpu_s": 0.5}
    result = {**WHERE, "kind": "spark", "rows": [row, {**row, "rows_per_s": None}]}
    result |= {"rows_sent": {"flights": 2000}, "about": {"flights": "departures"}}
    page = markdown({**result, "log_decode_gb_per_s": 1.5}).splitlines()
    assert page[0] == f"{SAID}, 2 minutes."
    assert "| flights | live read | 1,234 | 0.71 | 0.60 | 0.50 |" in page
    assert "| flights | live read |  | 0.71 | 0.60 | 0.50 |" in page
    assert "flights: 2,000 messages, departures." in page


def test_seconds_of_jobs_and_of_planning() -> None:
    row = {"name": "stats", "rows": 336776, "of": "messages", "seconds": 20.04}
    row |= {"rows_per_s": 16805.2, "said": "counted"}
    page = markdown({**WHERE, "kind": "spark-jobs", "rows": [row]})
    assert page.splitlines()[-1] == "| stats | 336,776 messages | 20.0 | 16,805 | counted |"
    found = {"queues": 1000000, "first_cpu_s": 9.0, "next_cpu_s": 8.0, "offsets_mib": 20.0}
    said = markdown({**WHERE, "kind": "spark-planning", **found, "peak_rss_mib": 940.0})
    assert said.startswith("Planning 1,000,000 queues: 9.0 s of CPU at first, 8.0 s for each")


def test_the_job_archive_is_told_from_a_plain_write() -> None:
    uses = {case.use: case.name for case in CASES}
    assert uses["archive"] == "the job archive, 19 columns"
    assert uses["parquet"] == "live read to Parquet, 19 columns"


def test_rates_and_cpu_beside_kafkas() -> None:
    ours = {"seconds": 2.0, "cpu_s": 3.0, "broker_cpu_s": 0.5}
    row = {"name": "sink", "use": "sink", "rows": 500_000, "roquet": ours}
    row |= {"kafka": {"seconds": 4.0, "cpu_s": 6.0, "broker_cpu_s": 1.0}}
    floor = {**row, "name": "micro-batch", "use": "floor"}
    page = markdown({**WHERE, "kind": "spark-kafka", "rows": [row, floor]}).splitlines()
    assert "| sink | 250,000 | 125,000 | 2.00 | 6.0 | 12.0 | 0.50 | 1.0 | 2.0 |" in page
    assert "| micro-batch | 2,000 ms | 4,000 ms | 2.00 | | | 0.50 | | |" in page


def test_cpu_of_a_tree_has_that_of_children_that_ended() -> None:
    spin = "import time\nwhile time.process_time() < 0.3: pass"
    before = tree_cpu_s(os.getpid())
    subprocess.run([sys.executable, "-c", spin], check=True)
    # The system counts in ticks of 10 ms, for each of two figures.
    assert tree_cpu_s(os.getpid()) - before >= 0.3 - 0.05
