"""Delay levels: where a delayed message waits, when it goes on, and what a restart remembers."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, cast

import pytest

from roquet.base.errors import Corrupt, UsageError
from roquet.broker.api.refusal import Reason, Refusal
from roquet.broker.messages import schedule
from roquet.broker.messages.schedule import (
    BATCH,
    SCHEDULE_GROUP,
    DelayLevels,
    DelaySchedule,
    Progress,
    ScheduleConfig,
)
from roquet.broker.metrics.stats import BrokerStats
from roquet.protocol import names
from roquet.protocol.bodies.offsets import DelayOffsetBody
from roquet.service.lifecycle import App, Part
from roquet.store.results import Draft, PutResult, PutStatus, StoreFault
from roquet.store.tables.files import JsonFile
from roquet.testing.clock import FakeClock
from roquet.testing.memory_store import FakeStore

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence
    from pathlib import Path

    from roquet.broker.metrics.traffic import InnerTraffic

LEVELS = DelayLevels()
HOST = bytes((127, 0, 0, 1, 0, 0, 0x2A, 0x9F))


def draft(topic: str = "Orders", queue_id: int = 3, /, **properties: str) -> Draft:
    return Draft(
        topic=topic,
        queue_id=queue_id,
        body=b"body",
        properties=dict(properties),
        flag=7,
        born_timestamp=123,
        born_host=HOST,
        store_host=HOST,
        reconsume_times=2,
    )


class Story:
    """A schedule over a store in memory, by a clock that the test moves."""

    def __init__(self, folder: Path, levels: DelayLevels = LEVELS) -> None:
        self.clock = FakeClock()
        self.levels = levels
        self.store = FakeStore(self.clock, levels)
        self.path = folder / "delayOffset.json"
        self.schedule = self.new_schedule()

    def new_schedule(self) -> DelaySchedule:
        return DelaySchedule(
            self.levels,
            self.store,
            JsonFile(self.path),
            self.clock,
            traffic=BrokerStats("c", self.clock),
        )

    async def send(self, level: int, topic: str = "Orders", **properties: str) -> None:
        message = draft(topic, **properties, DELAY=str(level))
        self.levels.divert(message)
        await self.store.put(message)

    async def after(self, seconds: float) -> int:
        """Let time pass and deliver; return how many messages have arrived in all."""
        await self.clock.advance(seconds)
        await self.schedule.deliver()
        return len(self.store.of("Orders"))


def told(test: Callable[[Story], Coroutine[None, None, None]]) -> Callable[[Path], None]:
    """Run a test with a story whose schedule has started."""

    async def tell(folder: Path) -> None:
        story = Story(folder)
        await story.schedule.start()
        await test(story)

    def run(tmp_path: Path) -> None:
        asyncio.run(tell(tmp_path))

    return run


def test_the_default_levels_are_those_of_java() -> None:
    assert LEVELS.highest == 18
    assert [LEVELS.delay_ms(n) for n in (1, 4, 5, 14, 17, 18)] == [
        1_000,
        30_000,
        60_000,
        600_000,
        3_600_000,
        7_200_000,
    ]
    assert DelayLevels("2d 1s").delay_ms(1) == 172_800_000


@pytest.mark.parametrize(
    "text", ["", "1", "1x", "s", "-1s", "1s,5s", "\u0661s", "1 s", "1s " * 1001]
)
def test_levels_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="messageDelayLevel"):
        DelayLevels(text)


def test_a_delayed_message_is_put_where_its_level_waits() -> None:
    message = draft(
        "Orders",
        3,
        REAL_TOPIC="elsewhere",
        UNIQ_KEY="u",
        DELAY="2",
        TIMER_DELAY_SEC="9",
        TAGS="t",
        REAL_QID="9",
    )
    LEVELS.divert(message)
    assert (message.topic, message.queue_id) == (names.SCHEDULE_TOPIC, 1)
    # In this order, as the records of a Java broker have it.
    assert list(message.properties.items()) == [
        ("UNIQ_KEY", "u"),
        ("DELAY", "2"),
        ("TAGS", "t"),
        ("REAL_TOPIC", "Orders"),
        ("REAL_QID", "3"),
    ]


def test_a_level_above_the_highest_becomes_the_highest() -> None:
    message = draft(DELAY="99")
    LEVELS.divert(message)
    assert message.queue_id == 17
    assert message.properties["DELAY"] == "18"


@pytest.mark.parametrize("level", ["0", "-3"])
def test_no_level_means_no_delay_and_the_property_stays(level: str) -> None:
    message = draft(DELAY=level, TIMER_DELAY_SEC="9")
    LEVELS.divert(message)
    assert (message.topic, message.queue_id) == ("Orders", 3)
    assert message.properties == {"DELAY": level, "TIMER_DELAY_SEC": "9"}


@pytest.mark.parametrize("level", ["", "1_0", " 1", "+1", "1e3", "\uff11", "99999999999", "1\n"])
def test_a_level_that_is_no_number_is_refused(level: str) -> None:
    message = draft(DELAY=level)
    with pytest.raises(Refusal) as refused:
        LEVELS.divert(message)
    assert refused.value.reason is Reason.FAILED
    assert message.topic == "Orders"


@told
async def test_a_message_comes_when_its_time_has_come_and_not_before(story: Story) -> None:
    await story.send(2, TAGS="t")
    assert await story.after(4.999) == 0
    assert await story.after(0.001) == 1
    assert await story.after(100) == 1


@told
async def test_what_is_delivered_is_what_was_sent_with_the_traces_of_the_wait(story: Story) -> None:
    await story.send(1, TAGS="t")
    await story.after(1)
    (waiting,) = story.store.of(names.SCHEDULE_TOPIC)
    (arrived,) = story.store.of("Orders")
    assert arrived.properties == waiting.properties
    assert arrived.properties.endswith(b"DELAY\x011\x02REAL_TOPIC\x01Orders\x02REAL_QID\x013\x02")
    assert arrived.queue_id == 3
    assert (arrived.body, arrived.flag, arrived.reconsume_times) == (b"body", 7, 2)
    assert (arrived.born_timestamp, arrived.born_host, arrived.store_host) == (123, HOST, HOST)
    assert story.store.waits[-1] is False


@told
async def test_order_within_a_level_is_kept_over_more_than_one_batch(story: Story) -> None:
    for number in range(100):
        await story.send(1, n=str(number))
    assert await story.after(1) == 100
    assert [b"n\x01%d\x02" % n in r.properties for n, r in enumerate(story.store.of("Orders"))] == [
        True
    ] * 100


@told
async def test_a_level_that_cannot_deliver_holds_up_only_itself(story: Story) -> None:
    await story.send(1, n="first")
    await story.send(2, "Other")
    await story.clock.advance(5)
    story.store.statuses = [PutStatus.SERVICE_NOT_AVAILABLE]
    await story.schedule.deliver()
    assert len(story.store.of("Other")) == 1
    assert await story.after(9.9) == 0
    assert await story.after(0.1) == 1
    assert story.schedule.progress()[0].offset == 1


@told
async def test_messages_behind_one_that_is_not_stored_are_stored_once(story: Story) -> None:
    for number in range(80):
        await story.send(1, n=str(number))
    await story.clock.advance(1)
    story.store.statuses = [
        PutStatus.PUT_OK,
        PutStatus.SERVICE_NOT_AVAILABLE,
        PutStatus.PUT_OK,
        PutStatus.MESSAGE_ILLEGAL,
        PutStatus.SERVICE_NOT_AVAILABLE,
    ]
    await story.schedule.deliver()
    assert story.schedule.progress()[0].offset == 1
    assert await story.after(9.9) == BATCH - 3
    story.store.statuses = [PutStatus.PUT_OK, PutStatus.SERVICE_NOT_AVAILABLE]
    assert await story.after(0.1) == BATCH - 1, "the first of the two, and one that is new"
    assert story.schedule.progress()[0].offset == 4
    assert await story.after(10) == 79
    assert story.schedule.progress()[0].offset == 80
    assert len({r.properties for r in story.store.of("Orders")}) == 79


@told
async def test_bytes_of_one_append_are_bounded_and_nothing_waits_for_the_next_round(
    story: Story,
) -> None:
    for _ in range(20):
        await story.send(1)
    await story.clock.advance(0.5)
    await story.send(1)
    sizes: list[int] = []
    append = story.store.append

    def noted(drafts: Sequence[Draft]) -> list[PutResult]:
        sizes.append(len(drafts))
        return append(drafts)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(schedule, "BATCH_BYTES", 250)
        patch.setattr(story.store, "append", noted)
        assert await story.after(0.5) == 20
    assert sizes == [3] * 6 + [2]


@told
async def test_a_message_that_can_never_be_stored_is_passed_over(story: Story) -> None:
    await story.send(1, n="hopeless")
    await story.send(1, n="good")
    story.store.statuses = [PutStatus.MESSAGE_ILLEGAL]
    assert await story.after(1) == 1
    assert b"good" in story.store.of("Orders")[0].properties


@told
async def test_records_that_do_not_say_where_to_are_passed_over(story: Story) -> None:
    for properties in (
        {"REAL_QID": "1"},
        {"REAL_TOPIC": "Orders"},
        {"REAL_TOPIC": "Orders", "REAL_QID": "-1"},
        {"REAL_TOPIC": "Orders", "REAL_QID": "99999999999"},
        {"REAL_TOPIC": names.TRANS_HALF_TOPIC, "REAL_QID": "0"},
    ):
        await story.store.put(draft(names.SCHEDULE_TOPIC, 0, **properties, DELAY="1"))
    await story.send(1, n="good")
    story.store.missing = {0}
    assert await story.after(1) == 1
    assert story.store.of(names.TRANS_HALF_TOPIC) == []
    assert story.schedule.progress()[0].offset == 6


@told
async def test_a_damaged_record_is_passed_over_and_a_bad_disk_asked_again(
    story: Story,
) -> None:
    await story.send(1, n="damaged")
    await story.send(1, n="unreadable for now")
    await story.send(2, "Other")
    story.store.faults = {0: StoreFault("corrupt", "crc"), 100: StoreFault("io", "EIO")}
    assert await story.after(5) == 0
    assert len(story.store.of("Other")) == 1
    story.store.faults = {}
    assert await story.after(9.999) == 0
    assert await story.after(0.001) == 1
    assert b"for now" in story.store.of("Orders")[0].properties


@told
async def test_level_that_waits_for_a_bad_disk_when_the_clock_is_set_back_is_asked_in_time(
    story: Story,
) -> None:
    await story.send(1, n="kept")
    story.store.faults = {0: StoreFault("io", "EIO")}
    assert await story.after(5) == 0
    story.store.faults = {}
    story.clock.set_by(-3_600)
    # A message stamped before the step waits its delay once more, and no hour.
    assert await story.after(10) == 0
    assert await story.after(10) == 1


@told
async def test_a_clock_set_back_makes_nothing_early_and_nothing_stuck(story: Story) -> None:
    story.clock.set_by(3_600)
    await story.send(3)
    story.clock.set_by(-3_600)
    await story.schedule.deliver()
    assert await story.after(9.9) == 0
    await story.send(3)
    assert await story.after(0.1) == 1
    assert await story.after(9.8) == 1
    assert await story.after(0.2) == 2


@told
async def test_a_second_step_back_does_not_prolong_the_wait(story: Story) -> None:
    story.clock.set_by(3_600)
    await story.send(3)
    story.clock.set_by(-3_600)
    await story.schedule.deliver()
    story.clock.set_by(-3_600)
    await story.schedule.deliver()
    assert await story.after(9.9) == 0
    assert await story.after(0.1) == 1


@told
async def test_rounds_wait_for_what_is_due_next_and_for_the_full_second_at_most(
    story: Story,
) -> None:
    await story.schedule.deliver()
    assert story.schedule.pause_s() == pytest.approx(1)
    await story.clock.advance(0.3)
    assert story.schedule.pause_s() == pytest.approx(0.7)
    await story.send(1)
    await story.clock.advance(0.25)
    await story.send(1)
    await story.clock.advance(0.45)
    await story.schedule.deliver()
    assert story.schedule.pause_s() == pytest.approx(0.3)
    assert await story.after(0.3) == 1
    assert story.schedule.pause_s() == pytest.approx(0.25)
    assert await story.after(0.2) == 1
    assert story.schedule.pause_s() == pytest.approx(0.1), "never less"
    story.store.behind = 1
    assert await story.after(0.6) == 2
    assert story.schedule.pause_s() == pytest.approx(0.1), "not all is in the queues"
    story.store.behind = 0
    # What waits for its whole delay, since the clock was set back, is due when that is over.
    await story.clock.advance(0.4)
    await story.send(3)
    story.clock.set_by(-3_600)
    await story.schedule.deliver()
    await story.after(9.7)
    assert story.schedule.pause_s() == pytest.approx(0.3)


@told
async def test_message_of_a_level_is_not_late_because_of_rounds_that_were_not_made(
    story: Story,
) -> None:
    parts = [Part("schedule", story.schedule, timers=story.schedule.timers)]
    async with App(parts, story.clock):
        await story.clock.advance(5)
        for number in range(1, 24):
            await story.clock.advance(0.137)
            await story.send(1)
            assert len(story.store.of("Orders")) == number - 1
            await story.clock.advance(0.999)
            assert len(story.store.of("Orders")) == number - 1, "early"
            await story.clock.advance(0.102)
            assert len(story.store.of("Orders")) == number, "late"


@told
async def test_deleted_messages_are_jumped_over(story: Story) -> None:
    for number in range(3):
        await story.send(1, n=str(number))
    story.store.first[(names.SCHEDULE_TOPIC, 0)] = 2
    assert await story.after(1) == 1
    assert story.schedule.progress()[0].offset == 3


@told
async def test_10668_an_offset_behind_the_end_waits_for_dispatch_and_then_gives_way(
    story: Story,
) -> None:
    """A log that lost its end in a crash takes the messages of a level with it."""
    story.path.write_text('{"offsetTable":{1:9}}')
    story.schedule = story.new_schedule()
    await story.schedule.start()
    story.store.behind = 1
    await story.schedule.deliver()
    assert story.schedule.progress()[0].offset == 9
    story.store.behind = 0
    await story.schedule.deliver()
    assert story.schedule.progress()[0].offset == 0


@told
async def test_a_restart_goes_on_where_it_stopped(story: Story) -> None:
    await story.send(1, n="before")
    await story.send(3, n="long")
    await story.after(1)
    await story.schedule.stop()
    assert story.store.flushes == 1
    story.schedule = story.new_schedule()
    await story.schedule.start()
    await story.send(1, n="after")
    assert await story.after(1) == 2
    assert await story.after(8) == 3
    kept = [record.properties[:8] for record in story.store.of("Orders")]
    assert [entry.split(b"\x02")[0] for entry in kept] == [
        b"n\x01before",
        b"n\x01after",
        b"n\x01long",
    ]


@told
async def test_the_file_is_as_java_writes_it_and_changes_only_with_an_offset(
    story: Story,
) -> None:
    await story.schedule.persist()
    assert not story.path.exists()
    await story.send(1)
    await story.after(1)
    await story.schedule.persist()
    await story.schedule.persist()
    assert story.store.flushes == 1
    text = story.path.read_text()
    assert "\t\t1:1\n" in text
    assert json.loads(text.replace("1:1", '"1":1')) == {
        "dataVersion": {
            "counter": 1,
            "stateVersion": 0,
            "timestamp": story.clock.now_ms(),
        },
        "offsetTable": {"1": 1},
    }


@told
async def test_levels_that_were_taken_away_keep_their_offset(story: Story) -> None:
    story.levels = DelayLevels("1s")
    story.path.write_text('{"offsetTable":{1:0,"7":5}}')
    story.schedule = story.new_schedule()
    await story.schedule.start()
    await story.send(1)
    await story.after(1)
    await story.schedule.persist()
    kept = JsonFile(story.path).load(DelayOffsetBody.decode)
    assert kept is not None
    assert kept.offsets == {1: 1, 7: 5}


@told
async def test_a_file_with_wrong_content_stops_the_start(story: Story) -> None:
    for table in (
        "[]",
        '{"1":-1}',
        '{"1":-1,"2":5}',
        '{"1":1.5}',
        '{"x":1}',
        '{"1":99999999999999999999}',
    ):
        story.path.write_text(f'{{"offsetTable":{table}}}')
        with pytest.raises(Corrupt):
            await story.new_schedule().start()


@told
async def test_the_timers_begin_after_a_second_and_run_every_tenth(story: Story) -> None:
    await story.send(1)
    parts = [Part("schedule", story.schedule, timers=story.schedule.timers)]
    async with App(parts, story.clock):
        await story.clock.advance(0.9)
        assert story.store.of("Orders") == []
        await story.clock.advance(0.1)
        assert len(story.store.of("Orders")) == 1
        await story.send(1)
        await story.clock.advance(1.05)
        assert len(story.store.of("Orders")) == 2
    assert story.path.exists()


@pytest.mark.parametrize("text", ["2147483648", "-2147483648", "99999999999", "1.0", ""])
def test_level_that_is_no_number_of_32_bits_is_refused(text: str) -> None:
    with pytest.raises(Refusal, match="is not an integer"):
        LEVELS.divert(draft(DELAY=text))


@pytest.mark.parametrize(
    ("queue", "is_delivered"),
    [
        ("2147483647", True),
        ("2147483648", False),
        ("99999999999", False),
        ("00000000001", False),
        ("0000000001", True),
        ("-1", False),
        ("", False),
    ],
)
def test_message_goes_to_a_queue_whose_number_has_32_bits(
    tmp_path: Path, queue: str, *, is_delivered: bool
) -> None:
    @told
    async def tell(it: Story) -> None:
        message = draft("Orders", 3, DELAY="1")
        LEVELS.divert(message)
        message.properties["REAL_QID"] = queue
        await it.store.put(message)
        assert await it.after(2) == is_delivered
        assert [sent.queue_id for sent in it.store.of("Orders")] == (
            [int(queue)] if is_delivered else []
        )

    tell(tmp_path)


class Traffic:
    """Notes what is counted."""

    def __init__(self) -> None:
        self.told: list[tuple[object, ...]] = []

    def moved(self, topic: str, size: int) -> None:
        self.told.append((topic, size))

    def looked_at(self, group: str, topic: str, size: int) -> None:
        self.told.append((group, topic, size))


@told
async def test_delivered_messages_are_counted_if_that_is_set(it: Story) -> None:
    traffic = Traffic()
    schedule = DelaySchedule(
        it.levels, it.store, JsonFile(it.path), it.clock, traffic=cast("InnerTraffic", traffic)
    )
    await schedule.start()
    for counts in (None, False, True):
        if counts is not None:
            schedule.follow(ScheduleConfig(counts=counts))
        await it.send(1)
        await it.clock.advance(2)
        traffic.told.clear()
        await schedule.deliver()
        told = [row[:-1] for row in traffic.told]
        if counts is False:
            assert told == []
        else:
            assert told == [("Orders",), (SCHEDULE_GROUP, names.SCHEDULE_TOPIC)]
            assert all(int(str(row[-1])) > 0 for row in traffic.told)


@told
async def test_progress_is_told_for_each_level_and_kept_with_a_version(it: Story) -> None:
    assert it.schedule.export() == DelayOffsetBody(offsets={}, version=it.schedule.export().version)
    for level in (1, 1, 3):
        await it.send(level)
    assert await it.after(2) == 2
    ends = {1: (2, 2), 3: (0, 1)}
    assert it.schedule.progress() == [
        Progress(level, *ends.get(level, (0, 0))) for level in range(1, LEVELS.highest + 1)
    ]
    before = it.schedule.export().version
    await it.schedule.persist()
    kept = it.schedule.export()
    assert (kept.offsets, kept.version.counter) == ({1: 2}, before.counter + 1)
    again = it.new_schedule()
    await again.start()
    assert again.export() == kept
    await again.persist()
    assert again.export() == kept, "nothing has moved"


def test_level_that_is_at_its_end_says_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    @told
    async def tell(it: Story) -> None:
        await it.send(1)
        for _ in range(3):
            assert await it.after(2) == 1

    tell(tmp_path)
    assert caplog.messages == []


@told
async def test_delivery_of_many_lets_others_have_their_turn(it: Story) -> None:
    for _ in range(3 * BATCH):
        await it.send(1)
    turns: list[int] = []

    async def look() -> None:
        while len(turns) < 100:
            turns.append(len(it.store.of("Orders")))
            await asyncio.sleep(0)

    await it.clock.advance(2)
    looking = asyncio.ensure_future(look())
    await it.schedule.deliver()
    looking.cancel()
    assert {BATCH, 2 * BATCH} <= set(turns)
    assert len(it.store.of("Orders")) == 3 * BATCH


@told
async def test_messages_seen_before_the_clock_was_set_back_wait_their_delay_once(it: Story) -> None:
    await it.send(3)
    # Due at the very end of its delay: nothing is odd about its time yet.
    assert await it.after(0) == 0
    await it.send(3)
    it.clock.set_by(-3_600)
    assert await it.after(0) == 0
    assert await it.after(9.999) == 0
    assert await it.after(0.001) == 2
