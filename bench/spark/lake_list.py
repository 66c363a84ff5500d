"""Seconds that a lake's list takes to read: the parts that count and where queues go on.

`python -m bench.spark.lake_list [--commits 10000] [--queues 2000] [--runs 3]` makes a catalog as
the job `archive` leaves it, a micro-batch a commit and a checkpoint each 100, but for the newest
50; then reads it as the job does when it starts, and as `Lake.read` does. `--whole` also counts all
lines by Spark, as the check of a lake does. Lines need some 20 bytes each in checkpoints.

Commits that are in a checkpoint are never opened by a reader, so that they are empty files here;
the checkpoints of a run of 100 commits are written once by the product, and copied under other
offsets' names with notes of their own.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from bench.spark.sources import session
from bench.weights import tree_cpu_s
from roquet.spark.jobs.lake import Lake
from roquet.spark.jobs.storage.catalog import (
    CHECKPOINT_COMMITS,
    CHECKPOINTS,
    NOTE,
    Entry,
)
from roquet.spark.jobs.storage.summary import Part

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

TAIL: Final = CHECKPOINT_COMMITS // 2
ROWS: Final = 100
"""Of a queue in a micro-batch."""


def commit_of(number: int, queues: int) -> str:
    """Return the lines of a micro-batch."""
    place = Part("orders", "2026-11-23", name_of(number))
    begin = number * ROWS
    return "".join(
        Entry(place, "broker-a", queue, begin, begin + ROWS, ROWS, 7 * begin).json() + "\n"
        for queue in range(queues)
    )


def name_of(number: int) -> str:
    """Return the name of a micro-batch's commit, as the job names them."""
    return f"b0123456789ab-{number:010}"


def make(spark: SparkSession, root: Path, commits: int, queues: int) -> Lake:
    """Make the catalog. The numbers of parts and offsets of each checkpoint are its own."""
    lake = Lake(spark, str(root), "parquet")
    folder = root / "_catalog"
    folder.mkdir(parents=True)
    for number in range(CHECKPOINT_COMMITS):
        (folder / f"{name_of(number)}.json").write_text(commit_of(number, queues))
    if lake.catalog.checkpoint() != CHECKPOINT_COMMITS:
        raise RuntimeError("there is no checkpoint")
    (first,) = (folder / CHECKPOINTS).glob(f"*{NOTE}")
    note = json.loads(first.read_text())
    for begin in range(CHECKPOINT_COMMITS, commits - TAIL, CHECKPOINT_COMMITS):
        numbers = range(begin, begin + CHECKPOINT_COMMITS)
        for number in numbers:
            (folder / f"{name_of(number)}.json").touch()
        made = {"commits": [f"{name_of(it)}.json" for it in numbers]}
        summary = {**note["summary"]}
        summary["added"] = [["orders", "2026-11-23", name_of(it)] for it in numbers]
        summary["ends"] = [[*it[:3], (begin + 100) * ROWS] for it in note["summary"]["ends"]]
        twin = folder / CHECKPOINTS / f"{name_of(begin)}-00000000"
        shutil.copytree(folder / CHECKPOINTS / first.name.removesuffix(NOTE), twin)
        Path(f"{twin}{NOTE}").write_text(json.dumps({**made, "summary": summary}))
    for number in range(commits - TAIL, commits):
        (folder / f"{name_of(number)}.json").write_text(commit_of(number, queues))
    return lake


def main() -> int:
    """Print seconds and CPU of this process and the JVM, medians of some runs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--commits", type=int, default=10_000)
    parser.add_argument("--queues", type=int, default=2_000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--whole", action="store_true", help="count all lines by Spark, too")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="roquet-bench-") as temporary:
        spark = session(Path(temporary))
        lake = make(spark, Path(temporary) / "lake", asked.commits, asked.queues)
        cases: dict[str, Callable[[], int]] = {
            "ends of all queues": lambda: len(lake.catalog.summary().ends()),
            "parts": lambda: len(lake.parts()),
        }
        if asked.whole:
            cases["all lines, by Spark"] = lambda: lake.catalog.live().count()
        for name, call in cases.items():
            seconds, cpu, found = list[float](), list[float](), 0
            for _ in range(asked.runs + 1):
                begun, used = time.monotonic(), tree_cpu_s(os.getpid())
                found = call()
                seconds.append(time.monotonic() - begun)
                cpu.append(tree_cpu_s(os.getpid()) - used)
            rest = seconds[1:]
            print(
                f"{name}: {found:,} in {statistics.median(rest):.2f} s ({min(rest):.2f} to"
                f" {max(rest):.2f}), first {seconds[0]:.2f} s; CPU {statistics.median(cpu[1:]):.2f}"
                f" s, first {cpu[0]:.2f} s; load {os.getloadavg()[0]:.0f}",
                flush=True,
            )
        spark.stop()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
