"""Plain receives before a cluster: the core shows what brokers answer to pops."""

from __future__ import annotations

import asyncio
import zlib
from typing import TYPE_CHECKING, Any

import pytest

from cluster_calls import World, run
from grpc_calls import SHOWN, Answered, Gone, acknowledgement, consumer, message, received, shown
from roquet.model.group import SubscriptionGroupConfig
from roquet.protocol.codes import RequestCode
from roquet.protocol.command import Command
from roquet.proxy import messages as pb
from roquet.proxy.cluster.receiving import TopicSource
from roquet.proxy.rules.codes import Code

if TYPE_CHECKING:
    from pathlib import Path


async def begun(world: World, *groups: str, topic: str = "Normal") -> None:
    """Have groups begin at the next message."""
    for group in groups:
        world.broker.metadata.groups.put(SubscriptionGroupConfig(name=group))
        end = world.broker.store.max_offset(topic, 0)
        world.broker.metadata.offsets.commit(group, topic, 0, end)


async def dispatched(world: World) -> None:
    while world.broker.store.dispatch_behind():  # noqa: ASYNC110
        await asyncio.sleep(0.01)


async def answered(world: World, topic: str, group: str, **more: Any) -> Answered:
    return await world.raw("ReceiveMessage", received(topic, group, **more).SerializeToString())


def _unpacked(*_: object) -> None:
    """Have every message looked at."""


async def looked_at(world: World, topic: str, group: str, **more: Any) -> Answered:
    """Receive with a look of the front at each message."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TopicSource, "pack", _unpacked)
        return await answered(world, topic, group, **more)


def test_popped_messages_are_shown_byte_for_byte_as_the_front_does_it(tmp_path: Path) -> None:
    async def tell(world: World) -> None:
        for topic in ("Normal", "Fifo"):
            await dispatched(world)
            await begun(world, "fast", "slow", topic=topic)
            given = [make() for make in SHOWN.values() if make().topic.name == topic]
            for made in given:
                assert (await world.send(made)).status.code == Code.OK
            await dispatched(world)
            fast = await answered(world, topic, "fast")
            slow = await looked_at(world, topic, "slow")
            assert (fast.framed, slow.framed) == (1, 0)
            assert fast.ended == slow.ended == (0, "")
            assert len(fast.parts) == len(given) + 2
            assert list(map(shown, fast.parts)) == list(map(shown, slow.parts))

    run(tmp_path, tell)


def test_messages_of_many_queues_have_handles_that_end_their_flights(tmp_path: Path) -> None:
    async def tell(world: World) -> None:
        fields = {"topic": "Wide", "readQueueNums": "4", "writeQueueNums": "4", "perm": "6"}
        fields |= {"topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false"}
        fields |= {"attributes": "+message.type=NORMAL", "defaultTopic": "TBW102"}
        command = Command(RequestCode.UPDATE_AND_CREATE_TOPIC, fields)
        assert (await world.behind.call(command, world.behind.address)).code == 0
        world.broker.metadata.groups.put(SubscriptionGroupConfig(name="wide"))
        for queue in range(4):
            world.broker.metadata.offsets.commit("wide", "Wide", queue, 0)
        for number in range(16):
            answer = await world.send(message("Wide", b"%d" % number))
            assert answer.status.code == Code.OK, answer.status
        await dispatched(world)
        bodies: list[bytes] = []
        while len(bodies) < 16:
            found = await answered(world, "Wide", "wide")
            assert found.framed == 1
            parts = map(pb.ReceiveMessageResponse.FromString, found.parts)
            messages = [part.message for part in parts if part.HasField("message")]
            bodies += [one.body for one in messages]
            done = await world.call("AckMessage", acknowledgement("Wide", "wide", *messages))
            assert {entry.status.code for entry in done.entries} == {Code.OK}
        assert sorted(bodies, key=int) == [b"%d" % number for number in range(16)]

    run(tmp_path, tell)


def test_popped_messages_that_need_a_look_are_given_by_the_front(tmp_path: Path) -> None:
    async def tell(world: World) -> None:
        await dispatched(world)
        await begun(world, "tags", "sql", "packed", "again")
        # Both tags have one code.
        await world.send(message(tag="Aa"))
        await dispatched(world)
        found = await answered(world, "Normal", "tags", expression="BB")
        last = pb.ReceiveMessageResponse.FromString(found.parts[-1])
        assert (found.framed, last.status.code) == (0, Code.MESSAGE_NOT_FOUND)
        found = await answered(world, "Normal", "sql", expression="TAGS = 'Aa'", type=2)
        assert (found.framed, len(found.parts)) == (0, 3)
        body = zlib.compress(b"of a client of remoting")
        await world.send(message(body=body, body_encoding=2))
        await dispatched(world)
        found = await answered(world, "Normal", "packed")
        assert (found.framed, len(found.parts)) == (0, 4)
        shown_last = pb.ReceiveMessageResponse.FromString(found.parts[2])
        assert shown_last.message.body == b"of a client of remoting"

    run(tmp_path, tell)


def test_popped_messages_that_nobody_takes_come_again_soon_and_by_the_front(tmp_path: Path) -> None:
    async def tell(world: World) -> None:
        await dispatched(world)
        await begun(world, "left")
        await world.send(message())
        await dispatched(world)
        request = received("Normal", "left", invisible_ms=600_000).SerializeToString()
        await world.front.serve(world.head("ReceiveMessage"), request, Gone())
        again = await answered(world, "Normal", "left", wait_ms=20_000)
        (_, part, _) = again.parts
        system = pb.ReceiveMessageResponse.FromString(part).message.system_properties
        assert (again.framed, system.delivery_attempt) == (0, 2)
        found = pb.ReceiveMessageResponse.FromString(part).message
        done = await world.call("AckMessage", acknowledgement("Normal", "left", found))
        assert done.status.code == Code.OK

    run(tmp_path, tell)


def test_popped_messages_of_push_consumers_are_renewed(tmp_path: Path) -> None:
    async def tell(world: World) -> None:
        await dispatched(world)
        await begun(world, "push")
        assert await world.show(consumer("push", 2, "Normal")) is None
        for _ in range(3):
            await world.send(message())
        await dispatched(world)
        found = await answered(world, "Normal", "push", auto_renew=True)
        assert (found.framed, len(world.front.renewals)) == (1, 3)

    run(tmp_path, tell)
