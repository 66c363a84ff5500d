"""The fast path inside a whole broker: it does the work, and a flush still comes first."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from broker_harness import dispatched, ext, play, records

if TYPE_CHECKING:
    from pathlib import Path

    from roquet.testing.cluster import Cluster


async def some(it: Cluster, count: int) -> None:
    """Send messages that have all that a plain one has, and read them back."""
    assert (await it.send("orders")).code == 0  # Makes the topic.
    sends = [
        it.send("orders", b"m%d" % number, properties=f"UNIQ_KEY\x01U{number}\x02")
        for number in range(count)
    ]
    answers = await asyncio.gather(*sends)
    assert {answer.code for answer in answers} == {0}
    assert {ext(answer)["transactionId"] for answer in answers} == {f"U{n}" for n in range(count)}
    assert {int(ext(answer)["queueOffset"]) for answer in answers} == set(range(1, count + 1))
    await dispatched(it)
    await it.pull("orders")  # Makes the group.
    found = records(await it.pull("orders", 1))
    assert {record.body for record in found} <= {b"m%d" % number for number in range(count)}
    assert it.broker.path.native.counters()["sends"] == count
    assert it.broker.path.native.counters()["pulls"] == 1


def test_plain_messages_are_stored_there_and_read_there(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        await some(it, 100)
        assert it.broker.path.native.counters()["parked"] == 0

    play(tmp_path, tell)


def test_with_sync_flush_no_answer_comes_before_the_flush(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        await some(it, 100)
        native = it.broker.store.native
        assert native.flushed_offset() == native.max_physical_offset()
        assert it.broker.path.native.counters()["parked"] > 0

    play(tmp_path, tell, flushDiskType="SYNC_FLUSH")


def test_it_can_be_switched_off(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        assert (await it.send("orders", properties="UNIQ_KEY\x01U\x02")).code == 0
        assert (await it.send("orders", properties="UNIQ_KEY\x01V\x02")).code == 0
        counters = it.broker.path.native.counters()
        assert (counters["sends"], counters["pulls"]) == (0, 0)

    play(tmp_path, tell, fastPathEnable="false")
