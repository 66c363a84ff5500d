"""What comes first: the end before a check, durability before the offsets that stand for it."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import TYPE_CHECKING

import pytest
from typing_extensions import override

from roquet.broker.clients.registry import Client, Registry
from roquet.broker.messages.appender import Appender
from roquet.broker.messages.put_hooks import put_hooks
from roquet.broker.messages.schedule import DelayLevels
from roquet.broker.metrics.stats import BrokerStats
from roquet.broker.remoting.transactions import ProducerQuestions
from roquet.broker.state import BrokerState, Identity
from roquet.broker.transactions import drafts
from roquet.broker.transactions import service as service_module
from roquet.broker.transactions.checks import TransactionChecks
from roquet.broker.transactions.counts import TransactionCounts
from roquet.broker.transactions.members import ProducerMembers
from roquet.broker.transactions.service import Transactions
from roquet.broker.transactions.verdict import TransactionConfig
from roquet.protocol import properties as props
from roquet.store.results import Draft, Found, PutResult, PutStatus, StoreFault
from roquet.store.tables.files import JsonFile
from roquet.store.tables.offsets import OffsetTable
from roquet.store.tables.topics import TopicTable, TopicTableConfig
from roquet.testing.clock import FakeClock
from roquet.testing.memory_store import FakeStore
from roquet.testing.peer import FakePeer
from transaction_world import GROUP, half_draft

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from roquet.store.records import Record

RULES = TransactionConfig(timeout_ms=1000, checks_max=3, interval_ms=1000)


class Log(FakeStore):
    """The store in memory; `on_flush` is called by every flush."""

    on_flush: Callable[[], None] | None = None

    @override
    async def flush(self) -> None:
        if self.on_flush is not None:
            self.on_flush()
        await super().flush()

    def query(self, topic: str, key: str, max_messages: int, begin: int, end: int) -> Found:
        del topic, key, max_messages, begin, end
        return Found([], 0, 0)

    def store_time(self, topic: str, queue_id: int, offset: int) -> int:
        units = self.units(topic, queue_id, offset, 1)
        record = self.record(units[0][0]) if units else None
        return -1 if record is None else record.store_timestamp


class SlowAppends:
    """Appends once `gate` is open."""

    def __init__(self, appender: Appender) -> None:
        self._appender = appender
        self.gate = asyncio.Event()

    async def append(self, draft: Draft, *, wait: bool | None = None) -> PutResult:
        await self.gate.wait()
        return await self._appender.append(draft, wait=wait)


class World:
    """The service and its checks over a store in memory; one producer is connected."""

    def __init__(self, folder: Path) -> None:
        self.clock = FakeClock()
        levels = DelayLevels()
        self.store = Log(self.clock, levels)
        self.offsets = OffsetTable(JsonFile(folder / "offsets.json"), self.clock)
        self.topics = TopicTable(
            JsonFile(folder / "topics.json"),
            TopicTableConfig(cluster="c", broker_name="b"),
            self.clock,
        )
        self.appends = SlowAppends(Appender(self.store, put_hooks(BrokerState(), levels)))
        identity = Identity(
            cluster="c", name="b", broker_id=0, ip="127.0.0.1", ha_ip="", port=1, ha_port=2
        )
        self.service = Transactions(
            self.store,
            self.appends,
            self.offsets,
            TransactionCounts(JsonFile(folder / "counts.json"), self.clock),
            identity=identity,
            rules=RULES,
            clock=self.clock,
            traffic=BrokerStats("c", self.clock),
        )
        self.peer = FakePeer()
        registry = Registry()
        registry.register_producer(GROUP, Client(self.peer, "p", "JAVA", 1), 0)
        self.checks = TransactionChecks(
            self.service,
            self.store,
            registry,
            self.topics,
            members=ProducerMembers(registry),
            questions=ProducerQuestions(identity.name),
            rules=RULES,
            keep_hours=72,
            clock=self.clock,
        )

    async def half(self, key: str = "K") -> Record:
        result = await self.store.put(half_draft(key, self.clock.now_ms()))
        record = self.store.record(result.physical_offset)
        assert record is not None
        self.service.opened("orders")
        return record

    def commit(self, record: Record) -> asyncio.Task[PutResult | None]:
        draft = drafts.commit_draft(record, props.read(record.properties))
        return asyncio.create_task(self.service.settle(record, draft, "orders"))

    def committed(self) -> list[int | None]:
        return [
            self.offsets.committed(drafts.GROUP, topic, drafts.QUEUE_ID)
            for topic in (drafts.HALF_TOPIC, drafts.OP_TOPIC)
        ]


async def started(folder: Path) -> World:
    world = World(folder)
    await world.service.start()
    await world.service.wait_loaded()
    return world


def test_check_while_the_end_is_under_way_asks_nobody_and_copies_nothing(tmp_path: Path) -> None:
    async def run() -> None:
        world = await started(tmp_path)
        record = await world.half()
        ending = world.commit(record)
        await world.clock.advance(10)
        assert world.service.is_ending(record.queue_offset)
        await world.checks.round()
        assert world.peer.sent == []
        assert len(world.store.of(drafts.HALF_TOPIC)) == 1
        world.appends.gate.set()
        result = await ending
        assert result is not None
        assert result.status is PutStatus.PUT_OK
        await world.clock.advance(10)
        await world.checks.round()
        assert world.peer.sent == []
        assert [record.body for record in world.store.of("orders")] == [b"K"]
        await world.service.stop()

    asyncio.run(run())


def test_check_of_the_next_half_message_is_not_held_up_by_an_end_under_way(tmp_path: Path) -> None:
    async def run() -> None:
        world = await started(tmp_path)
        ending = world.commit(await world.half("first"))
        await world.half("second")
        await world.clock.advance(10)
        await world.checks.round()
        assert [(command.ext or {})["msgId"] for command in world.peer.sent] == ["second"]
        world.appends.gate.set()
        await ending
        await world.service.stop()

    asyncio.run(run())


def test_transaction_offsets_are_committed_after_the_flush(tmp_path: Path) -> None:
    async def run() -> None:
        world = await started(tmp_path)
        world.appends.gate.set()
        await world.commit(await world.half())
        # The op record is written.
        await world.clock.advance(10)
        flushed = world.store.flushes
        old = world.offsets.committed(drafts.GROUP, drafts.HALF_TOPIC, drafts.QUEUE_ID)
        held: list[int | None] = []
        world.store.on_flush = lambda: held.append(
            world.offsets.committed(drafts.GROUP, drafts.HALF_TOPIC, drafts.QUEUE_ID)
        )
        await world.service.commit_offsets()
        assert (held, world.store.flushes) == ([old], flushed + 1)
        assert world.committed() == [1, 1]
        # Nothing moved since: nothing to make durable.
        await world.service.commit_offsets()
        assert world.store.flushes == flushed + 1
        await world.service.stop()

    asyncio.run(run())


def test_transaction_offsets_stay_when_the_flush_fails(tmp_path: Path) -> None:
    async def run() -> None:
        world = await started(tmp_path)
        world.appends.gate.set()
        await world.commit(await world.half())
        await world.clock.advance(10)

        def fail() -> None:
            raise StoreFault("io", "a test says so")

        world.store.on_flush = fail
        with pytest.raises(StoreFault):
            await world.service.commit_offsets()
        assert world.committed() == [None, None]
        world.store.on_flush = None
        await world.service.ops.stop()

    asyncio.run(run())


def test_rounds_of_checks_come_at_the_interval_of_the_settings(tmp_path: Path) -> None:
    world = World(tmp_path)
    (timer,) = world.checks.timers
    assert timer.first_after_s == 1.0
    assert callable(timer.every_s)
    assert timer.every_s() == 1.0
    world.checks.follow(dataclasses.replace(RULES, interval_ms=2500))
    assert timer.every_s() == 2.5


def test_end_waits_until_what_is_open_is_known(tmp_path: Path) -> None:
    async def run() -> None:
        world = World(tmp_path)
        world.appends.gate.set()
        record = await world.half()
        world.store.behind = 1
        await world.service.start()
        ending = world.commit(record)
        await world.clock.advance(5)
        assert world.store.of("orders") == []
        assert not ending.done()
        world.store.behind = 0
        await world.clock.advance(5)
        assert (await ending) is not None
        assert len(world.store.of("orders")) == 1
        await world.service.stop()

    asyncio.run(run())


def test_second_start_counts_open_half_messages_anew(tmp_path: Path) -> None:
    async def run() -> None:
        world = await started(tmp_path)
        await world.half("K1")
        await world.half("K2")
        await world.service.stop()
        assert world.service.counts.open() == {"orders": 2}
        await world.service.start()
        await world.service.wait_loaded()
        assert world.service.counts.open() == {"orders": 2}
        await world.service.stop()

    asyncio.run(run())


def test_reading_what_is_open_gives_way_after_each_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ways: list[int] = []

    async def give_way() -> None:
        ways.append(1)

    monkeypatch.setattr(service_module, "LOAD_BATCH", 2)
    monkeypatch.setattr(service_module, "give_way", give_way)

    async def run() -> None:
        world = World(tmp_path)
        for number in range(5):
            await world.half(f"K{number}")
        await world.service.start()
        await world.service.wait_loaded()
        assert len(ways) == 2
        await world.service.stop()

    asyncio.run(run())
