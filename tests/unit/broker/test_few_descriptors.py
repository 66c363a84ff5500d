"""B19: a broker whose descriptors run out pauses, says so once, and goes on; it does not spin."""

from __future__ import annotations

import asyncio
import contextlib
import resource
from pathlib import Path

from roquet.remoting.codec import encode
from roquet.testing.cluster import pull_command
from roquet.testing.process import BrokerProcess

MORE = 40
"""Connections that the broker has no descriptor for."""


def descriptors(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def cpu_s(pid: int) -> float:
    """Return the processor time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


async def until_it(holds: object, what: str) -> None:
    assert callable(holds)
    for _ in range(9_000):
        if holds():
            return
        await asyncio.sleep(0.01)
    raise AssertionError(f"never: {what}")


def test_b19_a_broker_without_descriptors_serves_whom_it_has(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path)

    async def run() -> None:
        async with broker.client() as it, contextlib.AsyncExitStack() as stack:
            assert (await it.send("orders")).code == 0
            assert broker.process is not None
            pid = broker.process.pid
            room = descriptors(pid) + 10
            resource.prlimit(pid, resource.RLIMIT_NOFILE, (room, room))
            host, _, port = broker.address.rpartition(":")
            for _ in range(10 + MORE):
                _, writer = await asyncio.open_connection(host, int(port))
                stack.callback(writer.close)
                # A connection that says something is not closed for its silence.
                writer.write(encode(pull_command("orders", 0)))
            await until_it(lambda: "accepting paused" in broker.output, "it says so")
            begun, used = asyncio.get_running_loop().time(), cpu_s(pid)
            for _ in range(10):
                assert (await it.pull("orders")).code == 0
                await asyncio.sleep(0.2)
            passed = asyncio.get_running_loop().time() - begun
            assert cpu_s(pid) - used < passed / 2, "it does not spin"
            assert broker.output.count("accepting paused") <= 1 + passed / 10
        async with broker.client() as it:
            assert (await it.send("orders")).code == 0, "there is room again"

    try:
        asyncio.run(run())
    finally:
        broker.kill()
    assert broker.output.count("Traceback") == 0
