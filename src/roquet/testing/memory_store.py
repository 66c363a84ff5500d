"""A message store in memory, with named faults."""

from __future__ import annotations

from typing import TYPE_CHECKING

from roquet.protocol import names
from roquet.protocol import properties as props
from roquet.store.records import Record
from roquet.store.results import (
    BatchDraft,
    BatchResult,
    Draft,
    PutResult,
    PutStatus,
    StoreFault,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from roquet.broker.messages.schedule import DelayLevels
    from roquet.testing.clock import FakeClock


class FakeStore:
    """What delivery and send-back need of a message store. Dispatch is immediate."""

    def __init__(self, clock: FakeClock, levels: DelayLevels) -> None:
        self.clock = clock
        self.levels = levels
        self.log: list[Record] = []
        self.queues: dict[tuple[str, int], list[tuple[int, int, int]]] = {}
        self.first: dict[tuple[str, int], int] = {}
        self.statuses: list[PutStatus] = []
        self.waits: list[bool | None] = []
        self.behind = 0
        self.flushes = 0
        self.missing: set[int] = set()
        self.faults: dict[int, StoreFault] = {}

    def units(
        self, topic: str, queue_id: int, offset: int, count: int
    ) -> list[tuple[int, int, int]]:
        """Return units as the store does, for offsets from 0."""
        return self.queues.get((topic, queue_id), [])[offset : offset + count]

    def min_offset(self, topic: str, queue_id: int) -> int:
        """Return what `first` says."""
        return self.first.get((topic, queue_id), 0)

    def max_offset(self, topic: str, queue_id: int) -> int:
        """Return how many were put."""
        return len(self.queues.get((topic, queue_id), []))

    def dispatch_behind(self) -> int:
        """Return what `behind` says."""
        return self.behind

    def end_offset(self) -> int:
        """Return the end of the log."""
        return len(self.log) * 100

    def dispatched_offset(self) -> int:
        """Return the end of the log: dispatch is immediate."""
        return self.end_offset()

    def record(self, physical_offset: int, size: int | None = None) -> Record | None:
        """Return a record of the log; each takes 100 bytes."""
        assert size in (None, 100)
        if physical_offset in self.faults:
            raise self.faults[physical_offset]
        place, rest = divmod(physical_offset, 100)
        if rest or not 0 <= place < len(self.log) or physical_offset in self.missing:
            return None
        return self.log[place]

    async def put(self, draft: Draft, *, wait: bool | None = None) -> PutResult:
        """Append, or answer the next of `statuses`."""
        self.waits.append(wait)
        return self._append(draft)

    def append(self, drafts: Sequence[Draft]) -> list[PutResult]:
        """Append without a wait; what follows one that was refused is stored all the same."""
        self.waits += [False] * len(drafts)
        return [self._append(draft) for draft in drafts]

    def _append(self, draft: Draft) -> PutResult:
        status = self.statuses.pop(0) if self.statuses else PutStatus.PUT_OK
        if not status.is_stored:
            return PutResult(status, why="a test says so")
        queue = self.queues.setdefault((draft.topic, draft.queue_id), [])
        now_ms, physical = self.clock.now_ms(), len(self.log) * 100
        level = int(draft.properties.get("DELAY", 0))
        code = 0
        if draft.topic == names.SCHEDULE_TOPIC:
            code = now_ms + self.levels.delay_ms(level)
        self.log.append(
            Record(
                size=100,
                body_crc=0,
                queue_id=draft.queue_id,
                flag=draft.flag,
                queue_offset=len(queue),
                physical_offset=physical,
                sys_flag=draft.sys_flag,
                born_timestamp=draft.born_timestamp,
                born_host=draft.born_host,
                store_timestamp=now_ms,
                store_host=draft.store_host,
                reconsume_times=draft.reconsume_times,
                prepared_transaction_offset=draft.prepared_transaction_offset,
                body=draft.body,
                topic=draft.topic,
                properties=props.write(draft.properties).encode(),
                magic=0,
            )
        )
        queue.append((physical, 100, code))
        return PutResult(status, physical, 100, len(queue) - 1, now_ms)

    async def put_batch(self, batch: BatchDraft) -> BatchResult:
        """No test needs this one."""
        raise NotImplementedError(batch)

    async def flush(self) -> None:
        """Count."""
        self.flushes += 1

    def of(self, topic: str) -> list[Record]:
        """Return the topic's messages in the order of the log."""
        return [record for record in self.log if record.topic == topic]
