"""Measure what one request costs everybody else: the loop's lag while the worst ones are served.

    python -m tools.budget [--queues 65535] [--budget-ms 0]

A broker is started in a process of its own. While it serves the most expensive request of each
kind at its limit, another connection asks something cheap all the time; the slowest of these
answers is the lag that others feel. With `--budget-ms` the exit code is 1 when one was slower.
"""

from __future__ import annotations

import argparse
import asyncio
import socket
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

from roquet.base.overriding import override
from roquet.protocol.codes import RequestCode
from roquet.protocol.command import Command
from roquet.remoting.codec import encode
from roquet.testing.process import BrokerProcess
from tools.worst_bodies import WORST

if TYPE_CHECKING:
    from collections.abc import Iterator

    from roquet.testing.process import Caller

PAUSE_S = 0.002


class Probe(threading.Thread):
    """Asks something cheap again and again, and keeps the slowest answer."""

    def __init__(self, address: str) -> None:
        """Connect to `address`."""
        super().__init__(daemon=True)
        host, _, port = address.rpartition(":")
        self._peer = socket.create_connection((host, int(port)))
        self._ask = encode(
            Command(RequestCode.GET_MAX_OFFSET, ext={"topic": "wide", "queueId": "0"}), opaque=1
        )
        self._ended = threading.Event()
        self.worst_ms = 0.0
        self.asked = 0

    @override
    def run(self) -> None:
        """Ask until `end`."""
        while not self._ended.wait(PAUSE_S):
            began = time.perf_counter()
            self._peer.sendall(self._ask)
            size = int.from_bytes(self._read(4))
            self._read(size)
            self.worst_ms = max(self.worst_ms, (time.perf_counter() - began) * 1000)
            self.asked += 1

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
                raise ConnectionError("the broker closed the connection of the probe")
            data += more
        return data


def requests() -> Iterator[tuple[str, Command]]:
    """Yield the name of each request and the request."""
    yield "nothing", Command(RequestCode.GET_MAX_OFFSET, ext={"topic": "wide", "queueId": "0"})
    for name, made in WORST.items():
        code, body = made()
        yield f"{int(code)} {name}", Command(code, ext={}, body=body)
    wide = {"topic": "wide", "group": "g", "consumerGroup": "g", "isOrder": "false"}
    for code in (
        RequestCode.GET_TOPIC_STATS_INFO,
        RequestCode.GET_CONSUME_STATS,
        RequestCode.GET_BROKER_CONSUME_STATS,
        RequestCode.QUERY_CONSUME_TIME_SPAN,
    ):
        yield f"{int(code)} all queues", Command(code, ext=dict(wide))
    reset = {**wide, "timestamp": "-1", "isForce": "true"}
    yield "222 all queues", Command(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, ext=reset)
    yield "43 all offsets", Command(RequestCode.GET_ALL_CONSUMER_OFFSET, ext={})


async def prepare(it: Caller, queues: int) -> None:
    """Make the wide topic and a group with an offset in it."""
    made = await it.call(
        Command(
            RequestCode.UPDATE_AND_CREATE_TOPIC,
            ext={
                "topic": "wide",
                "defaultTopic": "TBW102",
                "readQueueNums": str(queues),
                "writeQueueNums": str(queues),
                "perm": "6",
                "topicFilterType": "SINGLE_TAG",
                "topicSysFlag": "0",
                "order": "false",
            },
        )
    )
    assert made.code == 0, made.remark
    assert (await it.send("wide")).code == 0
    await it.pull("wide", consumerGroup="g")
    ext = {"consumerGroup": "g", "topic": "wide", "queueId": "0", "commitOffset": "1"}
    assert (await it.call(Command(RequestCode.UPDATE_CONSUMER_OFFSET, ext=ext))).code == 0


async def measure(broker: BrokerProcess, queues: int, budget_ms: float) -> int:
    """Print a line for each request; return how many were over the budget."""
    over = 0
    async with broker.client() as it:
        await prepare(it, queues)
        print(f"{'request':<24} {'body':>9} {'answer':>9} {'took ms':>9} {'lag ms':>8}  probes")
        for name, command in requests():
            probe = Probe(broker.address)
            probe.start()
            began = time.perf_counter()
            answer = await it.call(command)
            took_ms = (time.perf_counter() - began) * 1000
            probe.end()
            sizes = f"{len(command.body):>9} {len(answer.body):>9}"
            print(f"{name:<24} {sizes} {took_ms:>9.0f} {probe.worst_ms:>8.1f}  {probe.asked}")
            over += bool(budget_ms) and probe.worst_ms > budget_ms
    return over


def main() -> int:
    """Measure, print, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--queues", type=int, default=65_535)
    parser.add_argument("--budget-ms", type=float, default=0.0)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        broker = BrokerProcess(Path(folder))
        try:
            return 1 if asyncio.run(measure(broker, asked.queues, asked.budget_ms)) else 0
        finally:
            broker.kill()


if __name__ == "__main__":
    sys.exit(main())
