"""A running broker with timers of short steps, and what tests ask of it."""

from __future__ import annotations

import asyncio
import contextlib
import random
from typing import TYPE_CHECKING

from roquet.base.clock import SystemClock
from roquet.base.config import load
from roquet.broker.app import Broker, build
from roquet.broker.config import BrokerConfig, settled
from roquet.protocol import properties as props
from roquet.protocol.codes import RequestCode
from roquet.protocol.command import Command
from roquet.protocol.headers.message import (
    PullMessageRequest,
    RecallMessageRequest,
    SendMessageRequest,
)
from roquet.remoting.client import Client
from roquet.store.records import Record, read_records
from roquet.testing.cluster import BUSY_MACHINE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

STEP_MS = 100


class Desk:
    """A running broker and a client of it."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.address = f"127.0.0.1:{broker.listeners.port}"
        self.client = Client(clock=SystemClock())

    async def ask(self, code: int, ext: dict[str, str], body: bytes = b"") -> Command:
        return await self.client.call(self.address, Command(code, ext, body, language="JAVA"), 20.0)

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
            properties=props.write(more),
        )
        return await self.ask(10, header.encode(), body)

    async def pull(self, topic: str = "Orders") -> list[Record]:
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

    async def arrived(self, count: int) -> list[Record]:
        """Wait until so many messages are there."""
        found: list[Record] = []
        for _ in range(1000):
            found = await self.pull()
            if len(found) >= count:
                break
            await asyncio.sleep(0.03)
        assert len(found) == count
        return found

    async def recall(self, handle: str, topic: str = "Orders") -> Command:
        header = RecallMessageRequest(producer_group="p", topic=topic, recall_handle=handle)
        return await self.ask(RequestCode.RECALL_MESSAGE, header.encode())


@contextlib.asynccontextmanager
async def desk(folder: Path, **more: str) -> AsyncIterator[Desk]:
    given = {
        "brokerName": "broker-a",
        "storePathRootDir": str(folder),
        "listenPort": "0",
        "bindAddress": "127.0.0.1",
        "mappedFileSizeCommitLog": "1048576",
        "mappedFileSizeConsumeQueue": "20000",
        "mappedFileSizeTimerLog": "8192",
        "maxHashSlotNum": "500",
        "maxIndexNum": "2000",
        "timerPrecisionMs": str(STEP_MS),
        "recallMessageEnable": "true",
        **BUSY_MACHINE,
        **more,
    }
    config, report = load(BrokerConfig, given, {}, {})
    assert not report.unknown
    broker = build(settled(config, from_file=False), SystemClock(), random.Random(1))
    async with broker.app:
        running = Desk(broker)
        await running.client.start()
        try:
            yield running
        finally:
            await running.client.stop()
