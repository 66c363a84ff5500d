"""Clients that come and go: so many connections a second, each with one heartbeat."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from roquet.testing.cluster import send_command
from roquet.testing.process import BrokerProcess
from tools.scale.lines import Line, Probe, heartbeat, pid_of, resident_kib, share, sockets

if TYPE_CHECKING:
    from pathlib import Path

RATE = 500
WORKERS = 8
WARM_S = 5.0
"""The first seconds fill pools and caches once and for all: memory is looked at behind them."""
SETTLE_S = 60.0


class Churn:
    """Connects at given moments from several threads, whatever the broker does."""

    def __init__(self, address: str, rate: float) -> None:
        """Make nothing yet."""
        self.times_ms: list[float] = []
        self.failures: list[str] = []
        self._address = address
        self._rate = rate
        self._lock = threading.Lock()
        self._next = 0

    def run(self, seconds: float) -> float:
        """Keep going for so long; return the seconds that it took."""
        begun, self._next = time.monotonic(), 0
        last = int(seconds * self._rate)
        with ThreadPoolExecutor(WORKERS) as pool:
            for done in [pool.submit(self._work, begun, last) for _ in range(WORKERS)]:
                done.result()
        return time.monotonic() - begun

    def _work(self, begun: float, last: int) -> None:
        while True:
            with self._lock:
                number, self._next = self._next, self._next + 1
            if number >= last:
                return
            due = begun + number / self._rate
            time.sleep(max(0.0, due - time.monotonic()))
            try:
                with Line(self._address, number) as line:
                    answer = line.call(heartbeat(f"churn-{number}"))
                    if answer.code != 0:
                        self.failures.append(f"{answer.code} {answer.remark}")
            except OSError as error:
                self.failures.append(str(error))
            # From the moment that it was due: a broker that stands still is not spared.
            self.times_ms.append((time.monotonic() - due) * 1000)


async def churn(seconds: float, rate: float, folder: Path) -> dict[str, Any]:
    """Measure a broker beside which clients come and go."""
    broker = BrokerProcess(folder)
    try:
        async with broker.client() as it:
            await it.send("warm")
        pid = pid_of(broker)
        coming = Churn(broker.address, rate)
        coming.run(min(WARM_S, seconds / 2))
        settled = settle(pid, 0)
        before = resident_kib(pid, "RssAnon")
        coming.times_ms.clear()
        beside = Probe(broker.address, send_command("warm", b"beside"))
        beside.start()
        took_s = coming.run(seconds)
        beside.end()
        left = settle(pid, settled)
        after = resident_kib(pid, "RssAnon")
    finally:
        broker.kill()
    return {
        "connections": len(coming.times_ms),
        "a_second": round(len(coming.times_ms) / took_s, 1),
        "failures": len(coming.failures),
        "first_failures": coming.failures[:3],
        "ms_p50_p99_worst": [share(coming.times_ms, part) for part in (0.5, 0.99, 1.0)],
        "send_ms_p50_p99_worst": [share(beside.times_ms, part) for part in (0.5, 0.99, 1.0)],
        "anonymous_mib_before": round(before / 1024, 1),
        "anonymous_mib_after": round(after / 1024, 1),
        "sockets_before": settled,
        "sockets_after": left,
    }


def settle(pid: int, wanted: int) -> int:
    """Wait until the broker has closed what its clients have; return its sockets."""
    end = time.monotonic() + SETTLE_S
    seen = sockets(pid)
    while time.monotonic() < end:
        time.sleep(1.0)
        now = sockets(pid)
        if now <= wanted or now == seen:
            return now
        seen = now
    return seen
