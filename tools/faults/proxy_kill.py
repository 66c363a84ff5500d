"""Kill the proxy and what is behind it under load, and account for every message.

`python -m tools.faults.proxy_kill --kills 30 [--seed s] [--faults proxy,broker,hang,namesrv]`

A name server, two brokers and `roquet proxy` in cluster mode are processes of their own. Senders
and consumers of gRPC, made of grpcio and a ledger, go on while each fault happens:

* `proxy`: kill -9 of the proxy at a drawn moment, and a start;
* `broker`: kill -9 of one of the brokers, two seconds without it, and a start;
* `hang`: one broker is stopped (SIGSTOP) for eight seconds: it takes connections and bytes and
  answers nothing;
* `namesrv`: kill -9 of the name server, ten seconds without it, and a start.

Consumers acknowledge most of what they receive and forget the rest. What is checked:

* every message whose send was answered OK is received, and nothing that nobody sent;
* a message that was not acknowledged comes back after its invisible time, in the end within it and
  `LATE_S`, and never before it is over;
* a message whose acknowledgement was answered OK comes again only when a broker was killed since;
* each send and each acknowledgement is answered, or its connection lost, within `BOUND_S`.
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import functools
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from roquet.base.overriding import override
from tools.attack.grpc_client import NONE, OK, Failed, GrpcClient
from tools.faults.crash import say
from tools.faults.proxy.world import GROUP, TOPIC, Finding, World, until

if TYPE_CHECKING:
    from collections.abc import Sequence

SENDERS, CONSUMERS = 3, 3
INVISIBLE_S = 10.0
LATE_S = 8.0
"""A message may come so long after its invisible time, brokers' starts included."""
EARLY_S = 0.2
BOUND_S = 3.5
"""Three seconds, and what a busy machine takes."""
HANG_S, AWAY_S, LOST_S = 8.0, 2.0, 10.0
SETTLE_S = 60.0
UNKNOWN = (50001, 50400)
"""Codes of calls whose broker was lost: it may have done what was asked."""
FORGOTTEN = 0.1


@dataclasses.dataclass(slots=True)
class Given:
    """The last delivery of a message."""

    at: float
    """Before when the broker cannot have popped it: the time at which the receive began."""
    came: float
    is_acked: bool = False
    is_unsure: bool = False
    """An acknowledgement was sent and has no answer: it may come again, and need not."""


class Ledger:
    """What was sent, received and settled; what may not be."""

    def __init__(self) -> None:
        """Know nothing."""
        self.lock = threading.Lock()
        self.sent: set[bytes] = set()
        self.acked: set[bytes] = set()
        self.given: dict[bytes, Given] = {}
        self.findings: list[str] = []
        self.broken_at = [0.0]
        """When a broker was killed or stopped last: acknowledgements may be gone with it."""
        self.again = 0
        self.codes: collections.Counter[str] = collections.Counter()
        self.slowest: dict[str, float] = {}

    def has_stored(self, count: int) -> bool:
        """Tell whether so many messages were sent and answered OK."""
        return len(self.acked) >= count

    def took(self, what: str, began: float, outcome: str) -> None:
        """Note how long a call has taken, and its outcome."""
        took_s = time.monotonic() - began
        with self.lock:
            self.codes[f"{what} {outcome}"] += 1
            self.slowest[what] = max(took_s, self.slowest.get(what, 0.0))
            if took_s > BOUND_S:
                self.findings.append(f"{what} took {took_s:.1f} s: {outcome}")

    def came(self, body: bytes, began: float) -> None:
        """Judge one delivery; its receive has begun then."""
        now = time.monotonic()
        with self.lock:
            if body not in self.sent:
                if body != b"warm":
                    self.findings.append(f"nobody has sent {body[:40]!r}")
                return
            before = self.given.get(body)
            if before is not None:
                self.again += 1
                if now - before.at < INVISIBLE_S - EARLY_S and not self._broken_since(before.at):
                    early = now - before.at
                    self.findings.append(f"{body!r} came again after {early:.1f} s")
                if before.is_acked and not self._broken_since(before.at):
                    self.findings.append(f"{body!r} was acknowledged and came again")
            self.given[body] = Given(began, now)

    def _broken_since(self, at: float) -> bool:
        return self.broken_at[-1] >= at - INVISIBLE_S

    def settled(self, body: bytes, given_at: float, *, is_sure: bool) -> None:
        """Note that an acknowledgement was answered OK, or that its outcome is not known."""
        with self.lock:
            given = self.given.get(body)
            if given is not None and given.at == given_at:
                given.is_acked, given.is_unsure = is_sure, not is_sure

    @property
    def lost(self) -> list[bytes]:
        """Messages that were stored and have not come."""
        with self.lock:
            return sorted(self.acked - self.given.keys())

    @property
    def open(self) -> list[bytes]:
        """Messages that have come and are not acknowledged."""
        with self.lock:
            given = self.given.items()
            return [body for body, it in given if not it.is_acked and not it.is_unsure]


class Worker(threading.Thread):
    """Works until it is stopped."""

    def __init__(self, endpoint: str, ledger: Ledger, seed: int, ending: threading.Event) -> None:
        """Draw by a seed."""
        super().__init__(daemon=True)
        self.endpoint = endpoint
        self.ledger = ledger
        self.rng = random.Random(seed)
        self.ending = ending

    @override
    def run(self) -> None:
        """Take turns until the end."""
        with GrpcClient(self.endpoint) as client:
            while not self.ending.is_set():
                self.turn(client)

    def turn(self, client: GrpcClient) -> None:
        """Work once."""
        raise NotImplementedError


class Sender(Worker):
    """Sends messages of one or several."""

    count = 0

    @override
    def turn(self, client: GrpcClient) -> None:
        """Send one message or three, and note what was answered."""
        self.count += 1
        many = 1 if self.rng.random() < 0.8 else 3
        bodies = [b"%d-%d-%d" % (id(self), self.count, at) for at in range(many)]
        with self.ledger.lock:
            self.ledger.sent.update(bodies)
        began = time.monotonic()
        try:
            status = client.send(TOPIC, bodies).status
        except Failed as failed:
            self.ledger.took("send", began, failed.code.name)
            self.ending.wait(0.05)
            return
        self.ledger.took("send", began, str(status.code))
        if status.code == OK:
            with self.ledger.lock:
                self.ledger.acked.update(bodies)
        self.ending.wait(0.01)


class Consumer(Worker):
    """Receives, acknowledges most, and forgets the rest."""

    forgotten = FORGOTTEN

    @override
    def turn(self, client: GrpcClient) -> None:
        """Receive, acknowledge most of it, and note both."""
        began = time.monotonic()
        try:
            code, found = client.receive(TOPIC, GROUP, invisible_ms=int(INVISIBLE_S * 1000))
        except Failed as failed:
            with self.ledger.lock:
                self.ledger.codes[f"receive {failed.code.name}"] += 1
            self.ending.wait(0.05)
            return
        with self.ledger.lock:
            self.ledger.codes[f"receive {code}"] += 1
        if code not in {OK, NONE}:
            self.ending.wait(0.05)
        for message in found:
            self.ledger.came(message.body, began)
        kept = [each for each in found if self.rng.random() >= self.forgotten]
        if kept:
            self._ack(client, kept, began)

    def _ack(self, client: GrpcClient, kept: Sequence[Any], given_at: float) -> None:
        began = time.monotonic()
        try:
            answer = client.ack(TOPIC, GROUP, kept)
        except Failed as failed:
            self.ledger.took("ack", began, failed.code.name)
            for message in kept:
                self.ledger.settled(message.body, given_at, is_sure=False)
            return
        self.ledger.took("ack", began, str(answer.status.code))
        for message, entry in zip(kept, answer.entries, strict=True):
            if entry.status.code in {OK, *UNKNOWN}:
                is_sure = entry.status.code == OK
                self.ledger.settled(message.body, given_at, is_sure=is_sure)


def fault(world: World, kind: str, rng: random.Random, ledger: Ledger) -> None:
    """Let one fault happen, and wait until all servers run again."""
    if kind == "proxy":
        world.proxy.kill()
        world.proxy.start()
    elif kind == "namesrv":
        world.namesrv.kill()
        time.sleep(LOST_S)
        world.namesrv.start()
    else:
        broker = rng.choice(world.brokers)
        ledger.broken_at.append(time.monotonic())
        if kind == "hang":
            broker.signal(signal.SIGSTOP)
            time.sleep(HANG_S)
            broker.signal(signal.SIGCONT)
        else:
            broker.kill()
            time.sleep(AWAY_S)
            broker.start()
        ledger.broken_at.append(time.monotonic())


def settle(world: World, ledger: Ledger, seed: int) -> None:
    """Receive until everything has come and is acknowledged. Raises Finding."""
    ending = threading.Event()
    consumers = [Consumer(world.endpoint, ledger, seed + at, ending) for at in range(CONSUMERS)]
    began = time.monotonic()
    for one in consumers:
        one.forgotten = 0.0
        one.start()
    try:
        while (ledger.lost or ledger.open) and time.monotonic() - began < SETTLE_S:
            time.sleep(0.1)
    finally:
        ending.set()
        for one in consumers:
            one.join(20.0)
    took_s = time.monotonic() - began
    if ledger.lost:
        raise Finding(f"{len(ledger.lost)} acknowledged sends never came: {ledger.lost[:3]}")
    if took_s > INVISIBLE_S + LATE_S:
        raise Finding(f"{len(ledger.open)} are open; the last came after {took_s:.1f} s")


def run(folder: Path, kills: int, kinds: Sequence[str], rng: random.Random) -> str:
    """Let faults happen under load. Raises Finding."""
    world, ledger, ending = World(folder), Ledger(), threading.Event()
    done: collections.Counter[str] = collections.Counter()
    workers: list[Worker] = [
        Sender(world.endpoint, ledger, rng.randrange(1 << 30), ending) for _ in range(SENDERS)
    ]
    workers += [
        Consumer(world.endpoint, ledger, rng.randrange(1 << 30), ending) for _ in range(CONSUMERS)
    ]
    try:
        world.start()
        for one in workers:
            one.start()
        for turn in range(kills):
            kind = kinds[turn % len(kinds)]
            before = len(ledger.acked)
            until("sends are answered", functools.partial(ledger.has_stored, before + 5))
            time.sleep(rng.uniform(0.0, 1.0))
            fault(world, kind, rng, ledger)
            done[kind] += 1
            stored = len(ledger.acked)
            say(f"{turn + 1} faults ({kind}), {stored} stored, {len(ledger.lost)} to come")
        ending.set()
        for one in workers:
            one.join(30.0)
        settle(world, ledger, rng.randrange(1 << 30))
        rss = world.proxy.rss() >> 20
    finally:
        ending.set()
        world.stop()
        say(f"calls: {dict(sorted(ledger.codes.items()))}")
        slowest = {what: round(took_s, 2) for what, took_s in ledger.slowest.items()}
        say(f"slowest, in s: {slowest}")
    shown = ", ".join(f"{kind} {count}" for kind, count in sorted(done.items()))
    if ledger.findings:
        raise Finding(f"{len(ledger.findings)}: " + "; ".join(ledger.findings[:8]))
    return (
        f"faults: {shown}; {len(ledger.acked)} stored messages all came, {ledger.again} deliveries"
        f" again; {rss} MiB"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run and say what was found; 0 when everything held."""
    parser = argparse.ArgumentParser(prog="python -m tools.faults.proxy_kill", description=__doc__)
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--faults", default="proxy", help="kinds, with commas, in turn")
    parser.add_argument("--seed", type=int, default=None)
    given = parser.parse_args(arguments)
    seed = random.SystemRandom().randrange(2**32) if given.seed is None else given.seed
    folder = Path(tempfile.mkdtemp(prefix="roquet-proxy-kill-"))
    say(f"seed {seed}")
    try:
        say(run(folder, given.kills, given.faults.split(","), random.Random(seed)))
    except Finding as finding:
        say(f"FAILED: {finding}\nkept: {folder}")
        return 1
    shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
