"""A log that ends inside a record: what is behind the last whole one is nobody's copy.

The digest that a slave shows covers whole records. A slave that was cut off in the middle of a
record has bytes behind them that no digest covers, and another master may have another record
there.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from typing import TYPE_CHECKING

import pytest

from pair_harness import caught_up, connect, log_end, pair_world, until
from roquet.ha.frames import HEADER, REPORT
from roquet.ha.replicas import ReplicaConfig, Replicas
from roquet.ha.tail import CLAIM_SIZE, Arrival, Tail, Verdict, encode_verdict
from roquet.protocol.codes import ResponseCode
from roquet.protocol.hosts import split_address

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from pathlib import Path

    from roquet.broker.app import Broker

SYNC = {"brokerRole": "SYNC_MASTER", "slaveTimeout": "2000"}
HALF = 700
"""Bytes that a slave has of a record that is longer."""


def tail_to(master: Broker, end: int) -> bytes:
    """Return what a slave shows whose log is the master's up to `end`."""
    data = master.pair.master.log.read(0, end)
    assert len(data) == end
    return Tail(end, end, hashlib.sha256(data).digest()[:28]).encode()


@contextlib.asynccontextmanager
async def idle_slave(master: Broker) -> AsyncGenerator[None]:
    """Have a slave that follows and acknowledges nothing, so that sends wait for copies."""
    _, lame = await connect(master)
    lame.write(REPORT.pack(0))
    await until(lambda: not master.state.lacks_slave, "a slave that never reports follows")
    yield
    lame.close()


@pytest.mark.parametrize("threads", ["0", "1"])
@pytest.mark.parametrize("properties", ["UNIQ_KEY\x01u\x02", ""], ids=["fast", "slow"])
@pytest.mark.parametrize("shows", [True, False], ids=["digest", "java"])
def test_report_inside_a_record_acknowledges_no_send(
    tmp_path: Path, threads: str, properties: str, *, shows: bool
) -> None:
    async def run() -> None:
        async with (
            pair_world(tmp_path) as world,
            world.master(**SYNC, ioThreads=threads) as master,
            idle_slave(master),
        ):
            await world.send(master, b"common", "WAIT\x01false\x02")
            common = log_end(master)
            await until(lambda: master.pair.master.log.limit == common, "it may be copied")
            sends = [
                asyncio.create_task(world.send(master, b"x" * 50, properties)),
                asyncio.create_task(world.send(master, b"y" * 3 * HALF, properties)),
            ]
            await until(lambda: log_end(master) > common + 3 * HALF, "both are stored")
            await until(lambda: master.pair.master.log.limit > common + HALF, "they may be copied")
            reader, other = await connect(master)
            report = common + HALF
            if shows:
                other.write(tail_to(master, common) + REPORT.pack(report))
                verdict = HEADER.unpack(await reader.readexactly(HEADER.size))[1]
                assert verdict == Verdict.PROCEED
            else:
                other.write(REPORT.pack(report))
            # It has the rest of the second record on this connection, but not its beginning.
            offset, size = HEADER.unpack(await reader.readexactly(HEADER.size))
            assert offset == report
            await reader.readexactly(size)
            other.write(REPORT.pack(offset + size))
            codes = [(await send).code for send in sends]
            assert codes == [ResponseCode.FLUSH_SLAVE_TIMEOUT] * 2
            other.close()

    asyncio.run(run())


def test_record_around_a_report_without_a_proof_is_released_by_no_later_report() -> None:
    replicas = Replicas(ReplicaConfig(slaves=1))
    lapsed: list[int] = []
    replicas.on_lapse(lapsed.append)
    replicas.came("a", "slave a", 10, proven=True)
    replicas.came("b", "slave b", 10, proven=False, doubt=30)
    assert lapsed == [30]
    replicas.acked("b", "slave b", 40)
    held = [end for end in (10, 11, 30, 31, 40) if replicas.has(end)]
    assert held == [10, 31, 40]
    replicas.came("c", "slave c", 20, proven=False, doubt=40)
    assert lapsed == [30], "all of it is a copy that was sent"


class CutOff:
    """Stands before a master; its first connection breaks in the middle of a record."""

    def __init__(self, master: Broker, first: bytes) -> None:
        """`first` is the beginning of the log that the first connection brings."""
        self._master = master
        self._first = first
        self.reports: list[tuple[int, int]] = []
        """Of each connection: where the digest ends, and the report."""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one connection."""
        claim = await reader.readexactly(CLAIM_SIZE + REPORT.size)
        came = Arrival().receive(claim)
        assert came is not None
        tail, report, _ = came
        assert tail is not None
        self.reports.append((tail.end, report))
        if len(self.reports) == 1:
            writer.write(encode_verdict(Verdict.PROCEED, report))
            writer.write(HEADER.pack(0, len(self._first)) + self._first)
            while REPORT.unpack(await reader.readexactly(REPORT.size))[0] < len(self._first):
                pass
            writer.close()
            return
        there = await asyncio.open_connection(*split_address(self._master.identity.ha_address))
        there[1].write(claim)
        with contextlib.suppress(OSError):
            await asyncio.gather(_pipe(reader, there[1]), _pipe(there[0], writer))


async def _pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(1 << 16):
        writer.write(data)
    writer.close()


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_slave_that_was_cut_off_inside_a_record_reports_no_more_than_its_digest_covers(
    tmp_path: Path, flush: str
) -> None:
    async def run() -> None:
        async with pair_world(tmp_path) as world, world.master() as master:
            await world.send(master, b"common")
            common = log_end(master)
            await world.send(master, b"z" * 3 * HALF)
            cut = CutOff(master, master.pair.master.log.read(0, common + HALF))
            server = await asyncio.start_server(cut.serve, "127.0.0.1", 0)
            address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
            async with world.slave(haMasterAddress=address, flushDiskType=flush) as slave:
                await caught_up(master, slave)
                assert cut.reports == [(0, 0), (common, common)]
            server.close()

    asyncio.run(run())
