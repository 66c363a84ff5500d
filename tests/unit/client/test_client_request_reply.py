"""Request-reply and broadcasting, against a real broker."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import pytest

import roquet
from broker_harness import ext
from roquet.base.errors import OutcomeUnknown, UsageError
from roquet.client import ConsumerOptions
from roquet.protocol.codes import RequestCode
from roquet.testing.cluster import cluster, send_command
from transaction_harness import of, until

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from roquet.client import Received
    from roquet.testing.cluster import Cluster

REPLIES = "DefaultCluster_REPLY_TOPIC"


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


def test_a_request_is_answered_by_a_consumer(tmp_path: Path) -> None:
    async def tell(it: Cluster, mq: roquet.MQ) -> None:
        async with (
            roquet.connect(f"rmq://{it.name_servers}") as server,
            server.consumer("answerers", "orders", start="earliest") as consumer,
            server.producer("answers") as answers,
            mq.producer("askers") as producer,
        ):

            async def answer(received: Received) -> None:
                body = received.body.upper() if len(received.body) < 50 else b"z" * 10_000
                await answers.reply(received, body, properties={"seen": "yes"})

            async with asyncio.TaskGroup() as group:
                serving = group.create_task(consumer.run(answer, concurrency=4))
                got = await asyncio.gather(
                    *(producer.request("orders", f"n{n}", timeout_s=30) for n in range(8))
                )
                assert [one.body for one in got] == [b"N%d" % n for n in range(8)]
                assert got[0].properties["seen"] == "yes"
                assert got[0].properties["MSG_TYPE"] == "reply"
                assert {"PUSH_REPLY_TIME", "ARRIVE_TIME"} <= got[0].properties.keys()
                big = await producer.request("orders", b"q" * 100, timeout_s=30)
                assert big.body == b"z" * 10_000
                serving.cancel()
        # Replies are kept, too, compressed as they came.
        await until(lambda: len(of(it.broker, REPLIES)) == 9, "the stored replies")
        stored = {(record.body, record.sys_flag) for record in of(it.broker, REPLIES)}
        assert (b"N0", 0) in stored
        assert sum(flag for _, flag in stored) != 0, "the long one says that it is compressed"

    play(tmp_path, tell)


def test_nobody_answers_or_nobody_waits(tmp_path: Path) -> None:
    async def tell(it: Cluster, mq: roquet.MQ) -> None:
        async with mq.producer("askers") as producer:
            with pytest.raises(OutcomeUnknown, match="no answer"):
                await producer.request("orders", b"?", timeout_s=0.3)
            async with mq.consumer("late", "orders", start="earliest") as consumer:
                received = await consumer.receive(20)
                assert received is not None
                # Its client is here and takes the answer, though nobody waits.
                await producer.reply(received, b"too late")
            plain = await producer.send("orders", b"plain")
            (found,) = [await mq.admin().messages.by_offset_id(plain.offset_id)]
            with pytest.raises(UsageError, match="no request"):
                await producer.reply(found, b"what?")
        gone = "REPLY_TO_CLIENT\x01gone@1\x02CORRELATION_ID\x01c\x02"
        command = send_command(REPLIES, b"x", 0, gone)
        for code in (RequestCode.SEND_REPLY_MESSAGE_V2, RequestCode.SEND_REPLY_MESSAGE):
            command.code = code
            if code is RequestCode.SEND_REPLY_MESSAGE:
                command.ext = {
                    "producerGroup": "g",
                    "topic": REPLIES,
                    "defaultTopic": "TBW102",
                    "defaultTopicQueueNums": "4",
                    "queueId": "0",
                    "sysFlag": "0",
                    "bornTimestamp": "1",
                    "flag": "0",
                    "properties": gone,
                }
            answer = await it.call(command)
            assert answer.code == 1
            assert answer.remark == "push reply message fail, channel of <gone@1> not found."
            # It is stored all the same, and the answer says where.
            assert len(ext(answer)["msgId"]) == 32
        command.ext = {**(command.ext or {}), "properties": "a\x01b\x02"}
        answer = await it.call(command)
        assert answer.remark == "reply message properties[REPLY_TO_CLIENT] is null"
        command.ext["topic"] = "nowhere"
        command.ext["defaultTopic"] = "nowhere"
        assert (await it.call(command)).code == 17

    play(tmp_path, tell)


def test_replies_are_not_stored_when_that_is_off(tmp_path: Path) -> None:
    async def tell(it: Cluster, mq: roquet.MQ) -> None:
        async with (
            mq.producer("askers") as producer,
            mq.consumer("g", "orders", start="earliest") as consumer,
        ):
            asking = asyncio.create_task(producer.request("orders", b"?", timeout_s=30))
            received = await consumer.receive(20)
            assert received is not None
            receipt = await producer.reply(received, b"!")
            assert (receipt.offset_id, receipt.queue_offset) == ("0", 0)
            assert (await asking).body == b"!"
        assert of(it.broker, REPLIES) == []

    play(tmp_path, tell, storeReplyMessageEnable="false")


def test_broadcasting_gives_everybody_everything_and_goes_on_where_it_was(tmp_path: Path) -> None:
    def options(name: str) -> ConsumerOptions:
        return ConsumerOptions(broadcast=True, offsets_folder=tmp_path / name, commit_every_s=0.05)

    async def take(consumer: roquet.client.Consumer, count: int) -> list[bytes]:
        found: list[bytes] = []
        while len(found) < count:
            received = await consumer.receive(20)
            assert received is not None
            received.ack()
            found.append(received.body)
        return sorted(found)

    async def tell(it: Cluster, mq: roquet.MQ) -> None:
        first, second = [b"a", b"b", b"c"], [b"d", b"e"]
        async with mq.producer("p") as producer:
            for body in first:
                await producer.send("orders", body)
            async with roquet.connect(f"rmq://{it.name_servers}") as other:
                one = mq.consumer("all", "orders", start="earliest", options=options("one"))
                two = other.consumer("all", "orders", start="earliest", options=options("two"))
                async with one, two:
                    assert await take(one, 3) == first
                    assert await take(two, 3) == first
            for body in second:
                await producer.send("orders", body)
            again = mq.consumer("all", "orders", start="earliest", options=options("one"))
            async with again:
                assert await take(again, 2) == second
        table = json.loads((tmp_path / "one" / "all.json").read_text())
        assert sum(table.values()) == 5
        assert it.broker.metadata.offsets.committed("all", "orders", 0) is None

    play(tmp_path, tell)


def test_a_broadcast_message_that_fails_is_tried_again_here(tmp_path: Path) -> None:
    async def tell(it: Cluster, mq: roquet.MQ) -> None:
        options = ConsumerOptions(broadcast=True, offsets_folder=tmp_path / "o", retry_times_max=0)
        with pytest.raises(UsageError, match="locks no queues"):
            mq.consumer("all", "orders", ordered=True, options=options)
        async with mq.producer("p") as producer:
            await producer.send("orders", b"a")
        async with mq.consumer("all", "orders", start="earliest", options=options) as consumer:
            received = await consumer.receive(20)
            assert received is not None
            received.retry()
            await until(lambda: set(consumer.progress("orders").values()) == {1}, "it is given up")
        assert it.broker.metadata.topics.get("%DLQ%all") is None

    play(tmp_path, tell)
