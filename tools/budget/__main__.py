"""Measure what one request costs everybody else: how long one turn of the loop takes for it.

    python -m tools.budget [--budget-ms 20] [--only 34] [--world broker]

Servers run in processes of their own, with tables as large as clients can make them. They are asked
the most expensive request of each kind at its limit, `--rounds` times, and as often again after a
pause when each was over. Judged is the longest CPU time that one turn of the server's loop took
(`tools.budget.loop_turns`), in the best of the rounds: a busy host hardly changes it. Beside it
stand the longest time in which the loop had no turn while the process used CPU, the longest garbage
collection, and what the slowest answer to somebody else took. The exit code is 1 when a turn took
longer than the budget. The relay has a list of 10,000 servers, two of which are there.
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import socket
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from roquet.acl.signature import sign
from roquet.base.overriding import override
from roquet.protocol.command import Command
from roquet.remoting.codec import encode
from tools.budget.relay import measure_relay
from tools.budget.requests import REQUESTS
from tools.budget.rounds import ROUNDS, best_of
from tools.budget.worlds import (
    ACCESS_KEY,
    ADMIN_KEY,
    ADMIN_SECRET,
    SECRET_KEY,
    broker_with_accounts,
    full_broker,
    name_server,
    processors_only,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractAsyncContextManager

    from roquet.testing.process import Caller
    from tools.budget.loop_turns import Turns
    from tools.budget.requests import Asked

    World = Callable[[Path], AbstractAsyncContextManager[tuple[Caller, Turns]]]

PAUSE_S = 0.002
CALL_S = 60.0
HEAD = (
    f"{'request':<28} {'body':>9} {'answer':>9} {'code':>4} {'took ms':>8} {'cpu ms':>8}"
    f" {'turn ms':>8} {'held ms':>8} {'gc ms':>6} {'lag ms':>8}"
)


class Probe(threading.Thread):
    """Asks something cheap again and again, and keeps the slowest answer."""

    def __init__(self, address: str) -> None:
        """Connect to `address`."""
        super().__init__(daemon=True)
        host, _, port = address.rpartition(":")
        self._peer = socket.create_connection((host, int(port)))
        # A code that nobody knows is answered by the loop of every server.
        self._ask = encode(Command(9_999), opaque=1)
        self._ended = threading.Event()
        self.worst_ms = 0.0

    @override
    def run(self) -> None:
        """Ask until `end`."""
        while not self._ended.wait(PAUSE_S):
            began = time.perf_counter()
            self._peer.sendall(self._ask)
            size = int.from_bytes(self._read(4))
            self._read(size)
            self.worst_ms = max(self.worst_ms, (time.perf_counter() - began) * 1000)

    def end(self) -> None:
        """Stop asking."""
        self._ended.set()
        self.join()
        self._peer.close()

    def _read(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            more = self._peer.recv(size - len(data))
            if not more:
                raise ConnectionError("the server closed the connection of the probe")
            data += more
        return data


class Measured(NamedTuple):
    """One request of one round."""

    turn_ms: float
    line: str


async def ask(it: Caller, turns: Turns, asked: Asked, command: Command) -> Measured:
    """Send a request and return what it cost."""
    await turns.begin()
    probe = Probe(it.address)
    probe.start()
    began = time.perf_counter()
    answer = await it.client.call(it.address, command, CALL_S)
    took_ms = (time.perf_counter() - began) * 1000
    longest = await turns.end()
    probe.end()
    sizes = f"{len(command.body):>9} {len(answer.body):>9} {answer.code:>4}"
    line = (
        f"{asked.name:<28} {sizes} {took_ms:>8.0f} {longest.cpu_ms:>8.0f} {longest.turn_ms:>8.1f}"
        f" {longest.held_ms:>8.1f} {longest.collection_ms:>6.1f} {probe.worst_ms:>8.1f}"
    )
    if asked.code is not None and answer.code != asked.code:
        raise AssertionError(f"{asked.name}: answered {answer.code} {answer.remark}")
    return Measured(longest.turn_ms, line)


async def measure(asked: argparse.Namespace) -> int:
    """Print a line for each request; return how many were over the budget."""
    over = 0
    worlds: dict[str, World] = {
        "broker": functools.partial(full_broker, offsets=asked.offsets),
        "processors": processors_only,
        "accounts": broker_with_accounts,
        "namesrv": name_server,
    }
    if asked.world in (None, "relay") and asked.only is None:
        with tempfile.TemporaryDirectory() as folder:
            over += await measure_relay(Path(folder), asked.budget_ms, asked.rounds)
    for world, opened in worlds.items():
        if asked.world not in (None, world):
            continue
        with tempfile.TemporaryDirectory() as folder:
            async with opened(Path(asked.keep or folder)) as (it, turns):
                print(f"{world}\n{HEAD}", flush=True)
                for one in REQUESTS[world]:
                    if asked.only is None or one.name.split()[0] in asked.only.split(","):
                        over += await _judge(it, turns, one, asked)
    return over


async def _judge(it: Caller, turns: Turns, one: Asked, asked: argparse.Namespace) -> bool:
    """Ask in rounds until one is within the budget; print the best."""

    async def measure(number: int) -> Measured:
        command = one.make(number)
        if one.signed:
            key, secret = (ADMIN_KEY, ADMIN_SECRET) if one.admin else (ACCESS_KEY, SECRET_KEY)
            command = sign(command, key, secret.encode())
        return await ask(it, turns, one, command)

    best = await best_of(measure, asked.budget_ms, rounds=asked.rounds)
    is_over = best.turn_ms > asked.budget_ms
    print(best.line + (" OVER" if is_over else ""), flush=True)
    return bool(is_over)


def main() -> int:
    """Measure, print, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--budget-ms", type=float, default=20.0)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--offsets", type=int, default=400_000)
    parser.add_argument("--world", choices=(*REQUESTS, "relay"))
    parser.add_argument("--keep", help="an empty folder for the servers' files, not removed")
    parser.add_argument("--only", help="request codes, separated by commas; no relay")
    over = asyncio.run(measure(parser.parse_args()))
    print(f"{over} over the budget" if over else "all within the budget")
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main())
