"""Namespaces: ours and those of Java's clients are the same names at brokers of either make."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

import roquet
from interop_world import messages

if TYPE_CHECKING:
    from interop_world import Side, World
    from roquet.client import Received

SIDES = ["java", "ours"]
NAMESPACE = "shop"


def _side(world: World, name: str) -> Side:
    return world.java if name == "java" else world.ours


def _connect(side: Side) -> roquet.MQ:
    return roquet.connect(f"rmq://{side.namesrv}?namespace={NAMESPACE}")


async def _consume(
    side: Side, topic: str, group: str, count: int, fail: str = ""
) -> list[Received]:
    """Consume so many; the first delivery of the message with the key `fail` fails."""
    found: list[Received] = []
    async with (
        asyncio.timeout(120),
        _connect(side) as mq,
        mq.consumer(group, topic, start="earliest") as consumer,
    ):
        while len(found) < count:
            received = await consumer.receive(60)
            assert received is not None, f"only {len(found)} of {count} came"
            found.append(received)
            if fail in received.keys and received.attempt == 1:
                received.retry(delay_level=1)
            else:
                received.ack()
    return found


@pytest.mark.parametrize("name", SIDES)
def test_java_reads_what_we_send_in_a_namespace(world: World, name: str) -> None:
    side = _side(world, name)
    topic = f"NamespaceOurs-{name}"
    world.topic(f"{NAMESPACE}%{topic}", side)
    given = messages(12, seed=61)

    async def send() -> list[str]:
        async with _connect(side) as mq, mq.producer("p") as producer:
            futures = [
                await producer.submit(topic, one["body"], tag=one["tags"], keys=one["keys"])
                for one in given
            ]
            return [(await future).message_id for future in futures]

    ids = asyncio.run(send())
    again = given[3]["keys"]
    came = world.driver.consume(
        side.namesrv, topic, "readers", 13, fail_once=again, namespace=NAMESPACE, timeout_s=60
    )
    assert {one["topic"] for one in came} == {topic}
    assert {one["msg_id"] for one in came} == set(ids)
    assert sorted(one["times"] for one in came) == [0] * 12 + [1]
    assert [one["keys"] for one in came if one["times"]] == [again]
    # Who reads without the namespace reads other names.
    outside = world.driver.consume(
        side.namesrv, f"{NAMESPACE}%{topic}", "outside", 12, linger_s=0.1
    )
    assert {one["topic"] for one in outside} == {f"{NAMESPACE}%{topic}"}


@pytest.mark.parametrize("name", SIDES)
def test_we_read_what_java_sends_in_a_namespace(world: World, name: str) -> None:
    side = _side(world, name)
    topic = f"NamespaceJava-{name}"
    world.topic(f"{NAMESPACE}%{topic}", side)
    given = messages(12, seed=62)
    sent = world.driver.send(side.namesrv, topic, given, namespace=NAMESPACE)
    again = given[5]["keys"]
    came = asyncio.run(_consume(side, topic, f"we_read_{name}", 13, again))
    assert {one.topic for one in came} == {topic}
    assert {one.message_id for one in came} == {one["msg_id"] for one in sent}
    assert [one.keys for one in came if one.attempt > 1] == [(again,)]


@pytest.mark.parametrize("name", SIDES)
def test_a_group_of_a_namespace_goes_on_where_the_other_make_was(world: World, name: str) -> None:
    side = _side(world, name)
    topic, group = f"NamespaceGroup-{name}", f"both_{name}"
    world.topic(f"{NAMESPACE}%{topic}", side, 1)
    first, second, third = (messages(5, seed=seed) for seed in (63, 64, 65))
    world.driver.send(side.namesrv, topic, first, namespace=NAMESPACE)
    ours = asyncio.run(_consume(side, topic, group, 5))
    world.driver.send(side.namesrv, topic, second, namespace=NAMESPACE)
    javas = world.driver.consume(side.namesrv, topic, group, 5, namespace=NAMESPACE)
    world.driver.send(side.namesrv, topic, third, namespace=NAMESPACE)
    last = asyncio.run(_consume(side, topic, group, 5))
    assert [one.body for one in ours] == [one["body"] for one in first]
    # Java's listener runs on threads: its order is not the queue's.
    assert {one["body"] for one in javas} == {one["body"] for one in second}
    assert len(javas) == len(second)
    assert [one.body for one in last] == [one["body"] for one in third]
