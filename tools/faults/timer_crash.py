"""Kill the broker with -9 while timer messages wait, and account for every one of them.

`make crash-timers CYCLES=n`, or `python -m tools.faults.timer_crash --cycles n [--seed s]
[--flush f] [--precision ms] [--harm]`.

Three senders add timer messages with delays of 0 to 5 s, by all three properties and by two request
codes, and recall one in five; the broker is killed at a drawn moment, one start in four as well.
With `--harm` one of the wheel's files is cut short, zeroed, changed or removed before one start in
three.
The client is made of sockets and structs, and so is the reader of records. What is checked:

* none arrives before its time, by the store time of the copy that arrived;
* none is later than a bound of its time, or of the moment the broker served again, where it then
  ran for so long without a kill (`--late-ms`);
* every message whose send was answered SEND_OK arrives, unless its recall was sent;
* none arrives whose recall was answered SUCCESS;
* two copies of a message were stored in different runs of the broker; they are counted;
* no offset of a queue is ever given to a second message, and none is passed over.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import bisect
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
from tools.attack.raw import RawClient
from tools.faults.crash import Broker, paused_s, properties_of, say, worked_s

TOPIC = "CrashTimers"
QUEUES = 2
SENDERS = 3
DELAY_MAX_MS = 5000
SETTLE_S = 60.0
SEND, SEND_V2, PULL, RECALL = 10, 310, 11, 370
HARMED = ("timerwheel", "timerlog", "config/timercheck")
KINDS = ("TIMER_DELAY_MS", "TIMER_DELAY_SEC", "TIMER_DELIVER_MS")
LONG = {
    "producerGroup": "a",
    "topic": "b",
    "defaultTopic": "c",
    "defaultTopicQueueNums": "d",
    "queueId": "e",
    "sysFlag": "f",
    "bornTimestamp": "g",
    "flag": "h",
    "properties": "i",
    "reconsumeTimes": "j",
}


@dataclasses.dataclass(slots=True)
class Timed:
    """What the senders know of a message."""

    due_ms: int
    """The earliest time at which it may be stored where it was meant for."""
    stored: bool = False
    recall_sent: bool = False
    recalled: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Copy:
    """A message as it arrived."""

    queue: int
    offset: int
    stored_ms: int
    name: str


class Account:
    """What was sent, what arrived, when the broker ran; and the judgement."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self.sent: dict[str, Timed] = {}
        self.copies: dict[tuple[int, int], Copy] = {}
        self.problems: list[str] = []
        self.refused: collections.Counter[str] = collections.Counter()
        self.kills_ms: list[int] = []
        self.stops_ms: list[int] = []
        """Orderly ends of the broker."""
        self.served_ms: list[int] = []
        """When the broker served again after each start."""
        self.duplicates = 0
        self.latest_ms = 0
        """The most that a message was late while the broker ran."""

    def found(self, copy: Copy) -> None:
        """Note a copy; the same place must hold the same message for ever."""
        known = self.copies.setdefault((copy.queue, copy.offset), copy)
        if known != copy:
            self.problems.append(f"an offset given twice: {known} and {copy}")

    def missing(self) -> list[str]:
        """Return the stored messages that no recall was sent for and that did not arrive."""
        arrived = {copy.name for copy in self.copies.values()}
        sent = self.sent.items()
        return [n for n, it in sent if it.stored and not it.recall_sent and n not in arrived]

    def judge(self, late_ms: int) -> None:
        """Find everything that must not be; `late_ms` is the bound of how late a message may be."""
        runs = self._runs()
        by_name: dict[str, list[Copy]] = {}
        for copy in self.copies.values():
            by_name.setdefault(copy.name, []).append(copy)
        self.problems += [f"lost: {name} {self.sent[name]}" for name in self.missing()]
        for name, copies in by_name.items():
            timed = self.sent.get(name)
            if timed is None:
                self.problems.append(f"nobody sent this: {copies}")
                continue
            early = [copy for copy in copies if copy.stored_ms < timed.due_ms]
            self.problems += [f"early by {timed.due_ms - it.stored_ms} ms: {it}" for it in early]
            if timed.recalled:
                self.problems.append(f"recalled, and arrived: {timed} {copies}")
            copies.sort(key=lambda copy: copy.stored_ms)
            self._judge_again(copies)
            late = _late_ms(runs, timed.due_ms, copies[0].stored_ms)
            self.latest_ms = max(self.latest_ms, late)
            if late > late_ms:
                self.problems.append(f"late by {late} ms: {timed} {copies[0]}")

    def _runs(self) -> list[tuple[int, int]]:
        """Return from when to when the broker served, Unix milliseconds."""
        ends = sorted(self.kills_ms + self.stops_ms)
        return [(at, ends[bisect.bisect(ends, at)]) for at in self.served_ms if at < ends[-1]]

    def _judge_again(self, copies: list[Copy]) -> None:
        for before, after in itertools.pairwise(copies):
            self.duplicates += 1
            between = range(before.stored_ms, after.stored_ms + 1)
            if not any(kill in between for kill in self.kills_ms):
                self.problems.append(f"twice in one run: {before} {after}")

    def report(self, title: str) -> None:
        """Print the account."""
        stored = sum(it.stored for it in self.sent.values())
        recalled = sum(it.recalled for it in self.sent.values())
        say(
            f"{title}: sent {len(self.sent)}, acknowledged {stored}, recalled {recalled}, arrived"
            f" {len(self.copies)}, duplicates {self.duplicates}, kills {len(self.kills_ms)},"
            f" latest {self.latest_ms} ms after its time, violations {len(self.problems)}"
        )
        for answer, count in self.refused.most_common(5):
            say(f"  refused {count}: {answer}")
        for kind, count in collections.Counter(it[:8] for it in self.problems).items():
            say(f"  {count} times: {kind}...")
        for problem in self.problems[:20]:
            say(f"  {problem}")


def _late_ms(runs: list[tuple[int, int]], due_ms: int, stored_ms: int) -> int:
    """Return the longest time of one run for which a message was due and not there."""
    waits = (min(end, stored_ms) - max(begin, due_ms) for begin, end in runs)
    return max(0, *waits) if runs else 0


def now_ms() -> int:
    """Return the time, Unix milliseconds."""
    return time.time_ns() // 1_000_000


class Sender(threading.Thread):
    """Sends and recalls until the broker is gone."""

    def __init__(self, number: str, address: str, account: Account, rng: random.Random) -> None:
        """Take a `number` that tells this sender's messages from others'."""
        super().__init__(daemon=True)
        self._number = number
        self._address = address
        self._account = account
        self._rng = rng
        self.stopping = threading.Event()

    @override
    def run(self) -> None:
        """Work."""
        with contextlib.suppress(OSError), RawClient(self._address) as client:
            count = 0
            held: list[tuple[str, str]] = []
            while not self.stopping.is_set():
                count += 1
                name = f"{self._number}-{count}"
                handle = self._send(client, name)
                if handle and self._rng.random() < 0.2:
                    held.append((name, handle))
                if held and self._rng.random() < 0.3:
                    self._recall(client, *held.pop(self._rng.randrange(len(held))))

    def _send(self, client: RawClient, name: str) -> str:
        kind = self._rng.choice(KINDS)
        delay = self._rng.randrange(DELAY_MAX_MS)
        begun = now_ms()
        value = {KINDS[0]: delay, KINDS[1]: delay // 1000, KINDS[2]: begun + delay}[kind]
        due_ms = begun + (delay // 1000 * 1000 if kind == KINDS[1] else delay)
        timed = self._account.sent[name] = Timed(due_ms)
        ext = send_fields(self._rng.randrange(QUEUES), {"UNIQ_KEY": name, kind: str(value)})
        code = self._rng.choice((SEND, SEND_V2))
        if code == SEND_V2:
            ext = {LONG[key]: text for key, text in ext.items()}
        answer = client.call(code, ext, self._rng.randbytes(self._rng.choice((10, 100, 3000))))
        if answer.code != 0:
            self._account.refused[f"send {answer.code} {answer.remark[:100]}"] += 1
            return ""
        timed.stored = True
        return answer.ext.get("recallHandle", "")

    def _recall(self, client: RawClient, name: str, handle: str) -> None:
        timed = self._account.sent[name]
        # Answered, a recall is a promise; asked only, it may or may not have been stored.
        timed.recall_sent = True
        ext = {"producerGroup": "p", "topic": TOPIC, "recallHandle": handle}
        answer = client.call(RECALL, ext)
        if answer.code == 0:
            timed.recalled = True
            return
        timed.recall_sent = False
        late_ms = now_ms() - int(base64.urlsafe_b64decode(handle).split(b" ")[3])
        if late_ms < 0:
            self._account.problems.append(f"recall of {name} refused in time: {answer.remark}")


def harm_timers(store: Path, rng: random.Random) -> None:
    """Cut short, zero, change or remove one of the wheel's files in a stopped broker's store."""
    path = store / rng.choice(HARMED)
    if path.is_dir():
        path = rng.choice(sorted(path.iterdir()) or [path])
    if not path.is_file():
        return
    size = path.stat().st_size
    how = rng.choice(("truncate", "zero", "tail", "flip", "remove"))
    if how == "remove" or not size:
        path.unlink()
        return
    with path.open("r+b") as file:
        if how == "truncate":
            file.truncate(rng.randrange(size))
            return
        at = 0 if how == "zero" else rng.randrange(min(size, 8192))
        file.seek(at)
        if how == "flip":
            byte = file.read(1)[0] ^ 1 << rng.randrange(8)
            file.seek(at)
            file.write(bytes([byte]))
        else:
            file.write(bytes(min(size - at, 1 << 20)))


def send_fields(queue: int, properties: dict[str, str]) -> dict[str, str]:
    """Return the fields of a send."""
    return {
        "producerGroup": "p",
        "topic": TOPIC,
        "defaultTopic": "TBW102",
        "defaultTopicQueueNums": str(QUEUES),
        "queueId": str(queue),
        "sysFlag": "0",
        "bornTimestamp": str(now_ms()),
        "flag": "0",
        "properties": "".join(f"{name}\x01{text}\x02" for name, text in properties.items()),
        "reconsumeTimes": "0",
    }


def read(data: bytes, queue: int) -> list[Copy]:
    """Read records with hosts of IPv4 (spec: store §2)."""
    found: list[Copy] = []
    at = 0
    while at < len(data):
        size, magic = struct.unpack_from(">Ii", data, at)
        assert magic == -626843481, f"no record at {at}"
        (offset,) = struct.unpack_from(">q", data, at + 20)
        (stored_ms,) = struct.unpack_from(">q", data, at + 56)
        (body,) = struct.unpack_from(">i", data, at + 84)
        topic_at = at + 88 + body
        text_at = topic_at + 1 + data[topic_at]
        assert data[topic_at + 1 : text_at] == TOPIC.encode()
        pairs = properties_of(data[at : at + size], text_at + 2 - at)
        found.append(Copy(queue, offset, stored_ms, pairs["UNIQ_KEY"]))
        at += size
    return found


class Reader:
    """Reads what has arrived."""

    def __init__(self, account: Account) -> None:
        """Begin at the first offsets."""
        self._account = account
        self._next = dict.fromkeys(range(QUEUES), 0)

    def catch_up(self, client: RawClient, *, whole: bool = False) -> None:
        """Read what is new, or everything."""
        for queue in range(QUEUES):
            if whole:
                self._next[queue] = 0
            while copies := self._pull(client, queue):
                for copy in copies:
                    if copy.offset != self._next[queue]:
                        text = f"offset {self._next[queue]} of queue {queue} skipped: {copy}"
                        self._account.problems.append(text)
                    self._next[queue] = copy.offset + 1
                    self._account.found(copy)

    def _pull(self, client: RawClient, queue: int) -> list[Copy]:
        fields = {
            "consumerGroup": "g",
            "topic": TOPIC,
            "queueId": str(queue),
            "queueOffset": str(self._next[queue]),
            "maxMsgNums": "32",
            "sysFlag": "4",
            "commitOffset": "0",
            "suspendTimeoutMillis": "0",
            "subscription": "*",
            "subVersion": "1",
        }
        answer = client.call(PULL, fields)
        if answer.code == 21 and self._next[queue]:
            text = f"queue {queue} lost offset {self._next[queue]}: {answer.remark} {answer.ext}"
            self._account.problems.append(text)
        return read(answer.body, queue) if answer.code == 0 else []


class Campaign:
    """Cycles of work and kills on one store."""

    def __init__(self, folder: Path, flush: str, seed: int, precision_ms: int) -> None:
        """Write the settings of the broker."""
        self.account = Account()
        self._folder = folder
        self._rng = random.Random(seed)
        self._reader = Reader(self.account)
        port = free_port(random.Random(seed ^ time.monotonic_ns()))
        more = {
            "timerPrecisionMs": str(precision_ms),
            "timerFlushIntervalMs": "200",
            "mappedFileSizeTimerLog": "8192",
            "recallMessageEnable": "true",
            "timerWheelSnapshotFlush": "true",
            "timerWheelSnapshotIntervalMs": "300",
        }
        self._broker = Broker(folder, port, flush, more=more)

    def cycle(self, number: int, *, harm: bool) -> None:
        """Start, read, send until a drawn moment, kill."""
        if harm and self._rng.random() < 1 / 3:
            harm_timers(self._folder / "store", self._rng)
        if self._rng.random() < 1 / 4:
            self._broker.start()
            time.sleep(self._rng.uniform(0.1, 1.2))
            self._kill()
        self._start()
        rng = random.Random(self._rng.random())
        address = self._broker.address
        senders = [
            Sender(f"{number}-{it}", address, self.account, random.Random(rng.random()))
            for it in range(SENDERS)
        ]
        for sender in senders:
            sender.start()
        with RawClient(address) as client:
            self._reader.catch_up(client)
        time.sleep(worked_s(self._rng, 2.5))
        self._kill()
        for sender in senders:
            sender.stopping.set()
            sender.join()
        time.sleep(paused_s(self._rng))

    def last(self, late_ms: int) -> None:
        """Wait until everything was due, and read it; again after an orderly stop."""
        self._start()
        end = time.monotonic() + SETTLE_S
        with RawClient(self._broker.address) as client:
            time.sleep(DELAY_MAX_MS / 1000 + 2)
            self._reader.catch_up(client)
            while self.account.missing() and time.monotonic() < end:
                time.sleep(0.5)
                self._reader.catch_up(client)
        self._broker.kill(signal.SIGTERM)
        self.account.stops_ms.append(now_ms())
        self._start()
        with RawClient(self._broker.address) as client:
            time.sleep(1.5)
            self._reader.catch_up(client, whole=True)
        self._broker.kill(signal.SIGTERM)
        self.account.judge(late_ms)

    def end(self) -> None:
        """Leave no process behind."""
        self._broker.kill()

    def _start(self) -> None:
        self._broker.start()
        asyncio.run(self._broker.booted())
        self.account.served_ms.append(now_ms())

    def _kill(self) -> None:
        self._broker.kill()
        self.account.kills_ms.append(now_ms())


def campaign(folder: Path, flush: str, options: argparse.Namespace) -> bool:
    """Run all cycles in one flush mode; True when every promise was kept."""
    work = Campaign(folder, flush, options.seed, options.precision)
    try:
        for number in range(options.cycles):
            work.cycle(number, harm=options.harm)
        work.last(options.late_ms)
    finally:
        work.end()
    work.account.report(f"{flush} flush, {options.precision} ms")
    return not work.account.problems


def main() -> int:
    """Run the command; the exit code says whether every promise was kept."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cycles", type=int, default=40, help="kills in each flush mode")
    parser.add_argument("--seed", type=int, default=1, help="draws the moments of the kills")
    parser.add_argument("--flush", choices=("sync", "async", "both"), default="both")
    parser.add_argument("--precision", type=int, choices=(100, 200, 500, 1000), default=100)
    parser.add_argument("--harm", action="store_true", help="damage the files of the wheel too")
    parser.add_argument("--late-ms", type=int, default=5000, help="the latest while it runs")
    parser.add_argument("--keep", type=Path, help="a folder for the stores")
    options = parser.parse_args()
    kept = True
    with tempfile.TemporaryDirectory(prefix="roquet-timers-") as temporary:
        for flush in ("sync", "async") if options.flush == "both" else (options.flush,):
            folder = (options.keep or Path(temporary)) / flush
            folder.mkdir(parents=True, exist_ok=False)
            kept &= campaign(folder, flush, options)
    say(f"seed {options.seed}: " + ("every promise kept" if kept else "PROMISES BROKEN"))
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
