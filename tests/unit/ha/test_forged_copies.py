"""What a peer says that has no copy: no send is acknowledged for it."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from typing import TYPE_CHECKING

import pytest

from pair_harness import connect, log_end, pair_world, until
from roquet.ha.frames import HEADER, REPORT
from roquet.ha.tail import Tail, Verdict
from roquet.protocol.codes import ResponseCode

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from pathlib import Path

    from pair_harness import PairWorld
    from roquet.broker.app import Broker
    from roquet.protocol.command import Command

SYNC = {"brokerRole": "SYNC_MASTER", "slaveTimeout": "20000"}
FILE = 1 << 20
LATER = "WAIT\x01false\x02"
PROPERTIES = {"fast": "UNIQ_KEY\x01u\x02", "slow": "DELAY\x013\x02"}
"""Of sends that the core answers, and of those that it does not."""


@contextlib.asynccontextmanager
async def waiting(
    world: PairWorld, master: Broker, *, fill_to: int = 0
) -> AsyncGenerator[list[asyncio.Task[Command]]]:
    """Store messages that wait for a copy, at the end of a log of at least `fill_to` bytes."""
    _, lame = await connect(master)
    lame.write(REPORT.pack(0))
    await until(lambda: not master.state.lacks_slave, "a slave that never reports follows")
    await world.send(master, b"makes the topic", LATER)
    while log_end(master) < fill_to:
        await world.send(master, b"x" * 100_000, LATER)
    begun = log_end(master)
    sends = [asyncio.create_task(world.send(master, b"here", it)) for it in PROPERTIES.values()]
    await until(lambda: log_end(master) > begun + 500, "both are stored")
    yield sends
    lame.close()


async def codes(sends: list[asyncio.Task[Command]]) -> set[int]:
    return {(await send).code for send in sends}


@pytest.mark.parametrize("threads", ["0", "1"])
def test_slave_that_begins_with_the_last_file_acknowledges_nothing_before_it(
    tmp_path: Path, threads: str
) -> None:
    async def run() -> None:
        async with (
            pair_world(tmp_path) as world,
            world.master(**SYNC, ioThreads=threads) as master,
            waiting(world, master, fill_to=FILE - 200_000) as sends,
        ):
            while log_end(master) < FILE:
                await world.send(master, b"x" * 100_000, LATER)
            reader, new = await connect(master)
            new.write(REPORT.pack(0))
            offset, size = HEADER.unpack(await reader.readexactly(HEADER.size))
            assert offset == FILE, "older files are not sent"
            await reader.readexactly(size)
            new.write(REPORT.pack(offset + size))
            assert await codes(sends) == {ResponseCode.FLUSH_SLAVE_TIMEOUT}
            # What follows is sent to it, and its word for that counts.
            later = asyncio.create_task(world.send(master, b"later", PROPERTIES["fast"]))
            while not later.done():
                offset, size = HEADER.unpack(await reader.readexactly(HEADER.size))
                await reader.readexactly(size)
                new.write(REPORT.pack(offset + size))
                await asyncio.sleep(0.05)
            assert later.result().code == ResponseCode.SUCCESS
            new.close()

    asyncio.run(run())


@pytest.mark.parametrize("size", [1, 40])
def test_digest_of_a_few_bytes_proves_no_copy(tmp_path: Path, size: int) -> None:
    """A peer that has nothing guesses one byte in 256 tries, and what it sent itself at once."""

    async def run() -> None:
        async with (
            pair_world(tmp_path) as world,
            world.master(**SYNC) as master,
            waiting(world, master) as sends,
        ):
            end = log_end(master)
            guess = master.pair.master.log.read(end - size, size)
            reader, liar = await connect(master)
            tail = Tail(end, size, hashlib.sha256(guess).digest()[:28])
            liar.write(tail.encode() + REPORT.pack(end))
            assert HEADER.unpack(await reader.readexactly(HEADER.size))[1] == Verdict.PROCEED
            assert await codes(sends) == {ResponseCode.FLUSH_SLAVE_TIMEOUT}
            liar.close()

    asyncio.run(run())
