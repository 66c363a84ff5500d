"""Damage every kind of file of a stopped store in every way and look what the broker makes of it.

`make corruption`, or `python -m tools.corruption [--rounds n] [--seed s]`: twelve kinds of files,
eight kinds of damage, `rounds` draws of each. Good is: the start is refused and the error names the
file, or everything is served as it was stored, or what cannot be read is passed over and counted,
or told as expired.
A body that nobody sent, or a message that is missing and not counted, breaks the promise.

Java's formats have no checksum over properties and tables: a value changed there is told apart.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import os
import random
import shutil
import sys
import tempfile
import zlib
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from roquet.base.clock import SystemClock
from roquet.base.errors import RoquetError
from roquet.broker import app as broker_app
from roquet.protocol import properties as props
from roquet.store.records import read_records
from roquet.store.results import Draft, GetStatus, PutStatus, StoreFault
from roquet.testing.cluster import broker_config

if TYPE_CHECKING:
    from collections.abc import Callable

PAGE = 4096
TOPICS = ("Orders", "Bills")
QUEUES = 2
MESSAGES = 60
HALF = MESSAGES // 2
SETTINGS = {"messageDelayLevel": "1h 2h", "deleteWhen": "", "fileReservedTime": "100000"}

KINDS: dict[str, str] = {
    "first log file": "commitlog/00000000000000000000",
    "middle log file": "commitlog/00000000000001048576",
    "last log file": "commitlog/00000000000002097152",
    "consume queue": "consumequeue/Orders/0/00000000000000000000",
    "index": "index/*",
    "checkpoint": "checkpoint",
    "deletedTopics": "deletedTopics",
    "abort": "abort",
    "topics.json": "config/topics.json",
    "subscriptionGroup.json": "config/subscriptionGroup.json",
    "consumerOffset.json": "config/consumerOffset.json",
    "delayOffset.json": "config/delayOffset.json",
}
PASSED_OVER = {"first log file", "middle log file", "last log file", "consume queue"}
"""Kinds of which a damaged part may be passed over: what is missing has been counted."""

Place = tuple[str, int, int]
"""Topic, queue, offset."""


@dataclasses.dataclass(frozen=True, slots=True)
class Stored:
    """What must come back: body and properties by place, and the tables as text."""

    messages: dict[Place, tuple[bytes, str]]
    offsets: dict[str, int]


# --- the store that is damaged ---------------------------------------------------------------


async def make(folder: Path, old: Path) -> Stored:
    """Fill a store in three runs, keep a copy of the middle of its life in `old`."""
    messages: dict[Place, tuple[bytes, str]] = {}
    for begin in (0, HALF):
        broker = broker_app.build(broker_config(folder, **SETTINGS), SystemClock(), rng(1))
        async with broker.app:
            for topic in (*TOPICS, "Gone"):
                broker.metadata.topics.ensure(topic, QUEUES, 6)
            for number in range(begin, begin + HALF):
                for topic in TOPICS:
                    await put(broker, messages, topic, number)
                broker.metadata.offsets.commit("readers", TOPICS[0], 0, number // QUEUES)
            await put(broker, {}, "Gone", 0)
            await asyncio.to_thread(broker.store.native.delete_topic, "Gone")
            broker.metadata.groups.find("readers")
        if begin == 0:
            shutil.copytree(folder, old)
    # Nothing was delayed, so the broker had nothing to write down.
    (folder / "config" / "delayOffset.json").write_text('{\n\t"offsetTable":{1:0,2:0\n\t}\n}')
    return Stored(messages, {"readers": (MESSAGES - 1) // QUEUES})


async def put(
    broker: broker_app.Broker, messages: dict[Place, tuple[bytes, str]], topic: str, number: int
) -> None:
    """Store one message and remember it."""
    body = f"{topic}-{number}-".encode() + rng(number).randbytes(20_000)
    draft = Draft(
        topic=topic,
        queue_id=number % QUEUES,
        body=body,
        properties={"KEYS": f"k{number}", "UNIQ_KEY": f"{topic}{number}"},
        born_timestamp=number,
        born_host=broker.identity.store_host,
        store_host=broker.identity.store_host,
    )
    result = await broker.store.put(draft)
    assert result.status is PutStatus.PUT_OK, result
    text = props.write(draft.properties)
    messages[topic, draft.queue_id, result.queue_offset] = (body, text)


def rng(seed: int) -> random.Random:
    """Return a source of drawn numbers."""
    return random.Random(seed)


# --- damage ----------------------------------------------------------------------------------

Damage = "Callable[[Path, Path, random.Random], None]"


def used(path: Path) -> int:
    """Return how many bytes of a file lie in front of its empty end."""
    data = path.read_bytes().rstrip(b"\0")
    return max(1, len(data))


def flip(path: Path, _old: Path, draw: random.Random) -> None:
    """Change one bit."""
    at = draw.randrange(used(path))
    with path.open("r+b") as file:
        file.seek(at)
        byte = file.read(1) or b"\0"
        file.seek(at)
        file.write(bytes([byte[0] ^ (1 << draw.randrange(8))]))


def zero_page(path: Path, _old: Path, draw: random.Random) -> None:
    """Write zeros over a page."""
    write_page(path, draw.randrange(-(-used(path) // PAGE)), bytes(PAGE))


def cut(path: Path, _old: Path, draw: random.Random) -> None:
    """Cut bytes off the end."""
    size = path.stat().st_size
    os.truncate(path, max(0, size - draw.randrange(1, 8192)))


def lost_write(path: Path, old: Path, draw: random.Random) -> None:
    """Put an older version of a page in its place."""
    before = old.read_bytes() if old.exists() else b""
    page = draw.randrange(-(-used(path) // PAGE))
    write_page(path, page, before[page * PAGE : (page + 1) * PAGE].ljust(PAGE, b"\0"))


def swap(path: Path, _old: Path, draw: random.Random) -> None:
    """Exchange two pages."""
    data = path.read_bytes()
    pages = -(-used(path) // PAGE)
    one, two = draw.randrange(pages), draw.randrange(max(2, pages))
    first = data[one * PAGE : (one + 1) * PAGE].ljust(PAGE, b"\0")
    second = data[two * PAGE : (two + 1) * PAGE].ljust(PAGE, b"\0")
    write_page(path, one, second)
    write_page(path, two, first)


def garbage(path: Path, _old: Path, draw: random.Random) -> None:
    """Append what does not belong there."""
    with path.open("ab") as file:
        file.write(draw.randbytes(draw.randrange(1, 5000)))


def overwrite(path: Path, _old: Path, draw: random.Random) -> None:
    """Write 64 drawn bytes somewhere."""
    at = draw.randrange(used(path))
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(at)
        file.write(draw.randbytes(max(1, min(64, size - at))))


def delete(path: Path, _old: Path, _draw: random.Random) -> None:
    """Remove the file."""
    path.unlink()


def write_page(path: Path, page: int, data: bytes) -> None:
    """Replace a page, as far as the file goes."""
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(page * PAGE)
        file.write(data[: max(0, size - page * PAGE)])


DAMAGES: tuple[Callable[[Path, Path, random.Random], None], ...] = (
    flip,
    zero_page,
    cut,
    lost_write,
    swap,
    garbage,
    overwrite,
    delete,
)


def forge(path: Path, _old: Path, _draw: random.Random) -> None:
    """Plant a change that its checksum covers: it must be noticed by the comparison."""
    data = bytearray(path.read_bytes())
    size = int.from_bytes(data[:4], "big")
    at = data.index(b"Orders-0-")
    body = 20_000 + len(b"Orders-0-")
    data[at + 100] ^= 1
    crc = zlib.crc32(data[at : at + body]) & 0x7FFFFFFF
    data[8:12] = crc.to_bytes(4, "big")
    assert at + body < size
    path.write_bytes(data)


# --- looking ---------------------------------------------------------------------------------


@dataclasses.dataclass(slots=True)
class Look:
    """What a damaged store served."""

    wrong: list[str] = dataclasses.field(default_factory=list[str])
    missing: int = 0
    properties: int = 0
    older: int = 0
    counted: int = 0


async def look(folder: Path, stored: Stored) -> Look:
    """Start the broker on a folder and read everything. Raises RoquetError when it refuses."""
    seen = Look()
    broker = broker_app.build(broker_config(folder, **SETTINGS), SystemClock(), rng(1))
    async with broker.app:
        if any(row[0] == "Gone" and row[3] for row in broker.store.native.queues()):
            seen.properties += 1  # A damaged note brings the topic back; nothing else may.
        for topic in TOPICS:
            for queue in range(QUEUES):
                read_queue(broker, topic, queue, stored, seen)
        stats = broker.store.native.stats()
        seen.counted += stats["damaged_reads"] + stats["recovered_lost_bytes"]
        for group, offset in stored.offsets.items():
            found = broker.metadata.offsets.query(group, TOPICS[0], 0)
            # The copy of the table is older: what was consumed since comes again.
            seen.older += found is not None and found < offset
            seen.properties += found is None or found > offset
    return seen


def read_queue(
    broker: broker_app.Broker, topic: str, queue: int, stored: Stored, seen: Look
) -> None:
    """Read a queue from its begin and compare it with what was stored."""
    found: dict[int, tuple[bytes, str]] = {}
    offset, end = 0, MESSAGES
    while offset < end:
        got = broker.store.get(topic, queue, offset, 32)
        if got.status is GetStatus.FOUND:
            for record in read_records(got.records):
                text = record.properties.decode(errors="replace")
                found[record.queue_offset] = (record.body, text)
        offset = max(got.next_begin_offset, offset + 1)
    for place, (body, text) in stored.messages.items():
        if place[:2] != (topic, queue):
            continue
        there = found.pop(place[2], None)
        if there is None:
            seen.missing += 1
            # A consumer that asks for it is told that the queue begins later (21), as for
            # messages that have expired: the oldest file may go at any time.
            seen.counted += place[2] < broker.store.min_offset(topic, queue)
        elif there[0] != body:
            seen.wrong.append(f"{place}: another body")
        elif there[1] != text:
            seen.properties += 1
    seen.wrong += [f"{topic} {queue} {extra}: nobody sent it" for extra in found]


async def judge(kind: str, folder: Path, stored: Stored) -> tuple[str, str]:
    """Return (verdict, detail) of one damaged store."""
    try:
        seen = await look(folder, stored)
    except (RoquetError, StoreFault, OSError) as error:
        text = str(error)
        named = Path(KINDS[kind].rstrip("*")).name in text or "commitlog" in text or "log" in text
        return ("refused", text) if named else ("BROKEN", f"the error names no file: {text}")
    if seen.wrong:
        return "BROKEN", "; ".join(seen.wrong[:3])
    if seen.missing > seen.counted or (seen.missing and kind not in PASSED_OVER):
        return "BROKEN", f"{seen.missing} messages are missing, {seen.counted} damaged reads"
    if seen.missing:
        return "passed over", f"{seen.missing} messages, {seen.counted} counted"
    if seen.properties:
        return "changed value", ""
    return ("older copy", "") if seen.older else ("served", "")


def target(folder: Path, kind: str) -> Path:
    """Return the file of a kind; `abort` is made, as a kill leaves it."""
    pattern = KINDS[kind]
    if kind == "abort":
        (folder / "abort").write_bytes(b"4711")
    return min(folder.glob(pattern))


async def run(seed: int, rounds: int, *, plant: bool, kinds: list[str]) -> int:
    """Damage and judge; return how many promises were broken."""
    broken = 0
    with tempfile.TemporaryDirectory(prefix="roquet-corruption-") as temporary:
        base, old = Path(temporary) / "good", Path(temporary) / "old"
        stored = await make(base, old)
        damages = (forge,) if plant else DAMAGES
        for kind in kinds:
            tally: Counter[str] = Counter()
            for number, (damage, turn) in enumerate(
                (damage, turn) for damage in damages for turn in range(rounds)
            ):
                folder = Path(temporary) / "hurt"
                shutil.copytree(base, folder)
                path = target(folder, kind)
                damage(path, old / path.relative_to(folder), rng(seed * 1000 + number))
                verdict, detail = await judge(kind, folder, stored)
                tally[verdict] += 1
                if verdict == "BROKEN":
                    broken += 1
                    print(f"{kind}, {damage.__name__} {turn}: {detail}", flush=True)
                shutil.rmtree(folder)
            words = ", ".join(f"{count} {verdict}" for verdict, count in sorted(tally.items()))
            print(f"{kind}: {words}", flush=True)
    return broken


def main() -> int:
    """Run the command; the exit code says whether every promise was kept."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=1, help="draws of each damage")
    parser.add_argument("--plant", action="store_true", help="forge a message: must be noticed")
    parser.add_argument("--kind", choices=list(KINDS), action="append", help="only these")
    options = parser.parse_args()
    kinds = options.kind or (["first log file"] if options.plant else list(KINDS))
    broken = asyncio.run(run(options.seed, options.rounds, plant=options.plant, kinds=kinds))
    cases = len(kinds) * len(DAMAGES) * options.rounds
    print(f"seed {options.seed}: {cases} cases, {broken} promises broken")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
