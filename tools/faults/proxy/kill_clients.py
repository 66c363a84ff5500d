"""Kill the proxy under the official clients of gRPC, and account for every message from outside.

`python -m tools.faults.proxy.kill_clients --client java|go|python|nodejs --kills 100 [--seed s]`

The servers are those of `proxy_kill`; senders and simple consumers are processes of the client's
make (`tools/grpc_programs.py`). The proxy is killed (SIGKILL) and started again, a drawn moment of
`--every` seconds at most after sends are answered again. Consumers acknowledge most of what they
receive and forget the rest. What is checked:

* every message whose send the client has confirmed is received, and nothing that nobody sent;
* what was not acknowledged comes back, in the end within its invisible time and `LATE_S`, and never
  before that is over;
* what was acknowledged within its invisible time does not come again;
* the clients go on by themselves: each turn of each ends, with an error or without one.

These clients send again by themselves when a call is lost, under the same id: such a message may be
stored several times. So the queues are read at the end, and a delivery is held against the one
before only if there is one copy of its message; its number of attempts tells a delivery of a copy
from that of another.
"""

from __future__ import annotations

import argparse
import base64
import collections
import contextlib
import dataclasses
import functools
import json
import os
import random
import selectors
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from roquet.base.overriding import override
from tools.attack.raw import RawClient
from tools.attack.records import Found
from tools.faults.crash import say
from tools.faults.proxy.world import GROUP, TOPIC, Finding, World, until
from tools.grpc_programs import COMMANDS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

MAKES = {"java": "java", "go": "go", "python": "python", "nodejs": "node"}
SENDERS, CONSUMERS = 1, 2
INVISIBLE_S = 10
LATE_S = 12.0
"""A message may come so long after its invisible time, with what a client waits between tries."""
EARLY_S = 0.2
START_S, ASK_S = 120.0, 90.0
AGAIN_S = 180.0
"""A client may take so long until it sends again after a kill: it waits longer each time."""
SETTLE_S = 120.0
FORGOTTEN = 0.1
BATCH = 5
PULL, FROM_START = 11, "4"
QUEUES = 2


class Failed(Exception):  # noqa: N818  (an answer that is none)
    """A client's call has ended with an error of its own."""


class ForeignClient:
    """A client of one make in a process of its own, steered by lines of JSON."""

    def __init__(self, make: str, folder: Path, endpoint: str) -> None:
        """Start it."""
        folder.mkdir(parents=True)
        self._folder = folder
        self._rest = b""
        with (folder / "client.err").open("ab") as errors:
            self._child = subprocess.Popen(
                COMMANDS[MAKES[make]](folder, endpoint),
                cwd=folder,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env={**os.environ, "HOME": str(folder)},
            )
        self._read(START_S)

    def ask(self, do: str, **fields: Any) -> Any:
        """Have it do something. Raises Failed, and Finding when it does not come back."""
        assert self._child.stdin is not None, "it is a pipe"
        self._child.stdin.write(json.dumps({"do": do, **fields}).encode() + b"\n")
        self._child.stdin.flush()
        answer = self._read(ASK_S)
        if "error" in answer:
            raise Failed(str(answer["error"]).strip()[-300:])
        return answer.get("result")

    def close(self) -> None:
        """End it."""
        self._child.kill()
        self._child.communicate()

    def _read(self, within_s: float) -> dict[str, Any]:
        assert self._child.stdout is not None, "it is a pipe"
        end = time.monotonic() + within_s
        with selectors.DefaultSelector() as selector:
            selector.register(self._child.stdout, selectors.EVENT_READ)
            while b"\n" not in self._rest:
                if not selector.select(end - time.monotonic()):
                    raise Finding(f"the client is silent for {within_s:g} s: {self._folder}")
                chunk = os.read(self._child.stdout.fileno(), 1 << 20)
                if not chunk:
                    raise Finding(f"the client has ended: {self._folder}")
                self._rest += chunk
        line, _, self._rest = self._rest.partition(b"\n")
        found: dict[str, Any] = json.loads(line)
        return found


@dataclasses.dataclass(slots=True)
class Chain:
    """The deliveries of what is one copy of a message, as far as attempts tell."""

    at: float
    """The receive that brought the last one has begun then."""
    attempt: int
    is_acked: bool = False
    acked_after_s: float = 0.0
    is_unsure: bool = False
    """An acknowledgement has no answer, or one that came late: it may come again, and need not."""


class Ledger:
    """What was sent, received and settled; what may not be."""

    def __init__(self) -> None:
        """Know nothing."""
        self.lock = threading.Lock()
        self.sent: set[bytes] = set()
        self.stored: set[bytes] = set()
        self.chains: dict[bytes, list[Chain]] = {}
        self.doubts: list[tuple[bytes, str]] = []
        """What may not be if there is one copy of the message."""
        self.findings: list[str] = []
        self.counts: collections.Counter[str] = collections.Counter()

    def has_stored(self, count: int) -> bool:
        """Tell whether so many messages were confirmed."""
        return len(self.stored) >= count

    def count(self, what: str) -> None:
        """Count an outcome."""
        with self.lock:
            self.counts[what] += 1

    def came(self, body: bytes, attempt: int, began: float) -> Chain | None:
        """Judge one delivery; its receive has begun then."""
        now = time.monotonic()
        with self.lock:
            if body == b"warm":
                return None
            if body not in self.sent:
                self.findings.append(f"nobody has sent {body[:40]!r}")
                return None
            chains = self.chains.setdefault(body, [])
            before = [it for it in chains if it.attempt < attempt]
            # One that is settled is the last that this can be.
            chain = min(before, key=lambda it: (it.is_acked, it.is_unsure, it.at), default=None)
            if chain is None:
                chains.append(found := Chain(began, attempt))
                if len(chains) > 1:
                    self.doubts.append((body, f"{body!r} came twice as attempt {attempt}"))
                return found
            self.counts["again"] += 1
            if now - chain.at < INVISIBLE_S - EARLY_S:
                self.doubts.append((body, f"{body!r} came again after {now - chain.at:.1f} s"))
            if chain.is_acked:
                after = f"after {chain.acked_after_s:.1f} s of {INVISIBLE_S}"
                what = f"{body!r} was acknowledged {after} and came again {now - chain.at:.1f} s"
                self.doubts.append((body, f"{what} after its receive, as attempt {attempt}"))
            chain.at, chain.attempt = began, attempt
            chain.is_acked = chain.is_unsure = False
            return chain

    def settled(self, chain: Chain, given_at: float, *, is_sure: bool) -> None:
        """Note that an acknowledgement was confirmed, or that its outcome is not known."""
        with self.lock:
            if chain.at == given_at:
                chain.acked_after_s = time.monotonic() - given_at
                # Once its time is over the broker may have given it to the next already.
                is_in_time = chain.acked_after_s < INVISIBLE_S - EARLY_S
                chain.is_acked = is_sure and is_in_time
                chain.is_unsure = not chain.is_acked
                self.counts["ack late"] += is_sure and not is_in_time

    @property
    def lost(self) -> list[bytes]:
        """Messages that were stored and have not come."""
        with self.lock:
            return sorted(self.stored - self.chains.keys())

    @property
    def open(self) -> list[bytes]:
        """Messages that have come and are not acknowledged."""
        with self.lock:
            chains = self.chains.items()
            return [
                body
                for body, found in chains
                if any(not it.is_acked and not it.is_unsure for it in found)
            ]

    def judge(self, copies: Mapping[bytes, int]) -> list[str]:
        """Return what may not be, knowing how often each message was stored."""
        certain = [text for body, text in self.doubts if copies.get(body) == 1]
        never = [body for body in self.stored if not copies.get(body)]
        gone = [f"{len(never)} confirmed messages are in no queue: {never[:3]}"] if never else []
        return [*self.findings, *gone, *certain]


class Worker(threading.Thread):
    """Works with a client until it is stopped."""

    def __init__(self, client: ForeignClient, ledger: Ledger, seed: int) -> None:
        """Draw by a seed."""
        super().__init__(daemon=True)
        self.client = client
        self.ledger = ledger
        self.rng = random.Random(seed)
        self.ending = threading.Event()

    @override
    def run(self) -> None:
        """Take turns until the end."""
        try:
            while not self.ending.is_set():
                self.turn()
        except Finding as finding:
            with self.ledger.lock:
                self.ledger.findings.append(str(finding))
        except (OSError, ValueError):
            # Its client was ended at the end of the run.
            if not self.ending.is_set():
                raise

    def turn(self) -> None:
        """Work once."""
        raise NotImplementedError


class Sender(Worker):
    """Sends a few messages at a time."""

    number = 0

    @override
    def turn(self) -> None:
        """Send, and note what was confirmed."""
        bodies = [b"%d-%d" % (id(self), self.number + at) for at in range(BATCH)]
        self.number += BATCH
        with self.ledger.lock:
            self.ledger.sent.update(bodies)
        messages = [{"body": base64.b64encode(body).decode()} for body in bodies]
        try:
            answers = self.client.ask("send", topic=TOPIC, messages=messages)
        except Failed:
            self.ledger.count("sends failed")
            self.ending.wait(0.2)
            return
        for body, answer in zip(bodies, answers, strict=True):
            if "error" in answer:
                self.ledger.count("send failed")
                continue
            self.ledger.count("send ok")
            with self.ledger.lock:
                self.ledger.stored.add(body)
        self.ending.wait(0.02)


class Consumer(Worker):
    """Receives, acknowledges most, and forgets the rest."""

    forgotten = FORGOTTEN

    @override
    def turn(self) -> None:
        """Receive, acknowledge most of it, and note both."""
        began = time.monotonic()
        fields = {"group": GROUP, "most": 16, "invisible_s": INVISIBLE_S}
        try:
            found = self.client.ask("receive", **fields)
        except Failed:
            self.ledger.count("receive failed")
            self.ending.wait(0.2)
            return
        self.ledger.count("receive ok")
        for one in found:
            body = base64.b64decode(one["body"])
            chain = self.ledger.came(body, int(one["attempt"]), began)
            if chain is None or self.rng.random() >= self.forgotten:
                self._ack(one["id"], chain, began)

    def _ack(self, message: str, chain: Chain | None, given_at: float) -> None:
        try:
            self.client.ask("ack", group=GROUP, message=message)
        except Failed:
            is_sure = False
        else:
            is_sure = True
        self.ledger.count("ack ok" if is_sure else "ack failed")
        if chain is not None:
            self.ledger.settled(chain, given_at, is_sure=is_sure)


def copies_of(world: World) -> Mapping[bytes, int]:
    """Read all queues of the topic at the brokers; return how often each body is stored."""
    found: collections.Counter[bytes] = collections.Counter()
    for broker in world.brokers:
        with RawClient(f"127.0.0.1:{broker.port}") as client:
            for queue in range(QUEUES):
                found.update(_bodies(client, queue))
    return found


def _bodies(client: RawClient, queue: int) -> Iterator[bytes]:
    offset = 0
    while True:
        fields = {"consumerGroup": "checker", "topic": TOPIC, "queueId": str(queue)}
        fields |= {"queueOffset": str(offset), "maxMsgNums": "32", "sysFlag": FROM_START}
        fields |= {"commitOffset": "0", "suspendTimeoutMillis": "0", "subVersion": "0"}
        answer = client.call(PULL, {**fields, "subscription": "*"})
        if answer.code != 0:
            return
        yield from (record.body for record in Found.read(answer.body))
        offset = int(answer.ext["nextBeginOffset"])


def opened(make: str, folder: Path, world: World) -> ForeignClient:
    """Return a client with a simple consumer that has received once."""
    client = ForeignClient(make, folder, world.endpoint)

    def receives() -> bool:
        try:
            client.ask("receive", group=GROUP, most=1, invisible_s=INVISIBLE_S)
        except Failed:
            return False  # it has no settings yet
        return True

    client.ask("open", topic=TOPIC, group=GROUP)
    until(f"{folder.name} receives", receives)
    return client


def settle(consumers: Sequence[Consumer], ledger: Ledger) -> None:
    """Let consumers take all there is. Raises Finding."""
    began = time.monotonic()
    for one in consumers:
        one.forgotten = 0.0
    while (ledger.lost or ledger.open) and time.monotonic() - began < SETTLE_S:
        time.sleep(0.1)
    took_s = time.monotonic() - began
    if ledger.lost:
        raise Finding(f"{len(ledger.lost)} confirmed sends never came: {ledger.lost[:3]}")
    if took_s > INVISIBLE_S + LATE_S:
        raise Finding(f"{len(ledger.open)} are open; the last came after {took_s:.1f} s")


class Clients:
    """The processes of a make, and the threads that steer them."""

    def __init__(self, make: str, world: World, ledger: Ledger, rng: random.Random) -> None:
        """Start the processes. Raises Finding."""
        self._open: list[ForeignClient] = []
        self.senders: list[Sender] = []
        self.consumers: list[Consumer] = []
        for at in range(SENDERS):
            client = ForeignClient(make, world.folder / f"sender-{at}", world.endpoint)
            self._open.append(client)
            self.senders.append(Sender(client, ledger, rng.randrange(1 << 30)))
        for at in range(CONSUMERS):
            client = opened(make, world.folder / f"consumer-{at}", world)
            self._open.append(client)
            self.consumers.append(Consumer(client, ledger, rng.randrange(1 << 30)))

    def start(self) -> None:
        """Have all of them work."""
        for one in (*self.senders, *self.consumers):
            one.start()

    def stop_sending(self) -> None:
        """Have no more sent."""
        for one in self.senders:
            one.ending.set()
            one.join(ASK_S)

    def close(self) -> None:
        """End everything."""
        for one in (*self.senders, *self.consumers):
            one.ending.set()
        for client in self._open:
            client.close()


@dataclasses.dataclass(frozen=True, slots=True)
class Plan:
    """How often the proxy is killed."""

    kills: int
    within_s: float
    """No further kill comes after so long."""
    every_s: float
    """Most seconds between sends that are confirmed again and the next kill."""


def kill(world: World, ledger: Ledger, plan: Plan, rng: random.Random) -> tuple[int, float]:
    """Kill the proxy; return how often, and how long sends were away. Raises Finding."""
    longest, turn, end = 0.0, 0, time.monotonic() + plan.within_s
    while turn < plan.kills and time.monotonic() < end and not ledger.findings:
        goal, since = len(ledger.stored) + BATCH, time.monotonic()
        until("sends are confirmed", functools.partial(ledger.has_stored, goal), AGAIN_S)
        longest = max(longest, time.monotonic() - since)
        time.sleep(rng.uniform(0.0, plan.every_s))
        world.proxy.kill()
        world.proxy.start()
        turn += 1
        if turn % 10 == 0:
            say(f"{turn} kills, {len(ledger.stored)} stored, {len(ledger.lost)} to come")
    return turn, longest


def run(folder: Path, make: str, plan: Plan, rng: random.Random) -> str:
    """Kill the proxy under load and judge. Raises Finding."""
    world, ledger, began = World(folder), Ledger(), time.monotonic()
    with contextlib.ExitStack() as stack:
        stack.callback(world.stop)
        world.start()
        clients = Clients(make, world, ledger, rng)
        stack.callback(clients.close)
        clients.start()
        try:
            kills, longest = kill(world, ledger, plan, rng)
            clients.stop_sending()
            settle(clients.consumers, ledger)
            copies = copies_of(world)
            findings = ledger.judge(copies)
        finally:
            say(f"calls: {dict(sorted(ledger.counts.items()))}; {len(ledger.doubts)} doubts")
    if findings:
        raise Finding(f"{len(findings)}: " + "; ".join(findings[:8]))
    twice = sum(copies[body] > 1 for body in ledger.sent & copies.keys())
    return (
        f"{make}: {kills} kills in {time.monotonic() - began:.0f} s, {len(ledger.stored)} confirmed"
        f" messages all came, {twice} were stored more than once,"
        f" {ledger.counts['again']} deliveries again; sends went on after {longest:.1f} s at most,"
        f" load {os.getloadavg()[1]:.1f}"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run and say what was found; 0 when everything held."""
    name = "python -m tools.faults.proxy.kill_clients"
    parser = argparse.ArgumentParser(prog=name, description=__doc__)
    parser.add_argument("--client", choices=sorted(MAKES), default="java")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=3600.0, help="no kill after so long")
    parser.add_argument("--every", type=float, default=1.0, help="most seconds until a kill")
    parser.add_argument("--seed", type=int, default=None)
    given = parser.parse_args(arguments)
    seed = random.SystemRandom().randrange(2**32) if given.seed is None else given.seed
    folder = Path(tempfile.mkdtemp(prefix="roquet-proxy-kill-"))
    say(f"seed {seed}")
    try:
        plan = Plan(given.kills, given.seconds, given.every)
        say(run(folder, given.client, plan, random.Random(seed)))
    except Finding as finding:
        say(f"FAILED: {finding}\nkept: {folder}")
        return 1
    shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
