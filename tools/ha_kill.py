"""Kill either side of a pair with -9 again and again; the logs must be equal in the end.

`python -m tools.ha_kill --cycles 20 --pair ours-ours|java-ours|ours-java [--mb 100] [--sync]`
(the master's make first).

A producer sends without pause while the sides are killed in turn at drawn moments and started
again. After each cycle the slave must catch up. At the end both stop in order: their logs are
compared byte for byte, and every acknowledged message must stand in the log where its answer said.
With `--sync` (our master only) an acknowledgement means that the slave has the message, too.
kill -9 says nothing about what a power loss leaves.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import random
import shutil
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, cast

from roquet.base.errors import RoquetError
from roquet.protocol.codes import ResponseCode
from roquet.remoting.blocking import BlockingConnection
from roquet.store.records import read_records
from roquet.testing.cluster import pull_command, send_command
from roquet.testing.pair import Pair, PairError, compare_logs, wait_until

if TYPE_CHECKING:
    from collections.abc import Sequence

    from roquet.testing.pair import Make, Side

TOPIC = "Kills"
PAIRS = ("ours-ours", "java-ours", "ours-java")
BODY_MAX = 30_000


@dataclasses.dataclass
class Producer:
    """Sends to queue 0 of the master until told to stop, and keeps what was acknowledged."""

    pair: Pair
    chance: random.Random
    acked: dict[int, bytes] = dataclasses.field(default_factory=dict[int, bytes])
    answers: dict[int, int] = dataclasses.field(default_factory=dict[int, int])
    stopping: threading.Event = dataclasses.field(default_factory=threading.Event)
    bytes_sent: int = 0

    def run(self) -> None:
        """Send, and connect again whenever that fails."""
        number = 0
        while not self.stopping.is_set():
            try:
                with BlockingConnection(self.pair.plans["master"].address) as connection:
                    while not self.stopping.is_set():
                        number += 1
                        self._send(connection, number)
            except RoquetError:
                time.sleep(0.1)

    def _send(self, connection: BlockingConnection, number: int) -> None:
        body = b"%d:" % number + self.chance.randbytes(self.chance.randrange(BODY_MAX))
        answer = connection.call(send_command(TOPIC, body), 30.0)
        self.answers[answer.code] = self.answers.get(answer.code, 0) + 1
        self.bytes_sent += len(body)
        if answer.code == ResponseCode.SUCCESS:
            offset = int((answer.ext or {})["queueOffset"])
            if offset in self.acked:
                raise PairError(f"queue offset {offset} was given out twice")
            self.acked[offset] = body
        elif answer.code in {ResponseCode.SYSTEM_BUSY, ResponseCode.SERVICE_NOT_AVAILABLE}:
            time.sleep(0.05)


def run(
    pair: Pair, cycles: int, chance: random.Random, *, bytes_wanted: int = 0
) -> tuple[int, int]:
    """Run the kills; return (acknowledged messages, bytes that are equal). Raises PairError."""
    producer = Producer(pair, random.Random(chance.random()))
    pair.start("master")
    pair.start("slave")
    thread = threading.Thread(target=producer.run, name="producer")
    thread.start()
    try:
        wait_until("messages are acknowledged", lambda: len(producer.acked) > 10)
        for cycle in range(cycles):
            side: Side = ("slave", "master")[cycle % 2]
            time.sleep(chance.uniform(0.2, 1.5))
            pair.kill(side)
            time.sleep(chance.uniform(0.0, 0.5))
            pair.start(side)
            wanted = len(producer.acked) + 5
            wait_until("sends go on", functools.partial(_has, producer.acked, wanted))
        wait_until("enough was sent", lambda: producer.bytes_sent >= bytes_wanted, 600)
    finally:
        producer.stopping.set()
        thread.join(60)
    pair.catch_up()
    _check(pair, "master", producer.acked)
    _check(pair, "slave", producer.acked)
    pair.stop("master")
    pair.stop("slave")
    same = compare_logs(pair.plans["master"].store, pair.plans["slave"].store)
    return len(producer.acked), same


def _has(acked: dict[int, bytes], count: int) -> bool:
    return len(acked) >= count


def _check(pair: Pair, side: Side, acked: dict[int, bytes]) -> None:
    """Read the queue and compare it with what was acknowledged."""
    if pair.make_of(side) == "java" and side == "slave":
        # Java's slave learns topics once a minute; its log is compared below.
        return
    found: dict[int, bytes] = {}
    wait_until("the topic can be read", lambda: _pulled(pair, side, 0))
    while more := _pulled(pair, side, max(found, default=-1) + 1):
        found.update(more)
    lost = sorted(acked.keys() - found.keys())
    if lost:
        raise PairError(f"{side}: {len(lost)} acknowledged messages are gone, first {lost[0]}")
    wrong = [offset for offset, body in acked.items() if found[offset] != body]
    if wrong:
        raise PairError(f"{side}: queue offset {wrong[0]} holds another message")


def _pulled(pair: Pair, side: Side, offset: int) -> dict[int, bytes]:
    answer = pair.call(side, pull_command(TOPIC, offset))
    if answer.code != ResponseCode.SUCCESS:
        return {}
    return {record.queue_offset: record.body for record in read_records(answer.body)}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run and say what was found; 0 when everything held."""
    parser = argparse.ArgumentParser(prog="python -m tools.ha_kill", description=__doc__)
    parser.add_argument("--cycles", type=int, default=20, help="kills, of slave and master in turn")
    parser.add_argument("--pair", choices=PAIRS, default="ours-ours")
    parser.add_argument("--mb", type=int, default=0, help="send at least so many MB")
    parser.add_argument("--sync", action="store_true", help="SYNC_MASTER")
    parser.add_argument("--seed", type=int, default=None)
    given = parser.parse_args(arguments)
    seed = random.SystemRandom().randrange(2**32) if given.seed is None else given.seed
    chance = random.Random(seed)
    master, slave = cast("tuple[Make, Make]", tuple(given.pair.split("-")))
    settings = {"brokerRole": "SYNC_MASTER"} if given.sync else {}
    folder = Path(tempfile.mkdtemp(prefix="roquet-ha-"))
    begin = time.monotonic()
    sys.stdout.write(f"{given.pair}, {given.cycles} kills, seed {seed}\n")
    try:
        with Pair(folder, master, slave, chance, settings) as pair:
            acked, same = run(pair, given.cycles, chance, bytes_wanted=given.mb << 20)
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
