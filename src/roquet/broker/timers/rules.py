"""What a send may ask of the timer wheel, and what becomes of it (spec: store §16.1)."""

from __future__ import annotations

import dataclasses
import re
from typing import TYPE_CHECKING, Protocol

from roquet.base.config import setting
from roquet.base.hours import hours, hours_fault
from roquet.protocol import names
from roquet.protocol import properties as props
from roquet.store.results import PutResult, PutStatus

if TYPE_CHECKING:
    import random

    from roquet.base.clock import Clock
    from roquet.store.results import Draft

PRECISIONS_MS = (100, 200, 500, 1000)
DELAY_MAX_S = 10 * 366 * 86_400
"""The longest delay that can be allowed: ten years."""
_NUMBER = re.compile(r"-?[0-9]{1,19}", re.ASCII)
_I32_MAX = 2**31 - 1


def _precision_fault(value: int) -> str | None:
    return None if value in PRECISIONS_MS else "must be 100, 200, 500 or 1000"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TimerConfig:
    """Settings of timer messages."""

    enabled: bool = setting("timerWheelEnable", True, "Whether timer messages are taken.")
    precision_ms: int = setting(
        "timerPrecisionMs",
        1000,
        "Step of the wheel: a message comes at most one step late, never early.",
        unit="ms",
        check=_precision_fault,
    )
    log_file_bytes: int = setting(
        "mappedFileSizeTimerLog",
        100 * 1024 * 1024,
        "A file of the timer log.",
        unit="bytes",
        low=1024,
        high=2**31 - 1,
    )
    window_slots: int = setting(
        "timerRollWindowSlot",
        172_800,
        "Steps that a message waits in one turn; longer delays take several.",
        low=0,
        high=_I32_MAX,
    )
    flush_ms: int = setting(
        "timerFlushIntervalMs",
        1000,
        "Between two saves of the wheel.",
        unit="ms",
        low=10,
        high=60_000,
    )
    snapshot: bool = setting(
        "timerWheelSnapshotFlush",
        False,
        "Also keep snapshots of the wheel, for a Java broker that reads them.",
        live=True,
    )
    snapshot_ms: int = setting(
        "timerWheelSnapshotIntervalMs",
        10_000,
        "Between two snapshots.",
        unit="ms",
        low=100,
        high=3_600_000,
        live=True,
    )
    check_counts: bool = setting(
        "timerEnableCheckMetrics",
        True,
        "Count waiting messages by topic anew, once a day, and correct what is wrong.",
        live=True,
    )
    check_when: str = setting(
        "timerCheckMetricsWhen",
        "05",
        "Hours of the day to count in, by `;`.",
        check=hours_fault,
        live=True,
    )
    check_below: int = setting(
        "timerMetricSmallThreshold",
        1_000_000,
        "Topics with as many waiting messages or more are not counted anew.",
        low=0,
        high=_I32_MAX,
        live=True,
    )
    delay_max_s: int = setting(
        "timerMaxDelaySec", 259_200, "Longest delay.", unit="s", low=1, high=DELAY_MAX_S
    )
    congestion: int = setting(
        "timerCongestNumEachSlot",
        _I32_MAX,
        "Messages of one step above which more and more are refused; all at twice as many.",
        low=1,
        high=_I32_MAX,
        live=True,
    )
    stop_enqueue: bool = setting(
        "timerStopEnqueue", False, "Keep timer messages out of the wheel for now.", live=True
    )
    stop_dequeue: bool = setting(
        "timerStopDequeue", False, "Keep due messages in the wheel for now.", live=True
    )
    key_has_topic: bool = setting(
        "appendTopicForTimerDeleteKey",
        False,
        "Whether the key of a recall begins with the topic, as before 5.5.",
    )
    recall: bool = setting(
        "recallMessageEnable", False, "Whether senders may recall timer messages.", live=True
    )
    recall_unwritable: bool = setting(
        "allowRecallWhenBrokerNotWriteable",
        True,
        "Whether that also holds while the broker takes no sends.",
        live=True,
    )

    @property
    def check_hours(self) -> frozenset[int]:
        """The hours of the day in which waiting messages are counted anew."""
        return hours(self.check_when)


class Slots(Protocol):
    """What a conversion asks of the wheel."""

    @property
    def is_turning(self) -> bool:
        """Whether there is a wheel at work."""
        ...

    def waiting_at(self, time_ms: int) -> int | None:
        """Return how many messages wait for a step of time; None when the wheel does not turn."""
        ...


class TimerConversion:
    """Sends a message with a timer property to the timer topic."""

    def __init__(self, rules: TimerConfig, slots: Slots, clock: Clock, rng: random.Random) -> None:
        """`rng` draws who is refused when a step of time is crowded."""
        self.rules = rules
        self._slots = slots
        self._clock = clock
        self._rng = rng

    def divert(self, draft: Draft) -> PutResult | None:
        """Change topic, queue and properties of a draft that asks for a time to come.

        Returns why it cannot be stored; None when it can, as a timer message or, when its time has
        come already, as an ordinary one.
        """
        # Only this broker says when a message is due.
        draft.properties.pop(props.TIMER_OUT_MS, None)
        if not self.rules.enabled or not self._slots.is_turning:
            return PutResult(PutStatus.WHEEL_TIMER_NOT_ENABLE, why="the timer wheel is off")
        now_ms = self._clock.now_ms()
        due_ms = _due_ms(draft.properties, now_ms)
        if due_ms is not None and due_ms > now_ms:
            return self._refused(draft, due_ms, now_ms)
        if due_ms is None:
            return _illegal("the time of a timer message is no number")
        if props.TIMER_DEL_UNIQKEY in draft.properties:
            return _illegal("the message to recall was due already")
        return None

    def limits(self) -> tuple[int, int] | None:
        """Return the longest delay and the step, ms, where these alone decide.

        None: `divert` has to be asked.
        """
        rules = self.rules
        if not rules.enabled or not self._slots.is_turning or rules.congestion != _I32_MAX:
            return None
        return rules.delay_max_s * 1000, rules.precision_ms

    def _refused(self, draft: Draft, due_ms: int, now_ms: int) -> PutResult | None:
        """Address a draft to the wheel; return why it cannot be."""
        limit_s = self.rules.delay_max_s
        if due_ms - now_ms > limit_s * 1000:
            delay_s = (due_ms - now_ms) // 1000
            return _illegal(f"the delay of {delay_s} s is beyond timerMaxDelaySec, {limit_s} s")
        out_ms = self._out_ms(due_ms)
        if self._is_crowded(out_ms):
            rules = self.rules
            why = f"over {rules.congestion} messages are due in the same {rules.precision_ms} ms"
            return PutResult(PutStatus.WHEEL_TIMER_FLOW_CONTROL, why=why)
        _address(draft, out_ms)
        return None

    def _out_ms(self, due_ms: int) -> int:
        """Return the step that is noted: it fires one step later, so never before `due_ms`."""
        step = self.rules.precision_ms
        return due_ms - step if due_ms % step == 0 else due_ms - due_ms % step

    def _is_crowded(self, out_ms: int) -> bool:
        limit = self.rules.congestion
        if limit == _I32_MAX:
            return False
        waiting = self._slots.waiting_at(out_ms) or 0
        if waiting <= limit:
            return False
        return waiting >= 2 * limit or self._rng.randrange(limit) < waiting - limit


def _due_ms(properties: dict[str, str], now_ms: int) -> int | None:
    """Return when a message is due, Unix milliseconds; None when that cannot be told."""
    for name, unit in ((props.TIMER_DELAY_SEC, 1000), (props.TIMER_DELAY_MS, 1)):
        text = properties.get(name)
        if text is not None:
            number = _number(text)
            return None if number is None else now_ms + number * unit
    return _number(properties.get(props.TIMER_DELIVER_MS, ""))


def _number(text: str) -> int | None:
    number = int(text) if _NUMBER.fullmatch(text) else None
    return number if number is not None and abs(number) < 2**62 else None


def _address(draft: Draft, out_ms: int) -> None:
    draft.properties[props.TIMER_OUT_MS] = str(out_ms)
    # Taken out first: Java writes the two behind all others.
    draft.properties.pop(props.REAL_TOPIC, None)
    draft.properties.pop(props.REAL_QUEUE_ID, None)
    draft.properties[props.REAL_TOPIC] = draft.topic
    draft.properties[props.REAL_QUEUE_ID] = str(draft.queue_id)
    draft.topic = names.TIMER_TOPIC
    draft.queue_id = 0


def _illegal(why: str) -> PutResult:
    return PutResult(PutStatus.WHEEL_TIMER_MSG_ILLEGAL, why=why)
