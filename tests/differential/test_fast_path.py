"""The fast path answers as the processors do: replies, bytes on disk, counts and offsets.

Every script of frames, splits and changes is played to two brokers, one with an admission table
and one without. Store times are the only bytes that may differ.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import random
import shutil
import socket
import struct
from typing import TYPE_CHECKING, cast

import pytest

from differential_frames import BODY_MAX, GROUPS, TOPICS, Frames, Sent
from roquet.broker.app import Broker, build
from roquet.broker.config import BrokerConfig, IdentityRules, ServerRules, settled
from roquet.broker.fast_fail import FastFailRules
from roquet.broker.processors.send import SendRules
from roquet.model.group import SubscriptionGroupConfig
from roquet.model.subscription import SubscriptionData
from roquet.model.topic import FilterType, TopicConfig
from roquet.protocol.bodies.clients import ConsumerData, HeartbeatData
from roquet.protocol.names import SCHEDULE_TOPIC
from roquet.protocol.tags import subscribe
from roquet.remoting.codec import decode, encode
from roquet.roquet_native import decode_records
from roquet.store.settings import StoreSettings
from roquet.testing.clock import FakeClock
from roquet.testing.java import free_port

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from roquet.protocol.command import Command

ROUNDS = 60
SEEDS = (1, 2)
"""Together they make more than 20,000 frames."""
COUNTED = (
    "putMessageTimesTotal",
    "putMessageSizeTotal",
    "msgPutTotalTodayNow",
    "msgGetTotalTodayNow",
    "putTps",
    "getFoundTps",
    "getMissTps",
    "getTotalTps",
)

Change = "Callable[[Broker], None]"


@dataclasses.dataclass
class Outcome:
    """All that two runs are compared by."""

    answers: dict[int, object]
    log: list[tuple[object, ...]]
    queues: object
    offsets: object
    info: dict[str, str]
    counters: dict[str, int]


def config(folder: Path, port: int, *, fast: bool) -> BrokerConfig:
    return settled(
        BrokerConfig(
            identity=IdentityRules(name="broker-a", ip1="127.0.0.1"),
            server=ServerRules(port=port, fast_path=fast, bind_address="127.0.0.1"),
            # How late a loop runs on a busy machine is nobody's difference.
            fast_fail=FastFailRules(enabled=False),
            send=SendRules(message_size_max=BODY_MAX),
            store=StoreSettings(
                root=str(folder),
                commit_log_file_bytes=1 << 20,
                queue_file_bytes=20_000,
                index=False,
                message_bytes_max=BODY_MAX,
            ),
        ),
        from_file=False,
    )


def furnish(broker: Broker) -> None:
    """Make topics and groups of every kind."""
    topics = broker.metadata.topics
    for name in TOPICS[:-1]:
        topics.put(TopicConfig(name=name, read_queues=4, write_queues=4))
    for topic in TOPICS:
        broker.metadata.groups.set_forbidden("cg", topic, 0)
    topics.put(
        TopicConfig(
            name="Multi",
            read_queues=4,
            write_queues=3,
            filter_type=FilterType.MULTI_TAG,
            sys_flag=1,
        ),
        TopicConfig(name="Ordered", read_queues=4, write_queues=4, order=True),
        TopicConfig(name="ReadOnly", read_queues=2, write_queues=4, perm=4),
        TopicConfig(name="WriteOnly", read_queues=4, write_queues=2, perm=2),
        TopicConfig(name="Compacted", write_queues=4, attributes={"cleanup.policy": "COMPACTION"}),
    )
    groups = broker.metadata.groups
    for name in GROUPS:
        groups.put(SubscriptionGroupConfig(name=name, consume_enable=name != "cg_off"))


def changes(rng: random.Random) -> Callable[[Broker], None]:
    """Something an administrator does between two bursts."""
    topic, group = rng.choice(TOPICS), rng.choice(GROUPS)
    number = rng.randrange(1, 5)
    kind = rng.randrange(7)

    tidied = rng.random() < 0.7

    def change(broker: Broker) -> None:
        tables = broker.metadata
        if tidied:
            furnish(broker)
        if kind == 0:
            tables.topics.put(TopicConfig(name=topic, read_queues=number, write_queues=number))
        elif kind == 1:
            tables.topics.remove(topic)
        elif kind == 2:
            perm = (0, 2, 4, 6, 6)[number]
            tables.topics.put(TopicConfig(name=topic, read_queues=4, write_queues=4, perm=perm))
        elif kind == 3:
            tables.groups.put(SubscriptionGroupConfig(name=group, consume_enable=number > 1))
        elif kind == 4:
            tables.groups.set_forbidden(group, topic, number % 2)
        elif kind == 5:
            tables.offsets.reset("cg_reset", topic, number - 1, number)
        else:
            tables.topics.put(TopicConfig(name=topic, read_queues=4, write_queues=4, sys_flag=2))

    return change


@dataclasses.dataclass
class Script:
    """Bursts of frames, each followed by what an administrator does."""

    bursts: list[list[Sent]]
    changes: list[Callable[[Broker], None]]
    cuts: random.Random

    @property
    def frames(self) -> int:
        return sum(len(burst) for burst in self.bursts)


def heartbeat(frames: Frames, version: int) -> Sent:
    def wanting(group: str, expression: str) -> ConsumerData:
        wanted = [subscribe(topic, expression, version=version) for topic in TOPICS[:5]]
        sql = SubscriptionData(topic="WriteOnly", expression="a > 1", expression_type="SQL92")
        return ConsumerData(group=group, subscriptions=(*wanted, sql))

    data = HeartbeatData(
        client_id="c1",
        consumers=(wanting("cg", "*"), wanting("cg_tags", "TagA || TagÄ"), wanting("cg_off", "*")),
        producers=("pg",),
    )
    return frames.frame(34, {}, data.encode())


def script(seed: int) -> Script:
    rng = random.Random(seed)
    frames = Frames(rng)
    bursts: list[list[Sent]] = [[heartbeat(frames, 1)]]
    done: list[Callable[[Broker], None]] = [lambda _: None]
    for number in range(ROUNDS):
        frames.oddness = (0.0, 0.01, 0.05, 0.35)[number % 4]
        sends = [frames.send() for _ in range(rng.randrange(60, 160))]
        # What waits for a file to be saved may be overtaken on the slow path: alone, then.
        alone = [frames.send("%RETRY%cg"), frames.send("Lost")]
        reads = [frames.pull() for _ in range(rng.randrange(30, 90))]
        reads += [frames.question() for _ in range(10)]
        rng.shuffle(reads)
        pulls = [frames.plain_pull() for _ in range(30)] if number > 10 else []
        bursts += [sends, [alone[0]], [alone[1]], pulls, reads]
        done += [lambda _: None, lambda _: None, lambda _: None, lambda _: None, changes(rng)]
        if number % 20 == 19:
            bursts.append([heartbeat(frames, number)])
            done.append(lambda _: None)
    return Script(bursts, done, random.Random(seed))


async def play(folder: Path, port: int, told: Script, *, fast: bool) -> Outcome:
    broker = build(config(folder, port, fast=fast), FakeClock(), random.Random(7))
    answers: dict[int, object] = {}
    async with broker.app:
        furnish(broker)
        reader, writer = await connect(broker.listeners.port, port + 3)
        for burst, change in zip(told.bursts, told.changes, strict=True):
            await exchange(reader, writer, burst, told.cuts, answers)
            await dispatched(broker)
            change(broker)
        info = Frames(random.Random(0)).frame(28, {})
        last: dict[int, object] = {}
        await exchange(reader, writer, [dataclasses.replace(info, opaque=1)], told.cuts, last)
        writer.transport.abort()
        counters = broker.path.native.counters()
        # In the schedule topic a store time stands in the place of the tag code.
        queues = [
            (*where, [unit[:2] if where[0] == SCHEDULE_TOPIC else unit for unit in units])
            for where in sorted(broker.store.native.queues())
            for units in [broker.store.units(*where[:3], where[3] - where[2])]
        ]
        offsets = broker.metadata.offsets.export()
    table = json.loads(cast("tuple[bytes, bytes]", last[1])[1])["table"]
    return Outcome(
        answers,
        logged(folder),
        queues,
        (offsets.offsets, offsets.pull_offsets),
        {name: table.get(name) for name in COUNTED},
        counters,
    )


async def dispatched(broker: Broker) -> None:
    """Wait until the queues have caught up with the log."""
    loop = asyncio.get_running_loop()
    until = loop.time() + 10
    while broker.store.dispatch_behind() and loop.time() < until:  # noqa: ASYNC110
        await asyncio.sleep(0.001)
    assert not broker.store.dispatch_behind()


async def connect(port: int, own_port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect from a fixed port, which every record repeats."""
    own = socket.socket()
    own.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    own.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    own.bind(("127.0.0.1", own_port))
    own.setblocking(False)
    await asyncio.get_running_loop().sock_connect(own, ("127.0.0.1", port))
    return await asyncio.open_connection(sock=own)


async def exchange(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    burst: list[Sent],
    cuts: random.Random,
    answers: dict[int, object],
) -> None:
    """Write frames cut anywhere, and read until every answer is there."""
    data = b"".join(sent.frame for sent in burst)
    at = 0
    while at < len(data):
        size = cuts.choice((1, 7, 300, 5_000, 60_000))
        writer.write(data[at : at + size])
        at += size
        await asyncio.sleep(0)
    wanted = {sent.opaque for sent in burst if sent.answered}
    got = b""
    async with asyncio.timeout(20):
        while wanted:
            got += await reader.read(1 << 18)
            commands, used = decode(got)
            got = got[used:]
            for command in commands:
                wanted.discard(command.opaque)
                answers[command.opaque] = seen(command)
    assert got == b""


def seen(command: Command) -> tuple[object, ...]:
    """An answer byte for byte, but for the store times in its records."""
    header = encode(dataclasses.replace(command, body=b""))
    if command.code == 0 and command.remark == "FOUND":
        return header, [record[:9] + record[10:] for record in decode_records(command.body)]
    return header, command.body


def logged(folder: Path) -> list[tuple[object, ...]]:
    """Every byte of the log's records, but for the store times."""
    found: list[tuple[object, ...]] = []
    for file in sorted((folder / "commitlog").iterdir()):
        data = file.read_bytes()
        end = 0
        while data[end + 4 : end + 7] == b"\xda\xa3\x20":
            end += int.from_bytes(data[end : end + 4], "big")
        found += [(file.name, *record[:9], *record[10:]) for record in decode_records(data[:end])]
    return found


@pytest.mark.timeout(240)
@pytest.mark.parametrize("seed", SEEDS)
def test_answers_bytes_and_counts_are_those_of_the_processors(tmp_path: Path, seed: int) -> None:
    # Records repeat the ports, so both runs use the same; the broker has neighbours as well.
    port = free_port(random.Random())
    outcomes: list[Outcome] = []
    told = script(seed)
    for fast in (False, True):
        folder = tmp_path / str(fast)
        told.cuts.seed(seed)
        outcomes.append(asyncio.run(play(folder, port, told, fast=fast)))
        shutil.rmtree(folder)
    slow, quick = outcomes
    assert told.frames > 10_000
    assert slow.answers.keys() == quick.answers.keys()
    for opaque, answer in slow.answers.items():
        assert quick.answers[opaque] == answer, f"opaque {opaque} of seed {seed}"
    assert slow.log == quick.log
    assert slow.queues == quick.queues
    assert slow.offsets == quick.offsets
    assert slow.info == quick.info
    assert (slow.counters["sends"], slow.counters["pulls"]) == (0, 0)
    # How many go the fast way depends on how reads fall behind slow frames; enough must.
    assert quick.counters["sends"] > told.frames // 8
    assert quick.counters["pulls"] > told.frames // 100
