"""The blocking client has the calls of the asyncio one, with the same parameters."""

from __future__ import annotations

import functools
import inspect
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

import roquet
from roquet import client
from roquet.base.errors import UsageError
from roquet.client import ProducerOptions, sync
from roquet.service.loop_thread import LoopThread
from roquet.testing import Broker

if TYPE_CHECKING:
    from roquet.client import SendReceipt

PAIRS = [
    (client.MQ, sync.MQ),
    (client.Producer, sync.Producer),
    (client.TransactionProducer, sync.TransactionProducer),
    (client.Transaction, sync.Transaction),
    (client.Consumer, sync.Consumer),
    (client.PullConsumer, sync.PullConsumer),
    (client.SimpleConsumer, sync.SimpleConsumer),
    (client.Received, sync.Received),
    (client.Admin, sync.Admin),
]
FIELDS = {"message", "queue", "receipt", "state"}
ASYNC_ONLY = {
    "asked",
    # What the Spark sink calls.
    "end",
    "send_encoded",
    "send_half",
    "sequences",
    # What brokers call, not applications.
    "describe",
    "rebalance_soon",
    "reset_offsets",
    "progress",
    "running_info",
    "consume_directly",
    # Starts concurrent tasks; threads of the application's own do the same here.
    "run",
    "run_batches",
    # What the blocking client is made of.
    "prepared",
    "accept",
    "hasten",
    "note",
    "in_flight_max",
    "composed",
    "delivery",
    "timeout_s",
    "ready",
    "watch",
}


def _public(kind: type) -> dict[str, object]:
    return {name: item for name, item in vars(kind).items() if not name.startswith("_")}


@pytest.mark.parametrize(("inner", "outer"), PAIRS, ids=lambda kind: kind.__name__)
def test_the_same_calls(inner: type, outer: type) -> None:
    theirs, ours = _public(inner), _public(outer)
    missing = {name for name in theirs if name not in ASYNC_ONLY and not hasattr(outer, name)}
    assert missing <= FIELDS
    assert set(ours) - set(theirs) <= FIELDS
    for name, item in ours.items():
        # `run` takes awaitables there and a function here; what may be around `admin` is awaited.
        if inspect.isfunction(item) and name not in ("run", "admin"):
            expected = inspect.signature(getattr(inner, name)).parameters
            found = inspect.signature(item).parameters
            assert list(found.values()) == list(expected.values()), name


def test_connect_takes_the_same() -> None:
    assert (
        inspect.signature(client.connect).parameters == inspect.signature(sync.connect).parameters
    )


def test_posts_and_runs_are_done_in_order() -> None:
    loop = LoopThread("test")
    seen: list[int] = []

    async def run(number: int) -> None:
        seen.append(number)

    def fails() -> None:
        raise ValueError("as planned")

    for number in range(0, 300, 3):
        loop.post(functools.partial(seen.append, number))
        loop.post(fails)
        loop.run(run(number + 1))
        loop.post(functools.partial(seen.append, number + 2))
    assert loop.call(lambda: len(seen)) == 300
    assert seen == list(range(300))
    loop.close()
    with pytest.raises(UsageError, match="closed"):
        loop.post(fails)


def test_submits_of_many_threads_share_batches_and_their_bound() -> None:
    with Broker() as broker, sync.connect(broker.url) as mq:
        options = ProducerOptions(in_flight_max=64)
        with mq.producer(options=options) as producer:

            def work(name: int) -> list[SendReceipt]:
                keyed = [
                    producer.submit("orders", f"{name}", order_key=f"{name}") for _ in range(200)
                ]
                return [it.result(30) for it in keyed]

            with ThreadPoolExecutor(8) as pool:
                receipts = list(pool.map(work, range(8)))
            producer.flush()
            assert len({it.message_id for own in receipts for it in own}) == 1600
            for own in receipts:
                offsets = [it.queue_offset for it in own]
                assert offsets == sorted(offsets)
            with pytest.raises(UsageError):
                producer.submit("orders", b"")
            # What was refused took no place: all 64 are free.
            assert all(producer._slots.acquire(blocking=False) for _ in range(64))
            assert not producer._slots.acquire(blocking=False)
            producer._slots.release(64)
            waiting = producer.submit("orders", b"last")
        assert waiting.result(0).is_durable
        with pytest.raises(UsageError, match="not started"):
            producer.submit("orders", b"x")


def test_what_is_acknowledged_is_committed_by_the_next_call() -> None:
    with Broker() as broker, sync.connect(broker.url) as mq, mq.producer() as producer:
        for number in range(100):
            producer.submit("orders", f"{number}", order_key="k")
        producer.flush()
        with mq.consumer("g", "orders", start="earliest") as consumer:
            seen = [consumer.receive(30) for _ in range(60)]
            for received in seen:
                assert received is not None
                received.ack()
                assert received.is_settled
            consumer.commit()
        with mq.consumer("g", "orders", start="earliest") as consumer:
            first = consumer.receive(30)
            assert first is not None
            assert first.body == b"60"
            assert not first.is_settled
            first.retry()
            assert first.is_settled


def test_a_loop_thread() -> None:
    loop = LoopThread("test")

    async def answer() -> int:
        return 42

    async def fail() -> None:
        raise KeyError("x")

    async def inside() -> None:
        loop.run(answer())

    assert loop.run(answer()) == 42
    assert loop.call(lambda: 7) == 7
    with pytest.raises(KeyError):
        loop.run(fail())
    with pytest.raises(UsageError):
        loop.run(inside())
    loop.close()
    loop.close()
    with pytest.raises(UsageError):
        loop.run(answer())


def test_it_can_be_imported_under_its_public_name() -> None:
    import roquet.sync as public  # noqa: PLC0415  (the statement is what is tested)

    assert public.connect is sync.connect
    assert roquet.sync is public
