"""The service of transactions, its checks and its ends over a store in memory."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from roquet.broker.api.caller import Caller
from roquet.broker.api.transactions import EndTransactionRequest, ResumeChecksRequest, Verdict
from roquet.broker.clients.registry import Client, Registry
from roquet.broker.messages.appender import Appender
from roquet.broker.messages.proof import ProvenMessages
from roquet.broker.messages.put_hooks import put_hooks
from roquet.broker.messages.schedule import DelayLevels
from roquet.broker.metrics.stats import BrokerStats
from roquet.broker.services.access import Access
from roquet.broker.services.transactions import TransactionEnds
from roquet.broker.state import BrokerState, Identity
from roquet.broker.transactions import drafts
from roquet.broker.transactions.checks import TransactionChecks
from roquet.broker.transactions.counts import TransactionCounts
from roquet.broker.transactions.members import ProducerMembers
from roquet.broker.transactions.service import Transactions
from roquet.broker.transactions.verdict import TransactionConfig
from roquet.protocol import properties as props
from roquet.protocol.hosts import host_bytes
from roquet.protocol.messages.message_id import offset_id
from roquet.protocol.messages.records import encode_record
from roquet.store.results import Draft, Found
from roquet.store.tables.files import JsonFile
from roquet.store.tables.offsets import OffsetTable
from roquet.store.tables.topics import TopicTable, TopicTableConfig
from roquet.testing.clock import FakeClock
from roquet.testing.memory_store import FakeStore
from roquet.testing.peer import FakePeer

if TYPE_CHECKING:
    from pathlib import Path

    from roquet.acl.rights import Rights
    from roquet.store.records import Record
    from roquet.store.results import BatchResult, PutResult

GROUP = "tx_producers"
SENDER = "127.0.0.1:10911"
HOST = host_bytes(SENDER)
RULES = TransactionConfig(timeout_ms=1000, checks_max=3, interval_ms=1000, op_interval_ms=60_000)
IDENTITY = Identity(cluster="c", name="b", broker_id=0, ip="127.0.0.1", ha_ip="", port=1, ha_port=2)


class Log(FakeStore):
    """The store, with what transactions need besides."""

    def query(self, topic: str, key: str, max_messages: int, begin: int, end: int) -> Found:
        """Find by unique key."""
        assert begin <= end
        found = [
            encode_record(one)
            for one in self.of(topic)
            if props.read(one.properties).get("UNIQ_KEY") == key
        ]
        return Found(found[:max_messages], 0, 0)

    def store_time(self, topic: str, queue_id: int, offset: int) -> int:
        """Return when a message was stored."""
        units = self.units(topic, queue_id, offset, 1)
        record = self.record(units[0][0]) if units else None
        return -1 if record is None else record.store_timestamp


def half_draft(key: str, born_ms: int, queue_id: int = 0, **more: str) -> Draft:
    """Return a half message for a queue of `orders`; its body is its key."""
    draft = Draft(
        topic="orders",
        queue_id=queue_id,
        body=key.encode(),
        properties={"UNIQ_KEY": key, "TRAN_MSG": "true", "PGROUP": GROUP, **more},
        born_timestamp=born_ms,
        born_host=HOST,
        store_host=HOST,
    )
    drafts.to_half(draft, GROUP)
    return draft


class Traffic(BrokerStats):
    """Keeps what it is told."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__("c", clock)
        self.told: list[tuple[Any, ...]] = []

    @override
    def moved(self, topic: str, size: int, messages: int = 1) -> None:
        assert messages == 1
        self.told.append(("moved", topic, size))

    @override
    def looked_at(self, group: str, topic: str, size: int) -> None:
        self.told.append(("looked at", group, topic, size))

    @override
    def stored(self, topic: str, queue_id: int, result: PutResult | BatchResult) -> None:
        self.told.append(("stored", topic, queue_id, result.status))


class GatedAppends:
    """Appends while `gate` is open, as it is at first."""

    def __init__(self, appender: Appender) -> None:
        self._appender = appender
        self.gate = asyncio.Event()
        self.gate.set()

    async def append(self, draft: Draft, *, wait: bool | None = None) -> PutResult:
        """Append."""
        await self.gate.wait()
        return await self._appender.append(draft, wait=wait)


class Questions:
    """Keeps what producers are asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str | None, Record]] = []

    def ask(self, producer: Client, half: Record, properties: dict[str, str]) -> None:
        """Keep it."""
        assert properties["UNIQ_KEY"] == props.read(half.properties)["UNIQ_KEY"]
        self.asked.append((producer.client_id, half))

    def taken(self) -> list[str]:
        """Return the keys of what was asked about, and forget it."""
        found = [props.read(half.properties)["UNIQ_KEY"] for _, half in self.asked]
        self.asked.clear()
        return found


class World:
    """All of it; nobody is connected at first."""

    def __init__(
        self,
        folder: Path,
        rules: TransactionConfig = RULES,
        *,
        rights: Rights | None = None,
        keep_hours: int = 72,
    ) -> None:
        self.folder = folder
        self.rules = rules
        self.rights = rights
        self.keep_hours = keep_hours
        self.clock = FakeClock()
        self.store = Log(self.clock, DelayLevels())
        self.topics = TopicTable(
            JsonFile(folder / "topics.json"),
            TopicTableConfig(cluster="c", broker_name="b"),
            self.clock,
        )
        self.state = BrokerState()
        self.registry = Registry()
        self.boot()

    def boot(self) -> None:
        """Make the parts that know something by heart, as a start does."""
        self.traffic, self.questions = Traffic(self.clock), Questions()
        self.offsets = OffsetTable(JsonFile(self.folder / "offsets.json"), self.clock)
        self.appends = GatedAppends(Appender(self.store, put_hooks(self.state, DelayLevels())))
        self.counts = TransactionCounts(JsonFile(self.folder / "counts.json"), self.clock)
        self.service = Transactions(
            self.store,
            self.appends,
            self.offsets,
            self.counts,
            identity=IDENTITY,
            rules=self.rules,
            clock=self.clock,
            traffic=self.traffic,
        )
        rights = {} if self.rights is None else {"rights": self.rights}
        members = ProducerMembers(self.registry, **rights)
        self.checks = TransactionChecks(
            self.service,
            self.store,
            self.registry,
            self.topics,
            members=members,
            questions=self.questions,
            rules=self.rules,
            keep_hours=self.keep_hours,
            clock=self.clock,
        )
        self.ends = TransactionEnds(
            self.service,
            self.store,
            self.traffic,
            rules=lambda: self.rules,
            state=self.state,
            clock=self.clock,
            body_max=4096,
            messages=ProvenMessages(self.store, self.clock),
            members=members,
            access=Access(**rights),
        )

    async def start(self) -> None:
        """Begin, and wait until what is open is known."""
        await self.service.start()
        await self.service.wait_loaded()
        self.traffic.told.clear()

    async def restart(self) -> None:
        """Forget what is not in the store, committed offsets too, and begin again."""
        await self.service.ops.stop()
        self.boot()
        await self.start()

    def join(self, name: str, address: str = "127.0.0.1:40000", group: str = GROUP) -> FakePeer:
        """Connect a producer."""
        peer = FakePeer(address)
        self.registry.register_producer(group, Client(peer, name, "JAVA", 1), 0)
        return peer

    async def put(self, topic: str, properties: dict[str, str], body: bytes = b"body") -> Record:
        """Store a message as it is."""
        draft = Draft(
            topic=topic,
            queue_id=0,
            body=body,
            properties=properties,
            born_timestamp=self.clock.now_ms(),
            born_host=HOST,
            store_host=HOST,
        )
        result = await self.store.put(draft)
        record = self.store.record(result.physical_offset)
        assert record is not None
        return record

    async def half(self, key: str = "K", **more: str) -> Record:
        """Store a half message for queue 3 of `orders`."""
        result = await self.store.put(half_draft(key, self.clock.now_ms(), 3, **more))
        record = self.store.record(result.physical_offset)
        assert record is not None
        self.service.opened("orders")
        return record

    async def end(
        self, half: Record, verdict: Verdict | None, caller: str = SENDER, **more: Any
    ) -> None:
        """End a transaction. Raises Refusal."""
        given = {
            "producer_group": GROUP,
            "physical_offset": half.physical_offset,
            "half_offset": half.queue_offset,
            "verdict": verdict,
            **more,
        }
        await self.ends.end(EndTransactionRequest(**given), Caller(address=caller))

    async def resume(self, record: Record) -> None:
        """Have a half message asked about again. Raises Refusal."""
        text = offset_id(record.store_host, record.physical_offset)
        await self.ends.resume_checks(ResumeChecksRequest(message_id=text), Caller(address=SENDER))

    def of(self, topic: str) -> list[str]:
        """Return the bodies of a topic's messages."""
        return [record.body.decode() for record in self.store.of(topic)]
