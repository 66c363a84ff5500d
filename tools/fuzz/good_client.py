"""A well-behaved client beside a flood: it sends, receives and acknowledges, and notes the times.

`python -m tools.fuzz.good_client host:port topic group` works until its input ends. For each line
of input it prints what has happened since the line before, as JSON.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING, Any, Self

from roquet.base.overriding import override
from tools.attack.grpc_client import NONE, OK, Failed, GrpcClient

if TYPE_CHECKING:
    from collections.abc import Callable

PAUSE_S = 0.01
CALL_S = 10.0
ANSWER_S = 60.0
FAULTS_MAX = 20


@dataclasses.dataclass(frozen=True, slots=True)
class Report:
    """What a client has seen. Times are ms, of sends and acknowledgements: a receive may wait."""

    calls: int
    p50: float
    p99: float
    longest: float
    faults: list[str]
    """Calls that were not served."""

    @classmethod
    def of(cls, times: list[float], faults: list[str]) -> Self:
        """Summarize times in seconds."""
        found = sorted(times) or [0.0]
        p50, p99, longest = (
            round(found[int(share * (len(found) - 1))] * 1000, 2) for share in (0.5, 0.99, 1.0)
        )
        return cls(len(times), p50, p99, longest, faults[:FAULTS_MAX])

    @override
    def __str__(self) -> str:
        return (
            f"{self.calls} calls, p50 {self.p50} ms, p99 {self.p99} ms, longest {self.longest} ms,"
            f" {len(self.faults)} not served"
        )


class GoodClient:
    """The client in a process of its own, so that a busy flood does not slow it down."""

    def __init__(self, endpoint: str, topic: str, group: str) -> None:
        """Start it."""
        command = [sys.executable, "-m", "tools.fuzz.good_client", endpoint, topic, group]
        self._child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def report(self) -> Report:
        """Return what has happened since the last report."""
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        self._child.stdin.write(b"\n")
        self._child.stdin.flush()
        return Report(**json.loads(self._child.stdout.readline()))

    def close(self) -> None:
        """End it."""
        self._child.kill()
        self._child.communicate()


class _Work:
    """Two threads: a receive may wait for seconds where one of several brokers has no message."""

    def __init__(self, endpoint: str, topic: str, group: str) -> None:
        self._names = (endpoint, topic, group)
        self._lock = threading.Lock()
        self._times: list[float] = []
        self._faults: list[str] = []

    def start(self) -> None:
        for work in (self._send_on, self._receive_on):
            threading.Thread(target=work, daemon=True).start()

    def _send_on(self) -> None:
        endpoint, topic, _ = self._names
        with GrpcClient(endpoint, "good-sender") as client:
            while True:
                self._timed("send", lambda: self._send(client, topic))
                time.sleep(PAUSE_S)

    def _receive_on(self) -> None:
        endpoint, topic, group = self._names
        with GrpcClient(endpoint, "good-receiver") as client:
            while True:
                found = self._timed("receive", lambda: self._receive(client, topic, group))
                if found:
                    self._timed("ack", functools.partial(self._ack, client, topic, group, found))

    def report(self) -> Report:
        with self._lock:
            times, self._times = self._times, []
            faults, self._faults = self._faults, []
        return Report.of(times, faults)

    def _timed(self, what: str, call: Callable[[], Any]) -> Any:
        began, fault, found = time.monotonic(), "", None
        try:
            found = call()
        except (Failed, AssertionError) as error:
            fault = f"{what}: {error}"[:300]
        with self._lock:
            if what != "receive":
                self._times.append(time.monotonic() - began)
            if fault:
                self._faults.append(fault)
        return found

    @staticmethod
    def _send(client: GrpcClient, topic: str) -> None:
        answer = client.send(topic, [b"good"], CALL_S)
        assert answer.status.code == OK, answer.status.message

    @staticmethod
    def _receive(client: GrpcClient, topic: str, group: str) -> list[Any]:
        code, found = client.receive(topic, group)
        assert code in {OK, NONE}, code
        return found

    @staticmethod
    def _ack(client: GrpcClient, topic: str, group: str, found: list[Any]) -> None:
        answer = client.ack(topic, group, found, CALL_S)
        assert answer.status.code == OK, answer.status.message


def main() -> int:
    """Work until the input ends."""
    work = _Work(*sys.argv[1:4])
    work.start()
    for _ in sys.stdin:
        print(json.dumps(dataclasses.asdict(work.report())), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
