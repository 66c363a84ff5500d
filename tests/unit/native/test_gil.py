"""A busy Python thread beside the broker slows sends by a bounded factor (architecture, D6).

Whenever the loop waits for sockets or asks the system to read one it may lose the interpreter lock,
and gets it back after one switch interval (5 ms): a switch a read at worst. A native call that gave
the lock away for every message would pay the interval for each of the messages of a read.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from roquet.protocol.codes import RequestCode
from roquet.protocol.command import Command
from roquet.protocol.headers.message import SendMessageRequest
from roquet.remoting.codec import encode

if TYPE_CHECKING:
    from collections.abc import Iterator

CONNECTIONS = 16
BURST = 16
SPAN_S = 1.5
SWITCH_INTERVAL_S = 0.005

SERVER = """
import asyncio, pathlib, sys, threading
from roquet.testing.cluster import running_broker

def spin():
    while True:
        sum(range(100))

async def main():
    async with running_broker(pathlib.Path(sys.argv[1])) as broker:
        threading.Thread(target=spin, daemon=True).start()
        print(f"127.0.0.1:{broker.listeners.port}", flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)

asyncio.run(main())
"""


@contextlib.contextmanager
def busy_broker(folder: Path) -> Iterator[tuple[tuple[str, int], int]]:
    """Run a broker beside a thread that never waits; yield its address and process."""
    with subprocess.Popen(
        [sys.executable, "-c", SERVER, str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            host, port = process.stdout.readline().strip().rsplit(":", 1)
            yield (host, int(port)), process.pid
        finally:
            process.kill()


def frame() -> bytes:
    header = SendMessageRequest(
        producer_group="g",
        topic="Busy",
        default_topic="TBW102",
        default_topic_queue_nums=4,
        queue_id=0,
        sys_flag=0,
        born_timestamp=1,
        flag=0,
        properties="",
    )
    return encode(
        Command(RequestCode.SEND_MESSAGE_V2, ext=header.encode(short=True), body=b"x" * 100)
    )


def cpu_s(pid: int) -> float:
    """Return the CPU that a process has used: on a busy machine, that is what passes for it."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def sends_within(address: tuple[str, int], pid: int, span_s: float) -> int:
    request, done, until = frame(), 0, cpu_s(pid) + span_s

    async def one() -> None:
        nonlocal done
        reader, writer = await asyncio.open_connection(*address)
        while cpu_s(pid) < until:
            writer.write(request * BURST)
            for _ in range(BURST):
                size = int.from_bytes(await reader.readexactly(4), "big")
                # A machine with much else to do makes the broker say that it is too busy.
                done += b'"code":0,' in await reader.readexactly(size)
        writer.close()

    await asyncio.gather(*(one() for _ in range(CONNECTIONS)))
    return done


def test_a_busy_thread_costs_a_switch_a_read_not_a_switch_a_message(tmp_path: Path) -> None:
    with busy_broker(tmp_path) as (address, pid):
        done = asyncio.run(sends_within(address, pid, SPAN_S))
    one_switch_each = SPAN_S / SWITCH_INTERVAL_S
    assert done > 3 * one_switch_each, f"{done} sends in {SPAN_S} s of CPU"
