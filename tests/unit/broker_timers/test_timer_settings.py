"""Each setting of timer messages has its effect."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import TYPE_CHECKING, Any, cast

import pytest

from remoting_harness import until
from roquet.base.clock import SystemClock
from roquet.base.hours import hour_of
from roquet.broker.timers.rules import TimerConfig
from roquet.broker.timers.service import TimerService
from roquet.model.data_version import DataVersion
from roquet.protocol import properties as props
from roquet.protocol.bodies.timers import TimerMetricsBody, TopicTimers
from roquet.protocol.codes import RequestCode, ResponseCode
from roquet.store.tables.files import JsonFile
from roquet.testing.clock import FakeClock
from timer_desk import STEP_MS, Desk, desk

if TYPE_CHECKING:
    from pathlib import Path


async def queue_offset(running: Desk) -> int:
    """Return how many messages entered the wheel, as the last checkpoint has it."""
    answer = await running.ask(RequestCode.GET_TIMER_CHECK_POINT, {})
    return int.from_bytes(answer.body[16:24])


async def entered(running: Desk, count: int) -> None:
    """Wait until so many messages entered the wheel."""
    for _ in range(400):
        if await queue_offset(running) >= count:
            return
        await asyncio.sleep(0.05)
    raise AssertionError("they did not enter the wheel")


@pytest.mark.parametrize("key", ["timerStopEnqueue", "timerStopDequeue"])
def test_stopped_wheel_keeps_due_messages_until_it_goes_on(tmp_path: Path, key: str) -> None:
    async def story() -> None:
        async with desk(tmp_path, **{key: "true"}) as running:
            assert (await running.send(b"kept", TIMER_DELAY_MS="100")).code == 0
            await asyncio.sleep(0.5)
            assert await running.pull() == []
            live = await running.ask(RequestCode.UPDATE_BROKER_CONFIG, {}, f"{key}=false".encode())
            assert live.code == 0, live.remark
            (came,) = await running.arrived(1)
            assert came.body == b"kept"

    asyncio.run(story())


def test_files_of_the_timer_log_have_the_size_of_the_settings(tmp_path: Path) -> None:
    async def story() -> None:
        async with desk(tmp_path, mappedFileSizeTimerLog="4096") as running:
            await running.send(b"later", TIMER_DELAY_SEC="60")
            file = tmp_path / "timerlog" / ("0" * 20)
            await until(lambda: file.exists() and file.stat().st_size == 4096)

    asyncio.run(story())


def test_message_beyond_the_window_takes_several_turns(tmp_path: Path) -> None:
    async def story() -> None:
        async with desk(tmp_path, timerRollWindowSlot="3") as running:
            begun_ms = SystemClock().now_ms()
            await running.send(b"rolls", TIMER_DELAY_MS="900")
            (came,) = await running.arrived(1)
            assert came.store_timestamp >= begun_ms + 900
            assert int(props.read(came.properties)["TIMER_ROLL_TIMES"]) >= 2

    asyncio.run(story())


@pytest.mark.parametrize(("interval_ms", "saved"), [("50", 1), ("60000", 0)])
def test_wheel_is_saved_at_the_interval_of_the_settings(
    tmp_path: Path, interval_ms: str, saved: int
) -> None:
    async def story() -> None:
        async with desk(tmp_path, timerFlushIntervalMs=interval_ms) as running:
            # The first step saves in any case.
            await asyncio.sleep(0.3)
            await running.send(b"later", TIMER_DELAY_SEC="60")
            await asyncio.sleep(0.4)
            assert await queue_offset(running) == saved

    asyncio.run(story())


@pytest.mark.parametrize(("flush", "made"), [("true", ["timerwheel.52"]), ("false", [])])
def test_snapshots_of_the_wheel_are_made_as_the_settings_say(
    tmp_path: Path, flush: str, made: list[str]
) -> None:
    async def story() -> None:
        given = {"timerWheelSnapshotFlush": flush, "timerWheelSnapshotIntervalMs": "100"}
        async with desk(tmp_path, timerFlushIntervalMs="50", **given) as running:
            assert (await running.send(b"later", TIMER_DELAY_SEC="60")).code == 0
            await entered(running, 1)
            await until(lambda: len(list(tmp_path.glob("timerwheel.52"))) == len(made))
            await asyncio.sleep(0.3)

    asyncio.run(story())
    found = [path.name for path in tmp_path.glob("timerwheel.*") if path.suffix != ".0"]
    assert found == made
    wheel = (tmp_path / "timerwheel").read_bytes()
    assert all((tmp_path / name).read_bytes() == wheel for name in made)


def later_snapshots(folder: Path) -> list[Path]:
    """Return the snapshots of a wheel that something has entered."""
    return list(folder.glob("timerwheel.[1-9]*"))


def test_snapshots_of_the_wheel_come_at_the_interval_of_the_settings(tmp_path: Path) -> None:
    async def story() -> None:
        given = {"timerWheelSnapshotFlush": "true", "timerWheelSnapshotIntervalMs": "100"}
        async with desk(tmp_path, **given) as running:
            # The first, of an empty wheel, is made at once.
            await until((tmp_path / "timerwheel.0").exists)
            for count in (1, 2):
                await running.send(b"due", TIMER_DELAY_MS="300")
                await running.arrived(count)
            # The step that delivered the first ended before the second was delivered.
            assert later_snapshots(tmp_path)

    asyncio.run(story())


async def counted(folder: Path, *, hours_off: int = 0, **given: object) -> int:
    """Wait 71 minutes with a count of 9 for 2 messages that wait, check it, return the count."""
    clock = FakeClock(SystemClock().now_ms())
    clock_hour = hour_of(clock.now_ms() + 71 * 60_000)
    rules = TimerConfig(
        check_when=f"{(clock_hour + hours_off) % 24:02d}",
        precision_ms=STEP_MS,
        log_file_bytes=8192,
    )
    rules = dataclasses.replace(rules, **cast("dict[str, Any]", given))
    file = JsonFile(folder / "config" / "timermetrics")
    wrong = TimerMetricsBody(topics=(TopicTimers("Orders", 9, 5),), version=DataVersion())
    file.path.write_bytes(wrong.encode())
    async with desk(folder, timerWheelEnable="false") as running:
        service = TimerService(running.broker.store, rules, file, clock)
        await service.start()
        try:
            await service.check()
            assert service.waiting() == {"Orders": 9.0}, "so soon after a start"
            await clock.advance(71 * 60)
            await service.check()
            return int(service.waiting()["Orders"])
        finally:
            await service.stop()


def test_wrong_counts_are_corrected_in_the_hours_of_the_settings(tmp_path: Path) -> None:
    async def story() -> None:
        async with desk(tmp_path) as running:
            for name in (b"one", b"two"):
                sent = await running.send(name, TIMER_DELAY_SEC="86400")
                assert sent.code == 0, sent.remark
            await entered(running, 2)
        assert await counted(tmp_path, hours_off=5) == 9
        assert await counted(tmp_path, check_counts=False) == 9
        assert await counted(tmp_path, stop_enqueue=True) == 9
        assert await counted(tmp_path, check_below=9) == 9
        assert await counted(tmp_path) == 2

    asyncio.run(story())


@pytest.mark.parametrize("with_topic", ["false", "true"])
def test_key_of_a_recall_begins_with_the_topic_as_the_settings_say(
    tmp_path: Path, with_topic: str
) -> None:
    async def story() -> None:
        async with desk(tmp_path, appendTopicForTimerDeleteKey=with_topic) as running:
            due = str(SystemClock().now_ms() + 500)
            await running.send(b"gone", UNIQ_KEY="A", TIMER_DELIVER_MS=due)
            await running.send(b"kept", UNIQ_KEY="B", TIMER_DELIVER_MS=due)
            key = "Orders+A" if with_topic == "true" else "A"
            await running.send(b"0", TIMER_DEL_UNIQKEY=key, TIMER_DELIVER_MS=due)
            other = "B" if with_topic == "true" else "Orders+B"
            await running.send(b"0", TIMER_DEL_UNIQKEY=other, TIMER_DELIVER_MS=due)
            (came,) = await running.arrived(1)
            assert came.body == b"kept"

    asyncio.run(story())


@pytest.mark.parametrize("allowed", ["true", "false"])
def test_recall_at_a_broker_that_takes_no_sends_follows_its_setting(
    tmp_path: Path, allowed: str
) -> None:
    async def story() -> None:
        async with desk(tmp_path, allowRecallWhenBrokerNotWriteable=allowed) as running:
            sent = await running.send(b"gone", TIMER_DELAY_SEC="60")
            closing = b"brokerPermission=4"
            assert (await running.ask(RequestCode.UPDATE_BROKER_CONFIG, {}, closing)).code == 0
            answer = await running.recall((sent.ext or {})["recallHandle"])
            closed = ResponseCode.SERVICE_NOT_AVAILABLE
            assert answer.code == (ResponseCode.SUCCESS if allowed == "true" else closed)

    asyncio.run(story())
