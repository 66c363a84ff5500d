"""Sends as Python answers them, over a store in memory: the fast path takes none of these."""

from __future__ import annotations

import asyncio
import dataclasses
import random
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import msgspec
import pytest
from typing_extensions import override

from roquet.broker.api.caller import Caller
from roquet.broker.api.refusal import Reason, Refusal
from roquet.broker.api.send import SendBatchRequest, SendRequest, SendResult
from roquet.broker.clients.expressions import Expressions
from roquet.broker.messages.appender import Appender, with_hosts
from roquet.broker.messages.put_hooks import put_hooks
from roquet.broker.messages.schedule import DelayLevels
from roquet.broker.remoting.send.adapter import SendAdapter
from roquet.broker.services.send import batches
from roquet.broker.wiring.base import make_base
from roquet.broker.wiring.fronts.services import make_services
from roquet.model.group import SubscriptionGroupConfig
from roquet.model.topic import FilterType, TopicConfig
from roquet.protocol.messages import batch, sys_flag
from roquet.protocol.versions import V3_4_9
from roquet.store.results import BatchDraft, BatchResult, Draft, PutStatus
from roquet.testing.clock import FakeClock
from roquet.testing.cluster import broker_config, send_command
from roquet.testing.memory_store import FakeStore

if TYPE_CHECKING:
    from pathlib import Path

    from roquet.protocol.command import Command
    from roquet.store.results import PutResult


ME = Caller(address="127.0.0.1:9", received_ms=FakeClock().now_ms() - 7)


class Store(FakeStore):
    """Takes batches as well."""

    batch_status = PutStatus.PUT_OK

    def __init__(self, clock: FakeClock, levels: DelayLevels) -> None:
        super().__init__(clock, levels)
        self.batches: list[BatchDraft] = []

    @override
    async def put_batch(self, batch: BatchDraft) -> BatchResult:
        self.batches.append(batch)
        return BatchResult(self.batch_status, [100 * n for n in range(len(batch.elements))], 300, 0)


class Traffic:
    """Notes what is counted."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, int, int, int]] = []
        self.puts: list[tuple[str, int]] = []
        self.many: list[tuple[str, int, int, int]] = []

    def stored(self, topic: str, queue_id: int, _result: PutResult | BatchResult) -> None:
        self.puts.append((topic, queue_id))

    def stored_many(self, topic: str, queue_id: int, messages: int, size: int) -> None:
        self.many.append((topic, queue_id, messages, size))

    def sent_many(self, topic: str, queue_id: int, sends: int, took_ms: int) -> None:
        self.sent.append((topic, queue_id, sends, took_ms))


class World:
    """The processor of sends of a broker that is not started."""

    def __init__(self, folder: Path, **changes: str) -> None:
        self.clock = FakeClock()
        config = broker_config(folder, **changes)
        base = make_base(config, self.clock, random.Random(1))
        self.traffic = Traffic()
        self.base = dataclasses.replace(base, stats=cast("Any", self.traffic))
        levels = DelayLevels(config.store.delay_levels)
        self.store = Store(self.clock, levels)
        self.halves: list[tuple[str, str]] = []
        self.opened: list[str] = []
        halves = SimpleNamespace(divert=self._divert, opened=self.opened.append)
        appender = Appender(self.store, put_hooks(self.base.state, levels))
        self.appender = appender
        self.is_open = True
        gate = SimpleNamespace(check=self._check)
        services = make_services(
            self.base,
            appender,
            cast("Any", gate),
            cast("Any", SimpleNamespace(door=halves, ends=None)),
            expressions=Expressions(),
            timers=cast("Any", None),
        )
        self.service = services.sends
        self.sends = SendAdapter(
            services.sends, self.base.callers, {}, steps=services.sends, appender=appender
        )
        self.topic("orders", 4)

    def _check(self) -> None:
        if not self.is_open:
            raise Refusal(Reason.BUSY, "shut")

    async def in_steps(self, request: SendRequest, known: dict[str, TopicConfig]) -> Any:
        """Send a message as those that come together; None where it has to go alone."""
        self.service.check_open()
        sending = self.service.ready(request, ME, known)
        if sending is None:
            return None
        result = await self.appender.put(sending.draft)
        return self.service.finished(sending, result)

    def _divert(self, draft: Draft, group: str) -> None:
        self.halves.append((draft.topic, group))
        draft.topic = "RMQ_SYS_TRANS_HALF_TOPIC"

    def topic(self, name: str, queues: int) -> None:
        self.base.metadata.topics.put(
            TopicConfig(name=name, read_queues=max(1, queues), write_queues=queues)
        )

    def group(self, **changes: Any) -> None:
        self.base.metadata.groups.put(SubscriptionGroupConfig(name="g", **changes))

    def send(self, topic: str = "orders", **fields: Any) -> Command:
        """Send one message that arrived 7 ms ago."""
        version = fields.pop("version", None)
        command = send_command(topic, fields.pop("body", b"m"), **fields)
        if version is not None:
            command = dataclasses.replace(command, version=version)
        request = SimpleNamespace(
            command=command,
            peer=SimpleNamespace(address="127.0.0.1:9"),
            received_ms=self.clock.now_ms() - 7,
        )
        return asyncio.run(self.sends.send(cast("Any", request)))

    def place(self, topic: str = "orders", **fields: Any) -> tuple[str, int]:
        """Send one message; return topic and queue of its record."""
        answer = self.send(topic, **fields)
        assert answer.code == 0, answer.remark
        return self.store.log[-1].topic, self.store.log[-1].queue_id


@pytest.mark.parametrize(
    ("priority", "more", "queue"),
    [
        ("0", "", 0),
        ("2", "", 2),
        ("3", "", 3),
        ("4", "", 3),
        ("2147483647", "", 3),
        ("2147483648", "", 1),
        ("x", "", 1),
        ("-1", "", 1),
        ("3", "__SHARDINGKEY\x01k\x02", 1),
    ],
)
def test_priority_chooses_the_queue_up_to_the_last_one_unless_it_is_none(
    tmp_path: Path, priority: str, more: str, queue: int
) -> None:
    properties = f"_SYS_MSG_PRIORITY_\x01{priority}\x02{more}"
    found = World(tmp_path).place(queue_id=1, properties=properties)
    assert found == ("orders", queue)


def test_priority_of_a_topic_with_one_queue_stays_a_property(tmp_path: Path) -> None:
    it = World(tmp_path)
    it.topic("one", 1)
    assert it.place("one", properties="_SYS_MSG_PRIORITY_\x015\x02") == ("one", 0)
    assert b"_SYS_MSG_PRIORITY_" in it.store.log[-1].properties
    assert it.place("one", properties="_SYS_MSG_PRIORITY_\x01x\x02") == ("one", 0)
    assert b"_SYS_MSG_PRIORITY_\x01x\x02" in it.store.log[-1].properties


@pytest.mark.parametrize(
    ("more", "kept"),
    [
        ("", True),
        ("TRAN_MSG\x01false\x02", True),
        ("TRAN_MSG\x01TRUE\x02", False),
        ("__SHARDINGKEY\x01k\x02", False),
    ],
)
def test_message_of_another_type_loses_its_priority(
    tmp_path: Path, more: str, *, kept: bool
) -> None:
    it = World(tmp_path)
    it.place(queue_id=1, properties=f"_SYS_MSG_PRIORITY_\x013\x02{more}")
    assert (b"_SYS_MSG_PRIORITY_" in it.store.log[-1].properties) is kept


def test_message_of_a_light_topic_names_its_queue_and_no_other_does(tmp_path: Path) -> None:
    it = World(tmp_path)
    lmq = b"INNER_MULTI_DISPATCH\x01%LMQ%$orders$a\x02"
    for properties, named in (("__LITE_TOPIC\x01a\x02", True), ("KEYS\x01k\x02", False)):
        assert it.send(properties=properties).code == 0
        assert (lmq in it.store.log[-1].properties + b"\x02") is named
    assert it.send(properties="__LITE_TOPIC\x01a,b\x02").code == 13
    assert len(it.store.log) == 2


def test_half_message_is_open_once_it_is_stored_and_no_other_is(tmp_path: Path) -> None:
    it = World(tmp_path)
    for number, properties in enumerate(({}, {"TRAN_MSG": "true"}, {"TRAN_MSG": "false"})):
        request = sent(properties={"UNIQ_KEY": "u", **properties})
        asyncio.run(it.service.send(request, ME))
        assert len(it.opened) == min(number, 1)
    assert it.opened == ["orders"]


def test_time_that_a_send_took_is_not_below_nothing(tmp_path: Path) -> None:
    it = World(tmp_path)
    asyncio.run(it.base.metadata.topics.persist())
    for ahead_ms, took_ms in ((0, 0), (5, 0), (-1, 1)):
        caller = Caller(address="127.0.0.1:9", received_ms=it.clock.now_ms() + ahead_ms)
        asyncio.run(it.service.send(sent(properties={"UNIQ_KEY": "u"}), caller))
        sending = it.service.ready(sent(properties={"UNIQ_KEY": "u"}), caller, {})
        assert sending is not None
        it.service.count([(sending, asyncio.run(it.appender.put(sending.draft)))])
        assert it.traffic.sent == [("orders", 1, 1, took_ms)] * 2
        it.traffic.sent.clear()


def test_queue_that_is_named_is_taken(tmp_path: Path) -> None:
    it = World(tmp_path)
    for queue in (0, 1, 3):
        assert {it.place(queue_id=queue) for _ in range(20)} == {("orders", queue)}


def test_negative_queue_is_drawn_from_all_write_queues(tmp_path: Path) -> None:
    it = World(tmp_path)
    assert {it.place(queue_id=-1)[1] for _ in range(60)} == {0, 1, 2, 3}
    it.topic("one", 1)
    assert it.place("one", queue_id=-1) == ("one", 0)
    it.topic("none", 0)
    answer = it.send("none", queue_id=-1)
    assert (answer.code, answer.remark) == (1, "topic[none] has no write queue")


@pytest.mark.parametrize(("queue", "code"), [(0, 0), (3, 0), (4, 29)])
def test_send_to_a_queue_that_the_topic_has_not_is_refused(
    tmp_path: Path, queue: int, code: int
) -> None:
    assert World(tmp_path).send(queue_id=queue).code == code


def test_body_may_be_as_long_as_the_limit_and_no_longer(tmp_path: Path) -> None:
    it = World(tmp_path, maxMessageSize="1000")
    assert it.send(body=b"x" * 1000).code == 0
    assert it.send(body=b"x" * 1001).code == 13


def test_send_and_batch_are_counted_once_with_the_time_since_they_arrived(tmp_path: Path) -> None:
    it = World(tmp_path)
    assert it.send(queue_id=2).code == 0
    body = batch.encode([(0, b"a", b""), (0, b"b", b"")])
    assert it.send(queue_id=1, body=body, m="true").code == 0
    assert it.traffic.sent == [("orders", 2, 1, 7), ("orders", 1, 1, 7)]
    assert it.traffic.puts == [("orders", 2), ("orders", 1)]


def test_batch_is_answered_with_the_places_of_all_its_messages(tmp_path: Path) -> None:
    it = World(tmp_path)
    body = batch.encode([(0, b"a", b""), (0, b"b", b"")])
    ext = it.send(queue_id=1, body=body, m="true").ext or {}
    assert ext["msgId"].count(",") == 1
    assert (ext["queueId"], ext["queueOffset"]) == ("1", "0")


@pytest.mark.parametrize("name", ["DELAY", "TIMER_DELAY_SEC", "TRAN_MSG", "INNER_NUM"])
def test_batch_with_a_message_that_waits_is_refused(tmp_path: Path, name: str) -> None:
    it = World(tmp_path)
    for value, code in (("1", 13), ("0", 0), ("false", 0)):
        body = batch.encode([(0, b"a", b""), (0, b"b", f"{name}\x01{value}\x02".encode())])
        assert it.send(body=body, m="true").code == code, value


def test_half_message_goes_to_its_door_unless_it_is_retried_with_a_delay(tmp_path: Path) -> None:
    it = World(tmp_path)
    assert it.send(properties="TRAN_MSG\x01true\x02").code == 0
    assert it.halves == [("orders", "testers")]
    assert it.send(properties="TRAN_MSG\x01true\x02DELAY\x011\x02").code == 0
    assert it.send(properties="TRAN_MSG\x01true\x02", j="1").code == 0
    assert len(it.halves) == 3
    assert it.place(properties="TRAN_MSG\x01true\x02DELAY\x011\x02", j="1")[0] == (
        "SCHEDULE_TOPIC_XXXX"
    )
    assert it.place(properties="TRAN_MSG\x01false\x02") == ("orders", 0)
    assert len(it.halves) == 3


@pytest.mark.parametrize(
    ("tries", "of_group", "of_client", "version", "topic"),
    [
        (2, 2, None, None, "%RETRY%g"),
        (3, 2, None, None, "%DLQ%g"),
        (3, 2, "3", None, "%RETRY%g"),
        (4, 2, "3", None, "%DLQ%g"),
        (3, 2, "3", 0, "%DLQ%g"),
    ],
)
def test_retry_that_was_tried_more_often_than_allowed_becomes_a_dead_letter(
    tmp_path: Path,
    *,
    tries: int,
    of_group: int,
    of_client: str | None,
    version: int | None,
    topic: str,
) -> None:
    it = World(tmp_path)
    it.group(retry_max_times=of_group)
    more: dict[str, Any] = {} if of_client is None else {"l": of_client}
    if version is not None:
        more["version"] = version
    place = it.place("%RETRY%g", queue_id=0, j=str(tries), properties="", **more)
    assert place == (topic, 0)


def test_retry_topic_that_is_missing_is_made_with_one_queue(tmp_path: Path) -> None:
    it = World(tmp_path)
    it.group()
    assert it.place("%RETRY%g", queue_id=0, c="nobody") == ("%RETRY%g", 0)
    config = it.base.metadata.topics.get("%RETRY%g")
    assert config is not None
    assert (config.read_queues, config.write_queues) == (1, 1)


def test_other_topic_without_a_template_is_not_made(tmp_path: Path) -> None:
    it = World(tmp_path)
    assert it.send("fresh", c="nobody").code == 17
    assert it.base.metadata.topics.get("fresh") is None


def test_messages_of_compacted_topics_need_a_key(tmp_path: Path) -> None:
    it = World(tmp_path)
    attributes = {"cleanup.policy": "COMPACTION"}
    it.base.metadata.topics.put(
        TopicConfig(name="last", read_queues=1, write_queues=1, attributes=attributes)
    )
    assert it.send("last", queue_id=0).code == 13
    assert it.send("last", queue_id=0, properties="KEYS\x01k\x02").code == 0
    assert it.send("orders", queue_id=0).code == 0


@pytest.mark.parametrize("born", [8, 20])
@pytest.mark.parametrize("store", [8, 20])
def test_flag_says_which_hosts_have_long_addresses(born: int, store: int) -> None:
    flag = with_hosts(0xFFFF, bytes(born), bytes(store))
    assert bool(flag & sys_flag.BORN_HOST_V6) == (born == 20)
    assert bool(flag & sys_flag.STORE_HOST_V6) == (store == 20)


# --- in steps, as sends that come together -------------------------------------------------------


def sent(topic: str = "orders", **changes: Any) -> SendRequest:
    given: dict[str, Any] = {"body": b"m", "properties": {}, "born_ms": 1, "queue_id": 1}
    return SendRequest(topic=topic, **(given | changes))


HALF, ROLLED_BACK = 4, 12
REQUESTS: list[SendRequest] = [
    sent(),
    sent(queue_id=99),
    sent(queue_id=-1),
    sent(body=b""),
    sent(body=b"x" * 5_000),
    sent("no topic!"),
    sent("many_tags"),
    sent("last"),
    sent("last", properties={"KEYS": "k"}),
    sent(properties={"INNER_NUM": "2"}),
    sent(properties={"DELAY": "3"}),
    sent(properties={"DELAY": "soon"}),
    sent(properties={"TRAN_MSG": "true"}, sys_flag=HALF),
    sent(sys_flag=HALF),
    sent(sys_flag=ROLLED_BACK),
    sent(attempts=3, flag=7),
]


@pytest.mark.parametrize("number", range(len(REQUESTS)))
def test_steps_of_a_send_do_what_the_send_does(tmp_path: Path, number: int) -> None:
    def outcome(folder: str, *, in_steps: bool) -> tuple[object, ...]:
        it = World(tmp_path / folder, maxMessageSize="4096")
        it.base.metadata.topics.put(
            TopicConfig(name="last", attributes={"cleanup.policy": "COMPACTION"}),
            TopicConfig(name="many_tags", filter_type=FilterType.MULTI_TAG),
        )
        asyncio.run(it.base.metadata.topics.persist())
        # Twice: the second time the steps know the topic.
        results: list[object] = []
        known: dict[str, TopicConfig] = {}
        for _ in range(2):
            request = REQUESTS[number]
            request = msgspec.structs.replace(
                request, properties={**request.properties, "UNIQ_KEY": "u"}
            )
            sending = it.in_steps(request, known) if in_steps else it.service.send(request, ME)
            try:
                results.append(asyncio.run(sending))
            except Refusal as refusal:
                results.append((refusal.reason, refusal.text))
        return results, it.store.log, it.halves, it.opened

    alone = outcome("alone", in_steps=False)
    assert outcome("steps", in_steps=True) == alone
    assert len(cast("list[object]", alone[0])) == 2


@pytest.mark.parametrize("in_steps", [False, True])
def test_message_that_only_a_broker_may_store_is_refused(tmp_path: Path, *, in_steps: bool) -> None:
    it = World(tmp_path)
    asyncio.run(it.base.metadata.topics.persist())
    for request in (
        sent(properties={"INNER_NUM": "2", "UNIQ_KEY": "u"}),
        sent(properties={"UNIQ_KEY": "u"}, sys_flag=HALF),
        sent(properties={"UNIQ_KEY": "u"}, sys_flag=ROLLED_BACK),
    ):
        sending = it.in_steps(request, {}) if in_steps else it.service.send(request, ME)
        with pytest.raises(Refusal):
            asyncio.run(sending)
    assert it.store.log == []


def test_broker_that_is_a_slave_by_now_stores_what_it_appends_by_itself(tmp_path: Path) -> None:
    it = World(tmp_path)
    draft = Draft(
        topic="orders",
        queue_id=0,
        body=b"m",
        properties={},
        born_timestamp=1,
        born_host=bytes(8),
        store_host=bytes(8),
    )
    it.base.state.is_slave = True
    for appender, stored in ((it.appender, 0), (it.appender.inner, 1)):
        result = asyncio.run(appender.append(dataclasses.replace(draft)))
        assert (result.status.is_stored, len(it.store.log)) == (bool(stored), stored)


def test_message_that_may_have_to_wait_goes_alone(tmp_path: Path) -> None:
    it = World(tmp_path)
    asyncio.run(it.base.metadata.topics.persist())
    it.group()
    for request in (sent("fresh", template="TBW102", template_queues=1), sent("%RETRY%g")):
        known: dict[str, TopicConfig] = {}
        assert asyncio.run(it.in_steps(request, known)) is None
        assert known == {}
    known = {}
    assert asyncio.run(it.in_steps(sent(properties={"UNIQ_KEY": "u"}), known)) is not None
    assert known == {"orders": it.base.metadata.topics.get("orders")}


def test_closed_broker_takes_no_send(tmp_path: Path) -> None:
    it = World(tmp_path)
    it.is_open = False
    batch_ = SendBatchRequest(topic="orders", messages=b"", properties={}, born_ms=1)
    for action in (
        it.service.send(sent(), ME),
        it.service.send_batch(batch_, ME),
        it.in_steps(sent(), {}),
    ):
        with pytest.raises(Refusal, match="shut"):
            asyncio.run(cast("Any", action))
    assert it.store.log == []


def test_messages_that_came_together_are_counted_by_topic_queue_and_size(tmp_path: Path) -> None:
    it = World(tmp_path)
    asyncio.run(it.base.metadata.topics.persist())
    stored = []
    for body, queue in ((b"m", 1), (b"n", 1), (b"longer", 1), (b"m", 2)):
        request = sent(body=body, queue_id=queue, properties={"UNIQ_KEY": "u"})
        sending = it.service.ready(request, ME, {})
        assert sending is not None
        result = asyncio.run(it.appender.put(sending.draft))
        stored.append((sending, result._replace(size=10 * len(body))))
    it.service.count(stored)
    assert it.traffic.many == [
        ("orders", 1, 2, 20),
        ("orders", 1, 1, 60),
        ("orders", 2, 1, 10),
    ]
    assert it.traffic.sent == [("orders", 1, 2, 14), ("orders", 1, 1, 7), ("orders", 2, 1, 7)]


# --- batches taken apart -------------------------------------------------------------------------


def turns(body: bytes) -> int:
    """Take a batch apart by hand; return how often others have their turn."""
    steps = batches._elements(body, 1_000)
    given = 0
    while True:
        try:
            next(steps)
        except StopIteration:
            return given
        given += 1


@pytest.mark.parametrize("count", [1, 2, 3, 4, 7])
def test_batch_is_checked_in_turns(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    body = batch.encode([(0, b"m", b"")] * count)
    monkeypatch.setattr(batches, "CHECKED_AT_ONCE", 10**9)
    before = turns(body)
    monkeypatch.setattr(batches, "CHECKED_AT_ONCE", 2)
    assert turns(body) - before == count // 2


def test_batch_without_a_message_is_refused() -> None:
    with pytest.raises(Refusal, match="the batch is empty") as caught:
        asyncio.run(batches.batch_elements(b"", 10))
    assert caught.value.reason == Reason.ILLEGAL_MESSAGE


# --- batches -------------------------------------------------------------------------------------

PAIR = batch.encode([(0, b"a", b""), (0, b"b", b"")])
RETRY = "%RETRY%" + "g" * 121


def together(it: World, topic: str = "orders", **changes: Any) -> SendResult:
    """Send a batch; its topics are durable."""
    asyncio.run(it.base.metadata.topics.persist())
    given: dict[str, Any] = {"messages": PAIR, "properties": {}, "born_ms": 5, "queue_id": 1}
    request = SendBatchRequest(topic=topic, **(given | changes))
    return asyncio.run(it.service.send_batch(request, ME))


@pytest.mark.parametrize(
    ("asked", "reason", "said"),
    [
        ({"messages": b""}, Reason.FAILED, "no body"),
        ({"messages": b"x" * 5_000}, Reason.ILLEGAL_MESSAGE, "limit 4096B"),
        ({"messages": PAIR[:-1]}, Reason.ILLEGAL_MESSAGE, "the batch is illegal"),
        ({"queue_id": 4}, Reason.INVALID_ARGUMENT, "queueId"),
        ({"topic": "gone"}, Reason.UNKNOWN_TOPIC, "not exist"),
        ({"topic": RETRY}, Reason.ILLEGAL_MESSAGE, "topic length too long 128"),
        ({"topic": RETRY[:-1]}, Reason.ILLEGAL_MESSAGE, "does not support retry group"),
        ({"topic": "batches"}, Reason.ILLEGAL_MESSAGE, "BatchCQ is not supported"),
        ({"topic": "unwritable", "queue_id": -1}, Reason.FAILED, "no write queue"),
        ({"properties": {"INNER_NUM": "1"}}, Reason.ILLEGAL_MESSAGE, "illegal message"),
        ({"sys_flag": sys_flag.INNER_BATCH}, Reason.ILLEGAL_MESSAGE, "illegal message"),
        ({"sys_flag": sys_flag.NEED_UNWRAP}, Reason.ILLEGAL_MESSAGE, "illegal message"),
        ({"sys_flag": HALF}, Reason.FORBIDDEN, "transaction message"),
        ({"sys_flag": ROLLED_BACK}, Reason.FORBIDDEN, "transaction message"),
    ],
)
def test_batch_that_cannot_be_stored_whole_is_refused_whole(
    tmp_path: Path, asked: dict[str, Any], reason: Reason, said: str
) -> None:
    it = World(tmp_path, maxMessageSize="4096")
    for name in (RETRY, RETRY[:-1]):
        it.topic(name, 4)
    it.base.metadata.topics.put(
        TopicConfig(name="batches", attributes={"queue.type": "BatchCQ"}),
        TopicConfig(name="unwritable", write_queues=0),
    )
    with pytest.raises(Refusal, match=said) as caught:
        together(it, **asked)
    assert caught.value.reason == reason
    assert (it.store.batches, it.traffic.puts) == ([], [])


@pytest.mark.parametrize(
    ("asked", "stored"),
    [
        ({}, {"wait": True, "reconsume_times": 0, "sys_flag": 0}),
        ({"properties": {"WAIT": "false"}}, {"wait": False}),
        ({"properties": {"WAIT": "FALSE"}}, {"wait": False}),
        ({"properties": {"WAIT": "no"}}, {"wait": True}),
        ({"attempts": 3}, {"reconsume_times": 3}),
        ({"sys_flag": sys_flag.COMPRESSED}, {"sys_flag": sys_flag.COMPRESSED}),
        ({"topic": "many_tags"}, {"sys_flag": sys_flag.MULTI_TAGS}),
    ],
)
def test_batch_is_stored_as_it_was_sent(
    tmp_path: Path, asked: dict[str, Any], stored: dict[str, Any]
) -> None:
    it = World(tmp_path)
    many_tags = TopicConfig(
        name="many_tags", filter_type=FilterType.MULTI_TAG, read_queues=4, write_queues=4
    )
    it.base.metadata.topics.put(many_tags)
    properties = {**asked.get("properties", {}), "UNIQ_KEY": "u"}
    result = together(it, **{**asked, "properties": properties})
    (made,) = it.store.batches
    assert {name: getattr(made, name) for name in stored} == stored
    assert (made.queue_id, made.born_timestamp, len(made.elements)) == (1, 5, 2)
    assert (result.queue_id, result.queue_offset, result.transaction_id) == (1, 0, "u")
    assert [int(it[-16:], 16) for it in result.message_ids] == [0, 100]
    assert it.traffic.puts == [(made.topic, 1)]
    assert it.traffic.sent == [(made.topic, 1, 1, 7)]


def test_batch_that_the_store_refuses_is_not_counted(tmp_path: Path) -> None:
    it = World(tmp_path)
    it.store.batch_status = PutStatus.SERVICE_NOT_AVAILABLE
    with pytest.raises(Refusal):
        together(it)
    assert (len(it.store.batches), it.traffic.puts) == (1, [])


def test_dead_letter_is_readable_at_once_in_a_topic_of_one_queue(tmp_path: Path) -> None:
    it = World(tmp_path)
    it.group(retry_max_times=2)
    it.topic("%RETRY%g", 4)
    properties = "DELAY\x013\x02"
    assert it.place("%RETRY%g", queue_id=3, j="3", properties=properties) == ("%DLQ%g", 0)
    assert b"DELAY" not in it.store.log[-1].properties
    config = it.base.metadata.topics.get("%DLQ%g")
    assert config is not None
    assert (config.read_queues, config.write_queues) == (1, 1)
    assert it.base.metadata.topics.is_durable("%DLQ%g")
    for version, topic in ((V3_4_9, "%RETRY%g"), (V3_4_9 - 1, "%DLQ%g")):
        more: dict[str, Any] = {"l": "3", "version": version}
        assert it.place("%RETRY%g", queue_id=0, j="3", properties="", **more) == (topic, 0)
