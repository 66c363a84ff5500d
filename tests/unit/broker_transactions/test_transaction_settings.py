"""Settings of transactions, given as an operator gives them and shown by what the broker does."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from broker_harness import play
from transaction_harness import COMMIT, OP, TxProducer, end, of, send_half, until

if TYPE_CHECKING:
    from pathlib import Path

    from roquet.testing.cluster import Cluster


def test_producer_is_asked_after_the_time_of_the_settings(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        async with TxProducer(it, lambda _: COMMIT) as producer, asyncio.timeout(20):
            for number in range(6):
                await send_half(it, "orders", f"K{number}")
                await until(lambda: len(producer.asked) > number, "the check")  # noqa: B023

    play(tmp_path, tell, transactionTimeOut="10", transactionCheckInterval="10")


def test_op_record_gathers_for_the_time_of_the_settings(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        sent = await send_half(it, "orders", "K")
        assert (await end(it, COMMIT, sent)).code == 0
        await asyncio.sleep(1.0)
        assert len(of(it.broker, "orders")) == 1
        assert of(it.broker, OP) == []

    play(tmp_path, tell, transactionOpBatchInterval="60000")
