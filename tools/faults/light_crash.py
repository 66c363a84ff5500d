"""Kill the broker with -9 while light topics are in use, and account for every message.

`make crash-light CYCLES=n`, or `python -m tools.faults.light_crash --cycles n [--seed s]
[--flush f]`.

Senders add messages to light topics of one parent while clients of one group subscribe to all of
them, pop, acknowledge most messages and forget the rest; the broker is killed at a drawn moment,
one start in four as well. After the last kill everything is acknowledged, over an orderly stop. The
client is made of sockets and structs, and so is the reader of records. What is checked:

* every message whose send was answered SEND_OK is popped and acknowledged in the end;
* no pop passes a message: whatever lies before one, and is not in the same answer, somebody has
  acknowledged before. So no offset jumps, whatever a kill leaves of the table of offsets;
* a place in a light topic is one message's for ever, and places are in the order of the sends;
* one that was acknowledged comes again over a restart alone, with a message before it that was
  not: what is acknowledged behind that one is known in memory. Counted.

Threads of a busy machine note late what they read, so each note carries its own time: the run of
the broker in which an acknowledgement was sent, and the broker's time of a pop.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from roquet.testing.java import free_port
from tools.attack.raw import RawClient
from tools.faults.crash import Broker, say, worked_s
from tools.faults.light_parts import (
    IDLE,
    IDLE_MINUTES,
    NAMES,
    QUEUES,
    SENDERS,
    Account,
    IdleAccount,
    IdleSender,
    Names,
    Popper,
    Sender,
)

if TYPE_CHECKING:
    import threading
    from collections.abc import Sequence

POPPERS = 3
CALM_MESSAGES = 200
SETTLE_S = 90.0
TOPIC_CODE, GROUP_CODE = 17, 200
SETTINGS = {
    "brokerName": "crash-broker",
    "enableLmq": "true",
    "enableMultiDispatch": "true",
    "liteEventCheckInterval": "200",
    "liteEventFullDispatchDelayTime": "500",
    # Idle light topics go while the broker runs, which it never does for long.
    "minLiteTTl": "300",
    "liteTtlCheckInterval": "200",
}


class Campaign:
    """Cycles of work and kills on one store."""

    def __init__(self, folder: Path, flush: str, seed: int) -> None:
        """Write the settings of the broker."""
        self.account, self.idle = Account(), IdleAccount()
        self._rng = random.Random(seed)
        port = free_port(random.Random(seed ^ time.monotonic_ns()))
        self._broker = Broker(folder, port, flush, more=SETTINGS)

    def cycle(self) -> None:
        """Start, work until a drawn moment, kill."""
        if self._rng.random() < 1 / 4:
            self._broker.start()
            time.sleep(self._rng.uniform(0.1, 1.2))
            self._kill()
        self._start()
        threads = [*self._poppers(0.8), *self._senders(10_000), self._idle_sender()]
        for thread in threads:
            thread.start()
        time.sleep(worked_s(self._rng, 3.0))
        self._kill()
        _join(threads)

    def last(self) -> None:
        """Acknowledge what is left, twice: over an orderly stop, and with more messages."""
        for _ in range(2):
            self._start()
            senders = [*self._senders(CALM_MESSAGES), self._idle_sender()]
            for sender in senders:
                sender.start()
            _join(senders)
            poppers = self._poppers(1.0)
            for popper in poppers:
                popper.start()
            end = time.monotonic() + SETTLE_S
            while (self.account.unsettled() or self.idle.unsettled()) and time.monotonic() < end:
                time.sleep(0.2)
            _join(poppers)
            self._broker.kill(signal.SIGTERM)
            self._ended(is_killed=False)
        self.account.judge()
        self.idle.judge()

    def end(self) -> None:
        """Leave no process behind."""
        self._broker.kill()

    def _senders(self, count: int) -> list[Sender]:
        address = self._broker.address
        return [Sender(at, address, self.account, count) for at in range(SENDERS)]

    def _poppers(self, ack_share: float) -> list[Popper]:
        address, draw = self._broker.address, self._rng.random
        idle = Popper("idle", address, self.idle, random.Random(draw()), ack_share=1.0, names=IDLE)
        return [
            idle,
            *(
                Popper(
                    f"client-{at}",
                    address,
                    self.account,
                    random.Random(draw()),
                    ack_share=ack_share,
                )
                for at in range(POPPERS)
            ),
        ]

    def _idle_sender(self) -> IdleSender:
        return IdleSender(0, self._broker.address, self.idle, 0, IDLE)

    def _start(self) -> None:
        self._broker.start()
        asyncio.run(self._broker.booted())
        with RawClient(self._broker.address) as client:
            _make(client, NAMES)
            _make(client, IDLE, f",+lite.topic.expiration={IDLE_MINUTES}")

    def _kill(self) -> None:
        self._broker.kill()
        self._ended(is_killed=True)

    def _ended(self, *, is_killed: bool) -> None:
        for account in (self.account, self.idle):
            account.ended(is_killed=is_killed)


def _make(client: RawClient, names: Names, more: str = "") -> None:
    """Make a parent and its group."""
    topic = {
        "topic": names.parent,
        "defaultTopic": "TBW102",
        "readQueueNums": str(QUEUES),
        "writeQueueNums": str(QUEUES),
        "perm": "6",
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": "0",
        "order": "false",
        "attributes": f"+message.type=LITE{more}",
    }
    group = {"groupName": names.group, "attributes": {"+lite.bind.topic": names.parent}}
    for answer in (
        client.call(TOPIC_CODE, topic),
        client.call(GROUP_CODE, {}, json.dumps(group).encode()),
    ):
        assert answer.code == 0, answer.remark


def _join(threads: Sequence[threading.Thread]) -> None:
    for thread in threads:
        if isinstance(thread, Popper):
            thread.stopping.set()
    for thread in threads:
        thread.join()


def campaign(folder: Path, flush: str, cycles: int, seed: int) -> bool:
    """Run all cycles in one flush mode; True when every promise was kept."""
    work = Campaign(folder, flush, seed)
    try:
        for _ in range(cycles):
            work.cycle()
        work.last()
    finally:
        work.end()
    work.account.report(f"{flush} flush")
    work.idle.report(f"{flush} flush, idle light topics")
    return not (work.account.problems or work.idle.problems)


def main() -> int:
    """Run the command; the exit code says whether every promise was kept."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cycles", type=int, default=40, help="kills in each flush mode")
    parser.add_argument("--seed", type=int, default=1, help="draws the moments of the kills")
    parser.add_argument("--flush", choices=("sync", "async", "both"), default="both")
    parser.add_argument("--keep", type=Path, help="a folder for the stores")
    options = parser.parse_args()
    kept = True
    with tempfile.TemporaryDirectory(prefix="roquet-light-") as temporary:
        for flush in ("sync", "async") if options.flush == "both" else (options.flush,):
            folder = (options.keep or Path(temporary)) / flush
            folder.mkdir(parents=True, exist_ok=False)
            kept &= campaign(folder, flush, options.cycles, options.seed)
    say(f"seed {options.seed}: " + ("every promise kept" if kept else "PROMISES BROKEN"))
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
