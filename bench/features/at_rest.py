"""What a broker uses while nothing happens: one consumer is connected and waits.

`python -m bench.features.at_rest [--kinds roquet,java] [--secs 60] [--settle 15] [--rounds 1]`

CPU and wake-ups of each thread, as the kernel counts them (`/proc/PID/task/*/schedstat`), in
percent of a core and a second. Files are small, so that nothing is made ahead meanwhile. Threads of
one name without its number are one line. The consumer is `roquet sub`, a process of its own. On a
busy machine each wake-up costs more, as others have filled the caches; their number stays the same.
"""

from __future__ import annotations

import argparse
import contextlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

from bench import processes
from bench.result_files import circumstances, save

if TYPE_CHECKING:
    from bench.processes import Broker

TOPIC, QUEUES = "AtRest", 4
CONFIG = ("mapedFileSizeCommitLog=4194304", "mapedFileSizeConsumeQueue=600000")
SHOWN = 8
"""Threads of one broker that are shown, those that use most."""
_NUMBER = re.compile(r"[-_#:]*\d+$")
Used = tuple[float, float]
"""Percent of a core, wake-ups a second."""


def threads(pid: int) -> dict[int, tuple[str, int, int]]:
    """Return name, nanoseconds on a core and times put on one, of each thread of a process."""
    found: dict[int, tuple[str, int, int]] = {}
    for task in Path(f"/proc/{pid}/task").iterdir():
        # A thread may end meanwhile.
        with contextlib.suppress(OSError):
            name = _NUMBER.sub("", (task / "comm").read_text().strip())
            on_core_ns, _, times = map(int, (task / "schedstat").read_text().split())
            found[int(task.name)] = name, on_core_ns, times
    return found


def look(broker: Broker, secs: float) -> dict[str, Used]:
    """Return what each thread used for a while, by name."""
    before = threads(broker.process.pid)
    begin_s = time.monotonic()
    time.sleep(secs)
    after = threads(broker.process.pid)
    took_s = time.monotonic() - begin_s
    sums: defaultdict[str, list[int]] = defaultdict(lambda: [0, 0])
    for task, (name, on_core_ns, times) in after.items():
        _, first_ns, first_times = before.get(task, ("", 0, 0))
        sums[name][0] += on_core_ns - first_ns
        sums[name][1] += times - first_times
    return {name: (ns / took_s / 1e7, times / took_s) for name, (ns, times) in sums.items()}


def measure(kind: str, folder: Path, options: argparse.Namespace) -> dict[str, Used]:
    """Start a broker and its consumer, let them come to rest, and look."""
    broker = processes.start(kind, "async", folder, CONFIG)
    consumer: subprocess.Popen[bytes] | None = None
    try:
        broker.create_topic(TOPIC, QUEUES)
        processes.wait_for_send(broker, TOPIC)
        if options.consumer:
            namesrv = (folder / "namesrv.conf").read_text().split("listenPort=")[1].split()[0]
            consumer = subprocess.Popen(
                [sys.executable, "-m", "roquet", "sub", TOPIC, "-n", f"127.0.0.1:{namesrv}"],
                stdout=subprocess.DEVNULL,
            )
        time.sleep(options.settle)
        if consumer is not None and consumer.poll() is not None:
            raise RuntimeError(f"the consumer of {kind} ended with {consumer.returncode}")
        return look(broker, options.secs)
    finally:
        if consumer is not None:
            consumer.terminate()
            consumer.wait()
        broker.stop()
        shutil.rmtree(folder, ignore_errors=True)


def show(kind: str, used: dict[str, Used]) -> None:
    """Print the sum and the threads that use most."""
    total = sum(percent for percent, _ in used.values())
    wakes = sum(times for _, times in used.values())
    print(f"{kind:8} {'all':18} {total:7.3f} % of a core {wakes:8.1f} wake-ups/s")
    for name, (percent, times) in sorted(used.items(), key=lambda it: -it[1][0])[:SHOWN]:
        print(f"{kind:8} {name:18} {percent:7.3f} % {times:20.1f}")
    sys.stdout.flush()


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kinds", default="roquet,java")
    parser.add_argument("--secs", type=float, default=60)
    parser.add_argument("--settle", type=float, default=15, help="seconds before that")
    parser.add_argument("--rounds", type=int, default=1, help="each make in turn, so often")
    parser.add_argument("--no-consumer", dest="consumer", action="store_false")
    parser.add_argument("--folder", help="where the stores are")
    options = parser.parse_args()
    about = circumstances("at-rest", "bench.features.at_rest")
    rows: dict[str, list[dict[str, Used]]] = defaultdict(list)
    with tempfile.TemporaryDirectory(prefix="roquet-rest-", dir=options.folder) as place:
        for _ in range(options.rounds):
            for kind in options.kinds.split(","):
                rows[kind].append(measure(kind, Path(place) / kind, options))
                show(kind, rows[kind][-1])
    print(save({**about, "secs": options.secs, "rows": rows}))


if __name__ == "__main__":
    main()
