"""Kill the broker with -9 while messages are popped, and account for every one of them.

`make crash-pop CYCLES=n`, or `python -m tools.faults.pop_crash --cycles n [--seed s] [--flush f]`.
With `--buffer on` the broker keeps checkpoints in memory until they are acknowledged; with `--harm`
a file of the timers, in which checkpoints and acknowledgements wait, is damaged before one start in
three.

A sender adds messages while poppers take them, acknowledge most, ask for another invisible time
for some and forget the rest; the broker is killed at a drawn moment, one start in four as well.
After the last kill a calm round is judged without allowance. The client is made of sockets and
structs, and so is the reader of records. What is checked:

* every message whose send was answered SEND_OK is popped and acknowledged in the end;
* none comes again before its invisible time is over;
* one that was acknowledged in time never comes again, unless a kill lies between: counted;
* without kills, one that was not acknowledged comes again within its invisible time and 5 s. The
  poppers of a busy machine may be what is late: it counts if pops that were sent and answered
  between the two had room for it.
"""

from __future__ import annotations

import argparse
import asyncio
import collections
import contextlib
import dataclasses
import itertools
import random
import signal
import struct
import sys
import tempfile
import threading
import time
from pathlib import Path

from roquet.base.overriding import override
from roquet.testing.java import free_port
from tools.attack.raw import Frame, RawClient
from tools.faults.crash import Broker, paused_s, properties_of, say, worked_s
from tools.faults.timer_crash import harm_timers

TOPIC, GROUP = "CrashPop", "crash_poppers"
QUEUES = 2
POPPERS = 3
INVISIBLE_MS = (1000, 3000)
BUFFER = {
    "enablePopBufferMerge": "true",
    "popCkStayBufferTime": "2500",
    "popCkStayBufferTimeOut": "1200",
}
BUFFERED_MS = (2000, 5000)
"""Invisible times then: from 2.7 s on a checkpoint waits in memory; for 1 s it meets its acks."""
LATE_MS = 5000
ASKED_MIN = 3
"""Pops that had room for a message while it was late, so that the broker is what was late."""
CALM_MESSAGES = 150
CALM_S = 20.0
SETTLE_S = 90.0
TRIES_MAX = 1000
SEND, POP, ACK, CHANGE, GROUP_CODE = 10, 200050, 200051, 200053, 200
MAGIC = -626843481
"""Of a record in the first layout, which names of topics up to 127 bytes have."""


@dataclasses.dataclass(slots=True)
class Delivery:
    """One time that a message was popped; times are the broker's, Unix milliseconds."""

    pop_ms: int
    revive_ms: int
    ack_sent: bool = False
    acked: bool = False
    """Whether an acknowledgement was answered SUCCESS before the invisible time was over."""


class Account:
    """What was sent and popped, when the broker was killed; and the judgement."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self.sent: dict[str, bool] = {}
        self.sent_ms: dict[str, int] = {}
        self.deliveries: dict[str, list[Delivery]] = collections.defaultdict(list)
        self.kills_ms: list[int] = []
        self.problems: list[str] = []
        self.refused: collections.Counter[str] = collections.Counter()
        self.duplicates = self.redelivered = 0
        self.unasked = 0
        """Messages that came late, and for which nobody had asked when they were due."""
        self.with_room: list[tuple[int, int]] = []
        """When pops were sent and answered that got fewer messages than they asked for."""
        self.slowest_ms = 0
        """The longest that a pop which does not wait took: how busy the machine was."""
        self._lock = threading.Lock()

    def popped(self, name: str, delivery: Delivery) -> None:
        """Note that a message was popped."""
        with self._lock:
            self.deliveries[name].append(delivery)

    def had_room(self, sent_ms: int, answered_ms: int) -> None:
        """Note a pop that would have taken more."""
        with self._lock:
            self.with_room.append((sent_ms, answered_ms))

    def unsettled(self) -> list[str]:
        """Return the stored messages for which nobody has sent an acknowledgement.

        One that was not answered may have been stored before the kill.
        """
        with self._lock:
            them = self.deliveries.items()
            done = {name for name, mine in them if any(it.ack_sent for it in mine)}
        return [name for name, stored in self.sent.items() if stored and name not in done]

    def judge(self) -> None:
        """Find everything that must not be."""
        self.problems += [f"lost: {name} {self.deliveries.get(name)}" for name in self.unsettled()]
        for name, deliveries in self.deliveries.items():
            if name not in self.sent:
                self.problems.append(f"nobody sent this: {name}")
            ordered = sorted(deliveries, key=lambda it: it.pop_ms)
            for before, after in itertools.pairwise(ordered):
                self._judge_again(name, self.sent_ms.get(name, 0), before, after)

    def _judge_again(self, name: str, first_ms: int, before: Delivery, after: Delivery) -> None:
        # A kill may leave a message twice, and both are popped from then on. The pop that made
        # the second one may be known to nobody: its answer was lost with the broker.
        if any(first_ms <= kill <= after.pop_ms for kill in self.kills_ms):
            self.duplicates += before.acked or after.pop_ms < before.revive_ms
            return
        self.redelivered += 1
        if before.acked:
            self.problems.append(f"acknowledged, and came again: {name} {before} {after}")
        elif after.pop_ms < before.revive_ms:
            self.problems.append(f"came too early: {name} {before} {after}")
        elif after.pop_ms > before.revive_ms + LATE_MS:
            if self._was_asked_for(before.revive_ms + LATE_MS, after.pop_ms):
                self.problems.append(f"came too late: {name} {before} {after}")
            else:
                self.unasked += 1

    def _was_asked_for(self, due_ms: int, came_ms: int) -> bool:
        """Tell whether pops got less than they wanted while a message was due.

        One alone may have met another pop that held the queue for a moment.
        """
        found = (sent >= due_ms and answered <= came_ms for sent, answered in self.with_room)
        return sum(found) >= ASKED_MIN

    def report(self, title: str) -> None:
        """Print the account."""
        pops = sum(map(len, self.deliveries.values()))
        say(
            f"{title}: stored {sum(self.sent.values())}, pops {pops}, judged redeliveries"
            f" {self.redelivered}, duplicates after kills {self.duplicates}, kills"
            f" {len(self.kills_ms)}, slowest pop {self.slowest_ms} ms, late unasked for"
            f" {self.unasked},"
            f" violations {len(self.problems)}"
        )
        for answer, count in self.refused.most_common(5):
            say(f"  refused {count}: {answer}")
        for problem in self.problems[:20]:
            say(f"  {problem}")


def now_ms() -> int:
    """Return the time, Unix milliseconds."""
    return time.time_ns() // 1_000_000


class Sender(threading.Thread):
    """Sends until it has sent enough or the broker is gone."""

    def __init__(self, number: str, address: str, account: Account, count: int) -> None:
        """Take a `number` that tells this sender's messages from others'."""
        super().__init__(daemon=True)
        self._number, self._address = number, address
        self._account, self._count = account, count

    @override
    def run(self) -> None:
        """Work."""
        with contextlib.suppress(OSError), RawClient(self._address) as client:
            for count in range(self._count):
                name = f"{self._number}-{count}"
                self._account.sent[name] = False
                self._account.sent_ms[name] = now_ms()
                ext = {
                    "producerGroup": "p",
                    "topic": TOPIC,
                    "defaultTopic": "TBW102",
                    "defaultTopicQueueNums": str(QUEUES),
                    "queueId": str(count % QUEUES),
                    "sysFlag": "0",
                    "bornTimestamp": str(now_ms()),
                    "flag": "0",
                    "properties": f"UNIQ_KEY\x01{name}\x02",
                    "reconsumeTimes": "0",
                }
                if client.call(SEND, ext, b"x" * 100).code == 0:
                    self._account.sent[name] = True
                time.sleep(0.002)


class Popper(threading.Thread):
    """Pops until it is stopped or the broker is gone."""

    def __init__(
        self,
        address: str,
        account: Account,
        rng: random.Random,
        ack_share: float,
        invisible_ms: tuple[int, int] = INVISIBLE_MS,
    ) -> None:
        """Acknowledge a share of the messages, and ask for another time for one in ten."""
        super().__init__(daemon=True)
        self._invisible_ms = invisible_ms
        self._address, self._account, self._rng = address, account, rng
        self._ack_share = ack_share
        self.stopping = threading.Event()

    @override
    def run(self) -> None:
        """Work."""
        with contextlib.suppress(OSError), RawClient(self._address) as client:
            while not self.stopping.is_set():
                if not self._pop(client):
                    time.sleep(0.05)

    def _pop(self, client: RawClient) -> bool:
        most = self._rng.randint(1, 16)
        ext = {
            "consumerGroup": GROUP,
            "topic": TOPIC,
            "queueId": "-1",
            "maxMsgNums": str(most),
            "invisibleTime": str(self._rng.randint(*self._invisible_ms)),
            "pollTime": "0",
            "bornTime": str(now_ms()),
            "initMode": "0",
            "exp": "*",
            "expType": "TAG",
            "order": "false",
        }
        begun = now_ms()
        answer = client.call(POP, ext)
        ended = now_ms()
        self._account.slowest_ms = max(self._account.slowest_ms, ended - begun)
        if answer.code == 210:
            self._account.had_room(begun, ended)
        if answer.code != 0:
            if answer.code != 210:
                self._account.refused[f"pop {answer.code} {answer.remark[:100]}"] += 1
            return False
        taken = [(name, handle, Delivery(at, due)) for name, handle, at, due in read(answer)]
        if len(taken) < most:
            self._account.had_room(begun, ended)
        for name, _, delivery in taken:
            self._account.popped(name, delivery)
        for name, handle, delivery in taken:
            drawn = self._rng.random()
            if drawn < self._ack_share:
                self._ack(client, handle, delivery)
            elif drawn < self._ack_share + 0.1:
                self._change(client, name, handle, delivery)
        return True

    def _ack(self, client: RawClient, handle: list[str], delivery: Delivery) -> None:
        delivery.ack_sent = True
        answer = client.call(ACK, named(handle))
        if answer.code == 0:
            delivery.acked = now_ms() < delivery.revive_ms
        else:
            delivery.ack_sent = False
            self._account.refused[f"ack {answer.code} {answer.remark[:100]}"] += 1

    def _change(self, client: RawClient, name: str, handle: list[str], delivery: Delivery) -> None:
        invisible_ms = self._rng.randint(*self._invisible_ms)
        answer = client.call(CHANGE, {**named(handle), "invisibleTime": str(invisible_ms)})
        if answer.code != 0:
            self._account.refused[f"change {answer.code} {answer.remark[:100]}"] += 1
            return
        in_time = now_ms() < delivery.revive_ms
        if in_time:
            delivery.revive_ms = int(answer.ext["popTime"]) + invisible_ms
        changed = [handle[7], answer.ext["popTime"], str(invisible_ms), answer.ext["reviveQid"]]
        if in_time and self._rng.random() < 0.5:
            self._ack(client, changed + handle[4:], delivery)
        assert name


def named(handle: list[str]) -> dict[str, str]:
    """Return the fields that name a message in flight."""
    retry = {"0": TOPIC, "1": f"%RETRY%{GROUP}_{TOPIC}"}[handle[4]]
    return {
        "consumerGroup": GROUP,
        "topic": retry,
        "queueId": handle[6],
        "extraInfo": " ".join(handle),
        "offset": handle[7],
    }


def read(answer: Frame) -> list[tuple[str, list[str], int, int]]:
    """Return (name, handle, pop time, end of the invisible time) of each message of an answer."""
    ext, data = answer.ext, answer.body
    starts: dict[tuple[str, str], str] = {}
    for entry in ext["startOffsetInfo"].split(";"):
        flag, queue, start = entry.split(" ")
        starts[flag, queue] = start
    pop_ms, due_ms = int(ext["popTime"]), int(ext["popTime"]) + int(ext["invisibleTime"])
    found: list[tuple[str, list[str], int, int]] = []
    at = 0
    while at < len(data):
        size, magic = struct.unpack_from(">Ii", data, at)
        assert magic == MAGIC, f"no record at {at}"
        (queue,) = struct.unpack_from(">i", data, at + 12)
        (offset,) = struct.unpack_from(">q", data, at + 20)
        (body,) = struct.unpack_from(">i", data, at + 84)
        topic_at = at + 88 + body
        text_at = topic_at + 1 + data[topic_at]
        pairs = properties_of(data[at : at + size], text_at + 2 - at)
        handle = (
            pairs["POP_CK"].split(" ")
            if "POP_CK" in pairs
            else [
                starts["0", str(queue)],
                ext["popTime"],
                ext["invisibleTime"],
                ext["reviveQid"],
                "0",
                "crash-broker",
                str(queue),
                str(offset),
            ]
        )
        found.append((pairs["UNIQ_KEY"], handle, pop_ms, due_ms))
        at += size
    return found


class Campaign:
    """Cycles of work and kills on one store."""

    def __init__(
        self,
        folder: Path,
        flush: str,
        seed: int,
        calm_s: float,
        *,
        is_buffered: bool = False,
        is_harmed: bool = False,
    ) -> None:
        """Write the settings of the broker; the round without kills takes `calm_s`."""
        self._folder = folder
        self._is_harmed = is_harmed
        self.account = Account()
        self._calm_s = calm_s
        self._invisible_ms = BUFFERED_MS if is_buffered else INVISIBLE_MS
        self._rng = random.Random(seed)
        port = free_port(random.Random(seed ^ time.monotonic_ns()))
        more = {
            "brokerName": "crash-broker",
            "timerPrecisionMs": "100",
            "timerFlushIntervalMs": "200",
            "mappedFileSizeTimerLog": "65536",
            "reviveInterval": "200",
            **(BUFFER if is_buffered else {}),
        }
        self._broker = Broker(folder, port, flush, more=more)

    def cycle(self, number: int) -> None:
        """Start, send and pop until a drawn moment, kill."""
        if self._is_harmed and self._rng.random() < 1 / 3:
            harm_timers(self._folder / "store", self._rng)
        if self._rng.random() < 1 / 4:
            self._broker.start()
            time.sleep(self._rng.uniform(0.1, 1.2))
            self._kill()
        self._start()
        poppers = self._poppers(0.6)
        sender = Sender(f"{number}", self._broker.address, self.account, 10_000)
        for thread in (sender, *poppers):
            thread.start()
        time.sleep(worked_s(self._rng, 4.0))
        self._kill()
        for popper in poppers:
            popper.stopping.set()
        for thread in (sender, *poppers):
            thread.join()
        time.sleep(paused_s(self._rng))

    def last(self) -> None:
        """Acknowledge what is left; then a round without kills, over an orderly stop."""
        self._start()
        self._settle()
        poppers = self._poppers(0.5)
        sender = Sender("calm", self._broker.address, self.account, CALM_MESSAGES)
        for thread in (sender, *poppers):
            thread.start()
        sender.join()
        time.sleep(self._calm_s)
        for popper in poppers:
            popper.stopping.set()
        for popper in poppers:
            popper.join()
        self._broker.kill(signal.SIGTERM)
        # What was popped last comes late by the time of the stop.
        self.account.kills_ms.append(now_ms())
        self._start()
        self._settle()
        self._broker.kill(signal.SIGTERM)
        self.account.judge()

    def end(self) -> None:
        """Leave no process behind."""
        self._broker.kill()

    def _poppers(self, ack_share: float) -> list[Popper]:
        address, draw = self._broker.address, self._rng.random
        return [
            Popper(address, self.account, random.Random(draw()), ack_share, self._invisible_ms)
            for _ in range(POPPERS)
        ]

    def _settle(self) -> None:
        poppers = self._poppers(1.0)
        for popper in poppers:
            popper.start()
        end = time.monotonic() + SETTLE_S
        while self.account.unsettled() and time.monotonic() < end:
            time.sleep(0.2)
        for popper in poppers:
            popper.stopping.set()
        for popper in poppers:
            popper.join()

    def _start(self) -> None:
        self._broker.start()
        asyncio.run(self._broker.booted())
        with RawClient(self._broker.address) as client:
            body = f'{{"groupName":"{GROUP}","retryMaxTimes":{TRIES_MAX}}}'.encode()
            answer = client.call(GROUP_CODE, {}, body)
            assert answer.code == 0, answer.remark

    def _kill(self) -> None:
        self._broker.kill()
        self.account.kills_ms.append(now_ms())


def campaign(folder: Path, flush: str, options: argparse.Namespace, *, is_buffered: bool) -> bool:
    """Run all cycles in one flush mode; True when every promise was kept."""
    calm_s = 8.0 if options.short else CALM_S
    work = Campaign(
        folder, flush, options.seed, calm_s, is_buffered=is_buffered, is_harmed=options.harm
    )
    try:
        for number in range(options.cycles):
            work.cycle(number)
        work.last()
    finally:
        work.end()
    harmed = ", timer files damaged" if options.harm else ""
    work.account.report(f"{flush} flush, buffer {'on' if is_buffered else 'off'}{harmed}")
    return not work.account.problems


def main() -> int:
    """Run the command; the exit code says whether every promise was kept."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--cycles", type=int, default=40, help="kills in each flush mode and buffer"
    )
    parser.add_argument("--seed", type=int, default=1, help="draws the moments of the kills")
    parser.add_argument("--flush", choices=("sync", "async", "both"), default="both")
    parser.add_argument("--buffer", choices=("on", "off", "both"), default="both")
    parser.add_argument("--harm", action="store_true", help="damage the files of the timers too")
    parser.add_argument("--short", action="store_true", help="a short round without kills")
    parser.add_argument("--keep", type=Path, help="a folder for the stores")
    options = parser.parse_args()
    kept = True
    with tempfile.TemporaryDirectory(prefix="roquet-pop-") as temporary:
        modes = ("sync", "async") if options.flush == "both" else (options.flush,)
        buffers = ("off", "on") if options.buffer == "both" else (options.buffer,)
        for flush, buffer in itertools.product(modes, buffers):
            folder = (options.keep or Path(temporary)) / f"{flush}-buffer-{buffer}"
            folder.mkdir(parents=True, exist_ok=False)
            kept &= campaign(folder, flush, options, is_buffered=buffer == "on")
    say(f"seed {options.seed}: " + ("every promise kept" if kept else "PROMISES BROKEN"))
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
