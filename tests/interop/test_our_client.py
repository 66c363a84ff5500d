"""Our client with the Java name server and broker, and beside Java clients at either broker."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

import roquet
from interop_world import assert_same, by_place, messages

if TYPE_CHECKING:
    from collections.abc import Sequence

    from interop_world import Received, Sent, Side, World
    from roquet.client import Received as Delivery
    from roquet.client import SendReceipt
    from roquet.model.message import StoredMessage

SIDES = ["java", "ours"]


def side_of(world: World, name: str) -> Side:
    return world.java if name == "java" else world.ours


def connect(side: Side) -> roquet.MQ:
    return roquet.connect(f"rmq://{side.namesrv}")


def as_sent(receipt: SendReceipt) -> Sent:
    """Show our receipt as the Java driver shows its own."""
    return {
        "status": str(receipt.status),
        "msg_id": receipt.message_id,
        "offset_msg_id": receipt.offset_id,
        "broker": receipt.queue.broker_name,
        "queue": receipt.queue.queue_id,
        "offset": receipt.queue_offset,
    }


def as_received(message: StoredMessage) -> Received:
    """Show our message as the Java driver shows its own."""
    return {
        "msg_id": message.unique_key,
        "offset_msg_id": message.msg_id,
        "topic": message.topic,
        "queue": message.queue_id,
        "offset": message.queue_offset,
        "body": message.body,
        "tags": message.tag,
        "keys": " ".join(message.keys),
        "times": message.reconsume_times,
        "properties": dict(message.properties),
    }


async def send_all(mq: roquet.MQ, topic: str, given: Sequence[dict[str, Any]]) -> list[Sent]:
    async with mq.producer("our_producers") as producer:
        receipts = [
            await producer.send(
                topic,
                one["body"],
                tag=one["tags"],
                keys=one["keys"],
                properties=one["properties"],
            )
            for one in given
        ]
    return [as_sent(receipt) for receipt in receipts]


async def consume(
    mq: roquet.MQ, topic: str, group: str, count: int, *, tags: str = "*", ordered: bool = False
) -> list[Delivery]:
    found: list[Delivery] = []
    async with (
        asyncio.timeout(60),
        mq.consumer(group, {topic: tags}, start="earliest", ordered=ordered) as consumer,
    ):
        while len(found) < count:
            delivery = await consumer.receive(timeout_s=30)
            assert delivery is not None, f"only {len(found)} of {count} came"
            found.append(delivery)
            delivery.ack()
        assert await consumer.receive(timeout_s=0.5) is None, "more came than was sent"
    return found


@pytest.mark.parametrize("name", SIDES)
def test_java_reads_what_we_send(world: World, name: str) -> None:
    side = side_of(world, name)
    topic = world.topic(f"WeSend-{name}", side)
    given = messages(40, seed=20)
    # One that is compressed on its way: Java unpacks it.
    given[3]["body"] = b"0123456789" * 1024

    async def work() -> list[Sent]:
        async with connect(side) as mq:
            return await send_all(mq, topic, given)

    sent = asyncio.run(work())
    assert {answer["broker"] for answer in sent} == {side.name}
    received = world.driver.consume(side.namesrv, topic, f"we_send_{name}", len(given))
    assert_same(given, sent, received)
    (large,) = [one for one in received if one["keys"] == given[3]["keys"]]
    assert large["stored_size"] < 1024


@pytest.mark.parametrize("name", SIDES)
def test_we_read_what_java_sends(world: World, name: str) -> None:
    side = side_of(world, name)
    topic = world.topic(f"JavaSends-{name}", side)
    given = messages(40, seed=21)
    given[3]["body"] = b"0123456789" * 1024
    sent = world.driver.send(side.namesrv, topic, given)

    async def work() -> list[Delivery]:
        async with connect(side) as mq:
            return await consume(mq, topic, f"java_sends_{name}", len(given))

    deliveries = asyncio.run(work())
    assert_same(given, sent, [as_received(one.message) for one in deliveries])
    # What we acknowledged, the Java tool sees as consumed.
    group = f"java_sends_{name}"
    shown = world.driver.mqadmin("consumerProgress", "-n", side.namesrv, "-g", group)
    rows = [line.split() for line in shown.splitlines() if line.startswith(topic)]
    assert sum(int(row[4]) for row in rows) == len(given)


def test_a_batch_of_ours_is_read_by_java(world: World) -> None:
    topic = world.topic("OurBatch", world.java)
    bodies = [b"batch %d" % number for number in range(7)]

    async def work() -> list[Sent]:
        async with connect(world.java) as mq, mq.producer("our_producers") as producer:
            return [as_sent(one) for one in await producer.send_batch(topic, bodies)]

    sent = asyncio.run(work())
    places = by_place(world.driver.consume(world.java.namesrv, topic, "our_batch", len(bodies)))
    assert len(places) == len(bodies)
    for body, answer in zip(bodies, sent, strict=True):
        came = places[answer["queue"], answer["offset"]]
        assert (came["body"], came["msg_id"]) == (body, answer["msg_id"])
        assert came["offset_msg_id"] == answer["offset_msg_id"]


def test_we_filter_by_tag_at_the_java_broker(world: World) -> None:
    topic = world.topic("OurTags", world.java)
    given = messages(30, seed=22)
    world.driver.send(world.java.namesrv, topic, given)
    wanted = [message["body"] for message in given if message["tags"] == "b"]

    async def work() -> list[Delivery]:
        async with connect(world.java) as mq:
            return await consume(mq, topic, "our_tags", len(wanted), tags="b || zz")

    assert sorted(one.body for one in asyncio.run(work())) == sorted(wanted)


def test_we_consume_queues_in_order_under_the_java_brokers_locks(world: World) -> None:
    topic = world.topic("OurOrder", world.java)
    given = messages(60, seed=23)
    for index, message in enumerate(given):
        message["properties"]["shard"] = str(index % 7)
    sent = world.driver.send(world.java.namesrv, topic, given, mode="ordered")

    async def work() -> list[Delivery]:
        async with connect(world.java) as mq:
            return await consume(mq, topic, "our_order", len(given), ordered=True)

    received = [as_received(one.message) for one in asyncio.run(work())]
    assert_same(given, sent, received)
    for queue in range(4):
        offsets = [one["offset"] for one in received if one["queue"] == queue]
        assert offsets == list(range(len(offsets)))


def test_what_we_give_back_the_java_broker_brings_again(world: World) -> None:
    topic = world.topic("OurRetry", world.java)
    given = messages(3, seed=24)
    world.driver.send(world.java.namesrv, topic, given)

    async def work() -> list[tuple[bytes, int]]:
        found: list[tuple[bytes, int]] = []
        async with (
            connect(world.java) as mq,
            mq.consumer("our_retry", topic, start="earliest") as consumer,
            asyncio.timeout(100),
        ):
            while len(found) < 4:
                delivery = await consumer.receive(timeout_s=90)
                assert delivery is not None, f"only {found} came"
                found.append((delivery.body, delivery.attempt))
                first = delivery.attempt == 1 and delivery.body == given[1]["body"]
                delivery.retry(delay_level=1) if first else delivery.ack()
        return found

    found = asyncio.run(work())
    assert sorted(found[:3]) == sorted((one["body"], 1) for one in given)
    assert found[3] == (given[1]["body"], 2)


def test_we_pull_from_the_java_broker_where_we_choose(world: World) -> None:
    topic = world.topic("OurPull", world.java, queues=1)
    given = messages(50, seed=25)
    sent = world.driver.send(world.java.namesrv, topic, given)

    async def work() -> None:
        async with connect(world.java) as mq, mq.pull_consumer("our_pull") as consumer:
            (queue,) = await consumer.queues(topic)
            assert await consumer.bounds(queue) == (0, 50)
            await consumer.assign([queue], start=30)
            found: list[StoredMessage] = []
            while len(found) < 20:
                found += await consumer.poll(timeout_s=10)
            assert [one.queue_offset for one in found] == list(range(30, 50))
            assert [one.body for one in found] == [one["body"] for one in given[30:]]
            assert [one.msg_id for one in found] == [one["offset_msg_id"] for one in sent[30:]]
            stored_ms = found[5].store_timestamp
            assert await consumer.seek(queue, timestamp=stored_ms) <= 35
            (again,) = await consumer.poll(max_messages=1, timeout_s=10)
            assert again.store_timestamp >= stored_ms
            await consumer.seek(queue, 44)
            await consumer.commit()
            assert await consumer.committed(queue) == 44

    asyncio.run(work())


def test_the_java_brokers_refusals_are_told_apart(world: World) -> None:
    async def work() -> None:
        async with connect(world.java) as mq:
            with pytest.raises(roquet.Refused) as refused:
                await mq.admin().topics.route("NoSuchTopicAnywhere")
            assert refused.value.code == 17
            async with mq.producer() as producer:
                with pytest.raises(roquet.RoquetError):
                    await producer.send("SCHEDULE_TOPIC_XXXX", b"x")

    asyncio.run(work())


@pytest.mark.parametrize("name", SIDES)
def test_a_java_consumer_and_ours_share_a_group(world: World, name: str) -> None:
    side = side_of(world, name)
    topic = world.topic(f"Shared-{name}", side)
    group = f"shared_{name}"
    given = messages(40, seed=26)

    async def work() -> tuple[list[StoredMessage], list[Received]]:
        ours: list[StoredMessage] = []
        async with (
            asyncio.timeout(100),
            connect(side) as mq,
            mq.consumer(group, topic, start="earliest") as consumer,
        ):
            java = asyncio.get_running_loop().run_in_executor(
                None,
                lambda: world.driver.consume(side.namesrv, topic, group, 20, timeout_s=60),
            )
            # The retry topic has a queue as well; of ours, the other takes its half.
            while sum(queue.topic == topic for queue in consumer.assigned) != 2:  # noqa: ASYNC110
                await asyncio.sleep(0.1)
            await send_all(mq, topic, given)
            while len(ours) < 20:
                delivery = await consumer.receive(timeout_s=30)
                assert delivery is not None
                ours.append(delivery.message)
                delivery.ack()
            return ours, await java

    ours, java = asyncio.run(work())
    assert len(ours) == len(java) == 20
    places = {(one.queue_id, one.queue_offset) for one in ours}
    places |= {(one["queue"], one["offset"]) for one in java}
    assert len(places) == 40
    bodies = [one.body for one in ours] + [one["body"] for one in java]
    assert sorted(bodies) == sorted(one["body"] for one in given)


@pytest.mark.parametrize("name", SIDES)
def test_the_java_tool_sees_our_consumer_at_work(world: World, name: str) -> None:
    side = side_of(world, name)
    topic = world.topic(f"Seen-{name}", side)
    group = f"seen_{name}"

    async def work() -> tuple[str, str, str]:
        async with (
            asyncio.timeout(100),
            connect(side) as mq,
            mq.consumer(group, {topic: "a || b"}, start="earliest") as consumer,
        ):
            await send_all(mq, topic, messages(4, seed=27))
            for _ in range(4):
                delivery = await consumer.receive(timeout_s=30)
                assert delivery is not None
                delivery.ack()
            run = asyncio.get_running_loop().run_in_executor
            at = ("-n", side.namesrv, "-g", group)
            shown = await run(None, lambda: world.driver.mqadmin("consumerConnection", *at))
            arguments = (*at, "-i", mq.client_id)
            inside = await run(None, lambda: world.driver.mqadmin("consumerStatus", *arguments))
            return mq.client_id, shown, inside

    client_id, connection, inside = asyncio.run(work())
    assert client_id in connection
    assert "PYTHON" in connection
    assert topic in connection
    assert "a || b" in connection
    assert "CLUSTERING" in connection
    assert topic in inside, "the broker has asked our client what it does"
