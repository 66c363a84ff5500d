"""Damage every kind of file of a stopped store in every way and look what the broker makes of it.

`make corruption`, or `python -m tools.faults.corruption [--rounds n] [--seed s]`: fifteen kinds of
files, ten kinds of damage, `rounds` draws of each. Good is: the start is refused and the error
names the file, or everything is served as it was stored, or what cannot be read is passed over and
counted, or told as expired. A body that nobody sent, a message that is missing and not counted, or
a queue offset that is given out again breaks the promise. Every second draw of a damage is of a
store that was killed.

Java's formats have no checksum over properties and tables: a value changed there is told apart.
"""

from __future__ import annotations

import argparse
import asyncio
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
from roquet.model.group import SubscriptionGroupConfig
from roquet.protocol import names
from roquet.protocol import properties as props
from roquet.store.results import Draft, PutStatus, StoreFault
from roquet.testing.cluster import broker_config
from tools.faults.corruption_look import (
    LATER,
    Look,
    Message,
    Place,
    Stored,
    Table,
    calling,
    look,
    tables_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable

PAGE = 4096
TOPICS = ("Orders", "Bills")
GROUP = "readers"
QUEUES = 2
MESSAGES = 60
HALF = MESSAGES // 2
SETTINGS = {
    "messageDelayLevel": "1h 2h",
    "deleteWhen": "",
    "fileReservedTime": "100000",
    # Three files a queue.
    "mappedFileSizeConsumeQueue": "200",
}

KINDS: dict[str, str] = {
    "first log file": "commitlog/00000000000000000000",
    "middle log file": "commitlog/00000000000001048576",
    "last log file": "commitlog/00000000000002097152",
    "first queue file": "consumequeue/Orders/0/00000000000000000000",
    "middle queue file": "consumequeue/Orders/0/00000000000000000200",
    "last queue file": "consumequeue/Orders/0/00000000000000000400",
    "queueEnds": "queueEnds",
    "index": "index/*",
    "checkpoint": "checkpoint",
    "deletedTopics": "deletedTopics",
    "abort": "abort",
    "topics.json": "config/topics.json",
    "subscriptionGroup.json": "config/subscriptionGroup.json",
    "consumerOffset.json": "config/consumerOffset.json",
    "delayOffset.json": "config/delayOffset.json",
}
LOGS = {"first log file", "middle log file", "last log file"}
QUEUE_FILES = {"first queue file", "middle queue file", "last queue file"}
PASSED_OVER = {*LOGS, *QUEUE_FILES}
"""Kinds of which a damaged part may be passed over: what is missing has been counted."""

OWNERS = {
    "topics.json": "topics",
    "subscriptionGroup.json": "groups",
    "consumerOffset.json": "offsets",
    "delayOffset.json": "delays",
    # A damaged note brings the topic back; nothing else may.
    "deletedTopics": "deleted topic",
}
"""Kinds whose damage may change one table, and the name of the table."""


# --- the store that is damaged ---------------------------------------------------------------


async def make(folder: Path, old: Path) -> Stored:
    """Fill a store in three runs, keep a copy of the middle of its life in `old`."""
    messages: dict[Place, Message] = {}
    tables: dict[str, Table] = {}
    for begin in (0, HALF):
        broker = broker_app.build(broker_config(folder, **SETTINGS), SystemClock(), rng(1))
        async with broker.app:
            await delayed(broker, begin)
            for topic in (*TOPICS, "Gone"):
                broker.metadata.topics.ensure(topic, QUEUES, 6)
            for number in range(begin, begin + HALF):
                for topic in TOPICS:
                    await put(broker, messages, topic, number)
                broker.metadata.offsets.commit(GROUP, TOPICS[0], 0, number // QUEUES)
            await put(broker, {}, "Gone", 0)
            await asyncio.to_thread(broker.store.native.delete_topic, "Gone")
            broker.metadata.groups.put(SubscriptionGroupConfig(name=GROUP, retry_max_times=3))
            async with calling(broker) as call:
                tables = await tables_of(broker, call, TOPICS, GROUP)
        if begin == 0:
            shutil.copytree(folder, old)
    # Nothing is due for an hour, so the broker has had nothing to write down: say that of the two
    # messages of level 1 the first was delivered.
    tables["delays"] = {1: 1}
    (folder / "config" / "delayOffset.json").write_text('{\n\t"offsetTable":{1:1\n\t}\n}')
    return Stored(messages, tables)


async def delayed(broker: broker_app.Broker, number: int) -> None:
    """Store a message that is due in an hour."""
    draft = a_draft(broker, names.SCHEDULE_TOPIC, 0, number, LATER)
    draft.properties.update({"DELAY": "1", "REAL_TOPIC": "Late", "REAL_QID": "0"})
    result = await broker.store.put(draft)
    assert result.status is PutStatus.PUT_OK, result


async def put(
    broker: broker_app.Broker, messages: dict[Place, Message], topic: str, number: int
) -> None:
    """Store one message and remember it."""
    body = f"{topic}-{number}-".encode() + rng(number).randbytes(20_000)
    draft = a_draft(broker, topic, number % QUEUES, number, body)
    result = await broker.store.put(draft)
    assert result.status is PutStatus.PUT_OK, result
    messages[topic, draft.queue_id, result.queue_offset] = Message(
        body, props.write(draft.properties), f"k{number}", result.size
    )


def a_draft(broker: broker_app.Broker, topic: str, queue: int, number: int, body: bytes) -> Draft:
    """Return a message with a key."""
    return Draft(
        topic=topic,
        queue_id=queue,
        body=body,
        properties={"KEYS": f"k{number}", "UNIQ_KEY": f"{topic}{number}"},
        born_timestamp=number,
        born_host=broker.identity.store_host,
        store_host=broker.identity.store_host,
    )


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


def foreign(path: Path, _old: Path, draw: random.Random) -> None:
    """Put what is elsewhere in the same file, or in one beside it, where it does not belong."""
    others = sorted(path.parent.parent.glob(f"*/{path.name}")) or [path]
    data = draw.choice(others).read_bytes()
    size = min(len(data), draw.choice((20, 100, 512)))
    begin = draw.randrange(max(1, len(data) - size)) // 20 * 20
    at = draw.randrange(used(path)) // 20 * 20
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data[begin : begin + min(size, max(0, path.stat().st_size - at))])


def zero_file(path: Path, _old: Path, _draw: random.Random) -> None:
    """Write zeros over the whole file."""
    path.write_bytes(bytes(path.stat().st_size))


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
    foreign,
    zero_file,
)


def forge(path: Path, _old: Path, _draw: random.Random) -> None:
    """Plant a change that its checksum covers: it must be noticed by the comparison."""
    data = bytearray(path.read_bytes())
    at = data.index(b"Orders-0-")
    # The body stands behind 84 bytes of header and its own length; the checksum is the third word.
    record = at - 88
    body = int.from_bytes(data[at - 4 : at], "big")
    assert body == 20_000 + len(b"Orders-0-")
    data[at + 100] ^= 1
    crc = zlib.crc32(data[at : at + body]) & 0x7FFFFFFF
    data[record + 8 : record + 12] = crc.to_bytes(4, "big")
    path.write_bytes(data)


# --- judging ---------------------------------------------------------------------------------


async def judge(kind: str, folder: Path, stored: Stored) -> tuple[str, str]:
    """Return (verdict, detail) of one damaged store."""
    broker = broker_app.build(broker_config(folder, **SETTINGS), SystemClock(), rng(1))
    try:
        seen = await look(broker, stored, TOPICS, GROUP)
    except (RoquetError, StoreFault, OSError) as error:
        text = str(error)
        named = Path(KINDS[kind].rstrip("*")).name in text or "commitlog" in text or "log" in text
        return ("refused", text) if named else ("BROKEN", f"the error names no file: {text}")
    if broken := wrong(kind, seen):
        return "BROKEN", broken
    if seen.missing:
        return "passed over", f"{len(seen.missing)} messages, {seen.damaged} counted"
    if seen.changed or seen.properties:
        return "changed value", ", ".join(sorted(seen.changed))
    if seen.keys:
        return "lost keys", f"{seen.keys} keys find nothing"
    return ("older copy", "") if seen.older else ("served", "")


def wrong(kind: str, seen: Look) -> str:
    """Say what damage of this kind must not lead to; empty when there is nothing."""
    strange = (seen.changed | seen.older) - {OWNERS.get(kind, "")}
    found = {
        "; ".join(seen.wrong[:3]): bool(seen.wrong),
        f"{len(seen.missing)} messages are missing": seen.missing and kind not in PASSED_OVER,
        seen.uncounted(): True,
        f"other tables have changed: {sorted(strange)}": strange,
        f"{seen.keys} keys of what is there find nothing": seen.keys and kind != "index",
        f"{seen.key_faults} keys cannot be looked up": seen.key_faults
        and kind not in {"index", *LOGS},
    }
    return "; ".join(text for text, is_so in found.items() if is_so and text)


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
                if turn % 2:
                    # As a kill leaves it.
                    (folder / "abort").write_bytes(b"4711")
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
