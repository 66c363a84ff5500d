"""How much a broker carries that does little: idle clients, waiting ones, many topics, churn.

`python -m tools.scale connections N [--tls] [--pulls K]` opens N connections, sends one heartbeat
over each (and K pulls that wait, for a queue each) and says what a connection costs the broker's
process. `python -m tools.scale topics N` makes N topics of eight queues and says how long a restart
takes, how long the name server takes to know of a change of all of them, and how long both keep
others waiting meanwhile. `python -m tools.scale churn SECONDS [--rate 500]` lets clients come and
go. Figures go to standard output as JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import json
import ssl
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import trustme

from roquet.protocol.messages import sys_flag
from roquet.service.process.runtime import raise_open_files
from roquet.testing.cluster import pull_command, send_command
from roquet.testing.process import BrokerProcess
from tools.scale.churn import RATE, churn
from tools.scale.lines import Line, heartbeat, pid_of, resident_kib
from tools.scale.topics import topics

if TYPE_CHECKING:
    from collections.abc import Mapping

    from roquet.protocol.command import Command
    from roquet.testing.process import Caller

WORKERS = 16
QUEUES = 8
MEMBERS = 10
"""Consumers of a group: each that joins is told to all of its group."""
TOPIC = "warm"
PULL_MS = 60_000
FIRST_PULL = 100


@dataclasses.dataclass(frozen=True, slots=True)
class Kind:
    """What is opened: over TLS or not, with so many pulls that wait."""

    pulls: int = 0
    tls: ssl.SSLContext | None = None


async def connections(count: int, folder: Path, pulls: int, *, tls: bool) -> dict[str, Any]:
    """Open connections with one heartbeat each and measure the broker."""
    raise_open_files()
    settings, context = certificate(folder) if tls else ({}, None)
    broker = BrokerProcess(folder, env=None, **settings)
    kind = Kind(pulls, context)
    lines: list[Line] = []
    try:
        async with broker.client() as it:
            await prepare(it)
            # What the first ones bring into memory once and for all is nobody's share.
            lines += await opened(broker.address, range(count, count + WORKERS), kind)
            before = resident_kib(pid_of(broker))
            begun = time.monotonic()
            lines += await opened(broker.address, range(count), kind)
            took_s = time.monotonic() - begun
            after = resident_kib(pid_of(broker))
            begun = time.monotonic()
            for _ in range(100):
                await it.send("beside")
            send_ms = (time.monotonic() - begun) * 10
            begun = time.monotonic()
            woken = await wake(it, lines, pulls)
            wake_s = time.monotonic() - begun
    finally:
        for line in lines:
            line.close()
        broker.kill()
    return {
        "connections": count,
        "pulls_each": pulls,
        "tls": tls,
        "connect_s": round(took_s, 2),
        "kib_each": round((after - before) / count, 2),
        "send_ms_beside": round(send_ms, 2),
        "pulls_answered": woken,
        "answered_s": round(wake_s, 2),
    }


def certificate(folder: Path) -> tuple[dict[str, str], ssl.SSLContext]:
    """Make a certificate for loopback: a broker's settings, and what a client trusts."""
    authority = trustme.CA()
    leaf = authority.issue_cert("127.0.0.1")
    key, chain = folder / "key.pem", folder / "cert.pem"
    leaf.private_key_pem.write_to_path(str(key))
    chain.write_bytes(b"".join(blob.bytes() for blob in leaf.cert_chain_pems))
    context = ssl.create_default_context()
    authority.configure_trust(context)
    return {"tls.server.certPath": str(chain), "tls.server.keyPath": str(key)}, context


async def prepare(it: Caller) -> None:
    """Make the topics."""
    for queue in range(QUEUES):
        made = await it.call(send_command(TOPIC, b"hello", queue, d=str(QUEUES)))
        assert made.code == 0, made.remark
    await it.send("beside")


async def opened(address: str, numbers: range, kind: Kind) -> list[Line]:
    """Open connections from several threads."""

    def one(number: int) -> Line:
        line = Line(address, number, kind.tls)
        answer = line.call(heartbeat(f"idle-{number}", consumers(number) if kind.pulls else None))
        assert answer.code == 0, answer.remark
        for queue in range(kind.pulls):
            line.ask(waiting_pull(number, queue), FIRST_PULL + queue)
        return line

    loop = asyncio.get_running_loop()
    with ThreadPoolExecutor(WORKERS) as pool:
        return await asyncio.gather(*(loop.run_in_executor(pool, one, it) for it in numbers))


def consumers(number: int) -> list[Mapping[str, object]]:
    """Return the part of a heartbeat that names a consumer of the topic."""
    subscription = {"topic": TOPIC, "subString": "*", "subVersion": 1, "expressionType": "TAG"}
    return [
        {
            "groupName": f"waiters-{number // MEMBERS}",
            "consumeType": "CONSUME_PASSIVELY",
            "messageModel": "CLUSTERING",
            "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
            "subscriptionDataSet": [subscription],
            "unitMode": False,
        }
    ]


def waiting_pull(number: int, queue: int) -> Command:
    """Return a pull behind the only message of a queue: it waits for the next."""
    return pull_command(
        TOPIC,
        1,
        consumerGroup=f"waiters-{number // MEMBERS}",
        queueId=str(queue),
        sysFlag=str(sys_flag.PULL_SUSPEND),
        suspendTimeoutMillis=str(PULL_MS),
        subVersion="1",
    )


async def wake(it: Caller, lines: list[Line], pulls: int) -> int:
    """Send to each queue that is waited for; return how many pulls were answered with it."""
    for queue in range(pulls):
        await it.send(TOPIC, b"news", queue)

    def all_answers() -> int:
        return sum(
            line.answer(FIRST_PULL + queue).code == 0 for line in lines for queue in range(pulls)
        )

    return await asyncio.to_thread(all_answers)


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("connections", "topics", "churn"))
    parser.add_argument("count", type=int, help="of connections, topics or seconds")
    parser.add_argument("--tls", action="store_true", help="connections over TLS")
    parser.add_argument("--pulls", type=int, default=0, help="pulls that wait on each connection")
    parser.add_argument("--messages", type=int, default=1, help="in each queue of the topics")
    parser.add_argument("--rate", type=float, default=RATE, help="connections a second of churn")
    given = parser.parse_args()
    if not 0 <= given.pulls <= QUEUES:
        parser.error(f"--pulls is 0 to {QUEUES}")
    with tempfile.TemporaryDirectory(prefix="roquet-scale-") as name:
        folder = Path(name)
        measured = {
            "connections": lambda: connections(given.count, folder, given.pulls, tls=given.tls),
            "topics": lambda: topics(given.count, given.messages, folder),
            "churn": lambda: churn(given.count, given.rate, folder),
        }
        print(json.dumps(asyncio.run(measured[given.what]())))
    return 0


if __name__ == "__main__":
    sys.exit(main())
