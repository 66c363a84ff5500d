"""What the relay's most expensive inputs cost one turn of its loop: for `tools.budget`.

A list of as many servers as one may have, of which two are there; the pages that show them; the
longest packet, and as many short ones as a read brings; and a list without most of them.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import time
from typing import TYPE_CHECKING, NamedTuple

from bench.relay.peers import Fleet, frame

from roquet.relay.config import RelayConfig
from roquet.relay.config_server import ConfigServer
from roquet.relay.http_get import http_get
from tools.budget.loop_turns import FILE, Longest, Turns
from tools.budget.rounds import best_of

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable
    from pathlib import Path

WAIT_S = 60.0
PAGE_MAX = 64 << 20
PAGES = ("/", "/health", "/servers", "/workers", "/metrics", "/openapi.json")
UNREACHED = {"type": 1, "host": "127.0.0.1", "port": 1}
HEAD = f"{'input':<28} {'took ms':>8} {'cpu ms':>8} {'turn ms':>8} {'held ms':>8} {'gc ms':>6}"


class World:
    """A relay process, its configuration server and two servers behind it."""

    def __init__(self, folder: Path) -> None:
        """Run nothing yet."""
        self._file = folder / "servers.json"
        self._folder = folder
        self._version = 0
        self._lists = ConfigServer(self._file)
        self.fleet = Fleet(range(1, 3))
        self.turns = Turns(folder / "turns")
        self.http = ""

    def publish(self, count: int) -> None:
        """Have so many servers listed."""
        self._version += 1
        more = ({"id": number, **UNREACHED} for number in range(3, count + 1))
        entries = [*self.fleet.entries(), *more]
        side = self._file.with_suffix(".new")
        side.write_text(json.dumps({"version": self._version, "servers": entries}))
        side.replace(self._file)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Run everything."""
        await self.fleet.start()
        self.publish(2)
        await self._lists.start()
        process = await asyncio.to_thread(self._relay)
        try:
            await self.fleet.whole(WAIT_S)
            yield
        finally:
            process.kill()
            process.wait(WAIT_S)
            await self.fleet.stop()
            await self._lists.stop()

    def _relay(self) -> subprocess.Popen[str]:
        settings = {
            "http_port": "0",
            "config_url": self._lists.url,
            "config_copy": str(self._folder / "copy.json"),
            "load_config_ms": "100",
            "heartbeat_timeout_ms": "3600000",
        }
        flags = [part for key, value in settings.items() for part in ("-s", f"{key}={value}")]
        process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "tools.budget.loop_turns",
                "relay",
                *flags,
                "--log-level",
                "ERROR",
            ],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, FILE: str(self._folder / "turns")},
        )
        assert process.stdout is not None
        while "http://" not in (line := process.stdout.readline()):
            if not line:
                raise RuntimeError("the relay did not start")
        self.http = line.split("http://", 1)[1].strip().rstrip("/")
        return process

    async def get(self, path: str) -> bytes:
        """Return a page."""
        return await http_get(f"http://{self.http}{path}", WAIT_S, PAGE_MAX)

    async def listed(self, count: int) -> None:
        """Publish so many servers, and wait until the relay has them."""
        self.publish(count)
        version = f'"config_version":{self._version}'.encode()
        async with asyncio.timeout(WAIT_S):
            while version not in (await self.get("/health")).replace(b" ", b""):  # noqa: ASYNC110
                await asyncio.sleep(0.05)

    async def changed(self, count: int) -> None:
        """List so many servers, and see the relay through some rounds of dialling them."""
        await self.listed(count)
        await asyncio.sleep(8.0)

    async def poured(self, packet: bytes, count: int) -> None:
        """Send packets from one server to the other, and wait for what comes of them."""
        sender, receiver = self.fleet.peers[1], self.fleet.peers[2]
        before = sender.frames + receiver.frames
        sender.transport.write(packet * count)
        async with asyncio.timeout(WAIT_S):
            while sender.frames + receiver.frames < before + count:  # noqa: ASYNC110
                await asyncio.sleep(0.005)


async def measure_relay(folder: Path, budget_ms: float, rounds: int) -> int:
    """Print a line for each input; return how many were over the budget."""
    world, config = World(folder), RelayConfig()
    longest = frame(1, 2, bytes(config.frame_bytes - 256))
    steps: list[tuple[str, Callable[[], Awaitable[object]]]] = [
        ("longest packet", lambda: world.poured(longest, 1)),
        ("short packets", lambda: world.poured(frame(1, 2, b""), 10_000)),
        ("most servers", lambda: world.changed(config.servers_max)),
        *((f"GET {path}", lambda path=path: world.get(path)) for path in PAGES),
        ("servers that leave", lambda: world.changed(2)),
    ]
    print(f"relay\n{HEAD}", flush=True)
    over = 0
    async with world.running():
        for name, step in steps:
            over += await _judge(world.turns, name, step, budget_ms, rounds)
    return over


async def _judge(
    turns: Turns, name: str, step: Callable[[], Awaitable[object]], budget_ms: float, rounds: int
) -> bool:
    """Do a step in rounds until one is within the budget; print the best."""

    async def measure(_: int) -> _Measured:
        await turns.begin()
        began = time.perf_counter()
        await step()
        took_ms = (time.perf_counter() - began) * 1000
        longest = await turns.end()
        return _Measured(longest.turn_ms, took_ms, longest)

    best = await best_of(measure, budget_ms, rounds=rounds)
    longest, is_over = best.longest, best.turn_ms > budget_ms
    print(
        f"{name:<28} {best.took_ms:>8.0f} {longest.cpu_ms:>8.0f} {longest.turn_ms:>8.1f}"
        f" {longest.held_ms:>8.1f} {longest.collection_ms:>6.1f}{' OVER' if is_over else ''}",
        flush=True,
    )
    return is_over


class _Measured(NamedTuple):
    """One step of one round."""

    turn_ms: float
    took_ms: float
    longest: Longest
