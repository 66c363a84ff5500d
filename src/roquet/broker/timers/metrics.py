"""Numbers of the timer wheel: those of RocketMQ's names, and our own."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from roquet.broker.timers.service import DELAYS_S

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from roquet.broker.timers.service import TimerService
    from roquet.service.metrics import Metrics

_LABELS = ("storage_type", "storage_medium")
_LOCAL = ("local", "disk")
_COUNTED = (
    ("enqueued", "Timer messages that entered the wheel"),
    ("fired", "Timer messages stored where they were meant for"),
    ("rolled", "Turns of timer messages beyond the window"),
    ("cancelled", "Timer messages that were recalled"),
    ("unreadable", "Timer messages whose record was gone or damaged: not delivered"),
    ("refused", "Timer messages that no topic could take: not delivered"),
    ("waits", "Times that due timer messages had to wait for the store"),
    ("broken_chains", "Damage in the timer log that made it start over from the timer topic"),
)


def watch_timers(
    service: TimerService, metrics: Metrics, *, has_topic: Callable[[str], bool]
) -> None:
    """Show the numbers. `has_topic` tells whether a topic exists."""
    _watch_standard(service, metrics)
    for name, text in _COUNTED:
        metrics.watch(f"timer_{name}", text, functools.partial(service.stat, name))
    metrics.watch(
        "timer_enqueue_behind",
        "Messages of the timer topic that have not entered the wheel",
        functools.partial(service.stat, "behind"),
    )
    metrics.watch(
        "timer_counts_corrected",
        "Counts of waiting timer messages of a topic that the daily check found wrong",
        lambda: float(service.corrected),
    )
    metrics.watch_many(
        "timer_waiting", "Timer messages that wait, by topic", "topic", service.waiting
    )
    metrics.watch(
        "timer_waiting_for_no_topic",
        "Timer messages that wait for topics that do not exist",
        lambda: sum(count for name, count in service.waiting().items() if not has_topic(name)),
    )
    metrics.watch_many(
        "timer_waiting_within",
        "Timer messages due within seconds",
        "seconds",
        lambda: {str(bound): count for bound, count in service.within().items()},
    )


def _watch_standard(service: TimerService, metrics: Metrics) -> None:
    gauges: tuple[tuple[str, str, Callable[[], float]], ...] = (
        (
            "timer_enqueue_lag",
            "Messages that have not entered the wheel",
            functools.partial(service.stat, "behind"),
        ),
        (
            "timer_enqueue_latency_milliseconds",
            "Age of the oldest message that has not entered the wheel, ms",
            service.enqueue_late_ms,
        ),
        (
            "timer_dequeue_lag",
            "Messages that wait in the wheel",
            lambda: sum(service.waiting().values()),
        ),
        (
            "timer_dequeue_latency_milliseconds",
            "How long the slot that fires next has been due, ms",
            service.dequeue_late_ms,
        ),
    )
    for name, text, read in gauges:
        metrics.standard(name, text, _LABELS, functools.partial(_one, read))

    def entered(column: int) -> Iterator[tuple[Sequence[str], float]]:
        for row in service.traffic():
            yield (*_LOCAL, row[0]), float((row[1], row[2])[column])

    topic_labels = (*_LABELS, "topic")
    for column, name, text in (
        (0, "timer_enqueue", "Messages that entered the wheel, by topic"),
        (1, "timer_dequeue", "Messages of the wheel stored in their topic"),
    ):
        metrics.standard(name, text, topic_labels, functools.partial(entered, column), counts=True)
    metrics.standard(
        "timing_messages",
        "Messages that wait in the wheel, by topic",
        topic_labels,
        lambda: [((*_LOCAL, topic), count) for topic, count in service.waiting().items()],
    )
    metrics.standard(
        "timer_message_snapshot",
        "Messages that wait in the wheel, by how far off they are",
        (*_LABELS, "timer_bound_s"),
        lambda: [((*_LOCAL, str(bound)), count) for bound, count in service.within().items()],
    )
    metrics.classes(
        "delay_message_latency_seconds",
        "Delays of messages that entered the wheel: from birth until due",
        topic_labels,
        DELAYS_S,
        lambda: [((*_LOCAL, row[0]), row[3], float(row[4])) for row in service.traffic()],
    )


def _one(read: Callable[[], float]) -> list[tuple[Sequence[str], float]]:
    return [(_LOCAL, float(read()))]
