"""Rules of pulls and commits that hold on both paths: compiled code and processors."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from broker_harness import dispatched, ext, play, records
from roquet.model.group import SubscriptionGroupConfig
from roquet.model.topic import TopicConfig
from roquet.protocol.codes import RequestCode, ResponseCode
from roquet.protocol.command import Command

if TYPE_CHECKING:
    from pathlib import Path

    from roquet.testing.cluster import Cluster

both_paths = pytest.mark.parametrize("fast", ["true", "false"])
COMMITS = "5"
"""sysFlag of a pull that commits an offset and brings its subscription."""


async def filled(it: Cluster, count: int) -> None:
    """Make topic `orders` with messages in queue 0, and a group that compiled code knows."""
    it.broker.metadata.topics.put(TopicConfig(name="orders", read_queues=4, write_queues=4))
    it.broker.metadata.groups.put(SubscriptionGroupConfig(name="readers"))
    for number in range(count):
        await it.send("orders", b"m%d" % number, properties=f"UNIQ_KEY\x01U{number}\x02")
    await dispatched(it)


def committed(it: Cluster) -> int | None:
    it.broker.path.settle()
    return it.broker.metadata.offsets.committed("readers", "orders", 0)


def answered_by_compiled_code(it: Cluster) -> int:
    return it.broker.path.native.counters()["pulls"]


def update(offset: int) -> Command:
    fields = {"consumerGroup": "readers", "topic": "orders", "queueId": "0"}
    fields["commitOffset"] = str(offset)
    return Command(RequestCode.UPDATE_CONSUMER_OFFSET, ext=fields)


@both_paths
def test_pull_that_commits_beyond_the_end_commits_the_end(tmp_path: Path, fast: str) -> None:
    async def tell(it: Cluster) -> None:
        await filled(it, 5)
        for given, then in ((3, 3), (6, 5), (2**63 - 1, 5), (-1, 5), (0, 0)):
            await it.pull("orders", sysFlag=COMMITS, commitOffset=str(given))
            assert committed(it) == then, given
        await it.pull("orders", sysFlag="4", commitOffset="2")
        assert committed(it) == 0, "no commit was asked for"
        assert bool(answered_by_compiled_code(it)) is (fast == "true")

    play(tmp_path, tell, fastPathEnable=fast)


@both_paths
def test_pull_gives_from_one_to_32_messages(tmp_path: Path, fast: str) -> None:
    async def tell(it: Cluster) -> None:
        await filled(it, 35)
        for wanted, got in ((33, 32), (2**31 - 1, 32), (32, 32), (31, 31), (1, 1), (0, 1), (-5, 1)):
            answer = await it.pull("orders", maxMsgNums=str(wanted))
            assert len(records(answer)) == got, wanted
            assert ext(answer)["nextBeginOffset"] == str(got)
        assert bool(answered_by_compiled_code(it)) is (fast == "true")

    play(tmp_path, tell, fastPathEnable=fast)


@both_paths
def test_pull_of_a_topic_without_read_permission_is_refused(tmp_path: Path, fast: str) -> None:
    async def tell(it: Cluster) -> None:
        await filled(it, 2)
        assert (await it.pull("orders")).code == ResponseCode.SUCCESS
        for perm, code in ((2, 16), (6, 0), (0, 16), (4, 0)):
            config = TopicConfig(name="orders", read_queues=4, write_queues=4, perm=perm)
            it.broker.metadata.topics.put(config)
            answer = await it.pull("orders")
            assert answer.code == code, perm
            assert ext(answer).get("forbiddenType") == (None if code == 0 else "3")

    play(tmp_path, tell, fastPathEnable=fast)


@both_paths
def test_ordered_topic_takes_no_sends_on_a_broker_without_write_permission(
    tmp_path: Path, fast: str
) -> None:
    async def tell(it: Cluster) -> None:
        for name, order in (("Ordered", True), ("Plain", False)):
            it.broker.metadata.topics.put(
                TopicConfig(name=name, read_queues=4, write_queues=4, order=order)
            )
        key = "UNIQ_KEY\x01U\x02"
        assert (await it.send("Ordered", properties=key)).code == ResponseCode.SUCCESS
        it.broker.state.permission = 4
        assert (await it.send("Ordered", properties=key)).code == ResponseCode.NO_PERMISSION
        assert (await it.send("Plain", properties=key)).code == ResponseCode.SUCCESS
        it.broker.state.permission = 6
        assert (await it.send("Ordered", properties=key)).code == ResponseCode.SUCCESS
        assert bool(it.broker.path.native.counters()["sends"]) is (fast == "true")

    play(tmp_path, tell, fastPathEnable=fast)


@both_paths
def test_pull_after_a_reset_by_the_broker_gives_the_new_offset(tmp_path: Path, fast: str) -> None:
    async def tell(it: Cluster) -> None:
        await filled(it, 5)
        assert (await it.pull("orders", 1)).code == ResponseCode.SUCCESS
        before = answered_by_compiled_code(it)
        assert bool(before) is (fast == "true")
        it.broker.metadata.offsets.reset("readers", "orders", 0, 2)
        answer = await it.pull("orders", 4)
        assert (answer.code, answer.remark) == (21, "OFFSET_RESET")
        assert ext(answer)["nextBeginOffset"] == "2"
        assert records(answer) == []
        assert answered_by_compiled_code(it) == before
        assert len(records(await it.pull("orders", 2))) == 3
        assert bool(answered_by_compiled_code(it) - before) is (fast == "true")

    play(tmp_path, tell, fastPathEnable=fast)


@both_paths
def test_commit_behind_a_pending_reset_changes_nothing(tmp_path: Path, fast: str) -> None:
    async def tell(it: Cluster) -> None:
        await filled(it, 5)
        it.broker.metadata.offsets.reset("readers", "orders", 0, 2)
        answer = await it.call(update(5))
        assert (answer.code, answer.remark) == (0, "Offset has been previously reset")
        assert committed(it) == 2
        # Another queue of the group has no reset pending.
        other = {**(update(3).ext or {}), "queueId": "1"}
        await it.call(Command(RequestCode.UPDATE_CONSUMER_OFFSET, ext=other))
        assert it.broker.metadata.offsets.committed("readers", "orders", 1) == 3
        # The pull that takes the reset may still carry the offset from before.
        answer = await it.pull("orders", 5, sysFlag=COMMITS, commitOffset="5")
        assert answer.remark == "OFFSET_RESET"
        assert committed(it) == 2
        answer = await it.call(update(4))
        assert (answer.code, answer.remark) == (0, None)
        assert committed(it) == 4

    play(tmp_path, tell, fastPathEnable=fast)
