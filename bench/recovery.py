"""How long a broker takes to serve again after kill -9, with its log in memory and without.

And what the disk does alone, which bounds how often a broker can say that a message is safe.
"""

from __future__ import annotations

import os
import shutil
import statistics
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from bench import processes

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.processes import Broker

DROP_CACHES = Path("/proc/sys/vm/drop_caches")
TOPIC = "BenchTopic"


SYNCS = 1_500


def disk_alone(folder: Path) -> dict[str, object]:
    """Append 1 KiB and sync it, one by one, in a file that has its room: what 1x1 is bounded by."""
    path = folder / "alone"
    with path.open("wb", buffering=0) as file:
        number = file.fileno()
        os.posix_fallocate(number, 0, SYNCS * 2048)
        os.fsync(number)
        times: list[float] = []
        for _ in range(SYNCS):
            file.write(b"x" * 1024)
            began = time.perf_counter()
            os.fdatasync(number)
            times.append(time.perf_counter() - began)
    path.unlink()
    median_s = statistics.median(times)
    return {"name": "the disk alone: 1 KiB and a sync", "alone_per_second": 1 / median_s}


def rows(
    kinds: list[str], folder: str | None, fill: Callable[[Broker], object]
) -> list[dict[str, object]]:
    """Fill a broker's log, kill it, start it again: warm, and cold where the system allows it."""
    found: list[dict[str, object]] = []
    for cold in (False, True):
        if cold and not os.access(DROP_CACHES, os.W_OK):
            continue
        seconds: dict[str, float] = {}
        size_mib: dict[str, float] = {}
        for kind in kinds:
            place = Path(tempfile.mkdtemp(prefix="roquet-recovery-", dir=folder))
            try:
                size_mib[kind], seconds[kind] = _one(kind, place, fill, cold=cold)
            finally:
                shutil.rmtree(place, ignore_errors=True)
        found.append(
            {
                "name": f"kill -9 to first SEND_OK, {'cold' if cold else 'warm'}",
                "seconds": seconds,
                "log_mib": size_mib,
            }
        )
    return found


def _one(
    kind: str, place: Path, fill: Callable[[Broker], object], *, cold: bool
) -> tuple[float, float]:
    with processes.start(kind, "async", place) as broker:
        broker.create_topic(TOPIC)
        fill(broker)
        written = int(broker.runtime_info().get("commitLogMaxOffset", 0))
        broker.process.kill()
        broker.process.wait()
    if cold:
        os.sync()
        DROP_CACHES.write_text("3\n")
    with processes.start(kind, "async", place) as broker:
        processes.wait_for_send(broker, TOPIC)
        return written / 2**20, time.monotonic() - broker.exec_s
