"""Transactions and request-reply between the makes."""

from __future__ import annotations

import asyncio
import base64
from typing import TYPE_CHECKING, Any

import pytest

import roquet
from interop_world import (
    has_route,
    until,
)
from roquet.base.errors import OutcomeUnknown
from roquet.client import TransactionState
from swap_harness import Swap, encoded

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from interop_world import Side, World
    from roquet.client import Received
    from roquet.model.message import StoredMessage
    from roquet.testing.java import Driver

SIDES = ["ours", "java"]
STATES = {"commit": TransactionState.COMMIT, "rollback": TransactionState.ROLLBACK}


def side_of(world: World, name: str) -> Side:
    return world.java if name == "java" else world.ours


def assert_committed(name: str, came: list[dict[str, Any]]) -> None:
    bodies = sorted(one["body"] for one in came)
    if name == "java":
        # Its op records gather for 3 s: with rounds every second it may ask, and commit, twice.
        bodies = sorted(set(bodies))
    assert bodies == [b"asked-commit", b"committed"]


@pytest.mark.parametrize("name", SIDES)
def test_java_transactions(world: World, name: str) -> None:
    """The same producer at either broker sees the same."""
    side, driver = side_of(world, name), world.driver
    topic, group = world.topic(f"JavaTx-{name}", side), f"java_tx_{name}"
    client = driver.exchange("transactions", namesrv=side.namesrv, group=group)
    try:
        given = [
            encoded("committed", "commit"),
            encoded("rolled-back", "rollback"),
            encoded("asked-commit", "unknown", "commit"),
            encoded("asked-rollback", "unknown", "rollback"),
        ]
        sent = driver.exchange("transact", client=client, topic=topic, messages=given)
        assert {one["status"] for one in sent} == {"SEND_OK"}
        assert all(one["transaction"] == one["msg_id"] for one in sent)
        came = driver.consume(side.namesrv, topic, f"{group}_readers", 2, linger_s=2.0)
        assert_committed(name, came)
        assert {one["topic"] for one in came} == {topic}
        open_ones = {"asked-commit", "asked-rollback"}
        until("the checks", lambda: open_ones <= set(driver.exchange("checked", client=client)))
        if name == "ours":
            assert set(driver.exchange("checked", client=client)) == open_ones
    finally:
        driver.exchange("close", client=client)


@pytest.mark.parametrize("name", SIDES)
def test_our_transactions(world: World, name: str) -> None:
    side = side_of(world, name)
    topic, group = world.topic(f"OurTx-{name}", side), f"our_tx_{name}"
    asked: list[bytes] = []

    async def check(message: StoredMessage) -> TransactionState:
        asked.append(message.body)
        return STATES[message.keys[0]]

    async def story() -> None:
        async with (
            roquet.connect(f"rmq://{side.namesrv}") as mq,
            mq.transaction_producer(group, check) as producer,
        ):
            async with await producer.begin(topic, b"committed", keys="commit"):
                pass
            async with await producer.begin(topic, b"rolled-back") as transaction:
                await transaction.rollback()
            for state in STATES:
                body = f"asked-{state}".encode()
                async with await producer.begin(topic, body, keys=state) as transaction:
                    transaction.leave_open()
            async with asyncio.timeout(60):
                while len(set(asked)) < 2:  # noqa: ASYNC110  (brokers ask)
                    await asyncio.sleep(0.1)

    asyncio.run(story())
    came = world.driver.consume(side.namesrv, topic, f"{group}_readers", 2, linger_s=2.0)
    assert_committed(name, came)


@pytest.mark.parametrize("name", SIDES)
def test_we_ask_and_java_answers(world: World, name: str) -> None:
    side, driver = side_of(world, name), world.driver
    topic, group = world.topic(f"AskJava-{name}", side), f"ask_java_{name}"
    client = driver.exchange("answers", namesrv=side.namesrv, topic=topic, group=group)

    async def story() -> list[bytes]:
        async with (
            roquet.connect(f"rmq://{side.namesrv}") as mq,
            mq.producer("our_askers") as producer,
        ):
            got = [await _asked(producer, topic, f"question {n}") for n in range(3)]
            return [one.body for one in got]

    try:
        assert asyncio.run(story()) == [b"re:question %d" % n for n in range(3)]
    finally:
        driver.exchange("close", client=client)


async def _asked(producer: roquet.client.Producer, topic: str, text: str) -> StoredMessage:
    try:
        return await producer.request(topic, text, timeout_s=20)
    except OutcomeUnknown:
        # The Java answerer looks up the route of replies at its own pace.
        return await producer.request(topic, text, timeout_s=40)


@pytest.mark.parametrize("name", SIDES)
def test_java_asks_and_we_answer(world: World, name: str) -> None:
    side = side_of(world, name)
    topic, group = world.topic(f"AskUs-{name}", side), f"ask_us_{name}"

    async def story() -> dict[str, Any]:
        async with (
            roquet.connect(f"rmq://{side.namesrv}") as mq,
            mq.producer("our_answers") as producer,
            mq.consumer(group, topic, start="earliest") as consumer,
        ):

            async def answer(received: Received) -> None:
                await producer.reply(received, b"re:" + received.body)

            serving = asyncio.create_task(consumer.run(answer))
            try:
                return await asyncio.to_thread(
                    world.driver.exchange,
                    "request",
                    120.0,
                    namesrv=side.namesrv,
                    topic=topic,
                    group="java_askers",
                    body=base64.b64encode(b"question").decode(),
                    timeout_ms=60_000,
                )
            finally:
                serving.cancel()

    got = asyncio.run(story())
    assert base64.b64decode(got["body"]) == b"re:question"
    assert got["properties"]["MSG_TYPE"] == "reply"


@pytest.fixture
def swap(jars: Path, driver: Driver, tmp_path: Path) -> Iterator[Swap]:
    built = Swap(jars, driver, tmp_path)
    built.name_server.start()
    yield built
    if built.running is not None:
        built.running.kill()
    built.name_server.kill()


def test_traces_of_java_producers_are_kept(swap: Swap) -> None:
    swap.open("ours")
    traces, address = "RMQ_SYS_TRACE_TOPIC", swap.namesrv
    sent = swap.driver.exchange("traced", namesrv=address, topic="Traced", group="traced")
    try:
        until("the trace topic", lambda: has_route(address, traces, swap.plan.name))
        came = swap.driver.consume(address, traces, "trace_readers", 1)
    finally:
        swap.driver.exchange("close", client=sent["client"])
    id_ = sent["msg_id"].encode()
    assert any(one["body"].startswith(b"Pub\x01") and id_ in one["body"] for one in came)
