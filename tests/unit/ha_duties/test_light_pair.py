"""Light topics on a pair: what the slave has of them, and what it gives as a master."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, cast

import pytest

from light_harness import (
    GROUP,
    ON,
    PARENT,
    LaterClock,
    ack,
    ctl_command,
    light_upkeep,
    playing,
    pop,
    put_group,
    put_parent,
    queue,
    send,
    subscribe,
)
from pair_harness import caught_up, pair_world, until
from roquet.base.properties_file import write_properties
from roquet.protocol.codes import RequestCode, ResponseCode
from roquet.protocol.command import Command
from roquet.testing.cluster import send_command

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from pair_harness import PairWorld
    from roquet.broker.app import Broker
    from roquet.testing.cluster import Cluster


class Side:
    """One broker of a pair, for helpers that ask a cluster."""

    def __init__(self, world: PairWorld, broker: Broker) -> None:
        self.world, self.broker = world, broker

    async def call(self, command: Command) -> Command:
        return await self.world.client.call(self.broker.identity.address, command, 20.0)

    async def send(self, topic: str, body: bytes, *, properties: str = "") -> Command:
        return await self.call(send_command(topic, body, 0, properties))


async def tell(it: Cluster, **settings: str) -> None:
    body = write_properties(settings)
    answer = await it.call(Command(RequestCode.UPDATE_BROKER_CONFIG, body=body))
    assert answer.code == 0, answer.remark


async def change_places(old: Cluster, new: Cluster) -> None:
    await tell(old, brokerRole="SLAVE", brokerId="2")
    await tell(new, brokerRole="SYNC_MASTER")
    await until(lambda: new.broker.pair.master.slaves, "the old master follows")


def paired(
    folder: Path, story: Callable[[Cluster, Cluster], Awaitable[None]], **slave: str
) -> None:
    """Run a pair with light topics while a story is told of master and slave."""

    async def main() -> None:
        async with (
            pair_world(folder) as world,
            world.master(**ON) as a,
            world.slave(None, **ON, **slave) as b,
        ):
            one, two = (cast("Cluster", Side(world, it)) for it in (a, b))
            await put_parent(one, PARENT, **{"lite.topic.expiration": "1"})
            await put_group(one)
            await story(one, two)

    asyncio.run(main())


def committed(it: Cluster, name: str = "a") -> int | None:
    return it.broker.metadata.offsets.committed(GROUP, queue(name), 0)


async def copied(one: Cluster, two: Cluster, name: str = "a") -> None:
    """Wait until the slave has the log and where the group is."""
    await caught_up(one.broker, two.broker)
    await until(lambda: committed(two, name) == committed(one, name), "the offset is copied")


def test_slave_goes_on_where_the_group_was_and_gives_what_was_in_flight(tmp_path: Path) -> None:
    async def story(one: Cluster, two: Cluster) -> None:
        await subscribe(one, "a", "b")
        await send(one, "a", b"0", b"1", b"2")
        await send(one, "b", b"other")
        taken = await pop(one)
        assert sorted(taken.bodies) == [b"0", b"1", b"2", b"other"]
        by_body = dict(zip(taken.bodies, taken.handles, strict=True))
        await ack(one, by_body[b"0"])
        assert committed(one) == 1
        await copied(one, two)
        # A slave keeps no subscriptions, and says so.
        refused = await two.call(ctl_command("PARTIAL_ADD", ["a"]))
        assert refused.code == ResponseCode.SLAVE_NOT_AVAILABLE, refused.remark
        await change_places(one, two)
        await subscribe(two, "a", "b")
        again = await pop(two)
        assert sorted(again.bodies) == [b"1", b"2", b"other"]
        # What the old master handed out was given again: its handles settle nothing here.
        await ack(two, by_body[b"1"], by_body[b"2"])
        assert committed(two) == 1
        await ack(two, *again.handles)
        assert (committed(two), committed(two, "b")) == (3, 1)
        await send(two, "a", b"3")
        assert (await pop(two)).bodies == [b"3"]

    paired(tmp_path, story)


@pytest.mark.parametrize("count", [2, 5])
def test_slave_that_kept_an_idle_light_topic_gives_all_of_the_new_one(
    tmp_path: Path, count: int
) -> None:
    """It began at 0 again at the master; the slave knew that the group was at 3."""

    async def story(one: Cluster, two: Cluster) -> None:
        await subscribe(one, "a")
        await send(one, "a", b"0", b"1", b"2")
        await ack(one, *(await pop(one)).handles)
        await copied(one, two)
        assert committed(two) == 3
        # The slave asks each second what its master has deleted: here not before it has been seen.
        async with two.broker.pair.sync._copying:
            await light_upkeep(one, LaterClock(65_000)).expire()
            assert (committed(one), two.broker.store.max_offset(queue("a"), 0)) == (None, 3)
        bodies = [b"new %d" % number for number in range(count)]
        await send(one, "a", *bodies)
        await copied(one, two)
        await change_places(one, two)
        await subscribe(two, "a")
        assert (await pop(two)).bodies == bodies

    paired(tmp_path, story)


def test_master_that_ends_before_its_slave_copied_offsets_loses_no_message(tmp_path: Path) -> None:
    async def story(one: Cluster, two: Cluster) -> None:
        await subscribe(one, "a")
        await send(one, "a", b"0", b"1", b"2")
        await ack(one, *(await pop(one)).handles)
        two.broker.metadata.offsets.commit(GROUP, queue("a"), 0, 3)
        await light_upkeep(one, LaterClock(65_000)).expire()
        await send(one, "a", b"new 0", b"new 1")
        await caught_up(one.broker, two.broker)
        await change_places(one, two)
        await put_parent(two)
        await put_group(two)
        await subscribe(two, "a")
        assert (await pop(two)).bodies == [b"new 0", b"new 1"]

    # What it copied at its start is all that it knows.
    paired(tmp_path, story, slaveSyncInterval="3600000")


def test_kill_between_the_steps_of_a_removal_skips_no_message(tmp_path: Path) -> None:
    """The queue is gone and the offset is still in the file."""

    async def before(it: Cluster) -> None:
        await put_parent(it)
        await put_group(it)
        await subscribe(it, "a")
        await send(it, "a", b"0", b"1", b"2")
        await ack(it, *(await pop(it)).handles)
        assert committed(it) == 3
        it.broker.store.native.delete_topic(queue("a"))

    async def after(it: Cluster) -> None:
        await subscribe(it, "a")
        await send(it, "a", b"new 0", b"new 1", b"new 2", b"new 3")
        assert (await pop(it)).bodies == [b"new 0", b"new 1", b"new 2", b"new 3"]

    playing(tmp_path, before)
    playing(tmp_path, after)


def test_slave_removes_idle_light_topics_by_itself(tmp_path: Path) -> None:
    async def story(one: Cluster, two: Cluster) -> None:
        await subscribe(one, "a")
        await send(one, "a", b"0")
        await copied(one, two)
        tables = [it.broker.metadata.topics for it in (one, two)]
        # The log alone names the topic as well, without its attributes.
        await until(lambda: tables[0].get(PARENT) == tables[1].get(PARENT), "the topic is copied")
        for it in (two, one):
            await light_upkeep(it, LaterClock(65_000)).expire()
            assert it.broker.store.max_offset(queue("a"), 0) == 0
        await send(one, "a", b"1")
        await caught_up(one.broker, two.broker)
        assert two.broker.store.max_offset(queue("a"), 0) == 1

    paired(tmp_path, story)
