"""Messages that a request names by their place in the log: the one way to read them.

Invariant: what a client is shown, or has copied or settled, by a physical offset is a message. It
is one when the consume-queue unit at the topic, queue and queue offset that the record names points
to this very place with this very size. The body of a message may hold anything, a forged record
too; no unit points into a body. Whether the caller may have the message is for whoever asks here.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Protocol

from roquet.service.ratelog import RateLog
from roquet.store.results import StoreFault

if TYPE_CHECKING:
    from roquet.base.clock import Clock
    from roquet.store.records import Record

log = logging.getLogger(__name__)

DISPATCH_S_MAX = 2.0
"""How long a message that was only just appended is waited for until its queue has it."""
_STEP_S = 0.001
_STEP_S_MAX = 0.016


class RecordStore(Protocol):
    """What is needed of the message store."""

    def record(self, physical_offset: int, size: int | None = None) -> Record | None:
        """Return the record at an offset of the log. Raises StoreFault."""
        ...

    def units(
        self, topic: str, queue_id: int, offset: int, count: int
    ) -> list[tuple[int, int, int]]:
        """Return (physical offset, size, tags code) of up to `count` messages of a queue."""
        ...

    def end_offset(self) -> int:
        """Return the offset behind the last record of the log."""
        ...

    def dispatched_offset(self) -> int:
        """Return the offset up to which the queues have the log."""
        ...


class ProvenMessages:
    """Reads messages by physical offset, and nothing but messages."""

    def __init__(self, store: RecordStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._log = RateLog(log, clock)

    async def record(self, physical_offset: int) -> Record | None:
        """Return the message at an offset, None when none begins there. Raises StoreFault."""
        if not 0 <= physical_offset < self._store.end_offset():
            return None
        await self._dispatched(physical_offset)
        return self.record_now(physical_offset)

    def record_now(self, physical_offset: int) -> Record | None:
        """Return the same of a message that is in its queue already."""
        try:
            record = self._store.record(physical_offset)
        except StoreFault as fault:
            if fault.kind != "corrupt":
                raise
            # The answer does not say what was found there: it may be somebody's body.
            self._log.warning("damaged", f"what was asked for is no whole message: {fault}")
            return None
        if record is None or record.physical_offset != physical_offset:
            return None
        units = self._store.units(record.topic, record.queue_id, record.queue_offset, 1)
        if not units or units[0][:2] != (physical_offset, record.size):
            return None
        return record

    async def _dispatched(self, physical_offset: int) -> None:
        waited_s, step_s = 0.0, _STEP_S
        while self._store.dispatched_offset() <= physical_offset and waited_s < DISPATCH_S_MAX:
            await self._clock.sleep(step_s)
            waited_s += step_s
            step_s = min(2 * step_s, _STEP_S_MAX)
