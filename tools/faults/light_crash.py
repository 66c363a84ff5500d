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
import collections
import contextlib
import dataclasses
import json
import random
import signal
import struct
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from roquet.base.overriding import override
from roquet.testing.java import free_port
from tools.attack.raw import Frame, RawClient
from tools.faults.crash import Broker, properties_of, say, worked_s

if TYPE_CHECKING:
    from collections.abc import Sequence

PARENT, GROUP = "CrashLight", "crash_light"
QUEUES = 2
TOPICS = 24
SENDERS = 3
POPPERS = 3
INVISIBLE_MS = (1000, 2500)
CALM_MESSAGES = 200
SETTLE_S = 90.0
SEND, TOPIC_CODE, GROUP_CODE, SUBSCRIBE, POP, ACK = 10, 17, 200, 200071, 200070, 200051
FOUND, NONE_IN_TIME, NONE_AT_ONCE = 0, 210, 208
MAGIC = -626843481
"""Of a record in the first layout, which names of topics up to 127 bytes have."""
SETTINGS = {
    "brokerName": "crash-broker",
    "enableLmq": "true",
    "enableMultiDispatch": "true",
    "liteEventCheckInterval": "200",
    "liteEventFullDispatchDelayTime": "500",
}


class Taken(NamedTuple):
    """A message of a pop's answer: its light topic, its place there, its body and its handle."""

    light: str
    offset: int
    body: str
    handle: str
    pop_ms: int
    due_ms: int
    """When its invisible time is over: an acknowledgement that comes later settles nothing."""


@dataclasses.dataclass(slots=True)
class _Place:
    """What happened to one place of a light topic."""

    body: str
    ack_sent: bool = False
    acked_at: int | None = None
    """How many restarts there had been when one was sent that was answered SUCCESS in time."""
    acked_ms: int = 0
    """When its answer had been read: a pop before that time may have been answered before it."""


class Account:
    """What was sent and popped; and the judgement, most of it at once."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self.sent: dict[str, bool] = {}
        """Body -> whether it was answered SEND_OK."""
        self.problems: list[str] = []
        self.refused: collections.Counter[str] = collections.Counter()
        self.kills = self.restarts = self.pops = self.deliveries = self.redelivered = (
            self.duplicates
        ) = 0
        self._places: dict[str, dict[int, _Place]] = collections.defaultdict(dict)
        self._lock = threading.Lock()

    def popped(self, taken: list[Taken]) -> None:
        """Judge what one pop gave."""
        with self._lock:
            self.pops += 1
            by_light: dict[str, set[int]] = collections.defaultdict(set)
            for one in taken:
                self._take(one)
                by_light[one.light].add(one.offset)
            for light, offsets in by_light.items():
                self._judge_order(light, offsets)

    def acks(self, one: Taken) -> int:
        """Note that an acknowledgement is about to be sent; return the run of the broker."""
        with self._lock:
            self._places[one.light][one.offset].ack_sent = True
            return self.restarts

    def acked(self, one: Taken, run: int, at_ms: int) -> None:
        """Note that one that was sent in a run was answered SUCCESS in time, at `at_ms`.

        The broker may be gone by now: what a thread read of its last answers comes late.
        """
        with self._lock:
            place = self._places[one.light][one.offset]
            place.acked_at, place.acked_ms = run, at_ms

    def ended(self, *, is_killed: bool) -> None:
        """Note that the broker is gone, and with it what it had in memory."""
        with self._lock:
            self.kills += is_killed
            self.restarts += 1

    def unsettled(self) -> list[str]:
        """Return the stored messages for which nobody has sent an acknowledgement."""
        with self._lock:
            places = [place for mine in self._places.values() for place in mine.values()]
            done = {place.body for place in places if place.ack_sent}
            return [body for body, stored in list(self.sent.items()) if stored and body not in done]

    def judge(self) -> None:
        """Find what only the end shows."""
        self.problems += [f"lost: {body}" for body in self.unsettled()]
        for light, places in self._places.items():
            numbers = [int(places[at].body.rpartition(":")[2]) for at in sorted(places)]
            if numbers != sorted(set(numbers)):
                self.problems.append(f"not in the order of the sends: {light} {numbers}")

    def report(self, title: str) -> None:
        """Print the account."""
        say(
            f"{title}: stored {sum(self.sent.values())}, pops {self.pops}, deliveries"
            f" {self.deliveries}, again unacknowledged {self.redelivered}, duplicates over"
            f" restarts {self.duplicates}, kills {self.kills}, violations {len(self.problems)}"
        )
        for answer, count in self.refused.most_common(5):
            say(f"  refused {count}: {answer}")
        for problem in self.problems[:20]:
            say(f"  {problem}")

    def _take(self, one: Taken) -> None:
        self.deliveries += 1
        if one.body not in self.sent or not one.body.startswith(f"{one.light}:"):
            self.problems.append(f"nobody sent this there: {one.light} {one.offset} {one.body}")
        place = self._places[one.light].get(one.offset)
        if place is None:
            self._places[one.light][one.offset] = _Place(one.body)
            return
        if place.body != one.body:
            self.problems.append(
                f"place {one.offset} of {one.light} was {place.body}, and is {one.body}"
            )
        if place.acked_at is None or one.pop_ms < place.acked_ms:
            self.redelivered += 1
        elif place.acked_at < self.restarts:
            self.duplicates += 1
        else:
            self.problems.append(f"acknowledged, and came again: {one.light} {one.offset}")

    def _judge_order(self, light: str, offsets: set[int]) -> None:
        places = self._places[light]
        for at in range(max(offsets)):
            place = places.get(at)
            if at not in offsets and (place is None or not place.ack_sent):
                self.problems.append(f"jumped over {at} of {light}: it gave {sorted(offsets)}")
                return


def now_ms() -> int:
    """Return the time, Unix milliseconds."""
    return time.time_ns() // 1_000_000


class Sender(threading.Thread):
    """Sends to light topics of its own, in order, so often or until the broker is gone."""

    def __init__(self, number: int, address: str, account: Account, count: int) -> None:
        """Take every third light topic."""
        super().__init__(daemon=True)
        self._lights = [f"t{at}" for at in range(number, TOPICS, SENDERS)]
        self._address, self._account, self._count = address, account, count
        self._rng = random.Random(number ^ len(account.sent))

    @override
    def run(self) -> None:
        """Work."""
        with contextlib.suppress(OSError), RawClient(self._address) as client:
            for _ in range(self._count):
                self._send(client, self._rng.choice(self._lights))
                time.sleep(0.002)

    def _send(self, client: RawClient, light: str) -> None:
        body = f"{light}:{time.monotonic_ns()}"
        self._account.sent[body] = False
        ext = {
            "producerGroup": "p",
            "topic": PARENT,
            "defaultTopic": "TBW102",
            "defaultTopicQueueNums": str(QUEUES),
            "queueId": str(self._rng.randrange(QUEUES)),
            "sysFlag": "0",
            "bornTimestamp": str(now_ms()),
            "flag": "0",
            "properties": f"UNIQ_KEY\x01{body}\x02__LITE_TOPIC\x01{light}\x02",
            "reconsumeTimes": "0",
        }
        answer = client.call(SEND, ext, body.encode())
        if answer.code == 0:
            self._account.sent[body] = True
        else:
            self._account.refused[f"send {answer.code} {answer.remark[:100]}"] += 1


class Popper(threading.Thread):
    """Subscribes to all light topics and pops until it is stopped or the broker is gone."""

    def __init__(
        self, name: str, address: str, account: Account, rng: random.Random, ack_share: float
    ) -> None:
        """Acknowledge a share of the messages, and forget the others."""
        super().__init__(daemon=True)
        self._name, self._address, self._account = name, address, account
        self._rng, self._ack_share = rng, ack_share
        self.stopping = threading.Event()

    @override
    def run(self) -> None:
        """Work."""
        with contextlib.suppress(OSError), RawClient(self._address) as client:
            entry = {
                "action": "COMPLETE_ADD",
                "clientId": self._name,
                "group": GROUP,
                "topic": PARENT,
                "liteTopicSet": [f"t{at}" for at in range(TOPICS)],
                "version": 1,
            }
            body = json.dumps({"subscriptionSet": [entry]}).encode()
            answer = client.call(SUBSCRIBE, {}, body)
            if answer.code != 0:
                self._account.refused[f"subscribe {answer.code} {answer.remark[:100]}"] += 1
            while not self.stopping.is_set():
                self._pop(client)

    def _pop(self, client: RawClient) -> None:
        invisible_ms = self._rng.randint(*INVISIBLE_MS)
        ext = {
            "clientId": self._name,
            "consumerGroup": GROUP,
            "topic": PARENT,
            "maxMsgNum": str(self._rng.randint(1, 16)),
            "invisibleTime": str(invisible_ms),
            "pollTime": "300",
            "bornTime": str(now_ms()),
        }
        answer = client.call(POP, ext)
        if answer.code != FOUND:
            if answer.code not in (NONE_IN_TIME, NONE_AT_ONCE):
                self._account.refused[f"pop {answer.code} {answer.remark[:100]}"] += 1
                time.sleep(0.05)
            return
        taken = read(answer)
        self._account.popped(taken)
        for one in taken:
            if self._rng.random() < self._ack_share:
                self._ack(client, one)

    def _ack(self, client: RawClient, one: Taken) -> None:
        ext = {
            "consumerGroup": GROUP,
            "topic": PARENT,
            "queueId": "0",
            "extraInfo": one.handle,
            "offset": str(one.offset),
            "liteTopic": one.light,
        }
        run = self._account.acks(one)
        answer = client.call(ACK, ext)
        at_ms = now_ms()
        if answer.code == 0:
            if at_ms < one.due_ms:
                self._account.acked(one, run, at_ms)
        else:
            self._account.refused[f"ack {answer.code} {answer.remark[:100]}"] += 1


def read(answer: Frame) -> list[Taken]:
    """Return the messages of an answer."""
    ext, data, at = answer.ext, answer.body, 0
    found: list[Taken] = []
    pop_ms = int(ext["popTime"]) if data else 0
    due_ms = pop_ms + int(ext["invisibleTime"]) if data else 0
    while at < len(data):
        size, magic = struct.unpack_from(">Ii", data, at)
        assert magic == MAGIC, f"no record at {at}"
        (length,) = struct.unpack_from(">i", data, at + 84)
        body = data[at + 88 : at + 88 + length].decode()
        text_at = at + 88 + length + 1 + data[at + 88 + length]
        said = properties_of(data[at : at + size], text_at + 2 - at)
        light = said["INNER_MULTI_DISPATCH"].removeprefix(f"%LMQ%${PARENT}$")
        offset = int(said["INNER_MULTI_QUEUE_OFFSET"])
        fields = [ext["popTime"], ext["invisibleTime"], ext["reviveQid"], "0", "crash-broker", "0"]
        handle = " ".join([str(offset), *fields, str(offset)])
        found.append(Taken(light, offset, body, handle, pop_ms, due_ms))
        at += size
    return found


class Campaign:
    """Cycles of work and kills on one store."""

    def __init__(self, folder: Path, flush: str, seed: int) -> None:
        """Write the settings of the broker."""
        self.account = Account()
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
        threads = [*self._poppers(0.8), *self._senders(10_000)]
        for thread in threads:
            thread.start()
        time.sleep(worked_s(self._rng, 3.0))
        self._kill()
        _join(threads)

    def last(self) -> None:
        """Acknowledge what is left, twice: over an orderly stop, and with more messages."""
        for _ in range(2):
            self._start()
            senders = self._senders(CALM_MESSAGES)
            for sender in senders:
                sender.start()
            _join(senders)
            poppers = self._poppers(1.0)
            for popper in poppers:
                popper.start()
            end = time.monotonic() + SETTLE_S
            while self.account.unsettled() and time.monotonic() < end:
                time.sleep(0.2)
            _join(poppers)
            self._broker.kill(signal.SIGTERM)
            self.account.ended(is_killed=False)
        self.account.judge()

    def end(self) -> None:
        """Leave no process behind."""
        self._broker.kill()

    def _senders(self, count: int) -> list[Sender]:
        address = self._broker.address
        return [Sender(at, address, self.account, count) for at in range(SENDERS)]

    def _poppers(self, ack_share: float) -> list[Popper]:
        address, draw = self._broker.address, self._rng.random
        return [
            Popper(f"client-{at}", address, self.account, random.Random(draw()), ack_share)
            for at in range(POPPERS)
        ]

    def _start(self) -> None:
        self._broker.start()
        asyncio.run(self._broker.booted())
        with RawClient(self._broker.address) as client:
            topic = {
                "topic": PARENT,
                "defaultTopic": "TBW102",
                "readQueueNums": str(QUEUES),
                "writeQueueNums": str(QUEUES),
                "perm": "6",
                "topicFilterType": "SINGLE_TAG",
                "topicSysFlag": "0",
                "order": "false",
                "attributes": "+message.type=LITE",
            }
            group = {"groupName": GROUP, "attributes": {"+lite.bind.topic": PARENT}}
            for answer in (
                client.call(TOPIC_CODE, topic),
                client.call(GROUP_CODE, {}, json.dumps(group).encode()),
            ):
                assert answer.code == 0, answer.remark

    def _kill(self) -> None:
        self._broker.kill()
        self.account.ended(is_killed=True)


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
    return not work.account.problems


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
