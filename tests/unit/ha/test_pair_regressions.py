"""Faults that RocketMQ's pairs had, by the number of the report."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from pair_harness import PairWorld, assert_same_log, caught_up, pair_world, until
from roquet.protocol.codes import RequestCode, ResponseCode
from roquet.protocol.command import Command
from roquet.store.records import read_records

if TYPE_CHECKING:
    from pathlib import Path

    from roquet.broker.app import Broker

GROUP = b'{"groupName":"readers%d","consumeEnable":true,"retryMaxTimes":7}'


async def change_tables(world: PairWorld, master: Broker, number: int) -> None:
    """Make a topic and a group at the master."""
    made = await world.ask(
        master,
        RequestCode.UPDATE_AND_CREATE_TOPIC,
        topic=f"Made{number}",
        defaultTopic="TBW102",
        readQueueNums="3",
        writeQueueNums="3",
        perm="6",
        topicFilterType="SINGLE_TAG",
        topicSysFlag="0",
        order="false",
    )
    assert made.code == ResponseCode.SUCCESS, made.remark
    command = Command(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=GROUP % number)
    made = await world.client.call(master.identity.address, command, 20.0)
    assert made.code == ResponseCode.SUCCESS, made.remark


def knows(broker: Broker, number: int) -> bool:
    topic = broker.metadata.topics.get(f"Made{number}")
    group = broker.metadata.groups.get(f"readers{number}")
    return topic is not None and topic.read_queues == 3 and group is not None


async def lead(world: PairWorld, term: int) -> list[int]:
    """Run both sides for a while; return the queue offsets that were given out."""
    async with world.master() as master, world.slave() as slave:
        for earlier in range(term):
            assert knows(master, earlier), f"lost with switch {earlier + 1}"
        given: list[int] = []
        for number in range(5):
            answer = await world.send(master, b"%d" % (5 * term + number))
            assert answer.code == ResponseCode.SUCCESS, answer.remark
            given.append(int((answer.ext or {})["queueOffset"]))
        await change_tables(world, master, term)
        await caught_up(master, slave)
        await until(lambda: knows(slave, term), "the slave has topic and group")
        await until(lambda: master.store.max_offset("Pair", 0) == 5 * term + 5, "dispatched")
        for side in (master, slave):
            got = side.store.get("Pair", 0, 0, 32)
            bodies = [record.body for record in read_records(got.records)]
            assert bodies == [b"%d" % number for number in range(5 * term + 5)]
    return given


def switch(folder: Path) -> None:
    """Exchange the stores of master and slave."""
    (folder / "master").rename(folder / "other")
    (folder / "slave").rename(folder / "master")
    (folder / "other").rename(folder / "slave")


def test_9206_6344_8539_7689_tables_and_offsets_survive_two_switches(tmp_path: Path) -> None:
    """#9206: tables after A to B to A; #6344, #8539, #7689: one offset for two messages."""

    async def run() -> None:
        given: list[int] = []
        for term in range(3):
            async with pair_world(tmp_path) as world:
                given += await lead(world, term)
            switch(tmp_path)
        assert given == list(range(15)), "each offset is given out once"

    asyncio.run(run())
    assert_same_log(tmp_path / "master", tmp_path / "slave")
