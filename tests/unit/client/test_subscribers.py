"""Functions that handle messages, and what a client tells the application by itself."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import TYPE_CHECKING

import pytest

import roquet
from broker_harness import play
from roquet.base.errors import Refused, RoquetError, UsageError
from roquet.client import ConsumerOptions, TransactionState
from roquet.testing.cluster import cluster, running_broker, running_name_server

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from pathlib import Path

    from roquet.client import StoredMessage
    from roquet.model.queue import MessageQueue
    from roquet.testing.cluster import Cluster

FAST = ConsumerOptions(rebalance_every_s=0.5, commit_every_s=0.2, handover_s=0.0)
PATIENT = ConsumerOptions(rebalance_every_s=0.5, commit_every_s=0.2, handover_s=2.0)
"""Leaves other members the time that they need to commit, on a busy machine too."""


def told(
    folder: Path, story: Callable[[roquet.MQ, Cluster], Awaitable[None]], **changes: str
) -> None:
    async def tell(it: Cluster) -> None:
        async with roquet.connect(f"rmq://{it.name_servers}") as mq, asyncio.timeout(50):
            await mq.admin().topics.create("orders", 4)
            await story(mq, it)

    play(folder, tell, **changes)


def test_subscribers_handle_messages_one_by_one_and_in_batches(tmp_path: Path) -> None:
    async def story(mq: roquet.MQ, _: Cluster) -> None:
        each: list[bytes] = []
        batches: list[list[bytes]] = []

        @mq.subscriber("orders", group="each", start="earliest", options=FAST)
        async def handle(received: roquet.Received) -> None:
            each.append(received.body)
            ended()

        @mq.batch_subscriber(
            {"orders": "*"}, group="many", size=8, linger_s=0.3, start="earliest", options=FAST
        )
        async def handle_many(batch: Sequence[roquet.Received]) -> None:
            batches.append([received.body for received in batch])
            ended()

        def ended() -> None:
            if len(each) == 20 and sum(map(len, batches)) == 20:
                mq.stop_consumers()

        async with mq.producer() as producer:
            for number in range(20):
                await producer.send("orders", b"%d" % number)
        await mq.serve()
        assert sorted(each) == sorted(body for batch in batches for body in batch)
        assert all(len(batch) <= 8 for batch in batches)
        assert handle.__name__ == "handle"
        assert handle_many.__name__ == "handle_many"

    told(tmp_path, story)


def test_what_ends_one_subscriber_ends_all_and_is_raised(tmp_path: Path) -> None:
    async def story(mq: roquet.MQ, _: Cluster) -> None:
        with pytest.raises(UsageError, match="no subscriber"):
            await mq.serve()
        with pytest.raises(UsageError):
            mq.subscriber("bad topic", group="g")(nothing)
        mq.subscriber("orders", group="g")(nothing)
        mq.subscriber("no-such-topic", group="g2")(nothing)
        with pytest.raises(Refused, match="no-such-topic"):
            await mq.serve()

    async def nothing(_: roquet.Received) -> None:
        raise AssertionError("there is no message")

    told(tmp_path, story, autoCreateTopicEnable="false")


def test_a_decorated_check_is_asked_about_transactions(tmp_path: Path) -> None:
    async def story(mq: roquet.MQ, _: Cluster) -> None:
        with pytest.raises(UsageError, match="transaction_checker"):
            mq.transaction_producer("till")

        @mq.transaction_checker("till")
        async def paid(message: StoredMessage) -> TransactionState:
            assert message.body == b"open"
            return TransactionState.COMMIT

        assert paid.__name__ == "paid"
        async with mq.transaction_producer("till") as producer:
            (await producer.begin("orders", b"open")).leave_open()
            async with mq.consumer("g", "orders", start="earliest", options=FAST) as consumer:
                received = await consumer.receive(30)
                assert received is not None
                assert received.body == b"open"

    told(tmp_path, story, transactionTimeOut="200", transactionCheckInterval="200")


def test_members_hear_which_queues_come_and_go(tmp_path: Path) -> None:
    async def story(mq: roquet.MQ, it: Cluster) -> None:
        heard: list[tuple[str, frozenset[MessageQueue]]] = []

        async def revoked(queues: frozenset[MessageQueue]) -> None:
            for received in tuple(in_hand):
                if received.queue in queues:
                    received.ack()
                    in_hand.remove(received)
            heard.append(("revoked", queues))

        def assigned(queues: frozenset[MessageQueue]) -> None:
            heard.append(("assigned", queues))
            raise ValueError("as planned: it has to go on")

        in_hand: list[roquet.Received] = []
        options = ConsumerOptions(
            rebalance_every_s=0.2, handover_s=0.5, on_assigned=assigned, on_revoked=revoked
        )
        async with mq.producer() as producer:
            for number in range(40):
                await producer.send("orders", b"%d" % number)
        first = mq.consumer("g", "orders", start="earliest", options=options)
        await first.start()
        while len(in_hand) < 40:
            in_hand += await first.receive_many(40)
        name, queues = heard[0]
        assert name == "assigned"
        assert {queue for queue in queues if queue.topic == "orders"} == {
            queue for queue in first.assigned if queue.topic == "orders"
        }
        async with (
            roquet.connect(f"rmq://{it.name_servers}") as other,
            other.consumer("g", "orders", start="earliest", options=PATIENT) as second,
        ):
            while not second.assigned:  # noqa: ASYNC110  (what is waited for has no event)
                await asyncio.sleep(0.05)
            # What was acknowledged while queues went is committed: the other gets none of it.
            assert await second.receive(1.0) is None
            lost = next(queues for name, queues in heard if name == "revoked")
            assert lost
            assert lost.isdisjoint(first.assigned)
        owned = first.assigned
        await first.close()
        assert heard[-1] == ("revoked", owned)
        async with mq.consumer("g", "orders", start="earliest", options=FAST) as third:
            assert await third.receive(1.0) is None

    told(tmp_path, story)


def test_lost_connections_and_refused_heartbeats_are_told(tmp_path: Path) -> None:
    lost: list[str] = []
    errors: list[RoquetError] = []

    def on_error(error: RoquetError) -> None:
        errors.append(error)
        raise ValueError("as planned: it has to go on")

    async def tell() -> None:
        (tmp_path / "plain_acl.yml").write_text(
            "accounts:\n- accessKey: clerk-one\n  secretKey: '12345678'\n  admin: false\n"
            "  defaultTopicPerm: PUB\n  defaultGroupPerm: DENY\n"
        )
        accounts = {
            "aclEnable": "true",
            "rocketmqHome": str(tmp_path),
            "rocketmq.acl.plain.file": "plain_acl.yml",
        }
        async with running_name_server(tmp_path / "n") as name_server:
            port = f"127.0.0.1:{name_server.server.port}"
            async with roquet.connect(
                f"rmq://{port}", on_error=on_error, on_disconnect=lost.append
            ) as mq:
                async with running_broker(tmp_path / "b", port, changes=accounts) as broker:
                    address = broker.identity.address
                    async with mq.consumer("g", "TBW102"):
                        for _ in range(1500):
                            if errors:
                                break
                            await asyncio.sleep(0.02)
                for _ in range(1500):
                    if address in lost:
                        break
                    await asyncio.sleep(0.02)
                assert address in lost
            assert port not in lost  # that end was ours

    asyncio.run(tell())
    assert errors


def test_draining_a_client_ends_all_of_it(tmp_path: Path) -> None:
    async def tell() -> None:
        async with cluster(tmp_path) as it:
            url = f"rmq://{it.name_servers}"
            mq = roquet.connect(url)
            await mq.start()
            await mq.admin().topics.create("orders", 1)
            producer = mq.producer()
            await producer.start()
            consumer = mq.consumer("g", "orders", start="earliest", options=FAST)
            await consumer.start()
            await producer.send("orders", b"1")
            received = await consumer.receive(20)
            assert received is not None
            future = await producer.submit("orders", b"2")
            draining = asyncio.create_task(mq.drain(20))
            await asyncio.sleep(0.1)
            assert not draining.done()
            received.ack()
            assert await draining
            assert future.result().is_durable
            async with (
                roquet.connect(url) as other,
                other.consumer("g", "orders", start="earliest", options=FAST) as rest,
            ):
                found = await rest.receive(20)
                assert found is not None
                assert found.body == b"2"

    asyncio.run(tell())


def test_the_blocking_client_has_subscribers_on_threads(tmp_path: Path) -> None:
    def block(address: str) -> None:
        found: list[bytes] = []
        batches: list[bytes] = []
        threads: set[str] = set()
        with roquet.sync.connect(f"rmq://{address}") as mq, mq.producer() as producer:

            @mq.subscriber("orders", group="each", concurrency=2, start="earliest", options=FAST)
            def handle(received: roquet.sync.Received) -> None:
                threads.add(threading.current_thread().name)
                time.sleep(0.01)
                producer.send("done", received.body)
                found.append(received.body)
                ended()

            @mq.batch_subscriber("orders", group="many", start="earliest", options=FAST)
            def handle_many(batch: Sequence[roquet.sync.Received]) -> None:
                batches.extend(received.body for received in batch)
                ended()

            @mq.transaction_checker("till")
            def check(_: StoredMessage) -> TransactionState:
                return TransactionState.COMMIT

            assert (handle.__name__, handle_many.__name__) == ("handle", "handle_many")
            assert check.__name__ == "check"

            def ended() -> None:
                if len(found) == len(batches) == 20:
                    mq.stop_consumers()

            mq.transaction_producer("till").close()
            for number in range(20):
                producer.send("orders", b"%d" % number)
            mq.serve()
            assert mq.drain()
        mq.close()
        assert sorted(found) == sorted(batches)
        assert 1 <= len(threads) <= 2

    async def story(_: roquet.MQ, it: Cluster) -> None:
        await asyncio.to_thread(block, it.name_servers)

    told(tmp_path, story)
