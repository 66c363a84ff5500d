"""Consumers that meet over real sockets, on both ports of a broker."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from typing import TYPE_CHECKING

from remoting_harness import until
from roquet.acl.rights import EVERYBODY
from roquet.base.clock import SystemClock
from roquet.broker.clients.notices import GroupNotices
from roquet.broker.clients.registry import Registry
from roquet.broker.remoting.callers import Callers
from roquet.broker.remoting.clients.heartbeats import ClientAdapter
from roquet.broker.remoting.refusals import translated
from roquet.broker.services.clients.heartbeats import Clients, HeartbeatConfig
from roquet.model.subscription import SubscriptionData
from roquet.protocol.bodies.clients import ConsumerData, HeartbeatData, decode_consumer_ids
from roquet.protocol.codes import RequestCode
from roquet.protocol.command import Command
from roquet.remoting.client import Client
from roquet.remoting.router import Ports, Request, Route, Router
from roquet.remoting.server import Server
from roquet.service.lanes import LaneConfig, Lanes
from roquet.store.tables.files import JsonFile
from roquet.store.tables.groups import GroupTable, GroupTableConfig
from roquet.store.tables.topics import TopicTable, TopicTableConfig

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path


@dataclasses.dataclass
class Desk:
    """Two ports over one registry."""

    registry: Registry
    clients: Clients
    main: Server
    fast: Server


class Consumer:
    """A client that notes the groups of which it was told that they changed."""

    def __init__(self, client_id: str, server: Server) -> None:
        self.client_id = client_id
        self.address = f"127.0.0.1:{server.port}"
        self.told: list[str] = []
        code = RequestCode.NOTIFY_CONSUMER_IDS_CHANGED
        self.client = Client(clock=SystemClock(), handlers=[Route((code,), self._hear, "notices")])

    def _hear(self, request: Request) -> None:
        assert request.command.is_one_way
        self.told.append((request.command.ext or {})["consumerGroup"])

    async def beat(self) -> Command:
        wanted = (SubscriptionData(topic="T", version=1),)
        data = HeartbeatData(
            client_id=self.client_id,
            consumers=(ConsumerData(group="g", subscriptions=wanted),),
            producers=("p",),
        )
        return await self.client.call(self.address, Command(34, {}, data.encode()))

    async def ids(self) -> list[str]:
        answer = await self.client.call(self.address, Command(38, {"consumerGroup": "g"}))
        return decode_consumer_ids(answer.body)


@contextlib.asynccontextmanager
async def desk(folder: Path) -> AsyncIterator[Desk]:
    clock = SystemClock()
    registry = Registry()
    groups = GroupTable(JsonFile(folder / "subscriptionGroup.json"), GroupTableConfig(), clock)
    rules = TopicTableConfig(cluster="c", broker_name="b")
    topics = TopicTable(JsonFile(folder / "topics.json"), rules, clock)
    notices = GroupNotices(registry, groups, enabled=True, at_once=True)
    clients = Clients(registry, notices, groups, topics, clock, rules=HeartbeatConfig())
    adapter = ClientAdapter(clients, Callers(EVERYBODY), clock)
    routes = adapter.routes()
    names = dict.fromkeys(route.lane for route in routes)
    lanes = Lanes([LaneConfig(name, 8, 100) for name in names], clock)
    servers = [
        Server(
            host="127.0.0.1",
            port=0,
            router=Router(routes, None, lanes, clock, port, translate=translated),
            clock=clock,
            on_close=adapter.peer_closed,
        )
        for port in (Ports.MAIN, Ports.FAST)
    ]
    for server in servers:
        await server.start()
    try:
        yield Desk(registry, clients, *servers)
    finally:
        for server in servers:
            await server.stop()
        await lanes.stop()


def test_members_hear_of_each_other_come_and_go_whatever_their_port(tmp_path: Path) -> None:
    async def story() -> None:
        async with desk(tmp_path) as running:
            one, two = Consumer("one", running.main), Consumer("two", running.fast)
            for member in (one, two):
                await member.client.start()
            answer = await one.beat()
            assert (answer.code, answer.language) == (0, "JAVA")
            assert answer.ext == {"IS_SUPPORT_HEART_BEAT_V2": "true", "IS_SUB_CHANGE": "true"}
            await until(lambda: one.told == ["g"])
            await two.beat()
            await until(lambda: one.told == ["g", "g"] and two.told == ["g"])
            assert await one.ids() == await two.ids() == ["one", "two"]
            await two.client.stop()
            await until(lambda: len(one.told) == 3)
            assert await one.ids() == ["one"]
            assert len(running.registry.producers("p")) == 1
            await one.client.stop()
            await until(lambda: not running.registry.consumer_groups)
            assert running.registry.producer_groups == []

    asyncio.run(story())


def test_the_same_number_of_connections_on_both_ports_have_different_keys(tmp_path: Path) -> None:
    async def story() -> None:
        async with desk(tmp_path) as running:
            members = [Consumer(f"{n}", running.main if n % 2 else running.fast) for n in range(6)]
            for member in members:
                await member.client.start()
                await member.beat()
            assert sorted(await members[0].ids()) == ["0", "1", "2", "3", "4", "5"]
            for member in members:
                await member.client.stop()

    asyncio.run(story())


def test_a_silent_member_is_hung_up_on(tmp_path: Path) -> None:
    async def story() -> None:
        async with desk(tmp_path) as running:
            one, two = Consumer("one", running.main), Consumer("two", running.main)
            for member in (one, two):
                await member.client.start()
                await member.beat()
            await until(lambda: len(one.told) == 2)
            known = running.registry.consumer("g")
            assert known is not None
            silent = known.member_with_id("two")
            assert silent is not None
            silent.seen_ms -= 200_000
            for producer in running.registry.producers("p"):
                if producer.client.client_id == "two":
                    producer.seen_ms -= 200_000
            await running.clients.expire()
            await until(lambda: len(one.told) == 3 and running.main.connections == 1)
            assert await one.ids() == ["one"]
            # It is alive after all: the next heartbeat comes over a new connection.
            await two.beat()
            assert await one.ids() == ["one", "two"]
            for member in (one, two):
                await member.client.stop()

    asyncio.run(story())
