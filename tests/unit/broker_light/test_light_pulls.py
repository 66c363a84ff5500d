"""Pulls that name a light topic of the topic that they are for."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from broker_harness import ext, records
from light_harness import GROUP, PARENT, playing, put_group, put_parent, queue, send
from roquet.protocol.codes import RequestCode, ResponseCode
from roquet.protocol.command import Command

if TYPE_CHECKING:
    from pathlib import Path

    from roquet.testing.cluster import Cluster

FAST = pytest.mark.parametrize("fast", ["true", "false"])


@FAST
def test_pull_of_a_light_topic_gives_its_messages_alone(tmp_path: Path, fast: str) -> None:
    async def tell(it: Cluster) -> None:
        await put_parent(it)
        await put_group(it)
        await send(it, "a", b"0", b"1")
        await send(it, "b", b"other")
        # The queue of the parent says nothing: a light topic has one.
        for number in range(4):
            answer = await it.pull(PARENT, 1, liteTopic=" a ", queueId=str(number))
            assert [one.body for one in records(answer)] == [b"1"]
            assert (ext(answer)["maxOffset"], ext(answer)["nextBeginOffset"]) == ("2", "2")
        plain = await it.pull(PARENT, 0, liteTopic="  ")
        assert [one.body for one in records(plain)] == [b"0", b"1", b"other"]
        given = {"sysFlag": "5", "commitOffset": "1", "consumerGroup": GROUP}
        assert (await it.pull(PARENT, 2, liteTopic="a", **given)).code == 19
        offsets = it.broker.metadata.offsets
        assert offsets.committed(GROUP, queue("a"), 0) == 1
        assert offsets.committed(GROUP, PARENT, 0) is None

    playing(tmp_path, tell, fastPathEnable=fast)


def test_pull_of_a_light_topic_waits_for_its_messages_alone(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        await put_parent(it)
        waiting = asyncio.ensure_future(
            it.pull(PARENT, 0, liteTopic="a", suspendTimeoutMillis="20000", sysFlag="6")
        )
        await send(it, "b", b"other")
        assert not waiting.done()
        await send(it, "a", b"mine")
        assert [one.body for one in records(await waiting)] == [b"mine"]

    playing(tmp_path, tell)


def test_pull_of_a_light_topic_is_judged_by_its_parent(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        unknown = await it.pull("nobody", 0, liteTopic="a")
        assert unknown.code == ResponseCode.TOPIC_NOT_EXIST
        await put_parent(it)
        illegal = await it.pull(PARENT, 0, liteTopic="a$b")
        assert (illegal.code, "no name of a light topic" in str(illegal.remark)) == (29, True)
        wrong = await it.pull(PARENT, 0, liteTopic="a", queueId="4")
        assert (wrong.code, "queueId[4] is illegal" in str(wrong.remark)) == (29, True)

    playing(tmp_path, tell)


@FAST
@pytest.mark.parametrize("named", [True, False])
def test_pull_that_waits_when_its_light_topic_goes_begins_the_next_one_at_0(
    tmp_path: Path, fast: str, *, named: bool
) -> None:
    async def tell(it: Cluster) -> None:
        await put_parent(it)
        await send(it, "a", b"0", b"1", b"2")
        wait = {"suspendTimeoutMillis": "20000", "sysFlag": "6"}
        pull = (
            it.pull(queue("a"), 3, **wait) if named else it.pull(PARENT, 3, liteTopic="a", **wait)
        )
        waiting = asyncio.ensure_future(pull)
        # The requests of one connection are served in order.
        assert (await it.pull(PARENT, 0)).code == 0
        begun = asyncio.get_running_loop().time()
        deleted = await it.call(Command(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": PARENT}))
        assert deleted.code == 0, deleted.remark
        answer = await waiting
        # At once, long before its time is over.
        assert asyncio.get_running_loop().time() - begun < 15
        if named:
            assert answer.code == ResponseCode.PULL_OFFSET_MOVED
            assert ext(answer)["nextBeginOffset"] == "0"
        else:
            # The parent is gone as well.
            assert answer.code == ResponseCode.TOPIC_NOT_EXIST
        await put_parent(it)
        await send(it, "a", *(b"new%d" % number for number in range(5)))
        found = records(await it.pull(queue("a"), 0))
        assert [one.body for one in found] == [b"new%d" % number for number in range(5)]

    playing(tmp_path, tell, fastPathEnable=fast)
