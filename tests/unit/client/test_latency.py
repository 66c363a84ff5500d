"""Brokers that are spared because they were slow or away."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

import pytest

import roquet
from remoting_harness import on_loop
from roquet.base.errors import OutcomeUnknown, Refused, Unreachable
from roquet.client import ProducerOptions
from roquet.client._sending import delivery
from roquet.client._sending.latency import FAILED_MS, LatencyBook
from roquet.client._sending.retry import tells_of_broker
from roquet.protocol.codes import ResponseCode
from roquet.testing.cluster import running_broker, running_name_server

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("latency_ms", "pause_ms"),
    [
        (0, 0),
        (549, 0),
        (550, 2_000),
        (1_799, 2_000),
        (1_800, 5_000),
        (3_000, 6_000),
        (5_000, 10_000),
        (FAILED_MS, 10_000),
        (15_000, 30_000),
    ],
)
def test_pauses_are_those_of_rocketmq(latency_ms: int, pause_ms: int) -> None:
    book = LatencyBook()
    assert not book.is_spared("a", 0)
    book.note("a", latency_ms, 1_000)
    assert book.is_spared("a", 1_000 + pause_ms - 1) == (pause_ms > 0)
    assert not book.is_spared("a", 1_000 + pause_ms)
    assert not book.is_spared("b", 1_000)


def test_a_quick_answer_ends_the_pause() -> None:
    book = LatencyBook()
    book.note("a", FAILED_MS, 0)
    book.note("a", 20, 5_000)
    assert not book.is_spared("a", 5_000)


@on_loop
async def test_times_of_latency_are_milliseconds_of_the_loop() -> None:
    loop = asyncio.get_running_loop()
    before_ms = int(loop.time() * 1000)
    now_ms = delivery._now_ms()
    assert before_ms <= now_ms <= loop.time() * 1000


def test_refusals_of_a_topic_say_nothing_about_the_broker() -> None:
    assert tells_of_broker(Unreachable("x"))
    assert tells_of_broker(OutcomeUnknown("x"))
    assert tells_of_broker(Refused(ResponseCode.SYSTEM_BUSY, "x"))
    for code in (ResponseCode.TOPIC_NOT_EXIST, ResponseCode.MESSAGE_ILLEGAL):
        assert not tells_of_broker(Refused(code, "x"))


@pytest.mark.parametrize("aware", [True, False])
def test_a_broker_that_is_away_is_tried_once_and_then_spared(tmp_path: Path, aware: bool) -> None:
    async def tell() -> None:
        async with contextlib.AsyncExitStack() as stack:
            name_server = await stack.enter_async_context(running_name_server(tmp_path / "n"))
            address = f"127.0.0.1:{name_server.server.port}"
            names = {"brokerName": "broker-a"}, {"brokerName": "broker-b"}
            first = running_broker(tmp_path / "a", address, changes=names[0])
            await stack.enter_async_context(first)
            mq = await stack.enter_async_context(roquet.connect(f"rmq://{address}"))
            options = ProducerOptions(latency_aware=aware)
            producer = await stack.enter_async_context(mq.producer(options=options))
            async with running_broker(tmp_path / "b", address, changes=names[1]):
                await mq.admin().topics.create("orders", 2)
                sent = [await producer.send("orders", b"x") for _ in range(8)]
                assert {it.queue.broker_name for it in sent} == {"broker-a", "broker-b"}
            # The client's route has both until it is refreshed.
            for _ in range(4):
                assert (await producer.send("orders", b"x")).queue.broker_name == "broker-a"
            chosen = [await producer._delivery.choose("orders", None, None, 3.0) for _ in range(20)]
            names_chosen = {queue.broker_name for queue in chosen}
            assert names_chosen == ({"broker-a"} if aware else {"broker-a", "broker-b"})
            last = chosen[0]
            other = await producer._delivery.choose("orders", None, last, 3.0)
            assert other.broker_name != last.broker_name

    asyncio.run(tell())
