"""A server that is measured beside ours: a process that is started, weighed and stopped."""

from __future__ import annotations

import contextlib
import dataclasses
import socket
import subprocess
import time
from typing import TYPE_CHECKING

from bench.weights import cpu_s, memory_mib

if TYPE_CHECKING:
    from pathlib import Path

START_LIMIT_S = 120.0


@dataclasses.dataclass(slots=True)
class Peer:
    """One server; it is asked for nothing but its load."""

    kind: str
    address: str
    process: subprocess.Popen[bytes]

    def cpu_s(self) -> float:
        """User plus system seconds so far."""
        return cpu_s(self.process.pid)

    def memory_mib(self) -> dict[str, float]:
        """Resident memory: whole, and without mapped file pages."""
        return memory_mib(self.process.pid)

    def stop(self) -> None:
        """End it in good order."""
        self.process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(30)
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


def spawn(command: list[str], folder: Path, port: int) -> subprocess.Popen[bytes]:
    """Start a server and wait until it listens. Raises RuntimeError when it does not."""
    log = folder / "server.log"
    with log.open("ab") as out:
        process = subprocess.Popen(
            command, cwd=folder, stdout=out, stderr=out, stdin=subprocess.DEVNULL
        )
    end = time.monotonic() + START_LIMIT_S
    while time.monotonic() < end and process.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return process
        time.sleep(0.05)
    process.kill()
    process.wait()
    raise RuntimeError(f"a server did not start:\n{log.read_text()[-2000:]}")
