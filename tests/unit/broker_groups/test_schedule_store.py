"""Delayed and sent-back messages through a real store, its restart, and a store that Java wrote."""

from __future__ import annotations

import asyncio
import dataclasses
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from remoting_harness import until
from roquet.acl.rights import EVERYBODY
from roquet.base.clock import SystemClock
from roquet.broker.messages.appender import Appender
from roquet.broker.messages.proof import ProvenMessages
from roquet.broker.messages.put_hooks import put_hooks
from roquet.broker.messages.schedule import DelayLevels, DelaySchedule
from roquet.broker.metrics.stats import BrokerStats
from roquet.broker.remoting.callers import Callers
from roquet.broker.remoting.send_back import SendBackAdapter
from roquet.broker.services.send_back import SendBacks
from roquet.broker.state import BrokerState, Identity
from roquet.protocol.codes import RequestCode
from roquet.protocol.command import Command
from roquet.protocol.headers.message import ConsumerSendMsgBackRequest
from roquet.remoting.router import Request
from roquet.store.records import Record, read_records
from roquet.store.results import Draft, GetStatus
from roquet.store.store import MessageStore
from roquet.store.tables.files import JsonFile
from roquet.store.tables.groups import GroupTable, GroupTableConfig
from roquet.store.tables.topics import TopicTable, TopicTableConfig
from roquet.testing.clock import FakeClock
from roquet.testing.peer import FakePeer

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

JAVA = Path(__file__).parents[2] / "vectors/store/clean"


@dataclasses.dataclass(frozen=True)
class Durability:
    sync_flush: bool = True
    sync_flush_timeout_ms: int = 5000


class Desk:
    """A store in a folder, its schedule, and the handler of send-backs; time moves by hand.

    The core stamps records by the machine's clock, so the story's clock begins there.
    """

    def __init__(self, folder: Path) -> None:
        self.clock = FakeClock(SystemClock().now_ms())
        self.levels = DelayLevels()
        self.store = MessageStore(
            {
                "storePathRootDir": str(folder),
                "mappedFileSizeCommitLog": 131_072,
                "mappedFileSizeConsumeQueue": 2_000,
                "maxHashSlotNum": 500,
                "maxIndexNum": 2_000,
                "flushDiskType": "SYNC_FLUSH",
            },
            Durability(),
        )
        state = BrokerState()
        self.appender = Appender(self.store, put_hooks(state, self.levels))
        config = folder / "config"
        self.schedule = DelaySchedule(
            self.levels,
            self.store,
            JsonFile(config / "delayOffset.json"),
            self.clock,
            traffic=BrokerStats("c", self.clock),
        )
        self.identity = Identity(
            cluster="c", name="b", broker_id=0, ip="127.0.0.2", ha_ip="", port=10911, ha_port=0
        )
        send_backs = SendBacks(
            self.appender,
            ProvenMessages(self.store, SystemClock()),
            TopicTable(
                JsonFile(config / "topics.json"),
                TopicTableConfig(cluster="c", broker_name="b"),
                self.clock,
            ),
            GroupTable(JsonFile(config / "subscriptionGroup.json"), GroupTableConfig(), self.clock),
            returns=BrokerStats("c", self.clock),
            identity=self.identity,
            state=state,
        )
        self.send_backs = SendBackAdapter(send_backs, Callers(EVERYBODY))

    async def __aenter__(self) -> Self:
        await self.store.start()
        await self.schedule.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.schedule.stop()
        await self.store.stop()

    async def send(self, body: bytes, **properties: str) -> int:
        result = await self.appender.append(
            Draft(
                topic="Orders",
                queue_id=1,
                body=body,
                properties=dict(properties),
                born_timestamp=1,
                born_host=self.identity.store_host,
                store_host=self.identity.store_host,
            )
        )
        assert result.status.is_stored, result
        return result.physical_offset

    async def after(self, seconds: float) -> None:
        """Let time pass and deliver, with the queues as far as the log before and after."""
        await self.clock.advance(seconds)
        for _ in range(2):
            await until(lambda: self.store.dispatch_behind() == 0)
            await self.schedule.deliver()
        await until(lambda: self.store.dispatch_behind() == 0)

    def read(self, topic: str, queue_id: int) -> list[Record]:
        found = self.store.get(topic, queue_id, 0, 32)
        return read_records(found.records) if found.status is GetStatus.FOUND else []

    async def send_back(self, offset: int, level: int) -> None:
        code = RequestCode.CONSUMER_SEND_MSG_BACK
        header = ConsumerSendMsgBackRequest(offset=offset, group="g", delay_level=level)
        request = Request(Command(code, header.encode()), FakePeer(), 0, lambda _: None)
        assert (await self.send_backs.send_back(request)).code == 0


def test_a_delayed_message_waits_arrives_and_is_not_delivered_again(tmp_path: Path) -> None:
    async def story() -> None:
        async with Desk(tmp_path) as desk:
            await desk.send(b"soon", DELAY="1", TAGS="t")
            await desk.send(b"later", DELAY="3", TAGS="t")
            await desk.send(b"now", TAGS="t")
            await desk.after(0.99)
            assert [record.body for record in desk.read("Orders", 1)] == [b"now"]
            await desk.after(4)
            now, soon = desk.read("Orders", 1)
            assert (now.body, soon.body) == (b"now", b"soon")
            (waiting,) = desk.read("SCHEDULE_TOPIC_XXXX", 0)
            assert soon.properties == waiting.properties
            # Stored with the delay's traces, and yet its own tag is what a consumer filters by.
            units = desk.store.units("Orders", 1, 0, 2)
            assert units[0][2] == units[1][2]
        async with Desk(tmp_path) as desk:
            assert [p.offset for p in desk.schedule.progress()[:3]] == [1, 0, 0]
            await desk.after(30)
            bodies = [record.body for record in desk.read("Orders", 1)]
            assert bodies == [b"now", b"soon", b"later"]

    asyncio.run(story())


def test_after_a_crash_a_message_may_come_twice_but_comes(tmp_path: Path) -> None:
    async def story() -> None:
        async with Desk(tmp_path / "before") as desk:
            await desk.send(b"delayed", DELAY="1")
            await desk.after(5)
            await desk.store.flush()
            await asyncio.to_thread(shutil.copytree, tmp_path / "before", tmp_path / "after")
        async with Desk(tmp_path / "after") as desk:
            assert desk.schedule.progress()[0].offset == 0
            await desk.after(5)
            assert [record.body for record in desk.read("Orders", 1)] == [b"delayed", b"delayed"]

    asyncio.run(story())


def test_a_message_sent_back_comes_through_the_retry_topic_and_ends_as_a_dead_letter(
    tmp_path: Path,
) -> None:
    async def story() -> None:
        async with Desk(tmp_path) as desk:
            await desk.send_back(await desk.send(b"hard to swallow", TAGS="t"), 1)
            await desk.after(0.99)
            assert desk.read("%RETRY%g", 0) == []
            await desk.after(5)
            (again,) = desk.read("%RETRY%g", 0)
            assert (again.body, again.reconsume_times) == (b"hard to swallow", 1)
            await desk.send_back(again.physical_offset, -1)
            await desk.after(0)
            (letter,) = desk.read("%DLQ%g", 0)
            assert (letter.body, letter.reconsume_times) == (b"hard to swallow", 2)
            assert len(desk.read("%RETRY%g", 0)) == 1

    asyncio.run(story())


def test_a_store_that_java_wrote_goes_on_where_java_stopped(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    shutil.copytree(JAVA, folder)
    (folder / "abort.bak").unlink(missing_ok=True)

    async def story() -> None:
        async with Desk(folder) as desk:
            assert [p.offset for p in desk.schedule.progress()[:4]] == [1, 0, 1, 0]
            await desk.after(100_000)
            assert len(desk.read("GoldenDelay", 3)) == 1
            assert len(desk.read("%RETRY%golden_consumers", 0)) == 1
            await desk.send(b"after Java", DELAY="1")
            await desk.after(5)
            assert [record.body for record in desk.read("Orders", 1)] == [b"after Java"]

    asyncio.run(story())
    text = (folder / "config/delayOffset.json").read_text()
    assert "\t\t1:2,\n\t\t3:1\n" in text
