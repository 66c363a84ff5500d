"""A pair over real sockets and files: copying, acknowledgements, reading from the slave."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import random
from typing import TYPE_CHECKING

import uvloop

from pair_harness import (
    PairWorld,
    assert_same_log,
    caught_up,
    log_end,
    pair_world,
    until,
)
from roquet.model.group import SubscriptionGroupConfig
from roquet.model.topic import TopicConfig
from roquet.protocol.bodies.offsets import DelayOffsetBody
from roquet.protocol.bodies.replication import HaStatusBody
from roquet.protocol.codes import RequestCode, ResponseCode
from roquet.protocol.command import Command
from roquet.remoting.connections import reply
from roquet.store.records import read_records
from roquet.testing.java import free_port

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    import pytest

    from roquet.broker.app import Broker


def play(folder: Path, tell: Callable[[PairWorld], Awaitable[None]]) -> None:
    async def run() -> None:
        async with pair_world(folder) as world:
            await tell(world)

    # The loop of a real broker: its transports differ from asyncio's own.
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run())


def test_the_slave_has_the_same_bytes(tmp_path: Path) -> None:
    async def tell(world: PairWorld) -> None:
        async with world.master() as master, world.slave() as slave:
            for number in range(300):
                # More than one file of 1 MiB, in records of every length.
                answer = await world.send(master, bytes([number % 256]) * (number * 31 + 1))
                assert answer.code == ResponseCode.SUCCESS
            await caught_up(master, slave)
            assert slave.store.max_offset("Pair", 0) == 300

    play(tmp_path, tell)
    assert_same_log(tmp_path / "master", tmp_path / "slave")


def test_a_slave_takes_no_sends_and_serves_reads_when_allowed(tmp_path: Path) -> None:
    async def tell(world: PairWorld) -> None:
        async with (
            world.master() as master,
            world.slave(slaveReadEnable="true") as slave,
            world.slave(folder="other", brokerId="2") as closed,
        ):
            await world.send(master, b"one")
            await caught_up(master, slave)
            refused = await world.send(slave)
            assert refused.code == ResponseCode.SYSTEM_BUSY
            await until(lambda: slave.metadata.topics.get("Pair"), "the topic is copied")
            await until(lambda: slave.state.has_master, "the slave sees its master")
            pulled = await world.pull(slave)
            assert [it.body for it in read_records(pulled.body)] == [b"one"]
            # Whoever finds nothing more here is sent to the living master.
            empty = await world.pull(slave, 1)
            assert empty.code == ResponseCode.PULL_RETRY_IMMEDIATELY
            assert (empty.ext or {})["suggestWhichBrokerId"] == "0"
            busy = await world.pull(closed)
            assert busy.code == ResponseCode.SYSTEM_BUSY

    play(tmp_path, tell)


def test_a_master_sends_slow_readers_to_the_slave(tmp_path: Path) -> None:
    async def tell(world: PairWorld) -> None:
        changes = {"slaveReadEnable": "true", "accessMessageInMemoryMaxRatio": "0"}
        async with world.master(**changes) as master:
            for number in range(3):
                await world.send(master, b"%d" % number)
            await until(lambda: master.store.max_offset("Pair", 0) == 3, "they can be read")
            # With no memory at all, whoever is not at the end of the log reads from the disk.
            slow = await world.pull(master, 0, maxMsgNums="1")
            assert slow.code == ResponseCode.SUCCESS
            assert (slow.ext or {})["suggestWhichBrokerId"] == "1"
        async with world.master(accessMessageInMemoryMaxRatio="0") as master:
            alone = await world.pull(master, 0, maxMsgNums="1")
            assert (alone.ext or {})["suggestWhichBrokerId"] == "0"

    play(tmp_path, tell)


def test_double_write_asks_for_a_slave(tmp_path: Path) -> None:
    async def tell(world: PairWorld) -> None:
        async with world.master(brokerRole="SYNC_MASTER", slaveTimeout="60000") as master:
            alone = await world.send(master, b"alone")
            assert alone.code == ResponseCode.SLAVE_NOT_AVAILABLE
            assert (alone.ext or {})["queueOffset"] == "0"
            async with world.slave(of=master) as slave:
                await until(lambda: not master.state.lacks_slave, "the slave follows")
                for number in range(20):
                    both = await world.send(master, b"both")
                    assert both.code == ResponseCode.SUCCESS, both.remark
                    assert log_end(slave) == log_end(master), number
                unhurried = await world.send(master, b"no wait", "WAIT\x01false\x02")
                assert unhurried.code == ResponseCode.SUCCESS
                slow = await world.send(master, b"slow path", "WAIT\x01true\x02K\x01v\x02")
                assert slow.code == ResponseCode.SUCCESS
            await until(lambda: master.state.lacks_slave, "the slave is missed")
            left = await world.send(master, b"alone again")
            assert left.code == ResponseCode.SLAVE_NOT_AVAILABLE

    play(tmp_path, tell)
    assert (tmp_path / "slave").is_dir()


@dataclasses.dataclass
class Tap:
    """Passes bytes between slave and master and counts the slave's reports."""

    master: str
    reports: int = 0
    tasks: set[asyncio.Task[None]] = dataclasses.field(default_factory=set)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host, _, port = self.master.rpartition(":")
        there, back = await asyncio.open_connection(host, int(port))
        up = asyncio.create_task(self._pass(reader, back, counted=True))
        down = asyncio.create_task(self._pass(there, writer, counted=False))
        self.tasks |= {up, down}

    async def _pass(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, counted: bool
    ) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65_536):
                self.reports += len(data) // 8 if counted else 0
                writer.write(data)
                await writer.drain()
        writer.close()


def test_many_sends_share_a_report_of_the_slave(tmp_path: Path) -> None:
    """Group commit of double write: 200 sends at once wait for far fewer reports."""

    async def tell(world: PairWorld) -> None:
        async with world.master(brokerRole="SYNC_MASTER", slaveTimeout="60000") as master:
            tap = Tap(master.identity.ha_address)
            server = await asyncio.start_server(tap.serve, "127.0.0.1", 0)
            address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
            # With so long an interval no heartbeat is counted.
            async with (
                server,
                world.slave(haMasterAddress=address, haSendHeartbeatInterval="60000") as slave,
            ):
                await until(lambda: not master.state.lacks_slave, "the slave follows")
                before = tap.reports
                sends = [world.send(master, b"%d" % number) for number in range(200)]
                answers = await asyncio.gather(*sends)
                assert {answer.code for answer in answers} == {ResponseCode.SUCCESS}
                assert 0 < tap.reports - before <= 100
                await caught_up(master, slave)
            await asyncio.gather(*tap.tasks)

    play(tmp_path, tell)


def test_what_a_master_keeps_beside_the_log_is_copied(tmp_path: Path) -> None:
    """Groups by their version, and how far each delay level and the timers are."""

    async def tell(world: PairWorld) -> None:
        async with world.master(messageDelayLevel="1s") as master, world.slave() as slave:
            command = Command(
                RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
                body=b'{"groupName":"kept","consumeEnable":false,"retryMaxTimes":7}',
            )
            made = await world.client.call(master.identity.address, command, 20.0)
            assert made.code == ResponseCode.SUCCESS
            assert (await world.send(master, b"later", "DELAY\x011\x02")).code == 0
            await until(lambda: master.store.max_offset("Pair", 0) == 1, "it was delivered")
            await until(lambda: slave.metadata.groups.get("kept"), "the group is copied")
            group = slave.metadata.groups.get("kept")
            assert group == master.metadata.groups.get("kept")
            assert slave.metadata.groups.version == master.metadata.groups.version
            path = world.folder / "slave" / "config" / "delayOffset.json"
            await until(lambda: delays(path) == {1: 1}, "the delay offset is copied")
            for code in (RequestCode.GET_TIMER_CHECK_POINT, RequestCode.GET_TIMER_METRICS):
                answer = await world.ask(master, code)
                assert answer.code == ResponseCode.SUCCESS, code
            later = await world.send(master, b"in an hour", "TIMER_DELAY_SEC\x013600\x02")
            assert later.code == ResponseCode.SUCCESS
            check, counts = path.with_name("timercheck"), path.with_name("timermetrics")
            # The third number: the offset of the next message to enter the wheel.
            await until(
                lambda: check.exists() and check.read_bytes()[16:24] == (1).to_bytes(8),
                "the checkpoint of the timers is copied",
            )
            await until(
                lambda: counts.exists() and b'"Pair"' in counts.read_bytes(),
                "the counts of the timers are copied",
            )

    play(tmp_path, tell)


def test_tables_that_fit_no_answer_are_copied_in_pages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def tell(world: PairWorld) -> None:
        async with world.master() as master:
            tables = master.metadata
            tables.topics.put(*(TopicConfig(name=f"T{number}") for number in range(6_100)))
            tables.groups.put(
                *(SubscriptionGroupConfig(name=f"g{number}") for number in range(4_100))
            )
            for group in ("g0", "g4099", "no-group"):
                tables.groups.set_forbidden(group, "T", 1)
            monkeypatch.setattr(reply, "ANSWER_SIZE_MAX", 950_000)
            for code in (
                RequestCode.GET_ALL_TOPIC_CONFIG,
                RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
            ):
                whole = await world.ask(master, code)
                assert "a frame has room" in (whole.remark or "")
            async with world.slave(master) as slave:
                copied = slave.metadata
                await until(
                    lambda: (
                        copied.topics.version == tables.topics.version
                        and copied.groups.version == tables.groups.version
                    ),
                    "the tables are copied",
                )
                assert copied.topics.all() == tables.topics.all()
                assert copied.groups.all() == tables.groups.all()
                assert copied.groups.all_forbidden() == tables.groups.all_forbidden()

    play(tmp_path, tell)


def delays(path: Path) -> dict[int, int]:
    return dict(DelayOffsetBody.decode(path.read_bytes()).offsets) if path.exists() else {}


def test_slaves_come_to_the_port_of_the_settings(tmp_path: Path) -> None:
    """`haListenPort`; the name server tells slaves where it is."""
    port = free_port(random.Random())

    async def tell(world: PairWorld) -> None:
        async with world.master(haListenPort=str(port)) as master, world.slave() as slave:
            assert master.identity.ha_address.endswith(f":{port}")
            await world.send(master)
            await caught_up(master, slave)
            assert slave.pair.slave.address == master.identity.ha_address

    play(tmp_path, tell)


def test_a_slow_slave_times_a_send_out(tmp_path: Path) -> None:
    async def tell(world: PairWorld) -> None:
        async with world.master(brokerRole="SYNC_MASTER", slaveTimeout="200") as master:
            host, _, port = master.identity.ha_address.rpartition(":")
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write((0).to_bytes(8, "big"))
            await until(lambda: not master.state.lacks_slave, "the slave follows")
            # This slave takes everything and acknowledges nothing.
            fast = await world.send(master, b"fast path")
            assert fast.code == ResponseCode.FLUSH_SLAVE_TIMEOUT
            assert (fast.ext or {})["queueOffset"] == "0"
            slow = await world.send(master, b"slow path", "DELAY\x013\x02")
            assert slow.code == ResponseCode.FLUSH_SLAVE_TIMEOUT
            received = await reader.read(1 << 20)
            assert len(received) > 24
            writer.close()
            await writer.wait_closed()

    play(tmp_path, tell)


def test_the_pair_is_shown_to_tools(tmp_path: Path) -> None:
    async def tell(world: PairWorld) -> None:
        async with world.master() as master, world.slave() as slave:
            await world.send(master)
            await caught_up(master, slave)
            await until(lambda: master.pair.master.slaves, "the slave has reported")
            await until(lambda: master.pair.master.slaves[0].acked == log_end(master), "it has all")
            answer = await world.ask(master, RequestCode.GET_BROKER_HA_STATUS)
            status = HaStatusBody.decode(answer.body)
            assert status.is_master
            assert status.in_sync == 1
            assert status.max_offset == log_end(master)
            assert (status.slaves[0].behind, status.slaves[0].in_sync) == (0, True)
            answer = await world.ask(slave, RequestCode.GET_BROKER_HA_STATUS)
            status = HaStatusBody.decode(answer.body)
            assert not status.is_master
            assert status.follow.master_address == master.identity.ha_address
            assert status.follow.max_offset == log_end(master)
            told = await world.ask(master, RequestCode.EXCHANGE_BROKER_HA_INFO)
            assert (told.ext or {})["masterHaAddress"] == master.identity.ha_address
            assert (told.ext or {})["masterAddress"] == master.identity.address

    play(tmp_path, tell)


def test_6344_7689_fail_over_by_hand_keeps_offsets(tmp_path: Path) -> None:
    async def before(world: PairWorld) -> None:
        async with world.master() as master, world.slave() as slave:
            for number in range(10):
                await world.send(master, b"%d" % number)
            await world.pull(master)
            answer = await world.ask(
                master,
                RequestCode.UPDATE_CONSUMER_OFFSET,
                consumerGroup="readers",
                topic="Pair",
                queueId="0",
                commitOffset="7",
            )
            assert answer.code == ResponseCode.SUCCESS, answer.remark
            await caught_up(master, slave)
            await until(
                lambda: slave.metadata.offsets.committed("readers", "Pair", 0) == 7,
                "the offset is copied",
            )

    async def after(world: PairWorld) -> None:
        world.folder = tmp_path / "promoted"
        (tmp_path / "promoted").mkdir()
        (tmp_path / "slave").rename(tmp_path / "promoted" / "master")
        async with world.master() as master:
            answer = await world.send(master, b"10")
            assert (answer.ext or {})["queueOffset"] == "10", "an offset would be used twice"
            pulled = await world.pull(master)
            bodies = [it.body for it in read_records(pulled.body)][:10]
            assert bodies == [b"%d" % number for number in range(10)]
            offset = await world.ask(
                master,
                RequestCode.QUERY_CONSUMER_OFFSET,
                consumerGroup="readers",
                topic="Pair",
                queueId="0",
            )
            assert (offset.ext or {})["offset"] == "7"

    play(tmp_path, before)
    play(tmp_path, after)


def test_9206_tables_and_offsets_survive_two_changes_of_the_master(tmp_path: Path) -> None:
    async def commit(world: PairWorld, master: Broker, offset: int) -> None:
        await world.pull(master)
        answer = await world.ask(
            master,
            RequestCode.UPDATE_CONSUMER_OFFSET,
            consumerGroup="readers",
            topic="Pair",
            queueId="0",
            commitOffset=str(offset),
        )
        assert answer.code == ResponseCode.SUCCESS, answer.remark

    async def reign(world: PairWorld, first: int) -> None:
        async with world.master() as master, world.slave() as slave:
            for number in range(first, first + 5):
                answer = await world.send(master, b"%d" % number)
                assert (answer.ext or {})["queueOffset"] == str(number)
            await commit(world, master, first + 3)
            await caught_up(master, slave)
            offsets, groups = slave.metadata.offsets, slave.metadata.groups
            await until(
                lambda: (
                    offsets.committed("readers", "Pair", 0) == first + 3 and groups.get("readers")
                ),
                "the tables are copied",
            )
        assert_same_log(world.folder / "master", world.folder / "slave")

    async def change(world: PairWorld) -> None:
        """Let master and slave change their places, three times."""
        for number in range(3):
            await reign(world, number * 5)
            (world.folder / "master").rename(tmp_path / "was-master")
            (world.folder / "slave").rename(world.folder / "master")
            (tmp_path / "was-master").rename(world.folder / "slave")
        async with world.master() as master:
            pulled = await world.pull(master)
            assert [it.body for it in read_records(pulled.body)] == [b"%d" % n for n in range(15)]
            assert master.metadata.offsets.committed("readers", "Pair", 0) == 13

    play(tmp_path, change)
