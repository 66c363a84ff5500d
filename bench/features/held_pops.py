"""Pops that wait while few messages come, beside Java, in one run.

`python -m bench.features.held_pops [--kinds roquet,java] [--pops 1000] [--rate 500] [--secs 20]`

One group has so many pops waiting, 50 a connection. Messages of 1 KiB come at a fixed rate; each
wakes a pop, whose client acknowledges the message and pops again. A wake lasts from just before the
message is written until the answer that has it was read; CPU counts sends, pops and
acknowledgements. The same load warms each broker up and does not count then.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from bench import processes, timers
from bench.result_files import circumstances, save
from roquet.base.overriding import override
from roquet.protocol.codes import RequestCode
from roquet.protocol.command import Command
from roquet.protocol.headers.message import SendMessageRequest
from roquet.protocol.headers.pop import PopMessageRequest
from roquet.protocol.pop.handle import ReceiptHandle
from roquet.remoting.codec import decode, encode
from roquet.store.records import read_records

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.processes import Broker
    from bench.timers import Figures

CONFIG = ("timerWheelEnable=true",)
TOPIC, GROUP, QUEUES = "HeldBench", "held_bench", 4
PER_CONNECTION = 50
POLL_MS, INVISIBLE_MS = 15_000, 60_000
SIZE = 1024
LATE_S = 60
"""What a broker is given to have the last messages popped."""


def _pop() -> Command:
    header = PopMessageRequest(
        consumer_group=GROUP,
        topic=TOPIC,
        queue_id=-1,
        max_msg_nums=1,
        invisible_time=INVISIBLE_MS,
        poll_time=POLL_MS,
        born_time=time.time_ns() // 1_000_000,
        init_mode=0,
        exp="*",
        exp_type="TAG",
    )
    return Command(RequestCode.POP_MESSAGE, ext=header.encode())


def _ack(answer: Command, queue_id: int, offset: int, broker_name: str) -> Command:
    fields = answer.ext or {}
    times = int(fields["popTime"]), int(fields["invisibleTime"])
    revive_queue = int(fields["reviveQid"])
    handle = ReceiptHandle(offset, *times, revive_queue, "0", broker_name, queue_id, offset)
    ext = {
        "consumerGroup": GROUP,
        "topic": TOPIC,
        "queueId": str(queue_id),
        "extraInfo": handle.encode(),
        "offset": str(offset),
    }
    return Command(RequestCode.ACK_MESSAGE, ext=ext)


class Consumer(asyncio.Protocol):
    """One connection with pops that wait."""

    def __init__(self, broker_name: str, note: Callable[[int], None]) -> None:
        """`note` gets the nanoseconds of each wake."""
        self._broker_name = broker_name
        self._note = note
        self._opaque = itertools.count(1)
        self._kept = b""

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Have the first pops wait."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.writelines([self._frame(_pop()) for _ in range(PER_CONNECTION)])

    @override
    def data_received(self, data: bytes) -> None:
        """Acknowledge what came, and pop again."""
        commands, used = decode(self._kept + data)
        self._kept = (self._kept + data)[used:]
        out: list[bytes] = []
        for answer in commands:
            if not (answer.ext or {}).get("popTime"):
                continue  # of an acknowledgement
            for record in read_records(answer.body):
                self._note(time.monotonic_ns() - int(record.body[:20]))
                where = record.queue_id, record.queue_offset
                out.append(self._frame(_ack(answer, *where, self._broker_name)))
            out.append(self._frame(_pop()))
        self._transport.writelines(out)

    def close(self) -> None:
        """Hang up."""
        self._transport.abort()

    def _frame(self, command: Command) -> bytes:
        return encode(command, opaque=next(self._opaque))


async def _send(broker: Broker, rate: int, secs: float) -> int:
    """Send at a fixed rate; return how many messages were stored."""
    host, _, port = broker.address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    answers = asyncio.ensure_future(_stored(reader))
    begin, sent = time.monotonic(), 0
    while (now := time.monotonic()) < begin + secs:
        while sent < (now - begin) * rate:
            header = SendMessageRequest(
                producer_group="bench",
                topic=TOPIC,
                default_topic="TBW102",
                default_topic_queue_nums=QUEUES,
                queue_id=sent % QUEUES,
                sys_flag=0,
                born_timestamp=time.time_ns() // 1_000_000,
                flag=0,
            )
            ext = header.encode(short=True)
            body = b"%020d" % time.monotonic_ns() + b"x" * (SIZE - 20)
            writer.write(
                encode(Command(RequestCode.SEND_MESSAGE_V2, ext=ext, body=body), opaque=sent)
            )
            sent += 1
        await asyncio.sleep(0.0005)
    await asyncio.sleep(3)
    writer.write_eof()
    stored = await answers
    if stored < sent:
        sys.stderr.write(f"{broker.kind} refused {sent - stored} of {sent} messages\n")
    return stored


async def _stored(reader: asyncio.StreamReader) -> int:
    """Return how many answers are successes."""
    kept, stored = b"", 0
    while data := await reader.read(1 << 16):
        answers, used = decode(kept + data)
        kept = (kept + data)[used:]
        stored += sum(answer.code == 0 for answer in answers)
    return stored


async def load(broker: Broker, pops: int, rate: int, secs: float) -> Figures:
    """Have pops wait, send, and return what it came to."""
    host, _, port = broker.address.rpartition(":")
    wakes: list[int] = []
    consumers: list[Consumer] = []
    loop = asyncio.get_running_loop()
    for _ in range(pops // PER_CONNECTION):
        made = lambda: Consumer(f"bench-{broker.kind}", wakes.append)  # noqa: E731
        consumers.append((await loop.create_connection(made, host, int(port)))[1])
    await asyncio.sleep(1)
    before = broker.cpu_s()
    sent = await _send(broker, rate, secs)
    end = time.monotonic() + LATE_S
    while len(wakes) < sent and time.monotonic() < end:
        await asyncio.sleep(0.05)
    cpu_s = broker.cpu_s() - before
    for consumer in consumers:
        consumer.close()
    wakes.sort()
    if len(wakes) < sent:
        raise RuntimeError(f"{broker.kind}: {sent} sent, {len(wakes)} popped")
    return {
        "messages": float(sent),
        "cpu_us": cpu_s * 1e6 / sent,
        "p50_ms": wakes[len(wakes) // 2] / 1e6,
        "p99_ms": wakes[len(wakes) * 99 // 100] / 1e6,
    }


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kinds", default="roquet,java")
    parser.add_argument("--pops", type=int, default=1000)
    parser.add_argument("--rate", type=int, default=500)
    parser.add_argument("--secs", type=float, default=20)
    parser.add_argument("--folder", help="where the stores are")
    options = parser.parse_args()
    about = circumstances("held-pops", "bench.features.held_pops")
    rows: dict[str, Figures] = {}
    with tempfile.TemporaryDirectory(prefix="roquet-held-", dir=options.folder) as place:
        for kind in options.kinds.split(","):
            folder = Path(place) / kind
            broker = processes.start(kind, "async", folder, CONFIG)
            try:
                broker.create_topic(TOPIC, QUEUES)
                shape = options.pops, options.rate, options.secs
                asyncio.run(load(broker, *shape))
                rows[kind] = asyncio.run(load(broker, *shape))
                timers.show(kind, f"{options.pops:,} pops wait", rows[kind])
            finally:
                broker.stop()
                shutil.rmtree(folder, ignore_errors=True)
    if {"roquet", "java"} <= rows.keys():
        ratio = rows["roquet"]["cpu_us"] / rows["java"]["cpu_us"]
        sys.stdout.write(f"CPU x {ratio:.2f} of Java's (goal 0.5)\n")
    path = save({**about, "pops": options.pops, "rate": options.rate, "rows": rows})
    sys.stdout.write(f"{path}\n")


if __name__ == "__main__":
    main()
