"""The fast path answers as the processors do: replies, bytes on disk, counts and offsets.

Every script of frames, splits and changes is played to two brokers, one with an admission table
and one without. Store times are the only bytes that may differ.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import random
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest

from differential_accounts import ACCOUNTS, signed
from differential_frames import (
    BODY_MAX,
    BY_SQL,
    GROUPS,
    HOLD_MS,
    TOPICS,
    TYPED,
    Frames,
    Sent,
    Waiting,
    unsigned,
)
from differential_world import (
    LINES,
    Quiet,
    advance,
    connect,
    free_ports,
    logged,
    seen,
    stand_still,
)
from roquet.acl.files import AclConfig
from roquet.broker.app import Broker, build
from roquet.broker.config import BrokerConfig, IdentityConfig, ListenConfig, settled
from roquet.broker.messages.broker_properties import SendConfig
from roquet.broker.network.fast_fail import FastFailConfig
from roquet.broker.pull_rules import PullConfig
from roquet.broker.timers.rules import TimerConfig
from roquet.broker.transactions.verdict import TransactionConfig
from roquet.model.group import SubscriptionGroupConfig
from roquet.model.topic import FilterType, TopicConfig
from roquet.protocol.bodies.clients import ConsumerData, HeartbeatData
from roquet.protocol.command import Command
from roquet.protocol.names import SCHEDULE_TOPIC
from roquet.protocol.tags import subscribe
from roquet.remoting.codec import decode, encode
from roquet.store.settings import StoreConfig
from roquet.testing.clock import FakeClock

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from differential_frames import Sign

ROUNDS = 105
"""They make more than 20,000 frames."""
SIGNED_ROUNDS = 24
"""The same for frames that are signed, more than 4,000."""
RUNS = [(1, "async"), (2, "sync")]
RUNS += [
    (seed, flush)
    for seed in range(3, 3 + int(os.environ.get("ROQUET_DIFFERENTIAL_MORE", "0")))
    for flush in ("async", "sync")
]
"""Seeds and how the log is flushed."""
IO_THREADS = int(os.environ.get("ROQUET_DIFFERENTIAL_THREADS", "0"))
"""Threads of the core that serve the connections of the broker with a fast path."""
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


@dataclasses.dataclass
class Outcome:
    """All that two runs are compared by."""

    answers: dict[int, object]
    began: dict[int, int]
    """Where the pulls that wait began, by their numbers: the ends of their queues at that time."""
    log: list[tuple[object, ...]]
    queues: object
    offsets: object
    info: dict[str, str]
    halves: dict[str, int]
    counters: dict[str, int]


def config(folder: Path, port: int, flush: str, accounts: AclConfig, *, fast: bool) -> BrokerConfig:
    return settled(
        BrokerConfig(
            identity=IdentityConfig(name="broker-a", ip1="127.0.0.1"),
            server=ListenConfig(
                port=port,
                fast_path=fast,
                bind_address="127.0.0.1",
                io_threads=IO_THREADS if fast else 0,
            ),
            # How late a loop runs on a busy machine is nobody's difference.
            fast_fail=FastFailConfig(enabled=False),
            send=SendConfig(message_size_max=BODY_MAX),
            store=StoreConfig(
                root=str(folder),
                commit_log_file_bytes=1 << 20,
                queue_file_bytes=20_000,
                index=False,
                flush="SYNC_FLUSH" if flush == "sync" else "ASYNC_FLUSH",
                sync_flush_timeout_ms=120_000,
                message_bytes_max=BODY_MAX,
                # Not the defaults, and small enough that pulls meet each of the limits.
                filter_bytes=400,
                memory_count=40,
                memory_bytes=9_000,
                disk_count=40,
                disk_bytes=9_000,
            ),
            pull=PullConfig(property_filter=True),
            # Nobody is asked what became of a half message, which would be stored once more.
            transactions=TransactionConfig(interval_ms=10**9),
            # When a timer message is stored once more depends on the machine's clock.
            timers=TimerConfig(stop_dequeue=True),
            acl=accounts,
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
        TopicConfig(name="Typed", read_queues=4, write_queues=4, attributes=TYPED),
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
class Step:
    """Frames for one connection, and what an administrator does after them."""

    frames: Sequence[Sent | Waiting]
    change: Callable[[Broker], None] | None = None
    ends_holds: bool = False
    """Whether pulls still held are given up now."""


@dataclasses.dataclass
class Script:
    """What is sent, the same for both brokers."""

    steps: list[Step]
    cuts: random.Random
    sign: Sign

    @property
    def frames(self) -> int:
        return sum(len(step.frames) for step in self.steps)


def heartbeat(frames: Frames, version: int) -> Sent:
    def wanting(group: str, expression: str) -> ConsumerData:
        by_sql = {"WriteOnly": "a > 1"}
        if group == "cg_tags":
            by_sql["Other"] = BY_SQL[0]
        wanted = [subscribe(it, expression, version=version) for it in TOPICS[:5]]
        sql = [
            subscribe(topic, text, version=version, expression_type="SQL92")
            for topic, text in by_sql.items()
        ]
        tags = [it for it in wanted if it.topic not in by_sql]
        return ConsumerData(group=group, subscriptions=(*tags, *sql))

    data = HeartbeatData(
        client_id="c1",
        consumers=(wanting("cg", "*"), wanting("cg_tags", "TagA || TagÄ"), wanting("cg_off", "*")),
        producers=("pg",),
    )
    return frames.frame(34, {}, data.encode(), surely=True)


def script(seed: int, rounds: int = ROUNDS, sign: Sign = unsigned) -> Script:
    rng = random.Random(seed)
    frames = Frames(rng, sign)
    steps = [Step([heartbeat(frames, 1)])]
    for number in range(rounds):
        frames.oddness = (0.0, 0.01, 0.05, 0.35)[number % 4]
        sends = [frames.send() for _ in range(rng.randrange(60, 160))]
        sends += [frames.batch() for _ in range(rng.randrange(12))]
        # An answer tells that whatever came before it on its connection is in the log.
        ends = [frames.plain_send("Plain", 0), frames.plain_send("Other", 1)]
        steps.append(Step([*sends, *ends]))
        # What waits for a file to be saved may be overtaken on the slow path: alone, then.
        alone = [frames.answered_send("%RETRY%cg"), frames.answered_send("Lost")]
        steps += [Step([each, frames.unknown()]) for each in alone]
        if number > 10:
            steps.append(Step([frames.plain_pull() for _ in range(30)]))
        reads = [frames.pull() for _ in range(rng.randrange(30, 90))]
        reads += [frames.question() for _ in range(10)]
        rng.shuffle(reads)
        steps.append(Step(reads, changes(rng)))
        if number % 3 == 2:
            steps += held(frames, rng)
        if number % 20 == 19:
            steps.append(Step([heartbeat(frames, number)]))
    return Script(steps, random.Random(seed), sign)


def held(frames: Frames, rng: random.Random) -> list[Step]:
    """Pulls that wait; perhaps a change; at most one message for each queue; the end of waiting."""
    waiting = [frames.waiting_pull() for _ in range(rng.randrange(5, 40))]
    queues = [(topic, queue_id) for topic in TOPICS[:3] for queue_id in range(4)]
    chosen = rng.sample(queues, rng.randrange(1, len(queues)))
    change = changes(rng) if rng.random() < 0.5 else None
    return [
        Step([heartbeat(frames, 1)], furnish),
        Step([*waiting, frames.unknown()], change),
        Step([frames.plain_send(*where) for where in chosen], ends_holds=True),
    ]


class Line:
    """One connection; what it reads is collected as it comes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writer = writer
        self.answers: dict[int, object] = {}
        self._came = asyncio.Event()
        self._task = asyncio.ensure_future(self._read(reader))

    async def _read(self, reader: asyncio.StreamReader) -> None:
        got = b""
        try:
            while data := await reader.read(1 << 18):
                got += data
                commands, used = decode(got)
                got = got[used:]
                for command in commands:
                    if command.is_response:
                        assert command.opaque not in self.answers
                        self.answers[command.opaque] = seen(command)
                self._came.set()
        finally:
            self._came.set()

    async def answered(self, opaques: set[int]) -> None:
        """Wait until all of these have come."""
        async with asyncio.timeout(120):
            while not opaques <= self.answers.keys():
                if self._task.done():
                    self._task.result()
                self._came.clear()
                await self._came.wait()

    async def write(self, data: bytes, cuts: random.Random) -> None:
        """Write bytes cut anywhere."""
        at = 0
        while at < len(data):
            size = cuts.choice((1, 7, 300, 5_000, 60_000))
            self.writer.write(data[at : at + size])
            at += size
            await asyncio.sleep(0)

    async def close(self) -> None:
        self.writer.transport.abort()
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)


class Play:
    """A script told to one broker."""

    def __init__(self, broker: Broker, clock: FakeClock, lines: list[Line], sign: Sign) -> None:
        self._sign = sign
        self._broker = broker
        self._clock = clock
        self.lines = lines
        self._held: list[tuple[Line, int]] = []
        self.began: dict[int, int] = {}
        self._quiet = Quiet(broker)

    async def step(self, step: Step, cuts: random.Random) -> None:
        line, other = cuts.sample(self.lines, 2)
        *sent, last = [self._resolved(line, frame) for frame in step.frames]
        # The last frame is whole only when all others are answered: it comes on another connection.
        middle = cuts.randrange(len(last.frame))
        await other.write(last.frame[:middle], cuts)
        await line.write(b"".join(each.frame for each in sent), cuts)
        await line.answered({each.opaque for each in sent if each.answered})
        # What nobody answers, a pull that waits or a send one way, has been read before this.
        asked = self._sign(Command(9999, opaque=-1 - last.opaque), True)
        await line.write(encode(asked), cuts)
        await line.answered({-1 - last.opaque})
        await other.write(last.frame[middle:], cuts)
        await other.answered({last.opaque})
        await self._quiet.reached()
        if step.change is not None:
            step.change(self._broker)
            # As the processors do that change topics: messages go only to durable ones.
            await self._broker.metadata.topics.persist()
        if step.ends_holds:
            self._broker.path.settle()
            await advance(self._broker, self._clock, HOLD_MS / 1000 * 2)
            for line, opaque in self._held:
                await line.answered({opaque})
            self._held.clear()

    def _resolved(self, line: Line, frame: Sent | Waiting) -> Sent:
        if isinstance(frame, Sent):
            return frame
        self._held.append((line, frame.command.opaque))
        begin = self._broker.store.max_offset(frame.topic, frame.queue_id)
        self.began[frame.command.opaque] = begin
        return frame.at(begin)


async def play(told: Script, settings: BrokerConfig) -> Outcome:
    port, folder = settings.server.port, Path(settings.store.root)
    clock = FakeClock()
    broker = build(settings, clock, random.Random(7))
    async with broker.app:
        furnish(broker)
        await broker.metadata.topics.persist()
        ports = range(port + 3, port + 3 + LINES)
        lines = [Line(*await connect(broker.listeners.port, own)) for own in ports]
        stand_still(broker, clock)
        playing = Play(broker, clock, lines, told.sign)
        for step in told.steps:
            await playing.step(step, told.cuts)
        await lines[0].write(encode(told.sign(Command(28, opaque=0), True)), told.cuts)
        await lines[0].answered({0})
        for line in lines:
            await line.close()
        counters = broker.path.native.counters()
        # In the schedule topic a store time stands in the place of the tag code.
        queues = [
            (*where, [unit[:2] if where[0] == SCHEDULE_TOPIC else unit for unit in units])
            for where in sorted(broker.store.native.queues())
            for units in [broker.store.units(*where[:3], where[3] - where[2])]
        ]
        offsets = broker.metadata.offsets.export()
    halves = json.loads((folder / "config/transactionMetrics").read_bytes())["transactionCount"]
    answers = {opaque: it for line in lines for opaque, it in line.answers.items()}
    table = json.loads(cast("tuple[bytes, bytes]", answers.pop(0))[1])["table"]
    return Outcome(
        answers,
        playing.began,
        logged(folder),
        queues,
        (offsets.offsets, offsets.pull_offsets),
        {name: table.get(name) for name in COUNTED},
        {topic: count["count"] for topic, count in halves.items()},
        counters,
    )


def compared(
    folder: Path, told: Script, seed: int, flush: str, accounts: AclConfig | None = None
) -> dict[str, int]:
    """Play a script to both brokers: all has to be equal. Return the counts of the fast one."""
    # Records repeat the ports, so both runs use the same; the broker has neighbours as well.
    port = free_ports()
    outcomes: list[Outcome] = []
    for fast in (False, True):
        store = folder / str(fast)
        told.cuts.seed(seed)
        settings = config(store, port, flush, accounts or AclConfig(), fast=fast)
        outcomes.append(asyncio.run(play(told, settings)))
        shutil.rmtree(store)
    slow, quick = outcomes
    assert slow.answers.keys() == quick.answers.keys()
    # Otherwise the two were asked differently, and an answer that differs says nothing.
    assert slow.began == quick.began
    for opaque, answer in slow.answers.items():
        assert quick.answers[opaque] == answer, f"opaque {opaque} of seed {seed}"
    assert slow.log == quick.log
    assert slow.queues == quick.queues
    assert slow.offsets == quick.offsets
    # Threads give held pulls up by real time, and wake a loop that rests a moment after they have
    # answered: seconds of the clock, which jumps meanwhile, have other shares of them.
    rates = {"getFoundTps", "getMissTps", "getTotalTps"} if IO_THREADS else set()
    assert {k: v for k, v in slow.info.items() if k not in rates} == {
        k: v for k, v in quick.info.items() if k not in rates
    }
    assert slow.halves == quick.halves
    # With an empty table nothing of the fast path runs.
    assert not any(count for name, count in slow.counters.items() if name != "passed")
    return quick.counters


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("seed", "flush"), RUNS)
def test_answers_bytes_and_counts_are_those_of_the_processors(
    tmp_path: Path, seed: int, flush: str
) -> None:
    told = script(seed)
    counters = compared(tmp_path, told, seed, flush)
    assert told.frames > 20_000
    # How many go the fast way depends on how reads fall behind slow frames; enough must.
    assert counters["sends"] > told.frames // 25
    assert counters["pulls"] > told.frames // 500
    assert counters["held"] > told.frames // 1000
    assert counters["halves"] > told.frames // 4000
    assert (counters["parked"] > 0) == (flush == "sync")


@pytest.mark.timeout(600)
def test_frames_signed_well_and_badly_are_answered_as_the_guard_says(tmp_path: Path) -> None:
    file = tmp_path / "plain_acl.yml"
    file.write_text(ACCOUNTS)
    told = script(seed := 5, SIGNED_ROUNDS, signed)
    counters = compared(tmp_path, told, seed, "async", AclConfig(enabled=True, file=str(file)))
    assert told.frames > 4_000
    assert counters["sends"] > told.frames // 24
    assert counters["pulls"] > told.frames // 400
    assert counters["held"] > told.frames // 400
