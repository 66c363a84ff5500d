"""Messages that a consumer sends back: when they come again, and when they are put aside."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from roquet.acl.accounts import Perm
from roquet.acl.needs import topic
from roquet.acl.rights import EVERYBODY
from roquet.base.errors import Refused
from roquet.base.overriding import override
from roquet.broker.api.caller import Caller
from roquet.broker.api.refusal import Refusal
from roquet.broker.api.send import SendBackRequest
from roquet.broker.messages.appender import Appender
from roquet.broker.messages.proof import ProvenMessages
from roquet.broker.messages.put_hooks import put_hooks
from roquet.broker.messages.schedule import DelayLevels, DelaySchedule
from roquet.broker.metrics.stats import BrokerStats
from roquet.broker.remoting.callers import Callers
from roquet.broker.remoting.refusals import CODES
from roquet.broker.remoting.send_back import SendBackAdapter
from roquet.broker.services.access import Access
from roquet.broker.services.send_back import Returns, SendBacks, place, require_readable
from roquet.broker.state import BrokerState, Identity
from roquet.model.group import SubscriptionGroupConfig
from roquet.model.topic import TOPIC_SYS_FLAG_UNIT_SUB, TopicConfig
from roquet.protocol import names
from roquet.protocol import properties as props
from roquet.protocol.codes import RequestCode
from roquet.protocol.command import Command
from roquet.protocol.headers.message import ConsumerSendMsgBackRequest
from roquet.remoting.router import Request
from roquet.store.results import Draft, PutStatus
from roquet.store.tables.files import JsonFile
from roquet.store.tables.groups import GroupTable, GroupTableConfig
from roquet.store.tables.topics import TopicTable, TopicTableConfig
from roquet.testing.clock import FakeClock
from roquet.testing.memory_store import FakeStore
from roquet.testing.peer import FakePeer

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from roquet.acl.needs import Need
    from roquet.store.records import Record

PRODUCER = bytes((10, 0, 0, 7, 0, 0, 0x9C, 0x40))


class Desk:
    """The handler over real tables, a store in memory and the schedule."""

    def __init__(
        self,
        folder: Path,
        group_rules: GroupTableConfig | None = None,
        *,
        returns: Returns | None = None,
        access: Access | None = None,
    ) -> None:
        self.clock = FakeClock()
        levels = DelayLevels()
        self.store = FakeStore(self.clock, levels)
        self.state = BrokerState()
        self.identity = Identity(
            cluster="c", name="b", broker_id=0, ip="127.0.0.2", ha_ip="", port=10911, ha_port=0
        )
        self.groups = GroupTable(
            JsonFile(folder / "subscriptionGroup.json"),
            group_rules or GroupTableConfig(),
            self.clock,
        )
        self.topics = TopicTable(
            JsonFile(folder / "topics.json"),
            TopicTableConfig(cluster="c", broker_name="b"),
            self.clock,
        )
        self.stats = BrokerStats("c", self.clock)
        self.schedule = DelaySchedule(
            levels,
            self.store,
            JsonFile(folder / "delayOffset.json"),
            self.clock,
            traffic=self.stats,
        )
        send_backs = SendBacks(
            Appender(self.store, put_hooks(self.state, levels)),
            ProvenMessages(self.store, self.clock),
            self.topics,
            self.groups,
            returns=returns or self.stats,
            identity=self.identity,
            state=self.state,
            access=access,
        )
        self.handler = SendBackAdapter(send_backs, Callers(EVERYBODY))

    async def sent(self, **properties: str) -> int:
        """Store a message; return its offset in the log."""
        result = await self.store.put(
            Draft(
                topic="Orders",
                queue_id=2,
                body=b"compressed or not",
                properties={"UNIQ_KEY": "u", "TAGS": "t", "WAIT": "true", **properties},
                flag=9,
                sys_flag=1,
                born_timestamp=55,
                born_host=PRODUCER,
                store_host=self.identity.store_host,
            )
        )
        return result.physical_offset

    async def send_back(self, offset: int, level: int = 0, version: int = 513, **more: Any) -> int:
        header = ConsumerSendMsgBackRequest(
            offset=offset, group=more.pop("group", "g"), delay_level=level, **more
        )
        code = RequestCode.CONSUMER_SEND_MSG_BACK
        command = Command(code, header.encode(), language="JAVA", version=version)
        (route,) = self.handler.routes()
        assert (route.codes, route.lane) == ((code,), "send")
        answer = await self.handler.send_back(
            Request(command, FakePeer(), self.clock.now_ms(), lambda _: None)
        )
        return answer.code

    async def retried(self, seconds: float) -> list[Record]:
        """Let time pass; return what has come to the retry topic."""
        await self.clock.advance(seconds)
        await self.schedule.deliver()
        return self.store.of("%RETRY%g")


def _request(level: int = 0, most: int | None = None) -> SendBackRequest:
    return SendBackRequest(physical_offset=0, group="g", delay_level=level, attempts_max=most)


@pytest.mark.parametrize(
    ("request_", "tries", "version", "topic", "level"),
    [
        (_request(), 0, 513, "%RETRY%g", 3),
        (_request(), 15, 513, "%RETRY%g", 18),
        (_request(), 16, 513, "%DLQ%g", 0),
        (_request(5), 15, 513, "%RETRY%g", 5),
        (_request(5), 16, 513, "%DLQ%g", 0),
        (_request(-1), 0, 513, "%DLQ%g", 0),
        (_request(most=2), 1, 121, "%RETRY%g", 4),
        (_request(most=2), 2, 121, "%DLQ%g", 0),
        (_request(most=2), 2, 120, "%RETRY%g", 5),
        (_request(most=20), 19, 121, "%RETRY%g", 22),
    ],
)
def test_another_try_or_the_dead_letters(
    request_: SendBackRequest, tries: int, version: int, topic: str, level: int
) -> None:
    where = place(request_, SubscriptionGroupConfig(name="g"), tries, version)
    assert (where.topic, where.delay_level) == (topic, level)


def test_a_group_without_tries_puts_everything_aside_at_once() -> None:
    group = SubscriptionGroupConfig(name="g", retry_max_times=0)
    assert place(_request(most=16), group, 0, 513).topic == "%DLQ%g"


def test_a_message_comes_again_after_ten_seconds_with_all_it_had(tmp_path: Path) -> None:
    async def story() -> None:
        desk = Desk(tmp_path)
        await desk.schedule.start()
        await desk.sent()
        offset = await desk.sent()
        assert await desk.send_back(offset) == 0
        assert desk.store.waits[-1] is True
        assert await desk.retried(9.999) == []
        (again,) = await desk.retried(0.001)
        first = desk.store.log[1]
        assert again.reconsume_times == 1
        for same in ("body", "flag", "sys_flag", "born_timestamp", "born_host"):
            assert getattr(again, same) == getattr(first, same), same
        assert again.store_host == desk.identity.store_host
        assert props.read(again.properties) == {
            "UNIQ_KEY": "u",
            "TAGS": "t",
            "WAIT": "false",
            "RETRY_TOPIC": "Orders",
            "ORIGIN_MESSAGE_ID": "7F00000200002A9F0000000000000064",
            "DELAY": "3",
            "REAL_TOPIC": "%RETRY%g",
            "REAL_QID": "0",
        }
        topic = desk.topics.get("%RETRY%g")
        assert topic is not None
        assert (topic.read_queues, topic.write_queues, topic.perm) == (1, 1, 6)
        assert "%RETRY%g" in (tmp_path / "topics.json").read_text()

    asyncio.run(story())


def test_a_second_try_waits_longer_and_keeps_the_first_origin(tmp_path: Path) -> None:
    async def story() -> None:
        desk = Desk(tmp_path)
        await desk.schedule.start()
        await desk.send_back(await desk.sent())
        (again,) = await desk.retried(10)
        await desk.send_back(again.physical_offset, origin_topic="%RETRY%g")
        assert len(await desk.retried(29.999)) == 1
        third = (await desk.retried(0.001))[1]
        assert third.reconsume_times == 2
        kept = props.read(third.properties)
        assert kept["RETRY_TOPIC"] == "Orders"
        assert kept["ORIGIN_MESSAGE_ID"] == "7F00000200002A9F0000000000000000"
        assert kept["DELAY"] == "4"

    asyncio.run(story())


def test_after_the_last_try_a_message_is_a_dead_letter_at_once(tmp_path: Path) -> None:
    async def story() -> None:
        desk = Desk(tmp_path)
        await desk.schedule.start()
        offset = await desk.sent(TIMER_DELAY_SEC="3")
        desk.store.log[0] = desk.store.log[0]._replace(reconsume_times=16)
        assert await desk.send_back(offset) == 0
        (letter,) = desk.store.of("%DLQ%g")
        assert (letter.queue_id, letter.reconsume_times) == (0, 17)
        kept = props.read(letter.properties)
        assert kept["DELAY"] == "0"
        assert kept["RETRY_TOPIC"] == "Orders"
        assert "TIMER_DELAY_SEC" not in kept
        topic = desk.topics.get("%DLQ%g")
        assert topic is not None
        assert (topic.read_queues, topic.write_queues, topic.perm) == (1, 1, 6)
        for name, key in (
            ("SNDBCK_PUT_NUMS", "Orders@g"),
            ("SNDBCK2DLQ_TIMES", "Orders@g"),
            ("DLQ_PUT_NUMS", "%DLQ%g"),
        ):
            view = desk.stats.find(name, key)
            assert view is not None, name
            assert view.total == 1

    asyncio.run(story())


def test_the_queues_of_the_retry_topic_take_turns(tmp_path: Path) -> None:
    async def story() -> None:
        desk = Desk(tmp_path)
        await desk.schedule.start()
        desk.groups.put(SubscriptionGroupConfig(name="g", retry_queues=3))
        offset = await desk.sent()
        for _ in range(6):
            await desk.send_back(offset, 1)
        assert sorted(record.queue_id for record in await desk.retried(1)) == [0, 0, 1, 1, 2, 2]

    asyncio.run(story())


def test_a_group_without_retry_queues_drops_what_comes_back(tmp_path: Path) -> None:
    async def story() -> None:
        desk = Desk(tmp_path)
        desk.groups.put(SubscriptionGroupConfig(name="g", retry_queues=0))
        assert await desk.send_back(await desk.sent()) == 0
        assert len(desk.store.log) == 1
        assert desk.topics.get("%RETRY%g") is None

    asyncio.run(story())


def test_refusals_have_these_codes_and_words_and_store_nothing(tmp_path: Path) -> None:
    async def refusal(desk: Desk, **more: Any) -> tuple[int, str]:
        stored = len(desk.store.log)
        with pytest.raises(Refusal) as refused:
            await desk.send_back(**{"offset": 0, **more})
        assert len(desk.store.log) == stored
        return CODES[refused.value.reason], refused.value.text

    async def story() -> None:
        desk = Desk(tmp_path, GroupTableConfig(auto_create=False))
        await desk.sent()
        code, remark = await refusal(desk)
        assert (code, remark.split("\n")[0]) == (26, "subscription group not exist, g ")
        desk.groups.put(SubscriptionGroupConfig(name="g"))
        for offset in (-1, 50, 100, 2**63 - 1):
            expected = (1, f"look message by offset failed, {offset}")
            assert await refusal(desk, offset=offset) == expected
        desk.topics.put(TopicConfig(name="%DLQ%g", perm=4))
        assert await refusal(desk, level=-1) == (
            16,
            "the topic[%DLQ%g] sending message is forbidden",
        )
        desk.store.statuses = [PutStatus.SERVICE_NOT_AVAILABLE, PutStatus.FLUSH_DISK_TIMEOUT]
        assert await refusal(desk) == (1, "SERVICE_NOT_AVAILABLE")
        with pytest.raises(Refusal, match="FLUSH_DISK_TIMEOUT"):
            await desk.send_back(0)
        desk.state.permission = 4
        assert await refusal(desk) == (16, "the broker[127.0.0.2] sending message is forbidden")
        desk.identity.broker_id = 1
        assert await refusal(desk) == (1, "no master available along with ip 127.0.0.2")

    asyncio.run(story())


def test_bad_numbers_are_no_message(tmp_path: Path) -> None:
    async def story() -> None:
        desk = Desk(tmp_path)
        offset = await desk.sent()
        with pytest.raises(Refusal):
            await desk.send_back(offset, group="../../etc")
        assert await desk.send_back(offset, 2**31 - 1) == 0
        waiting = desk.store.log[-1]
        assert (waiting.queue_id, props.read(waiting.properties)["DELAY"]) == (17, "18")

    asyncio.run(story())
    assert list(tmp_path.glob("**/etc")) == []


class Noted(Returns):
    """Notes what comes back."""

    def __init__(self) -> None:
        self.told: list[tuple[object, ...]] = []

    @override
    def sent_back(self, group: str, topic: str, *, dead: bool) -> None:
        self.told.append((group, topic, dead))

    @override
    def moved(self, topic: str, size: int) -> None:
        assert size > 0
        self.told.append((topic,))


def test_what_waits_and_what_is_dead_is_counted(tmp_path: Path) -> None:
    async def run() -> None:
        noted = Noted()
        desk = Desk(tmp_path, returns=noted)
        assert await desk.send_back(await desk.sent()) == 0
        assert await desk.send_back(await desk.sent(RETRY_TOPIC="First"), 3) == 0
        assert await desk.send_back(await desk.sent(), -1) == 0
        waits = (names.SCHEDULE_TOPIC,)
        assert noted.told == [
            waits,
            ("g", "Orders", False),
            waits,
            ("g", "First", False),
            ("g", "Orders", True),
        ]

    asyncio.run(run())


@pytest.mark.parametrize(("wanted", "there", "used"), [(4, 4, 4), (4, 2, 2), (2, 4, 2), (1, 4, 1)])
def test_messages_come_back_to_one_queue_after_another(
    tmp_path: Path, wanted: int, there: int, used: int
) -> None:
    async def run() -> None:
        desk = Desk(tmp_path)
        await desk.schedule.start()
        desk.groups.put(SubscriptionGroupConfig(name="g", retry_queues=wanted))
        desk.topics.put(TopicConfig(name="%RETRY%g", read_queues=there, write_queues=there))
        for _ in range(8):
            assert await desk.send_back(await desk.sent(), 1) == 0
        found = [record.queue_id for record in await desk.retried(2)]
        assert sorted(found) == sorted(list(range(used)) * (8 // used))

    asyncio.run(run())


@pytest.mark.parametrize("is_unit", [False, True])
def test_retry_topic_that_is_made_is_of_the_unit_of_its_consumer(
    tmp_path: Path, *, is_unit: bool
) -> None:
    async def run() -> None:
        desk = Desk(tmp_path)
        assert await desk.send_back(await desk.sent(), 1, unit_mode=is_unit) == 0
        made = desk.topics.get("%RETRY%g")
        assert made is not None
        assert made.sys_flag == (TOPIC_SYS_FLAG_UNIT_SUB if is_unit else 0)
        assert desk.topics.is_durable("%RETRY%g")

    asyncio.run(run())


def test_account_has_to_be_able_to_read_what_it_sends_back(tmp_path: Path) -> None:
    def require(caller: Caller, needs: Sequence[Need]) -> None:
        asked.append((caller.address, *needs))
        raise Refused(1, "no permission")

    asked: list[tuple[object, ...]] = []
    rights = cast("Any", SimpleNamespace(require=require))

    async def run() -> None:
        desk = Desk(tmp_path, access=Access(rights))
        with pytest.raises(Refusal, match="no permission"):
            await desk.send_back(await desk.sent())
        assert asked == [(FakePeer().address, topic("Orders", Perm.SUB | Perm.GET))]
        assert desk.topics.get("%RETRY%g") is None

    asyncio.run(run())


@pytest.mark.parametrize(
    ("topic_", "more", "needed"),
    [
        ("%RETRY%g_Orders", {"ORIGIN_GROUP": "g"}, ["Orders"]),
        ("%RETRY%g+Orders", {"ORIGIN_GROUP": "g"}, ["Orders"]),
        ("%RETRY%g_Orders", {"ORIGIN_GROUP": "other"}, ["%RETRY%g_Orders"]),
        ("%RETRY%g", {}, ["%RETRY%g"]),
        ("%RETRY%other_Orders", {}, ["%RETRY%other_Orders"]),
        (
            "%RETRY%g_Orders",
            {
                "ORIGIN_GROUP": "g",
                "INNER_MULTI_DISPATCH": "%LMQ%a",
                "LMQ_ORIGIN_TOPIC": "Lights",
            },
            ["%RETRY%g_Orders", "Lights"],
        ),
    ],
)
def test_message_that_was_popped_needs_the_right_on_the_topic_that_it_came_from(
    tmp_path: Path, topic_: str, more: dict[str, str], needed: list[str]
) -> None:
    asked: list[Need] = []
    rights = SimpleNamespace(require=lambda _caller, needs: asked.extend(needs))
    access = Access(cast("Any", rights))
    desk = Desk(tmp_path, access=access)
    asyncio.run(desk.sent(**more))
    record = desk.store.log[-1]._replace(topic=topic_)
    caller = Caller(address="127.0.0.1:9")
    require_readable(access, caller, record, "g")
    assert asked == [topic(name, Perm.SUB | Perm.GET) for name in needed]
