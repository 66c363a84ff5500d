"""Queue locks that a majority of the replicas has to grant: three brokers of one name."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from typing import TYPE_CHECKING

import pytest

from roquet.acl.rights import EVERYBODY
from roquet.base.clock import SystemClock, steady_ms
from roquet.broker.clients.lock_votes import LockConfig, LockVotes
from roquet.broker.clients.locks import QueueLocks
from roquet.broker.clients.registry import Client as Member
from roquet.broker.clients.registry import Consuming, Registry
from roquet.broker.remoting.callers import Callers
from roquet.broker.remoting.clients.queue_locks import LockAdapter
from roquet.broker.remoting.refusals import translated
from roquet.broker.services.clients.queue_locks import Locks
from roquet.broker.state import Identity
from roquet.model.queue import MessageQueue
from roquet.model.subscription import SubscriptionData
from roquet.model.topic import TopicConfig
from roquet.protocol.bodies.locks import LockRequest, decode_locked
from roquet.protocol.bodies.routes import encode_member_group
from roquet.protocol.codes import RequestCode
from roquet.protocol.command import Command, reply_to
from roquet.remoting.client import Client
from roquet.remoting.router import Request, Route, Router
from roquet.remoting.server import Server
from roquet.service.lanes import LaneConfig, Lanes
from roquet.store.tables.files import JsonFile
from roquet.store.tables.topics import TopicTable, TopicTableConfig
from roquet.testing.clock import FakeClock
from transaction_harness import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

NOW_MS = 1_700_000_000_000
QUEUES = frozenset(MessageQueue("t", "b", number) for number in range(3))


def beat(registry: Registry, request: Request) -> Command:
    client = Member(request.peer, (request.command.ext or {})["id"], "JAVA", 513)
    wanted = (SubscriptionData(topic="t"),)
    registry.register_consumer("g", client, Consuming(), wanted, NOW_MS)
    return reply_to(request.command)


class Replicas:
    """A name server and three replicas, each with leases of its own and a real port."""

    def __init__(self) -> None:
        self.locks = [QueueLocks() for _ in range(3)]
        self.servers: list[Server] = []
        self.addresses: dict[int, str] = {}
        self.client = Client(clock=SystemClock())
        self.consumers = {name: Client(clock=SystemClock()) for name in ("one", "two")}

    def members(self, request: Request) -> Command:
        return reply_to(request.command, body=encode_member_group("c", "b", self.addresses))

    async def ask(self, replica: int, client_id: str, code: RequestCode) -> frozenset[MessageQueue]:
        body = LockRequest(client_id=client_id, group="g", queues=QUEUES).encode()
        command = Command(code, ext={}, body=body)
        consumer = self.consumers[client_id]
        answer = await consumer.call(self.addresses[replica], command, 20.0)
        assert answer.code == 0
        return decode_locked(answer.body) if answer.body else frozenset()


@contextlib.asynccontextmanager
async def replicas(
    folder: Path, *, strict: bool = True, behind_proxy: bool = False
) -> AsyncIterator[Replicas]:
    """Run the replicas; heartbeats of clients behind a proxy do not come here."""
    it = Replicas()
    clock = FakeClock()
    lanes = Lanes([LaneConfig("admin", 16, 1000)], clock)
    name_server = Server(
        host="127.0.0.1",
        port=0,
        router=Router(
            [Route((RequestCode.GET_BROKER_MEMBER_GROUP,), it.members, "admin")], None, lanes, clock
        ),
        clock=clock,
    )
    await it.client.start()
    await name_server.start()
    it.servers.append(name_server)
    for number, locks in enumerate(it.locks):
        identity = Identity(
            cluster="c",
            name="b",
            broker_id=number,
            ip="127.0.0.1",
            ha_ip="127.0.0.1",
            port=0,
            ha_port=0,
        )
        rules = LockConfig(strict=strict, replicas=3)
        votes = LockVotes(it.client, identity, [f"127.0.0.1:{name_server.port}"], rules)
        registry = Registry()
        topics = TopicTable(
            JsonFile(folder / f"topics{number}.json"),
            TopicTableConfig(cluster="c", broker_name="b"),
            clock,
        )
        topics.put(TopicConfig(name="t", read_queues=3, write_queues=3))
        service = Locks(locks, registry, topics, "b", votes if votes.needed else None)
        lock = LockAdapter(service, Callers(EVERYBODY))
        beats = Route((RequestCode.HEART_BEAT,), functools.partial(beat, registry), "admin")
        server = Server(
            host="127.0.0.1",
            port=0,
            router=Router([*lock.routes(), beats], None, lanes, clock, translate=translated),
            clock=clock,
        )
        await server.start()
        it.servers.append(server)
        it.addresses[number] = f"127.0.0.1:{server.port}"
    for name, consumer in it.consumers.items():
        await consumer.start()
        for address in () if behind_proxy else it.addresses.values():
            await consumer.call(address, Command(RequestCode.HEART_BEAT, {"id": name}), 20.0)
    try:
        yield it
    finally:
        for client in (it.client, *it.consumers.values()):
            await client.stop()
        for server in it.servers:
            await server.stop()
        await lanes.stop()


LOCK, UNLOCK = RequestCode.LOCK_BATCH_MQ, RequestCode.UNLOCK_BATCH_MQ


@pytest.mark.parametrize("behind_proxy", [False, True])
def test_a_lock_holds_on_every_replica_and_so_does_giving_it_back(
    tmp_path: Path, *, behind_proxy: bool
) -> None:
    async def story() -> None:
        async with replicas(tmp_path, behind_proxy=behind_proxy) as it:
            assert await it.ask(0, "one", LOCK) == QUEUES
            # Whichever replica is asked, the queues are taken.
            assert await it.ask(1, "two", LOCK) == frozenset()
            assert await it.ask(2, "one", LOCK) == QUEUES
            await it.ask(1, "one", UNLOCK)
            # The others are told one way.
            await until(
                lambda: not any(one.holds_any("g", steady_ms()) for one in it.locks),
                "they are told",
            )
            assert await it.ask(2, "two", LOCK) == QUEUES

    asyncio.run(story())


def test_a_majority_is_enough_and_one_is_not(tmp_path: Path) -> None:
    async def story() -> None:
        async with replicas(tmp_path) as it:
            await it.servers[3].stop()
            assert await it.ask(0, "one", LOCK) == QUEUES
            await it.servers[2].stop()
            assert await it.ask(0, "one", LOCK) == frozenset()

    asyncio.run(story())


def test_a_lease_that_another_replica_gave_away_costs_its_vote_alone(tmp_path: Path) -> None:
    async def story() -> None:
        async with replicas(tmp_path) as it:
            taken = MessageQueue("t", "b", 1)
            for locks in it.locks[1:]:
                locks.lock("g", "other", [taken], steady_ms())
            assert await it.ask(0, "one", LOCK) == QUEUES - {taken}

    asyncio.run(story())


def test_without_strict_mode_each_broker_decides_alone(tmp_path: Path) -> None:
    async def story() -> None:
        async with replicas(tmp_path, strict=False) as it:
            assert await it.ask(0, "one", LOCK) == QUEUES
            assert await it.ask(1, "two", LOCK) == QUEUES

    asyncio.run(story())
