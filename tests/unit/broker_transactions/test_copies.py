"""Copies of one half message that a killed broker left side by side are one transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_harness import dispatched, play, properties
from roquet.broker.transactions import drafts
from transaction_harness import (
    COMMIT,
    HALF,
    OP,
    QUICK,
    ROLLBACK,
    TxProducer,
    end,
    end_command,
    of,
    send_half,
    until,
)

if TYPE_CHECKING:
    from pathlib import Path

    from roquet.testing.cluster import Cluster

SLOW = {"transactionTimeOut": "600000", "transactionCheckInterval": "600000"}


async def copied(it: Cluster, at: int, checks: int) -> int:
    """Put a copy behind a half message without a note of it, as a killed Java broker leaves it."""
    result = await it.broker.store.put(drafts.checked_copy(of(it.broker, HALF)[at], checks))
    assert result.status.is_stored
    await dispatched(it)
    return result.queue_offset


async def end_at(it: Cluster, state: int, offset: int) -> int:
    record = of(it.broker, HALF)[offset]
    command = end_command(state, record.physical_offset, offset)
    return (await it.call(command)).code


def test_copies_left_side_by_side_are_asked_about_and_committed_once(tmp_path: Path) -> None:
    async def before(it: Cluster) -> None:
        await send_half(it, "orders", "K1", body=b"one")
        await send_half(it, "orders", "K2", body=b"two")
        assert await copied(it, 0, 1) == 2
        assert await copied(it, 2, 2) == 3

    async def after(it: Cluster) -> None:
        async with TxProducer(it, lambda _: COMMIT) as producer:
            await until(lambda: len(of(it.broker, "orders")) >= 2, "both commits")
            # Each place that a producer may know of leads to the same message.
            for offset in range(4):
                await end_at(it, COMMIT, offset)
            keys = [properties(one)["UNIQ_KEY"] for _, one in producer.asked]
            assert sorted(keys) == ["K1", "K2"]
        await dispatched(it)
        assert sorted(one.body for one in of(it.broker, "orders")) == [b"one", b"two"]

    play(tmp_path, before, **SLOW)
    play(tmp_path, after, **QUICK)


def test_a_settled_copy_settles_the_older_ones(tmp_path: Path) -> None:
    async def before(it: Cluster) -> None:
        for number, state in enumerate((ROLLBACK, COMMIT)):
            await send_half(it, "orders", f"K{number}", body=b"%d" % number)
            copy = await copied(it, 2 * number, 1)
            await end_at(it, state, copy)
        await send_half(it, "orders", "last", body=b"last")
        await until(lambda: bool(of(it.broker, OP)), "the op records")

    async def after(it: Cluster) -> None:
        async with TxProducer(it, lambda _: COMMIT) as producer:
            # A round asks from old to new: the others would have been asked about before.
            await until(lambda: len(of(it.broker, "orders")) >= 2, "the last commit")
            assert {properties(one)["UNIQ_KEY"] for _, one in producer.asked} == {"last"}
        assert [one.body for one in of(it.broker, "orders")] == [b"1", b"last"]

    play(tmp_path, before, **SLOW)
    play(tmp_path, after, **QUICK)


def test_what_was_brought_back_behind_a_settled_one_is_open(tmp_path: Path) -> None:
    async def before(it: Cluster) -> None:
        sent = await send_half(it, "orders", "K1", body=b"one")
        await copied(it, 0, 1)
        assert (await end(it, ROLLBACK, sent)).code == 0
        await send_half(it, "orders", "K2", body=b"other")
        # The same keys with another body are another transaction.
        await send_half(it, "orders", "K2", body=b"third")
        await until(lambda: bool(of(it.broker, OP)), "the op record")

    async def after(it: Cluster) -> None:
        async with TxProducer(it, lambda _: COMMIT) as producer:
            await until(lambda: len(of(it.broker, "orders")) >= 2, "the commits")
            await until(lambda: len(producer.asked) >= 3, "all three are asked about")
        bodies = {one.body for one in of(it.broker, "orders")}
        assert b"one" in bodies

    play(tmp_path, before, **SLOW)
    play(tmp_path, after, **QUICK)
