"""What proves that a slave has its master's log, and what happens to one that has another."""

from __future__ import annotations

import asyncio
import shutil
from typing import TYPE_CHECKING

import pytest

from pair_harness import PairWorld, caught_up, connect, log_end, pair_world, until
from roquet.cli.upkeep.doctor import Verdict as Found
from roquet.cli.upkeep.doctor import examine
from roquet.ha.frames import HEADER, REPORT, PeerFault
from roquet.ha.replicas import ReplicaConfig, Replicas
from roquet.ha.tail import CLAIM_SIZE, WINDOW, Answer, Arrival, Tail, Verdict, encode_verdict
from roquet.protocol.codes import ResponseCode
from roquet.store.marks import diverged
from roquet.store.results import PutStatus
from roquet.store.upkeep.check import Level, check
from roquet.testing.cluster import broker_config
from roquet.testing.pair import over_tls

if TYPE_CHECKING:
    from pathlib import Path

    from roquet.broker.app import Broker

FAST = "UNIQ_KEY\x01u\x02"
"""Properties of a send that the core answers, once the topic is there."""
SYNC = {"brokerRole": "SYNC_MASTER", "slaveTimeout": "2000"}


def test_a_first_report_up_to_the_end_acknowledges_no_send_that_waits(tmp_path: Path) -> None:
    """Nothing was sent on its connection: fast path, slow path and a batch of both time out."""

    async def run() -> None:
        async with pair_world(tmp_path) as world, world.master(**SYNC) as master:
            _, lame = await connect(master)
            lame.write(REPORT.pack(0))
            await until(lambda: not master.state.lacks_slave, "a slave that never reports follows")
            await world.send(master, b"makes the topic", "WAIT\x01false\x02")
            begun = log_end(master)
            sends = [
                asyncio.create_task(world.send(master, b"fast", FAST)),
                asyncio.create_task(world.send(master, b"slow", "DELAY\x013\x02")),
            ]
            await until(lambda: log_end(master) > begun + 500, "both are stored")
            reader, liar = await connect(master)
            liar.write(REPORT.pack(log_end(master)))
            codes = {(await send).code for send in sends}
            assert codes == {ResponseCode.FLUSH_SLAVE_TIMEOUT}
            # What is appended now is sent to it, and its word for that counts.
            later = asyncio.create_task(world.send(master, b"later"))
            offset, size = HEADER.unpack(await reader.readexactly(HEADER.size))
            await reader.readexactly(size)
            liar.write(REPORT.pack(offset + size))
            assert (await later).code == ResponseCode.SUCCESS
            lame.close()
            liar.close()

    asyncio.run(run())


def test_a_first_report_acknowledges_no_send_that_a_thread_has_in_hand(tmp_path: Path) -> None:
    """A thread that begins to wait then looks at what has lapsed before what was copied."""

    async def run() -> None:
        async with (
            pair_world(tmp_path) as world,
            world.master(**SYNC, ioThreads="1") as master,
        ):
            await world.send(master, b"makes the topic", "WAIT\x01false\x02")
            _, lame = await connect(master)
            lame.write(REPORT.pack(0))
            await until(lambda: not master.state.lacks_slave, "a slave that never reports follows")
            # As if the send had been appended already: nothing waits, so no thread is woken.
            end = log_end(master) + 10_000
            master.pair.replicas.came("liar", "another host", end, proven=False)
            code = (await world.send(master, b"in hand", FAST)).code
            assert log_end(master) < end
            assert code == ResponseCode.FLUSH_SLAVE_TIMEOUT
            lame.close()

    asyncio.run(run())


def test_what_lapsed_is_released_by_no_later_report() -> None:
    async def run() -> None:
        replicas = Replicas(ReplicaConfig(slaves=1, timeout_s=60))
        lapsed: list[int] = []
        replicas.on_lapse(lapsed.append)
        replicas.came("old", "a", 10, proven=True)
        waiting = asyncio.create_task(replicas.copied(50))
        await asyncio.sleep(0)
        replicas.came("java", "b", 100, proven=False)
        assert (await waiting)[0] is PutStatus.FLUSH_SLAVE_TIMEOUT
        assert lapsed == [100]
        replicas.acked("java", "b", 200)
        assert (await replicas.copied(60))[0] is PutStatus.FLUSH_SLAVE_TIMEOUT, "it came late"
        assert replicas.has(200)
        assert not replicas.has(100)
        assert replicas.has(10)
        replicas.acked("old", "a", 150)
        assert replicas.has(100), "a proof makes good for it"
        replicas.came("third", "c", 150, proven=False)
        assert lapsed == [100]

    asyncio.run(run())


@pytest.mark.parametrize("over", ["plain", "tls"])
def test_a_level_slave_proves_it_and_counts_at_once(tmp_path: Path, over: str) -> None:
    more = over_tls(tmp_path) if over == "tls" else {}

    async def run() -> None:
        async with pair_world(tmp_path) as world, world.master(**SYNC, **more) as master:
            async with world.slave(of=master, **more) as slave:
                await until(lambda: not master.state.lacks_slave, "the slave follows")
                assert (await world.send(master, b"one")).code == ResponseCode.SUCCESS
                await caught_up(master, slave)
            async with world.slave(of=master, **more) as slave:
                await until(lambda: not master.state.lacks_slave, "the slave follows again")
                assert master.pair.replicas.has(log_end(master))
                assert (await world.send(master, b"two")).code == ResponseCode.SUCCESS
                await caught_up(master, slave)

    asyncio.run(run())


async def part(world: PairWorld, extra: int, **more: str) -> None:
    """Let a pair copy, then let both logs grow apart; `extra` is what the later slave has more."""
    async with world.master(**more) as master, world.slave(of=master, **more) as slave:
        await world.send(master, b"common")
        await caught_up(master, slave)
    async with world.master(**more) as master:
        await world.send(master, b"only on the old master")
        for _ in range(extra):
            await world.send(master, b"more of it")
    # By hand: the slave's store leads, and the old master's follows.
    for was, now in (("master", "old"), ("slave", "master"), ("old", "slave")):
        (world.folder / was).rename(world.folder / now)
    async with world.master(**more) as master:
        await world.send(master, b"only on the new one!!!")
        await world.send(master, b"and another")


async def refused(world: PairWorld, master: Broker, **more: str) -> None:
    before = (world.folder / "slave" / "commitlog").stat()
    async with world.slave(of=master, slaveReadEnable="true", **more) as slave:
        end = log_end(slave)
        await until(lambda: slave.state.has_diverged, "the slave is refused")
        sent = await world.send(master, b"asks for a copy")
        assert sent.code == ResponseCode.SLAVE_NOT_AVAILABLE
        assert log_end(slave) == end, "not a byte of another log is copied"
        assert (await world.pull(slave)).code == ResponseCode.NO_PERMISSION
        assert master.pair.replicas.by_slave() == {}
    assert (world.folder / "slave" / "commitlog").stat().st_ino == before.st_ino


@pytest.mark.parametrize("over", ["plain", "tls"])
@pytest.mark.parametrize("extra", [0, 10], ids=["shorter", "longer"])
def test_an_old_master_whose_log_differs_is_refused_and_says_what_to_type(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, over: str, extra: int
) -> None:
    more = over_tls(tmp_path) if over == "tls" else {}

    async def run() -> None:
        async with pair_world(tmp_path) as world:
            await part(world, extra, **more)
            async with world.master(**SYNC, **more) as master:
                await refused(world, master, **more)
                store = tmp_path / "slave"
                helps = [it.helps for it in check(store).findings if it.level is Level.DAMAGE]
                remedy = diverged.remedy(store)
                assert helps == [remedy]
                assert remedy in caplog.text
                config = broker_config(store, brokerRole="SLAVE", brokerId="1")
                found = await asyncio.to_thread(lambda: list(examine(config)))
                looks = {it.about: it for it in found}
                assert looks["copy of the master"].verdict is Found.FAIL
                assert remedy in looks["copy of the master"].helps
                # As the line says: nothing is deleted, and the pair is one again.
                store.rename(tmp_path / "slave.set-aside")
                async with world.slave(of=master, **more) as slave:
                    await caught_up(master, slave)
                    assert not slave.state.has_diverged

    asyncio.run(run())


def test_the_mark_goes_when_the_log_is_a_copy_again(tmp_path: Path) -> None:
    async def run() -> None:
        async with pair_world(tmp_path) as world, world.master() as master:
            async with world.slave(of=master) as slave:
                await world.send(master, b"one")
                await caught_up(master, slave)
            diverged.mark(tmp_path / "slave", "the wrong master was there")
            async with world.slave() as slave:
                assert slave.state.has_diverged, "from the start, before any master is known"
                await until(lambda: not slave.state.has_diverged, "the master has compared")
            assert diverged.read(tmp_path / "slave") is None
            shutil.copytree(tmp_path / "slave", tmp_path / "second")
        diverged.mark(tmp_path / "master", "refused once")
        async with pair_world(tmp_path) as world, world.master() as master:
            assert not master.state.has_diverged
        assert diverged.read(tmp_path / "master") is None

    asyncio.run(run())


TAIL = Tail(5_000, 3_000, bytes(range(28)))


def test_a_java_master_sees_no_offset_in_a_digest() -> None:
    """It takes the last whole number of a read, and waits while that is negative."""
    words = TAIL.encode()
    assert len(words) == CLAIM_SIZE
    numbers = [number for (number,) in REPORT.iter_unpack(words)]
    assert all(number < -1 for number in numbers)


def test_a_digest_is_read_whatever_the_cuts_and_refused_when_it_makes_no_sense() -> None:
    data = TAIL.encode() + REPORT.pack(5_010) + b"rest"
    for cut in range(1, len(data)):
        arrival = Arrival()
        pieces = [arrival.receive(it) for it in (data[:cut], data[cut:])]
        come = [it for it in pieces if it is not None]
        assert come[0][:2] == (TAIL, 5_010)
    assert Arrival().receive(REPORT.pack(7) + b"x") == (None, 7, b"x")
    for bad in (
        REPORT.pack(-1),
        TAIL.encode() + REPORT.pack(4_999),
        TAIL.encode() + REPORT.pack(-1),
        Tail(WINDOW * 2, WINDOW + 1, TAIL.digest).encode() + REPORT.pack(WINDOW * 2),
        Tail(10, 11, TAIL.digest).encode() + REPORT.pack(10),
        b"\x81ROQTAIX" + TAIL.encode()[8:] + REPORT.pack(5_000),
    ):
        with pytest.raises(PeerFault):
            Arrival().receive(bad)


def test_an_answer_is_told_from_the_frames_of_a_java_master() -> None:
    for verdict in Verdict:
        answer = Answer()
        data = encode_verdict(verdict, 77)
        assert answer.receive(data[:5]) is None
        assert answer.receive(data[5:] + b"rest") == (verdict, b"rest")
    frame = HEADER.pack(77, 3) + b"abc"
    assert Answer().receive(frame) == (None, frame)
