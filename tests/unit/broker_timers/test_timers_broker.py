"""Timer messages over sockets: on time, once, over a restart; recalled; and what is refused."""

from __future__ import annotations

import asyncio
import struct
from typing import TYPE_CHECKING, Any, cast

import pytest

from remoting_harness import until
from roquet.base.clock import SystemClock
from roquet.broker.timers.rules import TimerConfig
from roquet.broker.timers.service import TimerService
from roquet.protocol import properties as props
from roquet.protocol.bodies.timers import TimerMetricsBody, TopicTimers
from roquet.protocol.codes import RequestCode
from roquet.protocol.messages.recall_handle import RecallHandle
from roquet.store.tables.files import JsonFile
from roquet.testing.clock import FakeClock
from timer_desk import STEP_MS, desk

if TYPE_CHECKING:
    from pathlib import Path


def test_timer_message_arrives_after_its_time_with_the_properties_of_java(tmp_path: Path) -> None:
    async def story() -> None:
        async with desk(tmp_path) as running:
            now_ms = SystemClock().now_ms()
            sent = await running.send(b"ms", TIMER_DELAY_MS="300", TAGS="t")
            assert sent.code == 0
            await running.send(b"at", TIMER_DELIVER_MS=str(now_ms + 700))
            await running.send(b"past", TIMER_DELIVER_MS=str(now_ms - 5))
            (first,) = await running.arrived(1)
            assert first.body == b"past"
            _, second, third = await running.arrived(3)
            assert (second.body, third.body) == (b"ms", b"at")
            assert second.store_timestamp >= now_ms + 300
            assert third.store_timestamp >= now_ms + 700
            found = props.read(second.properties)
            assert found[props.REAL_TOPIC] == "Orders"
            assert found[props.TIMER_DELAY_MS] == "300"
            entered_ms = int(found[props.TIMER_ENQUEUE_MS])
            assert entered_ms % STEP_MS == 0
            assert int(found[props.TIMER_DEQUEUE_MS]) >= now_ms + 300
            handle = RecallHandle.decode((sent.ext or {})["recallHandle"])
            assert handle.due_ms == int(found[props.TIMER_OUT_MS]) + 1
            assert handle.unique_key == found[props.UNIQ_KEY]
            # Their steps are those of the settings, not seconds.
            later = props.read(third.properties)[props.TIMER_OUT_MS]
            assert (int(later) - int(found[props.TIMER_OUT_MS])) % 1000

    asyncio.run(story())


def test_timer_message_waits_through_a_restart_and_arrives_once(tmp_path: Path) -> None:
    async def story() -> None:
        async with desk(tmp_path) as running:
            for number in range(5):
                await running.send(b"%d" % number, TIMER_DELAY_MS=str(600 + 100 * number))
            rows: tuple[TopicTimers, ...] = ()
            for _ in range(1000):
                answer = await running.ask(RequestCode.GET_TIMER_METRICS, {})
                rows = TimerMetricsBody.decode(answer.body).topics
                if rows and rows[0].waiting == 5:
                    break
                await asyncio.sleep(0.02)
            assert [(row.topic, row.waiting) for row in rows] == [("Orders", 5)]
        async with desk(tmp_path) as running:
            found = await running.arrived(5)
            assert [record.body for record in found] == [b"0", b"1", b"2", b"3", b"4"]
            await asyncio.sleep(0.3)
            assert len(await running.pull()) == 5
            answer = await running.ask(RequestCode.GET_TIMER_METRICS, {})
            rows = TimerMetricsBody.decode(answer.body).topics
            assert [(row.topic, row.waiting) for row in rows] == [("Orders", 0)]

    asyncio.run(story())


def test_recalled_message_does_not_arrive(tmp_path: Path) -> None:
    async def story() -> None:
        async with desk(tmp_path) as running:
            sent = await running.send(b"no", TIMER_DELAY_MS="700")
            await running.send(b"yes", TIMER_DELAY_MS="700")
            handle = (sent.ext or {})["recallHandle"]
            recalled = await running.recall(handle)
            assert recalled.code == 0
            assert (recalled.ext or {})["msgId"] == RecallHandle.decode(handle).unique_key
            (record,) = await running.arrived(1)
            assert record.body == b"yes"
            await asyncio.sleep(0.3)
            assert len(await running.pull()) == 1
            late = await running.recall(handle)
            assert late.code == 604

    asyncio.run(story())


@pytest.mark.parametrize(
    "handle",
    [
        "",
        "%%%",
        "dg==",
        RecallHandle("Other", "broker-a", 2**42, "k").encode(),
        RecallHandle("Orders", "broker-b", 2**42, "k").encode(),
        RecallHandle("Orders", "broker-a", 1, "k").encode(),
        RecallHandle("Orders", "broker-a", 2**62, "k").encode(),
    ],
)
def test_recall_with_a_wrong_handle_is_refused_with_a_reason(tmp_path: Path, handle: str) -> None:
    async def story() -> None:
        async with desk(tmp_path) as running:
            await running.send(b"x")
            answer = await running.recall(handle)
            assert answer.code == 604
            assert (answer.remark or "").startswith("recall ")
            assert (answer.ext or {})["MSG_REGION"] == "DefaultRegion"
            assert (await running.recall(handle, "Unknown")).code == 17

    asyncio.run(story())


def test_recall_is_refused_unless_it_is_switched_on(tmp_path: Path) -> None:
    async def story() -> None:
        async with desk(tmp_path, recallMessageEnable="false") as running:
            answer = await running.recall("x")
            assert answer.code == 16
            assert "recallMessageEnable" in (answer.remark or "")

    asyncio.run(story())


@pytest.mark.parametrize(
    ("wanted", "code"),
    [
        ({"TIMER_DELAY_MS": "soon"}, 13),
        ({"TIMER_DELAY_SEC": "1_0"}, 13),
        ({"TIMER_DELIVER_MS": "9" * 30}, 13),
        ({"TIMER_DELAY_SEC": "259201"}, 13),
        ({"TIMER_DELIVER_MS": "1", "TIMER_DEL_UNIQKEY": "k"}, 13),
    ],
)
def test_timer_send_with_a_bad_time_is_refused(
    tmp_path: Path, wanted: dict[str, str], code: int
) -> None:
    async def story() -> None:
        async with desk(tmp_path) as running:
            answer = await running.send(b"x", **wanted)
            assert answer.code == code
            assert await running.pull() == []

    asyncio.run(story())


def test_longest_delay_of_a_timer_message_is_the_one_of_the_settings(tmp_path: Path) -> None:
    async def story() -> None:
        async with desk(tmp_path, timerMaxDelaySec="5") as running:
            assert (await running.send(b"x", TIMER_DELAY_SEC="6")).code == 13
            assert (await running.send(b"x", TIMER_DELAY_SEC="5")).code == 0

    asyncio.run(story())


def test_timer_send_is_refused_when_the_wheel_is_off(tmp_path: Path) -> None:
    async def story() -> None:
        async with desk(tmp_path, timerWheelEnable="false") as running:
            assert (await running.send(b"x", TIMER_DELAY_SEC="1")).code == 1
            assert (await running.ask(RequestCode.GET_TIMER_CHECK_POINT, {})).code == 1
            assert (await running.ask(RequestCode.GET_TIMER_METRICS, {})).code == 1

    asyncio.run(story())


def test_crowded_step_refuses_more_messages(tmp_path: Path) -> None:
    async def story() -> None:
        async with desk(tmp_path, timerCongestNumEachSlot="5") as running:
            due = str(SystemClock().now_ms() + 60_000)
            codes = []
            for _ in range(60):
                codes.append((await running.send(b"x", TIMER_DELIVER_MS=due)).code)
                await until(lambda: running.broker.store.dispatch_behind() == 0)
                if codes[-1]:
                    break
                await asyncio.sleep(0.02)
            assert codes[:5] == [0] * 5
            assert codes[-1] == 1

    asyncio.run(story())


def test_client_can_neither_write_the_timer_topic_nor_choose_the_step(tmp_path: Path) -> None:
    async def story() -> None:
        async with desk(tmp_path) as running:
            forged = {"TIMER_OUT_MS": "1000", "REAL_TOPIC": "Secret", "REAL_QID": "0"}
            answer = await running.send(b"x", "rmq_sys_wheel_timer", **forged)
            assert answer.code == 16
            now_ms = SystemClock().now_ms()
            assert (await running.send(b"x", TIMER_DELAY_MS="400", **forged)).code == 0
            (record,) = await running.arrived(1)
            assert record.store_timestamp >= now_ms + 400
            assert await running.pull("Secret") == []

    asyncio.run(story())


def test_checkpoint_is_the_one_of_java(tmp_path: Path) -> None:
    async def story() -> None:
        async with desk(tmp_path) as running:
            # So far off that it enters the wheel, however busy the machine is.
            await running.send(b"x", TIMER_DELAY_SEC="60")
            numbers: tuple[int, ...] = ()
            for _ in range(1000):
                answer = await running.ask(RequestCode.GET_TIMER_CHECK_POINT, {})
                numbers = struct.unpack(">7q", answer.body)
                if numbers[1]:
                    break
                await asyncio.sleep(0.05)
            assert numbers[0] % STEP_MS == 0
            assert numbers[1:4] == (52, 1, 1)

    asyncio.run(story())


def test_delete_key_of_a_plain_send_cancels_although_recalls_are_off(tmp_path: Path) -> None:
    async def story() -> None:
        async with desk(tmp_path, recallMessageEnable="false") as running:
            due = str(SystemClock().now_ms() + 1500)
            keyed = {"UNIQ_KEY": "K1", "TIMER_DELIVER_MS": due}
            assert (await running.send(b"taken back", **keyed)).code == 0
            asked = {"TIMER_DEL_UNIQKEY": "K1", "TIMER_DELIVER_MS": due}
            assert (await running.send(b"0", **asked)).code == 0
            assert (await running.send(b"comes", TIMER_DELIVER_MS=due)).code == 0
            assert [one.body for one in await running.arrived(1)] == [b"comes"]

    asyncio.run(story())


class FullDisk:
    """A wheel whose due messages the store does not take."""

    waits = 0

    def stats(self) -> dict[str, int]:
        return {"waits": self.waits}

    def trouble(self) -> None:
        return None

    def waiting_at(self, _: int) -> int:
        return 0


def test_due_messages_that_wait_for_the_store_are_logged_once_a_minute(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    wheel, clock, nothing = FullDisk(), FakeClock(), cast("Any", None)
    service = TimerService(nothing, TimerConfig(), JsonFile(tmp_path / "timermetrics"), clock)
    service._wheel = cast("Any", wheel)

    async def story() -> None:
        for wheel.waits in (0, 1, 2, 2):
            await service.look()
        await clock.advance(61)
        await service.look()
        wheel.waits = 3
        await service.look()
        assert service.runtime()["timerWaits"] == "3"

    asyncio.run(story())
    said = [it.getMessage() for it in caplog.records]
    assert [text.startswith("due timer messages wait") for text in said] == [True, True]
    assert "1 more like it" in said[1]
