"""The relay's figures, beside one hop of bare asyncio in the same run.

`python -m bench.relay [--pairs 5] [--packets 200000] [--servers 1000] [--folder bench/results]`
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import uvloop

from bench.relay.peers import Fleet, Peer, frame
from bench.result_files import circumstances, save
from bench.weights import cpu_s, memory_mib
from roquet.relay.config_server import ConfigServer

if TYPE_CHECKING:
    from collections.abc import Sequence

BODY = 256
BATCH = 128
IN_FLIGHT = 10_000
RATE = 2_000
LIMIT_S = 120.0

Figures = dict[str, float]


class World:
    """A configuration server and, after `start`, a relay process."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.file = folder / "servers.json"
        self.lists = ConfigServer(self.file)
        self.process: subprocess.Popen[str] | None = None
        self.version = 0

    def publish(self, entries: Sequence[dict[str, object]]) -> None:
        """Have these servers listed."""
        self.version += 1
        side = self.file.with_suffix(".new")
        side.write_text(json.dumps({"version": self.version, "servers": list(entries)}))
        side.replace(self.file)

    async def start(self) -> subprocess.Popen[str]:
        """Start the relay."""
        settings = {
            "http_port": "0",
            "config_url": self.lists.url,
            "config_copy": str(self.folder / "copy.json"),
            "load_config_ms": "200",
            # The peers of this measurement say nothing by themselves.
            "heartbeat_timeout_ms": "3600000",
        }
        flags = [part for key, value in settings.items() for part in ("-s", f"{key}={value}")]
        command = [sys.executable, "-m", "roquet", "relay", *flags, "--log-level", "WARNING"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        line = await asyncio.to_thread(self.process.stdout.readline)
        if "boot success" not in line:
            raise RuntimeError(f"the relay says {line!r}")
        return self.process

    def stop(self) -> None:
        """End the relay."""
        if self.process is not None:
            self.process.terminate()
            self.process.wait(20)


async def pour(sender: Peer, receiver: Peer, packet: bytes, count: int) -> float:
    """Send as fast as the other end takes it; return the seconds until all have come."""
    batch = packet * BATCH
    before = receiver.frames
    begun = time.perf_counter()
    async with asyncio.timeout(LIMIT_S):
        for sent in range(0, count // BATCH * BATCH, BATCH):
            # What waits for one server is bounded: beyond that packets are refused.
            while sent - (receiver.frames - before) > IN_FLIGHT:
                await asyncio.sleep(0)
            await sender.may_write.wait()
            sender.transport.write(batch)
            await asyncio.sleep(0)
        while receiver.frames - before < count // BATCH * BATCH:
            await asyncio.sleep(0.001)
    return time.perf_counter() - begun


async def trickle(sender: Peer, receiver: Peer, to: int, seconds: float) -> Figures:
    """Send at a fixed rate; return the latencies from the moment each was due, in µs."""
    receiver.times_bodies = True
    receiver.latencies_s.clear()
    loop = asyncio.get_running_loop()
    due = loop.time()
    for _ in range(int(seconds * RATE)):
        due += 1 / RATE
        wait = due - loop.time()
        if wait > 0:
            await asyncio.sleep(wait)
        late = loop.time() - due
        body = struct.pack(">d", time.perf_counter() - late) + bytes(BODY - 8)
        sender.transport.write(frame(sender.server_id, to, body))
    await asyncio.sleep(0.3)
    receiver.times_bodies = False
    found = sorted(one * 1e6 for one in receiver.latencies_s)
    return {"p50_us": found[len(found) // 2], "p99_us": found[int(len(found) * 0.99)]}


async def forwarding(
    process: subprocess.Popen[str], sender: Peer, receiver: Peer, count: int
) -> Figures:
    """Measure one pour and one trickle through a process."""
    packet = frame(sender.server_id, receiver.server_id, bytes(BODY))
    await pour(sender, receiver, packet, count // 10)
    before = cpu_s(process.pid)
    seconds = await pour(sender, receiver, packet, count)
    used = cpu_s(process.pid) - before
    done = count // BATCH * BATCH
    latency = await trickle(sender, receiver, receiver.server_id, 2.0)
    return {"packets_s": done / seconds, "cpu_us": used / done * 1e6, **latency}


async def through_relay(count: int) -> Figures:
    """Measure forwarding between two inner servers."""
    with tempfile.TemporaryDirectory() as folder:
        world, fleet = World(Path(folder)), Fleet(range(1, 3))
        await fleet.start()
        world.publish(fleet.entries())
        await world.lists.start()
        try:
            process = await world.start()
            await fleet.whole(LIMIT_S)
            return await forwarding(process, fleet.peers[1], fleet.peers[2], count)
        finally:
            world.stop()
            await fleet.stop()
            await world.lists.stop()


async def through_hop(count: int) -> Figures:
    """Measure the same bytes through one hop that only copies."""
    receiver, sender = Peer(2), Peer(1)
    for peer in (receiver, sender):
        peer.registered.set()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: receiver, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    command = [sys.executable, "-m", "bench.relay.hop", str(port)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        hop = int(await asyncio.to_thread(process.stdout.readline))
        await loop.create_connection(lambda: sender, "127.0.0.1", hop)
        await asyncio.sleep(0.3)
        return await forwarding(process, sender, receiver, count)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
        sender.transport.abort()
        server.close()
        await server.wait_closed()


async def registering(count: int) -> Figures:
    """Measure how long a fleet takes to be whole, and the memory of each server."""
    with tempfile.TemporaryDirectory() as folder:
        world, fleet = World(Path(folder)), Fleet(range(1, count + 1))
        world.publish([])
        await world.lists.start()
        await fleet.start()
        try:
            process = await world.start()
            await asyncio.sleep(0.5)
            idle, before = memory_mib(process.pid)["rss"], cpu_s(process.pid)
            begun = time.perf_counter()
            world.publish(fleet.entries())
            await fleet.whole(LIMIT_S)
            seconds = time.perf_counter() - begun
            return {
                "register_s": seconds,
                "register_cpu_s": cpu_s(process.pid) - before,
                "kib_a_server": (memory_mib(process.pid)["rss"] - idle) * 1024 / count,
            }
        finally:
            world.stop()
            await fleet.stop()
            await world.lists.stop()


def medians(runs: Sequence[Figures]) -> dict[str, Any]:
    """Return median, least and most of each figure."""
    return {
        name: {
            "median": statistics.median(run[name] for run in runs),
            "min": min(run[name] for run in runs),
            "max": max(run[name] for run in runs),
        }
        for name in runs[0]
    }


async def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Run relay and hop in turn."""
    relays: list[Figures] = []
    hops: list[Figures] = []
    for _ in range(options.pairs):
        relays.append(await through_relay(options.packets))
        hops.append(await through_hop(options.packets))
    fleets = [await registering(options.servers) for _ in range(min(3, options.pairs))]
    return {
        "relay": medians(relays),
        "bare_asyncio_hop": medians(hops),
        "fleet": {"servers": options.servers, **medians(fleets)},
    }


def main() -> int:
    """Measure, print, keep."""
    parser = argparse.ArgumentParser(description="Measure the relay beside one bare hop.")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--packets", type=int, default=200_000)
    parser.add_argument("--servers", type=int, default=1_000)
    options = parser.parse_args()
    about = circumstances("relay", "bench.relay")
    found = uvloop.run(measure(options))
    path = save({**about, "body": BODY, **found})
    for part in ("relay", "bare_asyncio_hop", "fleet"):
        for name, value in found[part].items():
            shown = f"{value['median']:.1f}" if isinstance(value, dict) else value
            sys.stdout.write(f"{part:<18} {name:<16} {shown}\n")
    sys.stdout.write(f"kept in {path}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
