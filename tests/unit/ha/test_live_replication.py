"""Settings of replication and of strict locks that a running broker obeys at once."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import ssl
import struct
from typing import TYPE_CHECKING

import pytest

from pair_harness import SOON, PairWorld, connect, log_end, pair_world, until
from roquet.model.queue import MessageQueue
from roquet.protocol.bodies.clients import ConsumerData, HeartbeatData
from roquet.protocol.bodies.locks import LockRequest, decode_locked
from roquet.protocol.codes import RequestCode
from roquet.protocol.command import Command
from roquet.protocol.tags import subscribe
from roquet.testing.pair import over_tls

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable
    from pathlib import Path

    from roquet.broker.app import Broker

NEVER = "60000000"
QUIET = {**SOON, "haSendHeartbeatInterval": NEVER, "haHousekeepingInterval": NEVER}
FRAME = struct.Struct(">qi")
SOON_S = 15.0
"""Longer than a loaded machine needs, shorter than what the defaults would take."""


@dataclasses.dataclass
class RawSlave:
    """The other end of a slave's connection, as Java's slave speaks: reports, nothing else."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    def report(self, offset: int) -> None:
        self.writer.write(struct.pack(">q", offset))

    async def frame(self) -> bytes:
        """Return the next piece of the log; empty for a heartbeat."""
        _, size = FRAME.unpack(await self.reader.readexactly(FRAME.size))
        return await self.reader.readexactly(size)


@contextlib.asynccontextmanager
async def raw_slave(master: Broker, tls: ssl.SSLContext | None = None) -> AsyncGenerator[RawSlave]:
    """Connect a slave that has the whole log, and end it."""
    slave = RawSlave(*await connect(master, tls))
    slave.report(log_end(master))
    await until(lambda: len(master.pair.master.slaves) == 1, "the slave is fed")
    yield slave
    slave.writer.close()


async def change(world: PairWorld, broker: Broker, **values: str) -> None:
    text = "".join(f"{key}={value}\n" for key, value in values.items())
    command = Command(RequestCode.UPDATE_BROKER_CONFIG, body=text.encode())
    answer = await world.client.call(broker.identity.address, command, 10.0)
    assert answer.code == 0, answer.remark


def play(tmp_path: Path, tell: Callable[[PairWorld], Awaitable[None]]) -> None:
    async def main() -> None:
        async with pair_world(tmp_path) as world, asyncio.timeout(60):
            await tell(world)

    asyncio.run(main())


def test_heartbeats_of_a_running_master_come_at_the_changed_interval(tmp_path: Path) -> None:
    async def tell(world: PairWorld) -> None:
        async with world.master(**QUIET) as master:
            await world.send(master)
            async with raw_slave(master) as slave:
                await change(world, master, haSendHeartbeatInterval="50")
                async with asyncio.timeout(SOON_S):
                    assert [await slave.frame() for _ in range(20)] == [b""] * 20

    play(tmp_path, tell)


def test_silent_slave_of_a_running_master_is_dropped_after_the_changed_time(
    tmp_path: Path,
) -> None:
    async def tell(world: PairWorld) -> None:
        async with world.master(**QUIET) as master:
            await world.send(master)
            async with raw_slave(master) as slave:
                await change(world, master, haHousekeepingInterval="50")
                async with asyncio.timeout(SOON_S):
                    assert await slave.reader.read() == b""

    play(tmp_path, tell)


@pytest.mark.parametrize(
    "changed",
    [
        {"haTransferBatchSize": "100"},
        {"haFlowControlEnable": "true", "maxHaTransferByteInSecond": "100"},
    ],
)
def test_pieces_of_a_running_master_are_as_long_as_the_changed_limits_allow(
    tmp_path: Path, changed: dict[str, str]
) -> None:
    async def tell(world: PairWorld) -> None:
        async with world.master(**QUIET) as master:
            await world.send(master)
            async with raw_slave(master) as slave:
                await world.send(master, b"x" * 1000)
                whole = await slave.frame()
                assert len(whole) > 1000
                slave.report(log_end(master))
                await change(world, master, **changed)
                await world.send(master, b"x" * 1000)
                assert len(await slave.frame()) == 100

    play(tmp_path, tell)


def test_limits_of_a_running_master_reach_slaves_over_tls(tmp_path: Path) -> None:
    async def tell(world: PairWorld) -> None:
        tls = over_tls(tmp_path)
        context = ssl.create_default_context(cafile=tls["haTlsTrustFile"])
        context.check_hostname = False
        context.load_cert_chain(tls["haTlsCertFile"], tls["haTlsKeyFile"])
        async with world.master(**QUIET, **tls) as master:
            await world.send(master)
            async with raw_slave(master, context) as slave:
                await change(world, master, haTransferBatchSize="100")
                await world.send(master, b"x" * 1000)
                assert len(await slave.frame()) == 100

    play(tmp_path, tell)


def test_silent_master_is_left_by_a_running_slave_after_the_changed_time(tmp_path: Path) -> None:
    async def tell(world: PairWorld) -> None:
        async with (
            world.master(**QUIET) as master,
            world.slave(master, **{**QUIET, "haReconnectInterval": NEVER}) as slave,
        ):
            await until(lambda: len(master.pair.master.slaves) == 1, "the slave is fed")
            await change(world, slave, haHousekeepingInterval="50")
            await until(lambda: master.pair.master.slaves == [], "the slave has left")

    play(tmp_path, tell)


def test_copies_that_a_running_master_asks_for_are_those_of_the_changed_settings(
    tmp_path: Path,
) -> None:
    async def tell(world: PairWorld) -> None:
        given = {**QUIET, "brokerRole": "SYNC_MASTER", "inSyncReplicas": "1"}
        async with world.master(**given) as master:
            assert (await world.send(master)).code == 0
            await change(world, master, inSyncReplicas="2", slaveTimeout=NEVER)
            assert (await world.send(master)).code == 11
            async with raw_slave(master) as slave:
                sending = asyncio.create_task(world.send(master))
                await slave.frame()
                slave.report(log_end(master))
                assert (await sending).code == 0
                await change(world, master, slaveTimeout="50")
                async with asyncio.timeout(SOON_S):
                    assert [(await world.send(master)).code for _ in range(10)] == [12] * 10
                await change(world, master, haMaxGapNotInSync="1")
                assert (await world.send(master)).code == 11
                await change(world, master, inSyncReplicas="1")
                assert (await world.send(master)).code == 0

    play(tmp_path, tell)


def test_locks_of_a_running_broker_need_the_changed_majority(tmp_path: Path) -> None:
    async def tell(world: PairWorld) -> None:
        async with world.master() as master:
            await world.send(master)
            consumer = ConsumerData(group="g", subscriptions=(subscribe("Pair", "*"),))
            heartbeat = HeartbeatData(client_id="c", consumers=(consumer,)).encode()
            queues = frozenset({MessageQueue("Pair", "broker-a", 0)})
            asked = LockRequest(client_id="c", group="g", queues=queues).encode()

            async def ask(code: RequestCode, body: bytes) -> Command:
                command = Command(code, body=body)
                return await world.client.call(master.identity.address, command, 10.0)

            assert (await ask(RequestCode.HEART_BEAT, heartbeat)).code == 0

            async def granted() -> frozenset[MessageQueue]:
                return decode_locked((await ask(RequestCode.LOCK_BATCH_MQ, asked)).body)

            assert await granted() == queues
            await change(world, master, totalReplicas="3")
            assert await granted() == queues
            await change(world, master, lockInStrictMode="true")
            assert await granted() == frozenset()
            await change(world, master, totalReplicas="1")
            assert await granted() == queues

    play(tmp_path, tell)
