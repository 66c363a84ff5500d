"""Random lives of transactions with lost words and crashes: each is settled once, as it was meant.

The store is in memory and survives; what the service knows by heart does not. Committed offsets
survive as they were last saved.
"""

from __future__ import annotations

import asyncio
import collections
import dataclasses
import random
from typing import TYPE_CHECKING

import pytest

from roquet.acl.rights import EVERYBODY
from roquet.broker.clients.registry import Client, Registry
from roquet.broker.messages.appender import Appender
from roquet.broker.messages.proof import ProvenMessages
from roquet.broker.messages.put_hooks import put_hooks
from roquet.broker.messages.schedule import DelayLevels
from roquet.broker.metrics.stats import BrokerStats
from roquet.broker.remoting.callers import Callers
from roquet.broker.remoting.transactions import ProducerQuestions, TransactionAdapter
from roquet.broker.services.transactions import TransactionEnds
from roquet.broker.state import BrokerState, Identity
from roquet.broker.transactions import drafts
from roquet.broker.transactions.checks import TransactionChecks
from roquet.broker.transactions.counts import TransactionCounts
from roquet.broker.transactions.members import ProducerMembers
from roquet.broker.transactions.service import Transactions
from roquet.broker.transactions.verdict import TransactionConfig
from roquet.protocol.codes import RequestCode, ResponseCode
from roquet.protocol.command import FLAG_ONE_WAY, Command
from roquet.remoting.router import Request
from roquet.store.tables.files import JsonFile
from roquet.store.tables.offsets import OffsetTable
from roquet.store.tables.topics import TopicTable, TopicTableConfig
from roquet.testing.clock import FakeClock
from roquet.testing.peer import FakePeer
from transaction_harness import COMMIT, GROUP, ROLLBACK, end_command
from transaction_world import Log, half_draft

if TYPE_CHECKING:
    from pathlib import Path

RULES = TransactionConfig(timeout_ms=1000, checks_max=1000, interval_ms=1000)


@dataclasses.dataclass
class World:
    """What survives a crash, and the running service."""

    folder: Path
    clock: FakeClock
    store: Log
    topics: TopicTable
    offsets: OffsetTable
    saved: dict[str, int] = dataclasses.field(default_factory=dict[str, int])

    def boot(self) -> None:
        self.offsets = OffsetTable(JsonFile(self.folder / "none.json"), self.clock)
        for topic, offset in self.saved.items():
            self.offsets.commit(drafts.GROUP, topic, 0, offset)
        self.state = BrokerState()
        identity = Identity(
            cluster="c", name="b", broker_id=0, ip="127.0.0.1", ha_ip="", port=1, ha_port=2
        )
        appender = Appender(self.store, put_hooks(self.state, DelayLevels()))
        counts = TransactionCounts(JsonFile(self.folder / "transactionMetrics"), self.clock)
        stats = BrokerStats("c", self.clock)
        self.service = Transactions(
            self.store,
            appender,
            self.offsets,
            counts,
            identity=identity,
            rules=RULES,
            clock=self.clock,
            traffic=stats,
        )
        self.registry = Registry()
        self.peer = FakePeer()
        self.registry.register_producer(GROUP, Client(self.peer, "p", "JAVA", 1), 0)
        members = ProducerMembers(self.registry)
        self.checks = TransactionChecks(
            self.service,
            self.store,
            self.registry,
            self.topics,
            members=members,
            questions=ProducerQuestions(identity.name),
            rules=RULES,
            keep_hours=72,
            clock=self.clock,
        )
        ends = TransactionEnds(
            self.service,
            self.store,
            stats,
            rules=lambda: RULES,
            state=self.state,
            clock=self.clock,
            body_max=4096,
            messages=ProvenMessages(self.store, self.clock),
            members=members,
        )
        self.ends = TransactionAdapter(ends, Callers(EVERYBODY))

    async def crash(self) -> None:
        """Forget everything that is not in the store or saved."""
        mine = asyncio.current_task()
        for task in asyncio.all_tasks():
            if task is not mine:
                task.cancel()
        await asyncio.sleep(0)
        self.boot()
        await self.service.start()
        await self.service.wait_loaded()

    def save(self) -> None:
        for topic in (drafts.HALF_TOPIC, drafts.OP_TOPIC):
            self.saved[topic] = self.offsets.committed(drafts.GROUP, topic, 0) or 0

    async def half(self, key: str) -> tuple[int, int]:
        result = await self.store.put(half_draft(key, self.clock.now_ms()))
        return result.physical_offset, result.queue_offset

    async def end(self, state: int, place: tuple[int, int], *, checked: bool) -> None:
        command = end_command(state, *place, fromTransactionCheck=str(checked).lower())
        command.flag = FLAG_ONE_WAY
        request = Request(command, self.peer, 0, lambda _: None)
        answer = await self.ends.end(request)
        assert answer is not None
        assert answer.code == 0, answer.remark


def asked(peer: FakePeer) -> list[Command]:
    questions, peer.sent = peer.sent, []
    assert all(one.code == RequestCode.CHECK_TRANSACTION_STATE for one in questions)
    return questions


@dataclasses.dataclass
class Story:
    """What producers do, and what they mean."""

    world: World
    chance: random.Random
    meant: dict[str, int] = dataclasses.field(default_factory=dict[str, int])
    places: list[tuple[str, tuple[int, int]]] = dataclasses.field(
        default_factory=list[tuple[str, tuple[int, int]]]
    )

    async def step(self, number: int) -> None:
        """Do one thing."""
        what, world = self.chance.random(), self.world
        if what < 0.35:
            key = f"K{number}"
            self.meant[key] = self.chance.choice((COMMIT, ROLLBACK))
            self.places.append((key, await world.half(key)))
        elif what < 0.65 and self.places:
            # Ends are late, come twice, or never come.
            key, place = self.chance.choice(self.places)
            await world.end(self.meant[key], place, checked=False)
        elif what < 0.8:
            await world.clock.advance(self.chance.choice((0.05, 0.5, 3.0)))
        elif what < 0.95:
            await self.round(likely=0.6)
        elif what < 0.97:
            world.save()
        else:
            await world.crash()

    async def round(self, likely: float) -> None:
        """Have open transactions asked about, and answer some of the questions."""
        await self.world.checks.round()
        for question in asked(self.world.peer):
            fields = question.ext or {}
            if self.chance.random() < likely:
                place = int(fields["commitLogOffset"]), int(fields["tranStateTableOffset"])
                await self.world.end(self.meant[fields["msgId"]], place, checked=True)

    async def finish(self) -> None:
        """Answer everything, and compare."""
        world = self.world
        for _ in range(12):
            await world.clock.advance(5.0)
            await self.round(likely=1.0)
        await world.clock.advance(5.0)
        await world.checks.round()
        assert asked(world.peer) == []
        seen = collections.Counter(record.body.decode() for record in world.store.of("orders"))
        assert seen == {key: 1 for key, state in self.meant.items() if state == COMMIT}
        committed = world.offsets.committed(drafts.GROUP, drafts.HALF_TOPIC, 0)
        assert committed == world.store.max_offset(drafts.HALF_TOPIC, 0)
        assert world.service.counts.open().get("orders", 0) == 0
        await world.service.stop()


async def tell(folder: Path, seed: int) -> None:
    clock = FakeClock()
    rules = TopicTableConfig(cluster="c", broker_name="b")
    topics = TopicTable(JsonFile(folder / "topics.json"), rules, clock)
    store = Log(clock, DelayLevels())
    world = World(folder, clock, store, topics, OffsetTable(JsonFile(folder / "o.json"), clock))
    world.boot()
    await world.service.start()
    await world.service.wait_loaded()
    story = Story(world, random.Random(seed))
    for number in range(120):
        await story.step(number)
    await story.finish()


@pytest.mark.parametrize("seed", range(25))
def test_every_transaction_is_settled_once_as_it_was_meant(tmp_path: Path, seed: int) -> None:
    asyncio.run(tell(tmp_path, seed))


def test_a_slave_ends_and_resumes_nothing(tmp_path: Path) -> None:
    async def run() -> None:
        clock = FakeClock()
        rules = TopicTableConfig(cluster="c", broker_name="b")
        topics = TopicTable(JsonFile(tmp_path / "topics.json"), rules, clock)
        offsets = OffsetTable(JsonFile(tmp_path / "o.json"), clock)
        world = World(tmp_path, clock, Log(clock, DelayLevels()), topics, offsets)
        world.boot()
        place = await world.half("K")
        world.state.is_slave = True
        request = Request(end_command(COMMIT, *place), world.peer, 0, lambda _: None)
        answer = await world.ends.end(request)
        assert answer is not None
        assert answer.code == ResponseCode.SLAVE_NOT_AVAILABLE
        resume = Command(RequestCode.RESUME_CHECK_HALF_MESSAGE, ext={"msgId": "0" * 32})
        answer = await world.ends.resume_checks(Request(resume, world.peer, 0, lambda _: None))
        assert answer.code == ResponseCode.SLAVE_NOT_AVAILABLE
        assert world.store.of("orders") == []

    asyncio.run(run())
