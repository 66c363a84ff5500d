"""Whether a message may be sent to a topic: every refusal, and topics that come to be by a send."""

from __future__ import annotations

import asyncio
import re
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from roquet.base.errors import DiskFull
from roquet.broker.api.refusal import Reason, Refusal
from roquet.broker.api.send import Target
from roquet.broker.services.topic_checks import SendChecks, check_queue, group_for
from roquet.broker.state import BrokerState
from roquet.model.topic import TOPIC_SYS_FLAG_UNIT, TopicConfig
from roquet.protocol import names
from roquet.store.tables.files import JsonFile
from roquet.store.tables.groups import GroupTable, GroupTableConfig
from roquet.store.tables.topics import TopicTable, TopicTableConfig
from roquet.testing.clock import FakeClock

if TYPE_CHECKING:
    from pathlib import Path

NOW_MS = 1_700_000_000_123
PRODUCER = "10.0.0.1:5"


class World:
    """The checks of a broker with the durable topic `t`: two queues to read, three to write."""

    def __init__(self, folder: Path, **rules: Any) -> None:
        self.clock = FakeClock(NOW_MS)
        self.state = BrokerState()
        self.file = JsonFile(folder / "topics.json")
        settings = TopicTableConfig(cluster="c", broker_name="b", **rules)
        self.topics = TopicTable(self.file, settings, self.clock)
        self.put(TopicConfig(name="t", read_queues=2, write_queues=3))
        self.checks = SendChecks(
            self.topics, self.state, cast("Any", SimpleNamespace(ip="1.2.3.4")), self.clock
        )

    def put(self, *configs: TopicConfig) -> None:
        self.topics.put(*configs)
        asyncio.run(self.topics.persist())

    def known(self, topic: str = "t", **more: Any) -> TopicConfig | None:
        return self.checks.known_topic(Target(topic=topic, **more), PRODUCER)

    def found(self, topic: str = "t", **more: Any) -> TopicConfig:
        return asyncio.run(self.checks.topic_for(Target(topic=topic, **more), PRODUCER))

    def refused(self, topic: str = "t", **more: Any) -> tuple[Reason, str]:
        """Return why a send is refused, which is so whether the topic is asked for or made."""
        with pytest.raises(Refusal) as caught:
            self.found(topic, **more)
        return caught.value.reason, caught.value.text


# --- what is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize(("queue_id", "is_there"), [(-1, True), (0, True), (2, True), (3, False)])
@pytest.mark.parametrize("queues", [(2, 3), (3, 2)])
def test_queue_is_one_to_read_or_to_write(
    tmp_path: Path, queue_id: int, queues: tuple[int, int], *, is_there: bool
) -> None:
    world = World(tmp_path)
    config = TopicConfig(name="u", read_queues=queues[0], write_queues=queues[1])
    world.put(config)
    if is_there:
        assert world.known("u", queue_id=queue_id) == config
        assert world.found("u", queue_id=queue_id) == config
        check_queue(config, queue_id, PRODUCER)
        return
    said = f"request queueId[3] is illegal, topic[u] has 3 queues Producer: {PRODUCER}"
    assert world.refused("u", queue_id=3) == (Reason.INVALID_ARGUMENT, said)
    with pytest.raises(Refusal, match="is illegal"):
        world.known("u", queue_id=3)


LONGEST = names.RETRY_PREFIX + "g" * (names.RETRY_TOPIC_LENGTH_MAX - len(names.RETRY_PREFIX))


@pytest.mark.parametrize(
    ("topic", "reason", "said"),
    [
        ("", Reason.INVALID_ARGUMENT, "blank"),
        ("no topic!", Reason.INVALID_ARGUMENT, "no topic!"),
        ("x" * (names.TOPIC_LENGTH_MAX + 1), Reason.INVALID_ARGUMENT, "longer than"),
        (f"{LONGEST}g", Reason.INVALID_ARGUMENT, "longer than"),
        ("x" * 1000, Reason.INVALID_ARGUMENT, "longer than"),
        ("rmq_sys_REVIVE_LOG_c", Reason.FORBIDDEN, "forbidden"),
        (names.SCHEDULE_TOPIC, Reason.FORBIDDEN, "forbidden"),
        ("gone", Reason.UNKNOWN_TOPIC, r"topic\[gone\] not exist, apply first please!"),
    ],
)
def test_topic_that_may_not_be_sent_to_is_refused_each_time(
    tmp_path: Path, topic: str, reason: Reason, said: str
) -> None:
    world = World(tmp_path)
    for _ in range(2):
        found = world.refused(topic)
        assert found[0] == reason
        assert re.search(said, found[1])


def test_name_as_long_as_a_retry_topic_s_is_taken(tmp_path: Path) -> None:
    world = World(tmp_path)
    assert world.found(LONGEST).name == LONGEST


def test_order_topic_needs_a_broker_that_may_be_written_to(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.put(TopicConfig(name="ordered", order=True))
    assert world.known("ordered") is not None
    world.state.permission = 4
    assert world.known() is not None, "whether plain topics are taken is asked elsewhere"
    forbidden = (Reason.FORBIDDEN, "the broker[1.2.3.4] sending message is forbidden")
    assert world.refused("ordered") == forbidden
    with pytest.raises(Refusal, match="half message is forbidden"):
        world.checks.refuse_sending("half message")


def test_sends_are_taken_from_the_time_on_that_the_refusal_names(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.state.accept_sends_from_ms = NOW_MS + 1
    at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(NOW_MS // 1000))
    said = f"broker unable to service, until {at},124"
    assert world.refused() == (Reason.FAILED, said)
    world.state.accept_sends_from_ms = NOW_MS
    assert world.known() is not None


# --- topics that are made ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("topic", "template", "is_unit", "queues", "flag"),
    [
        ("orders", "TBW102", False, 4, 0),
        ("orders", "TBW102", True, 4, TOPIC_SYS_FLAG_UNIT),
        ("%RETRY%g", "", False, 1, 0),
        ("%RETRY%g", "", True, 1, TOPIC_SYS_FLAG_UNIT),
    ],
)
def test_missing_topic_is_made_durable_before_it_is_returned(
    tmp_path: Path, topic: str, template: str, queues: int, flag: int, *, is_unit: bool
) -> None:
    world = World(tmp_path)
    asked: dict[str, Any] = {"template": template, "template_queues": 4, "is_unit": is_unit}
    assert world.known(topic, **asked) is None
    made = world.found(topic, **asked)
    assert (made.read_queues, made.write_queues, made.sys_flag) == (queues, queues, flag)
    assert world.topics.is_durable(topic)
    assert world.known(topic) == made
    assert world.refused("bills", queue_id=4, **asked)[0] == (
        Reason.INVALID_ARGUMENT if template else Reason.UNKNOWN_TOPIC
    )


def test_topic_that_is_not_durable_yet_is_made_so_first(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.topics.put(TopicConfig(name="u"))
    assert world.known("u") is None
    assert world.found("u") == world.known("u") == TopicConfig(name="u")


def test_topic_that_cannot_be_made_durable_is_not_returned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path)

    async def full(*_: object) -> None:
        raise DiskFull("no room")

    monkeypatch.setattr(world.file, "save", full)
    with pytest.raises(DiskFull):
        world.found("orders", template="TBW102", template_queues=1)
    with pytest.raises(DiskFull):
        asyncio.run(world.checks.ensure_topic("%RETRY%g", 1))


def test_topic_that_is_deleted_while_it_is_made_durable_does_not_exist(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path)

    async def deleted(*_: object) -> None:
        world.topics.remove("orders")

    monkeypatch.setattr(world.file, "save", deleted)
    refused = world.refused("orders", template="TBW102", template_queues=1)
    assert refused[0] == Reason.UNKNOWN_TOPIC


def test_clients_make_topics_up_to_their_share_and_the_broker_its_own(tmp_path: Path) -> None:
    world = World(tmp_path, auto_create_max=0)
    reason, said = world.refused("orders", template="TBW102", template_queues=1)
    assert reason == Reason.UNKNOWN_TOPIC
    assert "autoCreateTopicMax" in said
    own = asyncio.run(world.checks.ensure_topic(names.TRACE_TOPIC, 3))
    assert (own.read_queues, own.write_queues, own.perm) == (3, 3, 6)
    assert world.topics.is_durable(names.TRACE_TOPIC)


def test_group_is_found_or_made_or_refused(tmp_path: Path) -> None:
    file = JsonFile(tmp_path / "groups.json")
    table = GroupTable(file, GroupTableConfig(auto_create=True), FakeClock())
    assert group_for(table, "g").name == "g"
    table.follow(GroupTableConfig(auto_create=False))
    assert group_for(table, "g").name == "g"
    with pytest.raises(Refusal, match=r"subscription group \[h\] does not exist") as caught:
        group_for(table, "h")
    assert caught.value.reason == Reason.UNKNOWN_GROUP
