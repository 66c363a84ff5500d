"""Messages received in batches, and consumers that are drained."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

import roquet
from broker_harness import play
from roquet.base.errors import UsageError
from roquet.client import ConsumerOptions

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from pathlib import Path

    from roquet.testing.cluster import Cluster

FAST = ConsumerOptions(rebalance_every_s=0.5, commit_every_s=60, handover_s=0.0, order_retry_s=0.05)


def told(folder: Path, story: Callable[[roquet.MQ, Cluster], Awaitable[None]]) -> None:
    async def tell(it: Cluster) -> None:
        async with roquet.connect(f"rmq://{it.name_servers}") as mq, asyncio.timeout(50):
            await mq.admin().topics.create("orders", 4)
            await story(mq, it)

    play(folder, tell)


async def send(mq: roquet.MQ, count: int, order_key: str | None = None) -> list[bytes]:
    bodies = [b"%d" % number for number in range(count)]
    async with mq.producer() as producer:
        for body in bodies:
            await producer.send("orders", body, order_key=order_key)
    return bodies


def test_receive_many_gives_what_is_there_up_to_the_size(tmp_path: Path) -> None:
    async def story(mq: roquet.MQ, _: Cluster) -> None:
        bodies = await send(mq, 50)
        async with mq.consumer("g", "orders", start="earliest", options=FAST) as consumer:
            found: list[bytes] = []
            while len(found) < 50:
                batch = await consumer.receive_many(20, 20, linger_s=0.2)
                assert 1 <= len(batch) <= 20
                found += [received.body for received in batch]
                for received in batch:
                    received.ack()
            assert sorted(found) == sorted(bodies)
            assert await consumer.receive_many(20, 0.1) == []
            consumer.stop()
            assert await consumer.receive_many(20) == []
            for count in (0, -1, 1025):
                with pytest.raises(UsageError, match="at once"):
                    await consumer.receive_many(count)
        with pytest.raises(UsageError, match="not started"):
            await consumer.receive_many()

    told(tmp_path, story)


def test_receive_many_waits_to_fill_a_batch_and_no_longer(tmp_path: Path) -> None:
    async def story(mq: roquet.MQ, _: Cluster) -> None:
        async with (
            mq.producer() as producer,
            mq.consumer("g", "orders", start="earliest", options=FAST) as consumer,
        ):
            asking = asyncio.create_task(consumer.receive_many(3, linger_s=30))
            for body in ("a", "b", "c"):
                await asyncio.sleep(0.1)
                assert not asking.done()
                await producer.send("orders", body)
            assert sorted(it.body for it in await asking) == [b"a", b"b", b"c"]

    told(tmp_path, story)


def test_a_batch_that_fails_comes_again_but_for_what_is_settled(tmp_path: Path) -> None:
    async def story(mq: roquet.MQ, _: Cluster) -> None:
        await send(mq, 10)
        first: list[list[tuple[bytes, int]]] = []
        again: list[tuple[bytes, int]] = []

        async def handle(batch: Sequence[roquet.Received]) -> None:
            if batch[0].attempt == 1 and not first:
                first.append([(it.body, it.attempt) for it in batch])
                batch[0].ack()
                raise ValueError("as planned")
            again.extend((it.body, it.attempt) for it in batch)
            if len(again) == 9:
                consumer.stop()

        async with mq.consumer("g", "orders", start="earliest", options=FAST) as consumer:
            await asyncio.sleep(1)
            running = consumer.run_batches(handle, size=10, linger_s=0.5)
            with pytest.raises(UsageError, match="at once"):
                await consumer.run_batches(handle, size=0)
            with pytest.raises(UsageError, match="concurrency"):
                await consumer.run_batches(handle, concurrency=0)
            level = asyncio.create_task(running)
            await level
        assert len(first[0]) == 10
        assert sorted(again) == sorted((body, 2) for body, _ in first[0][1:])

    told(tmp_path, story)


async def committed(mq: roquet.MQ) -> int:
    async with mq.pull_consumer("g") as pull:
        offsets = [await pull.committed(queue) or 0 for queue in await pull.queues("orders")]
        return sum(offsets)


def test_drain_waits_for_what_is_in_hand_and_commits_it(tmp_path: Path) -> None:
    async def story(mq: roquet.MQ, _: Cluster) -> None:
        await send(mq, 40)
        consumer = mq.consumer("g", "orders", start="earliest", options=FAST)
        await consumer.start()
        batch: list[roquet.Received] = []
        while len(batch) < 10:
            batch += await consumer.receive_many(10 - len(batch))
        draining = asyncio.create_task(consumer.drain(20))
        await asyncio.sleep(0.2)
        assert not draining.done()
        for received in batch:
            received.ack()
        assert await draining
        assert await consumer.drain()  # nothing is left: at once
        assert len({it.body for it in batch}) == 10
        rest: set[bytes] = set()
        async with mq.consumer("g", "orders", start="earliest", options=FAST) as other:
            while len(rest) < 30:
                rest |= {it.body for it in await other.receive_many()}
        assert rest.isdisjoint(it.body for it in batch)

    told(tmp_path, story)


def test_drain_gives_up_what_is_not_settled_in_time(tmp_path: Path) -> None:
    async def story(mq: roquet.MQ, _: Cluster) -> None:
        await send(mq, 1)
        consumer = mq.consumer("g", "orders", start="earliest", options=FAST)
        await consumer.start()
        assert await consumer.receive(20) is not None
        assert not await consumer.drain(0.1)
        assert await committed(mq) == 0

    told(tmp_path, story)


@pytest.mark.parametrize("outcome", ["ack", "retry"])
def test_an_ordered_consumer_drains_the_one_message_in_hand(tmp_path: Path, outcome: str) -> None:
    async def story(mq: roquet.MQ, _: Cluster) -> None:
        await send(mq, 5, order_key="k")
        consumer = mq.consumer("g", "orders", start="earliest", ordered=True, options=FAST)
        await consumer.start()
        received = await consumer.receive(20)
        assert received is not None
        draining = asyncio.create_task(consumer.drain(20))
        await asyncio.sleep(0.2)
        assert not draining.done()
        getattr(received, outcome)()
        assert await draining
        assert await committed(mq) == (outcome == "ack")

    told(tmp_path, story)


def test_the_blocking_client_receives_batches_and_drains(tmp_path: Path) -> None:
    def block(address: str) -> None:
        options = FAST
        with roquet.sync.connect(f"rmq://{address}") as mq:
            consumer = mq.consumer("g", "orders", start="earliest", options=options)
            consumer.start()
            found: list[bytes] = []
            while len(found) < 8:
                for received in consumer.receive_many(8, 20):
                    found.append(received.body)
                    received.ack()
            assert len(set(found)) == 8
            assert consumer.drain()

    async def story(mq: roquet.MQ, it: Cluster) -> None:
        await send(mq, 8)
        await asyncio.to_thread(block, it.name_servers)
        assert await committed(mq) == 8

    told(tmp_path, story)
