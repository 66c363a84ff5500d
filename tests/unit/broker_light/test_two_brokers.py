"""One parent on two brokers: each light topic belongs to one of them, and is kept there."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from broker_harness import dispatched
from light_harness import (
    ON,
    PARENT,
    LightPop,
    ack,
    ctl_command,
    light_properties,
    pop_command,
    popped,
    put_group,
    put_parent,
    queue,
)
from roquet.protocol.codes import RequestCode
from roquet.protocol.command import Command
from roquet.protocol.light import light_topics
from roquet.testing.cluster import Cluster, cluster, send_command

if TYPE_CHECKING:
    from pathlib import Path

NAMES = [f"room-{number}" for number in range(40)]
QUEUES = 4
"""Of the parent on each broker."""


async def has_both(it: Cluster) -> bool:
    """Tell whether the name server has the queues of both brokers."""
    address = it.name_servers
    asked = Command(RequestCode.GET_ROUTEINFO_BY_TOPIC, ext={"topic": PARENT})
    answer = await it.call(asked, address)
    return answer.code == 0 and answer.body.count(b'"writeQueueNums"') == 2


def test_light_topic_is_kept_by_its_broker_and_where_it_has_messages(tmp_path: Path) -> None:
    async def main() -> None:
        async with cluster(tmp_path, "broker-a", "broker-b", **ON) as it:
            sides = [Cluster(it.name_server, (one,), it.client) for one in it.brokers]
            for side in sides:
                await put_parent(side)
                await put_group(side)
            async with asyncio.timeout(60):
                while not await has_both(it):  # noqa: ASYNC110  (a registration)
                    await asyncio.sleep(0.05)
            # As clients choose the queue: the first four buckets are those of broker-a.
            owner = {name: light_topics.bucket(name, 2 * QUEUES) // QUEUES for name in NAMES}
            for name in NAMES:
                await put(sides[owner[name]], name)
            stray = next(name for name in NAMES if owner[name] == 0)
            await put(sides[1], stray)
            for side in sides:
                await dispatched(side)
                # Proxies tell every broker.
                assert (await side.call(ctl_command("COMPLETE_ADD", NAMES))).code == 0
            for number, side in enumerate(sides):
                found = []
                wanted = {name for name in NAMES if owner[name] == number}
                wanted |= {stray} if number else set()
                while (taken := await pop(side, number)).handles:
                    found += [name for name, _ in taken.handles]
                    await ack(side, *taken.handles)
                assert sorted(found) == sorted(wanted)
                for name in NAMES:
                    has = side.broker.store.max_offset(queue(name), 0)
                    assert has == (name in wanted), name
            # One without messages is kept by its owner alone, and heard of there.
            late = next(name for name in (f"late-{at}" for at in range(99)) if is_second(name))
            for side in sides:
                assert (await side.call(ctl_command("PARTIAL_ADD", [late]))).code == 0
            waiting = asyncio.create_task(pop(sides[1], 1, pollTime="15000"))
            await put(sides[1], late)
            assert [name for name, _ in (await waiting).handles] == [late]
            await put(sides[0], late)
            await dispatched(sides[0])
            assert not (await pop(sides[0], 0)).handles

    asyncio.run(main())


def is_second(name: str) -> bool:
    return light_topics.bucket(name, 2 * QUEUES) >= QUEUES


async def pop(side: Cluster, number: int, **fields: str) -> LightPop:
    return popped(await side.call(pop_command(**fields)), f"broker-{'ab'[number]}")


async def put(side: Cluster, name: str) -> None:
    answer = await side.call(send_command(PARENT, name.encode(), 0, light_properties(name)))
    assert answer.code == 0, answer.remark
