"""What is known of the producers of each queue: read from the log, kept while it is used.

The log alone says what is stored; what is in memory is a copy. So there is no file that could
disagree with it: after a start, on a slave that became a master, and after another broker had the
store, a queue's stamps are read when it is used first, as far back as producers are remembered.
Whatever leaves a doubt (an append that failed, a topic that was deleted, another broker that leads)
drops the copy.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import logging
from typing import TYPE_CHECKING, Final, Protocol

from roquet.broker.api.refusal import Reason, Refusal
from roquet.broker.services.sequences.rules import Producers
from roquet.protocol import properties as props
from roquet.protocol.messages.sequences import EXPIRY_MS, Stamp
from roquet.store.records import read_records
from roquet.store.tables.filters import compiled

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from roquet.base.clock import Clock
    from roquet.store.results import GetResult
    from roquet.store.tables.filters import Filter

log = logging.getLogger(__name__)

QUEUES_MAX: Final = 10_000
ENTRIES_MAX: Final = 100_000
"""Producers in memory, of all queues; above it the queues that are not used are dropped."""
READS_AT_ONCE: Final = 2
"""Queues that are read from the log at a time."""
DISPATCH_WAIT_S: Final = 5.0
_STEP_S: Final = 0.01
_MESSAGES: Final = 512
_STAMPED: Final = f"{props.SEQUENCE} IS NOT NULL"


class Log(Protocol):
    """What is asked of the message store."""

    def get(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        max_messages: int,
        *,
        filter_by: Filter | None = None,
    ) -> GetResult:
        """Read from a queue. Raises StoreFault."""
        ...

    def offset_by_time(self, topic: str, queue_id: int, timestamp: int) -> int:
        """Return the queue offset for a store time."""
        ...

    def min_offset(self, topic: str, queue_id: int) -> int:
        """Return the first offset of a queue that is still there."""
        ...

    def next_offset(self, topic: str, queue_id: int) -> int:
        """Return the offset that the next message of a queue gets."""
        ...

    def earliest_store_time(self) -> int | None:
        """Return when the oldest message was stored if older ones are gone, None otherwise."""
        ...

    def end_offset(self) -> int:
        """Return the offset behind the last record of the log."""
        ...

    def dispatched_offset(self) -> int:
        """Return the offset up to which the queues have the log."""
        ...


class Queue:
    """A queue's producers, while somebody holds it."""

    def __init__(self) -> None:
        """Know nothing yet."""
        self.lock = asyncio.Lock()
        self.users = 0
        self.known: Producers | None = None

    @property
    def producers(self) -> Producers:
        """What is known; only its holder may ask."""
        assert self.known is not None, "held queues are read"
        return self.known

    def doubt(self) -> None:
        """Forget what is known: the log may have more."""
        self.known = None


class SequencedQueues:
    """The queues that are appended to in sequence."""

    def __init__(self, store: Log, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._queues: collections.OrderedDict[tuple[str, int], Queue] = collections.OrderedDict()
        self._reads = asyncio.Semaphore(READS_AT_ONCE)

    @contextlib.asynccontextmanager
    async def held(self, topic: str, queue_id: int) -> AsyncGenerator[Queue]:
        """Hold a queue: nobody else appends to it in sequence meanwhile.

        Raises Refusal(BUSY) when the queues are too far behind the log, and StoreFault.
        """
        place = (topic, queue_id)
        queue = self._queues.setdefault(place, Queue())
        self._queues.move_to_end(place)
        queue.users += 1
        try:
            async with queue.lock:
                known = queue.known
                if known is not None and self._store.next_offset(*place) <= known.highest:
                    log.warning("queue %d of topic %s was made anew", queue_id, topic)
                    queue.doubt()
                if queue.known is None:
                    async with self._reads:
                        queue.known = await self._read(topic, queue_id)
                yield queue
        finally:
            queue.users -= 1
            self._drop_unused()

    def forget(self, topic: str) -> None:
        """Drop what is known of a topic: it is deleted."""
        # Whoever holds one of its queues notes nothing in the copy that the next one is given.
        for place in [place for place in self._queues if place[0] == topic]:
            del self._queues[place]

    def forget_all(self) -> None:
        """Drop what is known of all queues: another broker appends to them from now on."""
        self._queues.clear()

    def since_ms(self) -> int:
        """Return from which moment on nothing that was stored is forgotten."""
        begin = self._clock.now_ms() - EXPIRY_MS
        earliest = self._store.earliest_store_time()
        # Messages that were deleted with their log file are older than the first one of the log.
        return begin if earliest is None else max(begin, earliest)

    # --- inside ------------------------------------------------------------------------------

    def _drop_unused(self) -> None:
        entries = sum(len(it.known) for it in self._queues.values() if it.known is not None)
        for place in list(self._queues):
            if len(self._queues) <= QUEUES_MAX and entries <= ENTRIES_MAX:
                return
            queue = self._queues[place]
            if not queue.users:
                entries -= 0 if queue.known is None else len(queue.known)
                del self._queues[place]

    async def _read(self, topic: str, queue_id: int) -> Producers:
        await self._dispatched()
        store, producers = self._store, Producers()
        begun = store.offset_by_time(topic, queue_id, self._clock.now_ms() - EXPIRY_MS)
        at = max(begun, store.min_offset(topic, queue_id))
        end, found = store.next_offset(topic, queue_id), 0
        stamped = compiled(_STAMPED)
        while at < end:
            got = await asyncio.to_thread(
                store.get, topic, queue_id, at, _MESSAGES, filter_by=stamped
            )
            for record in read_records(got.records, check_crc=False) if got.messages else ():
                text = props.read(record.properties).get(props.SEQUENCE, "")
                stamp = Stamp.read(text, topic, queue_id)
                if stamp is not None:
                    found += 1
                    producers.note(
                        stamp,
                        end=record.physical_offset + record.size,
                        queue_offset=record.queue_offset,
                        stored_ms=record.store_timestamp,
                    )
            if got.next_begin_offset <= at:
                break
            at = got.next_begin_offset
        if found:
            log.info("queue %d of topic %s: %d stamps read", queue_id, topic, found)
        return producers

    async def _dispatched(self) -> None:
        """Wait until the queues have what the log has now."""
        end, left_s = self._store.end_offset(), DISPATCH_WAIT_S
        while self._store.dispatched_offset() < end:
            if left_s <= 0:
                raise Refusal(Reason.BUSY, "the queues are behind the log: try again")
            await self._clock.sleep(_STEP_S)
            left_s -= _STEP_S
