"""Ordered pop: blocked queues, attempts, counts of deliveries, and acknowledgements in order."""

from __future__ import annotations

import asyncio
import json
import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from broker_harness import dispatched, ext, play
from pop_harness import (
    GROUP,
    TOPIC,
    ack_command,
    checkpoints,
    invisible_command,
    now_ms,
    pop,
    pop_command,
    popped,
)
from roquet.broker.pop.receive.orders import IDLE_MS, PopOrders, Unsettled
from roquet.protocol.codes import RequestCode
from roquet.protocol.command import Command
from roquet.protocol.fastjson import JsonError
from roquet.protocol.pop.batch_ack import BatchAck, BatchAckBody
from roquet.protocol.pop.handle import order_count_info
from roquet.protocol.pop.orders import OrderedBatch, decode_orders, encode_orders
from roquet.store.tables.files import JsonFile
from roquet.testing.clock import FakeClock

if TYPE_CHECKING:
    from roquet.testing.cluster import Cluster

_LINES: list[dict[str, Any]] = [
    json.loads(line)
    for line in (Path(__file__).parents[2] / "vectors/pop/orders.jsonl").read_text().split("\n")
    if line
]
_FILES = {line["name"]: line["text"].encode() for line in _LINES if line["kind"] == "file"}
_STORY = {line["step"]: line for line in _LINES if line["kind"] == "story"}
KEY = "T", "g", 0
ORDERED = {"order": "true", "queueId": "0"}


def test_file_of_batches_is_written_and_read_as_java_does() -> None:
    batch = OrderedBatch(
        pop_time_ms=1_700_000_000_000,
        invisible_ms=60_000,
        offsets=(100, 101, 105),
        attempt_id="attempt",
        acked=2,
        visible_ms={101: 1_700_000_099_000},
        deliveries={100: 2, 101: 1},
        last_ms=1_700_000_000_001,
    )
    bare = OrderedBatch(
        pop_time_ms=1_700_000_000_000,
        invisible_ms=60_000,
        offsets=(7,),
        last_ms=1_700_000_000_001,
    )
    batches = {("T", "g", 3): bare, KEY: batch}
    assert encode_orders({}) == _FILES["empty"]
    assert encode_orders(batches) == _FILES["filled"]
    assert decode_orders(_FILES["filled"], size_max=1 << 20) == batches
    assert decode_orders(_FILES["empty"], size_max=1 << 20) == {}


def test_batch_that_is_settled_in_part_is_in_flight_for_the_rest_of_it(tmp_path: Path) -> None:
    clock = FakeClock()
    orders = PopOrders(JsonFile(tmp_path / "orders.json"), clock)
    given: dict[str, Any] = {"pop_time_ms": clock.now_ms(), "attempt_id": None}
    for offsets, acked, waits in (
        ((4, 5, 6), {5, 6, 9}, True),
        ((4, 5, 6), {4, 6}, True),
        ((4, 5, 6), {4, 5, 6}, False),
        ((4,), {3, 5}, True),
    ):
        orders.popped(KEY, offsets, invisible_ms=1000, acked=acked, **given)
        assert orders.acked(KEY) == {at for at in acked if at >= offsets[0]}
        assert orders.is_blocked(KEY, None) is waits
        orders.clear(KEY)


@pytest.mark.parametrize(
    "text", ['{"table":{"T@g":{"x":{}}}}', '{"table":{"T@g":{"0":{"o":%s}}}}' % ([0] * 65)]
)
def test_broken_file_of_batches_is_refused(text: str) -> None:
    with pytest.raises(JsonError):
        decode_orders(text.encode(), size_max=1 << 20)


def test_rules_of_batches_are_those_of_java(tmp_path: Path) -> None:
    clock = FakeClock()
    orders = PopOrders(JsonFile(tmp_path / "orders.json"), clock)
    at = clock.now_ms()

    def take(attempt: str, later_ms: int, *offsets: int) -> str:
        counts = orders.popped(
            KEY,
            offsets,
            pop_time_ms=at + later_ms,
            invisible_ms=60_000,
            attempt_id=attempt,
        )
        return order_count_info({("0", 0, offset): count for offset, count in counts.items()})

    def java(step: str) -> set[str]:
        return set(_STORY[step]["counts"].split(";"))

    def settle(offset: int, later_ms: int = 0, key: tuple[str, str, int] = KEY) -> int:
        settled = orders.settle(key, offset, pop_time_ms=at + later_ms, committed=10, end=100)
        return settled.value if isinstance(settled, Unsettled) else settled

    assert set(take("a1", 0, 10, 11, 15).split(";")) == java("first")
    blocked = [orders.is_blocked(KEY, attempt) for attempt in ("a2", None, "a1")]
    assert blocked == _STORY["blocks others, not its attempt"]["blocked"]
    moves = [settle(11), settle(10, -1), settle(12), settle(10)]
    moves += [settle(10, key=("T", "g", 5)), settle(10, key=("T", "h", 0))]
    assert moves == _STORY["acks"]["next"]
    assert orders.show_at(KEY, 15, at, at - 5)
    assert orders.is_blocked(KEY, "a2") is _STORY["free"]["blocked"]
    assert set(take("a2", 1, 15, 16).split(";")) == java("second")
    assert set(take("a2", 2, 15, 16).split(";")) == java("same attempt")
    assert set(take("a3", 3, 15, 16).split(";")) == java("third")
    assert [settle(15, 3), settle(16, 3)] == _STORY["all"]["next"]


def test_batch_in_flight_is_shown_at_once_and_forgotten_when_all_is_acknowledged(
    tmp_path: Path,
) -> None:
    orders = PopOrders(JsonFile(tmp_path / "orders.json"), FakeClock())
    at = FakeClock().now_ms()
    assert not orders.suspend(KEY, at, at)
    assert not orders.forget_done(KEY)
    orders.popped(KEY, (10, 11), pop_time_ms=at, invisible_ms=60_000, attempt_id="a1")
    assert orders.is_blocked(KEY, "a2")
    assert orders.suspend(KEY, at + 1, at) is False, "another pop"
    assert orders.suspend(KEY, at, at) is True
    assert not orders.is_blocked(KEY, "a2")
    orders.popped(KEY, (10, 11), pop_time_ms=at + 2, invisible_ms=60_000, attempt_id="a2")
    for offset, is_done in ((10, False), (11, True)):
        orders.settle(KEY, offset, pop_time_ms=at + 2, committed=10, end=100)
        assert orders.forget_done(KEY) is is_done
    assert orders.forget_done(KEY) is False


def test_message_of_an_unknown_batch_moves_the_group_only_when_it_is_the_next(
    tmp_path: Path,
) -> None:
    orders = PopOrders(JsonFile(tmp_path / "orders.json"), FakeClock())
    assert orders.settle(KEY, 12, pop_time_ms=1, committed=10, end=100) is Unsettled.NOT_IN_BATCH
    assert orders.settle(KEY, 10, pop_time_ms=1, committed=10, end=11) == 11
    # Nothing is there yet, and what is sent next is not to be passed over.
    for offset in (10, 11):
        ahead = orders.settle(KEY, offset, pop_time_ms=1, committed=offset, end=10)
        assert ahead is Unsettled.NOT_IN_BATCH


def test_batches_are_kept_over_a_restart_and_forgotten_after_a_day(tmp_path: Path) -> None:
    async def run() -> None:
        clock, file = FakeClock(), JsonFile(tmp_path / "orders.json")
        orders = PopOrders(file, clock)
        await orders.start()
        now = clock.now_ms()
        orders.popped(KEY, (1, 2), pop_time_ms=now, invisible_ms=60_000, attempt_id=None)
        await orders.stop()
        again = PopOrders(file, clock)
        await again.start()
        assert again.is_blocked(KEY, None)
        await clock.advance(IDLE_MS / 1000 + 1)
        await again.persist()
        assert len(again) == 0

    asyncio.run(run())


async def fill(it: Cluster, count: int = 4) -> None:
    for number in range(count):
        await it.send(TOPIC, b"%d" % number)
    await dispatched(it)


def test_ordered_pop_blocks_its_queue_until_all_is_acknowledged(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        await fill(it)
        got = await pop(it, maxMsgNums="2", **ORDERED)
        assert got.bodies == [b"0", b"1"]
        assert got.ext["reviveQid"] == "999"
        assert got.ext["orderCountInfo"] == "0 0 0"
        assert checkpoints(it) == []
        offsets = it.broker.metadata.offsets
        assert offsets.committed(GROUP, TOPIC, 0) == 0
        blocked = await pop(it, **ORDERED)
        assert (blocked.code, blocked.ext["restNum"]) == (210, "0")
        assert (await it.call(ack_command(got.handles[1]))).code == 0
        assert offsets.committed(GROUP, TOPIC, 0) == 0
        assert (await pop(it, **ORDERED)).code == 210
        assert (await it.call(ack_command(got.handles[0]))).code == 0
        assert offsets.committed(GROUP, TOPIC, 0) == 2
        assert (await pop(it, **ORDERED)).bodies == [b"2", b"3"]
        # An acknowledgement that comes again changes nothing.
        assert (await it.call(ack_command(got.handles[0]))).code == 0
        assert offsets.committed(GROUP, TOPIC, 0) == 2

    play(tmp_path, tell)


@pytest.mark.parametrize("attempt", ["one", "one" * 20_000])
def test_same_attempt_gets_the_same_messages_again(tmp_path: Path, attempt: str) -> None:
    async def tell(it: Cluster) -> None:
        await fill(it)
        for _ in range(2):
            got = await pop(it, attemptId=attempt, **ORDERED)
            assert got.bodies == [b"0", b"1", b"2", b"3"]
            assert got.ext["orderCountInfo"] == "0 0 0"
        assert (await pop(it, attemptId="two", **ORDERED)).code == 210

    play(tmp_path, tell)


def test_waiting_ordered_pop_is_woken_when_messages_become_visible_again(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        await fill(it, 1)
        first = await pop(it, invisibleTime="700", **ORDERED)
        begun = now_ms()
        again = await pop(it, pollTime="15000", **ORDERED)
        assert again.bodies == [b"0"]
        assert 500 <= now_ms() - begun < 10_000
        assert set(again.ext["orderCountInfo"].split(";")) == {"0 qo0%0 1", "0 0 1"}
        # The first delivery is over: its acknowledgement is passed over.
        assert (await it.call(ack_command(first.handles[0]))).code == 0
        assert it.broker.metadata.offsets.committed(GROUP, TOPIC, 0) == 0

    play(tmp_path, tell)


def test_nobody_is_woken_for_a_free_queue_when_that_is_off(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        await fill(it, 1)
        await pop(it, invisibleTime="300", **ORDERED)
        begun = now_ms()
        assert (await pop(it, pollTime="1500", **ORDERED)).bodies == [b"0"]
        assert now_ms() - begun > 1000

    play(tmp_path, tell, enableNotifyAfterPopOrderLockRelease="false")


def test_waiting_ordered_pop_is_woken_by_an_acknowledgement(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        await fill(it, 2)
        got = await pop(it, maxMsgNums="1", **ORDERED)
        async with asyncio.TaskGroup() as tasks:
            waiting = tasks.create_task(it.call(pop_command(pollTime="15000", **ORDERED)))
            info = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": "0"}
            async with asyncio.timeout(20):
                while True:
                    answer = await it.call(Command(RequestCode.POLLING_INFO, ext=info))
                    if ext(answer)["pollingNum"] == "1":
                        break
            assert (await it.call(ack_command(got.handles[0]))).code == 0
            assert popped(await waiting).bodies == [b"1"]

    play(tmp_path, tell)


def test_ordered_message_is_shown_again_at_its_new_time(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        await fill(it, 1)
        got = await pop(it, **ORDERED)
        handle = got.handles[0]
        answer = await it.call(invisible_command(handle, invisibleTime="300"))
        assert answer.code == 0
        fields = ext(answer)
        assert (fields["popTime"], fields["reviveQid"]) == (str(handle.pop_time_ms), "999")
        assert 300 <= int(fields["invisibleTime"]) <= now_ms() - handle.pop_time_ms + 300
        assert (await pop(it, pollTime="10000", **ORDERED)).bodies == [b"0"]
        late = await it.call(invisible_command(handle))
        assert (late.code, ext(late)["popTime"]) == (13, "0")

    play(tmp_path, tell)


def test_message_shown_sooner_comes_then_though_another_is_acknowledged_later(
    tmp_path: Path,
) -> None:
    async def tell(it: Cluster) -> None:
        await fill(it, 2)
        got = await pop(it, **ORDERED)
        assert (await it.call(invisible_command(got.handles[1], invisibleTime="400"))).code == 0
        assert (await it.call(ack_command(got.handles[0]))).code == 0
        begun = now_ms()
        assert (await pop(it, pollTime="15000", **ORDERED)).bodies == [b"1"]
        assert now_ms() - begun < 10_000

    play(tmp_path, tell)


def test_ordered_ack_of_a_message_that_is_not_in_flight_is_refused(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        await fill(it)
        got = await pop(it, maxMsgNums="1", **ORDERED)
        answer = await it.call(ack_command(got.handles[0], offset="3"))
        assert answer.code == 13
        assert (answer.remark or "").startswith("offset is illegal, key:orders@poppers@0, old:0")
        assert it.broker.metadata.offsets.committed(GROUP, TOPIC, 0) == 0

    play(tmp_path, tell)


def test_batch_acknowledges_ordered_messages(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        await fill(it)
        got = await pop(it, **ORDERED)
        ack = BatchAck(
            group=GROUP,
            topic=TOPIC,
            retry_flag="0",
            start_offset=0,
            queue_id=0,
            revive_queue=999,
            pop_time_ms=got.handles[0].pop_time_ms,
            invisible_ms=60_000,
            offsets=(0, 1, 2),
        )
        body = BatchAckBody(broker_name="broker-a", acks=(ack,)).encode()
        assert (await it.call(Command(RequestCode.BATCH_ACK_MESSAGE, {}, body))).code == 0
        assert it.broker.metadata.offsets.committed(GROUP, TOPIC, 0) == 3

    play(tmp_path, tell)


def test_reset_frees_an_ordered_queue(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        await fill(it)
        await pop(it, **ORDERED)
        it.broker.metadata.offsets.reset(GROUP, TOPIC, 0, 2)
        assert (await pop(it, **ORDERED)).bodies == [b"2", b"3"]

    play(tmp_path, tell)


def test_notification_of_a_blocked_queue_tells_of_nothing(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        await fill(it)
        await pop(it, attemptId="one", **ORDERED)
        fields = {
            "consumerGroup": GROUP,
            "topic": TOPIC,
            "queueId": "0",
            "pollTime": "0",
            "bornTime": str(now_ms()),
        }
        for more, shown in (
            ({}, "true"),
            ({"order": "true"}, "false"),
            ({"order": "true", "attemptId": "one"}, "true"),
        ):
            answer = await it.call(Command(RequestCode.NOTIFICATION, ext={**fields, **more}))
            assert ext(answer)["hasMsg"] == shown

    play(tmp_path, tell)


def test_ordered_pop_goes_on_in_order_after_a_restart(tmp_path: Path) -> None:
    async def before(it: Cluster) -> None:
        await fill(it)
        got = await pop(it, **ORDERED)
        assert (await it.call(ack_command(got.handles[0]))).code == 0

    async def after(it: Cluster) -> None:
        await dispatched(it)
        assert (await pop(it, **ORDERED)).code == 210
        assert it.broker.metadata.offsets.committed(GROUP, TOPIC, 0) == 1

    play(tmp_path, before)
    play(tmp_path, after)


@pytest.mark.parametrize("text", [b"", bytes(100), b'{"table":{"T@g":{"0":{"o":[1,'])
def test_broker_with_a_broken_file_of_batches_starts_and_gives_them_again(
    tmp_path: Path, text: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async def first(it: Cluster) -> None:
        await put(it, b"0", b"1")
        assert (await pop(it, **ORDERED)).bodies == [b"0", b"1"]

    async def second(it: Cluster) -> None:
        assert "without the batches in flight" in caplog.text
        assert (await pop(it, **ORDERED)).bodies == [b"0", b"1"]

    play(tmp_path, first)
    (file,) = tmp_path.rglob("consumerOrderInfo.json")
    file.write_bytes(text)
    play(tmp_path, second)
    play(tmp_path, third_start)


class _Told:
    """A group that takes one queue in order, its broker's file, and what its clients acknowledged.

    The file and the committed offset are saved now and then, each on its own.
    """

    def __init__(self, folder: Path, seed: int) -> None:
        self.rng = random.Random(seed)
        self.clock = FakeClock()
        self.path = folder / "consumerOrderInfo.json"
        self.orders = PopOrders(JsonFile(self.path), self.clock)
        self.committed = self.saved = 0
        self.acked: set[int] = set()
        self.batch: tuple[int, range] = (0, range(0))

    async def step(self) -> None:
        """Pop a batch when there is none, else acknowledge a message; save something, or not."""
        await self.clock.advance(self.rng.randrange(1, 20) / 1000)
        _, batch = self.batch
        if self.acked.issuperset(batch):
            batch = range(self.committed, self.committed + self.rng.randrange(1, 9))
            self.batch = self.clock.now_ms(), batch
            given: dict[str, Any] = {"pop_time_ms": self.clock.now_ms(), "invisible_ms": 60_000}
            self.orders.popped(KEY, batch, **given, attempt_id=None)
        else:
            self.ack(self.rng.choice(sorted(set(batch) - self.acked)))
        if self.rng.random() < 0.2:
            await self.orders.persist()
        if self.rng.random() < 0.5:
            self.saved = self.committed

    def ack(self, offset: int) -> None:
        """Acknowledge a message of the last batch: the group goes back and passes nothing over."""
        self.acked.add(offset)
        if offset < self.committed:
            return
        settled = self.orders.settle(
            KEY,
            offset,
            pop_time_ms=self.batch[0],
            committed=self.committed,
            end=2**40,
        )
        if not isinstance(settled, Unsettled):
            assert settled >= self.committed
            assert self.acked.issuperset(range(self.committed, settled))
            self.committed = settled

    async def crash(self) -> None:
        """Begin anew with what was saved; the file may be cut anywhere, and its copy is whole."""
        if self.path.exists() and self.rng.random() < 0.5:
            data = self.path.read_bytes()
            self.path.write_bytes(data[: self.rng.randrange(len(data) + 1)])
        self.orders = PopOrders(JsonFile(self.path), self.clock)
        await self.orders.start()
        self.committed = self.saved


@pytest.mark.parametrize("seed", range(10))
def test_torn_or_old_file_of_batches_takes_a_group_neither_back_nor_past_a_message(
    tmp_path: Path, seed: int
) -> None:
    async def tell() -> None:
        told = _Told(tmp_path, seed)
        for _ in range(20):
            for _ in range(told.rng.randrange(2, 25)):
                await told.step()
            await told.crash()
            # Clients that were not stopped acknowledge what they have.
            for offset in told.rng.sample(told.batch[1], len(told.batch[1])):
                told.ack(offset)

    asyncio.run(tell())


async def put(it: Cluster, *bodies: bytes) -> None:
    for body in bodies:
        assert (await it.send(TOPIC, body)).code == 0
    await dispatched(it)


async def third_start(it: Cluster) -> None:
    # The batch was saved over the broken file: it is in flight.
    assert not (await pop(it, **ORDERED)).bodies


async def made_anew(it: Cluster, what: str) -> None:
    if what == "group":
        ext = {"groupName": GROUP, "cleanOffset": "true"}
        answer = await it.call(Command(RequestCode.DELETE_SUBSCRIPTIONGROUP, ext=ext))
    else:
        ext = {"topic": TOPIC}
        answer = await it.call(Command(RequestCode.DELETE_TOPIC_IN_BROKER, ext=ext))
    assert answer.code == 0


@pytest.mark.parametrize("what", ["group", "topic"])
@pytest.mark.parametrize("acks_late", [False, True])
def test_batch_is_of_no_use_to_a_group_or_topic_made_anew(
    tmp_path: Path, what: str, *, acks_late: bool
) -> None:
    async def tell(it: Cluster) -> None:
        await put(it, b"0", b"1", b"2")
        taken = await pop(it, **ORDERED)
        assert taken.bodies == [b"0", b"1", b"2"]
        await made_anew(it, what)
        expected = [b"0", b"1", b"2"]
        if what == "topic":
            expected = [b"new 0", b"new 1", b"new 2"]
            await put(it, *expected)
        late = [ack_command(handle) for handle in taken.handles]
        if acks_late:
            # Of the batch from before: nothing is in flight that they could settle.
            assert [(await it.call(one)).code for one in late] != [0, 0, 0]
        assert (await pop(it, **ORDERED)).bodies == expected
        for one in late:
            await it.call(one)
        assert it.broker.metadata.offsets.committed(GROUP, TOPIC, 0) == 0

    play(tmp_path, tell)


def test_file_of_batches_older_than_a_deleted_topic_counts_no_more(tmp_path: Path) -> None:
    async def first(it: Cluster) -> None:
        await put(it, b"0", b"1")
        assert (await pop(it, **ORDERED)).bodies == [b"0", b"1"]

    async def second(it: Cluster) -> None:
        await made_anew(it, "topic")
        await put(it, b"new 0", b"new 1")

    async def third(it: Cluster) -> None:
        assert (await pop(it, **ORDERED)).bodies == [b"new 0", b"new 1"]

    play(tmp_path, first)
    (file,) = tmp_path.rglob("consumerOrderInfo.json")
    kept = file.read_bytes()
    play(tmp_path, second)
    # As a broker leaves it that is killed before it saves the batches again.
    file.write_bytes(kept)
    play(tmp_path, third)
