"""Queue locks that a majority of the replicas has to grant: three brokers of one name."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from roquet.base.clock import SystemClock
from roquet.broker.lock_votes import LockRules, LockVotes
from roquet.broker.locks import QueueLocks
from roquet.broker.processors.lock import Lock
from roquet.broker.state import Identity
from roquet.model.queue import MessageQueue
from roquet.protocol.bodies.locks import LockRequest, decode_locked
from roquet.protocol.bodies.routes import encode_member_group
from roquet.protocol.codes import RequestCode
from roquet.protocol.command import Command, reply_to
from roquet.remoting.client import Client
from roquet.remoting.router import Request, Route, Router
from roquet.remoting.server import Server
from roquet.service.lanes import LaneConfig, Lanes
from roquet.testing.clock import FakeClock
from transaction_harness import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

NOW_MS = 1_700_000_000_000
QUEUES = frozenset(MessageQueue("t", "b", number) for number in range(3))


class Replicas:
    """A name server and three replicas, each with leases of its own and a real port."""

    def __init__(self) -> None:
        self.locks = [QueueLocks() for _ in range(3)]
        self.servers: list[Server] = []
        self.addresses: dict[int, str] = {}
        self.client = Client(clock=SystemClock())

    def members(self, request: Request) -> Command:
        return reply_to(request.command, body=encode_member_group("c", "b", self.addresses))

    async def ask(self, replica: int, client_id: str, code: RequestCode) -> frozenset[MessageQueue]:
        body = LockRequest(client_id=client_id, group="g", queues=QUEUES).encode()
        command = Command(code, ext={}, body=body)
        answer = await self.client.call(self.addresses[replica], command, 20.0)
        assert answer.code == 0
        return decode_locked(answer.body) if answer.body else frozenset()


@contextlib.asynccontextmanager
async def replicas(*, strict: bool = True) -> AsyncIterator[Replicas]:
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
        rules = LockRules(strict=strict, replicas=3)
        votes = LockVotes(it.client, identity, [f"127.0.0.1:{name_server.port}"], rules)
        lock = Lock(locks, clock, votes if votes.needed else None)
        server = Server(
            host="127.0.0.1",
            port=0,
            router=Router(lock.routes(), None, lanes, clock),
            clock=clock,
        )
        await server.start()
        it.servers.append(server)
        it.addresses[number] = f"127.0.0.1:{server.port}"
    try:
        yield it
    finally:
        await it.client.stop()
        for server in it.servers:
            await server.stop()
        await lanes.stop()


LOCK, UNLOCK = RequestCode.LOCK_BATCH_MQ, RequestCode.UNLOCK_BATCH_MQ


def test_a_lock_holds_on_every_replica_and_so_does_giving_it_back() -> None:
    async def story() -> None:
        async with replicas() as it:
            assert await it.ask(0, "one", LOCK) == QUEUES
            # Whichever replica is asked, the queues are taken.
            assert await it.ask(1, "two", LOCK) == frozenset()
            assert await it.ask(2, "one", LOCK) == QUEUES
            await it.ask(1, "one", UNLOCK)
            # The others are told one way.
            await until(
                lambda: not any(one.holds_any("g", NOW_MS) for one in it.locks), "they are told"
            )
            assert await it.ask(2, "two", LOCK) == QUEUES

    asyncio.run(story())


def test_a_majority_is_enough_and_one_is_not() -> None:
    async def story() -> None:
        async with replicas() as it:
            await it.servers[3].stop()
            assert await it.ask(0, "one", LOCK) == QUEUES
            await it.servers[2].stop()
            assert await it.ask(0, "one", LOCK) == frozenset()

    asyncio.run(story())


def test_a_lease_that_another_replica_gave_away_costs_its_vote_alone() -> None:
    async def story() -> None:
        async with replicas() as it:
            taken = MessageQueue("t", "b", 1)
            for locks in it.locks[1:]:
                locks.lock("g", "other", [taken], NOW_MS)
            assert await it.ask(0, "one", LOCK) == QUEUES - {taken}

    asyncio.run(story())


def test_without_strict_mode_each_broker_decides_alone() -> None:
    async def story() -> None:
        async with replicas(strict=False) as it:
            assert await it.ask(0, "one", LOCK) == QUEUES
            assert await it.ask(1, "two", LOCK) == QUEUES

    asyncio.run(story())
