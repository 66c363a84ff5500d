"""20,000 light topics, 200 clients: how long from a send to the answer of the pop that has it.

`python -m bench.features.light_topics [--topics n] [--clients n] [--rate n] [--seconds n]`. The
broker runs in a process of its own, the load in this one: one connection sends at a steady rate to
light topics at random, each client has its share of them, holds one pop and acknowledges what it
gets. Times are from just before a send is written to the moment at which the answer to a pop was
read, so that they hold the whole way, and what this process takes for it. The broker's CPU is that
of `/proc/<pid>/stat`. Each light topic has had a message before: the first one makes its queue,
with files and two syncs, which is what a disk allows a second (`made_per_s`).
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import signal
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tools.attack.raw import encode

from roquet.testing.java import free_port

if TYPE_CHECKING:
    from collections.abc import Mapping

PARENT, GROUP = "LightBench", "light_bench"
SEND, TOPIC_CODE, GROUP_CODE, SUBSCRIBE, POP, ACK = 10, 17, 200, 200071, 200070, 200051
TICK = os.sysconf("SC_CLK_TCK")
WARM_S = 5.0
FILLING = 32
"""Sends in flight while the queues are made."""


class Connection:
    """One connection: requests in flight by number."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Read answers from now on."""
        self._reader, self._writer = reader, writer
        self._waiting: dict[int, asyncio.Future[tuple[dict[str, object], bytes]]] = {}
        self._number = 0
        self._task = asyncio.create_task(self._read())

    @classmethod
    async def open(cls, port: int) -> Connection:
        """Connect to the broker."""
        return cls(*await asyncio.open_connection("127.0.0.1", port))

    async def call(
        self, code: int, ext: Mapping[str, str], body: bytes = b""
    ) -> tuple[dict[str, object], bytes]:
        """Ask, and return header and body of the answer."""
        self._number += 1
        number = self._number
        waiting = self._waiting[number] = asyncio.get_running_loop().create_future()
        header = {"code": code, "opaque": number, "flag": 0, "version": 513, "language": "JAVA"}
        self._writer.write(encode({**header, "extFields": dict(ext)}, body))
        answer: tuple[dict[str, object], bytes] = await waiting
        return answer

    async def _read(self) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, OSError):
            while True:
                size, head = struct.unpack(">ii", await self._reader.readexactly(8))
                data = await self._reader.readexactly(size - 4)
                # The upper byte is the serialization: JSON is 0.
                header = json.loads(data[: head & 0xFFFFFF])
                waiting = self._waiting.pop(header["opaque"], None)
                if waiting is not None:
                    waiting.set_result((header, data[head & 0xFFFFFF :]))

    async def close(self) -> None:
        """Hang up."""
        self._writer.close()
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)


class Figures:
    """What was measured."""

    def __init__(self) -> None:
        """Begin with nothing; nothing counts before `counts` is set."""
        self.counts = False
        self.sent = self.refused = self.received = self.pops = 0
        self.took_us: list[int] = []
        self.refusal = ""


def taken(body: bytes) -> list[tuple[str, int, int]]:
    """Return light topic, offset there and time of the send (ns) of each record."""
    found: list[tuple[str, int, int]] = []
    at = 0
    while at < len(body):
        (size,) = struct.unpack_from(">I", body, at)
        (length,) = struct.unpack_from(">i", body, at + 84)
        sent_ns = int(body[at + 88 : at + 88 + length].split(b" ", 1)[0])
        text_at = at + 88 + length + 1 + body[at + 88 + length]
        text = body[text_at + 2 : at + size].decode()
        said = dict(pair.split("\x01", 1) for pair in text.split("\x02") if pair)
        light = said["INNER_MULTI_DISPATCH"].removeprefix(f"%LMQ%${PARENT}$")
        found.append((light, int(said["INNER_MULTI_QUEUE_OFFSET"]), sent_ns))
        at += size
    return found


async def consume(name: str, lights: list[str], port: int, figures: Figures) -> None:
    """Subscribe, then hold a pop and acknowledge what comes, for ever."""
    it = await Connection.open(port)
    try:
        entry = {"clientId": name, "group": GROUP, "topic": PARENT, "liteTopicSet": lights}
        wanted = json.dumps({"subscriptionSet": [{"action": "COMPLETE_ADD", **entry}]}).encode()
        answer, _ = await it.call(SUBSCRIBE, {}, wanted)
        assert answer["code"] == 0, answer
        while True:
            await _pop(it, name, figures)
    finally:
        await it.close()


async def _pop(it: Connection, name: str, figures: Figures) -> None:
    fields = {"clientId": name, "consumerGroup": GROUP, "topic": PARENT}
    born = str(time.time_ns() // 1_000_000)
    more = {"maxMsgNum": "32", "invisibleTime": "60000", "pollTime": "15000", "bornTime": born}
    answer, body = await it.call(POP, {**fields, **more})
    now_ns = time.monotonic_ns()
    if answer["code"] != 0:
        return
    ext = answer["extFields"]
    assert isinstance(ext, dict)
    messages = taken(body)
    if figures.counts:
        figures.pops += 1
        figures.received += len(messages)
        figures.took_us += [(now_ns - sent_ns) // 1000 for _, _, sent_ns in messages]
    handle = f"{ext['popTime']} {ext['invisibleTime']} {ext['reviveQid']} 0 bench 0"
    acks = [
        it.call(
            ACK,
            {
                "consumerGroup": GROUP,
                "topic": PARENT,
                "queueId": "0",
                "extraInfo": f"{offset} {handle} {offset}",
                "offset": str(offset),
                "liteTopic": light,
            },
        )
        for light, offset, _ in messages
    ]
    for acked, _ in await asyncio.gather(*acks):
        assert acked["code"] == 0, acked


async def produce(port: int, topics: int, rate: int, figures: Figures) -> None:
    """Send at a steady rate, for ever."""
    it, rng = await Connection.open(port), random.Random(1)
    flying: set[asyncio.Task[int]] = set()
    begin, count = time.monotonic(), 0
    try:
        while True:
            due = int((time.monotonic() - begin) * rate)
            for _ in range(due - count):
                task = asyncio.create_task(_send(it, f"t{rng.randrange(topics)}", figures))
                flying.add(task)
                task.add_done_callback(flying.discard)
            count = due
            await asyncio.sleep(0.001)
    finally:
        await it.close()


async def fill(port: int, topics: int) -> float:
    """Send one message to each light topic; return how many a second got their queue."""
    it, figures, begin = await Connection.open(port), Figures(), time.monotonic()

    async def fill_every(first: int) -> None:
        for number in range(first, topics, FILLING):
            while await _send(it, f"t{number}", figures):
                await asyncio.sleep(0.05)

    await asyncio.gather(*(fill_every(first) for first in range(FILLING)))
    await it.close()
    return topics / (time.monotonic() - begin)


async def _send(it: Connection, light: str, figures: Figures) -> int:
    """Send; return the code of the answer."""
    ext = {
        "producerGroup": "p",
        "topic": PARENT,
        "defaultTopic": "TBW102",
        "defaultTopicQueueNums": "4",
        "queueId": "0",
        "sysFlag": "0",
        "bornTimestamp": "1",
        "flag": "0",
        "properties": f"UNIQ_KEY\x01u{time.monotonic_ns()}\x02__LITE_TOPIC\x01{light}\x02",
        "reconsumeTimes": "0",
    }
    answer, _ = await it.call(SEND, ext, b"%d " % time.monotonic_ns() + b"x" * 1000)
    if figures.counts:
        figures.sent += answer["code"] == 0
        figures.refused += answer["code"] != 0
        if answer["code"] != 0:
            figures.refusal = str(answer.get("remark"))
    code = answer["code"]
    assert isinstance(code, int)
    return code


async def make(port: int) -> None:
    """Make the parent and the group."""
    it = await Connection.open(port)
    topic = {
        "topic": PARENT,
        "defaultTopic": "TBW102",
        "readQueueNums": "4",
        "writeQueueNums": "4",
        "perm": "6",
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": "0",
        "order": "false",
        "attributes": "+message.type=LITE",
    }
    group = json.dumps({"groupName": GROUP, "attributes": {"+lite.bind.topic": PARENT}}).encode()
    for code, ext, body in ((TOPIC_CODE, topic, b""), (GROUP_CODE, {}, group)):
        answer, _ = await it.call(code, ext, body)
        assert answer["code"] == 0, answer
    await it.close()


def cpu_s(pid: int | str) -> float:
    """Return the CPU time of a process, in seconds."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICK


async def measure(pid: int, port: int, options: argparse.Namespace) -> dict[str, object]:
    """Run the load, and return the figures."""
    await make(port)
    names = [f"t{number}" for number in range(options.topics)]
    figures = Figures()
    tasks = [
        asyncio.create_task(
            consume(f"client-{number}", names[number :: options.clients], port, figures)
        )
        for number in range(options.clients)
    ]
    await asyncio.sleep(WARM_S)
    made_per_s = await fill(port, options.topics)
    tasks.append(asyncio.create_task(produce(port, options.topics, options.rate, figures)))
    await asyncio.sleep(WARM_S)
    figures.counts = True
    before, mine = cpu_s(pid), cpu_s("self")
    await asyncio.sleep(options.seconds)
    used, mine = cpu_s(pid) - before, cpu_s("self") - mine
    figures.counts = False
    for task in tasks:
        if task.done():
            task.result()
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    took = sorted(figures.took_us)

    def share(part: float) -> float:
        return took[min(len(took) - 1, int(len(took) * part))] / 1000 if took else 0.0

    return {
        "made_per_s": round(made_per_s),
        "refusal": figures.refusal,
        "sent_per_s": round(figures.sent / options.seconds),
        "received_per_s": round(figures.received / options.seconds),
        "refused": figures.refused,
        "messages_a_pop": round(figures.received / max(1, figures.pops), 2),
        "p50_ms": share(0.5),
        "p99_ms": share(0.99),
        "max_ms": share(1.0),
        "broker_cpu": round(used / options.seconds, 3),
        "broker_cpu_us_a_message": round(used / max(1, figures.received) * 1e6),
        "load_cpu": round(mine / options.seconds, 3),
    }


def main() -> int:
    """Run the command; prints one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--topics", type=int, default=20_000)
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--rate", type=int, default=2_000, help="messages a second")
    parser.add_argument("--seconds", type=float, default=20.0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="roquet-light-bench-") as folder:
        port = free_port(random.Random())
        settings = {
            "brokerName": "bench",
            "bindAddress": "127.0.0.1",
            "listenPort": str(port),
            "storePathRootDir": f"{folder}/store",
            "enableLmq": "true",
            "enableMultiDispatch": "true",
            "diskMaxUsedSpaceRatio": "95",
        }
        conf = Path(folder) / "broker.conf"
        conf.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        out = Path(folder) / "broker.out"
        with out.open("wb") as output:
            command = [sys.executable, "-m", "roquet", "broker", "-c", str(conf)]
            broker = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
        try:
            while b"boot success" not in out.read_bytes():
                assert broker.poll() is None, out.read_text()
                time.sleep(0.05)
            found = asyncio.run(measure(broker.pid, port, options))
        finally:
            broker.send_signal(signal.SIGTERM)
            broker.wait(120)
    sys.stdout.write(json.dumps(found) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
