"""What was acknowledged is there after a restart; what cannot be kept is never acknowledged."""

from __future__ import annotations

import asyncio
import os
import subprocess
from typing import TYPE_CHECKING

import pytest

from broker_harness import dispatched, ext, play, records
from roquet.protocol.codes import RequestCode, ResponseCode
from roquet.protocol.command import Command
from roquet.store.results import StoreFault
from roquet.store.settings import StoreConfig
from roquet.testing.cluster import pull_command

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from roquet.store.store import MessageStore
    from roquet.testing.cluster import Cluster


def test_a_restart_keeps_topics_groups_offsets_and_messages(tmp_path: Path) -> None:
    async def before(it: Cluster) -> None:
        for number in range(20):
            answer = await it.send("orders", b"m%d" % number, d="2", queue_id=number % 2)
            assert answer.code == 0
        await dispatched(it)
        await it.pull("orders", 20, consumerGroup="g")
        commit = Command(
            RequestCode.UPDATE_CONSUMER_OFFSET,
            ext={"consumerGroup": "g", "topic": "orders", "queueId": "0", "commitOffset": "7"},
        )
        assert (await it.call(commit)).code == 0

    async def after(it: Cluster) -> None:
        config = it.broker.metadata.topics.get("orders")
        assert config is not None
        assert config.write_queues == 2
        assert it.broker.metadata.groups.get("g") is not None
        assert it.broker.metadata.offsets.query("g", "orders", 0) == 7
        for queue_id in range(2):
            found = records(await it.pull("orders", queueId=str(queue_id)))
            assert [it_.body for it_ in found] == [
                b"m%d" % number for number in range(queue_id, 20, 2)
            ]
        answer = await it.send("orders")
        assert ext(answer)["queueOffset"] == "10"

    play(tmp_path, before)
    assert not (tmp_path / "broker-a" / "abort").exists()
    play(tmp_path, after)


def test_a_topic_is_durable_before_its_first_message_is_acknowledged(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        assert (await it.send("orders")).code == 0
        assert b'"orders"' in (tmp_path / "broker-a/config/topics.json").read_bytes()

    play(tmp_path, tell)


def test_sync_flush_answers_after_the_flush_and_takes_many_at_once(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        await it.send("orders")
        answers = await asyncio.gather(*(it.send("orders") for _ in range(100)))
        assert {answer.code for answer in answers} == {0}
        native = it.broker.store.native
        assert native.flushed_offset() == native.max_physical_offset()

    play(tmp_path, tell, flushDiskType="SYNC_FLUSH")


def test_a_sync_master_without_a_slave_does_not_say_that_there_is_a_copy(tmp_path: Path) -> None:
    async def alone(it: Cluster) -> None:
        answer = await it.send("alone", b"stored all the same")
        assert answer.code == ResponseCode.SLAVE_NOT_AVAILABLE
        answer = await it.send("alone", b"waits for nobody", properties="WAIT\x01false")
        assert answer.code == ResponseCode.SUCCESS
        await dispatched(it)
        found = records(await it.pull("alone"))
        assert [record.body for record in found] == [b"stored all the same", b"waits for nobody"]

    async def told(it: Cluster) -> None:
        assert (await it.send("alone")).code == ResponseCode.SUCCESS

    play(tmp_path, alone, brokerRole="SYNC_MASTER")
    play(tmp_path, told, brokerRole="SYNC_MASTER", inSyncReplicas="1")


def wait_for_flushes(store: MessageStore, monkeypatch: pytest.MonkeyPatch, wait_ms: int) -> None:
    """Let the facade wait although the core flushes only with ASYNC_FLUSH's next round."""
    rules = StoreConfig(flush="SYNC_FLUSH", sync_flush_timeout_ms=wait_ms)
    monkeypatch.setattr(store, "_durability", rules)


def test_a_late_flush_is_said_to_be_late(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def tell(it: Cluster) -> None:
        await it.send("orders")
        wait_for_flushes(it.broker.store, monkeypatch, 100)
        answer = await it.send("orders")
        assert answer.code == 10
        assert ext(answer)["queueOffset"] == "1"
        answer = await it.send("orders", properties="WAIT\x01false\x02")
        assert answer.code == 0

    play(tmp_path, tell, flushIntervalCommitLog="60000")


def test_a_failed_flush_acknowledges_nobody_and_ends_writing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def tell(it: Cluster) -> None:
        store = it.broker.store
        assert (await it.send("orders", b"kept")).code == 0
        await dispatched(it)
        wait_for_flushes(store, monkeypatch, 20_000)
        waiting = [asyncio.create_task(it.send("orders")) for _ in range(10)]
        await asyncio.sleep(0.2)
        assert not any(task.done() for task in waiting)
        fail(store, "the disk said no")
        answers = await asyncio.gather(*waiting)
        assert {answer.code for answer in answers} == {1}
        assert all("the disk said no" in (answer.remark or "") for answer in answers)
        assert (await it.send("orders")).code == 1
        assert store.writable() == (False, "the disk said no")
        assert records(await it.pull("orders"))[0].body == b"kept"

    play(tmp_path, tell, flushIntervalCommitLog="60000")


def fail(store: MessageStore, text: str) -> None:
    """Have the store hear from its core that a flush failed."""
    real = store.native

    class Core:
        def __getattr__(self, name: str) -> object:
            return getattr(real, name)

        def take_events(self) -> tuple[int, list[tuple[str, int, int]], str | None]:
            flushed, arrivals, _ = real.take_events()
            return flushed, arrivals, text

    store._native = Core()  # type: ignore[assignment]
    store._take_events()


def test_a_closed_store_answers_without_harm(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        store = it.broker.store
        assert (await it.send("orders")).code == 0
        await store.stop()
        assert (await it.send("orders")).code == 14
        answer = await it.call(pull_command("orders"))
        assert answer.code == 1
        with pytest.raises(StoreFault) as caught:
            store.get("orders", 0, 0, 1)
        assert caught.value.kind == "closed"

    play(tmp_path, tell)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 8 MiB, where the tests may mount one."""
    folder = tmp_path / "small"
    folder.mkdir()
    mounted = (
        os.geteuid() == 0
        and not subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(folder)],
            check=False,
            capture_output=True,
        ).returncode
    )
    if not mounted:
        pytest.skip("mounting a small file system is not allowed here")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_3511_1790_a_full_disk_is_said_reads_go_on_and_space_heals_it(small_disk: Path) -> None:
    async def tell(it: Cluster) -> None:
        sent = 0
        while (answer := await it.send("orders", b"x" * 60_000)).code == 0:
            sent += 1
            assert sent < 200
        assert sent > 10
        assert answer.code == 14
        assert "disk" in (answer.remark or "")
        assert (await it.send("orders", b"x" * 60_000)).code == 14
        await dispatched(it)
        offset = 0
        while found := records(await it.pull("orders", offset)):
            offset += len(found)
        assert offset == sent
        (small_disk / "ballast").unlink()
        for _ in range(300):
            answer = await it.send("orders", b"x" * 60_000)
            if answer.code == 0:
                break
            await asyncio.sleep(0.1)
        assert answer.code == 0
        assert ext(answer)["queueOffset"] == str(sent)

    (small_disk / "ballast").write_bytes(b"b" * 3_000_000)
    play(small_disk, tell, messageIndexEnable="false")
