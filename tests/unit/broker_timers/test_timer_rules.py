"""Rules of timer messages at their limits, without a wheel that turns."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from remoting_harness import on_loop
from roquet.broker.api.refusal import Reason, Refusal
from roquet.broker.remoting.admin.timers import TimerAdapter
from roquet.broker.remoting.send.recall import RecallAdapter
from roquet.broker.services.send.recall import BODY, TAG
from roquet.broker.services.send.recall import Recalls as RecallService
from roquet.broker.state import BrokerState
from roquet.broker.timers import service as module
from roquet.broker.timers.metrics import watch_timers
from roquet.broker.timers.rules import PRECISIONS_MS, TimerConfig, TimerConversion, _precision_fault
from roquet.broker.timers.service import BOUNDS_S, TimerService
from roquet.protocol import names
from roquet.protocol import properties as props
from roquet.protocol.bodies.timers import TimerMetricsBody
from roquet.protocol.codes import RequestCode, ResponseCode
from roquet.protocol.command import Command
from roquet.protocol.messages.recall_handle import RecallHandle
from roquet.service.metrics import Metrics
from roquet.store.results import Draft, PutResult, PutStatus, StoreFault
from roquet.store.tables.files import JsonFile
from roquet.store.timer_wheel import drop_wheel
from roquet.testing.clock import FakeClock

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from roquet.store.store import MessageStore

ILLEGAL, CROWDED = PutStatus.WHEEL_TIMER_MSG_ILLEGAL, PutStatus.WHEEL_TIMER_FLOW_CONTROL
OFF = PutStatus.WHEEL_TIMER_NOT_ENABLE
NOW_MS = 1_700_000_000_000


def draft(**properties: str) -> Draft:
    return Draft(
        topic="t",
        queue_id=3,
        body=b"m",
        properties=properties,
        born_timestamp=1,
        born_host=bytes(8),
        store_host=bytes(8),
    )


class Conversion:
    """Timer messages meet a wheel in which so many wait; `draws` are the random numbers."""

    def __init__(self, waiting: int | None = 0, draws: tuple[int, ...] = (), **rules: Any) -> None:
        self.asked: list[int] = []
        self.drawn: list[int] = []
        self.waiting = waiting
        self._draws = list(draws)
        slots = SimpleNamespace(waiting_at=self._waiting_at, is_turning=waiting is not None)
        self.it = TimerConversion(
            TimerConfig(**rules),
            cast("Any", slots),
            FakeClock(NOW_MS),
            cast("Any", SimpleNamespace(randrange=self._draw)),
        )

    def _waiting_at(self, time_ms: int) -> int | None:
        self.asked.append(time_ms)
        return self.waiting

    def _draw(self, limit: int) -> int:
        self.drawn.append(limit)
        return self._draws.pop(0)

    def status(self, message: Draft) -> PutStatus | None:
        refused = self.it.divert(message)
        return None if refused is None else refused.status


# --- sends ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("step", PRECISIONS_MS)
def test_message_fires_in_the_step_at_or_behind_its_time_and_never_before(step: int) -> None:
    for after_ms in (1, step - 1, step, step + 1, 2 * step, 2 * step + 1):
        due_ms = NOW_MS + after_ms
        message = draft(TIMER_DELIVER_MS=str(due_ms), REAL_TOPIC="x", REAL_QID="9", TAGS="a")
        it = Conversion(precision_ms=step, congestion=5)
        assert it.status(message) is None
        out_ms = int(message.properties.pop(props.TIMER_OUT_MS))
        assert out_ms % step == 0
        assert out_ms < due_ms <= out_ms + step
        assert (message.topic, message.queue_id) == (names.TIMER_TOPIC, 0)
        # Topic and queue stand behind all others.
        assert list(message.properties.items())[-2:] == [("REAL_TOPIC", "t"), ("REAL_QID", "3")]
        assert message.properties["TAGS"] == "a"
        assert it.asked == [out_ms]


@pytest.mark.parametrize(
    ("properties", "after_ms"),
    [
        ({"TIMER_DELAY_SEC": "7"}, 7000),
        ({"TIMER_DELAY_MS": "1500"}, 1500),
        ({"TIMER_DELIVER_MS": str(NOW_MS + 9000)}, 9000),
        # Seconds count before milliseconds, and these before the time itself.
        ({"TIMER_DELAY_MS": "1500", "TIMER_DELAY_SEC": "7"}, 7000),
        ({"TIMER_DELIVER_MS": str(NOW_MS + 9000), "TIMER_DELAY_MS": "1500"}, 1500),
    ],
)
def test_time_of_a_message_is_a_delay_or_a_point_in_time(
    properties: dict[str, str], after_ms: int
) -> None:
    message = draft(**properties)
    assert Conversion(precision_ms=100).status(message) is None
    assert int(message.properties[props.TIMER_OUT_MS]) == NOW_MS + after_ms - 100


@pytest.mark.parametrize(
    "text", ["", "x", "1.5", "+1", " 1", "1" * 20, str(2**62), str(-(2**62)), "\u0661"]
)
def test_time_that_is_no_number_is_illegal(text: str) -> None:
    for name in ("TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS"):
        assert Conversion().status(draft(**{name: text})) is ILLEGAL
    # A number of 62 bits is one, though no wheel takes it.
    far = draft(TIMER_DELIVER_MS=str(2**62 - 1))
    refused = Conversion().it.divert(far)
    assert refused is not None
    assert "timerMaxDelaySec" in refused.why


@pytest.mark.parametrize("after_ms", [0, -1, -NOW_MS])
def test_time_that_has_come_makes_an_ordinary_message_and_no_recall(after_ms: int) -> None:
    late = {"TIMER_DELIVER_MS": str(NOW_MS + after_ms)}
    message = draft(**late, TIMER_OUT_MS="5")
    assert Conversion().status(message) is None
    assert (message.topic, message.queue_id, message.properties) == ("t", 3, late)
    assert Conversion().status(draft(**late, TIMER_DEL_UNIQKEY="k")) is ILLEGAL
    ahead = draft(TIMER_DELIVER_MS=str(NOW_MS + 1), TIMER_DEL_UNIQKEY="k")
    assert Conversion().status(ahead) is None
    assert ahead.topic == names.TIMER_TOPIC


def test_delay_is_as_long_as_the_limit() -> None:
    it = Conversion(delay_max_s=60)
    assert it.status(draft(TIMER_DELAY_MS="60000")) is None
    refused = it.it.divert(draft(TIMER_DELAY_MS="60001"))
    assert refused is not None
    assert (refused.status, "delay of 60 s" in refused.why) == (ILLEGAL, True)


@pytest.mark.parametrize(
    ("waiting", "rules", "limits"),
    [
        (0, {"delay_max_s": 60, "precision_ms": 500}, (60_000, 500)),
        (0, {"enabled": False}, None),
        (None, {}, None),
        (0, {"congestion": 2**31 - 2}, None),
    ],
)
def test_limits_alone_decide_where_steps_are_never_crowded(
    waiting: int | None, rules: dict[str, Any], limits: tuple[int, int] | None
) -> None:
    assert Conversion(waiting, **rules).it.limits() == limits


def test_nothing_is_taken_without_a_wheel() -> None:
    assert Conversion(waiting=None).status(draft(TIMER_DELAY_MS="1")) is OFF
    assert Conversion(enabled=False).status(draft(TIMER_DELAY_MS="1")) is OFF


@pytest.mark.parametrize(
    ("waiting", "draws", "status"),
    [
        (99, (), None),
        (100, (), None),
        (101, (0,), CROWDED),
        (101, (1,), None),
        (150, (49,), CROWDED),
        (150, (50,), None),
        (199, (98,), CROWDED),
        (199, (99,), None),
        (200, (), CROWDED),
        (201, (), CROWDED),
    ],
)
def test_more_and_more_are_refused_where_a_step_is_crowded(
    waiting: int, draws: tuple[int, ...], status: PutStatus | None
) -> None:
    it = Conversion(waiting, draws, congestion=100)
    message = draft(TIMER_DELAY_MS="5000")
    assert it.status(message) is status
    assert (message.topic == "t") == (status is CROWDED)
    assert it.drawn == [100] * len(draws)


def test_precision_is_one_of_four() -> None:
    assert [_precision_fault(value) for value in PRECISIONS_MS] == [None] * 4
    for value in (0, 99, 101, 1001):
        assert "must be" in (_precision_fault(value) or "")


# --- recalls -------------------------------------------------------------------------------------


class Recalls:
    """The processor of recalls of a broker that takes them."""

    def __init__(self, **rules: Any) -> None:
        self.clock = FakeClock(NOW_MS)
        self.state = BrokerState()
        self.drafts: list[Draft] = []
        self.status = PutStatus.PUT_OK
        self.exported: bytes | None = None
        broker = SimpleNamespace(
            rules=SimpleNamespace(region="R"),
            clock=self.clock,
            identity=SimpleNamespace(name="b", store_host=b"\1" * 8),
            stamp=lambda properties: properties.update(CLUSTER="c"),
        )
        wheel = SimpleNamespace(
            checkpoint=self._checkpoint,
            export=self._export,
        )
        self.service = RecallService(
            cast("Any", SimpleNamespace(append=self._append)),
            cast("Any", {"t": object()}),
            rules=TimerConfig(recall=True, delay_max_s=60, **rules),
            broker_properties=cast("Any", broker),
            state=self.state,
        )
        callers = SimpleNamespace(of=lambda request: SimpleNamespace(address=request.peer.address))
        self.it = RecallAdapter(self.service, cast("Any", callers), {props.MSG_REGION: "R"})
        self.wheel = TimerAdapter(cast("Any", wheel))

    async def _checkpoint(self) -> bytes | None:
        return self.exported

    async def _export(self) -> TimerMetricsBody | None:
        return None if self.exported is None else TimerMetricsBody(topics=())

    async def _append(self, message: Draft) -> PutResult:
        self.drafts.append(message)
        return PutResult(self.status, why="a test says so")

    async def recall(self, after_ms: int = 1000, **changes: str) -> Command:
        fields = {"topic": "t", "broker": "b", "of": "t"} | changes
        handle = RecallHandle(fields["of"], fields["broker"], NOW_MS + after_ms, "key")
        ext = {"producerGroup": "g", "topic": fields["topic"], "recallHandle": handle.encode()}
        request = SimpleNamespace(
            command=Command(RequestCode.RECALL_MESSAGE, ext),
            peer=SimpleNamespace(address="127.0.0.1:9"),
        )
        answer: Command = await self.it.recall(cast("Any", request))
        return answer


@on_loop
async def test_recall_is_stored_for_the_step_in_which_its_message_is_due() -> None:
    it = Recalls()
    answer = await it.recall()
    assert (answer.code, answer.ext) == (0, {"MSG_REGION": "R", "msgId": "key"})
    (stored,) = it.drafts
    assert (stored.topic, stored.queue_id, stored.body) == ("t", 0, BODY)
    assert stored.properties == {
        "TAGS": TAG,
        "TIMER_DEL_UNIQKEY": "key",
        "TIMER_DELIVER_MS": str(NOW_MS + 1000),
        "CLUSTER": "c",
    }
    assert (stored.born_timestamp, stored.store_host) == (NOW_MS, b"\1" * 8)
    assert stored.born_host == bytes((127, 0, 0, 1, 0, 0, 0, 9))
    older = Recalls(key_has_topic=True)
    await older.recall()
    assert older.drafts[0].properties["TIMER_DEL_UNIQKEY"] == "t+key"
    it.status = PutStatus.WHEEL_TIMER_MSG_ILLEGAL
    failed = await it.recall()
    assert (failed.code, failed.ext) == (ResponseCode.SYSTEM_ERROR, {"MSG_REGION": "R"})


@pytest.mark.parametrize(
    ("after_ms", "changes", "code"),
    [
        (1, {}, 0),
        (0, {}, ResponseCode.ILLEGAL_OPERATION),
        (59_999, {}, 0),
        (60_000, {}, ResponseCode.ILLEGAL_OPERATION),
        (1, {"of": "u"}, ResponseCode.ILLEGAL_OPERATION),
        (1, {"broker": "c"}, ResponseCode.ILLEGAL_OPERATION),
        (1, {"topic": "u"}, ResponseCode.TOPIC_NOT_EXIST),
    ],
)
def test_recall_is_of_this_broker_and_comes_in_time(
    after_ms: int, changes: dict[str, str], code: int
) -> None:
    it = Recalls()
    assert asyncio.run(it.recall(after_ms, **changes)).code == code
    assert len(it.drafts) == (code == 0)


def test_recall_is_refused_by_the_state_of_the_broker() -> None:
    def code(change: Callable[[Recalls], object], **rules: Any) -> int:
        it = Recalls(**rules)
        change(it)
        return asyncio.run(it.recall()).code

    assert code(lambda it: it.service.follow(TimerConfig())) == ResponseCode.NO_PERMISSION
    assert code(lambda it: setattr(it.state, "is_slave", True)) == ResponseCode.SLAVE_NOT_AVAILABLE
    opens = ResponseCode.SERVICE_NOT_AVAILABLE
    assert code(lambda it: setattr(it.state, "accept_sends_from_ms", NOW_MS + 1)) == opens
    assert code(lambda it: setattr(it.state, "accept_sends_from_ms", NOW_MS)) == 0
    for allowed in (True, False):
        closed = code(lambda it: setattr(it.state, "permission", 4), recall_unwritable=allowed)
        assert closed == (0 if allowed else opens)
        assert code(lambda _: None, recall_unwritable=allowed) == 0


def test_slave_is_told_when_there_is_no_wheel() -> None:
    it = Recalls()
    request = cast("Any", SimpleNamespace(command=Command(60, {})))
    for ask in (it.wheel.checkpoint, it.wheel.metrics):
        it.exported = None
        with pytest.raises(Refusal) as caught:
            asyncio.run(ask(request))
        assert caught.value.reason is Reason.FAILED
        it.exported = b"body"
        assert asyncio.run(ask(request)).code == 0
    assert asyncio.run(it.wheel.checkpoint(request)).body == b"body"
    assert {code for route in (*it.it.routes(), *it.wheel.routes()) for code in route.codes} == {
        370,
        60,
        61,
    }


# --- the service ---------------------------------------------------------------------------------


class Wheel:
    """A wheel that stands still."""

    def __init__(self) -> None:
        self.figures = {"rebuilt_units": 0, "cut_bytes": 0, "replayed": 0}
        self.rows: list[tuple[str, int, int]] = []
        self.given: list[tuple[str, int, int]] = []
        self.allowed: tuple[bool, bool] | None = None
        self.snapshots_ms: int | None = None
        self.fault: str | None = None
        self.said: list[str] = []

    def stats(self) -> dict[str, int]:
        return self.figures

    def metrics(self) -> list[tuple[str, int, int]]:
        return self.rows

    def set_metrics(self, rows: list[tuple[str, int, int]]) -> None:
        self.given = rows

    def allow(self, enqueue: bool, dequeue: bool) -> None:
        self.allowed = enqueue, dequeue

    def set_snapshots(self, every_ms: int) -> None:
        self.snapshots_ms = every_ms

    def start(self) -> None:
        self.said.append("start")

    def close(self) -> None:
        self.said.append("close")

    def waiting_at(self, time_ms: int) -> int:
        return time_ms - NOW_MS + 7

    def trouble(self) -> str | None:
        return self.fault

    def checkpoint(self) -> bytes:
        return b"c" * 56

    def traffic(self) -> list[tuple[str, int, int, list[int], int]]:
        return [("t", 5, 2, [1, 1, 0, 0, 0, 0, 3], 900_000)]

    def distribution(self, bounds_ms: list[int]) -> list[int]:
        return [bound // 1000 for bound in bounds_ms]

    def recount(self, below: int) -> list[tuple[str, int, int]]:
        self.said.append(f"recount {below}")
        return []


class Service:
    """The timers of a broker over such a wheel."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, **rules: Any) -> None:
        self.wheel = Wheel()
        self.clock = FakeClock(NOW_MS)
        self.opened: dict[str, Any] = {}

        async def open_wheel(_store: object, **options: Any) -> Wheel:
            self.opened = options
            return self.wheel

        monkeypatch.setattr(module, "open_wheel", open_wheel)
        self.file = folder / "timermetrics"
        self.it = TimerService(
            cast("Any", None), TimerConfig(**rules), JsonFile(self.file), self.clock
        )


def test_wheel_that_is_off_tells_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        service = Service(tmp_path, monkeypatch, enabled=False)
        it = service.it
        await it.start()
        assert (it.is_on, it.waiting_at(5), it.passed_ms()) == (False, None, None)
        (tmp_path / "timercheck").write_bytes(b"\1" * 4096)
        assert (await it.checkpoint(), await it.export()) == (None, None)
        await service.clock.advance(1)
        await it.look()
        assert {float(text) for text in it.runtime().values()} == {0.0}
        metrics = Metrics()
        watch_timers(it, metrics, has_topic=lambda name: name != "gone")
        assert "timer_waiting{" not in metrics.render().decode()
        await it.persist()
        await it.stop()
        assert (service.wheel.said, service.file.exists()) == ([], False)

    asyncio.run(run())


def test_wheel_is_opened_by_the_settings_and_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run() -> None:
        rules: dict[str, Any] = {"precision_ms": 500, "window_slots": 9, "flush_ms": 77}
        service = Service(tmp_path, monkeypatch, **rules, log_file_bytes=2048, stop_enqueue=True)
        it = service.it
        await it.start()
        assert service.opened == {
            "precision_ms": 500,
            "window": 9,
            "flush_ms": 77,
            "log_file_size": 2048,
            "key_has_topic": False,
        }
        assert service.wheel.allowed == (False, True)
        assert service.wheel.snapshots_ms == 0
        it.follow(TimerConfig(stop_dequeue=True, snapshot=True, snapshot_ms=700))
        assert service.wheel.allowed == (True, False)
        assert service.wheel.snapshots_ms == 700
        assert it.waiting_at(NOW_MS) == 7
        await it.stop()
        await it.stop()
        assert service.wheel.said == ["start", "close"]
        assert it.waiting_at(NOW_MS) is None

    asyncio.run(run())


def test_counts_of_waiting_messages_are_kept_over_a_restart_and_written_when_they_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run() -> None:
        service = Service(tmp_path, monkeypatch)
        it = service.it
        await it.start()
        await it.persist()
        assert not service.file.exists(), "there is nothing yet"
        service.wheel.rows = [("b", 2, 20), ("a", 1, 10)]
        await it.persist()
        first = TimerMetricsBody.decode(service.file.read_bytes())
        assert [(row.topic, row.waiting) for row in first.topics] == [("a", 1), ("b", 2)]
        await it.persist()
        assert TimerMetricsBody.decode(service.file.read_bytes()).version == first.version
        assert it.waiting() == {"a": 1.0, "b": 2.0}
        exported = await it.export()
        assert exported is not None
        assert (exported.topics, exported.version) == (first.topics, first.version)
        await it.stop()
        again = Service(tmp_path, monkeypatch)
        await again.it.start()
        assert again.wheel.given == [("a", 1, 10), ("b", 2, 20)]
        again.wheel.rows = list(again.wheel.given)
        before = service.file.read_bytes()
        await again.it.persist()
        assert service.file.read_bytes() == before
        again.wheel.rows = [("a", 0, 10)]
        await again.it.persist()
        assert TimerMetricsBody.decode(service.file.read_bytes()).version != first.version

    asyncio.run(run())


def test_wheel_that_stands_tells_what_its_files_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run() -> None:
        it = Service(tmp_path, monkeypatch).it
        assert (await it.checkpoint(), await it.export()) == (None, None)
        file = tmp_path / "timercheck"
        for torn in (b"\1" * 55, b"\0" * 4096):
            file.write_bytes(torn)
            assert await it.checkpoint() is None
        file.write_bytes(b"\1" * 56 + b"\2" * 4040)
        assert await it.checkpoint() == b"\1" * 56
        (tmp_path / "timermetrics").write_bytes(b"{")
        assert await it.export() is None
        first = Service(tmp_path, monkeypatch)
        await first.it.start()
        first.wheel.rows = [("a", 1, 10)]
        await first.it.stop()
        exported = await first.it.export()
        assert exported is not None
        assert [(row.topic, row.waiting) for row in exported.topics] == [("a", 1)]

    asyncio.run(run())


def test_rates_are_of_a_second_and_never_below_zero(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run() -> None:
        service = Service(tmp_path, monkeypatch)
        it = service.it
        await it.start()
        service.wheel.figures = {"enqueued": 30, "fired": 10, "behind": 4, "waits": 3}
        await service.clock.advance(2)
        await it.look()
        service.wheel.figures |= {"write_ms": 10_000, "read_ms": 5_000}
        assert it.runtime() == {
            "timerCongestNum": "2007",
            "timerDequeueTps": "5.0",
            "timerEnqueueTps": "15.0",
            "timerOffsetBehind": "4",
            "timerReadBehind": "5",
            "timerWaits": "3",
        }
        service.wheel.figures = {"enqueued": 40, "fired": 11}
        await service.clock.advance(4)
        await it.look()
        rates = it.runtime()
        assert (rates["timerEnqueueTps"], rates["timerDequeueTps"]) == ("2.5", "0.2")
        assert (rates["timerReadBehind"], rates["timerWaits"]) == ("0", "0")
        service.wheel.figures = {"write_ms": 1, "read_ms": 5_000}
        await it.look()
        rates = it.runtime()
        assert (rates["timerEnqueueTps"], rates["timerReadBehind"]) == ("0.0", "0")
        assert it.within() == {bound: float(bound) for bound in BOUNDS_S}
        service.wheel.rows = [("t", 3, 20), ("gone", 2, 20)]
        counted = ("enqueued", "fired", "rolled", "cancelled", "unreadable", "refused", "waits")
        service.wheel.figures = {
            name: at for at, name in enumerate((*counted, "broken_chains", "behind"), 1)
        }
        metrics = Metrics()
        # The first of 9 messages that have not entered was stored 40 ms ago.
        it._store = cast(
            "MessageStore",
            SimpleNamespace(
                max_offset=lambda *_: 9, store_time=lambda *_: service.clock.now_ms() - 40
            ),
        )
        watch_timers(it, metrics, has_topic=lambda name: name != "gone")
        shown = metrics.render().decode().splitlines()
        for at, name in enumerate((*counted, "broken_chains", "enqueue_behind"), 1):
            assert any(
                line.startswith(f"roquet_timer_{name}") and line.endswith(f" {at}.0")
                for line in shown
            ), name
        assert 'roquet_timer_waiting{topic="t"} 3.0' in shown
        assert "roquet_timer_waiting_for_no_topic 2.0" in shown
        where = 'storage_medium="disk",storage_type="local"'
        of_topic = f'{where},topic="t"'
        for line in (
            f"rocketmq_timer_enqueue_total{{{of_topic}}} 5.0",
            f"rocketmq_timer_dequeue_total{{{of_topic}}} 2.0",
            f"rocketmq_timing_messages{{{of_topic}}} 3.0",
            f"rocketmq_timer_enqueue_lag{{{where}}} 9.0",
            f"rocketmq_timer_enqueue_latency_milliseconds{{{where}}} 40.0",
            f"rocketmq_timer_dequeue_lag{{{where}}} 5.0",
            f'rocketmq_timer_message_snapshot{{{where},timer_bound_s="300"}} 300.0',
            f"rocketmq_delay_message_latency_seconds_sum{{{of_topic}}} 900000.0",
            f"rocketmq_delay_message_latency_seconds_count{{{of_topic}}} 5.0",
        ):
            assert line in shown, line
        assert 'roquet_timer_waiting_within{seconds="300"} 300.0' in shown

    asyncio.run(run())


@pytest.mark.parametrize(
    ("behind", "passed_ms"), [({"behind": 0}, 99), ({"behind": 1}, None), ({}, None)]
)
def test_time_has_passed_when_nothing_waits_to_enter_the_wheel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, behind: dict[str, int], passed_ms: int | None
) -> None:
    async def run() -> None:
        service = Service(tmp_path, monkeypatch)
        await service.it.start()
        service.wheel.figures = behind | {"read_ms": 100}
        assert service.it.passed_ms() == passed_ms

    asyncio.run(run())


def test_trouble_of_the_wheel_is_told_once_and_that_it_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> None:
        service = Service(tmp_path, monkeypatch)
        it = service.it
        await it.start()
        await it.look()
        assert caplog.messages == []
        service.wheel.fault = "disk"
        service.wheel.figures = {"waits": 1}
        await it.look()
        await it.look()
        assert [text.split(":")[0] for text in caplog.messages] == [
            "due timer messages wait",
            "the timer wheel has to wait",
        ]
        service.wheel.fault = None
        await it.look()
        assert caplog.messages[2:] == ["the timer wheel goes on"]

    asyncio.run(run())


@pytest.mark.parametrize(
    ("figures", "told"),
    [
        ({}, False),
        ({"rebuilt_units": 1}, True),
        ({"cut_bytes": 1}, True),
        ({"replayed": 1}, True),
        ({"rebuilt_units": -1}, False),
    ],
)
def test_wheel_that_was_made_anew_is_told(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    *,
    figures: dict[str, int],
    told: bool,
) -> None:
    service = Service(tmp_path, monkeypatch)
    service.wheel.figures |= figures
    asyncio.run(service.it.start())
    assert bool(caplog.messages) is told


def test_wheel_that_cannot_be_saved_stops_no_broker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def fails(_wheel: object) -> None:
        raise StoreFault("io", "disk")

    async def run() -> None:
        service = Service(tmp_path, monkeypatch)
        await service.it.start()
        monkeypatch.setattr(module, "close_wheel", fails)
        await service.it.stop()
        assert "was not saved" in caplog.text

    asyncio.run(run())


def test_counts_are_checked_so_long_after_the_start_and_the_last_check_at_the_earliest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hours = ";".join(f"{hour:02d}" for hour in range(24))

    async def run() -> None:
        service = Service(tmp_path, monkeypatch, check_when=hours, check_below=7)
        await service.it.start()
        service.wheel.said.clear()
        for wait_ms, checks in ((module.CHECK_PAUSE_MS, 0), (1, 1), (module.CHECK_PAUSE_MS, 1)):
            await service.clock.advance(wait_ms / 1000)
            await service.it.check()
            assert service.wheel.said == ["recount 7"] * checks
        await service.clock.advance(0.001)
        await service.it.check()
        await service.it.check()
        assert service.wheel.said == ["recount 7"] * 2
        await service.it.stop()

    asyncio.run(run())


def test_files_of_a_wheel_that_is_given_up_are_deleted_and_no_others(tmp_path: Path) -> None:
    (tmp_path / "timerlog").mkdir()
    gone = ["timerwheel", "timerwheel.52", "timerwheel.0", "timerlog/00000000000000000000"]
    for name in (*gone, "timermetrics", "timercheck"):
        (tmp_path / name).write_bytes(b"x")
    for _ in range(2):
        drop_wheel(tmp_path)
        left = sorted(path.name for path in tmp_path.rglob("*") if path.is_file())
        assert left == ["timercheck", "timermetrics"]
