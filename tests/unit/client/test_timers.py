"""Messages for later: what a send may ask, what brokers of each age get, recall."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

import pytest

import roquet
from broker_harness import play
from roquet.base.errors import Refused, UsageError
from roquet.client import ConsumerOptions, ProducerOptions
from roquet.client._sending.due import Due, due_of
from roquet.client._sending.encode import encode_one
from roquet.model.message import Message
from roquet.protocol import versions
from roquet.protocol.codes import ResponseCode
from roquet.protocol.messages.recall_handle import RecallHandle

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from roquet.testing.cluster import Cluster

ON = {"recallMessageEnable": "true", "timerPrecisionMs": "100"}
FAST = ConsumerOptions(rebalance_every_s=0.5, commit_every_s=0.2, handover_s=0.0)
NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("delay", "ms"),
    [(timedelta(minutes=5), 300_000), (2, 2000), (0.25, 250), (0.0001, 1), (1.0005, 1001)],
)
def test_a_delay_becomes_milliseconds_never_less(delay: Any, ms: int) -> None:
    assert due_of(delay, None) == Due(delay_ms=ms)


def test_no_delay_is_no_timer() -> None:
    assert due_of(None, None) is due_of(0, None) is due_of(timedelta(0), None) is None


def test_a_time_is_unix_milliseconds_of_its_zone() -> None:
    assert due_of(None, NOON) == Due(at_ms=1_893_499_200_000)
    assert due_of(None, NOON + timedelta(microseconds=1)) == Due(at_ms=1_893_499_200_001)
    assert due_of(None, NOON + timedelta(microseconds=999)) == Due(at_ms=1_893_499_200_001)
    assert due_of(None, datetime.max.replace(tzinfo=UTC)) == Due(at_ms=253_402_300_800_000)
    assert due_of(None, EPOCH + timedelta(microseconds=1)) == Due(at_ms=1)
    zone = timezone(timedelta(hours=2))
    assert due_of(None, NOON.replace(tzinfo=zone)) == Due(at_ms=1_893_499_200_000 - 7_200_000)


@pytest.mark.parametrize(
    "delay",
    [
        -1,
        -0.001,
        timedelta(seconds=-1),
        float("nan"),
        float("inf"),
        10**400,
        timedelta.max,
        True,
        "5s",
        b"5",
        [1],
    ],
)
def test_bad_delays_are_refused(delay: Any) -> None:
    with pytest.raises(UsageError, match="delay"):
        due_of(delay, None)


@pytest.mark.parametrize(
    ("at", "why"),
    [
        (datetime(2030, 1, 1), "time zone"),  # noqa: DTZ001
        (datetime(1960, 1, 1, tzinfo=UTC), "after 1970"),
        (EPOCH, "after 1970"),
        (1_893_499_200, "is a datetime"),
        ("2030-01-01", "is a datetime"),
    ],
)
def test_bad_times_are_refused(at: Any, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        due_of(None, at)


def test_two_ways_to_say_when_are_refused() -> None:
    with pytest.raises(UsageError, match="one of delay and at"):
        due_of(1, NOON)
    due = Due(delay_ms=1)
    for message in (
        Message("t", b"x", delay_level=3),
        Message("t", b"x", properties={"TIMER_DELAY_MS": "5"}),
    ):
        with pytest.raises(UsageError, match="give one of"):
            encode_one(message, "id", ProducerOptions(), due=due)
    full = Message("t", b"x", properties={"p": "v" * 32_700})
    with pytest.raises(UsageError, match="longer than"):
        encode_one(full, "id", ProducerOptions(), due=due)


def test_brokers_of_version_5_get_timers() -> None:
    for version in (versions.V5_0_0, versions.V5_5_0):
        assert Due(delay_ms=5000).properties_for(version, 18) == "TIMER_DELAY_MS\x015000\x02"
        assert Due(at_ms=77).properties_for(version, 18) == "TIMER_DELIVER_MS\x0177\x02"


@pytest.mark.parametrize(
    ("ms", "level"), [(1_000, 1), (60_000, 5), (600_000, 14), (3_600_000, 17), (7_200_000, 18)]
)
def test_older_brokers_get_a_level_of_exactly_the_delay(ms: int, level: int) -> None:
    for version in (versions.V4_9_4, versions.V5_0_0 - 1):
        assert Due(delay_ms=ms).properties_for(version, 18) == f"DELAY\x01{level}\x02"


@pytest.mark.parametrize(
    ("due", "levels", "why"),
    [
        (Due(delay_ms=1_500), 18, "no delay level of 1500 ms"),
        (Due(delay_ms=7_200_001), 18, r"V4_9_4.*no delay level"),
        (Due(at_ms=1_893_499_200_000), 18, "not until a time"),
        (Due(delay_ms=1_000), 20, "20 delay levels of its own"),
    ],
)
def test_older_brokers_without_such_a_level_are_said(due: Due, levels: int, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        due.properties_for(versions.V4_9_4, levels)


def told(
    folder: Path, story: Callable[[Cluster, roquet.MQ], Awaitable[None]], **changes: str
) -> None:
    async def tell(it: Cluster) -> None:
        async with roquet.connect(f"rmq://{it.name_servers}") as mq, asyncio.timeout(40):
            await mq.admin().topics.create("orders", 2)
            await story(it, mq)

    play(folder, tell, **{**ON, **changes})


def test_delayed_messages_come_at_their_time_and_not_before(tmp_path: Path) -> None:
    async def story(_: Cluster, mq: roquet.MQ) -> None:
        begun_ms = time.time() * 1000
        async with mq.producer() as producer:
            given = {
                b"delay": await producer.send("orders", b"delay", delay=timedelta(seconds=1)),
                b"number": await producer.send("orders", b"number", delay=0.6, tag="t"),
                b"at": await producer.send(
                    "orders", b"at", at=datetime.now(UTC) + timedelta(seconds=0.8)
                ),
                b"whole": await producer.send(Message("orders", b"whole"), delay=0.7),
                b"later": await (await producer.submit("orders", b"later", delay=0.5)),
            }
            assert all(it.recall_handle for it in given.values())
            assert (await producer.send("orders", b"now", delay=0)).recall_handle is None
            past = datetime.now(UTC) - timedelta(days=1)
            assert (await producer.send("orders", b"past", at=past)).recall_handle is None
        waits_ms = {b"delay": 1000, b"number": 600, b"at": 800, b"whole": 700, b"later": 500}
        found: dict[bytes, int] = {}
        async with mq.consumer("g", "orders", start="earliest", options=FAST) as consumer:
            while len(found) < 7:
                received = await consumer.receive(20)
                assert received is not None
                assert received.body not in found
                found[received.body] = received.message.store_timestamp
        for body, wait_ms in waits_ms.items():
            assert found[body] - begun_ms >= wait_ms - 1, body

    told(tmp_path, story)


def test_recalled_messages_never_come(tmp_path: Path) -> None:
    async def story(_: Cluster, mq: roquet.MQ) -> None:
        async with mq.producer("shop") as producer:
            gone = await producer.send("orders", b"gone", delay=1.5)
            other = await producer.send("orders", b"gone, too", delay=1.5)
            await producer.send("orders", b"stays", delay=1.6)
            await producer.recall(gone)
            plain = await producer.send("orders", b"plain")
            with pytest.raises(UsageError, match=f"^message {plain.message_id} waits for"):
                await producer.recall(plain)
            with pytest.raises(UsageError, match="invalid"):
                await producer.recall("no handle")
            assert other.recall_handle is not None
            old = RecallHandle.decode(other.recall_handle)._replace(due_ms=1).encode()
            with pytest.raises(Refused, match="due already") as caught:
                await producer.recall(old)
            assert caught.value.code == ResponseCode.ILLEGAL_OPERATION
            await producer.recall(other.recall_handle)
        async with mq.consumer("g", "orders", start="earliest", options=FAST) as consumer:
            found: list[bytes] = []
            while b"stays" not in found:
                received = await consumer.receive(20)
                assert received is not None
                found.append(received.body)
        assert found == [b"plain", b"stays"]

    told(tmp_path, story)


def test_recall_by_another_client_needs_only_the_handle(tmp_path: Path) -> None:
    async def story(it: Cluster, mq: roquet.MQ) -> None:
        async with mq.producer() as producer:
            receipt = await producer.send("orders", b"x", delay=60)
            handle = receipt.recall_handle
        assert handle is not None
        async with roquet.connect(f"rmq://{it.name_servers}") as other:
            producer = other.producer()
            with pytest.raises(UsageError, match="not started"):
                await producer.recall(handle)
            async with producer:
                await producer.recall(handle)

    told(tmp_path, story)


def test_what_the_broker_does_not_allow_is_its_refusal(tmp_path: Path) -> None:
    async def story(_: Cluster, mq: roquet.MQ) -> None:
        async with mq.producer() as producer:
            receipt = await producer.send("orders", b"x", delay=30)
            with pytest.raises(Refused, match="recallMessageEnable"):
                await producer.recall(receipt)
            with pytest.raises(Refused) as caught:
                await producer.send("orders", b"x", delay=61)
            assert caught.value.code == ResponseCode.MESSAGE_ILLEGAL

    told(tmp_path, story, recallMessageEnable="false", timerMaxDelaySec="60")


def test_the_blocking_client_delays_and_recalls(tmp_path: Path) -> None:
    def block(address: str) -> None:
        with roquet.sync.connect(f"rmq://{address}") as mq, mq.producer() as producer:
            receipt = producer.send("orders", b"x", delay=timedelta(minutes=1))
            producer.recall(receipt)
            future = producer.submit("orders", b"x", at=datetime.now(UTC) + timedelta(minutes=1))
            handle = future.result(10).recall_handle
            assert handle is not None
            producer.recall(handle)

    async def story(it: Cluster, _: roquet.MQ) -> None:
        await asyncio.to_thread(block, it.name_servers)

    told(tmp_path, story)
