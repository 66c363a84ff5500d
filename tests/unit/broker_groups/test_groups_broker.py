"""The whole broker over sockets: consumers that meet, and a message that nobody can swallow."""

from __future__ import annotations

import asyncio
import contextlib
import random
from typing import TYPE_CHECKING

from remoting_harness import until
from roquet.base.clock import SystemClock
from roquet.base.config import load
from roquet.broker.app import Broker, build
from roquet.broker.config import BrokerConfig, settled
from roquet.model.queue import MessageQueue
from roquet.model.subscription import SubscriptionData
from roquet.model.topic import TopicConfig
from roquet.protocol import properties as props
from roquet.protocol.bodies.clients import ConsumerData, HeartbeatData, decode_consumer_ids
from roquet.protocol.bodies.locks import LockRequest, decode_locked
from roquet.protocol.codes import RequestCode
from roquet.protocol.command import Command
from roquet.protocol.headers.message import (
    ConsumerSendMsgBackRequest,
    PullMessageRequest,
    SendMessageRequest,
)
from roquet.remoting.client import Client
from roquet.remoting.router import Request, Route
from roquet.store.records import Record, read_records
from roquet.testing.clock import FakeClock
from roquet.testing.cluster import BUSY_MACHINE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path


class Desk:
    """A running broker whose time the test moves, and a client of it."""

    def __init__(self, broker: Broker, clock: FakeClock) -> None:
        self.broker = broker
        self.clock = clock
        self.told: list[str] = []
        self.address = f"127.0.0.1:{broker.listeners.port}"
        code = RequestCode.NOTIFY_CONSUMER_IDS_CHANGED
        self.client = Client(clock=SystemClock(), handlers=[Route((code,), self._hear, "notices")])

    def _hear(self, request: Request) -> None:
        self.told.append((request.command.ext or {})["consumerGroup"])

    async def ask(self, code: int, ext: dict[str, str], body: bytes = b"") -> Command:
        return await self.client.call(self.address, Command(code, ext, body, language="JAVA"))

    async def beat(self, client: Client, client_id: str) -> None:
        wanted = (SubscriptionData(topic="Orders", version=1),)
        data = HeartbeatData(
            client_id=client_id, consumers=(ConsumerData(group="g", subscriptions=wanted),)
        )
        assert (await client.call(self.address, Command(34, {}, data.encode()))).code == 0

    async def send(self, body: bytes, topic: str = "Orders", **more: str) -> Command:
        header = SendMessageRequest(
            producer_group="p",
            topic=topic,
            default_topic="TBW102",
            default_topic_queue_nums=1,
            queue_id=0,
            sys_flag=0,
            born_timestamp=1,
            flag=0,
            reconsume_times=int(more.pop("reconsume_times", "0")),
            properties=props.write(more),
        )
        return await self.ask(10, header.encode(), body)

    async def pull(self, topic: str) -> list[Record]:
        header = PullMessageRequest(
            consumer_group="g",
            topic=topic,
            queue_id=0,
            queue_offset=0,
            max_msg_nums=32,
            sys_flag=4,
            commit_offset=0,
            suspend_timeout_millis=0,
            subscription="*",
            sub_version=1,
        )
        answer = await self.ask(11, header.encode())
        return read_records(answer.body) if answer.code == 0 else []

    async def send_back(self, record: Record, **more: int) -> Command:
        header = ConsumerSendMsgBackRequest(
            offset=record.physical_offset,
            group="g",
            delay_level=more.get("level", 0),
            max_reconsume_times=more.get("most"),
        )
        return await self.ask(36, header.encode())

    async def after(self, seconds: float) -> None:
        """Let time pass; the queues are as far as the log before and after."""
        for pause in (seconds, 0.2):
            await until(lambda: self.broker.store.dispatch_behind() == 0)
            await self.clock.advance(pause)
        await until(lambda: self.broker.store.dispatch_behind() == 0)


@contextlib.asynccontextmanager
async def desk(folder: Path) -> AsyncIterator[Desk]:
    given = {
        "brokerName": "broker-a",
        "storePathRootDir": str(folder),
        "listenPort": "0",
        "bindAddress": "127.0.0.1",
        "mappedFileSizeCommitLog": "1048576",
        "mappedFileSizeConsumeQueue": "20000",
        "maxHashSlotNum": "500",
        "maxIndexNum": "2000",
        **BUSY_MACHINE,
    }
    config, report = load(BrokerConfig, given, {}, {})
    assert not report.unknown
    clock = FakeClock(SystemClock().now_ms())
    broker = build(settled(config, from_file=False), clock, random.Random(1))
    async with broker.app:
        running = Desk(broker, clock)
        await running.client.start()
        try:
            yield running
        finally:
            await running.client.stop()


def test_a_consumer_is_told_of_a_second_and_of_its_leaving(tmp_path: Path) -> None:
    async def story() -> None:
        async with desk(tmp_path) as running:
            await running.beat(running.client, "one")
            await until(lambda: running.told == ["g"])
            second = Client(clock=SystemClock())
            await second.start()
            await running.beat(second, "two")
            await until(lambda: running.told == ["g", "g"])
            ids = await running.ask(38, {"consumerGroup": "g"})
            assert decode_consumer_ids(ids.body) == ["one", "two"]
            queue = MessageQueue("Orders", "broker-a", 0)
            running.broker.metadata.topics.put(TopicConfig(name="Orders"))
            held = LockRequest(client_id="one", group="g", queues=frozenset({queue}))
            assert decode_locked((await running.ask(41, {}, held.encode())).body) == {queue}
            await second.stop()
            await until(lambda: running.told == ["g", "g", "g"])

    asyncio.run(story())


def test_a_delayed_send_arrives_in_its_time(tmp_path: Path) -> None:
    async def story() -> None:
        async with desk(tmp_path) as running:
            assert (await running.send(b"soon", DELAY="1", TAGS="t")).code == 0
            await running.after(0.7)
            assert await running.pull("Orders") == []
            await running.after(5)
            (record,) = await running.pull("Orders")
            assert record.body == b"soon"
            refused = await running.send(b"when?", DELAY="tomorrow")
            assert refused.code == 1
            assert "DELAY" in (refused.remark or "")

    asyncio.run(story())


def test_a_message_is_tried_again_later_and_in_the_end_put_aside(tmp_path: Path) -> None:
    async def story() -> None:
        async with desk(tmp_path) as running:
            await running.beat(running.client, "one")
            await running.send(b"hard to swallow", TAGS="t")
            await running.after(0)
            (first,) = await running.pull("Orders")
            assert (await running.send_back(first, most=1)).code == 0
            await running.after(9)
            assert await running.pull("%RETRY%g") == []
            await running.after(6)
            (again,) = await running.pull("%RETRY%g")
            assert (again.body, again.reconsume_times) == (b"hard to swallow", 1)
            assert props.read(again.properties)["RETRY_TOPIC"] == "Orders"
            assert (await running.send_back(again, most=1)).code == 0
            await running.after(0)
            (letter,) = await running.pull("%DLQ%g")
            assert (letter.body, letter.reconsume_times) == (b"hard to swallow", 2)
            lost = await running.send_back(letter._replace(physical_offset=10**9))
            assert lost.code == 1
            assert lost.remark == "look message by offset failed, 1000000000"

    asyncio.run(story())


def test_an_orderly_group_that_gives_up_finds_its_message_among_the_dead_letters(
    tmp_path: Path,
) -> None:
    async def story() -> None:
        async with desk(tmp_path) as running:
            await running.beat(running.client, "one")
            queue = MessageQueue("Orders", "broker-a", 0)
            running.broker.metadata.topics.put(TopicConfig(name="Orders"))
            held = LockRequest(client_id="one", group="g", queues=frozenset({queue}))
            await running.ask(41, {}, held.encode())
            answer = await running.send(b"in order", "%RETRY%g", reconsume_times="1", DELAY="3")
            assert answer.code == 0
            await running.after(0)
            (letter,) = await running.pull("%DLQ%g")
            assert letter.body == b"in order"

    asyncio.run(story())
