"""A slave that becomes master while checkpoints of pops were in the old master's memory."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from pair_harness import caught_up, pair_world, until
from pop_harness import GROUP, TIMER_LOG, ack_command, pop_command, popped
from roquet.store.results import PutResult, PutStatus
from roquet.testing.cluster import running_broker

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pair_harness import PairWorld
    from pop_harness import Popped
    from roquet.broker.app import Broker
    from roquet.store.results import Draft

ON = {"enablePopBufferMerge": "true", "timerWheelEnable": "true", **TIMER_LOG}
TOPIC = "Pair"


async def pop(world: PairWorld, at: Broker, most: int = 32) -> Popped:
    """Pop at a broker."""
    command = pop_command(TOPIC, maxMsgNums=str(most))
    return popped(await world.client.call(at.identity.address, command, 20.0), at.identity.name)


def committed(broker: Broker) -> int | None:
    """Return the group's offset at a broker."""
    return broker.metadata.offsets.committed(GROUP, TOPIC, 0)


def refuse(drafts: Sequence[Draft]) -> list[PutResult]:
    """Be a store that takes nothing any more."""
    return [PutResult(PutStatus.SERVICE_NOT_AVAILABLE, why="dead") for _ in drafts]


def test_promoted_slave_gives_again_what_was_in_the_masters_memory(tmp_path: Path) -> None:
    async def run() -> None:
        async with pair_world(tmp_path) as world:
            async with world.master(**ON) as master, world.slave(of=master, **ON) as slave:
                for number in range(4):
                    assert (await world.send(master, b"%d" % number)).code == 0
                await until(lambda: master.store.dispatch_behind() == 0, "dispatch")
                settled = await pop(world, master, 1)
                done = ack_command(settled.handles[0], TOPIC)
                assert (await world.client.call(master.identity.address, done)).code == 0
                got = await pop(world, master)
                assert got.bodies == [b"1", b"2", b"3"]
                one = ack_command(got.handles[1], TOPIC)
                assert (await world.client.call(master.identity.address, one)).code == 0
                assert committed(master) == 1
                await caught_up(master, slave)
                await until(lambda: committed(slave) == 1, "the slave knows the offset")
                # The master dies here: its stop stores nothing of what is in memory.
                master.store.append = refuse  # type: ignore[method-assign]
            promoted = {**ON, "brokerRole": "ASYNC_MASTER", "brokerId": "0"}
            async with running_broker(
                tmp_path / "slave", world.name_servers, changes=promoted
            ) as heir:
                # The second is acknowledged, but in the memory of the dead one alone.
                assert (await pop(world, heir)).bodies == [b"1", b"2", b"3"]

    asyncio.run(run())
