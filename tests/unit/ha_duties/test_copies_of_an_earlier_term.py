"""What slaves copied of an earlier term acknowledges nothing of a later one."""

from __future__ import annotations

import asyncio
import contextlib
import struct
from typing import TYPE_CHECKING

import pytest

from pair_harness import caught_up, connect, log_end, pair_world, until
from roquet.broker.replication.duties import Role
from roquet.ha.frames import HEADER, REPORT
from roquet.ha.tail import CLAIM_SIZE, Arrival, Verdict, encode_verdict
from roquet.protocol.codes import ResponseCode
from roquet.protocol.hosts import split_address

if TYPE_CHECKING:
    from pathlib import Path

    from pair_harness import PairWorld
    from roquet.broker.app import Broker

LEADS, FOLLOWS = Role("SYNC_MASTER", 0), Role("SLAVE", 1)
SYNC = {"brokerRole": "SYNC_MASTER", "slaveTimeout": "1000"}
HALF = 60
"""Bytes of a record: enough to see what it is."""


class Door:
    """Where a broker looks for its master: the one that is told, or a master of half a record."""

    def __init__(self, record: bytes = b"") -> None:
        self.to: Broker | None = None
        self.record = record

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one connection."""
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            claim = await reader.readexactly(CLAIM_SIZE + REPORT.size)
            if self.to is not None:
                address = split_address(self.to.identity.ha_address)
                up_reader, up_writer = await asyncio.open_connection(*address)
                up_writer.write(claim)
                await asyncio.gather(_pipe(reader, up_writer), _pipe(up_reader, writer))
                return
            came = Arrival().receive(claim)
            assert came is not None
            end = came[1]
            # A record says where it begins.
            half = (self.record[:28] + struct.pack(">Q", end) + self.record[36:])[:HALF]
            writer.write(encode_verdict(Verdict.PROCEED, end) + HEADER.pack(end, HALF) + half)
            await reader.read()
        writer.close()


async def _pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(1 << 16):
            writer.write(data)
    finally:
        writer.close()


async def codes(world: PairWorld, to: Broker) -> set[int]:
    """Return the codes of a send that the core answers and of one that the services answer."""
    sends = (world.send(to, b"fast", "UNIQ_KEY\x01u\x02"), world.send(to, b"slow"))
    return {(await send).code for send in sends}


async def is_copied(world: PairWorld, to: Broker, slave: Broker) -> None:
    """Have messages acknowledged, each only once the slave has it."""
    await until(lambda: not to.state.lacks_slave, "the slave follows")
    for _ in range(4):
        assert await codes(world, to) == {ResponseCode.SUCCESS}
        assert log_end(slave) == log_end(to) == to.pair.replicas.watermark


@pytest.mark.parametrize("threads", ["0", "1"])
def test_what_a_slave_had_in_an_earlier_term_acknowledges_nothing_later(
    tmp_path: Path, threads: str
) -> None:
    """Not after another master led, nor after its half record, nor with a new and empty slave."""

    async def run() -> None:
        door = Door()
        server = await asyncio.start_server(door.serve, "127.0.0.1", 0)
        more = {"haMasterAddress": f"127.0.0.1:{server.sockets[0].getsockname()[1]}"}
        async with (
            pair_world(tmp_path) as world,
            world.master(**SYNC, **more, ioThreads=threads) as a,
        ):
            async with world.slave(of=a, slaveTimeout="1000") as b:
                await is_copied(world, a, b)
                door.record = a.pair.master.log.read(0, 200)
                door.to = b
                await a.duties.become(FOLLOWS)
                await b.duties.become(LEADS)
                await is_copied(world, b, a)
                await caught_up(b, a)
                await b.duties.become(FOLLOWS)
                await a.duties.become(LEADS)
                await is_copied(world, a, b)
            await until(lambda: a.state.lacks_slave, "the slave has gone")
            await alone(world, a, door)
            async with world.slave(of=a, folder="new") as c:
                await until(a.pair.replicas.by_slave, "the new slave comes")
                await is_copied(world, a, c)
        server.close()

    async def alone(world: PairWorld, a: Broker, door: Door) -> None:
        copied, door.to = a.pair.replicas.watermark, None
        assert copied == log_end(a)
        await a.duties.become(FOLLOWS)
        await until(lambda: log_end(a) == copied + HALF, "half a record is copied")
        await a.duties.become(LEADS)
        # Never less: a message that ends in front of what was copied would be acknowledged.
        assert log_end(a) == copied == a.pair.replicas.watermark
        assert await codes(world, a) == {ResponseCode.SLAVE_NOT_AVAILABLE}
        _, lame = await connect(a)
        lame.write(REPORT.pack(0))
        await until(lambda: not a.state.lacks_slave, "a slave that never reports follows")
        assert await codes(world, a) == {ResponseCode.FLUSH_SLAVE_TIMEOUT}
        lame.close()
        await until(lambda: a.state.lacks_slave, "it has gone")

    asyncio.run(run())
