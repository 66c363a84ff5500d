"""Numbers of the redelivery of popped messages, those of RocketMQ's names first."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from roquet.store.results import PutStatus

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from roquet.broker.pop.revive import ReviveService
    from roquet.broker.pop.revive_queue import ReviveQueue
    from roquet.service.counting import LabelCounts
    from roquet.service.metrics import Metrics

_OUTCOMES = ("dead", "gone", "failed", "orphans", "re_puts", "given_up", "no_room")


def watch_puts(puts: LabelCounts, service: ReviveService, metrics: Metrics) -> None:
    """Show the attempts to store records in the revive queues.

    Most are stored by compiled code: those that are stored count when they are read, a round later.
    """

    def rows() -> Iterable[tuple[Sequence[str], float]]:
        stored: Counter[tuple[str, ...]] = Counter()
        for queue in service.queues.values():
            for (kind, *owner), count in queue.counts.of_owners.rows():
                stored[kind, PutStatus.PUT_OK.name, *owner] += int(count)
        failed = [it for it in puts.rows() if it[0][1] != PutStatus.PUT_OK.name]
        return [*((values, float(count)) for values, count in stored.items()), *failed]

    metrics.standard(
        "pop_revive_in_message",
        "Records that were to be stored in the revive queues, by what became of them",
        ("revive_message_type", "put_status", "topic", "consumer_group"),
        rows,
        counts=True,
    )


def watch_revive(service: ReviveService, metrics: Metrics) -> None:
    """Show the numbers."""

    def by_queue(
        read: Callable[[int, ReviveQueue], float],
    ) -> Iterable[tuple[Sequence[str], float]]:
        return [((str(number),), read(number, it)) for number, it in service.queues.items()]

    def by_kind() -> Iterable[tuple[Sequence[str], float]]:
        for number, queue in service.queues.items():
            for values, count in queue.counts.of_owners.rows():
                yield (*values, str(number)), count

    metrics.standard(
        # Java names a unit that is not this number's.
        "pop_revive_lag_milliseconds",
        "Records of a revive queue that are not settled",
        ("queue_id",),
        lambda: by_queue(lambda number, _: float(service.lag(number))),
    )
    metrics.standard(
        "pop_revive_latency_milliseconds",
        "How long the oldest checkpoint of a revive queue is overdue, milliseconds",
        ("queue_id",),
        lambda: by_queue(lambda number, _: float(service.latency_ms(number))),
    )
    metrics.standard(
        "pop_revive_out_message",
        "Records read from the revive queues",
        ("revive_message_type", "topic", "consumer_group", "queue_id"),
        by_kind,
        counts=True,
    )
    metrics.standard(
        "pop_revive_retry_messages",
        "Popped messages stored again because they were not acknowledged",
        ("put_status", "topic", "consumer_group"),
        service.copies.counts.puts.rows,
        counts=True,
    )
    counts = service.copies.counts
    metrics.watch_many(
        "pop_revive",
        "Popped messages that were not acknowledged and not simply stored again",
        "outcome",
        lambda: {name: float(getattr(counts, name)) for name in _OUTCOMES},
        counts=True,
    )
    metrics.watch(
        "pop_revive_unreadable",
        "Records of the revive queues that are damaged",
        lambda: float(sum(queue.counts.unreadable for queue in service.queues.values())),
    )
    metrics.watch(
        "pop_revive_stray_acks",
        "Acknowledgements that wait for a checkpoint that was not read yet",
        lambda: float(len(service.strays)),
    )
    metrics.watch(
        "pop_revive_stray_acks_pushed_out",
        "Those that had to be forgotten before their time because there were too many",
        lambda: float(service.strays.pushed_out),
    )
