"""Topics and groups that are deleted and made again under messages in flight."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from typing import TYPE_CHECKING

import pytest

from broker_harness import dispatched
from pop_harness import GROUP, TOPIC, ack_command, invisible_command, pop
from pop_world import GROUP as WORLD_GROUP
from pop_world import TOPIC as WORLD_TOPIC
from pop_world import PopWorld
from roquet.protocol import names
from roquet.protocol.codes import RequestCode, ResponseCode
from roquet.protocol.command import Command
from roquet.store.marks import deleted
from roquet.store.records import read_records
from roquet.store.tables.deletions import Deletions
from roquet.testing.cluster import cluster

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from pop_harness import Popped
    from roquet.store.store import MessageStore
    from roquet.testing.cluster import Cluster

ORDERED = {"order": "true", "queueId": "0"}


async def _sent(it: Cluster, word: str, count: int = 4) -> None:
    for number in range(count):
        await it.send(TOPIC, f"{word}{number}".encode())
    await dispatched(it)


def _batches(folder: Path) -> bytes:
    """Return the file of batches."""
    return next(folder.rglob("consumerOrderInfo.json")).read_bytes()


def _put_back(folder: Path, batches: bytes | None) -> None:
    """Put an older file of batches in the place of the present one, or none."""
    file = next(folder.rglob("consumerOrderInfo.json"))
    file.with_name(file.name + ".bak").unlink(missing_ok=True)
    if batches is None:
        file.unlink()
    else:
        file.write_bytes(batches)


async def _made_again(it: Cluster, *, topic: bool) -> None:
    if topic:
        gone = Command(RequestCode.DELETE_TOPIC_IN_BROKER, ext={"topic": TOPIC})
    else:
        fields = {"groupName": GROUP, "cleanOffset": "true"}
        gone = Command(RequestCode.DELETE_SUBSCRIPTIONGROUP, ext=fields)
    assert (await it.call(gone)).code == ResponseCode.SUCCESS
    # Handles name milliseconds.
    await asyncio.sleep(0.005)


async def _passes_nothing(it: Cluster, old: Popped, *, left: list[bytes]) -> None:
    """See that handles of the former batch settle nothing."""
    stale = old.handles[-len(left)]
    # Whatever it is answered: as one of another pop, or of none.
    await it.call(ack_command(stale))
    changed = await it.call(invisible_command(stale))
    assert changed.code != ResponseCode.SUCCESS
    got = await pop(it, **ORDERED, attemptId="other")
    assert got.bodies == left


@pytest.mark.parametrize("topic", [True, False])
def test_stale_ack_of_an_ordered_batch_passes_no_message_of_the_new_life(
    tmp_path: Path, *, topic: bool
) -> None:
    async def tell() -> None:
        async with cluster(tmp_path) as it:
            await _sent(it, "old")
            old = await pop(it, **ORDERED)
            assert len(old.bodies) == 4
            await _made_again(it, topic=topic)
            if topic:
                await _sent(it, "new")
            first = await pop(it, **ORDERED, maxMsgNums="1")
            word = "new" if topic else "old"
            assert first.bodies == [f"{word}0".encode()]
            assert (await it.call(ack_command(first.handles[0]))).code == ResponseCode.SUCCESS
            left = [f"{word}{number}".encode() for number in (1, 2, 3)]
        # Without a batch, as after a crash, the first message of a group moves it.
        _put_back(tmp_path, None)
        async with cluster(tmp_path) as it:
            await _passes_nothing(it, old, left=left)

    asyncio.run(tell())


def test_batch_of_a_former_topic_in_the_file_is_forgotten_at_the_start(tmp_path: Path) -> None:
    async def tell() -> None:
        async with cluster(tmp_path) as it:
            await _sent(it, "old")
            old = await pop(it, **ORDERED)
        kept = _batches(tmp_path)
        assert old.ext["popTime"] in kept.decode()
        async with cluster(tmp_path) as it:
            await _made_again(it, topic=True)
            await _sent(it, "new")
            first = await pop(it, **ORDERED, maxMsgNums="1")
            assert (await it.call(ack_command(first.handles[0]))).code == ResponseCode.SUCCESS
        # As after a crash, the file is older than the offsets.
        _put_back(tmp_path, kept)
        async with cluster(tmp_path) as it:
            await _passes_nothing(it, old, left=[b"new1", b"new2", b"new3"])

    asyncio.run(tell())


@pytest.mark.parametrize("topic", [True, False])
def test_message_of_a_former_life_gets_no_other_invisible_time(
    tmp_path: Path, *, topic: bool
) -> None:
    async def tell() -> None:
        async with cluster(tmp_path) as it:
            await _sent(it, "old")
            old = await pop(it)
            assert len(old.bodies) == 4
            # The fast path takes this one.
            changed = await it.call(invisible_command(old.handles[0]))
            assert changed.code == ResponseCode.SUCCESS
            await _made_again(it, topic=topic)
            if topic:
                await _sent(it, "new")
            mine = await pop(it)
            assert len(mine.bodies) == 4
            for handle in old.handles[1:]:
                stale = await it.call(invisible_command(handle, invisibleTime="100"))
                assert stale.code == ResponseCode.NO_MESSAGE, stale.remark
            changed = await it.call(invisible_command(mine.handles[0]))
            assert changed.code == ResponseCode.SUCCESS

    asyncio.run(tell())


@pytest.mark.parametrize("kind", ["topic", "group"])
def test_checkpoint_of_a_former_life_copies_nothing(kind: str) -> None:
    async def story() -> None:
        world = PopWorld()
        offsets = [world.send(b"%d" % number) for number in range(3)]
        await world.pop(offsets, 10_000)
        await world.run(1)
        if kind == "topic":
            world.deletions.topic(WORLD_TOPIC)
        else:
            world.deletions.group(WORLD_GROUP)
        await world.run(1)
        mine = await world.pop(offsets[:1], 10_000)
        await world.run(30)
        # Only what was popped since.
        assert [draft.body for draft in world.again()] == [b"0"]
        assert mine.pop_time_ms > 0

    asyncio.run(story())


def test_clock_set_back_behind_a_deletion_loses_no_message() -> None:
    async def story() -> None:
        world = PopWorld()
        offsets = [world.send(b"%d" % number) for number in range(3)]
        world.clock.ms += 60_000
        world.deletions.topic(WORLD_TOPIC)
        world.clock.ms -= 60_000
        await world.run(5)
        await world.pop(offsets, 80_000)
        await world.run(120)
        assert len(world.again()) == 3

    asyncio.run(story())


@pytest.mark.parametrize("offsets", ["true", "false"])
def test_group_that_is_deleted_and_made_again_has_the_former_retry_topic(
    tmp_path: Path, offsets: str
) -> None:
    """As with RocketMQ, whose tool deletes that topic by itself when it deletes in a cluster."""

    async def tell() -> None:
        async with cluster(tmp_path) as it:
            retry = names.retry_topic(GROUP)
            assert (await it.send(retry, b"tried")).code == ResponseCode.SUCCESS
            await dispatched(it)
            assert (await it.pull(retry, 0, consumerGroup=GROUP)).code == ResponseCode.SUCCESS
            ext = {"consumerGroup": GROUP, "topic": retry, "queueId": "0", "commitOffset": "1"}
            commit = Command(RequestCode.UPDATE_CONSUMER_OFFSET, ext=ext)
            assert (await it.call(commit)).code == ResponseCode.SUCCESS
            fields = {"groupName": GROUP, "cleanOffset": offsets}
            gone = Command(RequestCode.DELETE_SUBSCRIPTIONGROUP, ext=fields)
            assert (await it.call(gone)).code == ResponseCode.SUCCESS
            left = it.broker.metadata.offsets.committed(GROUP, retry, 0)
            assert left == (None if offsets == "true" else 1)
            # The first request of a group makes it.
            pulled = await it.pull(retry, 0, consumerGroup=GROUP)
            assert [record.body for record in read_records(pulled.body)] == [b"tried"]

    asyncio.run(tell())


def _kill_at(folder: Path, moment: int, patch: pytest.MonkeyPatch) -> Path:
    """Copy the files at one moment of the next deletion: what a kill there leaves.

    Moment 0 is before the first queues go, and each later one behind those of one more topic.
    """
    left, passed = folder / "left", [0]

    def copy() -> None:
        if passed[0] == moment:
            # A checkpoint is written meanwhile: its side file may be gone already.
            with contextlib.suppress(shutil.Error):
                shutil.copytree(folder / "run", left)
        passed[0] += 1

    remove = deleted.delete

    async def delete(store: MessageStore, topic: str) -> None:
        if passed[0] == 0:
            copy()
        await remove(store, topic)
        copy()

    patch.setattr(deleted, "delete", delete)
    return left


@pytest.mark.parametrize("moment", [0, 1, 2, 3])
def test_deletion_that_a_kill_interrupted_is_done_or_has_not_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: int
) -> None:
    run, invisible = tmp_path / "run", {"invisibleTime": "1000"}
    left = _kill_at(tmp_path, moment, monkeypatch)

    async def before() -> None:
        async with cluster(run, reviveInterval="100") as it:
            await _sent(it, "old")
            for group in (GROUP, "others"):
                await pop(it, consumerGroup=group, maxMsgNums="2", **invisible)
            await _until_again(it, {GROUP, "others"})
            await pop(it, consumerGroup="third", **invisible)
            await _made_again(it, topic=True)

    async def after() -> None:
        async with cluster(left, reviveInterval="100") as it:
            topics = it.broker.metadata.topics
            retries = {name for name in topics.all() if name.endswith(f"_{TOPIC}")}
            if moment == 0:
                assert topics.get(TOPIC) is not None
                assert len(retries) == 2
                # The group of the checkpoint is owed what it popped.
                await _until_again(it, {"third"})
                return
            assert topics.get(TOPIC) is None
            assert not retries
            await _sent(it, "new", 2)
            await asyncio.sleep(1.5)
            for group in (GROUP, "others", "third"):
                assert (await pop(it, consumerGroup=group)).bodies == [b"new0", b"new1"]
                assert not (await pop(it, consumerGroup=group)).bodies

    asyncio.run(before())
    assert left.exists()
    asyncio.run(after())


async def _until_again(it: Cluster, groups: set[str]) -> None:
    """Wait until messages of groups were stored again."""
    store = it.broker.store
    for _ in range(400):
        if all(store.max_offset(f"%RETRY%{group}_{TOPIC}", 0) for group in groups):
            return
        await asyncio.sleep(0.02)
    raise AssertionError("what nobody acknowledged did not come again")


def test_topic_made_again_before_its_former_deletion_ended_keeps_its_messages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, left = tmp_path / "run", tmp_path / "left"
    ends: list[None] = []

    async def before() -> None:
        async with cluster(run) as it:
            await _sent(it, "old")
            end = Deletions.end

            def late(known: Deletions, topic: str) -> None:
                ends.append(None)
                shutil.copytree(run, left)
                end(known, topic)

            remove = it.broker.metadata.offsets.remove_topic

            async def meanwhile(topic: str) -> None:
                await remove(topic)
                await _sent(it, "new")

            monkeypatch.setattr(type(it.broker.metadata.offsets), "remove_topic", _of(meanwhile))
            monkeypatch.setattr(Deletions, "end", late)
            await _made_again(it, topic=True)

    async def after() -> None:
        async with cluster(left) as it:
            assert (await pop(it)).bodies == [b"new0", b"new1", b"new2", b"new3"]

    asyncio.run(before())
    monkeypatch.undo()
    assert ends
    asyncio.run(after())


def _of(action: Callable[[str], Awaitable[None]]) -> Callable[[object, str], Awaitable[None]]:
    return lambda _, topic: action(topic)
