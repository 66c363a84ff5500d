"""A broker that leads, follows and leads again knows nothing better than its log and its tables.

Another broker led in between: the same places of queues may hold other messages.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, cast

from light_harness import ON, PARENT, ack, pop, put_group, put_parent, send, subscribe
from pair_harness import caught_up, connect, log_end, pair_world, until
from pop_harness import GROUP, ack_command, pop_command, popped
from roquet.base.properties_file import write_properties
from roquet.ha.frames import REPORT
from roquet.protocol.codes import RequestCode, ResponseCode
from roquet.protocol.command import Command
from roquet.protocol.messages import batch
from roquet.protocol.messages.sequences import START, chain
from roquet.store.records import read_records
from roquet.testing.cluster import pull_command, send_command

if TYPE_CHECKING:
    from pathlib import Path

    from pair_harness import PairWorld
    from roquet.broker.app import Broker
    from roquet.protocol.messages.batch import Element
    from roquet.testing.cluster import Cluster

TOPIC = "again"


class Side:
    """One broker of a pair, for helpers that ask a cluster."""

    def __init__(self, world: PairWorld, broker: Broker) -> None:
        self.world, self.broker = world, broker

    async def call(self, command: Command) -> Command:
        return await self.world.client.call(self.broker.identity.address, command, 20.0)

    async def send(self, topic: str, body: bytes, *, properties: str = "") -> Command:
        return await self.call(send_command(topic, body, 0, properties))

    async def put_topic(self) -> None:
        fields = {
            "topic": TOPIC,
            "defaultTopic": "TBW102",
            "perm": "6",
            "topicSysFlag": "0",
            "readQueueNums": "1",
            "writeQueueNums": "1",
            "topicFilterType": "SINGLE_TAG",
        }
        command = Command(RequestCode.UPDATE_AND_CREATE_TOPIC, ext=fields)
        assert (await self.call(command)).code == 0

    async def delete(self, topic: str) -> None:
        command = Command(RequestCode.DELETE_TOPIC_IN_BROKER, ext={"topic": topic})
        assert (await self.call(command)).code == 0

    async def tell(self, **settings: str) -> None:
        body = write_properties(settings)
        answer = await self.call(Command(RequestCode.UPDATE_BROKER_CONFIG, body=body))
        assert answer.code == 0, answer.remark

    async def timer_codes(self) -> tuple[int, int]:
        """Return the codes of the answers about the timer wheel."""
        codes = RequestCode.GET_TIMER_CHECK_POINT, RequestCode.GET_TIMER_METRICS
        check, metrics = [await self.call(Command(code)) for code in codes]
        return check.code, metrics.code


def order_files(folder: Path) -> list[Path]:
    return list(folder.rglob("consumerOrderInfo.json*"))


async def copied(old: Side, new: Side) -> None:
    """Wait until the one side has the other's log, and its tables twice."""
    await caught_up(old.broker, new.broker)
    await asyncio.sleep(0.5)


async def change_places(old: Side, new: Side) -> None:
    await copied(old, new)
    await old.tell(brokerRole="SLAVE", brokerId="2")
    await new.tell(brokerRole="SYNC_MASTER")
    await until(lambda: new.broker.pair.master.slaves, "the old master follows")


def rows(first: int, end: int) -> list[Element]:
    return [
        (0, b"row %d" % number, b"UNIQ_KEY\x01u%d\x02" % number) for number in range(first, end)
    ]


def sequenced(first: int, end: int) -> Command:
    before = chain(START, rows(0, first))[-1] if first else START
    ext = {
        "producerGroup": "g",
        "topic": TOPIC,
        "queueId": "0",
        "bornTimestamp": "1",
        "producer": "p",
        "epoch": "0",
        "first": str(first),
        "chain": before.hex(),
    }
    return Command(RequestCode.SEND_IN_SEQUENCE, ext=ext, body=batch.encode(rows(first, end)))


def test_what_another_broker_took_in_sequence_is_not_taken_again(tmp_path: Path) -> None:
    async def main() -> None:
        async with pair_world(tmp_path) as world, world.master() as a, world.slave() as b:
            one, two = Side(world, a), Side(world, b)
            await one.put_topic()
            assert (await one.call(sequenced(0, 3))).code == 0
            await change_places(one, two)
            assert ((await two.call(sequenced(3, 6))).ext or {})["appended"] == "3"
            await change_places(two, one)
            again = await one.call(sequenced(3, 6))
            said = again.ext or {}
            assert (again.code, said["appended"], said["next"]) == (0, "0", "6")
            assert (await one.call(sequenced(6, 7))).code == 0
            await until(lambda: a.store.dispatch_behind() == 0, "all can be read")
            pulled = await one.call(pull_command(TOPIC))
            found = [bytes(record.body) for record in read_records(pulled.body)]
            assert found == [body for _, body, _ in rows(0, 7)]

    asyncio.run(main())


def test_what_was_taken_in_sequence_before_copies_were_asked_for_is_no_slave_s_by_its_word(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        async with pair_world(tmp_path) as world, world.master(slaveTimeout="1000") as a:
            one = Side(world, a)
            await one.put_topic()
            assert (await one.call(sequenced(0, 3))).code == 0
            _, liar = await connect(a)
            liar.write(REPORT.pack(log_end(a)))
            await until(lambda: a.pair.master.slaves, "a slave that shows nothing follows")
            await one.tell(brokerRole="SYNC_MASTER")
            again = await one.call(sequenced(0, 3))
            assert again.code == ResponseCode.FLUSH_SLAVE_TIMEOUT, again.ext
            liar.close()

    asyncio.run(main())


def test_light_topic_that_another_broker_made_anew_gives_all_its_messages(tmp_path: Path) -> None:
    async def main() -> None:
        async with (
            pair_world(tmp_path) as world,
            world.master(**ON) as a,
            world.slave(None, **ON) as b,
        ):
            one, two = (cast("Cluster", Side(world, it)) for it in (a, b))
            first, second = Side(world, a), Side(world, b)
            await put_parent(one)
            await put_group(one)
            await subscribe(one, "a")
            await send(one, "a", b"0", b"1", b"2")
            taken = await pop(one, invisibleTime="1000")
            await ack(one, taken.handles[1])
            await change_places(first, second)
            await second.delete(PARENT)
            await put_parent(two)
            await send(two, "a", b"new 0", b"new 1", b"new 2")
            await change_places(second, first)
            await asyncio.sleep(1.0)
            await subscribe(one, "a")
            await send(one, "a", b"new 3")
            assert (await pop(one)).bodies == [b"new 0", b"new 1", b"new 2", b"new 3"]

    asyncio.run(main())


def test_ordered_batches_of_an_earlier_term_are_forgotten_with_their_file(tmp_path: Path) -> None:
    async def main() -> None:
        async with pair_world(tmp_path) as world, world.master() as a, world.slave() as b:
            one, two = Side(world, a), Side(world, b)
            await one.put_topic()
            await one.send(TOPIC, b"0")
            await until(lambda: a.store.dispatch_behind() == 0, "it can be read")
            ordered = {"order": "true", "queueId": "0"}
            taken = popped(await one.call(pop_command(TOPIC, **ordered)))
            assert taken.bodies == [b"0"]
            await change_places(one, two)
            assert not order_files(tmp_path / "master")
            await two.delete(TOPIC)
            await two.put_topic()
            await two.send(TOPIC, b"new 0")
            await change_places(two, one)
            # Its invisible time is not over: of a batch that is not known here any more.
            assert popped(await one.call(pop_command(TOPIC, **ordered))).bodies == [b"new 0"]
            stale = await one.call(ack_command(taken.handles[0], TOPIC))
            assert stale.code == ResponseCode.SUCCESS
            assert a.metadata.offsets.committed(GROUP, TOPIC, 0) == 0

    asyncio.run(main())


def test_new_master_fires_and_redelivers_nothing_that_the_last_one_had_done(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        # The slave copies tables when it finds its master, and not again until it takes over.
        late = {"slaveSyncInterval": "600000"}
        async with (
            pair_world(tmp_path) as world,
            world.master(timerPrecisionMs="100") as a,
            world.slave(None, timerPrecisionMs="100", **late) as b,
        ):
            one, two = Side(world, a), Side(world, b)
            await one.put_topic()
            await caught_up(a, b)
            await one.send(TOPIC, b"due", properties="TIMER_DELAY_MS\x01200\x02")
            await one.send(TOPIC, b"later", properties="TIMER_DELAY_MS\x014000\x02")
            await until(lambda: a.store.max_offset(TOPIC, 0) == 1, "the first one is due")
            taken = popped(await one.call(pop_command(TOPIC, invisibleTime="500")))
            assert taken.bodies == [b"due"]
            acked = await one.call(ack_command(taken.handles[0], TOPIC))
            assert acked.code == ResponseCode.SUCCESS
            await asyncio.sleep(1.0)
            await caught_up(a, b)
            await one.tell(brokerRole="SLAVE", brokerId="2")
            assert await one.timer_codes() == (0, 0)
            await two.tell(brokerRole="ASYNC_MASTER")
            await until(lambda: b.store.max_offset(TOPIC, 0) == 2, "the second one is due")
            await asyncio.sleep(0.5)
            pulled = await two.call(pull_command(TOPIC))
            found = [bytes(record.body) for record in read_records(pulled.body)]
            assert found == [b"due", b"later"]
            assert popped(await two.call(pop_command(TOPIC))).bodies == [b"later"]

    asyncio.run(main())
