"""Rounds of checks and the start of the service: who is asked about what, and what is left."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from typing import TYPE_CHECKING

import pytest

from roquet.broker.api.transactions import Verdict
from roquet.broker.transactions import checks as checks_module
from roquet.broker.transactions import drafts
from roquet.model.topic import READ_WRITE
from roquet.protocol import properties as props
from roquet.protocol.messages import sys_flag
from roquet.store.results import PutStatus, StoreFault
from transaction_world import GROUP, RULES, World

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from roquet.broker.clients.registry import Client
    from roquet.store.records import Record

HALF, OP, ASIDE = drafts.HALF_TOPIC, drafts.OP_TOPIC, "TRANS_CHECK_MAX_TIME_TOPIC"
CHECKS, FIRST = "TRANSACTION_CHECK_TIMES", "TRAN_PREPARED_QUEUE_OFFSET"


def play(world: World, tell: Callable[[World], Awaitable[None]]) -> None:
    async def told() -> None:
        await world.start()
        await tell(world)
        await world.service.stop()

    asyncio.run(told())


def committed(it: World, topic: str) -> int | None:
    return it.offsets.committed(drafts.GROUP, topic, drafts.QUEUE_ID)


# --- a round ------------------------------------------------------------------------------------


def test_check_copies_the_half_message_and_asks_about_the_copy(tmp_path: Path) -> None:
    async def tell(it: World) -> None:
        it.join("p")
        half = await it.half()
        await it.clock.advance(1)
        for times in (1, 2):
            await it.checks.round()
            copy = it.store.of(HALF)[-1]
            assert props.read(copy.properties)[CHECKS] == str(times)
            assert (copy.body, copy.born_timestamp) == (half.body, half.born_timestamp)
            assert it.questions.asked == [("p", copy)]
            it.questions.asked.clear()
            assert it.service.book.living(half.queue_offset) == copy.queue_offset
            assert it.store.waits[-1] is False
            assert it.traffic.told == [
                ("looked at", drafts.GROUP, HALF, 100),
                ("moved", HALF, 100),
            ]
            it.traffic.told.clear()
        assert it.checks.sent == 2
        # All before the copy is settled by it.
        assert committed(it, HALF) == 2
        assert it.counts.open() == {"orders": 1}

    play(World(tmp_path), tell)


def test_round_ends_at_the_first_half_message_that_is_too_young(tmp_path: Path) -> None:
    async def tell(it: World) -> None:
        it.join("p")
        await it.half("old")
        await it.half("patient", CHECK_IMMUNITY_TIME_IN_SECONDS="60")
        await it.half("due")
        await it.clock.advance(1)
        await it.half("young")
        await it.checks.round()
        assert it.questions.taken() == ["old", "due"]
        await it.clock.advance(0.9995)
        await it.checks.round()
        assert it.questions.taken() == []
        await it.clock.advance(0.001)
        await it.checks.round()
        assert it.questions.taken() == ["young", "old", "due"]

    play(World(tmp_path), tell)


def test_round_goes_on_in_the_next_when_it_takes_longer_than_a_minute(tmp_path: Path) -> None:
    async def tell(it: World) -> None:
        it.join("p")
        for number in range(4):
            await it.half(f"K{number}")
        await it.clock.advance(1)
        ask = it.questions.ask

        def slowly(producer: Client, half: Record, properties: dict[str, str]) -> None:
            it.clock.set_by(1000)
            it.clock.be_busy(30)
            ask(producer, half, properties)

        it.questions.ask = slowly  # type: ignore[method-assign]
        # That the clock was set does not count.
        await it.checks.round()
        assert it.questions.taken() == ["K0", "K1"]
        await it.checks.round()
        assert it.questions.taken() == ["K2", "K3"]

    play(World(tmp_path), tell)


@pytest.mark.parametrize(("count", "turns"), [(31, 0), (32, 1), (63, 1), (64, 2)])
def test_round_lets_other_work_have_its_turn_after_each_32_half_messages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int, turns: int
) -> None:
    given: list[int] = []

    async def give_way() -> None:
        given.append(1)

    monkeypatch.setattr(checks_module, "give_way", give_way)

    async def tell(it: World) -> None:
        for number in range(count):
            await it.half(f"K{number}")
        await it.clock.advance(1)
        await it.checks.round()
        assert len(given) == turns

    play(World(tmp_path), tell)


def test_round_begins_where_the_half_queue_begins(tmp_path: Path) -> None:
    async def tell(it: World) -> None:
        it.join("p")
        for number in range(3):
            await it.half(f"K{number}")
        await it.clock.advance(1)
        it.store.first[HALF, 0] = 2
        await it.checks.round()
        assert it.questions.taken() == ["K2"]
        assert committed(it, HALF) == 3

    play(World(tmp_path), tell)


def test_round_waits_until_what_is_open_is_known(tmp_path: Path) -> None:
    async def run() -> None:
        it = World(tmp_path)
        it.join("p")
        await it.half()
        it.store.behind = 1
        await it.service.start()
        rounds = asyncio.create_task(it.checks.round())
        await it.clock.advance(5)
        assert it.questions.asked == []
        it.store.behind = 0
        await it.clock.advance(5)
        await rounds
        assert it.questions.taken() == ["K"]
        await it.service.stop()

    asyncio.run(run())


def test_half_message_that_cannot_be_read_is_passed_over_and_settled(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def tell(it: World) -> None:
        it.join("p")
        missing, damaged, _ = [await it.half(f"K{number}") for number in range(3)]
        it.store.missing.add(missing.physical_offset)
        it.store.faults[damaged.physical_offset] = StoreFault("corrupt", "a test says so")
        await it.clock.advance(1)
        with caplog.at_level(logging.ERROR, "roquet.broker.transactions"):
            await it.checks.round()
        assert it.questions.taken() == ["K2"]
        assert [it.service.book.living(at) for at in (0, 1)] == [None, None]
        text = "the half message at offset {} cannot be read and is passed over"
        assert caplog.messages == [text.format(0), text.format(1)]
        # A disk that fails is no damage: nothing is settled by it.
        other = await it.half("K3")
        it.store.faults[other.physical_offset] = StoreFault("io", "a test says so")
        with pytest.raises(StoreFault):
            await it.checks.round()
        assert it.service.book.living(other.queue_offset) == other.queue_offset

    play(World(tmp_path), tell)


@pytest.mark.parametrize("when", ["copied", "put aside"])
def test_round_ends_when_the_store_takes_no_message_and_nothing_is_lost(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, when: str
) -> None:
    async def tell(it: World) -> None:
        it.join("p")
        for number in range(2):
            half = await it.half(f"K{number}")
            if when == "put aside":
                given = {**props.read(half.properties), CHECKS: "3"}
                it.store.log[-1] = half._replace(properties=props.write(given).encode())
        await it.clock.advance(1)
        it.store.statuses = [PutStatus.OS_PAGE_CACHE_BUSY]
        await it.checks.round()
        assert it.questions.asked == []
        assert len(it.store.log) == 2
        assert [it.service.book.living(at) for at in (0, 1)] == [0, 1]
        assert it.counts.open() == {"orders": 2}
        assert caplog.messages == [f"a half message was not {when}: OS_PAGE_CACHE_BUSY"]
        await it.checks.round()
        assert len(it.store.log) == 4

    play(World(tmp_path), tell)


def test_half_message_is_put_aside_after_as_many_checks_as_the_settings_say(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def tell(it: World) -> None:
        it.join("p")
        half = await it.half()
        await it.clock.advance(1)
        for _ in range(3):
            await it.checks.round()
        assert it.checks.sent == 3
        assert it.store.of(ASIDE) == []
        await it.half("young")
        await it.checks.round()
        (aside,) = it.store.of(ASIDE)
        assert (aside.body, aside.queue_id) == (half.body, 0)
        assert it.store.waits[-1] is False
        topic = it.topics.get(ASIDE)
        assert topic is not None
        assert (topic.read_queues, topic.write_queues, topic.perm) == (1, 1, READ_WRITE)
        assert ASIDE in (tmp_path / "topics.json").read_text()
        assert it.counts.open() == {"orders": 1}
        assert it.service.book.living(half.queue_offset) is None
        await it.checks.round()
        assert len(it.store.of(ASIDE)) == 1
        assert caplog.messages == [
            f"the half message K for orders was asked about 3 times and is put aside in {ASIDE}"
        ]

    play(World(tmp_path), tell)


@pytest.mark.parametrize(("keep_hours", "hours"), [(2, 2), (1, 1), (0, 1)])
def test_half_message_is_put_aside_before_its_file_is_deleted(
    tmp_path: Path, keep_hours: int, hours: int
) -> None:
    async def tell(it: World) -> None:
        await it.half()
        await it.clock.advance(hours * 3600)
        await it.checks.round()
        assert it.of(ASIDE) == []
        await it.clock.advance(0.0015)
        await it.checks.round()
        assert it.of(ASIDE) == ["K"]

    play(World(tmp_path, keep_hours=keep_hours), tell)


def test_age_of_a_copy_is_that_of_the_first_half_message(tmp_path: Path) -> None:
    """Copies of Java brokers name the first place; theirs that is gone count by the born time."""

    async def tell(it: World) -> None:
        it.join("p")
        first = await it.half("first")
        await it.end(first, Verdict.ROLLBACK)
        await it.clock.advance(0.6)
        given = {**props.read(first.properties), "UNIQ_KEY": "copy", FIRST: "0"}
        await it.put(HALF, given)
        await it.put(HALF, {**given, "UNIQ_KEY": "long", FIRST: "0" * 19})
        await it.clock.advance(0.4)
        await it.checks.round()
        # The second one names no offset, and is as young as it looks.
        assert it.questions.taken() == ["copy"]
        await it.clock.advance(0.6)
        await it.checks.round()
        assert "long" in it.questions.taken()

    play(World(tmp_path), tell)


def test_age_of_a_copy_whose_first_place_is_gone_is_that_of_its_birth(tmp_path: Path) -> None:
    async def tell(it: World) -> None:
        it.join("p")
        record = await it.put(HALF, {"UNIQ_KEY": "K", "PGROUP": GROUP, FIRST: "77"})
        it.store.log[-1] = record._replace(born_timestamp=record.born_timestamp - 500)
        await it.clock.advance(0.4995)
        await it.checks.round()
        assert it.questions.taken() == []
        await it.clock.advance(0.001)
        await it.checks.round()
        assert it.questions.taken() == ["K"]

    play(World(tmp_path), tell)


def test_members_of_a_group_are_asked_in_turn_and_those_that_left_are_not(tmp_path: Path) -> None:
    async def tell(it: World) -> None:
        peers = [it.join(f"p{number}", f"127.0.0.1:{number + 1}") for number in range(3)]
        it.join("other", "127.0.0.1:9", group="other")
        for number in range(6):
            await it.half(f"K{number}")
        await it.clock.advance(1)
        peers[1].is_open = False
        await it.checks.round()
        asked = [name for name, _ in it.questions.asked]
        assert asked == ["p2", "p0"] * 3
        # Nobody is left: the messages stay where they are.
        for peer in peers:
            peer.is_open = False
        before = len(it.store.log)
        await it.checks.round()
        assert len(it.store.log) == before
        assert len(it.questions.asked) == 6

    play(World(tmp_path), tell)


# --- rules that change --------------------------------------------------------------------------


def test_rules_that_change_are_followed_by_checks_op_records_and_counts(tmp_path: Path) -> None:
    async def tell(it: World) -> None:
        it.join("p")
        await it.half()
        rules = dataclasses.replace(
            RULES, timeout_ms=5000, op_interval_ms=10, metrics_interval_ms=2500
        )
        (timer,) = it.service.timers
        assert timer.first_after_s == 10.0
        assert callable(timer.every_s)
        assert timer.every_s() == 10.0
        it.service.follow(rules)
        it.checks.follow(rules)
        assert timer.every_s() == 2.5
        await it.clock.advance(4.9995)
        await it.checks.round()
        assert it.questions.taken() == []
        await it.clock.advance(0.001)
        await it.checks.round()
        assert it.questions.taken() == ["K"]
        assert it.of(OP) == []
        await it.clock.advance(0.01)
        assert it.of(OP) == ["0,"]
        assert ("moved", OP, 100) in it.traffic.told

    play(World(tmp_path), tell)


# --- the start ----------------------------------------------------------------------------------


def test_start_knows_what_op_records_settled_and_tells_what_it_read(tmp_path: Path) -> None:
    async def run() -> None:
        it = World(tmp_path)
        await it.start()
        halves = [await it.half(f"K{number}") for number in range(4)]
        for number in (0, 2):
            await it.end(halves[number], Verdict.ROLLBACK)
        await it.service.ops.stop()
        it.boot()
        await it.service.start()
        await it.service.wait_loaded()
        assert it.traffic.told == [("looked at", drafts.GROUP, OP, 100)] * 2
        assert [it.service.book.living(at) for at in range(4)] == [None, 1, None, 3]
        assert it.counts.open() == {"orders": 2}
        await it.service.commit_offsets()
        assert (committed(it, HALF), committed(it, OP)) == (1, 1)
        await it.service.stop()

    asyncio.run(run())


@pytest.mark.parametrize(
    ("known", "first", "begin"), [(None, 0, 0), (2, 0, 2), (2, 3, 3), (9, 0, 4), (None, 1, 1)]
)
def test_start_begins_at_the_committed_offset_within_what_there_is(
    tmp_path: Path, known: int | None, first: int, begin: int
) -> None:
    async def run() -> None:
        it = World(tmp_path)
        for number in range(4):
            await it.half(f"K{number}")
        it.store.first[HALF, 0] = first
        if known is not None:
            it.offsets.commit(drafts.GROUP, HALF, drafts.QUEUE_ID, known)
        await it.start()
        assert it.service.book.half_offset == begin
        assert it.counts.open() == {"orders": 4 - begin}
        await it.service.stop()

    asyncio.run(run())


def test_start_tries_again_a_second_later_when_the_store_cannot_be_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> None:
        it = World(tmp_path)
        half = await it.half()
        it.store.faults[half.physical_offset] = StoreFault("io", "a test says so")
        await it.service.start()
        await it.clock.advance(0.9995)
        assert len(caplog.messages) == 1
        assert caplog.messages[0].startswith("the open transactions cannot be read: ")
        it.store.faults.clear()
        loading = asyncio.create_task(it.service.wait_loaded())
        await asyncio.sleep(0)
        assert not loading.done()
        await it.clock.advance(0.001)
        await loading
        assert it.counts.open() == {"orders": 1}
        await it.service.stop()

    asyncio.run(run())


def test_stop_writes_down_what_is_settled_how_far_and_what_is_open(tmp_path: Path) -> None:
    async def run() -> None:
        it = World(tmp_path)
        await it.start()
        for number in range(3):
            await it.end(await it.half(f"K{number}"), Verdict.COMMIT)
        await it.half("open")
        await it.service.stop()
        assert it.of(OP) == ["0,1,2,"]
        # The offset of the op queue has moved too: its record was written before.
        assert (committed(it, HALF), committed(it, OP)) == (3, 1)
        assert '"orders":{"count":1,' in (tmp_path / "counts.json").read_text()
        # Nothing of before counts when it starts again.
        it.store.behind = 1
        await it.service.start()
        ending = asyncio.create_task(it.end(it.store.of(HALF)[3], Verdict.ROLLBACK))
        await it.clock.advance(1)
        assert not ending.done()
        await it.service.stop()
        ending.cancel()
        await asyncio.wait([ending])
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(run())


@pytest.mark.parametrize(
    ("status", "commits"), [(PutStatus.PUT_OK, ["K"]), (PutStatus.UNKNOWN_ERROR, [])]
)
def test_second_end_waits_for_the_first_and_is_done_when_that_one_failed(
    tmp_path: Path, status: PutStatus, commits: list[str]
) -> None:
    async def tell(it: World) -> None:
        half = await it.half()
        it.appends.gate.clear()
        first = asyncio.create_task(it.end(half, Verdict.COMMIT))
        await it.clock.advance(1)
        second = asyncio.create_task(it.end(half, Verdict.ROLLBACK))
        await it.clock.advance(1)
        assert (first.done(), second.done()) == (False, False)
        it.store.statuses = [status]
        it.appends.gate.set()
        await asyncio.wait([first, second])
        assert (first.exception() is None) is bool(commits)
        assert second.exception() is None
        assert it.of("orders") == commits
        assert it.counts.rollbacks == ({} if commits else {"orders": 1})

    play(World(tmp_path), tell)


def test_stop_before_the_start_is_done_commits_no_offsets(tmp_path: Path) -> None:
    async def run() -> None:
        it = World(tmp_path)
        it.store.behind = 1
        await it.service.start()
        it.service.book.settle(0)
        await it.service.stop()
        assert (committed(it, HALF), it.store.flushes) == (None, 0)
        # A second start has to read everything again.
        await it.service.start()
        assert not it.service._loaded.is_set()
        await it.service.stop()

    asyncio.run(run())


# --- a message is committed once ----------------------------------------------------------------


async def crashed_after_commit(it: World, **forged: object) -> None:
    """Leave a half message and a record that may be its commit; the op record is lost."""
    await it.put("orders", {}, b"first")
    half = await it.half()
    draft = drafts.commit_draft(half, props.read(half.properties))
    assert draft is not None
    for name, value in forged.items():
        setattr(draft, name, value)
    await it.store.put(draft)


@pytest.mark.parametrize(
    ("forged", "commits"),
    [
        ({}, 1),
        # What a producer can send is not believed: flag, place, transaction.
        ({"sys_flag": sys_flag.TRANSACTION_NONE}, 2),
        ({"sys_flag": sys_flag.TRANSACTION_ROLLBACK}, 2),
        ({"prepared_transaction_offset": 0}, 2),
        ({"prepared_transaction_offset": -5}, 2),
        ({"properties": {"UNIQ_KEY": "K", "__transactionId__": "other"}}, 2),
        ({"properties": {"UNIQ_KEY": "other", "__transactionId__": "K"}}, 2),
        # A commit that waits for its delay lies elsewhere.
        ({"topic": "SCHEDULE_TOPIC_XXXX"}, 1),
    ],
)
def test_commit_before_the_start_is_not_repeated_and_nothing_else_stands_for_it(
    tmp_path: Path, forged: dict[str, object], commits: int, caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> None:
        it = World(tmp_path)
        await crashed_after_commit(it, **forged)
        await it.start()
        (half,) = it.store.of(HALF)
        with caplog.at_level(logging.INFO, "roquet.broker.transactions"):
            await it.end(half, Verdict.COMMIT)
        assert len([one for one in it.store.log if one.body == b"K"]) == 1 + commits
        said = ["transaction K was committed before the start, half offset 0"]
        assert caplog.messages == (said if commits == 1 else [])
        assert it.counts.commits == {"orders": 1}
        await it.service.stop()

    asyncio.run(run())


def test_commit_of_the_first_message_of_the_log_is_known_by_the_place_0(tmp_path: Path) -> None:
    async def run() -> None:
        it = World(tmp_path)
        half = await it.half()
        assert half.physical_offset == 0
        draft = drafts.commit_draft(half, props.read(half.properties))
        assert draft is not None
        await it.store.put(draft)
        await it.start()
        await it.end(half, Verdict.COMMIT)
        assert it.of("orders") == ["K"]
        await it.service.stop()

    asyncio.run(run())


def test_only_half_messages_from_before_the_start_are_looked_up(tmp_path: Path) -> None:
    async def run() -> None:
        it = World(tmp_path)
        it.join("p")
        await it.put("orders", {}, b"first")
        old = await it.half("old")
        await it.start()
        new = await it.half("new")
        for half in (old, new):
            draft = drafts.commit_draft(half, props.read(half.properties))
            assert draft is not None
            await it.store.put(draft)
        # It keeps what it is when it is copied behind itself, again and again.
        await it.clock.advance(1)
        for _ in range(2):
            await it.checks.round()
        assert it.service._inherited == {it.service.book.living(old.queue_offset)}
        await it.end(old, Verdict.COMMIT)
        await it.end(new, Verdict.COMMIT)
        assert it.of("orders") == ["first", "old", "new", "new"]
        await it.service.stop()

    asyncio.run(run())


@pytest.mark.parametrize(
    ("first", "named", "open_at"),
    [
        # The copy stands for the first place, until it is settled by itself.
        ("0", [], [1, 1]),
        ("0", [0], [None, None]),
        ("0", [1], [0, None]),
        # What is no earlier offset names nothing.
        ("1", [], [0, 1]),
        ("9", [], [0, 1]),
        ("-1", [], [0, 1]),
        ("x", [], [0, 1]),
        ("\u0660", [], [0, 1]),
        ("0" * 19, [], [0, 1]),
        ("0" * 18, [], [1, 1]),
        ("", [1], [0, None]),
    ],
)
def test_start_knows_a_copy_of_a_java_broker_by_the_first_place_that_it_names(
    tmp_path: Path, first: str, named: list[int], open_at: list[int | None]
) -> None:
    async def run() -> None:
        it = World(tmp_path)
        half = await it.half()
        # Another key: only the place says that they belong together.
        given = {**props.read(half.properties), "UNIQ_KEY": "copy", FIRST: first}
        await it.put(HALF, given)
        for offset in named:
            await it.put(OP, {}, b"%d," % offset)
        await it.start()
        assert [it.service.book.living(at) for at in (0, 1)] == open_at
        await it.service.stop()

    asyncio.run(run())


def test_start_settles_an_open_half_message_whose_newer_copy_was_settled(tmp_path: Path) -> None:
    async def run() -> None:
        it = World(tmp_path)
        half = await it.half()
        await it.put(HALF, props.read(half.properties), half.body)
        other = await it.half("other")
        await it.put(OP, {}, b"1,")
        await it.start()
        living = [it.service.book.living(at) for at in (0, 1, other.queue_offset)]
        assert living == [None, None, other.queue_offset]
        assert it.counts.open() == {"orders": 1}
        # The next start need not find that out again.
        await it.service.ops.stop()
        assert it.of(OP) == ["1,", "0,"]
        await it.service.stop()

    asyncio.run(run())


def test_start_leaves_open_what_was_brought_back_behind_a_settled_one(tmp_path: Path) -> None:
    async def run() -> None:
        it = World(tmp_path)
        half = await it.half()
        await it.put(HALF, props.read(half.properties), half.body)
        # Settled ones that cannot be read any more settle nothing either.
        await it.put(OP, {}, b"0,7,")
        await it.start()
        assert [it.service.book.living(at) for at in (0, 1)] == [None, 1]
        assert it.counts.open() == {"orders": 1}
        await it.service.stop()

    asyncio.run(run())


def test_first_half_message_after_the_start_is_not_looked_up(tmp_path: Path) -> None:
    async def run() -> None:
        it = World(tmp_path)
        await it.half("old")
        await it.start()
        half = await it.half("new")
        draft = drafts.commit_draft(half, props.read(half.properties))
        assert draft is not None
        await it.store.put(draft)
        await it.end(half, Verdict.COMMIT)
        assert it.of("orders") == ["new", "new"]
        await it.service.stop()

    asyncio.run(run())
