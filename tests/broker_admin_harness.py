"""A broker's tables over a real store, with the adapters of administration on a real socket."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from typing import TYPE_CHECKING

from roquet.acl.rights import EVERYBODY
from roquet.base.config import setting
from roquet.broker.clients.registry import Registry
from roquet.broker.messages.proof import ProvenMessages
from roquet.broker.metrics.stats import BrokerStats
from roquet.broker.network.routes import Routed, all_routes
from roquet.broker.remoting.admin.broker import BrokerAdapter
from roquet.broker.remoting.admin.connections import ConnectionAdapter
from roquet.broker.remoting.admin.offsets import OffsetAdminAdapter
from roquet.broker.remoting.admin.progress import ProgressAdapter
from roquet.broker.remoting.admin.queues import QueueUnitAdapter
from roquet.broker.remoting.admin.upkeep import UpkeepAdapter
from roquet.broker.remoting.callers import Callers
from roquet.broker.remoting.groups import GroupAdapter
from roquet.broker.remoting.refusals import translated
from roquet.broker.remoting.topics import TopicAdapter
from roquet.broker.services.admin.connections import Connections
from roquet.broker.services.admin.offsets import OffsetAdmin
from roquet.broker.services.admin.progress import Progress
from roquet.broker.services.admin.queues import QueueUnits
from roquet.broker.services.admin.runtime import Paths, RuntimeInfo
from roquet.broker.services.admin.settings import LiveConfig
from roquet.broker.services.admin.settings import Settings as SettingsService
from roquet.broker.services.admin.upkeep import Upkeep
from roquet.broker.services.groups import Groups
from roquet.broker.services.topics import Topics
from roquet.broker.state import BrokerState, Identity
from roquet.protocol.bodies.offsets import DelayOffsetBody
from roquet.protocol.command import VERSION, Command
from roquet.remoting.client import Client
from roquet.remoting.router import Router
from roquet.remoting.server import Server
from roquet.service.lanes import LaneConfig, Lanes
from roquet.store.housekeeping.cleaning import Cleaner
from roquet.store.results import Draft
from roquet.store.settings import StoreConfig
from roquet.store.store import MessageStore
from roquet.store.tables.deletions import Deletions
from roquet.store.tables.files import JsonFile
from roquet.store.tables.groups import GroupTable, GroupTableConfig
from roquet.store.tables.offsets import OffsetTable
from roquet.store.tables.topics import TopicTable, TopicTableConfig
from roquet.testing.clock import FakeClock

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping
    from pathlib import Path

    from roquet.protocol.codes import RequestCode

HOST = b"\x7f\0\0\1\0\0\x2a\x9f"


@dataclasses.dataclass(frozen=True, slots=True)
class Settings:
    """A few settings of every kind."""

    permission: int = setting(
        "brokerPermission", 6, "What it lets clients do.", low=0, high=6, live=True
    )
    keep_hours: int = setting("fileReservedTime", 72, "Hours.", low=1, high=10_000, live=True)
    folder: str = setting("storePathRootDir", "/data", "Where.")
    greeting: str = setting("greeting", "hello", "Said.", live=True)


@dataclasses.dataclass(frozen=True, slots=True)
class Durability:
    sync_flush: bool = False
    sync_flush_timeout_ms: int = 5000


@dataclasses.dataclass
class Broker:
    """Everything that a test may look at."""

    root: Path
    clock: FakeClock
    topics: TopicTable
    groups: GroupTable
    offsets: OffsetTable
    registry: Registry
    store: MessageStore
    stats: BrokerStats
    state: BrokerState
    settings: LiveConfig[Settings]
    server: Server
    client: Client

    async def ask(self, code: RequestCode, body: bytes = b"", /, **ext: str) -> Command:
        return await self.client.call(
            f"127.0.0.1:{self.server.port}", Command(code, ext or None, body), 10.0
        )

    async def put(self, topic: str, queue_id: int, body: bytes, **properties: str) -> None:
        result = await self.store.put(
            Draft(
                topic=topic,
                queue_id=queue_id,
                body=body,
                properties=properties,
                born_timestamp=1,
                born_host=HOST,
                store_host=HOST,
            )
        )
        assert result.status.is_stored
        self.stats.stored(topic, queue_id, result)
        while self.store.dispatch_behind():  # noqa: ASYNC110  (a thread of the core dispatches)
            await asyncio.sleep(0.002)


async def no_role(changes: Mapping[str, str]) -> tuple[str, ...]:
    """Take no role: there are no duties here."""
    raise AssertionError(changes)


@contextlib.asynccontextmanager
async def administered(root: Path) -> AsyncIterator[Broker]:
    clock = FakeClock()
    topics = TopicTable(
        JsonFile(root / "config" / "topics.json"),
        TopicTableConfig(cluster="DefaultCluster", broker_name="broker-a"),
        clock,
    )
    groups = GroupTable(
        JsonFile(root / "config" / "subscriptionGroup.json"), GroupTableConfig(), clock
    )
    offsets = OffsetTable(JsonFile(root / "config" / "consumerOffset.json"), clock)
    for table in (topics, groups, offsets):
        table.load()
    store = MessageStore(
        {
            "storePathRootDir": str(root),
            "mappedFileSizeCommitLog": 128 * 1024,
            "mappedFileSizeConsumeQueue": 2000,
            "maxHashSlotNum": 500,
            "maxIndexNum": 2000,
        },
        Durability(),
    )
    await store.start()
    registry, state = Registry(), BrokerState()
    stats, deletions = BrokerStats("DefaultCluster", clock), Deletions(None, clock)
    identity = Identity(
        cluster="DefaultCluster",
        name="broker-a",
        broker_id=0,
        ip="127.0.0.1",
        ha_ip="127.0.0.1",
        port=10911,
        ha_port=10912,
    )
    lanes = Lanes([LaneConfig("admin", 16, 10_000), LaneConfig("send", 4, 10_000, 200)], clock)
    dropped: list[str] = []
    settings = LiveConfig(Settings(), root / "conf" / "broker.conf")
    runtime = RuntimeInfo(
        store,
        stats,
        lanes,
        paths=Paths(root / "commitlog", root / "consumequeue"),
        state=state,
        clock=clock,
        version=VERSION,
    )
    callers = Callers(EVERYBODY)
    processors: list[Routed] = [
        TopicAdapter(Topics(topics, offsets, store, stats, deletions), callers),
        GroupAdapter(Groups(groups, offsets, stats, deletions), callers),
        ProgressAdapter(
            Progress(topics, offsets, registry, store, stats, clock=clock),
            callers,
            identity=identity,
            clock=clock,
        ),
        ConnectionAdapter(
            Connections(registry, topics, groups, store, messages=ProvenMessages(store, clock)),
            callers,
            identity.name,
        ),
        OffsetAdminAdapter(
            OffsetAdmin(
                topics,
                groups,
                offsets,
                registry,
                store,
                state=state,
                delay_offsets=lambda: DelayOffsetBody(offsets={1: 5}),
                deletions=deletions,
            ),
            callers,
            identity.name,
        ),
        BrokerAdapter(SettingsService(settings, no_role), topics, runtime, callers),
        QueueUnitAdapter(QueueUnits(topics, registry, store), callers),
        UpkeepAdapter(
            Upkeep(topics, store, Cleaner(store, StoreConfig(delete_interval_ms=0), clock)),
            callers,
        ),
    ]
    routes = all_routes(processors)
    server = Server(
        host="127.0.0.1",
        port=0,
        router=Router(routes, None, lanes, clock, translate=translated),
        clock=clock,
        on_close=lambda peer: dropped.extend(registry.drop(peer.key)),
    )
    await server.start()
    client = Client(clock=clock)
    try:
        yield Broker(
            root,
            clock,
            topics,
            groups,
            offsets,
            registry,
            store,
            stats,
            state,
            settings,
            server,
            client,
        )
    finally:
        await client.stop()
        await server.stop()
        await lanes.stop()
        await store.stop()
