"""Pops and acknowledgements of a broker with the merge buffer: what is stored, and when."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from broker_harness import dispatched, play
from pop_harness import (
    GROUP,
    TOPIC,
    ack_command,
    checkpoints,
    invisible_command,
    pop,
)
from roquet.protocol.codes import RequestCode
from roquet.protocol.command import Command
from roquet.protocol.pop.batch_ack import BatchAck, BatchAckBody
from roquet.store.results import PutResult, PutStatus
from roquet.testing.cluster import cluster

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from pop_harness import Popped
    from roquet.testing.cluster import Cluster

ON = {"enablePopBufferMerge": "true"}
SHORT = {**ON, "popCkStayBufferTime": "1700"}
"""Acknowledgements are merged for 200 ms, and what is left is stored after 1.7 s."""


def with_messages(folder: Path, tell: Callable[[Cluster], Awaitable[None]], **changes: str) -> None:
    """Have `tell` begin with three messages in queue 1."""

    async def run(it: Cluster) -> None:
        for number in range(3):
            await it.send(TOPIC, b"%d" % number, queue_id=1)
        await dispatched(it)
        await tell(it)

    play(folder, run, **changes)


def committed(it: Cluster) -> int | None:
    """Return the group's committed offset."""
    return it.broker.metadata.offsets.committed(GROUP, TOPIC, 1)


async def recorded(it: Cluster) -> list[dict[str, object]]:
    """Return what is stored of POP."""
    await dispatched(it)
    return checkpoints(it)


async def until_recorded(it: Cluster, count: int) -> list[dict[str, object]]:
    """Wait for so many records of POP."""
    found: list[dict[str, object]] = []
    for _ in range(600):
        found = await recorded(it)
        if len(found) >= count:
            return found
        await asyncio.sleep(0.05)
    raise AssertionError(f"{len(found)} records instead of {count}")


def _never(_: int) -> bool:
    return False


def batch_command(got: Popped, *offsets: int) -> Command:
    """Return the acknowledgement of some of the messages."""
    first = got.handles[0]
    batch = BatchAck(
        group=GROUP,
        topic=TOPIC,
        retry_flag="0",
        start_offset=first.start_offset,
        queue_id=first.queue_id,
        revive_queue=first.revive_queue,
        pop_time_ms=first.pop_time_ms,
        invisible_ms=first.invisible_ms,
        offsets=offsets,
    )
    body = BatchAckBody(broker_name="broker-a", acks=(batch,)).encode()
    return Command(RequestCode.BATCH_ACK_MESSAGE, ext={}, body=body)


def test_what_is_acknowledged_whole_is_never_stored(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        got = await pop(it)
        assert got.bodies == [b"0", b"1", b"2"]
        # The next pop goes on behind them, the committed offset waits.
        assert (await pop(it)).bodies == []
        assert committed(it) == 0
        assert (await it.call(ack_command(got.handles[1]))).code == 0
        assert committed(it) == 0
        assert (await it.call(batch_command(got, 0, 2))).code == 0
        assert committed(it) == 3
        assert await recorded(it) == []

    with_messages(tmp_path, tell, **ON)


def test_without_the_setting_everything_is_stored_at_once(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        got = await pop(it)
        assert committed(it) == 3
        assert (await it.call(ack_command(got.handles[0]))).code == 0
        assert [one["tag"] for one in await recorded(it)] == ["ck", "ack"]

    with_messages(tmp_path, tell)


@pytest.mark.parametrize(
    ("batch", "tags"), [("false", ["ck", "ack", "ack"]), ("true", ["ck", "bAck"])]
)
def test_what_is_left_after_its_stay_is_stored_with_its_acknowledgements(
    tmp_path: Path, batch: str, tags: list[str]
) -> None:
    async def tell(it: Cluster) -> None:
        got = await pop(it)
        for number in (0, 2):
            assert (await it.call(ack_command(got.handles[number]))).code == 0
        assert await recorded(it) == []
        found = await until_recorded(it, len(tags))
        assert [one["tag"] for one in found] == tags
        assert found[0]["bm"] == 0
        named = [one.get("aol", one.get("ao")) for one in found[1:]]
        assert named == ([[0, 2]] if batch == "true" else [0, 2])
        # Java's batches of the buffer name no broker.
        assert [one.get("bn") for one in found[1:]] == (
            [None] if batch == "true" else ["broker-a", "broker-a"]
        )
        assert committed(it) == 3
        # The last one comes too late to be merged.
        assert (await it.call(ack_command(got.handles[1]))).code == 0
        assert (await until_recorded(it, len(tags) + 1))[-1]["ao"] == 1

    with_messages(tmp_path, tell, enablePopBatchAck=batch, **SHORT)


def test_short_invisible_time_is_stored_at_once_and_waits_for_older_pops(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        first = await pop(it, maxMsgNums="1")
        second = await pop(it, maxMsgNums="1", invisibleTime="4000")
        assert [one["so"] for one in await recorded(it)] == [1]
        assert committed(it) == 0
        assert (await pop(it)).bodies == [b"2"]
        assert (await it.call(ack_command(second.handles[0]))).code == 0
        assert (await it.call(ack_command(first.handles[0]))).code == 0
        # Up to the third, which is in memory.
        assert committed(it) == 2

    with_messages(tmp_path, tell, **ON)


def test_other_invisible_time_is_stored_and_settles_the_old_one_in_memory(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        got = await pop(it, maxMsgNums="1")
        assert (await it.call(invisible_command(got.handles[0]))).code == 0
        (again,) = await recorded(it)
        assert (again["tag"], again["it"], again["so"]) == ("ck", 90_000, 0)
        assert committed(it) == 1

    with_messages(tmp_path, tell, **ON)


def test_orderly_stop_stores_what_is_in_memory(tmp_path: Path) -> None:
    async def first(it: Cluster) -> None:
        got = await pop(it)
        assert (await it.call(ack_command(got.handles[1]))).code == 0
        assert await recorded(it) == []

    async def second(it: Cluster) -> None:
        assert [one["tag"] for one in await recorded(it)] == ["ck", "ack"]
        assert committed(it) == 3
        assert (await pop(it)).bodies == []

    with_messages(tmp_path, first, **ON)
    play(tmp_path, second, **ON)


def test_what_a_crash_takes_from_memory_is_popped_again(tmp_path: Path) -> None:
    async def run() -> None:
        async with cluster(tmp_path / "live", **ON) as it:
            for number in range(3):
                await it.send(TOPIC, b"%d" % number, queue_id=1)
            await dispatched(it)
            got = await pop(it)
            assert (await it.call(ack_command(got.handles[1]))).code == 0
            # What a kill at this moment would leave is what a stop with a dead store leaves.
            await it.broker.metadata.persist_offsets()
            assert committed(it) == 0
            assert await recorded(it) == []

            it.broker.store.append = lambda drafts: [  # type: ignore[method-assign]
                PutResult(PutStatus.SERVICE_NOT_AVAILABLE, why="dead") for _ in drafts
            ]
        async with cluster(tmp_path / "live", **ON) as it:
            assert await recorded(it) == []
            assert committed(it) == 0
            assert (await pop(it)).bodies == [b"0", b"1", b"2"]

    asyncio.run(run())


def test_switching_off_stores_what_is_in_memory(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        await pop(it)
        assert await recorded(it) == []
        body = b"enablePopBufferMerge=false\n"
        assert (
            await it.call(Command(RequestCode.UPDATE_BROKER_CONFIG, ext={}, body=body))
        ).code == 0
        assert [one["tag"] for one in await until_recorded(it, 1)] == ["ck"]
        assert committed(it) == 3

    with_messages(tmp_path, tell, **ON)


def test_reset_stores_what_is_in_memory_and_goes_back(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        await pop(it)
        it.broker.metadata.offsets.reset(GROUP, TOPIC, 1, 1)
        assert (await pop(it)).bodies == [b"1", b"2"]
        assert [one["so"] for one in await recorded(it)] == [0]
        assert committed(it) == 1

    with_messages(tmp_path, tell, **ON)


async def set_offset(it: Cluster, offset: int) -> None:
    """Set the group's committed offset as an operator does."""
    ext = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": "1", "commitOffset": str(offset)}
    answer = await it.call(Command(RequestCode.UPDATE_CONSUMER_OFFSET, ext=ext))
    assert answer.code == 0, answer


def test_offset_lowered_while_checkpoints_are_in_memory_holds(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        first = await pop(it)
        for handle in first.handles:
            assert (await it.call(ack_command(handle))).code == 0
        assert committed(it) == 3
        for number in range(3, 6):
            await it.send(TOPIC, b"%d" % number, queue_id=1)
        await dispatched(it)
        second = await pop(it, maxMsgNums="2")
        assert second.bodies == [b"3", b"4"]
        await set_offset(it, 1)
        # What was popped before is settled, and takes nothing back.
        for handle in second.handles:
            assert (await it.call(ack_command(handle))).code == 0
        assert committed(it) == 1
        again = await pop(it)
        assert again.bodies == [b"1", b"2", b"3", b"4", b"5"]
        assert committed(it) == 1
        for handle in again.handles:
            assert (await it.call(ack_command(handle))).code == 0
        assert committed(it) == 6
        assert await recorded(it) == []

    with_messages(tmp_path, tell, **ON)


def test_pops_go_on_at_an_offset_lowered_below_what_is_in_flight(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        first = await pop(it, maxMsgNums="1")
        assert (await it.call(ack_command(first.handles[0]))).code == 0
        second = await pop(it)
        assert second.bodies == [b"1", b"2"]
        await set_offset(it, 0)
        again = await pop(it)
        assert again.bodies == [b"0", b"1", b"2"]
        # An older checkpoint moves the group no more, whatever becomes of it.
        for handle in second.handles:
            assert (await it.call(ack_command(handle))).code == 0
        assert committed(it) == 0
        assert (await pop(it)).bodies == []
        for handle in again.handles:
            assert (await it.call(ack_command(handle))).code == 0
        assert committed(it) == 3

    with_messages(tmp_path, tell, **ON)


def test_offset_lowered_while_a_checkpoint_is_being_stored_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def tell(it: Cluster) -> None:
        first = await pop(it, maxMsgNums="2")
        assert first.bodies == [b"0", b"1"]
        settled = it.broker.store.settled

        async def meanwhile(result: PutResult, wait: bool) -> PutResult:
            it.broker.metadata.offsets.commit(GROUP, TOPIC, 1, 1)
            return await settled(result, wait)

        with monkeypatch.context() as patched:
            patched.setattr(it.broker.store, "settled", meanwhile)
            patched.setattr(it.broker.store, "is_settled", _never)
            assert (await pop(it)).bodies == [b"2"]
        assert committed(it) == 1
        assert (await pop(it)).bodies == [b"1", b"2"]

    with_messages(tmp_path, tell, fastPathEnable="false")


def test_topic_made_anew_begins_at_its_start(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        got = await pop(it)
        delete = Command(RequestCode.DELETE_TOPIC_IN_BROKER, ext={"topic": TOPIC})
        assert (await it.call(delete)).code == 0
        assert committed(it) is None
        await it.send(TOPIC, b"new", queue_id=1)
        await dispatched(it)
        assert (await pop(it)).bodies == [b"new"]
        assert (await it.call(batch_command(got, 0, 1))).code == 0
        assert committed(it) == 0

    with_messages(tmp_path, tell, **ON)


@pytest.mark.parametrize("setting", ["popCkMaxBufferSize", "popCkOffsetMaxQueueSize"])
def test_more_checkpoints_than_may_wait_are_stored_at_once(tmp_path: Path, setting: str) -> None:
    async def tell(it: Cluster) -> None:
        assert len((await pop(it, maxMsgNums="1")).bodies) == 1
        assert await recorded(it) == []
        assert len((await pop(it, maxMsgNums="1")).bodies) == 1
        assert [one["so"] for one in await recorded(it)] == [1]
        assert committed(it) == 0

    with_messages(tmp_path, tell, **ON, **{setting: "1"})


def test_checkpoint_is_stored_before_its_margin(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        await pop(it, invisibleTime="62000")
        (one,) = await until_recorded(it, 1)
        assert one["tag"] == "ck"

    # 62 s less the margin of 60 s: it is stored 2 s after the pop, and could stay for an hour.
    long = {"popCkStayBufferTime": "3600000", "popCkStayBufferTimeOut": "60000"}
    with_messages(tmp_path, tell, **ON, **long)


def test_checkpoints_are_stored_in_the_order_in_which_their_stay_ends(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        await pop(it, maxMsgNums="1", invisibleTime="60000")
        await pop(it, maxMsgNums="1", invisibleTime="8000")
        assert [one["so"] for one in await until_recorded(it, 2)] == [0, 1]

    # With a longer stay the margin of the second would end before the stay of the first.
    with_messages(tmp_path, tell, **ON, popCkStayBufferTime="200")


@pytest.mark.parametrize(
    ("setting", "is_late"), [("appendCkAsync", False), ("appendAckAsync", True)]
)
def test_records_wait_for_their_flush_unless_they_may_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, setting: str, *, is_late: bool
) -> None:
    async def tell(it: Cluster) -> None:
        asked: list[bool] = []
        settled = it.broker.store.settled

        async def noted(result: PutResult, wait: bool) -> PutResult:
            asked.append(wait)
            return await settled(result, wait)

        monkeypatch.setattr(it.broker.store, "settled", noted)
        monkeypatch.setattr(it.broker.store, "is_settled", _never)
        got = await pop(it)
        assert (await it.call(ack_command(got.handles[0]))).code == 0
        assert asked == [is_late, not is_late]

    with_messages(tmp_path, tell, **{setting: "true"}, fastPathEnable="false")
