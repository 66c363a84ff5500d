"""Kill the broker with -9 again and again and account for every message.

`make crash CYCLES=n`, or `python -m tools.faults.crash --cycles n [--seed s]
[--flush sync|async|both]`.

A broker in its own process gets messages from four producers (single ones and batches, 100 bytes
to 64 KiB), delayed messages and transactions while a consumer group follows and topics are made and
deleted, and is killed at a drawn moment. A third of the starts is
killed as well, 5 to 200 ms after the start, so that recovery is interrupted; files of 1 MiB make
many kills fall into a file roll, and tables that are saved every 50 ms
make others fall into that. What producers, consumer and readers saw goes to the history
checker (`roquet.testing.history`). kill -9 says nothing about what a power loss leaves: that is
`make powerloss`.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import random
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import zlib
from pathlib import Path
from typing import TYPE_CHECKING

from roquet.base.clock import SystemClock
from roquet.base.errors import OutcomeUnknown, RoquetError, Unreachable
from roquet.protocol.codes import RequestCode, ResponseCode
from roquet.protocol.command import Command
from roquet.remoting.client import Client
from roquet.roquet_native import decode_records
from roquet.testing import history
from roquet.testing.cluster import BUSY_MACHINE, pull_command, send_command
from roquet.testing.history import (
    Acked,
    Committed,
    Consumed,
    Failed,
    Found,
    ReadBack,
    Restarted,
    Sent,
    Unknown,
    Verdict,
)
from roquet.testing.java import free_port
from tools.faults.crash_more import More

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Mapping

    from roquet.testing.history_rules import Event
    from tools.faults.crash_more import Caller

TOPIC = "Crash"
GROUP = "crash_readers"
QUEUES = 4
PRODUCERS = 4
START_S = 300.0
CALL_S = 10.0
BOOTED = b"boot success"
SETTINGS = {
    "brokerName": "crash",
    "bindAddress": "127.0.0.1",
    "mappedFileSizeCommitLog": "1048576",
    "mappedFileSizeConsumeQueue": "20000",
    "maxHashSlotNum": "500",
    "maxIndexNum": "5000",
    **BUSY_MACHINE,
    "fileReservedTime": "72",
    # So often that many kills fall into the writing of a table.
    "flushConsumerOffsetInterval": "50",
    "flushDelayOffsetInterval": "100",
}


class CrashError(RoquetError):
    """The broker did not come up, or answered what it must not."""


class Broker:
    """The broker process and its folder."""

    def __init__(
        self,
        folder: Path,
        port: int,
        flush: str,
        *,
        processors: bool = False,
        more: Mapping[str, str] | None = None,
    ) -> None:
        """Write the property file with `more`; with `processors` one without the fast path."""
        self.address = f"127.0.0.1:{port}"
        self.starts = 0
        self._folder = folder
        self._output = folder / "broker.out"
        self._process: subprocess.Popen[bytes] | None = None
        settings = {
            **SETTINGS,
            "listenPort": str(port),
            "flushDiskType": f"{flush.upper()}_FLUSH",
            "storePathRootDir": str(folder / "store"),
            "fastPathEnable": str(not processors).lower(),
            **(more or {}),
        }
        lines = [f"{name}={value}\n" for name, value in settings.items()]
        (folder / "broker.conf").write_text("".join(lines))

    def start(self) -> None:
        """Start the process and return at once."""
        self.starts += 1
        command = [sys.executable, "-m", "roquet", "broker", "-c"]
        with self._output.open("wb") as output:
            self._process = subprocess.Popen(
                [*command, str(self._folder / "broker.conf")],
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    async def booted(self) -> None:
        """Wait for the boot line. Raises CrashError with what was printed instead."""
        assert self._process is not None
        end = time.monotonic() + START_S
        while BOOTED not in self._output.read_bytes():
            if self._process.poll() is not None or time.monotonic() > end:
                text = self._output.read_text(errors="replace")[-2000:]
                why = f"ended with {self._process.returncode}"
                if self._process.returncode is None:
                    why = f"took more than {START_S:.0f} s"
                raise CrashError(f"start {self.starts} of the broker {why}:\n{text}")
            await asyncio.sleep(0.02)

    def kill(self, how: signal.Signals = signal.SIGKILL) -> None:
        """End the process and wait until it is gone."""
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(START_S)
            self._process = None


class Run:
    """One campaign in one flush mode: the broker, the history so far, and who works with it."""

    def __init__(self, broker: Broker, seed: int) -> None:
        """Begin with an empty history."""
        self.history: list[Event] = []
        self.problems: list[str] = []
        self._broker = broker
        self._rng = random.Random(seed)
        self._names = 0
        self._read = dict.fromkeys(range(QUEUES), 0)
        self._positions = dict.fromkeys(range(QUEUES), 0)
        self._more = More(self.history, self.problems, self._rng)

    @contextlib.asynccontextmanager
    async def _client(self) -> AsyncIterator[Client]:
        client = Client(clock=SystemClock())
        await client.start()
        try:
            yield client
        finally:
            await client.stop()

    async def start(self) -> None:
        """Start the broker, a third of the time killing it once or twice while it starts."""
        while self._rng.random() < 1 / 3:
            self._broker.start()
            await asyncio.sleep(self._rng.uniform(0.005, 0.2) * self._rng.choice((1, 1, 5)))
            self._broker.kill()
        self._broker.start()
        await self._broker.booted()

    async def cycle(self) -> None:
        """Start, read what is new, work until a drawn moment, kill."""
        await self.start()
        async with self._client() as client:
            await self.read_back(client, whole=False)
            await self._resume(client)
            work = [asyncio.ensure_future(self._produce(client)) for _ in range(PRODUCERS)]
            work.append(asyncio.ensure_future(self._consume(client)))
            call = self._caller(client)
            others = (self._more.delay, self._more.transact, self._more.doom)
            work += [asyncio.ensure_future(other(call)) for other in others]
            await asyncio.sleep(self._rng.uniform(0.05, 2.0))
            self._broker.kill()
            for task in work:
                task.cancel()
            for result in await asyncio.gather(*work, return_exceptions=True):
                if isinstance(result, Exception) and not isinstance(result, RoquetError):
                    raise result

    async def last(self) -> None:
        """Read everything after the last kill, and again after an orderly stop."""
        for _ in range(2):
            self._broker.start()
            await self._broker.booted()
            async with self._client() as client:
                await self._more.settle(self._caller(client))
                await self.read_back(client, whole=True)
            self._broker.kill(signal.SIGTERM)

    # --- producing ---------------------------------------------------------------------------

    async def _produce(self, client: Client) -> None:
        while True:
            count = 3 if self._rng.random() < 0.1 else 1
            queue = self._rng.randrange(QUEUES)
            bodies = {self._next_name(): self._body() for _ in range(count)}
            for name, body in bodies.items():
                self.history.append(Sent(name, TOPIC, crc(body)))
            names = list(bodies)
            try:
                command = single(queue, *next(iter(bodies.items())))
                if count > 1:
                    command = batch(queue, bodies)
                answer = await client.call(self._broker.address, command, CALL_S)
            except (Unreachable, OutcomeUnknown, asyncio.CancelledError):
                self.history += [Unknown(name) for name in names]
                raise
            self._answered(answer, names, queue)

    def _answered(self, answer: Command, names: list[str], queue: int) -> None:
        if answer.code == ResponseCode.SUCCESS:
            ext = answer.ext or {}
            first = int(ext["queueOffset"])
            if int(ext["queueId"]) != queue:
                self.problems.append(f"{names} sent to queue {queue}: {ext}")
            self.history += [
                Acked(name, TOPIC, queue, first + index) for index, name in enumerate(names)
            ]
        elif answer.code in (ResponseCode.FLUSH_DISK_TIMEOUT, ResponseCode.FLUSH_SLAVE_TIMEOUT):
            self.history += [Unknown(name) for name in names]
        else:
            self.history += [Failed(name) for name in names]

    def _next_name(self) -> str:
        self._names += 1
        return f"m{self._names}"

    def _body(self) -> bytes:
        return self._rng.randbytes(int(100 * 2 ** self._rng.triangular(0, 9.35, 0)))

    # --- reading -----------------------------------------------------------------------------

    async def read_back(self, client: Client, *, whole: bool) -> None:
        """Read the queues, from their begin or only what was not read before."""
        self.history.append(ReadBack(whole))
        for queue in range(QUEUES):
            offset = 0 if whole else self._read[queue]
            while True:
                found = await self._pull(client, queue, offset)
                if not found:
                    break
                self.history += [Found(TOPIC, queue, at, name, code) for at, name, code in found]
                offset = found[-1][0] + 1
            self._read[queue] = offset
        await self._more.read(self._caller(client), whole=whole)

    def _caller(self, client: Client) -> Caller:
        async def call(command: Command) -> Command:
            return await client.call(self._broker.address, command, CALL_S)

        return call

    async def _pull(self, client: Client, queue: int, offset: int) -> list[tuple[int, str, int]]:
        command = pull_command(TOPIC, offset, queueId=str(queue), consumerGroup=GROUP)
        answer = await client.call(self._broker.address, command, CALL_S)
        none = (ResponseCode.PULL_NOT_FOUND, ResponseCode.TOPIC_NOT_EXIST)
        if answer.code == ResponseCode.PULL_OFFSET_MOVED and offset:
            raise CrashError(f"queue {queue} had offset {offset}: {answer.remark} {answer.ext}")
        if answer.code != ResponseCode.SUCCESS:
            if answer.code not in (*none, ResponseCode.PULL_OFFSET_MOVED):
                raise CrashError(f"pull at {queue} {offset}: {answer.code} {answer.remark}")
            return []
        return [
            (record[4], unique_name(record[15]), crc(record[13]))
            for record in decode_records(answer.body)
        ]

    async def _resume(self, client: Client) -> None:
        """Go on where the broker says that the group is: at most where it was."""
        self.history.append(Restarted(GROUP))
        for queue in range(QUEUES):
            ext = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": str(queue)}
            command = Command(RequestCode.QUERY_CONSUMER_OFFSET, ext=ext)
            answer = await client.call(self._broker.address, command, CALL_S)
            known = answer.ext if answer.code == ResponseCode.SUCCESS else {}
            offset = int((known or {}).get("offset", "0"))
            if offset > self._positions[queue]:
                text = f"{GROUP} has offset {offset} of queue {queue}, processed was less"
                self.problems.append(text)
            self._positions[queue] = offset
            self.history.append(Committed(GROUP, TOPIC, queue, offset, reset=True))

    async def _consume(self, client: Client) -> None:
        while True:
            for queue in range(QUEUES):
                found = await self._pull(client, queue, self._positions[queue])
                for at, name, code in found:
                    self.history.append(Consumed(GROUP, TOPIC, queue, at, name, code))
                    self._positions[queue] = at + 1
                if found:
                    await self._commit(client, queue, self._positions[queue])
            await asyncio.sleep(0.005)

    async def _commit(self, client: Client, queue: int, offset: int) -> None:
        ext = {
            "consumerGroup": GROUP,
            "topic": TOPIC,
            "queueId": str(queue),
            "commitOffset": str(offset),
        }
        command = Command(RequestCode.UPDATE_CONSUMER_OFFSET, ext=ext)
        answer = await client.call(self._broker.address, command, CALL_S)
        if answer.code == ResponseCode.SUCCESS:
            self.history.append(Committed(GROUP, TOPIC, queue, offset))


def crc(body: bytes) -> int:
    """Return what tells bodies apart."""
    return zlib.crc32(body)


def unique_name(properties: bytes) -> str:
    """Return the name that the producer gave a message."""
    for pair in properties.split(b"\x02"):
        name, _, value = pair.partition(b"\x01")
        if name == b"UNIQ_KEY":
            return value.decode()
    return "a message without a name"


def single(queue: int, name: str, body: bytes) -> Command:
    """Return the request that sends one message."""
    return send_command(TOPIC, body, queue, f"UNIQ_KEY\x01{name}\x02KEYS\x01{name}\x02")


def batch(queue: int, bodies: dict[str, bytes]) -> Command:
    """Return the request that sends several messages, all or none (spec: store §4.1)."""
    parts: list[bytes] = []
    for name, body in bodies.items():
        properties = f"UNIQ_KEY\x01{name}\x02".encode()
        size = 22 + len(body) + len(properties)
        parts.append(struct.pack(">iiiii", size, 0, 0, 0, len(body)) + body)
        parts.append(struct.pack(">h", len(properties)) + properties)
    command = send_command(TOPIC, b"".join(parts), queue, m="true")
    return Command(RequestCode.SEND_BATCH_MESSAGE, ext=command.ext, body=command.body)


def properties_of(record: bytes, begin: int) -> dict[str, str]:
    """Return the properties that end a record. Raises CrashError when they are torn."""
    text = record[begin:].decode(errors="replace")
    pairs = [pair.split("\x01", 1) for pair in text.split("\x02") if pair]
    if any(len(pair) != 2 for pair in pairs):
        raise CrashError(f"a record of {len(record)} bytes is served with properties {text!r}")
    return dict(pairs)


def worked_s(rng: random.Random, most_s: float) -> float:
    """Return for how long a broker works before it is killed: one run in four is long.

    A short one has new messages and what the runs before left; it is killed in the middle of its
    first redeliveries.
    """
    return rng.uniform(0.1, most_s if rng.random() < 1 / 4 else 1.0)


def paused_s(rng: random.Random) -> float:
    """Return how long a broker stays away after a kill: so that times pass meanwhile, or not."""
    return rng.choice((0, 0, 0, 0, 0, 1.5))


async def campaign(
    flush: str, cycles: int, seed: int, folder: Path, *, plant: bool, processors: bool
) -> bool:
    """Run all cycles in one flush mode; True when every promise was kept.

    With `plant` the store of half-time is put in the place of the last one: messages are lost then,
    and the account must say so.
    """
    port = free_port(random.Random(seed ^ time.monotonic_ns()))
    broker = Broker(folder, port, flush, processors=processors)
    run = Run(broker, seed)
    begun = time.monotonic()
    try:
        for number in range(1, cycles + 1):
            await run.cycle()
            if number % 10 == 0 or number == cycles:
                sent = sum(isinstance(event, Sent) for event in run.history)
                seconds = time.monotonic() - begun
                say(
                    f"{flush}: {number} cycles, {broker.starts} starts, {sent} sent, {seconds:.0f}s"
                )
            if plant and number == max(1, cycles // 2):
                shutil.copytree(folder / "store", folder / "old", dirs_exist_ok=True)
        if plant:
            shutil.rmtree(folder / "store")
            (folder / "old").rename(folder / "store")
        await run.last()
    except CrashError as error:
        run.problems.append(str(error))
    finally:
        broker.kill()
        history.append(folder / "ledger.jsonl", run.history)
    verdict = history.check(run.history)
    report(flush, verdict, run.problems)
    return not (verdict.violations or run.problems)


def report(flush: str, verdict: Verdict, problems: Iterable[str]) -> None:
    """Print the account of one campaign."""
    counts = verdict.counts
    lost = sum(violation.rule == "L1" for violation in verdict.violations)
    say(
        f"{flush} flush: sent {counts.get('Sent', 0)}, acknowledged {counts.get('Acked', 0)}, "
        f"unknown {counts.get('Unknown', 0)}, refused {counts.get('Failed', 0)}, "
        f"consumed {counts.get('Consumed', 0)}, lost {lost}, duplicates {verdict.duplicates}, "
        f"violations {len(verdict.violations)}"
    )
    for violation in verdict.violations[:20]:
        say(f"  {violation.rule}: {violation.text}")
    for problem in problems:
        say(f"  {problem}")


def say(text: str) -> None:
    """Print a line at once."""
    print(text, flush=True)


def main() -> int:
    """Run the command; the exit code says whether every promise was kept."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cycles", type=int, default=100, help="kills in each flush mode")
    parser.add_argument("--seed", type=int, default=1, help="draws the moments of the kills")
    parser.add_argument("--flush", choices=("sync", "async", "both"), default="both")
    parser.add_argument("--keep", type=Path, help="a folder for stores and ledgers")
    parser.add_argument("--processors", action="store_true", help="without the fast path")
    parser.add_argument("--plant", action="store_true", help="lose messages: must be noticed")
    options = parser.parse_args()
    modes = ("sync", "async") if options.flush == "both" else (options.flush,)
    kept = True
    with tempfile.TemporaryDirectory(prefix="roquet-crash-") as temporary:
        for flush in modes:
            folder = (options.keep or Path(temporary)) / flush
            folder.mkdir(parents=True, exist_ok=False)
            run = campaign(
                flush,
                options.cycles,
                options.seed,
                folder,
                plant=options.plant,
                processors=options.processors,
            )
            kept &= asyncio.run(run)
    say(f"seed {options.seed}: " + ("every promise kept" if kept else "PROMISES BROKEN"))
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
