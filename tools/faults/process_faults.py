"""Faults of disk and clock in a real broker process: no false SEND_OK, no death by a signal.

`python -m tools.faults.process_faults [--only calls|space|clock] [--case name] [--seed n]`.

**calls**: every call of one kind on one kind of file fails from some moment on (`fault_shim.c`),
with EIO and with ENOSPC. **space**: the folder of each kind of files is a file system of its own
that runs full, and gets room again (root and mounts). **clock**: the wall clock jumps while the
broker runs, or is set while it is down. After each, the broker is killed or stopped and started
anew, everything is read, and the history checker judges.

`--plant` empties the store before it is started anew: must be noticed.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import dataclasses
import errno
import random
import shutil
import signal
import sys
import tempfile
import time
import zlib
from pathlib import Path
from typing import TYPE_CHECKING

from roquet.base.errors import OutcomeUnknown, RoquetError, Unreachable
from roquet.protocol import properties as props
from roquet.protocol.codes import RequestCode, ResponseCode
from roquet.protocol.command import Command
from roquet.store.records import read_records
from roquet.testing import history
from roquet.testing.history import Acked, Failed, Found, ReadBack, Sent, Unknown
from roquet.testing.process import BrokerProcess
from tools.faults.fault_shim import Shim
from tools.powerloss.disk_image import NoMountsError, enter_private_mounts, run

if TYPE_CHECKING:
    from collections.abc import Iterator

    from roquet.testing.history_rules import Event
    from roquet.testing.process import Caller

QUEUES = 4
TOPIC = "Faulty"
WAIT_S = 60.0
BIG = 120_000
DIED = {-signal.SIGBUS, -signal.SIGSEGV, -signal.SIGABRT, -signal.SIGILL, -signal.SIGFPE}
SETTINGS = {
    "flushDiskType": "SYNC_FLUSH",
    "flushConsumerOffsetInterval": "50",
    "flushDelayOffsetInterval": "100",
    "flushConsumeQueueThoroughInterval": "200",
    "maxHashSlotNum": "100",
    "maxIndexNum": "40",
    "mappedFileSizeConsumeQueue": "400",
}
NO_PLACE = (ResponseCode.SERVICE_NOT_AVAILABLE, ResponseCode.SYSTEM_BUSY)
"""Refusals that say for sure that nothing was stored."""
GET_READY_S = 0.3


@dataclasses.dataclass(frozen=True, slots=True)
class Case:
    """Which calls on which paths fail, and whether nothing may be acknowledged from then on."""

    call: str
    path: str
    stops: bool = False

    @property
    def name(self) -> str:
        """How the case is called on the command line and in the account."""
        return f"{self.call} {self.path.strip('/')}"


CALLS = (
    Case("fdatasync", "/commitlog/", stops=True),
    Case("pwrite", "/commitlog/", stops=True),
    Case("fallocate", "/commitlog/"),
    Case("create", "/commitlog/"),
    Case("fdatasync", "/consumequeue/"),
    Case("pwrite", "/consumequeue/"),
    Case("create", "/consumequeue/"),
    Case("ftruncate", "/consumequeue/"),
    Case("pwrite", "/index/"),
    Case("create", "/index/"),
    Case("fsync", "/store"),
    Case("write", "/config/"),
    Case("create", "/config/"),
    Case("rename", "/config/"),
)
SPACES = ("commitlog", "consumequeue", "index", "config")
JUMPS_S = (3600, -3600, 80 * 3600, 10 * 365 * 86400, 0)
SET_WHILE_DOWN_S = (80 * 3600, 10 * 365 * 86400, -80 * 3600)
CLEANING = {
    "deleteWhen": ";".join(f"{hour:02}" for hour in range(24)),
    "cleanResourceInterval": "50",
    "fileReservedTime": "72",
}
"""Old files are looked for without pause, at every hour."""


class Witness:
    """Sends, reads back, and keeps the history."""

    def __init__(self, rng: random.Random, wait_s: float = WAIT_S) -> None:
        """Begin with an empty history; a reading waits `wait_s` for what is not dispatched yet."""
        self.history: list[Event] = []
        self.problems: list[str] = []
        self.acknowledged = 0
        self.refused = 0
        self._rng = rng
        self._wait_s = wait_s
        self._names = 0
        self._topics = {TOPIC}

    async def send(self, it: Caller, size: int, topic: str = TOPIC) -> int | None:
        """Send one message; return the code of the answer, None when there was none."""
        self._names += 1
        name, queue = f"m{self._names}", self._names % QUEUES
        body = self._rng.randbytes(self._rng.randrange(size // 2, size))
        self.history.append(Sent(name, topic, zlib.crc32(body)))
        self._topics.add(topic)
        try:
            answer = await it.send(topic, body, queue, f"UNIQ_KEY\x01{name}\x02KEYS\x01{name}\x02")
        except (Unreachable, OutcomeUnknown):
            self.history.append(Unknown(name))
            return None
        if answer.code == ResponseCode.SUCCESS:
            self.acknowledged += 1
            offset = int((answer.ext or {})["queueOffset"])
            self.history.append(Acked(name, topic, queue, offset))
        else:
            self.refused += 1
            sure = answer.code in NO_PLACE
            self.history.append(Failed(name) if sure else Unknown(name))
        return answer.code

    async def commit(self, it: Caller) -> None:
        """Move an offset, so that a table is saved."""
        ext = {"consumerGroup": "g", "topic": TOPIC, "queueId": "0", "commitOffset": "0"}
        with_ = Command(RequestCode.UPDATE_CONSUMER_OFFSET, ext=ext)
        try:
            await it.call(with_)
        except (Unreachable, OutcomeUnknown):
            self.problems.append("the broker is gone")

    async def read(self, it: Caller) -> None:
        """Read every queue from its begin, once everything acknowledged is dispatched."""
        events: list[Event] = []
        end = time.monotonic() + self._wait_s
        while True:
            events = [ReadBack(complete=True)]
            for topic in sorted(self._topics):
                for queue in range(QUEUES):
                    events += await self._queue(it, topic, queue)
            verdict = history.check([*self.history, *events])
            if not verdict.violations or time.monotonic() > end:
                break
            # A queue behind the log, which is what dispatch makes up for.
            await asyncio.sleep(0.5)
        self.history += events
        self.problems += [f"{it.rule}: {it.text}" for it in verdict.violations[:3]]

    async def _queue(self, it: Caller, topic: str, queue: int) -> list[Event]:
        found: list[Event] = []
        offset = 0
        while True:
            answer = await it.pull(topic, offset, queueId=str(queue))
            if answer.code != ResponseCode.SUCCESS:
                return found
            for record in read_records(answer.body):
                name = props.read(record.properties).get("UNIQ_KEY", "without a name")
                crc = zlib.crc32(record.body)
                found.append(Found(topic, queue, record.queue_offset, name, crc))
                offset = record.queue_offset + 1


def end(process: BrokerProcess, how: signal.Signals, witness: Witness) -> None:
    """End the process; dying by a signal of its own is a problem."""
    if process.process is not None and process.process.poll() in DIED:
        witness.problems.append(f"the broker died by signal {process.process.returncode}")
    code = process.kill(how)
    if code in DIED:
        witness.problems.append(f"the broker died by signal {code}")


async def judge(process: BrokerProcess, witness: Witness, how: signal.Signals) -> None:
    """End the broker, start it without faults, read everything and go on."""
    end(process, how, witness)
    async with process.client() as it:
        await witness.read(it)
        if await witness.send(it, 200) != ResponseCode.SUCCESS:
            witness.problems.append("the broker started anew takes no message")
    end(process, signal.SIGTERM, witness)


@contextlib.contextmanager
def watched(process: BrokerProcess, witness: Witness) -> Iterator[None]:
    """Have the witness told when the broker fails a case, and leave no process behind."""
    try:
        yield
    except RoquetError as problem:
        witness.problems.append(f"{problem!r}: {process.output[-300:]}")
    finally:
        process.kill()


# --- calls that fail -------------------------------------------------------------------------


async def failing_call(
    folder: Path, case: Case, error: int, rng: random.Random, how: signal.Signals, *, plant: bool
) -> Witness:
    """Let one kind of call fail while messages come in, and judge."""
    witness = Witness(rng, 1.0 if plant else WAIT_S)
    shim = Shim(folder)
    process = BrokerProcess(folder, env=shim.env, **SETTINGS)
    with watched(process, witness):
        async with process.client() as it:
            for _ in range(8):
                await witness.send(it, 200)
            shim.fail(case.call, case.path, error, skip=rng.choice((0, 0, 1)))
            false = 0
            for number in range(40):
                late = shim.hits > 0
                topic = f"New{number}" if number % 10 == 9 else TOPIC
                code = await witness.send(it, BIG, topic)
                false += late and code == ResponseCode.SUCCESS
                if code is None:
                    break
                await witness.commit(it)
            await hit(shim)
        if not shim.hits:
            witness.problems.append("no call failed: the case shows nothing")
        if case.stops and false:
            witness.problems.append(f"{false} times SEND_OK after the failure")
        end(process, how, witness)
        shim.heal()
        if plant:
            shutil.rmtree(process.store)
        await judge(process, witness, how)
    return witness


async def hit(shim: Shim) -> None:
    """Wait for a call that fails, five seconds at most: without one the case shows nothing."""
    for _ in range(250):
        if shim.hits > 0:
            return
        await asyncio.sleep(0.02)


# --- a disk that is full ---------------------------------------------------------------------


async def full_space(folder: Path, kind: str, rng: random.Random) -> Witness:
    """Let the folder of one kind of files run full, give it room again, and judge."""
    witness = Witness(rng)
    process = BrokerProcess(folder, env=None, **SETTINGS)
    small = process.store / kind
    with watched(process, witness):
        async with process.client() as it:
            for _ in range(8):
                await witness.send(it, 200)
            fill(small / "ballast")
            refused_before = witness.refused
            for number in range(60):
                topic = f"New{number}" if number % 10 == 9 else TOPIC
                if await witness.send(it, BIG, topic) is None:
                    witness.problems.append("the broker is gone")
                    break
                await witness.commit(it)
            if kind == "commitlog" and witness.refused == refused_before:
                witness.problems.append("60 large messages, and nothing was refused")
            if (await it.pull(TOPIC)).code != ResponseCode.SUCCESS:
                witness.problems.append("a full disk keeps messages from being read")
            (small / "ballast").unlink()
            await resumed(it, witness)
        await judge(process, witness, rng.choice((signal.SIGKILL, signal.SIGTERM)))
    return witness


@contextlib.contextmanager
def small_space(folder: Path) -> Iterator[None]:
    """Mount a file system of a few MiB there. Raises NoMountsError."""
    folder.mkdir(parents=True)
    run(["mount", "-t", "tmpfs", "-o", "size=6m", "tmpfs", str(folder)])
    try:
        yield
    finally:
        run(["umount", str(folder)])


def fill(path: Path) -> None:
    """Write until the file system is full."""
    with path.open("wb", buffering=0) as ballast:
        try:
            while True:
                ballast.write(bytes(4096))
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise


async def resumed(it: Caller, witness: Witness) -> None:
    """Wait until messages, also of new topics, are taken again."""
    stop = time.monotonic() + WAIT_S
    for topic in (TOPIC, "Afterwards"):
        while await witness.send(it, 200, topic) != ResponseCode.SUCCESS:
            if time.monotonic() > stop:
                witness.problems.append(f"with room again {topic} takes no message")
                return
            await asyncio.sleep(0.1)


# --- a clock that jumps ----------------------------------------------------------------------


async def jumping_clock(folder: Path, rng: random.Random) -> Witness:
    """Let the clock jump to and fro while old files could be cleaned: nothing may go."""
    witness = Witness(rng)
    shim = Shim(folder)
    process = BrokerProcess(folder, env=shim.env, **{**SETTINGS, **CLEANING})
    with watched(process, witness):
        async with process.client() as it:
            for jump in JUMPS_S:
                for _ in range(20):
                    if await witness.send(it, BIG) != ResponseCode.SUCCESS:
                        witness.problems.append(f"a message was refused, {jump} s off")
                shim.clock(jump)
                # Several rounds of cleaning.
                await asyncio.sleep(GET_READY_S)
                await witness.read(it)
        shim.clock(-80 * 3600)
        await judge(process, witness, signal.SIGKILL)
    return witness


async def clock_set_while_down(folder: Path, jump_s: int, rng: random.Random) -> Witness:
    """Start the broker under a clock that was set while it was down: nothing may go."""
    witness = Witness(rng)
    shim = Shim(folder)
    process = BrokerProcess(folder, env=shim.env, **{**SETTINGS, **CLEANING})
    with watched(process, witness):
        async with process.client() as it:
            for _ in range(30):
                if await witness.send(it, BIG) != ResponseCode.SUCCESS:
                    witness.problems.append("a message was refused")
        end(process, rng.choice((signal.SIGKILL, signal.SIGTERM)), witness)
        shim.clock(jump_s)
        async with process.client() as it:
            # Several rounds of cleaning.
            await asyncio.sleep(GET_READY_S)
            await witness.read(it)
            if await witness.send(it, BIG) != ResponseCode.SUCCESS:
                witness.problems.append("a message was refused under the other clock")
            await asyncio.sleep(GET_READY_S)
        shim.clock(0)
        await judge(process, witness, signal.SIGKILL)
    return witness


# --- the command -----------------------------------------------------------------------------


def say(text: str) -> None:
    """Print a line at once."""
    print(text, flush=True)


def account(name: str, witness: Witness) -> bool:
    """Print what came of a case; True when it was good."""
    good = "kept" if not witness.problems else "BROKEN"
    say(f"{name}: {witness.acknowledged} acknowledged, {witness.refused} refused, {good}")
    for problem in witness.problems[:5]:
        say(f"  {problem}")
    return not witness.problems


def run_calls(options: argparse.Namespace) -> bool:
    """Run every failing call."""
    good = True
    errors = {"EIO": errno.EIO, "ENOSPC": errno.ENOSPC}
    if options.short:
        del errors["ENOSPC"]
    for case in (case for case in CALLS if options.case in (None, case.name)):
        for label, error in errors.items():
            rng = random.Random(f"{options.seed} {case.name} {label}")
            how = rng.choice((signal.SIGKILL, signal.SIGTERM))
            with tempfile.TemporaryDirectory(prefix="roquet-faults-") as folder:
                witness = asyncio.run(
                    failing_call(Path(folder), case, error, rng, how, plant=options.plant)
                )
            good &= account(f"{case.name}, {label}", witness)
    return good


def run_spaces(options: argparse.Namespace) -> bool:
    """Run every kind of files that has no room."""
    good = True
    for kind in SPACES:
        rng = random.Random(f"{options.seed} {kind}")
        with (
            tempfile.TemporaryDirectory(prefix="roquet-faults-") as folder,
            small_space(Path(folder) / "store" / kind),
        ):
            good &= account(f"no room for {kind}", asyncio.run(full_space(Path(folder), kind, rng)))
    return good


def run_clock(options: argparse.Namespace) -> bool:
    """Run the jumping clock, and those that are set while the broker is down."""
    rng = random.Random(options.seed)
    with tempfile.TemporaryDirectory(prefix="roquet-faults-") as folder:
        good = account("a clock that jumps", asyncio.run(jumping_clock(Path(folder), rng)))
    for jump_s in SET_WHILE_DOWN_S:
        name = f"a clock that was set by {jump_s / 3600:+,.0f} h while the broker was down"
        with tempfile.TemporaryDirectory(prefix="roquet-faults-") as folder:
            witness = asyncio.run(clock_set_while_down(Path(folder), jump_s, rng))
            good &= account(name, witness)
    return good


def main() -> int:
    """Run the command; 1 when a promise was broken."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=("calls", "space", "clock"))
    parser.add_argument("--case", help="one case of the calls, like `fdatasync commitlog`")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--short", action="store_true", help="calls fail with EIO only")
    parser.add_argument("--plant", action="store_true", help="empty the store: must be noticed")
    options = parser.parse_args()
    mounts = True
    try:
        enter_private_mounts("tools.faults.process_faults", sys.argv[1:])
    except NoMountsError as error:
        say(f"nothing runs full here: root and mounts are needed ({error})")
        mounts = False
    good = mounts or options.only != "space"
    if options.only in (None, "calls"):
        good &= run_calls(options)
    if options.only in (None, "space") and mounts:
        good &= run_spaces(options)
    if options.only in (None, "clock"):
        good &= run_clock(options)
    say(f"seed {options.seed}: " + ("every promise kept" if good else "PROMISES BROKEN"))
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
