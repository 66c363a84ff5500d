"""A deleted topic does not come back, however the broker ends."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from broker_harness import dispatched, ext, play, records
from roquet.protocol.codes import RequestCode, ResponseCode
from roquet.protocol.command import Command
from roquet.testing.cluster import pull_command
from roquet.testing.process import BrokerProcess

if TYPE_CHECKING:
    from pathlib import Path

    from roquet.testing.cluster import Cluster

DELETE = Command(RequestCode.DELETE_TOPIC_IN_BROKER, ext={"topic": "gone"})


def test_a_deleted_topic_whose_records_end_the_log_stays_away(tmp_path: Path) -> None:
    async def before(it: Cluster) -> None:
        assert (await it.send("stays", b"first")).code == 0
        for _ in range(5):
            assert (await it.send("gone", b"last")).code == 0
        await dispatched(it)
        assert (await it.call(DELETE)).code == 0

    async def after(it: Cluster) -> None:
        rows = it.broker.store.native.queues()
        assert {row[0] for row in rows} == {"stays"}
        assert it.broker.metadata.topics.get("gone") is None
        answer = await it.send("gone", b"new")
        assert ext(answer)["queueOffset"] == "0"
        await dispatched(it)
        assert [record.body for record in records(await it.pull("gone"))] == [b"new"]

    play(tmp_path, before)
    play(tmp_path, after)


@pytest.mark.parametrize("flush", ["SYNC_FLUSH", "ASYNC_FLUSH"])
def test_a_kill_right_after_the_deletion_does_not_undo_it(tmp_path: Path, flush: str) -> None:
    async def tell() -> None:
        broker = BrokerProcess(tmp_path, flushDiskType=flush)
        try:
            async with broker.client() as it:
                for number in range(20):
                    await it.send("gone", b"%d" % number)
                assert (await it.call(DELETE)).code == 0
                broker.kill()
            async with broker.client() as it:
                answer = await it.pull("gone")
                assert not records(answer)
                await it.send("stays")
                answer = await it.send("gone", b"new")
                assert ext(answer)["queueOffset"] == "0"
        finally:
            broker.kill()

    asyncio.run(tell())


def test_topic_whose_deletion_fails_stays_as_it_was(tmp_path: Path) -> None:
    def folder() -> Path:
        return next(tmp_path.rglob("commitlog")).parent

    async def tell(it: Cluster) -> None:
        for number in range(3):
            assert (await it.send("gone", b"%d" % number)).code == 0
        await dispatched(it)
        broker = it.broker
        before, times = broker.metadata.topics.get("gone"), broker.metadata.deletions.export()
        # The note of deleted topics cannot be written.
        (folder() / "deletedTopics.tmp").mkdir()
        assert (await it.call(DELETE)).code == 1
        assert broker.metadata.topics.get("gone") == before
        assert broker.metadata.deletions.export() == times
        bodies = [record.body for record in records(await it.pull("gone"))]
        assert bodies == [b"0", b"1", b"2"]

    play(tmp_path, tell)


@pytest.mark.parametrize("threads", ["0", "1"])
@pytest.mark.parametrize("tag", ["*", "some"])
def test_pulls_that_wait_for_a_topic_end_with_it(tmp_path: Path, threads: str, tag: str) -> None:
    """Those of all tags wait in the core: on its thread, or on the loop without one."""

    async def tell(it: Cluster) -> None:
        held = it.broker.services.receives.held
        for topic in ("gone", "stays"):
            assert (await it.send(topic, b"first")).code == 0
        await dispatched(it)
        # Flags: wait for a message, and a subscription is given. A minute is longer than the test.
        fields = {"sysFlag": "6", "suspendTimeoutMillis": "60000", "subscription": tag}
        asked = {
            (topic, queue): pull_command(topic, 1 - queue, queueId=str(queue), **fields)
            for topic in ("gone", "stays")
            for queue in (0, 1)
        }
        waiting = {
            which: asyncio.create_task(it.client.call(it.address, command, 90.0))
            for which, command in asked.items()
        }
        async with asyncio.timeout(50):
            while held() < len(waiting):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            assert (await it.call(DELETE)).code == 0
            for queue in (0, 1):
                answer = await waiting["gone", queue]
                assert answer.code == ResponseCode.TOPIC_NOT_EXIST
                assert "topic[gone] not exist" in (answer.remark or "")
        assert held() == 2
        for queue in (0, 1):
            waiting["stays", queue].cancel()

    play(tmp_path, tell, ioThreads=threads)
