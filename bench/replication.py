"""What a copy costs: sends to a lone master, to our pair and to Java's, with double write.

`python -m bench.replication [--pairs 5] [--secs 10] [--warm-up 20] [--kinds alone,ours,tls,java]`

CPU of a pair is that of master and slave together, until the slave has everything. The rates and
the CPU of the pairs alternate; each figure is the median over the rounds, with its range.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from bench import weights
from bench.result_files import circumstances, save
from bench.run import build_loadgen, loadgen
from bench.scenarios import Scenario
from roquet.protocol.codes import RequestCode
from roquet.protocol.command import Command
from roquet.testing.pair import Pair, over_tls, wait_until

if TYPE_CHECKING:
    from collections.abc import Sequence

    from roquet.testing.pair import Make

KINDS = ("alone", "ours", "tls", "java")
"""A lone master of ours, our pair, our pair with its log copied over TLS, Java's pair."""
LOADS = (
    Scenario("16x1", "send", {"conns": 16, "depth": 1, "size": 1024}),
    Scenario("4x32", "send", {"conns": 4, "depth": 32, "size": 1024}),
)
TOPIC_REQUEST = {
    "topic": "BenchTopic",
    "defaultTopic": "TBW102",
    "readQueueNums": "4",
    "writeQueueNums": "4",
    "perm": "6",
    "topicFilterType": "SINGLE_TAG",
    "topicSysFlag": "0",
    "order": "false",
}
CPU_AT_MOST = 3.0
"""Of our pair, plain or over TLS, against a lone asynchronous master of ours."""

Figures = dict[str, float]


def make(kind: str, folder: Path, chance: random.Random) -> Pair:
    """Return a pair, or a lone master, with files of ordinary length."""
    side: Make = "java" if kind == "java" else "ours"
    settings = {"mappedFileSizeCommitLog": str(1 << 28), "mappedFileSizeConsumeQueue": "6000000"}
    if kind != "alone":
        settings |= {"brokerRole": "SYNC_MASTER", "inSyncReplicas": "2", "slaveTimeout": "20000"}
    if kind == "tls":
        settings |= over_tls(folder)
    return Pair(folder, side, side, chance, settings)


def start(pair: Pair, kind: str) -> None:
    """Start what the kind has, and make the topic."""
    pair.start("master")
    answer = pair.call("master", Command(RequestCode.UPDATE_AND_CREATE_TOPIC, ext=TOPIC_REQUEST))
    if answer.code != 0:
        raise RuntimeError(f"{kind}: {answer.code} {answer.remark}")
    if kind != "alone":
        pair.start("slave")
        wait_until("the slave follows", lambda: (s := pair.status("master")) and s.slaves)


def cpu_s(pair: Pair) -> float:
    """Return user plus system seconds of all brokers of a pair so far."""
    return sum(weights.cpu_s(process.pid) for process in pair.running.values())


def measure(pair: Pair, kind: str, load: Scenario, secs: float) -> Figures:
    """Run one load; return messages a second and CPU microseconds a message."""
    before = cpu_s(pair)
    command = loadgen(load, pair.plans["master"].address, secs)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if not done.stdout:
        raise RuntimeError(f"{load.name} on {kind}: {done.stderr}")
    if kind != "alone":
        pair.catch_up()
    time.sleep(1)
    figures: Figures = json.loads(done.stdout)
    if figures.get("errors"):
        why = f"{figures['errors']} sends were refused: {done.stderr[-500:]}"
        raise RuntimeError(f"{load.name} on {kind}: {why}")
    messages = max(1.0, figures["messages"])
    return {
        "rate": messages / secs,
        "cpu_us": (cpu_s(pair) - before) * 1e6 / messages,
        "p50_us": figures.get("p50_us", 0.0),
        "p99_us": figures.get("p99_us", 0.0),
    }


def summary(runs: Sequence[Figures]) -> dict[str, list[float]]:
    """Return median, least and greatest of each figure."""
    return {
        name: [
            round(value, 2)
            for values in [[run[name] for run in runs]]
            for value in (statistics.median(values), min(values), max(values))
        ]
        for name in runs[0]
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, write bench/results/replication-*.json."""
    parser = argparse.ArgumentParser(prog="bench.replication", description=__doc__)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--secs", type=float, default=10)
    parser.add_argument("--warm-up", type=float, default=20, dest="warm_up")
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--folder", default=None, help="where the stores are made")
    given = parser.parse_args(arguments)
    build_loadgen()
    about = circumstances("replication", "bench.replication")
    folder = Path(tempfile.mkdtemp(prefix="roquet-replication-", dir=given.folder))
    kinds: list[str] = given.kinds.split(",")
    runs: dict[str, dict[str, list[Figures]]] = {load.name: {} for load in LOADS}
    try:
        for kind in kinds:
            # One after the other: two pairs beside each other would share the cores.
            with make(kind, folder / kind, random.Random()) as pair:
                start(pair, kind)
                if given.warm_up > 0:
                    measure(pair, kind, LOADS[1], given.warm_up)
                for load in LOADS:
                    measured = runs[load.name].setdefault(kind, [])
                    measured += [measure(pair, kind, load, given.secs) for _ in range(given.pairs)]
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    rows = {name: {kind: summary(r) for kind, r in found.items()} for name, found in runs.items()}
    _tell(rows)
    print(f"written: {save({**about, 'cpu_at_most': CPU_AT_MOST, 'rows': rows})}")
    return 0


def _tell(rows: dict[str, dict[str, dict[str, list[float]]]]) -> None:
    for name, found in rows.items():
        for kind, figures in found.items():
            print(f"{name:6} {kind:6} {figures}")
        for kind in ("ours", "tls"):
            if {"alone", kind} <= found.keys():
                ratio = found[kind]["cpu_us"][0] / found["alone"]["cpu_us"][0]
                print(f"{name:6} {kind}/alone CPU {ratio:.2f} (at most {CPU_AT_MOST})")


if __name__ == "__main__":
    sys.exit(main())
