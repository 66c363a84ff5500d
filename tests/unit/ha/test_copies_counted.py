"""What an acknowledgement waits for: as many slaves as are asked for, batches like single sends."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from pair_harness import caught_up, log_end, pair_world, until
from roquet.ha.replicas import ReplicaConfig, Replicas
from roquet.protocol.codes import RequestCode, ResponseCode
from roquet.protocol.messages.batch import encode
from roquet.remoting.blocking import BlockingConnection
from roquet.store.results import PutStatus
from roquet.testing.cluster import send_command

if TYPE_CHECKING:
    from pathlib import Path

    from pair_harness import PairWorld
    from roquet.broker.app import Broker
    from roquet.protocol.command import Command


def test_watermark_with_two_slaves_wanted_is_the_slower_ones_offset() -> None:
    replicas = Replicas(ReplicaConfig(slaves=2))
    told: list[int] = []
    replicas.listen(told.append)
    replicas.acked("a", "slave a", 100)
    assert (replicas.watermark, replicas.has(1)) == (0, False)
    replicas.acked("b", "slave b", 40)
    assert (replicas.watermark, replicas.has(40), replicas.has(41)) == (40, True, False)
    replicas.acked("c", "slave c", 70)
    assert replicas.watermark == 70
    replicas.left("a")
    # What was acknowledged stays acknowledged.
    assert replicas.watermark == 70
    replicas.acked("b", "slave b", 90)
    assert replicas.watermark == 70
    replicas.acked("c", "slave c", 95)
    assert replicas.watermark == 90
    assert told[-1] == 90


def test_send_that_needs_two_copies_waits_for_the_second_slave() -> None:
    async def run() -> None:
        replicas = Replicas(ReplicaConfig(slaves=2, timeout_s=30, gap_max=1000))
        replicas.acked("a", "slave a", 0)
        assert (await replicas.copied(10))[0] is PutStatus.SLAVE_NOT_AVAILABLE
        replicas.acked("b", "slave b", 0)
        waiting = asyncio.create_task(replicas.copied(10))
        await asyncio.sleep(0)
        replicas.acked("a", "slave a", 500)
        await asyncio.sleep(0.01)
        assert not waiting.done()
        replicas.acked("b", "slave b", 10)
        assert (await waiting)[0] is PutStatus.PUT_OK

    asyncio.run(run())


@pytest.mark.parametrize(("behind", "follows"), [(999, True), (1000, False)])
def test_slave_that_is_a_gap_behind_does_not_count_as_following(
    behind: int, *, follows: bool
) -> None:
    replicas = Replicas(ReplicaConfig(slaves=1, gap_max=1000))
    replicas.acked("a", "slave a", 5000 - behind)
    assert replicas.following(5000) == int(follows)
    assert replicas.lacks_slaves(5000) is not follows


async def send_batch(world: PairWorld, to: Broker, wait: str = "true") -> Command:
    element = (0, b"body", b"UNIQ_KEY\x01u\x02")
    text = f"WAIT\x01{wait}\x02"
    command = send_command("Pair", encode([element, element]), 0, text, m="true")
    command.code = RequestCode.SEND_BATCH_MESSAGE
    return await world.client.call(to.identity.address, command, 20.0)


@pytest.mark.parametrize(("fast", "threads"), [("true", "0"), ("true", "1"), ("false", "1")])
def test_batch_is_acknowledged_once_a_slave_has_it(tmp_path: Path, fast: str, threads: str) -> None:
    async def run() -> None:
        async with (
            pair_world(tmp_path) as world,
            world.master(
                brokerRole="SYNC_MASTER",
                slaveTimeout="60000",
                fastPathEnable=fast,
                ioThreads=threads,
            ) as master,
        ):
            alone = await send_batch(world, master)
            assert alone.code == ResponseCode.SLAVE_NOT_AVAILABLE
            assert (await send_batch(world, master, "false")).code == ResponseCode.SUCCESS
            async with world.slave(of=master) as slave:
                await until(lambda: not master.state.lacks_slave, "the slave follows")
                for _ in range(10):
                    both = await send_batch(world, master)
                    assert both.code == ResponseCode.SUCCESS, both.remark
                    assert log_end(slave) == log_end(master)

    asyncio.run(run())


@pytest.mark.parametrize("check", ["false", "true"])
def test_pull_beyond_the_end_of_a_slave_keeps_the_offset_unless_it_is_checked(
    tmp_path: Path, check: str
) -> None:
    async def run() -> None:
        async with (
            pair_world(tmp_path) as world,
            world.master() as master,
            world.slave(of=master, slaveReadEnable="true", offsetCheckInSlave=check) as slave,
        ):
            await world.send(master, b"one")
            await until(lambda: slave.store.max_offset("Pair", 0) == 1, "the slave has it")
            await until(lambda: slave.metadata.topics.get("Pair"), "and knows the topic")
            await until(lambda: slave.state.has_master, "and sees its master")
            answer = await world.pull(slave, 7)
            fields = answer.ext or {}
            # The slave may be behind its master: only the master can say that 7 is too far.
            assert answer.code == ResponseCode.PULL_RETRY_IMMEDIATELY
            assert answer.remark == "OFFSET_OVERFLOW_BADLY"
            assert fields["suggestWhichBrokerId"] == "0"
            assert fields["nextBeginOffset"] == ("7" if check == "false" else "1")

    asyncio.run(run())


def test_plain_send_is_acknowledged_by_the_threads_while_the_loop_is_busy(tmp_path: Path) -> None:
    """One copy is enough here: the thread of the slave's connection tells that of the sender's."""

    async def run() -> None:
        async with (
            pair_world(tmp_path) as world,
            world.master(brokerRole="SYNC_MASTER", slaveTimeout="60000") as master,
            world.slave(of=master) as slave,
        ):
            await until(lambda: not master.state.lacks_slave, "the slave follows")
            assert (await world.send(master)).code == ResponseCode.SUCCESS
            await caught_up(master, slave)
            with BlockingConnection(master.identity.address) as sender:
                plain = send_command("Pair", b"plain", 0, "UNIQ_KEY\x01u\x02WAIT\x01true\x02")
                # The loop has given the connection to its thread.
                assert (await asyncio.to_thread(sender.call, plain, 60.0)).code == 0
                # Nothing waits on the loop, which is busy from here on.
                await until(lambda: not master.pair.master.hears[0], "the loop hears nothing")
                for _ in range(10):
                    answer = sender.call(plain, 20.0)
                    assert answer.code == ResponseCode.SUCCESS, answer.remark
                    assert log_end(slave) == log_end(master)
            await until(lambda: master.pair.replicas.watermark == log_end(master), "it looks")

    asyncio.run(run())
