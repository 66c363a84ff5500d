"""How much a broker carries that does nothing: idle connections, and many topics.

`python -m tools.scale connections N` opens N connections, sends one heartbeat over each and says
what each costs the broker's process. `python -m tools.scale topics N` makes N topics of eight
queues and says how long a restart takes. Figures go to standard output as JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import signal
import sys
import tempfile
import time
from pathlib import Path

from roquet.base.clock import SystemClock
from roquet.protocol.codes import RequestCode
from roquet.protocol.command import Command
from roquet.remoting.codec import encode
from roquet.testing.process import BrokerProcess

SOURCES = 5
"""Loopback addresses that the connections come from: each has only so many ports."""
AT_ONCE = 200
QUEUES = 8
TOPICS_A_REQUEST = 500


def resident_kib(pid: int) -> int:
    """Return the resident memory of a process."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    raise ValueError(f"process {pid} has no memory")


def pid_of(broker: BrokerProcess) -> int:
    """Return the number of the broker's process."""
    assert broker.process is not None
    return broker.process.pid


async def connections(count: int, folder: Path) -> dict[str, float]:
    """Open connections with one heartbeat each and measure the broker."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    broker = BrokerProcess(folder)
    writers: list[asyncio.StreamWriter] = []
    try:
        async with broker.client() as it:
            await it.send("warm")
            before = resident_kib(pid_of(broker))
            begun = time.monotonic()
            for first in range(0, count, AT_ONCE):
                numbers = range(first, min(count, first + AT_ONCE))
                writers += await asyncio.gather(
                    *(connect(broker.address, number) for number in numbers)
                )
            took_s = time.monotonic() - begun
            after = resident_kib(pid_of(broker))
            begun = time.monotonic()
            for _ in range(100):
                await it.send("warm")
            send_ms = (time.monotonic() - begun) * 10
    finally:
        for writer in writers:
            writer.close()
        broker.kill()
    return {
        "connections": count,
        "connect_s": round(took_s, 2),
        "kib_each": round((after - before) / count, 2),
        "send_ms_beside": round(send_ms, 2),
    }


async def connect(address: str, number: int) -> asyncio.StreamWriter:
    """Open one connection and wait for the answer to its heartbeat."""
    host, port = address.rsplit(":", 1)
    source = (f"127.0.0.{2 + number % SOURCES}", 0)
    reader, writer = await asyncio.open_connection(host, int(port), local_addr=source, limit=4096)
    body = {
        "clientID": f"idle-{number}",
        "producerDataSet": [{"groupName": "idle"}],
        "consumerDataSet": [],
    }
    command = Command(RequestCode.HEART_BEAT, body=json.dumps(body).encode(), opaque=1)
    writer.write(encode(command))
    size = int.from_bytes(await reader.readexactly(4), "big")
    await reader.readexactly(size)
    return writer


async def topics(count: int, folder: Path) -> dict[str, float]:
    """Make topics, write to each queue of some, restart and measure."""
    broker = BrokerProcess(folder)
    try:
        async with broker.client() as it:
            for first in range(0, count, TOPICS_A_REQUEST):
                names = [
                    {"topicName": f"t{number}", "readQueueNums": QUEUES, "writeQueueNums": QUEUES}
                    for number in range(first, min(count, first + TOPICS_A_REQUEST))
                ]
                body = json.dumps({"topicConfigList": [{**name, "perm": 6} for name in names]})
                code = RequestCode.UPDATE_AND_CREATE_TOPIC_LIST
                answer = await it.call(Command(code, body=body.encode()))
                assert answer.code == 0, answer.remark
            for number in range(count):
                await asyncio.gather(
                    *(it.send(f"t{number}", b"x", queue) for queue in range(QUEUES))
                )
        broker.kill(signal.SIGTERM)
        starts: list[float] = []
        resident = 0
        for _ in range(3):
            begun = time.monotonic()
            broker.start()
            await broker.booted(SystemClock())
            starts.append(time.monotonic() - begun)
            resident = resident_kib(pid_of(broker))
            broker.kill(signal.SIGTERM)
    finally:
        broker.kill()
    return {
        "topics": count,
        "queues": count * QUEUES,
        "warm_start_s": round(sorted(starts)[1], 2),
        "resident_mib": round(resident / 1024, 1),
    }


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("connections", "topics"))
    parser.add_argument("count", type=int)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="roquet-scale-") as folder:
        measure = connections if options.what == "connections" else topics
        print(json.dumps(asyncio.run(measure(options.count, Path(folder)))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
