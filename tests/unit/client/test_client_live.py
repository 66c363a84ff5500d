"""The client against a real name server and broker in this process, over real sockets."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from typing import TYPE_CHECKING

import pytest

import roquet
from roquet.base.errors import OutcomeUnknown, Refused, Unreachable, UsageError
from roquet.client import ConsumerOptions, ProducerOptions
from roquet.client._cluster.broker_calls import BrokerCalls, Pull, Pulled
from roquet.model.message import Message
from roquet.model.queue import MessageQueue
from roquet.protocol.bodies.stats import RunningInfo
from roquet.protocol.codes import RequestCode
from roquet.protocol.command import Command
from roquet.testing.cluster import Cluster, cluster, running_broker, running_name_server
from roquet.testing.java import free_port

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

FAST = ConsumerOptions(rebalance_every_s=0.5, commit_every_s=0.2, pause_after_error_s=0.1)


def play(
    folder: Path,
    story: Callable[[Cluster, roquet.MQ], Awaitable[None]],
    *names: str,
    **changes: str,
) -> None:
    """Run a story with a cluster and a client."""

    async def run() -> None:
        async with (
            asyncio.timeout(40),
            cluster(folder, *names, **changes) as it,
            roquet.connect(f"rmq://{it.name_servers}") as mq,
        ):
            await story(it, mq)

    asyncio.run(run())


async def _collect(consumer: roquet.client.Consumer, count: int) -> list[bytes]:
    found: list[bytes] = []
    while len(found) < count:
        received = await consumer.receive(timeout_s=20)
        assert received is not None, f"only {len(found)} of {count} came"
        received.ack()
        found.append(received.body)
    return found


async def _until(truth: Callable[[], bool]) -> None:
    while not truth():  # noqa: ASYNC110  (what is waited for has no event)
        await asyncio.sleep(0.02)


def test_what_is_sent_is_received(tmp_path: Path) -> None:
    async def tell(_: Cluster, mq: roquet.MQ) -> None:
        await mq.admin().topics.create("orders", 4)
        async with mq.producer("shop") as producer:
            receipt = await producer.send(
                "orders", "first", tag="new", keys=["k-1", "k-2"], properties={"color": "red"}
            )
            assert receipt.status is roquet.SendStatus.OK
            assert receipt.is_durable
            await producer.send("orders", b"big" * 5000, tag="new")
            await producer.send("orders", b"other", tag="old")
            receipts = await producer.send_batch("orders", [b"b1", "b2", Message("orders", b"b3")])
            assert [it.queue_offset - receipts[0].queue_offset for it in receipts] == [0, 1, 2]
            assert len({it.message_id for it in receipts}) == 3
            seen = await mq.admin().messages.by_offset_id(receipt.offset_id)
            assert (seen.body, seen.tag, seen.keys) == (b"first", "new", ("k-1", "k-2"))
        async with mq.consumer(
            "billing", {"orders": "new || paid"}, start="earliest", options=FAST
        ) as consumer:
            received = [await consumer.receive(10), await consumer.receive(10)]
            bodies = {it.body for it in received if it is not None}
            assert bodies == {b"first", b"big" * 5000}
            first = next(it for it in received if it is not None and it.body == b"first")
            assert first.message_id == receipt.message_id
            assert first.properties["color"] == "red"
            assert first.attempt == 1
            assert await consumer.receive(0.2) is None

    play(tmp_path, tell)


def test_sends_choose_their_queue(tmp_path: Path) -> None:
    async def tell(_: Cluster, mq: roquet.MQ) -> None:
        await mq.admin().topics.create("t", 4)
        async with mq.producer() as producer:
            queues = await producer.queues("t")
            assert len(queues) == 4
            chosen = [(await producer.send("t", b"x", queue=queue)).queue for queue in queues]
            assert chosen == list(queues)
            spread = [(await producer.send("t", b"x")).queue for _ in range(4)]
            assert sorted(spread) == list(queues)
            same = {(await producer.send("t", b"x", order_key="o-1")).queue for _ in range(5)}
            assert len(same) == 1
            last = await producer.send("t", b"x", selector=lambda found, _: found[-1])
            assert last.queue == queues[-1]
            with pytest.raises(UsageError, match="one of"):
                await producer.send("t", b"x", queue=queues[0], order_key="o")
            with pytest.raises(UsageError, match="no queue of topic"):
                await producer.send("t", b"x", queue=MessageQueue("u", "b", 0))
            futures = [await producer.submit("t", f"{n}") for n in range(100)]
            await producer.flush()
            assert len({future.result().offset_id for future in futures}) == 100
            await producer.send_one_way("t", b"one way")
        # Offsets show a message once it is dispatched, which is soon but not at once.
        total = 0
        for _attempt in range(2000):
            total = sum(it.max_offset for it in (await mq.admin().topics.offsets("t")).values())
            if total == 115:
                break
            await asyncio.sleep(0.02)
        assert total == 115

    play(tmp_path, tell)


def test_submitted_messages_keep_their_order_and_know_their_places(tmp_path: Path) -> None:
    async def tell(_: Cluster, mq: roquet.MQ) -> None:
        sent: dict[str, list[tuple[bytes, roquet.SendReceipt]]] = {}
        async with mq.producer() as producer:
            pending = []
            # The topic is made by the first of them: the others wait for its queues in order.
            for number in range(600):
                key = f"k{number % 7}"
                body = f"{number:05}".encode() * (1 if number % 11 else 2000)
                pending.append((key, body, await producer.submit("made", body, order_key=key)))
                if number % 50 == 0:
                    await asyncio.sleep(0)
            await producer.flush()
            for key, body, future in pending:
                sent.setdefault(key, []).append((body, future.result()))
        for made in sent.values():
            assert len({receipt.queue for _, receipt in made}) == 1
            offsets = [receipt.queue_offset for _, receipt in made]
            assert offsets == sorted(offsets)
        expected = {
            (receipt.queue.queue_id, receipt.queue_offset): (body, receipt)
            for made in sent.values()
            for body, receipt in made
        }
        assert len(expected) == 600
        async with mq.pull_consumer("g") as consumer:
            await consumer.assign(await consumer.queues("made"), start="earliest")
            while expected:
                for message in await consumer.poll(64, 20):
                    place = (message.queue_id, message.queue_offset)
                    body, receipt = expected.pop(place)
                    assert (message.body, message.unique_key) == (body, receipt.message_id)
                    assert message.msg_id == receipt.offset_id

    play(tmp_path, tell)


def test_topics_are_made_by_the_first_send_or_the_remedy_is_named(tmp_path: Path) -> None:
    async def tell(_: Cluster, mq: roquet.MQ) -> None:
        async with mq.producer() as producer:
            assert (await producer.send("fresh", b"x")).queue.topic == "fresh"
            assert len(await producer.queues("fresh")) == 4

    async def tell_strict(_: Cluster, mq: roquet.MQ) -> None:
        async with mq.producer() as producer:
            with pytest.raises(Refused, match="create it first") as caught:
                await producer.send("fresh", b"x")
            assert caught.value.code == 17

    play(tmp_path / "a", tell)
    play(tmp_path / "b", tell_strict, autoCreateTopicEnable="false")


def test_members_share_the_queues_and_give_them_back(tmp_path: Path) -> None:
    async def tell(it: Cluster, mq: roquet.MQ) -> None:
        await mq.admin().topics.create("t", 4)
        async with mq.producer() as producer:
            for number in range(20):
                await producer.send("t", str(number))
        async with mq.consumer("g", "t", start="earliest", options=FAST) as one:
            done = await _collect(one, 20)
            assert sorted(done, key=int) == [str(n).encode() for n in range(20)]
            async with (
                roquet.connect(it.name_servers) as second,
                second.consumer("g", "t", options=FAST) as two,
            ):
                await _until(lambda: len(_mine(one)) == len(_mine(two)) == 2)
                assert not _mine(one) & _mine(two)
                assert await two.receive(0.3) is None, "offsets were not handed over"
            await _until(lambda: len(_mine(one)) == 4)
        progress = await mq.admin().groups.offsets("g", "t")
        assert all(o.broker_offset == o.consumer_offset for o in progress.values())

    def _mine(consumer: roquet.client.Consumer) -> frozenset[MessageQueue]:
        return frozenset(q for q in consumer.assigned if q.topic == "t")

    play(tmp_path, tell)


def test_a_failed_message_comes_again_and_then_dies(tmp_path: Path) -> None:
    async def tell(_: Cluster, mq: roquet.MQ) -> None:
        await mq.admin().topics.create("t", 1)
        async with mq.producer() as producer:
            await producer.send("t", b"bad")
            await producer.send("t", b"good")
        async with mq.consumer("g", "t", start="earliest", options=FAST) as consumer:
            attempts: list[tuple[bytes, int]] = []
            async for received in consumer:
                attempts.append((received.body, received.attempt))
                assert received.topic == "t"
                async with received.process(delay_level=1):
                    if received.body == b"bad" and received.attempt == 1:
                        raise ValueError("on purpose")
                if received.attempt == 2:
                    break
            assert attempts == [(b"bad", 1), (b"good", 1), (b"bad", 2)]
        async with mq.producer() as producer:
            await producer.send("t", b"hopeless")
        async with mq.consumer("g", "t", options=FAST) as consumer:
            last = await consumer.receive(10)
            assert last is not None
            last.dead_letter()
            last.ack()  # too late: the first word counts
            assert await consumer.receive(0.5) is None
        dead = MessageQueue("%DLQ%g", "broker-a", 0)
        async with mq.pull_consumer("undertaker") as puller:
            await puller.assign([dead], start="earliest")
            assert [message.body for message in await puller.poll()] == [b"hopeless"]

    play(tmp_path, tell)


def test_a_message_that_cannot_be_sent_back_is_sent_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(*_: object) -> None:
        raise Refused(1, "on purpose")

    async def tell(it: Cluster, mq: roquet.MQ) -> None:
        await mq.admin().topics.create("t", 1)
        async with mq.producer() as producer:
            await producer.send("t", b"x", tag="A")
        async with mq.consumer("g", "t", start="earliest", options=FAST) as consumer:
            retry = MessageQueue("%RETRY%g", "broker-a", 0)
            await _until(lambda: retry in consumer.assigned)
            received = await consumer.receive(10)
            assert received is not None
            received.retry()
            await _until(lambda: consumer.progress("t")[received.queue] == 1)
        # It waits at the third delay level now.
        ext = {"topic": "SCHEDULE_TOPIC_XXXX", "queueId": "2"}
        answer = await it.call(Command(RequestCode.GET_MAX_OFFSET, ext=ext))
        assert answer.ext == {"offset": "1"}

    monkeypatch.setattr(BrokerCalls, "send_back", refuse)
    play(tmp_path, tell)


def test_closing_the_client_closes_what_it_made(tmp_path: Path) -> None:
    async def tell(it: Cluster, mq: roquet.MQ) -> None:
        await mq.admin().topics.create("t", 1)
        async with roquet.connect(it.name_servers) as other:
            producer = other.producer("p")
            await producer.start()
            await producer.send("t", b"x")
            consumer = other.consumer("g", "t", start="earliest", options=FAST)
            await consumer.start()
            assert await _collect(consumer, 1) == [b"x"]
        with pytest.raises(UsageError):
            await consumer.receive()
        with pytest.raises(UsageError):
            await producer.send("t", b"x")
        progress = await mq.admin().groups.offsets("g", "t")
        assert [it.consumer_offset for it in progress.values()] == [1]

    play(tmp_path, tell)


def test_an_exception_in_the_loop_acknowledges_nothing(tmp_path: Path) -> None:
    async def tell(_: Cluster, mq: roquet.MQ) -> None:
        await mq.admin().topics.create("t", 1)
        async with mq.producer() as producer:
            for number in range(3):
                await producer.send("t", str(number))
        with contextlib.suppress(ZeroDivisionError):
            async with mq.consumer("g", "t", start="earliest", options=FAST) as consumer:
                async for received in consumer:
                    assert int(received.body) < 2
                    1 // (1 - int(received.body))
        async with mq.consumer("g", "t", options=FAST) as consumer:
            assert await _collect(consumer, 2) == [b"1", b"2"]

    play(tmp_path, tell)


def test_order_is_kept_also_over_failures(tmp_path: Path) -> None:
    async def tell(it: Cluster, mq: roquet.MQ) -> None:
        await mq.admin().topics.create("t", 2)
        async with mq.producer() as producer:
            for number in range(10):
                await producer.send("t", f"{number}", order_key=str(number % 2))
        options = ConsumerOptions(rebalance_every_s=0.5, order_retry_s=0.05)
        async with mq.consumer(
            "g", "t", start="earliest", ordered=True, options=options
        ) as consumer:
            order: dict[int, list[int]] = {}
            failed = False

            async def handle(received: roquet.Received) -> None:
                nonlocal failed
                number = int(received.body)
                if number == 4 and not failed:
                    failed = True
                    raise ValueError("once")
                order.setdefault(received.queue.queue_id, []).append(number)
                if sum(map(len, order.values())) == 10:
                    done.set()

            done = asyncio.Event()
            async with asyncio.TaskGroup() as group:
                running = group.create_task(consumer.run(handle, concurrency=4))
                await done.wait()
                running.cancel()
            assert failed
            assert sorted(order.values()) == [[0, 2, 4, 6, 8], [1, 3, 5, 7, 9]]
            # Nobody else gets the locks meanwhile.
            async with (
                roquet.connect(it.name_servers) as other,
                other.consumer("g", "t", ordered=True, options=options) as second,
            ):
                await asyncio.sleep(0.3)
                mine = {q for q in consumer.assigned if q.topic == "t"}
                assert not mine & {q for q in second.assigned if q.topic == "t"}

    play(tmp_path, tell)


def test_a_group_that_has_never_pulled_may_commit(tmp_path: Path) -> None:
    async def tell(it: Cluster, mq: roquet.MQ) -> None:
        await mq.admin().topics.create("t", 1)
        async with mq.producer() as producer:
            await producer.send("t", b"one")
        assert it.broker.metadata.groups.get("new") is None
        async with mq.pull_consumer("new") as puller:
            (queue,) = await puller.queues("t")
            await puller.commit({queue: 1})
            assert await puller.committed(queue) == 1

    play(tmp_path, tell)


def test_pulling(tmp_path: Path) -> None:
    async def tell(_: Cluster, mq: roquet.MQ) -> None:
        await mq.admin().topics.create("t", 2)
        async with mq.producer() as producer:
            for number in range(10):
                await producer.send("t", f"{number}", tag="even" if number % 2 == 0 else "odd")
        async with mq.pull_consumer("g") as puller:
            queues = await puller.queues("t")
            with pytest.raises(UsageError, match="no queue is assigned"):
                await puller.poll()
            await puller.assign(queues)
            found: list[roquet.StoredMessage] = []
            while len(found) < 10:
                found += await puller.poll(3)
            assert {int(it.body) for it in found} == set(range(10))
            assert [puller.position(queue) for queue in queues] == [5, 5]
            assert await puller.committed(queues[0]) in (None, 0)
            await puller.commit()
            assert await puller.committed(queues[0]) == 5
            assert await puller.poll(timeout_s=0.1) == []
            assert await puller.seek(queues[1], 3) == 3
            assert [it.queue_offset for it in await puller.poll()] == [3, 4]
            assert await puller.seek(queues[0], "latest") == 5
            assert await puller.seek(queues[0], "earliest") == 0
            assert await puller.seek(queues[0], timestamp=found[0].store_timestamp - 1) == 0
            assert await puller.seek(queues[0], timestamp=2**42) == 5
            assert await puller.bounds(queues[0]) == (0, 5)
            with pytest.raises(UsageError):
                await puller.seek(queues[0])
        async with mq.pull_consumer("other") as puller:
            await puller.assign(queues, tags_expression="odd", start="earliest")
            found = []
            while len(found) < 5:
                found += await puller.poll()
            assert {it.tag for it in found} == {"odd"}
        async with mq.pull_consumer("g") as puller:
            await puller.assign(queues)
            assert [puller.position(queue) for queue in queues] == [5, 5]

    play(tmp_path, tell)


def test_a_broker_that_comes_back_is_used_again(tmp_path: Path) -> None:
    async def run() -> None:
        async with asyncio.timeout(40), contextlib.AsyncExitStack() as stack:
            server = await stack.enter_async_context(running_name_server(tmp_path / "names"))
            names = f"127.0.0.1:{server.server.port}"
            mq = await stack.enter_async_context(roquet.connect(names))
            at = {"listenPort": str(free_port())}
            async with running_broker(tmp_path / "b", names, changes=at):
                await mq.admin().topics.create("t", 1)
                producer = await stack.enter_async_context(mq.producer())
                await producer.send("t", b"1")
                consumer = mq.consumer("g", "t", start="earliest", options=FAST)
                await stack.enter_async_context(consumer)
                assert await _collect(consumer, 1) == [b"1"]
                await consumer.commit()
            with pytest.raises((Unreachable, Refused)):
                await producer.send("t", b"lost")
            async with running_broker(tmp_path / "b", names, changes=at):
                await producer.send("t", b"2")
                assert await _collect(consumer, 1) == [b"2"]

    asyncio.run(run())


def test_sends_go_to_another_broker_only_where_that_is_safe(tmp_path: Path) -> None:
    async def tell(it: Cluster, mq: roquet.MQ) -> None:
        await mq.admin().topics.create("t", 1)
        async with mq.producer() as producer:
            await it.brokers[0].app.__aexit__()
            receipts = [await producer.send("t", b"x") for _ in range(4)]
            assert {receipt.queue.broker_name for receipt in receipts} == {"broker-b"}
            gone = MessageQueue("t", "broker-a", 0)
            with pytest.raises((Unreachable, Refused)):
                await producer.send("t", b"x", queue=gone)

    play(tmp_path, tell, "broker-a", "broker-b")


class _Silent(asyncio.Protocol):
    """A broker that takes everything and says nothing."""

    received = 0

    def data_received(self, data: bytes) -> None:  # type: ignore[explicit-override]
        type(self).received += data.count(b'"code":310')


def test_a_send_without_an_answer_is_not_repeated_unless_asked(tmp_path: Path) -> None:
    async def tell(it: Cluster, mq: roquet.MQ) -> None:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(_Silent, "127.0.0.1", 0)
        address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        await mq.admin().topics.create("t", 2)
        route = await mq.admin().topics.route("t")
        mq._session.book._brokers["broker-a"] = {0: address}
        assert route.brokers
        async with mq.producer(options=ProducerOptions(timeout_s=0.5)) as producer:
            with pytest.raises(OutcomeUnknown):
                await producer.send("t", b"x")
        assert _Silent.received == 1
        mq._session.book._brokers["broker-a"] = {0: it.address}
        server.close()

    play(tmp_path, tell)


def test_brokers_ask_consumers(tmp_path: Path) -> None:
    async def tell(it: Cluster, mq: roquet.MQ) -> None:
        await mq.admin().topics.create("t", 1)
        async with mq.producer() as producer:
            receipts = [await producer.send("t", str(n)) for n in range(5)]
        async with mq.consumer("g", "t", start="earliest", options=FAST) as consumer:
            await _collect(consumer, 5)
            info = consumer.running_info()
            assert info.properties["PROP_CONSUME_TYPE"] == "CONSUME_PASSIVELY"
            queue = receipts[0].queue
            assert info.queues[queue]["commitOffset"] == 5
            assert consumer.progress("t") == {queue: 5}
            await consumer.reset_offsets("t", {queue: 3})
            assert await _collect(consumer, 2) == [b"3", b"4"]
            message = await mq.admin().messages.by_offset_id(receipts[0].offset_id)
            async with asyncio.TaskGroup() as group:
                asked = group.create_task(consumer.consume_directly(message))
                received = await consumer.receive(5)
                assert received is not None
                received.ack()
            assert asked.result().result == "CR_SUCCESS"
            # And the same through the broker, as tools ask.
            ext = {"consumerGroup": "g", "clientId": mq.client_id, "jstackEnable": "false"}
            answer = await it.call(Command(RequestCode.GET_CONSUMER_RUNNING_INFO, ext=ext))
            assert answer.code == 0, answer.remark
            assert RunningInfo.decode(answer.body).queues[queue]["cachedMsgCount"] == 0

    play(tmp_path, tell)


def test_an_offset_that_is_gone_is_corrected(tmp_path: Path) -> None:
    async def tell(it: Cluster, mq: roquet.MQ) -> None:
        await mq.admin().topics.create("t", 1)
        async with mq.producer() as producer:
            await producer.send("t", b"x")
        ext = {"consumerGroup": "g", "topic": "t", "queueId": "0", "commitOffset": "99"}
        await it.call(Command(RequestCode.UPDATE_CONSUMER_OFFSET, ext=ext))
        async with (
            mq.consumer("g", "t", options=FAST) as consumer,
            mq.producer() as producer,
        ):
            async with asyncio.TaskGroup() as group:
                waiting = group.create_task(consumer.receive(15))
                while not waiting.done():
                    await producer.send("t", b"y")
                    await asyncio.sleep(0.2)
            received = waiting.result()
            assert received is not None

    play(tmp_path, tell)


def test_an_answer_that_cannot_be_read_does_not_end_consuming(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def tell(_: Cluster, mq: roquet.MQ) -> None:
        await mq.admin().topics.create("t", 1)
        async with mq.producer() as producer:
            await producer.send("t", b"1")
        broken = 2

        async def pull(self: BrokerCalls, asked: Pull) -> Pulled:
            nonlocal broken
            if broken:
                broken -= 1
                raise KeyError("nonsense")
            return await whole(self, asked)

        whole = BrokerCalls.pull
        monkeypatch.setattr(BrokerCalls, "pull", pull)
        async with mq.consumer("g", "t", start="earliest", options=FAST) as consumer:
            assert await _collect(consumer, 1) == [b"1"]
        assert broken == 0

    play(tmp_path, tell)


def test_dashboard_2337_a_message_id_makes_nobody_connect_just_anywhere(tmp_path: Path) -> None:
    async def tell(_: Cluster, mq: roquet.MQ) -> None:
        with pytest.raises(UsageError, match="no broker of this cluster"):
            await mq.admin().messages.by_offset_id("7F000001000000160000000000000000")
        with pytest.raises(UsageError, match="hex"):
            await mq.admin().messages.by_offset_id("nonsense")

    play(tmp_path, tell)


def test_misuse_is_told(tmp_path: Path) -> None:
    async def tell(_: Cluster, mq: roquet.MQ) -> None:
        with pytest.raises(UsageError, match="within `async with`"):
            await mq.producer().send("t", b"x")
        with pytest.raises(UsageError, match="contains illegal"):
            mq.producer("bad group")
        with pytest.raises(UsageError, match="at least one topic"):
            mq.consumer("g", [])
        with pytest.raises(UsageError, match="longer than"):
            mq.consumer("g", {"t": "x" * 5000})
        await mq.admin().topics.create("t", 1)
        async with mq.consumer("g", "t"):
            with pytest.raises(UsageError, match="has a consumer"):
                await mq.consumer("g", "t").start()

    play(tmp_path, tell)


def test_no_name_server() -> None:
    async def run() -> None:
        async with roquet.connect("rmq://127.0.0.1:1") as mq, mq.producer() as producer:
            with pytest.raises(Unreachable, match="no name server answers"):
                await producer.send("t", b"x")

    asyncio.run(run())


def test_administration(tmp_path: Path) -> None:
    async def tell(_: Cluster, mq: roquet.MQ) -> None:
        admin = mq.admin()
        await admin.topics.create("t", 3)
        assert "t" in await admin.topics.names()
        assert len(await admin.topics.queues("t")) == 3
        assert set((await admin.brokers.cluster()).brokers) == {"broker-a"}
        await admin.groups.put("g")
        await admin.groups.delete("g", offsets=True)
        with pytest.raises(UsageError, match="no broker nobody"):
            await admin.topics.create("u", brokers=["nobody"])
        with pytest.raises(UsageError, match="illegal"):
            await admin.topics.create("bad topic")
        await admin.topics.delete("t")
        with pytest.raises(Refused) as caught:
            await admin.topics.route("t")
        assert caught.value.code == 17

    play(tmp_path, tell)


def test_the_blocking_client(tmp_path: Path) -> None:
    def work(address: str) -> list[bytes]:
        with roquet.sync.connect(address) as mq:
            mq.admin().topics.create("t", 1)
            with mq.producer() as producer:
                producer.send("t", b"0")
                future = producer.submit("t", b"1")
                producer.flush()
                assert future.result().queue_offset == 1
                with pytest.raises(UsageError):
                    producer.send("t", b"")
            found: list[bytes] = []
            with mq.consumer("g", "t", start="earliest", options=FAST) as consumer:
                for received in consumer:
                    with received.process():
                        found.append(received.body)
                    if len(found) == 2:
                        break
            with mq.pull_consumer("p") as puller:
                puller.assign(puller.queues("t"), start="earliest")
                found += [message.body for message in puller.poll()]
            return found

    async def tell(it: Cluster, _: roquet.MQ) -> None:
        found = await asyncio.to_thread(work, f"rmq://{it.name_servers}")
        assert found == [b"0", b"1", b"0", b"1"]

    play(tmp_path, tell)


def test_a_consumer_closes_while_its_queues_are_taken_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def tell(_: Cluster, mq: roquet.MQ) -> None:
        await mq.admin().topics.create("t", 16)
        tries = 0
        enough = asyncio.Event()

        async def pull(calls: BrokerCalls, asked: Pull) -> Pulled:
            nonlocal tries
            tries += 1
            if tries % 32 == 0:
                enough.set()
            raise KeyError(calls, asked)

        monkeypatch.setattr(BrokerCalls, "pull", pull)
        options = dataclasses.replace(FAST, pause_after_error_s=0.001)
        for _round in range(8):
            enough.clear()
            async with mq.consumer("g", "t", options=options):
                await enough.wait()

    play(tmp_path, tell)
