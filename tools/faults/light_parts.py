"""What the kill -9 program for light topics does to a broker, and its account of it."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import json
import random
import struct
import threading
import time
from typing import NamedTuple

from roquet.base.overriding import override
from tools.attack.raw import Frame, RawClient
from tools.faults.crash import properties_of, say

QUEUES = 2
SENDERS = 3
INVISIBLE_MS = (1000, 2500)
SEND, SUBSCRIBE, POP, ACK = 10, 200071, 200070, 200051
FOUND, NONE_IN_TIME, NONE_AT_ONCE = 0, 210, 208
MAGIC = -626843481
"""Of a record in the first layout, which names of topics up to 127 bytes have."""


class Taken(NamedTuple):
    """A message of a pop's answer: its light topic, its place there, its body and its handle."""

    light: str
    offset: int
    body: str
    handle: str
    pop_ms: int
    due_ms: int
    """When its invisible time is over: an acknowledgement that comes later settles nothing."""


class Names(NamedTuple):
    """A parent, its group, and its light topics."""

    parent: str
    group: str
    prefix: str
    topics: int

    def lights(self) -> list[str]:
        """Return the names of the light topics."""
        return [f"{self.prefix}{at}" for at in range(self.topics)]


NAMES = Names("CrashLight", "crash_light", "t", 24)
"""Of the light topics that are always in use."""


@dataclasses.dataclass(slots=True)
class Place:
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
        self._places: dict[str, dict[int, Place]] = collections.defaultdict(dict)
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

    def places(self) -> list[Place]:
        """Return every place that a message was popped from."""
        return [place for mine in self._places.values() for place in mine.values()]

    def unsettled(self) -> list[str]:
        """Return the stored messages for which nobody has sent an acknowledgement."""
        with self._lock:
            done = {place.body for place in self.places() if place.ack_sent}
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
            self._places[one.light][one.offset] = Place(one.body)
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

    def __init__(
        self, number: int, address: str, account: Account, count: int, names: Names = NAMES
    ) -> None:
        """Take every third light topic."""
        super().__init__(daemon=True)
        self._names, self._lights = names, names.lights()[number::SENDERS]
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
            "topic": self._names.parent,
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
        self,
        name: str,
        address: str,
        account: Account,
        rng: random.Random,
        *,
        ack_share: float,
        names: Names = NAMES,
    ) -> None:
        """Acknowledge a share of the messages, and forget the others."""
        super().__init__(daemon=True)
        self._names = names
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
                "group": self._names.group,
                "topic": self._names.parent,
                "liteTopicSet": self._names.lights(),
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
            "consumerGroup": self._names.group,
            "topic": self._names.parent,
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
        taken = read(answer, self._names.parent)
        self._account.popped(taken)
        for one in taken:
            if self._rng.random() < self._ack_share:
                self._ack(client, one)

    def _ack(self, client: RawClient, one: Taken) -> None:
        ext = {
            "consumerGroup": self._names.group,
            "topic": self._names.parent,
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


def read(answer: Frame, parent: str) -> list[Taken]:
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
        light = said["INNER_MULTI_DISPATCH"].removeprefix(f"%LMQ%${parent}$")
        offset = int(said["INNER_MULTI_QUEUE_OFFSET"])
        fields = [ext["popTime"], ext["invisibleTime"], ext["reviveQid"], "0", "crash-broker", "0"]
        handle = " ".join([str(offset), *fields, str(offset)])
        found.append(Taken(light, offset, body, handle, pop_ms, due_ms))
        at += size
    return found


IDLE = Names("CrashIdle", "crash_idle", "i", 12)
IDLE_MINUTES = 1
"""The shortest time that the attribute can say."""
IDLE_S = 60 * IDLE_MINUTES
PAUSE_S = 65.0
"""Between two uses of a topic."""
A_USE = 3
"""Messages of one use."""


class IdleAccount(Account):
    """The account of light topics that are removed while they are idle, between kills.

    A topic of its own parent gets a few messages, and more of them only after it was idle for
    longer than the parent's `lite.topic.expiration`. So a kill meets it before, during or after
    its removal. What is checked beside what holds for every light topic:

    * it begins again at place 0 only after it was idle for as long as the attribute says;
    * what was sent to it after that is popped from place 0 on, or behind what it had, and not lost.

    Messages that nobody acknowledged for so long go with their light topic, as the guide says. They
    are counted, and no loss.
    """

    def __init__(self) -> None:
        """Begin with nothing."""
        super().__init__()
        self.lives = 0
        """How often one began again."""
        self._former: list[Place] = []

    @override
    def places(self) -> list[Place]:
        """Return every place, also those of topics that are gone."""
        return [*self._former, *super().places()]

    @override
    def unsettled(self) -> list[str]:
        """Return what is not so old that it may be gone."""
        oldest = time.monotonic_ns() - IDLE_S * 10**9
        return [body for body in super().unsettled() if sent_ns(body) > oldest]

    @override
    def _take(self, one: Taken) -> None:
        mine = self._places[one.light]
        if one.offset == 0 and mine and all(place.body != one.body for place in mine.values()):
            newest = max(sent_ns(place.body) for place in mine.values())
            if sent_ns(one.body) - newest >= IDLE_S * 10**9:
                self.lives += 1
                self._former += mine.values()
                mine.clear()
        super()._take(one)

    @override
    def report(self, title: str) -> None:
        """Print the account."""
        super().report(title)
        gone = len(super().unsettled())
        say(f"  began again {self.lives}, went with messages that nobody acknowledged {gone}")


class IdleSender(Sender):
    """Sends to the topic that was not used for the longest time, and then to no other."""

    @override
    def run(self) -> None:
        """Work: nothing when all have been used lately."""
        used = dict.fromkeys(IDLE.lights(), 0)
        for body in list(self._account.sent):
            light = body.partition(":")[0]
            used[light] = max(used[light], sent_ns(body))
        light = min(used, key=lambda it: used[it])
        if time.monotonic_ns() - used[light] >= PAUSE_S * 10**9:
            self._lights, self._count = [light], A_USE
            super().run()


def sent_ns(body: str) -> int:
    """Return when a message was sent, by the clock of this process."""
    return int(body.rpartition(":")[2])
