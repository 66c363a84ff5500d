"""How long a broker takes to serve again after kill -9, with its log in memory and without."""

from __future__ import annotations

import os
import shutil
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
