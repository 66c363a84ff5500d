"""Producers of transactions, asyncio and blocking, against a real broker."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

import roquet
import roquet.sync
from broker_harness import dispatched
from roquet.base.errors import Refused, UsageError
from roquet.client import TransactionState
from roquet.testing.cluster import cluster
from transaction_harness import HALF, QUICK, of, until

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from roquet.model.message import StoredMessage
    from roquet.testing.cluster import Cluster


def play(
    folder: Path, story: Callable[[Cluster, roquet.MQ], Awaitable[None]], **changes: str
) -> None:
    async def run() -> None:
        async with (
            asyncio.timeout(60),
            cluster(folder, **changes) as it,
            roquet.connect(f"rmq://{it.name_servers}") as mq,
        ):
            await mq.admin().topics.create("orders", 1)
            await story(it, mq)

    asyncio.run(run())


async def never(message: StoredMessage) -> TransactionState:
    raise AssertionError(f"nobody should ask about {message.unique_key}")


def bodies(it: Cluster) -> list[bytes]:
    return [record.body for record in of(it.broker, "orders")]


def test_a_block_commits_and_a_rollback_drops(tmp_path: Path) -> None:
    async def tell(it: Cluster, mq: roquet.MQ) -> None:
        async with mq.transaction_producer("tx", never) as producer:
            async with await producer.begin("orders", b"one", tag="a", keys="k1") as transaction:
                await dispatched(it)
                assert bodies(it) == []
            assert transaction.state is TransactionState.COMMIT
            async with await producer.begin("orders", b"two") as transaction:
                await transaction.rollback()
            async with await producer.begin("orders", b"3" * 9000) as transaction:
                await transaction.commit()
                await transaction.commit()
                with pytest.raises(UsageError, match="decided"):
                    await transaction.rollback()
            await producer.send("orders", b"plain")
            async with mq.consumer("g", {"orders": "*"}, start="earliest") as consumer:
                seen = [await consumer.receive(20) for _ in range(3)]
            assert [one.body for one in seen if one] == [b"one", b"3" * 9000, b"plain"]
            assert seen[0] is not None
            assert (seen[0].tag, seen[0].keys) == ("a", ("k1",))
            assert seen[0].message_id == (await _first_id(it))

    play(tmp_path, tell)


async def _first_id(it: Cluster) -> str:
    await dispatched(it)
    text = of(it.broker, HALF)[0].properties.decode()
    return text.split("UNIQ_KEY\x01")[1].split("\x02")[0]


def test_what_is_left_open_is_asked_about(tmp_path: Path) -> None:
    async def tell(it: Cluster, mq: roquet.MQ) -> None:
        asked: list[tuple[bytes, str]] = []

        async def check(message: StoredMessage) -> TransactionState:
            asked.append((message.body, message.topic))
            if len(asked) == 1:
                raise RuntimeError("the check fails at first")
            if message.body == b"unknown" and len(asked) < 6:
                return TransactionState.UNKNOWN
            return TransactionState.COMMIT

        async with mq.transaction_producer("tx", check) as producer:
            with pytest.raises(ZeroDivisionError):
                async with await producer.begin("orders", b"broken"):
                    _ = 1 / 0
            async with await producer.begin("orders", b"unknown") as transaction:
                transaction.leave_open()
            await until(lambda: len(bodies(it)) == 2, "both commits")
            assert {topic for _, topic in asked} == {"orders"}
            assert sorted(bodies(it)) == [b"broken", b"unknown"]

    play(tmp_path, tell, **QUICK)


def test_another_member_of_the_group_answers_for_a_dead_one(tmp_path: Path) -> None:
    async def tell(it: Cluster, mq: roquet.MQ) -> None:
        async with (
            roquet.connect(f"rmq://{it.name_servers}") as dying,
            dying.transaction_producer("tx", never) as producer,
        ):
            transaction = await producer.begin("orders", b"left")
            transaction.leave_open()

        async def check(message: StoredMessage) -> TransactionState:
            assert message.properties["PGROUP"] == "tx"
            return TransactionState.COMMIT

        async with mq.transaction_producer("tx", check) as other:
            await other.send("orders", b"hello")  # makes it known to the broker
            await until(lambda: len(bodies(it)) == 2, "the commit")

    play(tmp_path, tell, transactionTimeOut="300", transactionCheckInterval="100")


def test_what_a_transaction_cannot_be(tmp_path: Path) -> None:
    async def tell(it: Cluster, mq: roquet.MQ) -> None:
        async with mq.transaction_producer("tx", never) as producer:
            delayed = roquet.Message("orders", b"x", delay_level=1)
            with pytest.raises(UsageError, match="delayed"):
                await producer.begin(delayed)
            with pytest.raises(UsageError, match="transactions in this client already"):
                await mq.transaction_producer("tx", never).start()
            with pytest.raises(Refused) as refused:
                await producer.begin("orders", b"x")
            assert refused.value.code == 16
        assert bodies(it) == []

    play(tmp_path, tell, rejectTransactionMessage="true")


def test_a_half_message_that_is_not_durable_is_rolled_back(tmp_path: Path) -> None:
    async def tell(it: Cluster, mq: roquet.MQ) -> None:
        async with mq.transaction_producer("tx", never) as producer:
            with pytest.raises(Refused) as refused:
                await producer.begin("orders", b"x")
            assert refused.value.code == 11
        await dispatched(it)
        assert bodies(it) == []

    play(tmp_path, tell, brokerRole="SYNC_MASTER")


def test_blocking_transactions(tmp_path: Path) -> None:
    async def run() -> None:
        async with cluster(tmp_path, **QUICK) as it:
            await asyncio.to_thread(_blocking, it.name_servers)
            await until(lambda: len(bodies(it)) == 2, "both commits")
            assert sorted(bodies(it)) == [b"asked", b"one"]

    asyncio.run(run())


def _blocking(name_servers: str) -> None:
    def check(message: StoredMessage) -> TransactionState:
        done.append(message.body)
        return TransactionState.COMMIT

    done: list[bytes] = []
    with roquet.sync.connect(f"rmq://{name_servers}") as mq:
        mq.admin().topics.create("orders", 1)
        with mq.transaction_producer("tx", check) as producer:
            with producer.begin("orders", b"one") as transaction:
                assert transaction.receipt.queue.topic == "orders"
            with producer.begin("orders", b"two") as transaction:
                transaction.rollback()
            with producer.begin("orders", b"asked") as transaction:
                transaction.leave_open()
            assert transaction.state is TransactionState.UNKNOWN
            with mq.consumer("g", {"orders": "*"}, start="earliest") as consumer:
                seen = [consumer.receive(20) for _ in range(2)]
            assert sorted(one.body for one in seen if one) == [b"asked", b"one"]
            assert done == [b"asked"]
