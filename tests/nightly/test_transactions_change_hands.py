"""Transactions left open by one make and settled by the other, over kill -9.

A Java broker puts a half message back at each check and forgets with a kill which copy it has done
with. Ours takes such copies for one transaction; Java may commit each of them.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

import roquet
from interop_world import make_topic
from roquet.client import TransactionState
from roquet.testing.java import Driver, fetch_jars
from swap_harness import Swap, encoded

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from roquet.model.message import StoredMessage


@pytest.fixture
def swap(tmp_path: Path) -> Iterator[Swap]:
    jars = fetch_jars()
    driver = Driver(jars, tmp_path / "driver")
    built = Swap(jars, driver, tmp_path)
    built.name_server.start()
    yield built
    if built.running is not None:
        built.running.kill()
    built.name_server.kill()
    driver.close()


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
