"""Connections of a pair that have ended keep no descriptor; the garbage collector is off."""

from __future__ import annotations

import asyncio
import collections
import ssl
from typing import TYPE_CHECKING

import pytest
import uvloop

from descriptors import alive, opened, returned, without_collector
from pair_harness import caught_up, connect, pair_world, until
from roquet.ha.frames import REPORT
from roquet.ha.master import SlaveLink
from roquet.ha.slave import MasterLink
from roquet.ha.threads import LogThread
from roquet.testing.pair import over_tls

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from roquet.broker.app import Broker

pytestmark = pytest.mark.usefixtures(without_collector.__name__)

STRANGERS = 12
"""Of one kind; the port has more places for them."""
HELLO = b"\x16\x03\x01\x02\x00\x01"
"""The first bytes of TLS, without the rest."""
LOOPS = [asyncio.new_event_loop, uvloop.new_event_loop]


async def visit(master: Broker, says: bytes, tls: ssl.SSLContext | None = None) -> None:
    """Come, say something and go."""
    _, writer = await connect(master, tls)
    writer.write(says)
    await writer.drain()
    writer.transport.abort()


@pytest.mark.parametrize("loop", LOOPS, ids=["asyncio", "uvloop"])
@pytest.mark.parametrize("is_tls", [False, True], ids=["plain", "tls"])
def test_strangers_leave_nothing_behind(
    tmp_path: Path, loop: Callable[[], asyncio.AbstractEventLoop], is_tls: bool
) -> None:
    async def run() -> None:
        tls = over_tls(tmp_path / "tls") if is_tls else {}
        context = None
        if is_tls:
            context = ssl.create_default_context(cafile=tls["haTlsTrustFile"])
            context.check_hostname = False
            context.load_cert_chain(tls["haTlsCertFile"], tls["haTlsKeyFile"])
        async with pair_world(tmp_path) as world, world.master(**tls) as master:
            await world.send(master)
            before, there = opened(), alive(LogThread)
            came = 0
            # Nothing, half of a TLS hello, a lie, and a report that begins the copying.
            for says in (b"", HELLO, b"\xff" * 8, REPORT.pack(0)):
                for _ in range(STRANGERS):
                    await visit(master, says, None if says == HELLO else context)
                    came += 1
            assert came == 4 * STRANGERS
            await returned(before)
            assert (alive(SlaveLink), alive(LogThread)) == (0, there)
            assert master.pair.master.slaves == []
            answer = await world.send(master)
            assert answer.code == 0

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(run())


@pytest.mark.parametrize("loop", LOOPS, ids=["asyncio", "uvloop"])
@pytest.mark.parametrize("is_tls", [False, True], ids=["plain", "tls"])
def test_slave_that_connects_again_leaves_nothing_behind_on_either_side(
    tmp_path: Path, loop: Callable[[], asyncio.AbstractEventLoop], is_tls: bool
) -> None:
    async def run() -> None:
        tls = over_tls(tmp_path / "tls") if is_tls else {}
        async with (
            pair_world(tmp_path) as world,
            world.master(**tls) as master,
            world.slave(of=master, **tls) as slave,
        ):
            await world.send(master)
            await caught_up(master, slave)
            await until(lambda: slave.metadata.topics.get("Pair"), "the topic is copied")
            # Calls between the brokers may need a connection or two more later.
            before = opened() + collections.Counter(socket=5)
            for number in range(12):
                link = slave.pair.slave.link
                assert link is not None
                link.close(f"a test wants connection {number}")
                await link.ended()
                # Whoever still has the link may ask it, and tell it something.
                assert (link.last_read_ms > 0, link.last_write_ms > 0) == (True, True)
                link.check()
                link.follow()
                link.close("it is closed already")
                del link
                await until(
                    lambda: slave.pair.slave.link is not None and slave.pair.slave.link.is_copying,
                    "it follows again",
                )
                await until(lambda: len(master.pair.master.slaves) == 1, "it is fed again")
            await world.send(master)
            await caught_up(master, slave)
            await returned(before)
            assert (alive(SlaveLink), alive(MasterLink), alive(LogThread)) == (1, 1, 2)

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(run())


def test_slave_without_a_master_leaves_nothing_behind(tmp_path: Path) -> None:
    """It is sent away with each try: it does not know the secret."""

    async def run() -> None:
        async with (
            pair_world(tmp_path) as world,
            world.master(haSharedSecret="one that has 22 bytes.") as master,
            world.slave(of=master, haSharedSecret="another one of 22 bytes") as slave,
        ):
            tries = 0
            state = slave.pair.slave
            seen: list[int] = []
            while tries < 12:
                await until(lambda: state.link is not None, "it tries")
                await until(lambda: state.link is None, "it is sent away")
                tries += 1
                seen.append(opened()["eventfd"])
            # Between two tries there is what there was after the first.
            await until(lambda: opened()["eventfd"] <= min(seen[:3]), f"no more than {seen}")
            assert alive(MasterLink) <= 1

    asyncio.run(run())
