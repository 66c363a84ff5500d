"""Messages are stored for another try by the core as by the rules in Python.

Two stores get the same messages, some of them odd, and the same checkpoints; one has the core copy
what is plain. Outcomes, counts and every byte of the logs but the store times have to be equal.
"""

from __future__ import annotations

import asyncio
import dataclasses
import random
from typing import TYPE_CHECKING

from differential_world import logged
from pop_world import GROUP, IDENTITY, Clock, Tables
from roquet.base.overriding import override
from roquet.broker.messages.appender import Appender
from roquet.broker.messages.put_hooks import put_hooks
from roquet.broker.messages.schedule import DelayLevels
from roquet.broker.pop.revive_copies import Copies
from roquet.broker.pop.revive_rules import ReviveConfig
from roquet.broker.state import BrokerState
from roquet.model.group import SubscriptionGroupConfig
from roquet.model.topic import TopicConfig
from roquet.protocol import names
from roquet.protocol.messages import sys_flag
from roquet.protocol.pop.records import PopCheckpoint
from roquet.store.popped import PoppedMessages
from roquet.store.store import MessageStore
from roquet.store.tables.deletions import Deletions
from transaction_harness import until

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from roquet.store.popped import Popped, Target

SEEDS = 60
ROUNDS = 12
MESSAGES = 60
"""In each queue."""
QUEUES = 2
RETRY, RETRY_V2 = f"%RETRY%{GROUP}_T", f"%RETRY%{GROUP}+T"
TOPICS = ("T", "T", RETRY, RETRY_V2)
FIRST, MINE = b"1ST_POP_TIME\x015\x02", b"ORIGIN_GROUP\x01g\x02"
PLAIN = (b"", b"TAGS\x01a\x02UNIQ_KEY\x01U\x02", b"WAIT\x01false\x02", "ä\x01ö\x02".encode())
ODD = (
    FIRST,
    MINE,
    FIRST + MINE,
    b"ORIGIN_GROUP\x01other\x02",
    b"RETRY_TOPIC\x01T\x02",
    b"LMQ_ORIGIN_TOPIC\x01T\x02",
    b"INNER_MULTI_QUEUE_OFFSET\x010\x02",
    b"DELAY\x013\x02TIMER_DELAY_MS\x019\x02",
    b"".join(b"p%d\x01v\x02" % number for number in range(70)),
    b"long\x01%s\x02" % (b"v" * 32_740),
    b"twice\x011\x02twice\x012\x02",
    b"open\x011",
    b"none\x01\x02a\x011\x02",
    b"x\x01\xff\x02",
)
FLAGS = (
    sys_flag.COMPRESSED | 0x300,
    sys_flag.MULTI_TAGS,
    sys_flag.TRANSACTION_COMMIT,
    sys_flag.INNER_BATCH,
)


@dataclasses.dataclass(slots=True)
class Returned:
    """What was told of messages: (how many, bytes) of topics, and dead letters."""

    stored: dict[str, tuple[int, int]] = dataclasses.field(default_factory=dict)
    dead: int = 0

    def moved(self, topic: str, size: int, messages: int = 1) -> None:
        count, total = self.stored.get(topic, (0, 0))
        self.stored[topic] = count + messages, total + size

    def sent_back(self, group: str, topic: str, *, dead: bool) -> None:
        assert (group, topic, dead) == (GROUP, "T", True)
        self.dead += 1


class Core(PoppedMessages):
    """The copies of the core, and how many it made."""

    copied = 0

    @override
    def copy(self, popped: Popped, target: Target, offsets: Sequence[int]) -> list[int]:
        sizes = super().copy(popped, target, offsets)
        self.copied += len(sizes)
        return sizes


@dataclasses.dataclass(frozen=True)
class Durability:
    sync_flush: bool = False
    sync_flush_timeout_ms: int = 5000


class Desk:
    """A store and what copies its messages."""

    def __init__(self, folder: Path, rules: ReviveConfig, *, by_core: bool) -> None:
        self.folder = folder
        self.store = MessageStore(
            {
                "storePathRootDir": str(folder),
                "mappedFileSizeCommitLog": 1 << 20,
                "mappedFileSizeConsumeQueue": 2_000,
                "messageIndexEnable": False,
            },
            Durability(),
        )
        self.tables = Tables()
        self.tables.topics["T"] = TopicConfig(name="T", read_queues=QUEUES, write_queues=QUEUES)
        self.tables.groups[GROUP] = SubscriptionGroupConfig(name=GROUP, retry_max_times=2)
        self.state, self.returned = BrokerState(), Returned()
        self.core = Core(self.store)
        tables = self.tables
        appender = Appender(self.store, put_hooks(self.state, DelayLevels()), log=self.store)
        self.copies = Copies(
            self.store,
            appender,
            (tables, tables, tables),  # type: ignore[arg-type]
            identity=IDENTITY,
            rules=rules,
            returned=self.returned,
            clock=Clock(),
            deletions=Deletions(None, Clock()),
            core=self.core if by_core else None,
        )

    async def fill(self, rng: random.Random) -> None:
        """Store the messages that are popped."""
        for topic in dict.fromkeys(TOPICS):
            for number in range(QUEUES * MESSAGES):
                tries, text = rng.choice((0, 0, 0, 1, 2)), rng.choice(PLAIN)
                if names.is_retry(topic):
                    tries, text = max(1, tries), text + FIRST + MINE
                flag = 0
                if rng.random() < 0.04:
                    text = rng.choice(ODD)
                if rng.random() < 0.03:
                    flag = rng.choice(FLAGS)
                body = b"%d" % number if rng.random() < 0.99 else bytes(700_000)
                v6 = rng.random() < 0.1
                done = self.store.native.put(
                    topic,
                    number % QUEUES,
                    body,
                    text,
                    flag=number,
                    sys_flag=flag,
                    born_timestamp=number,
                    born_host=bytes(20) if v6 else bytes(8),
                    store_host=bytes(8),
                    reconsume_times=tries,
                )
                assert done[0] == 0
        await self.dispatched()

    async def dispatched(self) -> None:
        await until(lambda: self.store.dispatch_behind() == 0, "all is in the queues")

    async def tell(self, rng: random.Random) -> list[object]:
        """Have drawn checkpoints' messages stored again; return what became of them."""
        outcomes: list[object] = []
        for _ in range(ROUNDS):
            start = rng.randrange(MESSAGES + 5)
            count = rng.randrange(1, 33)
            diffs = sorted(rng.sample(range(40), count))
            checkpoint = PopCheckpoint(
                topic=rng.choice(TOPICS),
                group=GROUP,
                queue_id=rng.randrange(QUEUES),
                start_offset=start,
                pop_time_ms=1_700_000_000_000,
                invisible_ms=60_000,
                broker_name=rng.choice(("b", "b", "b", None, "another")),
                diffs=tuple(diffs),
                count=count,
                suspended=rng.random() < 0.2,
            )
            self.state.is_slave = rng.random() < 0.05
            outcomes.append(await self.copies.store(checkpoint, checkpoint.offsets()))
            await self.dispatched()
        return outcomes


async def play(desk: Desk, seed: int) -> tuple[object, ...]:
    rng = random.Random(seed)
    await desk.store.start()
    try:
        await desk.fill(rng)
        outcomes = await desk.tell(rng)
    finally:
        await desk.store.stop()
    told = desk.copies.counts, desk.returned
    return outcomes, told, desk.tables.topics, desk.tables.offsets, logged(desk.folder)


def test_the_core_copies_what_is_plain_as_the_rules_do(tmp_path: Path) -> None:
    copied = stored = 0
    for seed in range(SEEDS):
        rng = random.Random(seed)
        rules = ReviveConfig(
            separate_queues=rng.random() < 0.5,
            retry_v2=rng.random() < 0.5,
            dead_letters=rng.random() < 0.7,
        )
        desks = [Desk(tmp_path / f"{seed}{by}", rules, by_core=by == "c") for by in "cp"]
        by_core, by_rules = (asyncio.run(play(desk, seed)) for desk in desks)
        for ours, theirs in zip(by_core, by_rules, strict=True):
            assert ours == theirs, f"seed {seed}"
        copied += desks[0].core.copied
        stored += desks[1].copies.counts.stored
        assert desks[1].core.copied == 0
    assert stored // 4 < copied < stored, "both ways are taken"
