"""Kill either side of a pair with -9 again and again; the logs must be equal in the end.

`python -m tools.faults.ha_kill --cycles 40 --pair ours-ours|java-ours|ours-java [--mb 100] [--sync]
[--tls]`
(the master's make first).

A producer sends without pause, its bytes spread over the kills, while the sides are killed in turn
at drawn moments and started again. After each kill sends must go on. Then both stop in order:
their logs are compared byte for byte, and what was seen goes to the history checker, with the
checksums of the logs as replicas.

A slave of ours then takes over: the master is killed under load (with `--sync`; otherwise, once
the slave has everything), the slave's store is started as a master, sends go on there, and the
checker judges what both lives of the queue have shown. With `--sync` (our master only) an
acknowledgement means that the slave has the message, too. `--plant` gives the new master an older
store: must be noticed. kill -9 says nothing about what a power loss leaves.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import functools
import random
import shutil
import sys
import tempfile
import threading
import time
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, cast

from roquet.base.errors import RoquetError
from roquet.protocol.codes import RequestCode, ResponseCode
from roquet.protocol.command import Command
from roquet.remoting.blocking import BlockingConnection
from roquet.store.records import read_records
from roquet.testing.cluster import pull_command, send_command
from roquet.testing.history import Acked, Failed, Found, ReadBack, Sent, Unknown, check
from roquet.testing.history_rules import FailedOver, Replica
from roquet.testing.pair import Pair, PairError, compare_logs, over_tls, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from roquet.testing.history_rules import Event
    from roquet.testing.pair import Make, Side

TOPIC = "Kills"
PAIRS = ("ours-ours", "java-ours", "ours-java")
SIDES: tuple[Side, ...] = ("master", "slave")
BODY_MAX = 30_000
REFUSED = (ResponseCode.SYSTEM_BUSY, ResponseCode.SERVICE_NOT_AVAILABLE)
"""Answers that say for sure that nothing was stored."""


@dataclasses.dataclass
class Producer:
    """Sends to queue 0 of one broker until told to stop, and writes down what it saw."""

    address: str
    chance: random.Random
    history: list[Event] = dataclasses.field(default_factory=list["Event"])
    acked: int = 0
    bytes_sent: int = 0
    allowed: int = sys.maxsize
    """Bytes to send until somebody allows more."""
    stopping: threading.Event = dataclasses.field(default_factory=threading.Event)
    _names: int = 0

    def pace(self, size: int) -> None:
        """Allow so many bytes in sum, and in any case some more than now; 0: as many as go."""
        self.allowed = max(size, self.bytes_sent + 20 * BODY_MAX) if size else sys.maxsize

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Send during a block."""
        self.stopping.clear()
        thread = threading.Thread(target=self._run, name="producer")
        thread.start()
        try:
            yield
        finally:
            self.stopping.set()
            thread.join(60)

    def _run(self) -> None:
        """Send, and connect again whenever that fails."""
        while not self.stopping.is_set():
            try:
                with BlockingConnection(self.address) as connection:
                    while not self.stopping.is_set():
                        if self.bytes_sent < self.allowed:
                            self._send(connection)
                        else:
                            time.sleep(0.02)
            except RoquetError:
                time.sleep(0.1)

    def _send(self, connection: BlockingConnection) -> None:
        self._names += 1
        name = f"m{self._names}"
        body = b"%s:" % name.encode() + self.chance.randbytes(self.chance.randrange(BODY_MAX))
        self.history.append(Sent(name, TOPIC, zlib.crc32(body)))
        try:
            answer = connection.call(send_command(TOPIC, body), 30.0)
        except RoquetError:
            self.history.append(Unknown(name))
            raise
        self.bytes_sent += len(body)
        if answer.code == ResponseCode.SUCCESS:
            offset = int((answer.ext or {})["queueOffset"])
            self.history.append(Acked(name, TOPIC, 0, offset))
            self.acked += 1
        elif answer.code in REFUSED:
            self.history.append(Failed(name))
            time.sleep(0.05)
        else:
            self.history.append(Unknown(name))


def run(
    pair: Pair,
    cycles: int,
    chance: random.Random,
    *,
    bytes_wanted: int = 0,
    plant: bool = False,
) -> tuple[int, int]:
    """Run the kills; return (acknowledged messages, bytes that are equal). Raises PairError."""
    producer = Producer(pair.plans["master"].address, random.Random(chance.random()))
    pair.start("master")
    pair.start("slave")
    share = bytes_wanted // max(1, cycles)
    # A new slave begins with the master's last file: let that be the first.
    producer.pace(1)
    with producer.running():
        wait_until("messages are acknowledged", lambda: producer.acked > 10)
        pair.catch_up()
        producer.pace(share)
        for cycle in range(cycles):
            side: Side = ("slave", "master")[cycle % 2]
            time.sleep(chance.uniform(0.2, 1.5))
            pair.kill(side)
            time.sleep(chance.uniform(0.0, 0.5))
            pair.start(side)
            wanted = share * (cycle + 1)
            producer.pace(wanted + share)
            go_on(producer)
            enough = functools.partial(_has_sent, producer, wanted)
            wait_until("the share of this kill was sent", enough, 600)
    pair.catch_up()
    for each in SIDES:
        read_back(pair, each, producer.history)
    for each in SIDES:
        pair.stop(each)
    same = compare_logs(pair.plans["master"].store, pair.plans["slave"].store)
    for each in SIDES:
        producer.history += replicas(each, pair.plans[each].store)
    judge(producer.history)
    if pair.make_of("slave") == "ours":
        fail_over(pair, producer, plant=plant)
    return producer.acked, same


def fail_over(pair: Pair, producer: Producer, *, plant: bool) -> None:
    """Let the slave's store become the master's, and judge both lives. Raises PairError."""
    copied_before_answers = pair.settings.get("brokerRole") == "SYNC_MASTER"
    older = pair.folder / "older"
    shutil.copytree(pair.plans["slave"].store, older)
    for each in SIDES:
        pair.start(each)
    pair.catch_up()
    producer.pace(0)
    with producer.running():
        go_on(producer, 50)
        if copied_before_answers:
            pair.kill("master")
    if not copied_before_answers:
        pair.catch_up()
        pair.kill("master")
    pair.kill("slave")
    if plant:
        shutil.rmtree(pair.plans["slave"].store)
        older.rename(pair.plans["slave"].store)
    pair.promote()
    ext = {"topic": TOPIC, "queueId": "0"}
    answer = pair.call("slave", Command(RequestCode.GET_MAX_OFFSET, ext=ext))
    producer.history.append(FailedOver(TOPIC, 0, int((answer.ext or {}).get("offset", "0"))))
    producer.address = pair.plans["slave"].address
    with producer.running():
        go_on(producer, 50)
    read_back(pair, "slave", producer.history)
    pair.stop("slave")
    judge(producer.history)


def go_on(producer: Producer, count: int = 5) -> None:
    """Wait for more acknowledgements. Raises PairError."""
    wanted = producer.acked + count
    wait_until("sends go on", lambda: producer.acked >= wanted)


def _has_sent(producer: Producer, size: int) -> bool:
    return producer.bytes_sent >= size


def judge(history: list[Event]) -> None:
    """Let the checker look at everything so far. Raises PairError."""
    violations = check(history).violations
    if violations:
        raise PairError("; ".join(f"{it.rule}: {it.text}" for it in violations[:3]))


def replicas(side: Side, store: Path) -> list[Event]:
    """Return the checksums of a stopped broker's log, file by file."""
    files = sorted((store / "commitlog").iterdir())
    contents = ((int(path.name), path.read_bytes()) for path in files)
    return [Replica(side, begin, begin + len(data), zlib.crc32(data)) for begin, data in contents]


def read_back(pair: Pair, side: Side, history: list[Event]) -> None:
    """Read the whole queue of one side. Raises PairError."""
    if pair.make_of(side) == "java" and side == "slave":
        # Java's slave learns topics once a minute; its log is compared instead.
        return
    wait_until("the topic can be read", lambda: _pulled(pair, side, 0))
    history.append(ReadBack(complete=True))
    offset = 0
    while found := _pulled(pair, side, offset):
        history += found
        offset = found[-1].offset + 1


def _pulled(pair: Pair, side: Side, offset: int) -> list[Found]:
    answer = pair.call(side, pull_command(TOPIC, offset))
    if answer.code != ResponseCode.SUCCESS:
        return []
    return [
        Found(
            TOPIC,
            0,
            record.queue_offset,
            record.body.split(b":", 1)[0].decode(errors="replace"),
            zlib.crc32(record.body),
        )
        for record in read_records(answer.body)
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run and say what was found; 0 when everything held."""
    parser = argparse.ArgumentParser(prog="python -m tools.faults.ha_kill", description=__doc__)
    parser.add_argument("--cycles", type=int, default=40, help="kills, of slave and master in turn")
    parser.add_argument("--pair", choices=PAIRS, default="ours-ours")
    parser.add_argument("--mb", type=int, default=0, help="send at least so many MB")
    parser.add_argument("--sync", action="store_true", help="SYNC_MASTER")
    parser.add_argument("--tls", action="store_true", help="copy over TLS; both sides ours")
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--plant", action="store_true", help="an older store: must be noticed")
    given = parser.parse_args(arguments)
    seed = random.SystemRandom().randrange(2**32) if given.seed is None else given.seed
    chance = random.Random(seed)
    master, slave = cast("tuple[Make, Make]", tuple(given.pair.split("-")))
    settings = {"brokerRole": "SYNC_MASTER"} if given.sync else {}
    folder = Path(tempfile.mkdtemp(prefix="roquet-ha-"))
    if given.tls:
        settings |= over_tls(folder)
    begin = time.monotonic()
    sys.stdout.write(f"{given.pair}, {given.cycles} kills, seed {seed}\n")
    try:
        with Pair(folder, master, slave, chance, settings) as pair:
            acked, same = run(
                pair, given.cycles, chance, bytes_wanted=given.mb << 20, plant=given.plant
            )
    except RoquetError as error:
        sys.stdout.write(f"FAILED: {error}\nkept: {folder}\n")
        return 1
    shutil.rmtree(folder, ignore_errors=True)
    sys.stdout.write(
        f"held: {acked} acknowledged messages are there, {same / 2**20:.0f} MiB of log equal,"
        f" {time.monotonic() - begin:.0f} s\n"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
