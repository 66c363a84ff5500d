"""Millions of hostile frames on the ports of a broker and a name server, beside a good client.

`python -m tools.attack.flood --frames 1000000 [--seed n]`. The frames are those of
`tools.attack.frames`, which waits for answers and so sends a few hundred a second. Here each of 32
connections says a script of prepared ones: well-formed requests around hostile fields, a question
with a number of its own after every few, and at the end one frame that may break the connection.
Frames count once the answer to such a question shows that the server has read them. A finding is
what it is there, and a connection that is neither read nor closed for 30 s, a call of the good
client that fails, and sockets that are left.
"""

from __future__ import annotations

import argparse
import itertools
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
from tools.attack import pop_fields
from tools.attack.frames import GROWTH_MAX, MESSAGE, Victim, draw_body, good, hostile, request
from tools.attack.kills import free_ports, show
from tools.attack.raw import RawClient, encode
from tools.fuzz.flood import Flood, Piece, Script
from tools.fuzz.good_client import Report

if TYPE_CHECKING:
    from collections.abc import Sequence

UNKNOWN = 29_999
"""A code that no server knows: it is answered at once, and nothing comes of it."""
POOL, TOGETHER, PIECES_MAX = 200, 20, 40
ROUND = 50_000
WARM_SHARE = 0.2
AT_ONCE = 32
ODD_HEADER = 0.0005
SEND, OK, BUSY = 10, 0, 2
SPARE_SOCKETS, SETTLE_S = 8, 60.0
PAUSE_S = 0.02


class Scripts:
    """Draws scripts of frames that were drawn before; some of them anew for each."""

    def __init__(self, rng: random.Random) -> None:
        """Draw the first."""
        self._rng = rng
        self._numbers = itertools.count(100_000_000)
        self._pool = [self._drawn() for _ in range(POOL)]

    def script(self) -> Script:
        """Draw what one connection says."""
        rng = self._rng
        self._pool[rng.randrange(POOL)] = self._drawn()
        pieces = [self._marked() for _ in range(rng.randrange(1, PIECES_MAX))]
        pieces.append(Piece("hostile", hostile(rng), 1))
        return Script(pieces, reads_late=rng.random() < 0.1, ends_hard=rng.random() < 0.3)

    def _drawn(self) -> bytes:
        # One that breaks the connection hides all that are behind it.
        rng = self._rng
        return b"".join(request(rng, draw_body(rng), ODD_HEADER) for _ in range(TOGETHER))

    def _marked(self) -> Piece:
        number = next(self._numbers)
        question = {"code": UNKNOWN, "language": "OTHER", "version": 513, "opaque": number}
        data = self._rng.choice(self._pool) + encode({**question, "flag": 0})
        return Piece("requests", data, TOGETHER + 1, b'"opaque":%d' % number)


class GoodClient(threading.Thread):
    """Asks something right again and again, of a server that has to answer."""

    def __init__(self, address: str, code: int, ext: dict[str, str]) -> None:
        """Ask nothing before the start."""
        super().__init__(daemon=True)
        self._asked = address, code, ext
        self._times: list[float] = []
        self._faults: list[str] = []
        self.ending = threading.Event()

    @override
    def run(self) -> None:
        """Ask until the end."""
        address, code, ext = self._asked
        with RawClient(address) as client:
            while not self.ending.wait(PAUSE_S):
                began = time.monotonic()
                try:
                    answer = client.call(code, ext, b"good" if code == SEND else b"")
                except OSError as error:
                    self._faults.append(str(error))
                    return
                self._times.append(time.monotonic() - began)
                # A machine without room to work refuses what has waited for long.
                if code == SEND and answer.code not in {OK, BUSY}:
                    self._faults.append(f"{answer.code} {answer.remark}"[:200])

    def report(self) -> Report:
        """Return what has happened since the last report."""
        times, self._times = self._times, []
        faults, self._faults = self._faults, []
        return Report.of(times, faults)


def sockets(victim: Victim) -> int:
    """Return how many sockets a process has."""
    links = Path(f"/proc/{victim.process.pid}/fd").iterdir()
    return sum(str(each.readlink()).startswith("socket:") for each in links if each.is_symlink())


def flood(victim: Victim, asked: GoodClient, frames: int, rng: random.Random) -> list[str]:
    """Flood the main port of a process; return what was found."""
    before = sockets(victim)
    one = Flood(victim.ports["listen"], Scripts(rng).script, AT_ONCE)
    tally, warm, began = one.tally, 0, time.monotonic()
    worst = longest = 0.0
    asked.start()
    while tally.read < frames:
        one.run(min(ROUND, frames - tally.read), time.monotonic() + 60.0)
        seen = asked.report()
        worst, longest = max(worst, seen.p99), max(longest, seen.longest)
        found = [*victim.findings(), *seen.faults]
        if tally.stuck:
            found.append(f"{tally.stuck} connections were neither read nor closed")
        if found:
            return found
        if not warm and tally.read >= frames * WARM_SHARE:
            warm = victim.rss()
    took_s = time.monotonic() - began
    asked.ending.set()
    one.finish()
    end = time.monotonic() + SETTLE_S
    while (after := sockets(victim)) > before + SPARE_SOCKETS and time.monotonic() < end:
        time.sleep(0.2)
    rss = victim.rss()
    show(
        f"{victim.name}: {tally.read} frames read of {tally.sent} sent in {took_s:.0f} s by"
        f" {tally.connections} connections, {tally.closed_by_server} closed by the server; memory"
        f" {warm >> 20} -> {rss >> 20} MiB, sockets {before} -> {after}; good client's worst p99 of"
        f" a round {worst} ms, longest {longest} ms; load {os.getloadavg()[0]:.1f}"
    )
    found = victim.findings()
    if rss - warm > GROWTH_MAX:
        found.append(f"{victim.name} grew by {(rss - warm) >> 20} MiB")
    if after > before + SPARE_SOCKETS:
        found.append(f"{victim.name} has {after - before} sockets left")
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Run and say what was found; 0 when that is nothing."""
    parser = argparse.ArgumentParser(prog="python -m tools.attack.flood", description=__doc__)
    parser.add_argument("--frames", type=int, default=200_000, help="for each process")
    parser.add_argument("--seed", type=int, default=None)
    given = parser.parse_args(arguments)
    seed = random.SystemRandom().randrange(2**32) if given.seed is None else given.seed
    rng = random.Random(seed)
    folder = Path(tempfile.mkdtemp(prefix="roquet-flood-"))
    (namesrv, _), (broker, other) = free_ports(), free_ports()
    show(f"seed {seed}")
    conf = folder / "broker.conf"
    conf.write_text(
        f"brokerName={pop_fields.BROKER}\nlistenPort={broker}\nhaListenPort={other}\nbrokerIP1=127.0.0.1\n"
        f"namesrvAddr=127.0.0.1:{namesrv}\nstorePathRootDir={folder / 'store'}\n"
        f"mappedFileSizeCommitLog={1 << 24}\n"
    )
    started = ("namesrv", namesrv, ("namesrv", "--listen-port", str(namesrv)))
    victims = [Victim(started[0], folder, {"listen": started[1]}, *started[2])]
    victims.append(Victim("broker", folder, {"listen": broker}, "broker", "-c", str(conf)))
    findings = list[str]()
    try:
        for victim in victims:
            good(f"127.0.0.1:{victim.ports['listen']}", 206, {})
        good(f"127.0.0.1:{broker}", SEND, MESSAGE, b"a message")
        mine = {**MESSAGE, "topic": "GoodCalls"}
        for victim, code, ext in ((victims[0], 206, {}), (victims[1], SEND, mine)):
            asked = GoodClient(f"127.0.0.1:{victim.ports['listen']}", code, ext)
            findings += flood(victim, asked, given.frames, rng)
    finally:
        for victim in victims:
            victim.process.kill()
    for finding in findings:
        show(finding)
    show(f"{len(findings)} findings")
    if findings:
        show(f"kept: {folder}")
        return 1
    shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
