"""Millions of frames of HTTP/2 on the port of gRPC, beside a client that has to be served.

`python -m tools.fuzz.grpc_frames --frames 10000000 [--seed s] [--mode cluster|local]`

Connections say drawn scripts (`http2_scripts`): calls whose headers, framing, requests, handles and
signatures are odd or broken, floods of each kind of frame, and at their ends what no connection
survives (`http2_breaks`). Frames count once the server has shown by the answer to a PING behind
them that it has read them. A finding is: a call of the well-behaved client that is not served, a
process that ends, a traceback or panic in its output, a connection that is neither read nor
closed for 30 s, more than 64 MiB above what the process had when it was warm, and descriptors that
are left.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import functools
import os
import random
import shutil
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

from roquet.base.overriding import override
from roquet.proxy import messages as pb
from tools.attack.grpc_client import Failed, GrpcClient
from tools.faults.crash import say
from tools.faults.proxy.world import GROUP, TOPIC, World
from tools.fuzz.flood import Flood
from tools.fuzz.good_client import GoodClient
from tools.fuzz.grpc_calls import RSS_MAX, Draws
from tools.fuzz.http2_scripts import Http2Scripts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tools.faults.proxy.world import Server

GOOD_TOPIC, GOOD_GROUP = "GoodCalls", "good_callers"
ALONE_S = 5.0
WARM_SHARE = 0.1
"""Memory is compared with that after this part of the frames: tables have their first size then."""
ROUND = 200_000
SETTLE_S = 40.0
SPARE_SOCKETS = 8
"""Those to brokers, which come and go."""
SPARE_FILES = 64
"""Those of queues of retry and dead-letter topics, and further parts of the log."""
BODY_MAX = 4096
"""Longer requests are drawn once in so often:"""
LONG_SHARE = 0.02
IDENTITIES = ("flood", "", "  ", "c" * 1024, "c" * 1025, *(f"flood-{at}" for at in range(200)))


class Collector(threading.Thread):
    """Has handles of real messages for the draws."""

    def __init__(self, endpoint: str, draws: Draws) -> None:
        """Nothing is asked before the start."""
        super().__init__(daemon=True)
        self._endpoint = endpoint
        self._draws = draws
        self.ending = threading.Event()

    @override
    def run(self) -> None:
        """Send and receive once a second."""
        with GrpcClient(self._endpoint, "collector") as client:
            while not self.ending.wait(1.0):
                with contextlib.suppress(Failed):
                    client.send(TOPIC, [b"handle"] * 4)
                    _, found = client.receive(TOPIC, GROUP, wait_ms=1000)
                    handles = [each.system_properties.receipt_handle for each in found]
                    self._draws.handles = [*self._draws.handles, *handles][-64:]


def drawn(draws: Draws, name: str) -> bytes:
    """Return a drawn request of a method, mostly a short one."""
    is_long = draws.rng.random() < LONG_SHARE
    while True:
        request = pb.methods()[name][0]()
        draws.fill(request)
        data = draws.data(request)
        if is_long or len(data) <= BODY_MAX:
            return data


def good_call(rng: random.Random) -> tuple[str, bytes]:
    """Return a method and a request that is served."""
    name = rng.choice(("SendMessage", "QueryRoute", "Heartbeat", "QueryAssignment"))
    request = pb.methods()[name][0]()
    if name == "SendMessage":
        message = request.messages.add(body=b"flood")
        message.topic.name = TOPIC
        message.system_properties.message_id = f"01{rng.getrandbits(128):032X}"
        message.system_properties.message_type = 1
        message.system_properties.born_timestamp.FromMilliseconds(int(time.time() * 1000))
    elif name == "Heartbeat":
        request.group.name, request.client_type = GROUP, 3
    else:
        request.topic.name = TOPIC
        request.endpoints.scheme = 1
        request.endpoints.addresses.add(host="127.0.0.1", port=1)
        if name == "QueryAssignment":
            request.group.name = GROUP
    data: bytes = request.SerializeToString()
    return name, data


def descriptors(server: Server) -> list[str]:
    """Return what the descriptors of a process are."""
    assert server.process is not None, "it runs"
    found = list[str]()
    for entry in Path(f"/proc/{server.process.pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            found.append(str(entry.readlink()))
    return found


def sockets(server: Server) -> int:
    """Return how many sockets a process has."""
    return sum(each.startswith("socket:") for each in descriptors(server))


def faults_of(server: Server) -> str:
    """Return what the end or the output of a process shows."""
    assert server.process is not None, "it was started"
    if server.process.poll() is not None:
        return f"{server.name} has ended with {server.process.returncode}"
    text = (server.folder / f"{server.name}.out").read_text(errors="replace")
    for mark in ("Traceback", "panicked at", "a call failed"):
        if mark in text:
            at = text.index(mark)
            return f"{server.name}: {text[max(0, at - 300) : at + 3000]}"
    return ""


@dataclasses.dataclass(frozen=True, slots=True)
class Plan:
    """How much is sent."""

    frames: int
    within_s: float
    """It ends after so long, however many frames were read."""
    at_once: int
    """Connections at a time."""


def run(folder: Path, mode: str, plan: Plan, rng: random.Random) -> str:
    """Send frames. Raises AssertionError for a finding."""
    world = World(folder)
    target = world.with_pulls(mode)
    draws = Draws(rng)
    collector = Collector(world.endpoint, draws)
    try:
        world.start(with_proxy=mode == "cluster")
        world.make(GOOD_TOPIC, GOOD_GROUP)
        with contextlib.closing(GoodClient(world.endpoint, GOOD_TOPIC, GOOD_GROUP)) as good:
            collector.start()
            time.sleep(ALONE_S)
            good.report()  # a topic that was made just now is not served at once
            time.sleep(ALONE_S)
            say(f"alone: {good.report()}")
            flood = Flood(world.proxy.port, _scripts(rng, draws).script, plan.at_once)
            return _flood(flood, target, good, plan)
    finally:
        collector.ending.set()
        world.stop()


def _scripts(rng: random.Random, draws: Draws) -> Http2Scripts:
    good = functools.partial(good_call, rng)
    return Http2Scripts(rng, functools.partial(drawn, draws), good, IDENTITIES)


def _flood(flood: Flood, target: Server, good: GoodClient, plan: Plan) -> str:
    frames = plan.frames
    before = sockets(target)
    files = sum(each.startswith("/") for each in descriptors(target))
    began, warm, faults, slowest, longest = time.monotonic(), 0, list[str](), 0.0, 0.0
    tally = flood.tally
    while tally.read < frames and time.monotonic() - began < plan.within_s:
        flood.run(min(ROUND, frames - tally.read), time.monotonic() + 60.0)
        seen = good.report()
        faults += seen.faults
        slowest, longest = max(slowest, seen.p99), max(longest, seen.longest)
        fault = faults_of(target)
        assert not fault, fault
        assert not faults, faults[:8]
        assert not tally.stuck, f"{tally.stuck} connections were neither read nor closed"
        rss = target.rss()
        if not warm and tally.read >= frames * WARM_SHARE:
            warm = rss
        rate = tally.read / (time.monotonic() - began)
        load = os.getloadavg()[0]
        say(f"{tally.read} frames, {rate:.0f}/s, {rss >> 20} MiB, load {load:.1f}; {seen}")
    took_s = time.monotonic() - began
    flood.finish()
    say(f"read: {dict(sorted(tally.kinds.items()))}")
    say(f"closed by the server within: {dict(sorted(tally.ends.items()))}")
    end = time.monotonic() + SETTLE_S
    while sockets(target) > before + SPARE_SOCKETS and time.monotonic() < end:
        time.sleep(0.1)
    after, rss = sockets(target), target.rss()
    assert after <= before + SPARE_SOCKETS, f"{after - before} sockets are left"
    # Files of the store come with topics and queues, of which calls may make a few.
    opened = [each for each in descriptors(target) if each.startswith("/")]
    assert len(opened) <= files + SPARE_FILES, f"{len(opened) - files} files are left: {opened}"
    say(f"after: {good.report()}")
    assert rss - warm <= RSS_MAX, f"{(rss - warm) >> 20} MiB more"
    return (
        f"{tally.read} frames read of {tally.sent} sent in {took_s:.0f} s by {tally.connections}"
        f" connections, {tally.closed_by_server} of them closed by the server, {tally.refused}"
        f" refused; memory {warm >> 20} -> {rss >> 20} MiB, sockets {before} -> {after},"
        f" files {files} -> {len(opened)}; worst"
        f" p99 of a round {slowest} ms, longest {longest} ms: nothing found"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run and say what was found; 0 for nothing."""
    parser = argparse.ArgumentParser(prog="python -m tools.fuzz.grpc_frames", description=__doc__)
    parser.add_argument("--frames", type=int, default=1_000_000)
    parser.add_argument("--seconds", type=float, default=3600.0, help="no longer than so long")
    parser.add_argument("--connections", type=int, default=32, help="at a time")
    parser.add_argument("--seed", type=int, default=0, help="0 draws one")
    parser.add_argument("--mode", choices=("cluster", "local"), default="cluster")
    given = parser.parse_args(arguments)
    seed = given.seed or random.SystemRandom().randrange(1, 2**32)
    say(f"seed {seed}")
    folder = Path(tempfile.mkdtemp(prefix="roquet-grpc-frames-"))
    try:
        plan = Plan(given.frames, given.seconds, given.connections)
        say(run(folder, given.mode, plan, random.Random(seed)))
    except AssertionError as finding:
        say(f"FAILED: {finding}\nkept: {folder}")
        return 1
    shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
