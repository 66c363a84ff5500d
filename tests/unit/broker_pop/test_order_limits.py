"""Ordered pop at its limits: batches, alarms and acknowledgements; and rules of redelivery."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from pop_world import IDENTITY, PopWorld
from remoting_harness import on_loop
from roquet.broker.api.refusal import Reason, Refusal
from roquet.broker.pop.receive import orders as module
from roquet.broker.pop.receive.ordered_acks import LOOKS_AGAIN_S, OrderAlarms, OrderedAcks
from roquet.broker.pop.receive.orders import ATTEMPT_LENGTH_MAX, IDLE_MS, PopOrders
from roquet.broker.pop.revive_rules import ReviveConfig, dead_letter_draft, is_dead, retry_draft
from roquet.model.group import SubscriptionGroupConfig
from roquet.protocol.pop.records import PopCheckpoint
from roquet.store.tables.deletions import Deletions
from roquet.store.tables.files import JsonFile
from roquet.testing.clock import FakeClock

if TYPE_CHECKING:
    from pathlib import Path

    from roquet.store.records import Record
    from roquet.store.results import Draft

KEY, OTHER = ("t", "g", 0), ("t", "g", 1)


class Orders:
    """Batches of queue 0, the group's offset, and who was woken."""

    def __init__(self, folder: Path) -> None:
        self.clock = FakeClock()
        self.file = folder / "orders.json"
        self.it = PopOrders(JsonFile(self.file), self.clock)
        self.offset: int | None = None
        self.reset: int | None = None
        self.woken: list[object] = []
        self.alarms: list[object] = []
        offsets = SimpleNamespace(
            committed=lambda *_: self.offset,
            pending_reset=lambda *_: self.reset,
            commit=self._commit,
        )
        self.acks = OrderedAcks(
            self.it,
            cast("Any", offsets),
            cast("Any", SimpleNamespace(set=self.alarms.append)),
            self.clock,
            deletions=Deletions(None, self.clock),
            wake=self.woken.append,
        )

    def _commit(self, *place: object) -> None:
        self.offset = cast("int", place[3])

    def popped(self, *offsets: int, attempt: str | None = None) -> dict[int | None, int]:
        return self.it.popped(
            KEY,
            offsets,
            pop_time_ms=self.clock.now_ms(),
            invisible_ms=1000,
            attempt_id=attempt,
        )


@on_loop
async def test_queue_is_blocked_until_the_last_message_is_visible(tmp_path: Path) -> None:
    it = Orders(tmp_path)
    assert (it.it.free_at(KEY), it.it.is_blocked(KEY, None)) == (0, False)
    it.popped(5, 6)
    begun_ms = it.clock.now_ms()
    assert it.it.free_at(KEY) == begun_ms + 1000
    assert it.it.show_at(KEY, 6, begun_ms, begun_ms + 3000)
    assert it.it.free_at(KEY) == begun_ms + 3000
    await it.clock.advance(2.999)
    assert it.it.is_blocked(KEY, None)
    await it.clock.advance(0.001)
    assert not it.it.is_blocked(KEY, None)
    for wrong in ((OTHER, 6, begun_ms), (KEY, 7, begun_ms), (KEY, 6, begun_ms + 1)):
        assert not it.it.show_at(*wrong, begun_ms)
    assert it.it.free_at(KEY) == begun_ms + 3000


def test_messages_count_their_deliveries_and_the_whole_the_smallest(tmp_path: Path) -> None:
    it = Orders(tmp_path)
    assert it.popped(5, 6) == {None: 0}
    assert it.popped(5, 6) == {5: 1, 6: 1, None: 1}
    assert it.popped(6, 7) == {6: 2, None: 0}
    assert it.popped(6) == {6: 3, None: 3}
    assert it.popped(6, 7) == {6: 4, None: 0}
    long = "x" * (ATTEMPT_LENGTH_MAX + 1)
    it.popped(8, attempt=long)
    assert it.it.is_blocked(KEY, long)
    assert not it.it.is_blocked(KEY, long[:-1])


def test_batches_have_room_for_known_queues_alone_when_the_table_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BATCHES_MAX", 1)
    it = Orders(tmp_path)
    assert it.it.has_room(KEY)
    it.popped(1)
    assert it.it.has_room(KEY)
    assert not it.it.has_room(OTHER)


@on_loop
async def test_batches_are_written_when_they_change_and_forgotten_after_their_time(
    tmp_path: Path,
) -> None:
    it = Orders(tmp_path)

    async def is_written() -> bool:
        it.file.unlink(missing_ok=True)
        await it.it.persist()
        return it.file.exists()

    assert not await is_written()
    it.popped(1, 2)
    now_ms = it.clock.now_ms()
    assert await is_written()
    assert not await is_written()
    it.it.settle(KEY, 1, pop_time_ms=now_ms, committed=1, end=9)
    assert await is_written()
    it.it.show_at(KEY, 2, now_ms, now_ms)
    assert await is_written()
    it.it.clear(OTHER)
    assert not await is_written()
    await it.clock.advance(IDLE_MS / 1000)
    assert not await is_written()
    assert len(it.it) == 1
    await it.clock.advance(0.001)
    assert await is_written()
    assert len(it.it) == 0


def test_acknowledgement_moves_the_group_and_wakes_who_waits(tmp_path: Path) -> None:
    it = Orders(tmp_path)
    it.offset = 5
    it.popped(5, 6)
    popped_ms = it.clock.now_ms()
    it.acks.ack(KEY, 6, popped_ms, 9)
    assert (it.offset, it.woken) == (5, [])
    it.acks.ack(KEY, 5, popped_ms - 1, 9)
    assert (it.offset, it.woken) == (5, []), "of an earlier pop"
    it.reset = 3
    it.acks.ack(KEY, 5, popped_ms, 9)
    assert (it.offset, it.woken) == (5, [KEY]), "a reset counts"
    it.reset = None
    it.acks.ack(KEY, 5, popped_ms, 9)
    assert it.offset == 7
    it.acks.ack(KEY, 6, popped_ms, 9)
    assert it.offset == 7, "what is settled already is passed over"
    for act in (
        lambda: it.acks.ack(KEY, 7, popped_ms, 9),
        lambda: it.acks.change_invisible(KEY, 6, popped_ms, 5),
        lambda: it.acks.change_invisible(OTHER, 7, popped_ms, 5),
    ):
        with pytest.raises(Refusal) as caught:
            act()
        assert caught.value.reason is Reason.ILLEGAL_MESSAGE
    assert it.alarms == [KEY], "while 5 was in flight its time decided"
    it.offset = None
    with pytest.raises(Refusal):
        # A group without an offset has begun anew.
        it.acks.change_invisible(KEY, 6, popped_ms, 500)
    it.offset = 5
    it.popped(5, 6)
    assert it.acks.change_invisible(KEY, 6, popped_ms, 500) == 500
    assert it.alarms == [KEY, KEY]


@on_loop
async def test_alarm_rings_when_its_queue_is_free_and_looks_again_before() -> None:
    clock = FakeClock()
    free_ms = {KEY: clock.now_ms() + 90_000}
    woken: list[object] = []
    delays: list[float] = []
    loop = asyncio.get_running_loop()
    actions: list[Any] = []

    def call_later(delay: float, *action: Any) -> Any:
        delays.append(delay)
        actions.append(action)
        return SimpleNamespace(cancel=lambda: actions.remove(action))

    loop.call_later = call_later  # type: ignore[method-assign, assignment]
    it = OrderAlarms(lambda key: free_ms[key], woken.append, clock)
    it.set(KEY)
    it.set(KEY)
    assert (delays, len(actions)) == ([LOOKS_AGAIN_S] * 2, 1)
    await_ms = 30_500
    clock.set_by(90 - await_ms / 1000)
    action, *given = actions.pop()
    action(*given)
    assert (delays[2:], woken) == ([30.5], [])
    clock.set_by(await_ms / 1000)
    action, *given = actions.pop()
    action(*given)
    assert (woken, actions) == ([KEY], [])
    it.set(KEY)
    assert delays[3:] == [0]
    await it.stop()
    await it.stop()
    assert actions == []
    it.is_enabled = False
    it.set(KEY)
    assert actions == []


# --- redelivery ----------------------------------------------------------------------------------


def read(world: PopWorld, topic: str = "T", *, tries: int = 0, **properties: str) -> Record:
    offset = world.send(b"x", topic, tries=tries, **properties)
    found = world.log.record(world.log.queues[topic, 0][offset] * 100)
    assert found is not None
    return found


def checkpoint(topic: str = "T", **changes: Any) -> PopCheckpoint:
    fields: dict[str, Any] = {"group": "g", "queue_id": 0, "start_offset": 0, "pop_time_ms": 77}
    return PopCheckpoint(**(fields | {"topic": topic, "invisible_ms": 1, "count": 1} | changes))


@pytest.mark.parametrize(
    ("limit", "tries", "suspended", "dead"),
    [
        (3, 2, False, False),
        (3, 3, False, True),
        (3, 3, True, False),
        (3, 4, True, True),
        (0, 0, False, True),
        (0, 0, True, False),
        (-1, 0, False, True),
        (-1, 0, True, False),
    ],
)
def test_message_is_dead_when_the_next_try_would_be_one_too_many(
    limit: int, tries: int, *, suspended: bool, dead: bool
) -> None:
    record = read(PopWorld(), tries=tries)
    group = SubscriptionGroupConfig(name="g", retry_max_times=limit)
    ck = checkpoint(suspended=suspended)
    assert is_dead(record, ck, group, ReviveConfig()) is dead
    assert not is_dead(record, ck, group, ReviveConfig(dead_letters=False))


def copied(*given: Any) -> Draft:
    draft = retry_draft(*given)
    assert draft is not None
    return draft


def test_copies_say_where_their_message_came_from() -> None:
    world = PopWorld()
    host = IDENTITY.store_host
    fresh = copied(read(world), checkpoint(), "r", 2, host)
    assert (fresh.topic, fresh.queue_id, fresh.reconsume_times) == ("r", 2, 1)
    assert fresh.properties == {"1ST_POP_TIME": "77", "ORIGIN_GROUP": "g"}
    first: dict[str, Any] = {"1ST_POP_TIME": "5"}
    for tries, kept in ((0, "77"), (1, "5")):
        again = copied(read(world, tries=tries, **first), checkpoint(), "r", 0, host)
        assert again.properties["1ST_POP_TIME"] == kept
    unknown = copied(read(world, tries=1), checkpoint(), "r", 0, host)
    assert unknown.properties["1ST_POP_TIME"] == "77"
    for topic, origin in (("T", "T"), ("%RETRY%g_T", "T"), ("%RETRY%h", "%RETRY%h")):
        dead = dead_letter_draft(read(world, topic), checkpoint(topic), host)
        assert (dead.topic, dead.queue_id, dead.reconsume_times) == ("%DLQ%g", 0, 1)
        assert {dead.properties[name] for name in ("RETRY_TOPIC", "DLQ_ORIGIN_TOPIC")} == {origin}
        own = dead.properties["ORIGIN_MESSAGE_ID"]
        assert dead.properties["DLQ_ORIGIN_MESSAGE_ID"] == own
    late: dict[str, Any] = {
        "DELAY": "1",
        "TIMER_DELAY_SEC": "1",
        "TIMER_DELAY_MS": "1",
        "TIMER_DELIVER_MS": "1",
    }
    marked: dict[str, Any] = {"RETRY_TOPIC": "A", "ORIGIN_MESSAGE_ID": "B", "UNIQ_KEY": "C"}
    dead = dead_letter_draft(read(world, **late, **marked), checkpoint(), host)
    assert dead.properties == {
        **marked,
        "DLQ_ORIGIN_TOPIC": "T",
        "DLQ_ORIGIN_MESSAGE_ID": "C",
    }


@pytest.mark.parametrize("was_lost", [False, True])
@on_loop
async def test_messages_of_a_topic_that_a_lost_table_does_not_know_come_again(
    *, was_lost: bool
) -> None:
    world = PopWorld()
    await world.pop([world.send(b"x")], 5000)
    del world.tables.topics["T"]
    world.tables.was_lost = was_lost
    await world.run(10)
    assert [draft.body for draft in world.again()] == [b"x"] * was_lost
    assert world.service.copies.counts.orphans == (not was_lost)
    # Behind the checkpoint, and behind the note of its copy.
    assert world.settled() == was_lost
