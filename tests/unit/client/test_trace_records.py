"""Traces of our client: what is written of each message, and that tracing harms nothing."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import subprocess
import sys
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

import roquet
from roquet.client import ConsumerOptions, ProducerOptions, TransactionState
from roquet.client._tracing import tracer as tracing
from roquet.client._tracing.records import Consumption, Traced
from roquet.protocol.messages.trace_lines import Event, decode
from roquet.testing.cluster import Cluster, cluster

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from pathlib import Path

    from roquet.model.message import StoredMessage

TRACES = "RMQ_SYS_TRACE_TOPIC"


@contextlib.asynccontextmanager
async def traced(
    folder: Path, *, suffix: str = "", **changes: str
) -> AsyncGenerator[tuple[Cluster, roquet.MQ]]:
    settings = {"traceTopicEnable": "true", "recallMessageEnable": "true", **changes}
    async with (
        asyncio.timeout(60),
        cluster(folder, **settings) as it,
        roquet.connect(f"rmq://{it.name_servers}{suffix}", trace=True) as mq,
    ):
        yield it, mq


async def traces(it: Cluster, count: int) -> list[Event]:
    """Return the records of the trace topic, waiting until so many can be read.

    The client that wrote them is closed; what it sent shows once it is dispatched.
    """
    found: list[Event] = []
    async with (
        roquet.connect(f"rmq://{it.name_servers}") as mq,
        mq.pull_consumer("readers") as consumer,
    ):
        queues = await consumer.queues(TRACES)
        await consumer.assign(queues, start="earliest")
        ends = {queue: (await consumer.bounds(queue))[1] for queue in queues}
        while len(found) < count or any(consumer.position(it) < end for it, end in ends.items()):
            for message in await consumer.poll(64, 1):
                found += decode(message.body)
    assert all(not event.reason for event in found), found
    return found


async def unknown(_: StoredMessage) -> TransactionState:
    return TransactionState.UNKNOWN


def test_life_of_messages_is_traced_and_shown_by_the_command_line(tmp_path: Path) -> None:
    async def work() -> tuple[str, str]:
        async with traced(tmp_path) as (it, mq):
            await mq.admin().topics.create("orders", 1)
            async with (
                mq.producer("shop") as producer,
                mq.consumer("billing", "orders", start="earliest") as consumer,
            ):
                sent = await producer.send("orders", b"one", tag="paid", keys=["k1", "k2"])
                futures = [
                    await producer.submit("orders", b"%d" % n, keys="many") for n in range(2)
                ]
                many = [await future for future in futures]
                late = await producer.send("orders", b"late", delay=timedelta(hours=1))
                await producer.recall(late)
                for number in range(3):
                    received = await consumer.receive(30)
                    assert received is not None
                    received.ack() if number else received.retry(delay_level=18)
            async with mq.transaction_producer("till", unknown) as till:
                decided = await till.begin("orders", b"maybe", tag="t", keys=["h1", "h2"])
                await decided.rollback()
            await mq.close()
            events = await traces(it, 13)
            shown = await asyncio.to_thread(show, it.name_servers, sent.message_id)
        first = [event for event in events if event.msg_id == sent.message_id]
        assert [event.kind for event in first] == ["Pub", "SubBefore", "SubAfter"]
        pub, before, after = first
        assert (pub.group, pub.topic, pub.tags, pub.keys) == ("shop", "orders", "paid", "k1 k2")
        assert (pub.offset_msg_id, pub.success, pub.body_length) == (sent.offset_id, True, 3)
        assert (pub.message_type, pub.region, pub.store_host) == (
            "normal",
            "DefaultRegion",
            it.address,
        )
        assert (before.group, before.retry_times, before.keys) == ("billing", 0, "k1 k2")
        assert before.request_id == after.request_id
        assert (after.success, after.code, after.group) == (False, "FAILED", "billing")
        for receipt in many:
            kinds = [event.kind for event in events if event.msg_id == receipt.message_id]
            assert kinds == ["Pub", "SubBefore", "SubAfter"]
        ends = [event for event in events if event.kind == "SubAfter"]
        assert [event.code for event in ends].count("SUCCESS") == 2
        later = [event for event in events if event.msg_id == late.message_id]
        assert [(event.kind, event.message_type) for event in later] == [
            ("Pub", "delay"),
            ("Recall", None),
        ]
        half = [event for event in events if event.group == "till"]
        assert [(event.kind, event.message_type) for event in half] == [
            ("Pub", "half"),
            ("EndTransaction", "half"),
        ]
        assert (
            half[1].state,
            half[1].from_check,
            half[1].tags,
            half[1].keys,
            half[1].store_host,
        ) == (
            "ROLLBACK_MESSAGE",
            False,
            "t",
            "h1 h2",
            it.address,
        )
        assert half[1].msg_id == half[0].msg_id == decided.receipt.message_id
        return shown

    out, err = asyncio.run(work())
    assert err == ""
    for word in ("sent", "received", "consumed", "FAILED", "billing", "shop"):
        assert word in out


def show(name_servers: str, message_id: str) -> tuple[str, str]:
    command = [sys.executable, "-m", "roquet", "msg", "trace", message_id, "-n", name_servers]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    return done.stdout, done.stderr


def test_clients_trace_nothing_unless_asked(tmp_path: Path) -> None:
    async def work() -> None:
        async with (
            cluster(tmp_path, traceTopicEnable="true") as it,
            roquet.connect(f"rmq://{it.name_servers}") as mq,
            mq.producer() as producer,
        ):
            await producer.send("orders", b"x")
            await mq.close()
            assert await traces(it, 0) == []

    asyncio.run(work())


def test_broker_without_a_trace_topic_harms_nothing_and_is_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def work() -> int:
        async with traced(tmp_path, traceTopicEnable="false", autoCreateTopicEnable="false") as (
            _,
            mq,
        ):
            await mq.admin().topics.create("orders", 1)
            async with mq.producer() as producer:
                for _ in range(150):
                    _ = await producer.submit("orders", b"x")
                await producer.flush()
            await mq.close()
            tracer = mq._session.tracer
            assert tracer is not None
            return int(tracer.dropped)

    with caplog.at_level(logging.WARNING):
        assert asyncio.run(work()) == 150
    told = [it.getMessage() for it in caplog.records if "traces are dropped" in it.getMessage()]
    assert len(told) == 1
    assert TRACES in told[0]


def test_failed_sends_are_traced_as_failed(tmp_path: Path) -> None:
    async def work() -> None:
        async with traced(tmp_path, maxMessageSize="2000") as (it, mq):
            await mq.admin().topics.create("orders", 1)
            options = ProducerOptions(compress_over=0)
            async with mq.producer("shop", options=options) as producer:
                with pytest.raises(roquet.Refused):
                    await producer.send("orders", b"x" * 2001, unique_key="A" * 32)
            await mq.close()
            (event,) = await traces(it, 1)
            assert (event.kind, event.msg_id, event.success) == ("Pub", "A" * 32, False)

    asyncio.run(work())


def test_refused_recalls_are_traced_as_failed(tmp_path: Path) -> None:
    async def work() -> None:
        async with traced(tmp_path, recallMessageEnable="false") as (it, mq):
            await mq.admin().topics.create("orders", 1)
            async with mq.producer("shop") as producer:
                late = await producer.send("orders", b"late", delay=timedelta(hours=1))
                assert late.recall_handle is not None
                with pytest.raises(roquet.Refused):
                    await producer.recall(late)
            await mq.close()
            _, event = await traces(it, 2)
            assert (event.kind, event.msg_id, event.success) == ("Recall", late.message_id, False)

    asyncio.run(work())


def test_ends_after_a_check_name_tag_keys_and_broker_of_the_half_message(tmp_path: Path) -> None:
    async def commit(_: StoredMessage) -> TransactionState:
        return TransactionState.COMMIT

    async def work() -> None:
        quick = {"transactionTimeOut": "300", "transactionCheckInterval": "100"}
        async with traced(tmp_path, **quick) as (it, mq):
            await mq.admin().topics.create("orders", 1)
            async with (
                mq.consumer("billing", "orders", start="earliest") as consumer,
                mq.transaction_producer("till", commit) as till,
            ):
                half = await till.begin("orders", b"maybe", tag="t", keys=["h1", "h2"])
                received = await consumer.receive(30)
                assert received is not None
                received.ack()
            await mq.close()
            events = [event for event in await traces(it, 4) if event.group == "till"]
            assert [event.kind for event in events] == ["Pub", "EndTransaction"]
            end = events[1]
            assert (end.msg_id, end.from_check) == (half.receipt.message_id, True)
            assert (end.tags, end.keys, end.store_host) == ("t", "h1 h2", it.address)

    asyncio.run(work())


def test_names_are_traced_without_their_namespace(tmp_path: Path) -> None:
    async def work() -> None:
        async with traced(tmp_path, suffix="?namespace=shop") as (it, mq):
            await mq.admin().topics.create("shop%orders", 1)
            async with (
                mq.producer("p") as producer,
                mq.consumer("g", "orders", start="earliest") as consumer,
            ):
                await producer.send("orders", b"x")
                received = await consumer.receive(30)
                assert received is not None
                received.ack()
            await mq.close()
            events = await traces(it, 3)
            named = {(event.kind, event.group, event.topic) for event in events}
            assert named == {
                ("Pub", "p", "orders"),
                ("SubBefore", "g", None),
                ("SubAfter", "g", None),
            }

    asyncio.run(work())


def test_broadcasting_and_ordered_consumers_trace_each_delivery(tmp_path: Path) -> None:
    async def work() -> None:
        async with traced(tmp_path / "broker") as (it, mq):
            await mq.admin().topics.create("orders", 1)
            every = ConsumerOptions(broadcast=True, offsets_folder=tmp_path / "offsets")
            async with (
                mq.producer() as producer,
                mq.consumer("all", "orders", start="earliest", options=every) as broadcast,
                mq.consumer("line", "orders", start="earliest", ordered=True) as ordered,
            ):
                await producer.send("orders", b"x")
                for consumer in (broadcast, ordered):
                    (received,) = await consumer.receive_many(1, 30)
                    received.ack()
            await mq.close()
            groups = sorted(
                (event.kind, event.group or "")
                for event in await traces(it, 5)
                if event.kind != "Pub"
            )
            assert groups == [
                ("SubAfter", "all"),
                ("SubAfter", "line"),
                ("SubBefore", "all"),
                ("SubBefore", "line"),
            ]

    asyncio.run(work())


def test_blocking_clients_trace_as_well(tmp_path: Path) -> None:
    async def work() -> None:
        async with cluster(tmp_path, traceTopicEnable="true") as it:

            def block() -> None:
                with (
                    roquet.sync.connect(f"rmq://{it.name_servers}", trace=True) as mq,
                    mq.producer("shop") as producer,
                    mq.consumer("g", "orders", start="earliest") as consumer,
                ):
                    producer.send("orders", b"x")
                    received = consumer.receive(30)
                    assert received is not None
                    received.ack()

            await asyncio.to_thread(block)
            assert sorted(event.kind for event in await traces(it, 3)) == [
                "Pub",
                "SubAfter",
                "SubBefore",
            ]

    asyncio.run(work())


def test_fields_stand_where_rocketmq_has_them() -> None:
    message = Traced(
        region="r", group="g", topic="t", message_id="m", tag="a", keys="k l", broker="b:1"
    )
    consumption = Consumption(
        region="r", group="g", request_id="q", message_id="m", attempts_before=2, keys=("k",)
    )
    lines = [
        message.sent(5, 7, 9, "o", success=True),
        message.ended(5, "COMMIT_MESSAGE", from_check=True),
        message.recalled(5, success=True),
        message.recalled(5, success=False),
        consumption.begun(5),
        consumption.ended(6, 1, success=True),
        consumption.ended(6, 1, success=False),
    ]
    assert [it.text.replace("\x01", "|") for it in lines] == [
        "Pub|5|r|g|t|m|a|k l|b:1|9|7|0|o|true\x02",
        "EndTransaction|5|r|g|t|m|a|k l|b:1|0|m|COMMIT_MESSAGE|true\x02",
        "Recall|5|r|g|t|m|true\x02",
        "Recall|5|r|g|t|m|false\x02",
        "SubBefore|5|r|g|q|m|2|k\x02",
        "SubAfter|q|m|1|true|k|0|6|g\x02",
        "SubAfter|q|m|1|false|k|4|6|g\x02",
    ]
    bare = Consumption(
        region="r", group="g", request_id="q", message_id="m", attempts_before=0, keys=()
    )
    assert bare.begun(5).text.replace("\x01", "|") == "SubBefore|5|r|g|q|m|0|null\x02"
    assert bare.begun(5).keys == ("m",)
    assert {it.keys for it in lines[:4]} == {("m", "k", "l")}
    assert {it.keys for it in lines[4:]} == {("m", "k")}


def test_trace_messages_stay_within_their_limits(tmp_path: Path) -> None:
    async def work() -> None:
        async with traced(tmp_path) as (_, mq):
            tracer = mq._session.tracer
            assert tracer is not None
            # One region a message, few records, small bodies, small keys.
            for number in range(tracing.WAITING_MAX + 5):
                tracer._add(
                    Traced(
                        region="ab"[number % 500 == 0],
                        group="g",
                        topic="t",
                        message_id=f"{number:032}",
                        tag="t" * 30_000 if number % 1000 == 7 else "",
                        keys=f"{number:0300}",
                        broker="",
                    ).sent(1, 1, 1, "", success=True)
                )
            assert (len(tracer._waiting), tracer.dropped) == (tracing.WAITING_MAX, 5)
            while tracer._waiting:
                found = tracer._next()
                assert len({record.region for record in found}) == 1
                assert len(found) <= tracing.TOGETHER_MAX
                assert sum(len(key) + 1 for it in found for key in it.keys) <= 16_000
                assert sum(record.size for record in found) <= tracing.SIZE_MAX

    asyncio.run(work())
