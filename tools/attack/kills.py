"""Kill brokers that a raw client fills, and account for every message with a checker of its own.

`python -m tools.attack.kills --cycles 500` kills one broker with -9 at drawn moments under load.
`python -m tools.attack.kills --fail-overs 100` kills the master of a SYNC_MASTER pair, starts the
slave's store as the master and the old master as its slave, again and again.

Bodies hold NULs, zeros, forged records and noise. After each start every queue is read from end to
end of what is new: each acknowledged message has to stand at the place that its acknowledgement
named, offsets have no gaps, and nothing is read that nobody sent. Nothing here uses the product's
codec or its checker; kill -9 says nothing about what a power loss leaves.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import hashlib
import os
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

from roquet.base.overriding import override
from tools.attack.raw import RawClient
from tools.attack.records import Forged, Found

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Sequence

TOPICS = ("KillsA", "KillsB")
QUEUES = 2
SENDERS = 3
SEND, PULL, MAX_OFFSET = 310, 11, 30
PATIENCE_S = 120.0
DISPATCH_S = 20.0
PAUSE_S = 0.01
FULL_CHECK_EVERY = 50
LOG_FILE = 1 << 20
Queue = tuple[str, int]


class Finding(Exception):  # noqa: N818  (what is found is no error of the programme)
    """A promise of the broker does not hold."""


@dataclasses.dataclass
class Ledger:
    """What was sent, and what was acknowledged where."""

    sent: set[bytes] = dataclasses.field(default_factory=set[bytes])
    acked: dict[Queue, dict[int, tuple[int, bytes]]] = dataclasses.field(
        default_factory=lambda: {(topic, queue): {} for topic in TOPICS for queue in range(QUEUES)}
    )
    """By queue offset: place in the log and digest of the body."""
    lock: threading.Lock = dataclasses.field(default_factory=threading.Lock)
    findings: list[str] = dataclasses.field(default_factory=list[str])

    def intend(self, body: bytes) -> bytes:
        """Note a body before it is sent; return its digest."""
        digest = hashlib.sha256(body).digest()
        with self.lock:
            self.sent.add(digest)
        return digest

    def acknowledge(self, queue: Queue, offset: int, place: int, digest: bytes) -> None:
        """Note an acknowledgement; two for one offset are a finding."""
        with self.lock:
            if offset in self.acked[queue]:
                self.findings.append(f"offset {offset} of {queue} was given out twice")
            self.acked[queue][offset] = (place, digest)

    @property
    def count(self) -> int:
        """Acknowledged messages."""
        return sum(map(len, self.acked.values()))


@dataclasses.dataclass
class Server:
    """One broker process over one store."""

    folder: Path
    port: int
    settings: dict[str, str]
    process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        """Where it listens."""
        return f"127.0.0.1:{self.port}"

    def start(self, **role: str) -> None:
        """Start it in a role and wait until it listens. Raises Finding when it does not."""
        self.folder.mkdir(parents=True, exist_ok=True)
        settings = {
            "brokerName": "kills",
            "brokerIP1": "127.0.0.1",
            "brokerIP2": "127.0.0.1",
            "listenPort": str(self.port),
            "storePathRootDir": str(self.folder / "store"),
            "mappedFileSizeConsumeQueue": "20000",
            "maxHashSlotNum": "5000",
            "maxIndexNum": "20000",
            **self.settings,
            **role,
        }
        conf = self.folder / "broker.conf"
        conf.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        with (self.folder / "out").open("ab") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "roquet", "broker", "-c", str(conf)],
                stdout=out,
                stderr=subprocess.STDOUT,
                env={**os.environ, "HOME": str(self.folder)},
            )

    def ready(self) -> None:
        """Wait until it takes connections. Raises Finding when its process ends instead."""
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            if self.process is None or self.process.poll() is not None:
                break
            with (
                contextlib.suppress(OSError),
                socket.create_connection(("127.0.0.1", self.port), 1.0),
            ):
                return
            time.sleep(0.02)
        raise Finding(f"no start: {self.output()[-600:]}")

    def output(self) -> str:
        """Return what it printed in all its lives."""
        return (self.folder / "out").read_text(errors="replace")

    def kill(self) -> None:
        """End it with SIGKILL. Raises Finding when it was gone before."""
        process, self.process = self.process, None
        if process is None:
            return
        if process.poll() is not None:
            raise Finding(f"gone by itself, exit {process.returncode}: {self.output()[-600:]}")
        process.kill()
        process.wait()


def body_of(rng: random.Random, name: str) -> bytes:
    """Draw a body that a reader which trusts looks could take for something else."""
    size = rng.randrange(4000)
    kind = rng.randrange(4)
    if kind == 0:
        filling = bytes(size)
    elif kind == 1:
        filling = rng.randbytes(size)
    else:
        forged = Forged(topic=rng.choice(TOPICS), physical_offset=rng.randrange(1 << 24))
        filling = forged.encode() * (1 + size // 1000)
    return name.encode() + b"\n" + filling


class Sender(threading.Thread):
    """Sends until it is stopped; every answer goes into the ledger."""

    def __init__(self, number: int, ledger: Ledger, seed: int, pause_s: float) -> None:
        """Draw by `seed`; `number` makes its bodies differ from those of others."""
        super().__init__(daemon=True)
        self.address = ""
        self._number = number
        self._ledger = ledger
        self._rng = random.Random(seed)
        self._end = threading.Event()
        self._pause_s = pause_s

    @override
    def run(self) -> None:
        """Connect again whenever the broker goes."""
        turn = 0
        while not self._end.is_set():
            address = self.address
            try:
                with RawClient(address) as client:
                    while not self._end.is_set() and self.address == address:
                        turn += 1
                        self._send(client, f"{self._number}-{turn}")
                        time.sleep(self._pause_s)
            except (OSError, ValueError):
                time.sleep(0.02)

    def stop(self) -> None:
        """End after the send under way."""
        self._end.set()

    def _send(self, client: RawClient, name: str) -> None:
        topic, queue = self._rng.choice(TOPICS), self._rng.randrange(QUEUES)
        body = body_of(self._rng, name)
        digest = self._ledger.intend(body)
        nuls = "\0" * self._rng.choice((0, 0, 0, 1023))
        ext = {
            "a": f"P{self._number}",
            "b": topic,
            "c": "TBW102",
            "d": str(QUEUES),
            "e": str(queue),
            "f": "0",
            "g": str(int(time.time() * 1000)),
            "h": "0",
            "i": f"noise\x01{nuls}\x02",
            "j": "0",
            "k": "false",
            "m": "false",
        }
        answer = client.call(SEND, ext, body)
        if answer.code == 0:
            place = int(answer.ext["msgId"][16:32], 16)
            offset = int(answer.ext["queueOffset"])
            self._ledger.acknowledge((topic, queue), offset, place, digest)
        else:
            time.sleep(0.02)


def read(client: RawClient, queue: Queue, begin: int, least: int) -> Iterator[Found]:
    """Read a queue from an offset to its end, which is `least` at least. Raises Finding."""
    topic, number = queue
    ext = {"topic": topic, "queueId": str(number)}
    late = time.monotonic() + DISPATCH_S
    while (end := int(client.call(MAX_OFFSET, ext).ext.get("offset", "0"))) < least:
        # Queues are written behind the log.
        if time.monotonic() > late:
            raise Finding(f"{queue} ends at {end}, though {least - 1} was acknowledged")
        time.sleep(0.02)
    while begin < end:
        fields = {
            **ext,
            "consumerGroup": "KillsReader",
            "queueOffset": str(begin),
            "maxMsgNums": "32",
            "sysFlag": "4",
            "commitOffset": "0",
            "suspendTimeoutMillis": "0",
            "subscription": "*",
            "subVersion": "0",
            "expressionType": "TAG",
        }
        answer = client.call(PULL, fields)
        if answer.code != 0:
            text = f"{answer.code} {answer.remark}"
            raise Finding(f"{queue} cannot be read at {begin} of {end}: {text}")
        for found in Found.read(answer.body):
            if found.queue_offset != begin:
                raise Finding(f"{queue}: offset {found.queue_offset} where {begin} belongs")
            begin += 1
            yield found


def verify(address: str, ledger: Ledger, begins: dict[Queue, int]) -> None:
    """Compare what can be read from given offsets on with the ledger. Raises Finding."""
    with RawClient(address) as client:
        for queue, acked in ledger.acked.items():
            begin = begins.get(queue, 0)
            with ledger.lock:
                wanted = {at: it for at, it in acked.items() if at >= begin}
            seen = begin
            for found in read(client, queue, begin, max(wanted, default=-1) + 1):
                seen = found.queue_offset + 1
                digest = hashlib.sha256(found.body).digest()
                if found.topic != queue[0] or digest not in ledger.sent:
                    raise Finding(f"{queue} {found.queue_offset}: a message that nobody sent")
                expected = wanted.pop(found.queue_offset, None)
                if expected not in (None, (found.physical_offset, digest)):
                    raise Finding(
                        f"{queue} {found.queue_offset}: another message than acknowledged"
                    )
            if wanted:
                lost = sorted(wanted)
                raise Finding(f"{queue}: {len(lost)} acknowledged lost, from {lost[0]} on")
            begins[queue] = seen
    if ledger.findings:
        raise Finding("; ".join(ledger.findings[:3]))


@contextlib.contextmanager
def sending(
    ledger: Ledger, address: str, seed: int, pause_s: float = 0.0
) -> Generator[list[Sender]]:
    """Let senders run for a block."""
    senders = [Sender(number, ledger, seed + number, pause_s) for number in range(SENDERS)]
    for one in senders:
        one.address = address
        one.start()
    try:
        yield senders
    finally:
        for one in senders:
            one.stop()
        for one in senders:
            one.join(30.0)


def more(ledger: Ledger, count: int) -> None:
    """Wait for more acknowledgements. Raises Finding."""
    wanted, end = ledger.count + count, time.monotonic() + PATIENCE_S
    while ledger.count < wanted:
        if time.monotonic() > end:
            raise Finding(f"no {count} acknowledgements within {PATIENCE_S:g} s")
        time.sleep(0.02)


def kills(
    folder: Path, cycles: int, rng: random.Random, ports: tuple[int, int], *, plant: bool = False
) -> str:
    """Kill one broker again and again. Raises Finding."""
    ledger, begins = Ledger(), dict[Queue, int]()
    flush = {"flushDiskType": "SYNC_FLUSH", "mappedFileSizeCommitLog": str(LOG_FILE)}
    server = Server(folder / "one", ports[0], flush)
    starts = 0
    with sending(ledger, server.address, rng.randrange(1 << 30)):
        for cycle in range(cycles):
            server.start()
            starts += 1
            if rng.random() < 0.25:  # In the middle of its recovery.
                time.sleep(rng.uniform(0.05, 0.4))
                server.kill()
                continue
            server.ready()
            more(ledger, rng.randrange(1, 60))
            if cycle % FULL_CHECK_EVERY == 0:
                begins.clear()
            verify(server.address, ledger, begins)
            show(f"{cycle + 1} kills, {ledger.count} acknowledged")
            server.kill()
    if plant:
        harm(folder / "one" / "store" / "commitlog", ledger)
    server.start()
    server.ready()
    verify(server.address, ledger, {})
    server.kill()
    return f"{starts} starts, {cycles} kills, {ledger.count} acknowledged messages all there"


def harm(log: Path, ledger: Ledger) -> None:
    """Zero the last acknowledged record: the checker has to notice."""
    place = max(place for acked in ledger.acked.values() for place, _ in acked.values())
    with (log / f"{place // LOG_FILE * LOG_FILE:020}").open("r+b") as file:
        file.seek(place % LOG_FILE)
        file.write(bytes(100))


def fail_overs(folder: Path, rounds: int, rng: random.Random, ports: tuple[int, int]) -> str:
    """Swap master and slave again and again. Raises Finding."""
    ledger, begins = Ledger(), dict[Queue, int]()
    log = {
        # A new slave begins with its master's last file: all has to fit into one.
        "mappedFileSizeCommitLog": str(1 << 29),
        "syncFlushTimeout": "5000",
        "haHousekeepingInterval": "2000",
        "slaveSyncInterval": "1000",
    }
    master, slave = (Server(folder / f"side{side}", ports[side], log) for side in range(2))
    ha = {id(side): str(side.port + 5000) for side in (master, slave)}
    diverged = 0
    master.start(brokerId="0", brokerRole="SYNC_MASTER", haListenPort=ha[id(master)])
    master.ready()
    with sending(ledger, master.address, rng.randrange(1 << 30), PAUSE_S) as senders:
        for turn in range(rounds):
            role = {
                "brokerId": "1",
                "brokerRole": "SLAVE",
                "haListenPort": ha[id(slave)],
                "haMasterAddress": f"127.0.0.1:{ha[id(master)]}",
            }
            slave.start(**role)
            slave.ready()
            time.sleep(1.0)
            if (slave.folder / "store" / "diverged").exists():
                diverged += 1
                slave.kill()
                aside = slave.folder / f"aside{turn}"
                (slave.folder / "store").rename(aside)
                shutil.rmtree(aside)
                slave.start(**role)
                slave.ready()
            more(ledger, rng.randrange(20, 200))
            if turn % 10 == 0:
                begins.clear()
            verify(master.address, ledger, begins)
            time.sleep(rng.uniform(0.0, 0.5))
            master.kill()
            slave.kill()
            master, slave = slave, master
            master.start(brokerId="0", brokerRole="SYNC_MASTER", haListenPort=ha[id(master)])
            master.ready()
            for one in senders:
                one.address = master.address
            verify(master.address, ledger, begins)
            show(f"{turn + 1} fail-overs, {ledger.count} acknowledged, {diverged} set aside")
    verify(master.address, ledger, {})
    master.kill()
    return (
        f"{rounds} fail-overs, {ledger.count} acknowledged messages all there,"
        f" {diverged} old masters refused for their tail"
    )


def show(text: str) -> None:
    """Say how far it is."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def free_ports() -> tuple[int, int]:
    """Return two ports that nobody uses, with room for replication 5,000 above."""
    rng = random.SystemRandom()
    while True:
        ports = [rng.randrange(12_000, 27_000) for _ in range(2)]
        with contextlib.suppress(OSError), contextlib.ExitStack() as stack:
            for port in {*ports, *(port + 5000 for port in ports)}:
                probe = stack.enter_context(socket.socket())
                probe.bind(("127.0.0.1", port))
            return ports[0], ports[1]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run and say what was found; 0 when everything held."""
    parser = argparse.ArgumentParser(prog="python -m tools.attack.kills", description=__doc__)
    parser.add_argument("--cycles", type=int, default=0, help="kills of one broker")
    parser.add_argument("--fail-overs", type=int, default=0, help="fail-overs of a pair")
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--plant", action="store_true", help="destroy a message: must be noticed")
    given = parser.parse_args(arguments)
    seed = random.SystemRandom().randrange(2**32) if given.seed is None else given.seed
    rng = random.Random(seed)
    folder = Path(tempfile.mkdtemp(prefix="roquet-kills-"))
    show(f"seed {seed}")
    try:
        if given.cycles:
            show(kills(folder / "kills", given.cycles, rng, free_ports(), plant=given.plant))
        if given.fail_overs:
            show(fail_overs(folder / "pair", given.fail_overs, rng, free_ports()))
    except Finding as finding:
        show(f"FAILED: {finding}\nkept: {folder}")
        subprocess.run(["pkill", "-9", "-f", str(folder)], check=False)
        return 1
    shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
