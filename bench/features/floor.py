"""How much of a send's CPU is the kernel's: a broker beside a program that only moves the bytes.

`python -m bench.features.floor [--rounds 5] [--secs 1]`

The program (`floor.c`, made with the system's compiler) does four system calls for a send, as our
broker does for one alone, and nothing else that a broker does. Both are measured in turn, with one
and with 16 connections that have one send in flight each.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from bench import processes, weights
from bench.result_files import circumstances, save
from bench.run import TOPIC, loadgen
from bench.scenarios import send
from roquet.testing import java

if TYPE_CHECKING:
    from collections.abc import Sequence

LOADS = (send("send 1x1", None, conns=1, depth=1), send("send 16x1", None, conns=16, depth=1))


def start_floor(folder: Path) -> tuple[subprocess.Popen[bytes], int]:
    """Compile and start the program; return it and its port."""
    program, port = folder / "floor", java.free_port(random.Random())
    source = Path(__file__).with_suffix(".c")
    subprocess.run(["cc", "-O2", "-o", str(program), str(source)], check=True)
    process = subprocess.Popen([str(program), str(port), str(folder / "floor.log")])
    time.sleep(0.3)
    return process, port


def measure(load: str, pid: int, address: str, secs: float) -> float:
    """Run one load; return CPU microseconds a message."""
    scenario = next(each for each in LOADS if each.name == load)
    before = weights.cpu_s(pid)
    done = subprocess.run(
        loadgen(scenario, address, secs), capture_output=True, text=True, check=False
    )
    if not done.stdout:
        raise RuntimeError(done.stderr)
    # What a broker does behind its answers counts.
    time.sleep(0.2)
    messages: float = json.loads(done.stdout)["messages"]
    return (weights.cpu_s(pid) - before) * 1e6 / max(1.0, messages)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, write bench/results/floor-*.json."""
    parser = argparse.ArgumentParser(prog="bench.features.floor", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--secs", type=float, default=1)
    given = parser.parse_args(arguments)
    about = circumstances("floor", "bench.features.floor")
    rows: dict[str, dict[str, list[float]]] = {}
    with tempfile.TemporaryDirectory(prefix="roquet-floor-") as name:
        folder = Path(name)
        floor, port = start_floor(folder)
        try:
            with processes.start("roquet", "async", folder / "roquet") as broker:
                broker.create_topic(TOPIC)
                both = {
                    "roquet": (broker.process.pid, broker.address),
                    "floor": (floor.pid, f"127.0.0.1:{port}"),
                }
                for each in LOADS:
                    row = rows[each.name] = {kind: [] for kind in both}
                    for _ in range(given.rounds):
                        for kind, (pid, address) in both.items():
                            row[kind].append(measure(each.name, pid, address, given.secs))
        finally:
            floor.kill()
            floor.wait()
    for load, row in rows.items():
        for kind, found in row.items():
            middle = statistics.median(found)
            print(f"{load:10} {kind:7} {middle:5.1f} ({min(found):.1f} to {max(found):.1f}) us")
    print(f"written: {save({**about, 'cpu_us_a_message': rows})}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
