"""Messages received one by one: acknowledged, given more time, or given again."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

import pytest

import roquet
from broker_harness import dispatched
from roquet import sync
from roquet.base.errors import Refused, UsageError
from roquet.client._popping.popped import popped_of
from roquet.protocol.headers.pop import PopMessageResponse
from roquet.protocol.pop.handle import HandleError
from roquet.testing.cluster import cluster

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path

    from roquet.client import MQ, Popped, SimpleConsumer
    from roquet.testing.cluster import Cluster

FAST = {"timerPrecisionMs": "100", "reviveInterval": "100", "mappedFileSizeTimerLog": "65536"}
SOON = 0.3


@contextlib.asynccontextmanager
async def sent(folder: Path, count: int) -> AsyncIterator[tuple[Cluster, MQ]]:
    """Yield a cluster whose topic has messages, and a client."""
    async with (
        asyncio.timeout(50),
        cluster(folder, **FAST) as it,
        roquet.connect(f"rmq://{it.name_servers}") as mq,
    ):
        await mq.admin().topics.create("orders", 4)
        async with mq.producer("p") as producer:
            for number in range(count):
                await producer.send("orders", f"{number}", tag="odd" if number % 2 else "even")
        await dispatched(it)
        yield it, mq


async def all_of(consumer: SimpleConsumer, count: int, invisible_s: float = 60) -> list[Popped]:
    found: list[Popped] = []
    while len(found) < count:
        found += await consumer.receive(wait_s=5, invisible_s=invisible_s)
    return found


def play(folder: Path, tell: Callable[[Cluster, MQ], Awaitable[None]], count: int = 10) -> None:
    async def run() -> None:
        async with sent(folder, count) as (it, mq):
            await tell(it, mq)

    asyncio.run(run())


def test_what_is_acknowledged_is_done_and_the_rest_comes_again(tmp_path: Path) -> None:
    async def tell(_: Cluster, mq: MQ) -> None:
        async with mq.simple_consumer("workers", "orders", start="earliest") as consumer:
            found = await all_of(consumer, 10, invisible_s=2)
            assert sorted(it.body for it in found) == [b"%d" % number for number in range(10)]
            assert {(it.topic, it.attempt) for it in found} == {("orders", 1)}
            kept = [it for it in found if it.body in (b"3", b"7")]
            for it in found:
                if it not in kept:
                    await consumer.ack(it)
            again = await all_of(consumer, 2)
            assert sorted(it.body for it in again) == [b"3", b"7"]
            assert {(it.topic, it.attempt) for it in again} == {("orders", 2)}
            for it in again:
                await consumer.ack(it)
            assert await consumer.receive(wait_s=0) == []

    play(tmp_path, tell)


def test_two_members_share_messages_and_a_filter_leaves_the_others(tmp_path: Path) -> None:
    async def tell(it: Cluster, mq: MQ) -> None:
        async with (
            roquet.connect(f"rmq://{it.name_servers}") as other,
            mq.simple_consumer("workers", {"orders": "odd"}, start="earliest") as first,
            other.simple_consumer("workers", {"orders": "odd"}, start="earliest") as second,
        ):
            found: list[Popped] = []
            while len(found) < 5:
                for consumer in (first, second):
                    for popped in await consumer.receive(1, wait_s=SOON):
                        await consumer.ack(popped)
                        found.append(popped)
            assert sorted(it.body for it in found) == [b"1", b"3", b"5", b"7", b"9"]

    play(tmp_path, tell)


def test_more_time_and_none_at_all(tmp_path: Path) -> None:
    async def tell(_: Cluster, mq: MQ) -> None:
        async with mq.simple_consumer("workers", "orders", start="earliest") as consumer:
            (popped,) = await all_of(consumer, 1, invisible_s=2)
            longer = await consumer.change_invisible(popped, 60)
            assert longer.visible_again_ms > popped.visible_again_ms + 50_000
            assert await consumer.receive(wait_s=3) == []
            await consumer.change_invisible(longer, 0)
            (again,) = await all_of(consumer, 1)
            assert (again.body, again.attempt) == (b"0", 2)
            await consumer.ack(again)

    play(tmp_path, tell, count=1)


def test_receive_waits_at_the_broker_for_a_message(tmp_path: Path) -> None:
    async def tell(_: Cluster, mq: MQ) -> None:
        async with (
            mq.simple_consumer("workers", "orders") as consumer,
            mq.producer("p") as producer,
        ):
            waiting = asyncio.create_task(consumer.receive(wait_s=20))
            await asyncio.sleep(SOON)
            await producer.send("orders", b"late")
            (found,) = await waiting
            assert found.body == b"late"

    play(tmp_path, tell, count=0)


def test_what_cannot_be_is_said(tmp_path: Path) -> None:
    async def tell(_: Cluster, mq: MQ) -> None:
        with pytest.raises(UsageError, match="start"):
            mq.simple_consumer("workers", "orders", start="now")  # type: ignore[arg-type]
        with pytest.raises(Refused, match="nowhere"):
            await mq.simple_consumer("workers", "nowhere").start()
        consumer = mq.simple_consumer("workers", "orders", start="earliest")
        with pytest.raises(UsageError, match="not started"):
            await consumer.receive()
        async with consumer:
            for count in (0, 33):
                with pytest.raises(UsageError, match="max_messages"):
                    await consumer.receive(count)
            with pytest.raises(UsageError, match="wait_s"):
                await consumer.receive(wait_s=-1)
            (popped,) = await all_of(consumer, 1)
            with pytest.raises(UsageError, match="invisible_s"):
                await consumer.change_invisible(popped, -1)
            foreign = popped._replace(handle=popped.handle._replace(queue_id=9))
            with pytest.raises(Refused):
                await consumer.ack(foreign)
            with pytest.raises(UsageError, match="has a consumer"):
                await mq.simple_consumer("workers", "orders").start()
        with pytest.raises(UsageError, match="not started"):
            await consumer.ack(popped)

    play(tmp_path, tell, count=1)


def test_blocking_program_receives_and_acknowledges(tmp_path: Path) -> None:
    def work(address: str) -> None:
        with (
            sync.connect(f"rmq://{address}") as mq,
            mq.simple_consumer("workers", "orders", start="earliest") as consumer,
        ):
            found: list[Popped] = []
            while len(found) < 3:
                for popped in consumer.receive(wait_s=5):
                    consumer.ack(popped)
                    found.append(popped)
            assert sorted(it.body for it in found) == [b"0", b"1", b"2"]

    async def tell(it: Cluster, _: MQ) -> None:
        await asyncio.to_thread(work, it.name_servers)

    play(tmp_path, tell, count=3)


def test_answer_whose_tables_do_not_name_a_message_is_refused(tmp_path: Path) -> None:
    async def tell(_: Cluster, mq: MQ) -> None:
        async with mq.simple_consumer("workers", "orders", start="earliest") as consumer:
            (popped,) = await all_of(consumer, 1)
        message, queue = popped.message, popped.message.queue_id
        for starts, offsets in (("", ""), (f"0 {queue} 0", ""), (f"0 {queue} 0", f"0 {queue} 1")):
            answer = PopMessageResponse(start_offset_info=starts, msg_offset_info=offsets)
            with pytest.raises(HandleError, match="how orders"):
                popped_of([message], answer, "broker-a")

    play(tmp_path, tell, count=1)
