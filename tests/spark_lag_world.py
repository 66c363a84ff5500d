"""Snapshots as a table that `lag` is given: a story of a few groups, one row each ten seconds."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime, timedelta

BEGIN = datetime(2026, 5, 1, 12, 0, tzinfo=UTC)
STEP_S = 10
SCHEMA = (
    "at timestamp, `group` string, topic string, brokerName string, queueId int, offset bigint,"
    " minOffset bigint, maxOffset bigint, `lag` bigint, clientId string"
)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Queue:
    """How one queue moves: `rates` are messages a second consumed and produced."""

    group: str
    queue_id: int
    rates: tuple[int, int]
    first: tuple[int, int]
    """Offset and end in the first snapshot."""
    client: str | None
    min_offset: int = 0
    topic: str = "orders"
    steps: range = range(13)
    jump: tuple[int, int] | None = None
    """In this snapshot the offset is set to this value and goes on from there."""
    gone_from: int = 1000
    """From this snapshot on the queue is not there, and its offset is."""

    def rows(self) -> list[tuple[object, ...]]:
        """Return a row for each snapshot that has the queue."""
        made: list[tuple[object, ...]] = []
        offset, end = self.first
        for step in range(self.steps.stop):
            if self.jump is not None and step == self.jump[0]:
                offset = self.jump[1]
            if step in self.steps:
                at = BEGIN + timedelta(seconds=step * STEP_S)
                is_gone = step >= self.gone_from
                left = max(0, end - offset)
                bounds = (None, None, None) if is_gone else (self.min_offset, end, left)
                place = (at, self.group, self.topic, "broker-a", self.queue_id, offset)
                made.append((*place, *bounds, self.client))
            consumed, produced = self.rates
            end += produced * STEP_S
            offset = min(end, offset + consumed * STEP_S)
        return made


STORY = (
    # Two members: one is fast, the other consumes a tenth of it.
    Queue(group="uneven", queue_id=0, rates=(100, 50), first=(0, 9000), client="fast"),
    Queue(group="uneven", queue_id=1, rates=(10, 50), first=(0, 500), client="slow"),
    # Everything is consumed as it comes, but in one queue, which nobody reads.
    Queue(group="halted", queue_id=0, rates=(20, 20), first=(500, 500), client="m1"),
    Queue(group="halted", queue_id=1, rates=(0, 20), first=(100, 100), client="m2"),
    # An operator sets the offset back.
    Queue(group="reset", queue_id=0, rates=(30, 10), first=(200, 3000), client="r", jump=(6, 0)),
    # The topic is deleted after a minute, the offset stays; another one ends before the last.
    Queue(group="gone", queue_id=0, rates=(0, 0), first=(7, 7), client=None, gone_from=6),
    Queue(group="gone", queue_id=1, rates=(0, 0), first=(7, 7), client=None, steps=range(5)),
    # In the last snapshot its offset is behind the end.
    Queue(group="beyond", queue_id=0, rates=(0, 0), first=(30, 30), client=None, jump=(12, 50)),
    # What it has not read was deleted by age.
    Queue(group="late", queue_id=0, rates=(0, 0), first=(10, 60), client=None, min_offset=40),
)
NO_QUEUE = [
    (BEGIN + timedelta(seconds=120), "uneven", *(None,) * 7, "spare"),
    (BEGIN + timedelta(seconds=120), "fresh", "orders", "broker-a", 0, *(None,) * 4, "f"),
]


def rows() -> list[tuple[object, ...]]:
    """Return the whole story."""
    return [row for queue in STORY for row in queue.rows()] + NO_QUEUE
