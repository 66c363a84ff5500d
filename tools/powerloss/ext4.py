"""Cut the power under a broker that works on a real file system, and see what it makes of the rest.

`python -m tools.powerloss.ext4 [--states n] [--flush sync|async|both] [--seed s]`; needs root and
loop mounts. A round: an ext4 image in memory, a broker of its own process on it, four producers
and a group. At a drawn moment the process is stopped, what was acknowledged is read to the last
answer, the files are copied as the page cache has them, and the file system is shut down without
its journal (`EXT4_IOC_SHUTDOWN`). What a mount finds afterwards is what was durable. Between the
two, states are drawn (`tools.powerloss.states`); the broker is started on each, everything is read,
and the history checker judges: with SYNC_FLUSH nothing acknowledged may be missing, with
ASYNC_FLUSH only the end of the log, not older than `--window` seconds. In one round of ten the
broker lives on after the cut, and must not acknowledge anything any more.

`--plant` judges a broker that acknowledges before it flushes as if it did not: must be noticed.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from roquet.base.errors import RoquetError
from roquet.testing.process import BrokerProcess
from tools.powerloss.disk_image import DiskImage, NoMountsError, enter_private_mounts
from tools.powerloss.load import SETTINGS, Ledger, Load, judge
from tools.powerloss.states import Pages, Tree, draw, draw_style, read_tree, write_tree

IMAGE_MIB = 96
STATES_A_ROUND = 25
STOPPED_S = 30.0
DRAIN_S = 0.1


@dataclasses.dataclass(slots=True)
class Account:
    """What a campaign has seen."""

    rounds: int = 0
    states: int = 0
    acknowledged: int = 0
    lost_at_most: int = 0
    oldest_lost_s: float = 0.0
    survived_cuts: int = 0
    pages: Pages = dataclasses.field(default_factory=Pages)
    with_mixed_pages: int = 0
    problems: list[str] = dataclasses.field(default_factory=list[str])
    endings: Counter[str] = dataclasses.field(default_factory=Counter[str])


@dataclasses.dataclass(frozen=True, slots=True)
class Cut:
    """One power cut: both ends of what it may leave, and what clients knew."""

    durable: Tree
    live: Tree
    ledger: Ledger


class Campaign:
    """Rounds in one flush mode until the states are enough."""

    def __init__(self, image: DiskImage, flush: str, options: argparse.Namespace) -> None:
        """Begin with an empty account."""
        self.account = Account()
        self._image = image
        self._flush = flush
        self._plant: bool = options.plant
        self._window_s: float = options.window
        self._load_s: float = options.load
        self._per_round: int = options.per_round
        self._seed: int = options.seed

    async def run(self, states: int) -> None:
        """Cut the power as often as it takes."""
        number = 0
        while self.account.states < states and len(self.account.problems) < 10:
            rng = random.Random(f"{self._seed} {self._flush} {number}")
            cut = await self._cut(rng, lives_on=number % 10 == 1)
            self.account.rounds += 1
            self.account.acknowledged += len(cut.ledger.acknowledged)
            for state in range(min(self._per_round, states - self.account.states)):
                await self._state(cut, state, rng, f"round {number}, state {state}")
            number += 1
            say(
                f"{self._flush}: {number} rounds, {self.account.states} states, "
                f"{self.account.acknowledged} acknowledged, {len(self.account.problems)} problems"
            )

    async def _cut(self, rng: random.Random, *, lives_on: bool) -> Cut:
        """Let a broker work on a new disk, and cut the power at a drawn moment."""
        self._image.make()
        process = self._broker()
        try:
            async with process.client() as caller:
                load = Load(caller, rng)
                load.start()
                await load.some_acknowledged()
                await asyncio.sleep(rng.uniform(0.1, self._load_s))
                await stop(process)
                # What the process had sent before it stopped is in the socket now.
                await asyncio.sleep(DRAIN_S)
                await load.cancel()
                ledger = load.ledger()
                live = read_tree(process.store)
                self._image.cut()
                if lives_on:
                    self.account.endings[await load.after_the_cut(process)] += 1
                    self.account.survived_cuts += 1
        finally:
            process.kill()
            self._image.unmount()
        self._image.boot()
        self._image.mount()
        try:
            durable = read_tree(self._image.disk / "store")
        finally:
            self._image.unmount()
        return Cut(durable, live, ledger)

    def _broker(self) -> BrokerProcess:
        folder = Path(tempfile.mkdtemp(dir=self._image.scratch))
        mode = "async" if self._plant else self._flush
        changes = {
            **SETTINGS,
            "flushDiskType": f"{mode.upper()}_FLUSH",
            "storePathRootDir": str(self._image.disk / "store"),
        }
        if self._plant:
            changes["flushIntervalCommitLog"] = "60000"
        process = BrokerProcess(folder, env=None, **changes)
        process.store = self._image.disk / "store"
        return process

    async def _state(self, cut: Cut, number: int, rng: random.Random, name: str) -> None:
        style = draw_style(number, rng)
        tree, pages = draw(cut.durable, cut.live, style, rng)
        folder = self._image.scratch / "state"
        folder.mkdir()
        write_tree(tree, folder)
        sync = self._flush == "sync"
        account = self.account
        verdict = await judge(folder, cut.ledger, sync=sync, window_s=self._window_s)
        problems = [f"{name} ({style}): {text}" for text in verdict.problems]
        account.problems += problems
        for problem in problems:
            say(f"  {problem}")
        account.lost_at_most = max(account.lost_at_most, verdict.lost)
        account.oldest_lost_s = max(account.oldest_lost_s, verdict.oldest_lost_s)
        account.states += 1
        account.pages.differ += pages.differ
        account.pages.live += pages.live
        account.pages.torn += pages.torn
        account.with_mixed_pages += pages.live + pages.torn > 0
        shutil.rmtree(folder)


async def stop(process: BrokerProcess) -> None:
    """Stop the process where it is, and wait until it stands."""
    assert process.process is not None
    process.process.send_signal(signal.SIGSTOP)
    end = time.monotonic() + STOPPED_S
    while not stands(process.process.pid):
        if time.monotonic() > end:
            raise RoquetError("the broker does not stop")
        await asyncio.sleep(0.001)


def stands(pid: int) -> bool:
    """Tell whether every thread of a process is stopped."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return all((it / "stat").read_text().rpartition(")")[2].split()[0] == "T" for it in tasks)


def say(text: str) -> None:
    """Print a line at once."""
    print(text, flush=True)


def report(flush: str, account: Account, seconds: float) -> None:
    """Print the account of one campaign."""
    say(
        f"{flush} flush: {account.rounds} cuts, {account.states} states "
        f"({account.with_mixed_pages} between the ends), {account.acknowledged} acknowledged; "
        f"pages that differed {account.pages.differ}, new {account.pages.live}, torn "
        f"{account.pages.torn}; lost in one state at most {account.lost_at_most}, the oldest "
        f"{account.oldest_lost_s:.2f} s before the cut; lived on after the cut: "
        f"{dict(account.endings)}; {seconds:.0f} s"
    )


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--states", type=int, default=1000, help="states in each flush mode")
    parser.add_argument("--per-round", type=int, default=STATES_A_ROUND, help="states of one cut")
    parser.add_argument("--flush", choices=("sync", "async", "both"), default="both")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--load", type=float, default=3.0, help="seconds of work at most")
    parser.add_argument("--window", type=float, default=2.0, help="seconds async may lose")
    parser.add_argument("--plant", action="store_true", help="acknowledge early: must be noticed")
    parser.add_argument(
        "--if-possible", action="store_true", help="do nothing where mounting is not allowed"
    )
    return parser.parse_args()


def main() -> int:
    """Run the command; 1 when a promise was broken, 2 when nothing can be mounted here."""
    options = arguments()
    modes = ("sync", "async") if options.flush == "both" else (options.flush,)
    kept = True
    try:
        enter_private_mounts("tools.powerloss.ext4", sys.argv[1:])
        with (
            tempfile.TemporaryDirectory(prefix="roquet-powerloss-") as folder,
            DiskImage(Path(folder), IMAGE_MIB) as image,
        ):
            for flush in modes:
                begun = time.monotonic()
                campaign = Campaign(image, flush, options)
                asyncio.run(campaign.run(options.states))
                report(flush, campaign.account, time.monotonic() - begun)
                kept &= not campaign.account.problems
    except NoMountsError as error:
        say(f"no power loss on ext4 here: root and loop mounts are needed ({error})")
        return 0 if options.if_possible else 2
    say(f"seed {options.seed}: " + ("every promise kept" if kept else "PROMISES BROKEN"))
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
