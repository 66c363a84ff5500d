"""Pulls and questions about offsets as Python answers them, over a store that only notes calls.

The compiled core holds some of the same limits, so that a whole broker cannot show who keeps them.
"""

from __future__ import annotations

import dataclasses
import random
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from roquet.broker.api.caller import Caller
from roquet.broker.api.offsets import CommitRequest, CommitResult
from roquet.broker.api.refusal import Refusal
from roquet.broker.clients.expressions import Expressions
from roquet.broker.remoting.offsets import OffsetAdapter
from roquet.broker.remoting.receive import ReceiveAdapter
from roquet.broker.remoting.refusals import refused
from roquet.broker.services.offsets import OffsetConfig
from roquet.broker.wiring.base import make_base
from roquet.broker.wiring.fronts.services import make_services
from roquet.model.group import SubscriptionGroupConfig
from roquet.model.topic import TopicConfig
from roquet.protocol.codes import RequestCode
from roquet.protocol.command import Command
from roquet.remoting.router import Request
from roquet.store.results import GetResult, GetStatus
from roquet.testing.clock import FakeClock
from roquet.testing.cluster import broker_config, pull_command

if TYPE_CHECKING:
    from pathlib import Path

    from roquet.broker.clients.long_polling import Held

WHERE = ("readers", "orders", 0)
PEER = cast("Any", SimpleNamespace(address="127.0.0.1:1"))
COMMIT = "7"
"""sysFlag of a pull that brings its expression and commits an offset; it may be held."""


class FakeStore:
    """Answers what a test has put here."""

    def __init__(self) -> None:
        self.result = GetResult(GetStatus.FOUND, 5, 2, 9, 3, b"records")
        self.asked: list[tuple[int, int]] = []
        self.ends = (0, 0)
        self.in_memory = False

    def get(
        self, _topic: str, _queue_id: int, offset: int, max_messages: int, **_filters: object
    ) -> GetResult:
        self.asked.append((offset, max_messages))
        return self.result

    def min_offset(self, _topic: str, _queue_id: int) -> int:
        return self.ends[0]

    def max_offset(self, _topic: str, _queue_id: int) -> int:
        return self.ends[1]

    def is_in_memory(self, _topic: str, _queue_id: int, _offset: int) -> bool:
        return self.in_memory


class World:
    """The processors of a broker that is not started."""

    def __init__(self, folder: Path, **changes: str) -> None:
        self.store = FakeStore()
        base = make_base(broker_config(folder, **changes), FakeClock(), random.Random(1))
        holds = cast("Any", SimpleNamespace(hold=self._hold))
        self.base = dataclasses.replace(base, store=cast("Any", self.store), holds=holds)
        self.held: list[Held] = []
        self.waits: list[int] = []
        self.replies: list[Command] = []
        self.has_room = True
        unused = cast("Any", SimpleNamespace(door=None, ends=None, check=None))
        services = make_services(
            self.base, unused, unused, unused, expressions=Expressions(), timers=unused
        )
        self.services = services
        self.pulls = ReceiveAdapter(services.receives, self.base.callers)
        self.offsets = OffsetAdapter(services.offsets, self.base.callers)
        self.base.metadata.topics.put(TopicConfig(name="orders", read_queues=4, write_queues=4))
        self.group()

    def _hold(self, held: Held, wait_ms: int) -> bool:
        self.held.append(held)
        self.waits.append(wait_ms)
        return self.has_room

    def group(self, **changes: Any) -> None:
        config = SubscriptionGroupConfig(name="readers", **changes)
        self.base.metadata.groups.put(config)

    def pull(self, offset: int = 3, **fields: str) -> Command | None:
        command = pull_command("orders", offset, **fields)
        return self.pulls.pull(Request(command, PEER, 0, self.replies.append))

    def answer(self, offset: int = 3, **fields: str) -> tuple[int, dict[str, str]]:
        """Return code and fields of a pull that is not held."""
        command = self.pull(offset, **fields)
        assert command is not None
        return command.code, command.ext or {}

    def ask(self, code: RequestCode, **fields: str) -> Command:
        """Ask about, or commit, an offset; Refused becomes an answer with its code."""
        ext = {"consumerGroup": "readers", "topic": "orders", "queueId": "0", **fields}
        is_query = code == RequestCode.QUERY_CONSUMER_OFFSET
        handler = self.offsets.committed if is_query else self.offsets.commit
        try:
            return handler(Request(Command(code, ext=ext), PEER, 0, self.replies.append))
        except Refusal as refusal:
            error = refused(refusal)
            return Command(error.code, remark=error.remark)


@pytest.mark.parametrize(("asked", "read"), [(-4, 1), (0, 1), (1, 1), (2, 2), (64, 64)])
def test_pull_reads_at_least_one_message_and_no_more_than_it_asks_for(
    tmp_path: Path, asked: int, read: int
) -> None:
    it = World(tmp_path)
    assert it.answer(3, maxMsgNums=str(asked))[0] == 0
    assert it.store.asked == [(3, read)]


def test_pull_answers_the_bounds_of_the_queue(tmp_path: Path) -> None:
    it = World(tmp_path)
    code, ext = it.answer()
    assert code == 0
    assert (ext["nextBeginOffset"], ext["minOffset"], ext["maxOffset"]) == ("5", "2", "9")
    assert ext["suggestWhichBrokerId"] == "0"


@pytest.mark.parametrize(
    ("offset", "kept"), [(-1, None), (0, 0), (1, 1), (8, 8), (9, 9), (10, 9), (1 << 40, 9)]
)
def test_pull_commits_from_0_to_the_end_of_the_queue(
    tmp_path: Path, offset: int, kept: int | None
) -> None:
    it = World(tmp_path)
    it.answer(3, sysFlag=COMMIT, commitOffset=str(offset))
    assert it.base.metadata.offsets.committed(*WHERE) == kept
    assert it.base.metadata.offsets.pulled(*WHERE) == 3


def test_pull_without_the_flag_commits_nothing(tmp_path: Path) -> None:
    it = World(tmp_path)
    it.answer(3, sysFlag="4", commitOffset="5")
    assert it.base.metadata.offsets.committed(*WHERE) is None


def test_pull_takes_a_reset_once_and_commits_nothing_with_it(tmp_path: Path) -> None:
    it = World(tmp_path)
    it.base.metadata.offsets.reset(*WHERE, 4)
    code, ext = it.answer(8, sysFlag=COMMIT, commitOffset="8")
    assert (code, ext["nextBeginOffset"], ext["minOffset"], ext["maxOffset"]) == (21, "4", "2", "9")
    assert it.base.metadata.offsets.committed(*WHERE) == 4
    assert it.answer(4)[0] == 0


@pytest.mark.parametrize(("queue", "code"), [(-1, 29), (0, 0), (3, 0), (4, 29)])
def test_pull_of_a_queue_that_the_topic_has_not_is_refused(
    tmp_path: Path, queue: int, code: int
) -> None:
    assert World(tmp_path).answer(3, queueId=str(queue))[0] == code


@pytest.mark.parametrize(
    ("status", "offset", "code"),
    [
        (GetStatus.NO_MATCHED_LOGIC_QUEUE, 0, 19),
        (GetStatus.NO_MATCHED_LOGIC_QUEUE, 1, 21),
        (GetStatus.NO_MESSAGE_IN_QUEUE, 0, 19),
        (GetStatus.NO_MESSAGE_IN_QUEUE, 1, 21),
        (GetStatus.MESSAGE_WAS_REMOVING, 3, 20),
        (GetStatus.NO_MATCHED_MESSAGE, 3, 20),
        (GetStatus.OFFSET_FOUND_NULL, 3, 19),
        (GetStatus.OFFSET_OVERFLOW_ONE, 3, 19),
        (GetStatus.OFFSET_OVERFLOW_BADLY, 3, 21),
        (GetStatus.OFFSET_TOO_SMALL, 3, 21),
    ],
)
def test_pull_that_finds_nothing_has_the_code_of_its_reason(
    tmp_path: Path, status: GetStatus, offset: int, code: int
) -> None:
    it = World(tmp_path)
    it.store.result = GetResult(status, 3, 2, 9)
    assert it.answer(offset)[0] == code


def test_only_a_pull_that_found_nothing_and_may_wait_is_held(tmp_path: Path) -> None:
    it = World(tmp_path)
    suspended = {"sysFlag": "6", "suspendTimeoutMillis": "15000"}
    assert it.answer(3, **suspended)[0] == 0
    it.store.result = GetResult(GetStatus.OFFSET_OVERFLOW_ONE, 3, 2, 3)
    assert it.answer(3, sysFlag="4", suspendTimeoutMillis="15000")[0] == 19
    assert it.pull(3, **suspended) is None
    assert it.waits == [15_000]


@pytest.mark.parametrize(
    ("asked", "polling", "waited"),
    [
        ("59999", "true", 59_999),
        ("60001", "true", 60_000),
        ("-1", "true", 0),
        ("15000", "false", 250),
        ("0", "false", 250),
    ],
)
def test_held_pull_waits_as_long_as_it_asks_within_the_limit_of_the_broker(
    tmp_path: Path, asked: str, polling: str, waited: int
) -> None:
    it = World(tmp_path, longPollingEnable=polling, shortPollingTimeMills="250")
    it.store.result = GetResult(GetStatus.OFFSET_OVERFLOW_ONE, 3, 2, 3)
    assert it.pull(3, sysFlag="6", suspendTimeoutMillis=asked) is None
    assert it.waits == [waited]


def test_held_pull_is_answered_when_it_is_woken_and_waits_and_commits_no_more(
    tmp_path: Path,
) -> None:
    it = World(tmp_path)
    it.store.result = GetResult(GetStatus.OFFSET_OVERFLOW_ONE, 3, 2, 3)
    assert it.pull(3, sysFlag="7", commitOffset="3", suspendTimeoutMillis="9") is None
    it.base.metadata.offsets.commit(*WHERE, 1)
    it.held[0].resume()
    assert [answer.code for answer in it.replies] == [19]
    assert (it.waits, it.base.metadata.offsets.committed(*WHERE)) == ([9], 1)


def test_pull_that_has_no_room_to_wait_is_answered_at_once(tmp_path: Path) -> None:
    it = World(tmp_path)
    it.has_room = False
    it.store.result = GetResult(GetStatus.OFFSET_OVERFLOW_ONE, 3, 2, 3)
    assert it.answer(3, sysFlag="6", suspendTimeoutMillis="9")[0] == 19


def slave(folder: Path, **changes: str) -> World:
    it = World(folder, slaveReadEnable="true", **changes)
    it.base.state.is_slave = True
    return it


def test_slave_serves_no_reads_unless_it_is_told_to(tmp_path: Path) -> None:
    it = World(tmp_path)
    it.base.state.is_slave = True
    assert it.answer()[0] == 2
    assert slave(tmp_path / "reads").answer()[0] == 0


@pytest.mark.parametrize(("slow", "broker"), [(True, "7"), (False, "5")])
def test_master_sends_slow_readers_where_their_group_says(
    tmp_path: Path, *, slow: bool, broker: str
) -> None:
    it = World(tmp_path, slaveReadEnable="true")
    it.group(broker_id=5, which_broker_when_consume_slowly=7)
    it.store.result = it.store.result._replace(suggest_slave=slow)
    assert it.answer()[1]["suggestWhichBrokerId"] == broker


def test_slave_that_is_behind_moves_no_reader(tmp_path: Path) -> None:
    it = slave(tmp_path)
    it.group(broker_id=5)
    it.store.result = GetResult(GetStatus.OFFSET_OVERFLOW_BADLY, 9, 2, 9)
    code, ext = it.answer(40)
    assert (code, ext["nextBeginOffset"], ext["suggestWhichBrokerId"]) == (20, "40", "5")
    checks = slave(tmp_path / "checks", offsetCheckInSlave="true")
    checks.store.result = it.store.result
    code, ext = checks.answer(40)
    assert (code, ext["nextBeginOffset"]) == (21, "9")


@pytest.mark.parametrize(
    ("has_master", "slow", "found", "code", "broker"),
    [
        (True, False, True, 0, "0"),
        (True, False, False, 20, "0"),
        (True, True, False, 19, "1"),
        (False, False, False, 19, "5"),
    ],
)
def test_slave_with_a_master_sends_readers_there_unless_they_are_slow(
    tmp_path: Path, *, has_master: bool, slow: bool, found: bool, code: int, broker: str
) -> None:
    it = slave(tmp_path)
    it.group(broker_id=5)
    it.base.state.has_master = has_master
    status = GetStatus.FOUND if found else GetStatus.OFFSET_OVERFLOW_ONE
    it.store.result = GetResult(status, 3, 2, 9, suggest_slave=slow)
    got, ext = it.answer()
    assert (got, ext["suggestWhichBrokerId"]) == (code, broker)


def test_group_that_may_not_consume_is_refused(tmp_path: Path) -> None:
    it = World(tmp_path)
    it.group(consume_enable=False)
    assert it.answer() == (16, {"forbiddenType": "2"})


def test_lite_pulls_can_be_switched_off(tmp_path: Path) -> None:
    for served, code in (("true", 0), ("false", 16)):
        it = World(tmp_path / served, litePullMessageEnable=served)
        command = pull_command("orders", 3)
        lite = Command(RequestCode.LITE_PULL_MESSAGE, ext=command.ext)
        answer = it.pulls.pull(Request(lite, PEER, 0, it.replies.append))
        assert answer is not None
        assert answer.code == code
        assert it.answer()[0] == 0


@pytest.mark.parametrize(
    ("topic", "group", "queue", "offset", "code"),
    [
        ("orders", "readers", 0, 0, 0),
        ("orders", "readers", 3, 1, 0),
        ("orders", "readers", 4, 0, 29),
        ("orders", "readers", -1, 0, 29),
        ("orders", "readers", 0, -1, 29),
        ("nobody", "readers", 0, 0, 17),
        ("orders", "nobody", 0, 0, 26),
    ],
)
def test_commit_needs_a_queue_of_the_topic_and_a_known_group(
    tmp_path: Path, *, topic: str, group: str, queue: int, offset: int, code: int
) -> None:
    it = World(tmp_path)
    answer = it.ask(
        RequestCode.UPDATE_CONSUMER_OFFSET,
        topic=topic,
        consumerGroup=group,
        queueId=str(queue),
        commitOffset=str(offset),
    )
    assert answer.code == code
    kept = it.base.metadata.offsets.committed(group, topic, queue)
    assert kept == (offset if code == 0 else None)
    assert it.base.metadata.groups.get("nobody") is None


def test_commit_takes_queues_that_are_only_written_or_only_read(tmp_path: Path) -> None:
    it = World(tmp_path)
    for reads, writes in ((2, 6), (6, 2)):
        topic = TopicConfig(name="orders", read_queues=reads, write_queues=writes)
        it.base.metadata.topics.put(topic)
        for queue, code in ((5, 0), (6, 29)):
            fields = {"queueId": str(queue), "commitOffset": "1"}
            assert it.ask(RequestCode.UPDATE_CONSUMER_OFFSET, **fields).code == code


def test_commit_behind_a_pending_reset_is_answered_and_ignored(tmp_path: Path) -> None:
    it = World(tmp_path)
    it.base.metadata.offsets.reset(*WHERE, 4)
    answer = it.ask(RequestCode.UPDATE_CONSUMER_OFFSET, commitOffset="9")
    assert (answer.code, answer.remark) == (0, "Offset has been previously reset")
    assert it.base.metadata.offsets.committed(*WHERE) == 4
    other = it.ask(RequestCode.UPDATE_CONSUMER_OFFSET, commitOffset="9", queueId="1")
    assert other.code == 0
    assert it.base.metadata.offsets.committed("readers", "orders", 1) == 9


@pytest.mark.parametrize(
    ("ends", "in_memory", "fields", "settings", "code"),
    [
        ((0, 5), True, {}, {}, 0),
        ((0, 5), False, {}, {}, 22),
        ((1, 5), True, {}, {}, 22),
        ((0, 0), False, {}, {}, 0),
        ((0, 1), False, {}, {}, 22),
        ((-1, -1), False, {}, {}, 0),
        ((0, 0), False, {"queueId": "3"}, {}, 0),
        ((0, 0), False, {"queueId": "4"}, {}, 22),
        ((0, 0), False, {"queueId": "-1"}, {}, 22),
        ((0, 0), False, {"topic": "nobody"}, {}, 22),
        ((0, 0), False, {"consumerGroup": "nobody"}, {}, 0),
        ((0, 0), False, {"setZeroIfNotFound": "false"}, {}, 22),
        ((0, 0), False, {"setZeroIfNotFound": "true"}, {}, 0),
        ((0, 0), False, {}, {"newQueueFromZero": "false"}, 22),
        ((0, 5), True, {}, {"newQueueFromZero": "false"}, 0),
    ],
)
def test_group_without_an_offset_begins_at_0_only_where_nothing_is_skipped_or_old(
    tmp_path: Path,
    *,
    ends: tuple[int, int],
    in_memory: bool,
    fields: dict[str, str],
    settings: dict[str, str],
    code: int,
) -> None:
    it = World(tmp_path, **settings)
    it.store.ends, it.store.in_memory = ends, in_memory
    answer = it.ask(RequestCode.QUERY_CONSUMER_OFFSET, **fields)
    assert answer.code == code
    assert (answer.ext or {}).get("offset") == ("0" if code == 0 else None)


def test_group_that_may_not_begin_at_the_first_message_gets_no_0(tmp_path: Path) -> None:
    it = World(tmp_path)
    it.group(consume_from_min_enable=False)
    assert it.ask(RequestCode.QUERY_CONSUMER_OFFSET).code == 22
    it.base.metadata.offsets.commit(*WHERE, 6)
    assert (it.ask(RequestCode.QUERY_CONSUMER_OFFSET).ext or {})["offset"] == "6"


def test_commit_says_whether_it_was_stored_or_a_reset_is_pending(tmp_path: Path) -> None:
    it = World(tmp_path)
    request = CommitRequest(group="readers", topic="orders", queue_id=0, offset=3)
    caller = Caller(address="")
    assert it.services.offsets.commit(request, caller) is CommitResult.STORED
    it.base.metadata.offsets.reset(*WHERE, 1)
    assert it.services.offsets.commit(request, caller) is CommitResult.RESET_PENDING
    assert it.base.metadata.offsets.committed(*WHERE) == 1


def test_where_a_group_begins_follows_a_setting_that_changes(tmp_path: Path) -> None:
    it = World(tmp_path)
    assert it.ask(RequestCode.QUERY_CONSUMER_OFFSET).code == 0
    it.services.offsets.follow(OffsetConfig(new_queue_zero=False))
    assert it.ask(RequestCode.QUERY_CONSUMER_OFFSET).code == 22
