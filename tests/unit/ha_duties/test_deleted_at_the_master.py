"""Topics and groups that the master deletes, made again or not, and what its slave keeps."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from pair_harness import caught_up, pair_world, until
from roquet.base.errors import Unreachable
from roquet.base.properties_file import write_properties
from roquet.protocol.codes import RequestCode
from roquet.protocol.command import Command
from roquet.store.records import read_records
from roquet.testing.cluster import send_command

if TYPE_CHECKING:
    from pathlib import Path

    from pair_harness import PairWorld
    from roquet.broker.app import Broker

TOPICS = ("Pair", "Gone")
"""Made again with new messages, and deleted for good."""
GROUPS = ("g", "again")


async def ok(world: PairWorld, to: Broker, code: RequestCode, **fields: str) -> None:
    answer = await world.ask(to, code, **fields)
    assert answer.code == 0, answer.remark


async def send(world: PairWorld, to: Broker, topic: str, body: bytes) -> None:
    answer = await world.client.call(to.identity.address, send_command(topic, body, 0), 20.0)
    assert answer.code == 0, answer.remark


async def former_life(world: PairWorld, master: Broker, slave: Broker) -> None:
    """Give each topic six messages, of which groups have read five."""
    for group in GROUPS:
        body = b'{"groupName": "%s"}' % group.encode()
        make = Command(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body)
        assert (await world.client.call(master.identity.address, make, 20.0)).code == 0
    for topic in TOPICS:
        for number in range(6):
            await send(world, master, topic, b"old%d" % number)
        for group in GROUPS:
            where = {"topic": topic, "queueId": "0", "consumerGroup": group}
            await ok(world, master, RequestCode.UPDATE_CONSUMER_OFFSET, **where, commitOffset="5")
    await caught_up(master, slave)
    offsets = slave.metadata.offsets
    places = [(group, topic, 0) for topic in TOPICS for group in GROUPS]
    await until(lambda: {offsets.committed(*it) for it in places} == {5}, "offsets are copied")
    assert slave.store.max_offset("Gone", 0) == 6


async def deleted_and_made_again(world: PairWorld, master: Broker) -> None:
    for topic in TOPICS:
        await ok(world, master, RequestCode.DELETE_TOPIC_IN_BROKER, topic=topic)
    name = {"groupName": "again", "cleanOffset": "true"}
    await ok(world, master, RequestCode.DELETE_SUBSCRIPTIONGROUP, **name)
    for number in range(8):
        await send(world, master, "Pair", b"new%d" % number)


async def lead(world: PairWorld, broker: Broker) -> None:
    body = write_properties({"brokerRole": "ASYNC_MASTER"})
    command = Command(RequestCode.UPDATE_BROKER_CONFIG, body=body)
    answer = await world.client.call(broker.identity.address, command, 30.0)
    assert answer.code == 0, answer.remark


async def judge(world: PairWorld, broker: Broker) -> None:
    """Nothing of the former life is there, and all of the new one comes."""
    offsets = broker.metadata.offsets
    assert [offsets.committed("g", topic, 0) for topic in TOPICS] == [None] * 2
    assert [broker.store.max_offset(topic, 0) for topic in TOPICS] == [8, 0]
    assert broker.metadata.topics.get("Gone") is None
    pulled = await world.pull(broker, 0, maxMsgNums="32")
    assert [it.body for it in read_records(pulled.body)] == [b"new%d" % it for it in range(8)]


class Away:
    """A master that cannot be asked for its tables; its log is copied all the same."""

    async def call(self, address: str, command: Command, timeout_s: float = 3.0) -> Command:
        del command, timeout_s
        raise Unreachable(f"{address} is away")


@pytest.mark.parametrize("change", ["copied", "orderly", "lost"])
def test_slave_that_leads_gives_all_of_a_topic_made_again_and_nothing_of_the_former(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    """Tables are copied after the deletion, by the change of places alone, or never again."""

    async def main() -> None:
        async with pair_world(tmp_path) as world, world.slave(slaveReadEnable="true") as slave:
            async with world.master() as master:
                await former_life(world, master, slave)
                with monkeypatch.context() as patch:
                    if change != "copied":
                        patch.setattr(slave.pair.sync, "_caller", Away())
                    await deleted_and_made_again(world, master)
                    await caught_up(master, slave)
                    if change == "lost":
                        await lead(world, slave)
                if change == "orderly":
                    await lead(world, slave)
                if change != "lost":
                    all_of_it = master.metadata.deletions.export()
                    known = slave.metadata.deletions
                    await until(lambda: known.export() == all_of_it, "the times are copied")
                    await judge(world, slave)
                    assert set(all_of_it.topics) >= set(TOPICS)
                    assert set(all_of_it.groups) == {"again"}
            if change == "lost":
                # The log alone tells: what has new messages has none of the former, nor offsets.
                assert slave.metadata.offsets.committed("g", "Pair", 0) is None
                pulled = await world.pull(slave, 0, maxMsgNums="32")
                bodies = [it.body for it in read_records(pulled.body)]
                assert bodies == [b"new%d" % number for number in range(8)]

    asyncio.run(main())


def test_deletion_reaches_the_slave_before_the_next_copy_of_its_offsets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The master is lost before that, and nothing was sent since."""

    async def never() -> None:
        pass

    async def main() -> None:
        async with pair_world(tmp_path) as world, world.slave(slaveReadEnable="true") as slave:
            async with world.master() as master:
                await former_life(world, master, slave)
                monkeypatch.setattr(slave.pair.sync, "_offsets", never)
                for topic in TOPICS:
                    await ok(world, master, RequestCode.DELETE_TOPIC_IN_BROKER, topic=topic)
                name = {"groupName": "again", "cleanOffset": "true"}
                await ok(world, master, RequestCode.DELETE_SUBSCRIPTIONGROUP, **name)
                known, wanted = slave.metadata.deletions, {*TOPICS, "again"}
                await until(
                    lambda: {*known.export().topics, *known.export().groups} >= wanted,
                    "the deletions are known",
                )
            await lead(world, slave)
            offsets = slave.metadata.offsets
            for topic in TOPICS:
                assert slave.metadata.topics.get(topic) is None
                assert slave.store.max_offset(topic, 0) == 0
                assert [offsets.committed(group, topic, 0) for group in GROUPS] == [None] * 2
            assert slave.metadata.groups.get("again") is None

    asyncio.run(main())
