"""Transactions and request-reply between the makes, and a half queue that changes hands."""

from __future__ import annotations

import asyncio
import base64
import random
from typing import TYPE_CHECKING, Any

import pytest

import roquet
from interop_world import (
    has_route,
    make_topic,
    our_broker,
    our_name_server,
    registered,
    until,
)
from roquet.base.errors import OutcomeUnknown
from roquet.client import TransactionState
from roquet.testing.java import BrokerPlan, Process, free_port, java_broker

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


def encoded(body: str, local: str, check: str | None = None) -> dict[str, Any]:
    return {
        "body": base64.b64encode(body.encode()).decode(),
        "keys": body,
        "local": local,
        "check": check,
    }


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


class Swap:
    """A broker's store that is opened by one make after the other."""

    def __init__(self, jars: Path, driver: Driver, folder: Path) -> None:
        chance = random.Random()
        self.jars, self.driver, self.folder = jars, driver, folder
        port = free_port(chance)
        self.name_server = our_name_server(folder / "namesrv", port)
        self.namesrv = f"127.0.0.1:{port}"
        self.plan = BrokerPlan(
            "tx-swap",
            free_port(chance),
            self.namesrv,
            folder / "store",
            {"compressedRegister": "true"},
        )
        self.running: Process | None = None

    def open(self, make: str) -> None:
        folder = self.folder / make
        if make == "java":
            self.running = java_broker(self.jars, folder, self.plan)
        else:
            self.running = our_broker(folder, self.plan)
        self.running.start()
        until("registration", lambda: registered(self.namesrv, self.plan.name))

    def kill(self) -> None:
        assert self.running is not None
        self.running.kill()
        self.running = None
        until("it is gone", lambda: not has_route(self.namesrv, "TBW102", self.plan.name))


@pytest.fixture
def swap(jars: Path, driver: Driver, tmp_path: Path) -> Iterator[Swap]:
    built = Swap(jars, driver, tmp_path)
    built.name_server.start()
    yield built
    if built.running is not None:
        built.running.kill()
    built.name_server.kill()


@pytest.mark.parametrize("order", [("ours", "java", "ours"), ("java", "ours", "java")])
def test_open_transactions_change_hands(swap: Swap, order: tuple[str, str, str]) -> None:
    """Each make leaves one transaction open when it is killed; the next one asks about it."""
    topic, group = "TxSwapped", "tx_swap"

    def left(make: str, body: str, open_body: str) -> None:
        client = swap.driver.exchange("transactions", namesrv=swap.namesrv, group=group)
        sent = swap.driver.exchange(
            "transact",
            client=client,
            topic=topic,
            messages=[
                encoded(body, "commit"),
                encoded(f"{body}-gone", "rollback"),
                encoded(open_body, "unknown", "unknown"),
            ],
        )
        assert {one["status"] for one in sent} == {"SEND_OK"}, make
        came = swap.driver.consume(swap.namesrv, topic, f"seen_{body}", 1)
        assert body.encode() in {one["body"] for one in came}
        swap.driver.exchange("close", client=client)

    async def settle(count: int) -> list[bytes]:
        asked: list[bytes] = []

        async def check(message: StoredMessage) -> TransactionState:
            asked.append(message.body)
            # Whoever is killed forgets a rollback that it has not written down yet.
            gone = message.body.endswith(b"-gone")
            return TransactionState.ROLLBACK if gone else TransactionState.COMMIT

        async with (
            roquet.connect(f"rmq://{swap.namesrv}") as mq,
            mq.transaction_producer(group, check) as producer,
            mq.consumer(f"wait_{count}", topic, start="earliest") as consumer,
        ):
            await producer.queues(topic)
            seen: list[bytes] = []
            while len(set(seen)) < count:
                received = await consumer.receive(150)
                assert received is not None, (seen, asked)
                seen.append(received.body)
            while (received := await consumer.receive(2)) is not None:
                seen.append(received.body)
            return sorted(seen)

    swap.open(order[0])
    make_topic(swap.driver, swap.namesrv, swap.plan, topic, 1)
    left(order[0], "one", "open-one")
    swap.kill()
    swap.open(order[1])
    assert sorted(set(asyncio.run(settle(2)))) == [b"one", b"open-one"]
    left(order[1], "two", "open-two")
    swap.kill()
    swap.open(order[2])
    seen = asyncio.run(settle(4))
    assert sorted(set(seen)) == [b"one", b"open-one", b"open-two", b"two"]
    # What we commit we commit once, also what was left to us; Java may commit twice.
    ours = {b"open-two"} if order[2] == "ours" else {b"open-one"}
    assert all(seen.count(body) == 1 for body in ours)


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
