"""Op records: how many half offsets go into one, and when it is written."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from roquet.broker.messages.schedule import DelayLevels
from roquet.broker.metrics.stats import BrokerStats
from roquet.broker.state import Identity
from roquet.broker.transactions.book import TransactionBook
from roquet.broker.transactions.drafts import OP_TOPIC, real_place
from roquet.broker.transactions.ops import OpWriter
from roquet.broker.transactions.verdict import TransactionConfig
from roquet.store.results import PutStatus
from roquet.testing.clock import FakeClock
from roquet.testing.memory_store import FakeStore

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

IDENTITY = Identity(cluster="c", name="b", broker_id=0, ip="127.0.0.1", ha_ip="", port=1, ha_port=2)


class World:
    """A writer of op records over a store in memory; a record holds up to 8 bytes of offsets."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.store = FakeStore(self.clock, DelayLevels())
        self.book = TransactionBook()
        rules = TransactionConfig(op_bytes_max=8, op_interval_ms=3000)
        self.ops = OpWriter(
            self.store, self.book, IDENTITY, rules, self.clock, traffic=BrokerStats("c", self.clock)
        )

    def bodies(self) -> list[bytes]:
        return [record.body for record in self.store.of(OP_TOPIC)]


async def turns() -> None:
    """Let tasks run that wait for nothing but their turn."""
    for _ in range(10):
        await asyncio.sleep(0)


def run(tell: Callable[[World], object]) -> None:
    async def told() -> None:
        world = World()
        await tell(world)  # type: ignore[misc]
        await world.ops.stop()

    asyncio.run(told())


def test_op_record_is_written_after_the_interval_while_it_is_not_full() -> None:
    async def tell(it: World) -> None:
        it.ops.add(100)
        await turns()
        await it.clock.advance(2.999)
        assert it.bodies() == []
        await it.clock.advance(0.001)
        await turns()
        assert it.bodies() == [b"100,"]
        # The next one begins anew: one offset is not full, and waits as long.
        it.ops.add(101)
        await turns()
        assert it.bodies() == [b"100,"]
        await it.clock.advance(3)
        await turns()
        assert it.bodies() == [b"100,", b"101,"]

    run(tell)


def test_op_record_is_written_at_once_when_its_bytes_are_there() -> None:
    async def tell(it: World) -> None:
        it.ops.add(100)
        await turns()
        assert it.bodies() == []
        it.ops.add(101)
        await turns()
        assert it.bodies() == [b"100,101,"]

    run(tell)


def test_op_record_holds_no_more_bytes_than_its_limit_but_always_one_offset() -> None:
    async def tell(it: World) -> None:
        for offset in (100, 1010, 102, 10_000_000_000, 103):
            it.ops.add(offset)
        assert await it.ops.write()
        assert it.bodies() == [b"100,", b"1010,", b"102,", b"10000000000,", b"103,"]

    run(tell)


def test_op_records_that_were_written_leave_nothing_that_counts_as_waiting() -> None:
    async def tell(it: World) -> None:
        for offset in (100, 101, 102):
            it.ops.add(offset)
        await turns()
        written = it.bodies()
        assert written == [b"100,101,", b"102,"]
        # One byte is missing for a full record.
        it.ops.add(100_000)
        await turns()
        assert it.bodies() == written
        assert await it.ops.write()
        it.ops.add(1_000_000)
        await turns()
        assert it.bodies() == [*written, b"100000,", b"1000000,"]

    run(tell)


def test_op_record_that_was_not_stored_is_written_again_with_nothing_lost() -> None:
    async def tell(it: World) -> None:
        it.store.statuses = [PutStatus.SERVICE_NOT_AVAILABLE]
        it.ops.add(100)
        assert not await it.ops.write()
        assert it.bodies() == []
        # What was not written counts as waiting: with one more the record is full.
        it.ops.add(101)
        await turns()
        assert it.bodies() == [b"100,101,"]
        assert await it.ops.write()
        assert it.bodies() == [b"100,101,"]

    run(tell)


def test_op_record_that_was_not_stored_waits_before_what_came_later() -> None:
    async def tell(it: World) -> None:
        it.store.statuses = [PutStatus.SERVICE_NOT_AVAILABLE]
        for offset in (100, 101, 102):
            it.ops.add(offset)
        assert not await it.ops.write()
        assert (it.ops._waiting, it.ops._bytes) == ([100, 101, 102], 12)
        assert await it.ops.write()
        assert it.bodies() == [b"100,101,", b"102,"]
        assert (it.ops._waiting, it.ops._bytes) == ([], 0)

    run(tell)


def test_op_record_is_needed_while_one_that_it_names_is_behind_an_open_one() -> None:
    async def tell(it: World) -> None:
        for offset in (2, 0):
            it.book.settle(offset)
            it.ops.add(offset)
        await it.ops.write()
        assert it.book.advance()
        assert (it.book.half_offset, it.book.op_offset) == (1, 0)

    run(tell)


def test_op_record_stands_in_the_book_with_the_highest_offset_it_names() -> None:
    async def tell(it: World) -> None:
        it.book.begin(0, 0)
        for offset in (1, 0, 2):
            it.book.settle(offset)
            it.ops.add(offset)
        await it.ops.write()
        assert it.book.advance()
        assert (it.book.half_offset, it.book.op_offset) == (3, 1)

    run(tell)


def test_op_writer_has_one_task_however_much_waits_and_goes_on_after_a_stop() -> None:
    async def tell(it: World) -> None:
        for offset in (1, 2, 3):
            it.ops.add(offset)
            assert len(it.ops._tasks) == 1
        # Before the task has begun, and while it waits.
        await it.ops.stop()
        assert (it.bodies(), len(it.ops._tasks)) == ([b"1,2,3,"], 0)
        it.ops.add(4)
        await turns()
        await it.ops.stop()
        assert (it.bodies()[1:], len(it.ops._tasks)) == ([b"4,"], 0)
        it.ops.add(5)
        await turns()
        await it.clock.advance(3)
        assert it.bodies()[2:] == [b"5,"]

    run(tell)


def test_op_record_that_was_not_stored_is_tried_again_a_second_later(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def tell(it: World) -> None:
        it.store.statuses = [PutStatus.SERVICE_NOT_AVAILABLE] * 2
        it.ops.add(100)
        await turns()
        await it.clock.advance(3)
        await it.clock.advance(1.999)
        assert (it.bodies(), len(it.store.waits)) == ([], 2)
        await it.clock.advance(0.001)
        assert it.bodies() == [b"100,"]
        text = "an op record was not stored: SERVICE_NOT_AVAILABLE a test says so"
        assert caplog.messages == [text] * 2
        # Whoever settles something does not wait for the disk.
        assert it.store.waits == [False] * 3
        # It is done: the next one is written after the interval again.
        it.ops.add(101)
        await turns()
        await it.clock.advance(2.999)
        assert len(it.bodies()) == 1
        await it.clock.advance(0.001)
        assert len(it.bodies()) == 2

    run(tell)


def test_place_of_a_half_message_is_a_topic_and_a_number_of_31_bits() -> None:
    def place(queue: str, topic: str = "orders") -> tuple[str, int] | None:
        return real_place({"REAL_TOPIC": topic, "REAL_QID": queue})

    assert place("0") == ("orders", 0)
    assert place("2147483647") == ("orders", 2**31 - 1)
    for text in ("2147483648", "02147483647", "", "-1", "x", "\u0664"):
        assert place(text) is None, text
    assert place("0", "") is None
    assert real_place({"REAL_TOPIC": "orders"}) is None
