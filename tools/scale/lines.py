"""Connections by the thousand, from one process: blocking sockets, which cost next to nothing."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Self

from roquet.protocol.codes import RequestCode
from roquet.protocol.command import Command
from roquet.remoting.codec import decode, encode

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Mapping

    from roquet.testing.process import BrokerProcess

SOURCES = 5
"""Loopback addresses that the connections come from: each has only so many ports."""
CALL_S = 60.0


class Line:
    """One connection. What the other side asks is left unanswered."""

    def __init__(self, address: str, number: int = 0, tls: ssl.SSLContext | None = None) -> None:
        """Connect to `host:port` from one of the loopback addresses. Raises OSError."""
        host, port = address.rsplit(":", 1)
        source = (f"127.0.0.{2 + number % SOURCES}", 0)
        plain = socket.create_connection((host, int(port)), CALL_S, source)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket = plain if tls is None else tls.wrap_socket(plain, server_hostname=host)
        self._partial = b""
        self._kept: dict[int, Command] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the connection."""
        self._socket.close()

    def ask(self, command: Command, opaque: int = 1) -> None:
        """Send a request and wait for nothing."""
        self._socket.sendall(encode(command, opaque=opaque))

    def answer(self, opaque: int = 1) -> Command:
        """Wait for the answer to a request that was sent. Raises OSError."""
        while opaque not in self._kept:
            data = self._socket.recv(65_536)
            if not data:
                raise ConnectionResetError("the broker closed the connection")
            commands, used = decode(self._partial + data)
            self._partial = (self._partial + data)[used:]
            self._kept.update({one.opaque: one for one in commands if one.is_response})
        return self._kept.pop(opaque)

    def call(self, command: Command, opaque: int = 1) -> Command:
        """Ask and wait. Raises OSError."""
        self.ask(command, opaque)
        return self.answer(opaque)


class Probe:
    """Asks the same thing every few milliseconds: the worst time says how long a loop stood."""

    PERIOD_S = 0.005

    def __init__(self, address: str, ask: Command, see: Callable[[Command], object] = id) -> None:
        """Show every answer to `see`."""
        self._thread = threading.Thread(target=self._run, name=f"probe {address}", daemon=True)
        self.times_ms: list[float] = []
        self._line = Line(address)
        self._ask = ask
        self._see = see
        self._ended = threading.Event()

    def start(self) -> None:
        """Begin to ask."""
        self._thread.start()

    def _run(self) -> None:
        number = 0
        while not self._ended.wait(self.PERIOD_S):
            number += 1
            begun = time.monotonic()
            answer = self._line.call(self._ask, number)
            self.times_ms.append((time.monotonic() - begun) * 1000)
            self._see(answer)

    def end(self) -> None:
        """Stop asking and close the connection."""
        self._ended.set()
        self._thread.join(CALL_S)
        self._line.close()


def heartbeat(client: str, consumers: list[Mapping[str, object]] | None = None) -> Command:
    """Return the heartbeat of a producer, or of consumers."""
    body = {
        "clientID": client,
        "producerDataSet": [] if consumers else [{"groupName": "idle"}],
        "consumerDataSet": consumers or [],
    }
    return Command(RequestCode.HEART_BEAT, body=json.dumps(body).encode())


def pid_of(broker: BrokerProcess) -> int:
    """Return the number of the broker's process."""
    assert broker.process is not None
    return broker.process.pid


def resident_kib(pid: int, kind: str = "VmRSS") -> int:
    """Return the resident memory of a process; `RssAnon` is that without mapped files."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{kind}:"):
            return int(line.split()[1])
    raise ValueError(f"process {pid} has no memory")


def processor_s(pid: int) -> float:
    """Return the processor time that a process has used, its threads together."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def sockets(pid: int) -> int:
    """Return how many sockets a process has open."""
    found = 0
    for one in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            found += str(one.readlink()).startswith("socket:")
    return found


def share(times_ms: list[float], part: float) -> float:
    """Return the time that `part` of the times do not exceed; NaN without any."""
    if not times_ms:
        return float("nan")
    ordered = sorted(times_ms)
    return round(ordered[min(len(ordered) - 1, int(part * len(ordered)))], 2)
