"""Ends of transactions and resumed checks: what is refused, with which words, and what is done."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import TYPE_CHECKING, Any, ClassVar

import pytest

from roquet.acl.accounts import build
from roquet.acl.guard import Guard
from roquet.acl.needs import broker_needs
from roquet.broker.api.caller import Caller
from roquet.broker.api.refusal import Reason, Refusal
from roquet.broker.api.transactions import ResumeChecksRequest, Verdict
from roquet.broker.services.topic_checks import SendChecks
from roquet.broker.services.transactions import HalfDoor
from roquet.broker.transactions import drafts
from roquet.protocol import properties as props
from roquet.store.results import Draft, PutStatus
from transaction_world import GROUP, HOST, IDENTITY, RULES, SENDER, World

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

HALF, OP, ASIDE = drafts.HALF_TOPIC, drafts.OP_TOPIC, "TRANS_CHECK_MAX_TIME_TOPIC"
NOT_FOUND = "Find prepared transaction message failed"
NOT_PUT_BACK = "Put message back to RMQ_SYS_TRANS_HALF_TOPIC failed."
ILLEGAL = (
    "The message is illegal, maybe msg body or properties length not matched. msg body length limit"
    " 77B, msg properties length limit 32KB."
)


def play(world: World, tell: Callable[[World], Awaitable[None]]) -> None:
    async def told() -> None:
        await world.start()
        await tell(world)
        await world.service.stop()

    asyncio.run(told())


async def refused(done: Awaitable[None]) -> tuple[Reason, str]:
    with pytest.raises(Refusal) as caught:
        await done
    return caught.value.reason, caught.value.text


# --- what is refused ----------------------------------------------------------------------------


def test_end_that_does_not_name_its_half_message_is_refused_and_it_stays_open(
    tmp_path: Path,
) -> None:
    async def tell(it: World) -> None:
        plain, half = await it.put("orders", {}), await it.half()
        wrong: list[tuple[dict[str, Any], str]] = [
            ({"physical_offset": plain.physical_offset}, NOT_FOUND),
            ({"physical_offset": 10_000}, NOT_FOUND),
            ({"producer_group": "other"}, "The producer group wrong"),
            (
                {"half_offset": half.queue_offset + 1},
                "The transaction state table offset wrong",
            ),
            ({"verdict": None}, "commitOrRollback field wrong"),
        ]
        for more, text in wrong:
            for verdict in (Verdict.COMMIT, Verdict.ROLLBACK):
                found = await refused(it.end(half, **{"verdict": verdict, **more}))
                assert found == (Reason.FAILED, text)
        # Not known yet: the producer is asked later.
        await it.end(half, Verdict.UNKNOWN, producer_group="other")
        assert it.service.book.living(half.queue_offset) == half.queue_offset
        assert it.counts.open() == {"orders": 1}
        assert it.traffic.told == []

    play(World(tmp_path), tell)


def test_end_is_refused_to_whoever_is_not_of_the_group_and_on_a_slave(tmp_path: Path) -> None:
    async def tell(it: World) -> None:
        half = await it.half()
        text = f"the producer group {GROUP} has no member that this request could be of"
        for verdict in (Verdict.COMMIT, Verdict.ROLLBACK):
            assert await refused(it.end(half, verdict, "10.0.0.9:1")) == (Reason.FAILED, text)
        it.state.is_slave = True
        assert await refused(it.end(half, Verdict.UNKNOWN)) == (Reason.NOT_MASTER, "")
        assert await refused(it.resume(half)) == (Reason.NOT_MASTER, "")
        assert it.of("orders") == []

    play(World(tmp_path), tell)


def test_end_needs_the_right_to_publish_to_the_topic_of_the_half_message(tmp_path: Path) -> None:
    class Accounts:
        entry: ClassVar = {
            "accessKey": "stranger",
            "secretKey": "secret-1",
            "topicPerms": ["other=PUB"],
        }
        table: ClassVar = build({"file": {"accounts": [entry]}})

    async def tell(it: World) -> None:
        half = await it.half()
        reason, _ = await refused(it.end(half, Verdict.ROLLBACK))
        assert reason is Reason.ACCOUNT_REFUSED
        assert it.service.book.living(half.queue_offset) == half.queue_offset

    play(World(tmp_path, rights=Guard(Accounts(), broker_needs)), tell)


@pytest.mark.parametrize(
    ("wish", "after_s", "is_late"),
    [
        ("2", 2.0, False),
        ("2", 2.0015, True),
        ("0", 1.0, False),
        ("0", 1.0015, True),
        (None, 99, False),
    ],
)
def test_end_that_nobody_asked_for_is_refused_after_the_time_that_its_producer_asked_for(
    tmp_path: Path, wish: str | None, after_s: float, *, is_late: bool
) -> None:
    async def tell(it: World) -> None:
        more = {} if wish is None else {"CHECK_IMMUNITY_TIME_IN_SECONDS": wish}
        half = await it.half(**more)
        await it.clock.advance(after_s)
        if is_late:
            expected = (Reason.ILLEGAL_OPERATION, "")
            assert await refused(it.end(half, Verdict.COMMIT)) == expected
            assert it.of("orders") == []
            # A check is believed however late its answer comes.
            await it.end(half, Verdict.COMMIT, is_answer=True)
        else:
            await it.end(half, Verdict.COMMIT)
        assert it.of("orders") == ["K"]

    play(World(tmp_path), tell)


def test_commit_of_a_half_message_that_names_no_place_is_refused_and_a_rollback_is_done(
    tmp_path: Path,
) -> None:
    async def tell(it: World) -> None:
        half = await it.put(HALF, {"UNIQ_KEY": "K", "PGROUP": GROUP, "REAL_TOPIC": "orders"})
        it.service.opened("orders")
        assert await refused(it.end(half, Verdict.COMMIT)) == (Reason.FAILED, NOT_FOUND)
        await it.end(half, Verdict.ROLLBACK)
        assert it.service.book.living(half.queue_offset) is None
        assert it.counts.rollbacks == {"orders": 1}

    play(World(tmp_path), tell)


OUTCOMES = [
    (PutStatus.SERVICE_NOT_AVAILABLE, Reason.STORE_UNAVAILABLE, "Service not available now."),
    (PutStatus.CREATE_MAPPED_FILE_FAILED, Reason.FAILED, "Create mapped file failed."),
    (PutStatus.MESSAGE_ILLEGAL, Reason.ILLEGAL_MESSAGE, ILLEGAL),
    (PutStatus.PROPERTIES_SIZE_EXCEEDED, Reason.ILLEGAL_MESSAGE, ILLEGAL),
    (
        PutStatus.OS_PAGE_CACHE_BUSY,
        Reason.FAILED,
        "OS page cache busy, please try another machine",
    ),
    (PutStatus.UNKNOWN_ERROR, Reason.FAILED, "UNKNOWN_ERROR"),
    (PutStatus.IN_SYNC_REPLICAS_NOT_ENOUGH, Reason.FAILED, "in-sync replicas not enough"),
    (PutStatus.WHEEL_TIMER_FLOW_CONTROL, Reason.FAILED, "UNKNOWN_ERROR DEFAULT"),
    (PutStatus.WHEEL_TIMER_MSG_ILLEGAL, Reason.ILLEGAL_MESSAGE, "timer message illegal"),
    (
        PutStatus.WHEEL_TIMER_NOT_ENABLE,
        Reason.FAILED,
        "accurate timer message is not enabled, timerWheelEnable is false",
    ),
]


@pytest.mark.parametrize(("status", "reason", "text"), OUTCOMES)
def test_commit_that_is_not_stored_is_refused_by_its_outcome_and_can_be_tried_again(
    tmp_path: Path, status: PutStatus, reason: Reason, text: str
) -> None:
    async def tell(it: World) -> None:
        it.ends.follow_size(77)
        half = await it.half()
        it.store.statuses = [status]
        found = await refused(it.end(half, Verdict.COMMIT))
        assert found == (reason, f"{text} (a test says so)")
        assert it.traffic.told == []
        assert (it.counts.open(), it.counts.commits) == ({"orders": 1}, {})
        assert not it.service.is_ending(half.queue_offset)
        await it.end(half, Verdict.COMMIT)
        assert it.of("orders") == ["K"]

    play(World(tmp_path), tell)


# --- what is done -------------------------------------------------------------------------------


def test_commit_is_the_message_in_its_place_counted_and_told_once(tmp_path: Path) -> None:
    async def tell(it: World) -> None:
        half = await it.half()
        for _ in range(2):
            await it.end(half, Verdict.COMMIT)
        (seen,) = it.store.of("orders")
        assert (seen.queue_id, seen.prepared_transaction_offset) == (3, half.physical_offset)
        assert it.traffic.told == [("stored", "orders", 3, PutStatus.PUT_OK)]
        assert (it.counts.commits, it.counts.rollbacks) == ({"orders": 1}, {})
        assert it.counts.open() == {"orders": 0}
        # The op record gathers: nobody loses anything by a second commit after a crash.
        assert it.of(OP) == []

    play(World(tmp_path), tell)


@pytest.mark.parametrize("is_awaited", [True, False])
def test_rollback_is_written_down_before_the_answer_to_whoever_waits_for_it(
    tmp_path: Path, *, is_awaited: bool
) -> None:
    async def tell(it: World) -> None:
        half = await it.half()
        await it.end(half, Verdict.ROLLBACK, is_awaited=is_awaited)
        assert it.of(OP) == (["0,"] if is_awaited else [])
        assert it.of("orders") == []
        assert (it.counts.commits, it.counts.rollbacks) == ({}, {"orders": 1})

    play(World(tmp_path), tell)


# --- checks that an administrator resumes -------------------------------------------------------


def test_resumed_half_message_counts_at_its_copy_with_no_checks(tmp_path: Path) -> None:
    async def tell(it: World) -> None:
        half = await it.half(TRANSACTION_CHECK_TIMES="9")
        await it.resume(half)
        (_, copy) = it.store.of(HALF)
        assert props.read(copy.properties)["TRANSACTION_CHECK_TIMES"] == "0"
        # The administrator is told of what is durable.
        assert it.store.waits[-1] is True
        assert it.service.book.living(half.queue_offset) == copy.queue_offset
        assert it.counts.open() == {"orders": 1}
        assert await refused(it.resume(half)) == (Reason.FAILED, NOT_PUT_BACK)

    play(World(tmp_path), tell)


def test_resumed_message_that_was_put_aside_is_open_again(tmp_path: Path) -> None:
    async def tell(it: World) -> None:
        half = await it.half()
        aside = await it.put(ASIDE, props.read(half.properties), b"K")
        await it.end(half, Verdict.ROLLBACK)
        await it.resume(aside)
        copy = it.store.of(HALF)[-1]
        assert it.service.book.living(copy.queue_offset) == copy.queue_offset
        assert it.counts.open() == {"orders": 1}
        await it.end(copy, Verdict.COMMIT)
        assert it.of("orders") == ["K"]
        # Brought back once more, it is known by its key to be committed.
        await it.resume(aside)
        await it.end(it.store.of(HALF)[-1], Verdict.COMMIT)
        assert it.of("orders") == ["K"]

    play(World(tmp_path), tell)


def test_resume_of_anything_else_is_refused_and_copies_nothing(tmp_path: Path) -> None:
    async def tell(it: World) -> None:
        plain, half = await it.put("orders", {}), await it.half()
        assert await refused(it.resume(plain)) == (Reason.FAILED, NOT_PUT_BACK)
        gone = half._replace(physical_offset=10_000)
        assert await refused(it.resume(gone)) == (Reason.FAILED, NOT_PUT_BACK)
        request = ResumeChecksRequest(message_id="no id")
        found = await refused(it.ends.resume_checks(request, Caller(address=SENDER)))
        assert found == (Reason.FAILED, "a message id has 32 or 56 hex digits")
        it.store.statuses = [PutStatus.SERVICE_NOT_AVAILABLE]
        assert await refused(it.resume(half)) == (Reason.FAILED, NOT_PUT_BACK)
        assert it.service.book.living(half.queue_offset) == half.queue_offset
        assert len(it.store.of(HALF)) == 1

    play(World(tmp_path), tell)


def test_resume_waits_until_what_is_open_is_known(tmp_path: Path) -> None:
    async def run() -> None:
        it = World(tmp_path)
        half = await it.half()
        it.store.behind = 1
        await it.service.start()
        resuming = asyncio.create_task(it.resume(half))
        await it.clock.advance(5)
        assert len(it.store.of(HALF)) == 1
        it.store.behind = 0
        await it.clock.advance(5)
        await resuming
        assert len(it.store.of(HALF)) == 2
        await it.service.stop()

    asyncio.run(run())


# --- the door to the half queue -----------------------------------------------------------------


def test_half_messages_are_taken_in_unless_the_settings_refuse_them(tmp_path: Path) -> None:
    it = World(tmp_path)
    rules = RULES
    checks = SendChecks(it.topics, it.state, IDENTITY, it.clock)
    door = HalfDoor(lambda: rules, checks, it.service)

    def draft() -> Draft:
        return Draft(
            topic="orders",
            queue_id=3,
            body=b"",
            properties={},
            born_timestamp=0,
            born_host=HOST,
            store_host=HOST,
        )

    taken = draft()
    door.divert(taken, GROUP)
    assert (door.place, taken.topic, taken.queue_id) == (HALF, HALF, 0)
    door.opened("orders")
    door.opened("orders", 4)
    assert it.counts.open() == {"orders": 5}
    rules = dataclasses.replace(RULES, reject=True)
    left = draft()
    with pytest.raises(Refusal, match="sending transaction message is forbidden"):
        door.divert(left, GROUP)
    assert (door.place, left.topic, left.queue_id) == (None, "orders", 3)
