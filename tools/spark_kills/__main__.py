"""Kill the Spark sink at drawn moments, and judge from outside what its topic has.

`python -m tools.spark_kills --delivery idempotent --each 50` copies a topic by a stream in real
Spark, and kills its driver, its executor, the Python of its tasks and the broker `--each` times,
every kill while a micro-batch is being written, released or verified. Rounds of `--round` kills of
each kind have a store and a checkpoint of their own. Bodies are numbers: each has to be in the
target once, and nothing else. The count is by a client and a reader that share nothing with the
product (`judge.py`).

The executor is a process of its own, in a cluster within the driver (`local-cluster`). Exit code 1
when a row was lost or came twice.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tools.spark_kills.judge import Verdict, seen, verdict
from tools.spark_kills.world import CLUSTER, Mark, finish, rows_for, strike, world

if TYPE_CHECKING:
    from collections.abc import Sequence

KINDS = ("driver", "executor", "worker", "broker")
DELIVERIES = ("idempotent", "transactional")


def main() -> int:
    """Run the rounds; a line for each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--delivery", choices=DELIVERIES, default=DELIVERIES[0])
    parser.add_argument("--each", type=int, default=50, help="kills of each kind")
    parser.add_argument("--round", type=int, default=5, help="of each kind in a round")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    asked = parser.parse_args()
    # Ended by a limit of time, too, it leaves no driver behind: those have sessions of their own.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    good, left, seed = True, asked.each, asked.seed
    while left > 0:
        count = min(left, asked.round)
        kills = list(asked.kinds) * count
        random.Random(seed).shuffle(kills)
        with tempfile.TemporaryDirectory(prefix="roquet-kills-") as folder:
            good &= one_round(Path(folder), kills, seed, asked.delivery)
        left, seed = left - count, seed + 1
    print("nothing lost, nothing twice" if good else "FAILED", flush=True)
    return 0 if good else 1


def one_round(folder: Path, kills: Sequence[str], seed: int, delivery: str) -> bool:
    """Copy a topic through kills; return whether each row came once."""
    rng, begun = random.Random(seed), time.monotonic()
    found, between = Verdict(0, 0, 0), 0
    with world(folder, delivery, CLUSTER if "executor" in kills else "local[2,1000]") as it:
        it.fill(rows_for(kills))
        mark = Mark(it.committed, it.written)
        for what in kills:
            between += strike(it, mark, what, rng)
        finish(it)
        found = verdict(seen(f"127.0.0.1:{it.broker_port}", "Target"), it.rows)
        falls, rows = it.falls, it.rows
    kinds = ", ".join(f"{kills.count(it)} of {it}" for it in KINDS if it in kills)
    print(
        f"{delivery}, seed {seed}: {len(kills)} kills ({kinds}), {between} between write and"
        f" commit, {rows} rows: {found.lost} lost, {found.twice} twice, {found.foreign} foreign;"
        f" started again {falls} times after an error; {time.monotonic() - begun:.0f} s,"
        f" load {os.getloadavg()[0]:.0f}",
        flush=True,
    )
    return found.is_good


if __name__ == "__main__":
    sys.exit(main())
