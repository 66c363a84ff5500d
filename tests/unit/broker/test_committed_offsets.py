"""Where a group continues and which commits count: every row of the rules."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from roquet.broker.api.caller import Caller
from roquet.broker.api.offsets import (
    CommitRequest,
    CommitResult,
    CommittedRequest,
    OffsetByTimeRequest,
    QueueRequest,
)
from roquet.broker.api.refusal import Reason, Refusal
from roquet.broker.services.offsets import OffsetConfig, Offsets
from roquet.model.group import SubscriptionGroupConfig
from roquet.model.topic import TopicConfig
from roquet.store.tables.files import JsonFile
from roquet.store.tables.offsets import FULL, OffsetTable
from roquet.testing.clock import FakeClock

if TYPE_CHECKING:
    from pathlib import Path

ME = Caller(address="127.0.0.1:5")


class Queues:
    """A store whose queues begin at `first` and end at `end`; notes what it was asked."""

    def __init__(self, first: int = 0, end: int = 0, *, in_memory: bool = False) -> None:
        self.first, self.end, self.in_memory = first, end, in_memory
        self.asked: list[tuple[object, ...]] = []

    def min_offset(self, topic: str, queue_id: int) -> int:
        self.asked.append(("min", topic, queue_id))
        return self.first

    def max_offset(self, topic: str, queue_id: int) -> int:
        self.asked.append(("max", topic, queue_id))
        return self.end

    def offset_by_time(
        self, topic: str, queue_id: int, timestamp: int, *, upper: bool = False
    ) -> int:
        self.asked.append(("time", topic, queue_id, timestamp, upper))
        return 41

    def store_time(self, topic: str, queue_id: int, offset: int) -> int:
        self.asked.append(("stored", topic, queue_id, offset))
        return 42

    def is_in_memory(self, topic: str, queue_id: int, offset: int) -> bool:
        self.asked.append(("memory", topic, queue_id, offset))
        return self.in_memory


class World:
    """The topic `t` with two queues to read and three to write, and the groups `g` and `late`."""

    def __init__(self, folder: Path, store: Queues | None = None, rules: Any = None) -> None:
        self.store = store or Queues()
        self.table = OffsetTable(JsonFile(folder / "consumerOffset.json"), FakeClock())
        late = SubscriptionGroupConfig(name="late", consume_from_min_enable=False)
        groups = {"g": SubscriptionGroupConfig(name="g"), "late": late}
        topics = {
            "t": TopicConfig(name="t", read_queues=2, write_queues=3),
            "narrow": TopicConfig(name="narrow", read_queues=3, write_queues=2),
        }
        self.service = Offsets(
            cast("Any", SimpleNamespace(get=topics.get)),
            cast("Any", SimpleNamespace(get=groups.get)),
            self.table,
            self.store,
            rules,
        )

    def commit(self, offset: int = 5, queue: int = 0, topic: str = "t", group: str = "g") -> Any:
        request = CommitRequest(topic=topic, queue_id=queue, group=group, offset=offset)
        return self.service.commit(request, ME)

    def committed(self, queue: int = 0, topic: str = "t", group: str = "g", **more: bool) -> int:
        request = CommittedRequest(topic=topic, queue_id=queue, group=group, **more)
        return self.service.committed(request, ME)


# --- where a group continues ---------------------------------------------------------------------

NO_ZERO = "do not set to zero"
NOT_FIRST = "may not begin at the first message"
BOOT_FIRST = "boot first"


@pytest.mark.parametrize(
    ("store", "new_queue_zero", "queue", "asked", "why"),
    [
        # A queue whose first message is still in memory.
        (Queues(0, 9, in_memory=True), True, 0, {}, ""),
        (Queues(0, 9, in_memory=True), False, 0, {}, ""),
        (Queues(-1, 9, in_memory=True), False, 0, {}, ""),
        (Queues(1, 9, in_memory=True), True, 0, {}, BOOT_FIRST),
        (Queues(0, 9), True, 0, {}, BOOT_FIRST),
        # A queue that never had one.
        (Queues(), True, 0, {}, ""),
        (Queues(), True, 1, {}, ""),
        (Queues(), False, 0, {}, BOOT_FIRST),
        (Queues(0, 1), True, 0, {}, BOOT_FIRST),
        (Queues(1, 0), True, 0, {}, BOOT_FIRST),
        # What is no queue to read.
        (Queues(), True, 2, {}, BOOT_FIRST),
        (Queues(), True, -1, {}, BOOT_FIRST),
        (Queues(), True, 0, {"topic": "gone"}, BOOT_FIRST),
        # Whom the client or an administrator keeps from beginning there.
        (Queues(), True, 0, {"may_begin_at_zero": False}, NO_ZERO),
        (Queues(), True, 0, {"group": "late"}, NOT_FIRST),
        (Queues(), True, 0, {"group": "unknown"}, ""),
    ],
)
def test_group_without_an_offset_begins_at_zero_or_is_told_why_not(
    tmp_path: Path,
    store: Queues,
    queue: int,
    asked: dict[str, Any],
    why: str,
    *,
    new_queue_zero: bool,
) -> None:
    world = World(tmp_path, store)
    world.service.follow(OffsetConfig(new_queue_zero=new_queue_zero))
    if not why:
        assert world.committed(queue, **asked) == 0
        return
    with pytest.raises(Refusal, match=why) as caught:
        world.committed(queue, **asked)
    assert caught.value.reason == Reason.NOT_FOUND


def test_rules_of_a_fresh_broker_begin_new_queues_at_zero(tmp_path: Path) -> None:
    assert World(tmp_path).committed() == 0
    with pytest.raises(Refusal, match=BOOT_FIRST):
        World(tmp_path, rules=OffsetConfig(new_queue_zero=False)).committed()


@pytest.mark.parametrize("offset", [0, 7])
def test_group_continues_where_it_committed_or_was_reset_to(tmp_path: Path, offset: int) -> None:
    world = World(tmp_path, Queues(3, 9))
    assert world.commit(offset) == CommitResult.STORED
    assert world.committed(may_begin_at_zero=False) == offset
    world.table.reset("g", "t", 0, 2)
    assert world.committed() == 2
    assert world.commit(8) == CommitResult.RESET_PENDING
    assert world.table.take_reset("g", "t", 0) == 2
    assert world.committed() == 2
    assert world.commit(8) == CommitResult.STORED
    assert world.committed() == 8


# --- which commits count -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "reason", "said"),
    [
        ({"topic": "gone"}, Reason.UNKNOWN_TOPIC, "Topic gone not exist!"),
        ({"group": "gone"}, Reason.UNKNOWN_GROUP, "Group gone not exist!"),
        ({"offset": -1}, Reason.INVALID_ARGUMENT, r"commitOffset\[-1\] is negative"),
        ({"queue": -1}, Reason.INVALID_ARGUMENT, r"queueId\[-1\].* is negative"),
        ({"queue": 3}, Reason.INVALID_ARGUMENT, r"queueId\[3\] is illegal.* has 3 queues"),
        ({"queue": 3, "topic": "narrow"}, Reason.INVALID_ARGUMENT, "has 3 queues"),
    ],
)
def test_commit_for_what_is_not_there_is_refused(
    tmp_path: Path, asked: dict[str, Any], reason: Reason, said: str
) -> None:
    world = World(tmp_path)
    with pytest.raises(Refusal, match=said) as caught:
        world.commit(**asked)
    assert caught.value.reason == reason
    assert len(world.table) == 0


@pytest.mark.parametrize("topic", ["t", "narrow"])
def test_commit_counts_for_queues_to_read_or_to_write(tmp_path: Path, topic: str) -> None:
    world = World(tmp_path)
    for queue in (0, 2):
        assert world.commit(0, queue, topic) == CommitResult.STORED
    assert world.table.queues("g", topic) == {0: 0, 2: 0}


def test_commit_without_room_is_refused_and_a_known_offset_moves_on(tmp_path: Path) -> None:
    world = World(tmp_path)
    assert world.commit(1) == CommitResult.STORED
    world.table._room._entries_max = 1
    with pytest.raises(Refusal) as caught:
        world.commit(1, queue=1)
    assert (caught.value.reason, caught.value.text) == (Reason.FAILED, FULL)
    assert world.commit(2) == CommitResult.STORED
    assert world.table.queues("g", "t") == {0: 2}


# --- queues --------------------------------------------------------------------------------------


def test_questions_about_a_queue_go_to_the_store(tmp_path: Path) -> None:
    store = Queues(first=3, end=9)
    service = World(tmp_path, store).service
    queue = QueueRequest(topic="t", queue_id=1)
    assert (service.min_offset(queue, ME), service.max_offset(queue, ME)) == (3, 9)
    assert service.earliest_ms(queue, ME) == 42
    for upper in (False, True):
        by_time = OffsetByTimeRequest(topic="t", queue_id=1, time_ms=7, upper=upper)
        assert service.by_time(by_time, ME) == 41
    assert store.asked == [
        ("min", "t", 1),
        ("max", "t", 1),
        ("min", "t", 1),
        ("stored", "t", 1, 3),
        ("time", "t", 1, 7, False),
        ("time", "t", 1, 7, True),
    ]
