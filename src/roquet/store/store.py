"""The broker's view of its message store: appends that wait as long as their durability asks.

The native `Store` writes, flushes and dispatches in its own threads and makes one descriptor
readable when there is news. This facade reads the news on the loop: it wakes the appends that wait
for a flush and tells the arrival listeners. A failed flush wakes every waiter with an error.
"""

from __future__ import annotations

import asyncio
import errno
import heapq
import logging
import operator
import os
import shutil
from typing import TYPE_CHECKING, ParamSpec, Protocol, TypeVar

from roquet._native import Store as NativeStore
from roquet._native import StoreError
from roquet.base.errors import DiskFull
from roquet.protocol import properties as props
from roquet.store.arrivals import Arrivals
from roquet.store.batches import append_batch
from roquet.store.records import Record, is_meant, read_records
from roquet.store.results import (
    BatchDraft,
    BatchResult,
    Damage,
    DiskUse,
    Draft,
    Found,
    GetResult,
    GetStatus,
    NewMessage,
    PutResult,
    PutStatus,
    StoreFault,
    failed,
    failed_put,
    fault,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from roquet.store.tables.filters import Filter

log = logging.getLogger(__name__)

_OK = PutStatus.PUT_OK
_GET_STATUSES = {int(status): status for status in GetStatus}

_P = ParamSpec("_P")
_T = TypeVar("_T")

MEMORY_RATIO_PERCENT = 40
"""Share of the machine's memory in which recent messages are thought to be cached."""
FILE_BYTES = 1 << 30
"""A commit-log file, unless the settings say otherwise."""
GET_BYTES_MAX = 16 * 1024 * 1024 - 65_536
"""Bytes of one read, as Java limits a pull of recent messages (spec: store §13)."""


class Durability(Protocol):
    """How long an append waits: the two settings of the store that the facade itself needs."""

    @property
    def sync_flush(self) -> bool:
        """Whether an append returns only after its bytes are durable."""
        ...

    @property
    def sync_flush_timeout_ms(self) -> int:
        """How long it waits before it says FLUSH_DISK_TIMEOUT."""
        ...


class MessageStore:
    """One store folder, open from `start` to `stop`."""

    def __init__(
        self, native_config: Mapping[str, str | int | bool], durability: Durability
    ) -> None:
        """Touch no file; `native_config` has the keys of Java's MessageStoreConfig."""
        self._native_config = native_config
        self._durability = durability
        self._native: NativeStore | None = None
        self.arrivals = Arrivals()
        self._flush_listeners: list[Callable[[int, str | None], None]] = []
        self._told_all = False
        self._waiters: list[tuple[int, int, asyncio.Future[None]]] = []
        self._sequence = 0
        self._flushed = 0
        self._failure: str | None = None
        self.may_lack_end = False
        """Whether the last run was killed, recovery mended something, or the log is empty."""
        self._memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")

    def follow(self, native_config: Mapping[str, str | int | bool], durability: Durability) -> None:
        """Go by other settings from now on, as far as an open store can. Raises StoreFault."""
        _guarded(self.native.tune, dict(native_config))
        self._native_config = native_config
        self._durability = durability

    @property
    def native(self) -> NativeStore:
        """The compiled store. Raises StoreFault("closed") outside start and stop."""
        if self._native is None:
            raise StoreFault("closed", "the message store is not open")
        return self._native

    async def start(self) -> None:
        """Load and recover, which may take long, then take events. Raises StoreFault."""
        native = await asyncio.to_thread(_guarded, NativeStore.open, dict(self._native_config))
        _guarded(native.start)
        self._native = native
        notes, was_stopped = native.recovery_notes()
        for note in notes:
            log.warning("recovery: %s", note)
        lost = native.stats()["recovered_lost_bytes"]
        if lost:
            log.error("the log has lost %d bytes at its end that were durable", lost)
        # Offsets of groups may have outlived a log of which nothing else is left.
        is_empty = native.max_physical_offset() == 0
        self.may_lack_end = bool(not was_stopped or lost or notes or is_empty)
        self._flushed = native.flushed_offset()
        native.set_flush_awaited(self._told_all)
        self.arrivals.wake_by(native.set_growth_awaited)
        asyncio.get_running_loop().add_reader(native.event_fd(), self._take_events)

    async def stop(self) -> None:
        """Flush and close; appends still waiting get an error. Raises DiskFull, OSError."""
        native, self._native = self._native, None
        if native is None:
            return
        asyncio.get_running_loop().remove_reader(native.event_fd())
        self.arrivals.wake_by(None)
        try:
            await asyncio.to_thread(_guarded, native.close)
        except StoreFault as error:
            if error.kind == "disk_full":
                raise DiskFull(str(error)) from error
            raise OSError(errno.EIO, str(error)) from error
        finally:
            self._wake(native.flushed_offset())
            self._fail_waiters("the store was closed")

    def on_flush(
        self, listener: Callable[[int, str | None], None], *, of_fast_path: bool = False
    ) -> None:
        """Have `listener(flushed offset, failure)` called on the loop after flushes.

        A failure is final: nothing behind the offset will ever be durable. The fast path
        need not hear of the flushes that it does itself.
        """
        self._flush_listeners.append(listener)
        self._told_all = self._told_all or not of_fast_path

    # --- writing ---------------------------------------------------------------------------

    async def put(self, draft: Draft, *, wait: bool | None = None) -> PutResult:
        """Append one message and wait for its durability; failures are statuses, never raised.

        `wait` overrides the message's own property WAIT.
        """
        return await self.settled(self.append((draft,))[0], waits(draft) if wait is None else wait)

    async def settled(self, result: PutResult, wait: bool) -> PutResult:
        """Return what became of an appended message in the end: `wait` is for its durability."""
        if not wait or result.status is not PutStatus.PUT_OK:
            return result
        status, why = await self._durable(result.physical_offset + result.size)
        if status is PutStatus.PUT_OK:
            return result
        return result._replace(status=status, why=why)

    def is_settled(self, end_offset: int) -> bool:
        """Tell whether what was appended up to an offset need not wait for its durability."""
        if self._failure is not None:
            return False
        return self._flushed >= end_offset or not self._durability.sync_flush

    def append(self, drafts: Sequence[Draft]) -> list[PutResult]:
        """Append messages one behind the other, together; each has an outcome of its own.

        Waits for nothing, and raises nothing: failures are statuses.
        """
        try:
            placed, store_time = self.native.put_many(list(map(_fields, drafts)))
        except (StoreError, StoreFault, ValueError) as error:
            if len(drafts) == 1:
                return [failed_put(error)]
            return [self.append((draft,))[0] for draft in drafts]
        results = [PutResult(_OK, at, size, offset, store_time) for _, at, size, offset in placed]
        if len(placed) == len(drafts) and not any(map(operator.itemgetter(0), placed)):
            return results
        if len(drafts) == 1:
            return [self._refused(PutStatus(placed[0][0]))]
        # What is wrong with one of them, or with the log from one on, is told one by one.
        stored = {number for number, (status, *_) in enumerate(placed) if status == _OK}
        return [
            results[number] if number in stored else self.append((draft,))[0]
            for number, draft in enumerate(drafts)
        ]

    async def put_batch(self, batch: BatchDraft) -> BatchResult:
        """Append the messages of a batch, all or none, and wait for their durability."""
        try:
            done = await append_batch(self.native, batch)
            status, offsets, end, queue_offset, store_time = done
        except (StoreError, StoreFault, ValueError) as error:
            status_, why = failed(error)
            return BatchResult(status_, [], why=why)
        size = end - offsets[0] if offsets else 0
        result = BatchResult(PutStatus(status), offsets, size, queue_offset, store_time)
        if result.status is not PutStatus.PUT_OK:
            refused, why = self._explained(result.status)
            return result._replace(status=refused, why=why)
        if not batch.wait:
            return result
        durable, why = await self._durable(end)
        return result._replace(status=durable, why=why)

    async def flush(self) -> None:
        """Make everything appended so far durable. Raises StoreFault."""
        await asyncio.to_thread(_guarded, self.native.flush)

    def _refused(self, status: PutStatus) -> PutResult:
        refused, why = self._explained(status)
        return PutResult(refused, why=why)

    def _explained(self, status: PutStatus) -> tuple[PutStatus, str]:
        """Return a failed append's status, and why; a full disk has always the same one.

        The core cannot make the next file when the disk is full, which would be a system error.
        """
        if status is PutStatus.SERVICE_NOT_AVAILABLE:
            return status, self.writable()[1]
        if status is PutStatus.PROPERTIES_SIZE_EXCEEDED:
            return status, "too long properties"
        if status is PutStatus.CREATE_MAPPED_FILE_FAILED:
            folder = str(self._native_config["storePathRootDir"])
            free = shutil.disk_usage(folder).free
            if free < int(self._native_config.get("mappedFileSizeCommitLog", FILE_BYTES)):
                why = f"the disk of {folder} is full: {free} bytes are free"
                return PutStatus.SERVICE_NOT_AVAILABLE, why
        return status, ""

    async def _durable(self, end_offset: int) -> tuple[PutStatus, str]:
        if self._failure is not None:
            return PutStatus.UNKNOWN_ERROR, self._failure
        if not self._durability.sync_flush or self._flushed >= end_offset:
            return PutStatus.PUT_OK, ""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._sequence += 1
        heapq.heappush(self._waiters, (end_offset, self._sequence, future))
        self.native.set_flush_awaited(True)
        try:
            async with asyncio.timeout(self._durability.sync_flush_timeout_ms / 1000):
                await future
        except TimeoutError:
            return PutStatus.FLUSH_DISK_TIMEOUT, "the flush did not finish in time"
        except StoreFault as fault:
            return PutStatus.UNKNOWN_ERROR, str(fault)
        return PutStatus.PUT_OK, ""

    # --- reading ---------------------------------------------------------------------------

    def get(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        max_messages: int,
        *,
        tag_codes: Sequence[int] | None = None,
        filter_by: Filter | None = None,
        max_bytes: int = GET_BYTES_MAX,
    ) -> GetResult:
        """Read from a queue; `tag_codes` and `filter_by` None take all. Raises StoreFault."""
        try:
            found = self.native.get(
                topic, queue_id, offset, max_messages, max_bytes, tag_codes, filter_by
            )
        except StoreError as error:
            raise fault(error) from error
        return GetResult(_GET_STATUSES[found[0]], *found[1:])

    def query(self, topic: str, key: str, max_messages: int, begin: int, end: int) -> Found:
        """Return the records with a key that were stored within the times. Raises StoreFault."""
        offsets, index_time, index_offset = _guarded(
            self.native.query, topic, key, max_messages, begin, end
        )
        records = (self.read(offset) for offset in offsets)
        # The index knows hashes, which messages of other topics may share.
        mine = [record for record in records if record and is_meant(record, topic, key)]
        return Found(mine, index_time, index_offset)

    def read(self, physical_offset: int, size: int | None = None) -> bytes | None:
        """Return the record at an offset of the log, None when there is none there."""
        return _guarded(self.native.read, physical_offset, size)

    def record(self, physical_offset: int, size: int | None = None) -> Record | None:
        """Return the record at an offset of the log, taken apart. Raises StoreFault."""
        data = self.read(physical_offset, size)
        if not data:
            return None
        try:
            return read_records(data)[0]
        except (ValueError, IndexError) as error:
            raise StoreFault("corrupt", f"record at {physical_offset}: {error}") from error

    def units(
        self, topic: str, queue_id: int, offset: int, count: int
    ) -> list[tuple[int, int, int]]:
        """Return (physical offset, size, tags code) of up to `count` messages of a queue."""
        return _guarded(self.native.units, topic, queue_id, offset, count)

    def store_time(self, topic: str, queue_id: int, offset: int) -> int:
        """Return when a message of a queue was stored, -1 when there is none."""
        units = self.units(topic, queue_id, offset, 1)
        record = self.record(*units[0][:2]) if units else None
        return -1 if record is None else record.store_timestamp

    def is_in_memory(self, topic: str, queue_id: int, offset: int) -> bool:
        """Tell whether a message lies so near the end of the log that it is probably cached."""
        units = self.units(topic, queue_id, offset, 1)
        if not units:
            return False
        behind = self.native.max_physical_offset() - units[0][0]
        ratio = int(self._native_config.get("accessMessageInMemoryMaxRatio", MEMORY_RATIO_PERCENT))
        return behind <= self._memory_bytes * ratio // 100

    def bytes_behind(self, topic: str, queue_id: int, offset: int) -> int:
        """Return how many bytes of the log lie behind a queue's offset; 0 at the queue's end.

        Raises StoreFault.
        """
        units = self.units(topic, queue_id, offset, 1)
        return max(0, self.native.max_physical_offset() - units[0][0]) if units else 0

    def min_offset(self, topic: str, queue_id: int) -> int:
        """Return the first offset of a queue that is still there."""
        return _guarded(self.native.min_offset, topic, queue_id)

    def max_offset(self, topic: str, queue_id: int) -> int:
        """Return the offset after the last dispatched message of a queue."""
        return _guarded(self.native.max_offset, topic, queue_id)

    def next_offset(self, topic: str, queue_id: int) -> int:
        """Return the offset that the next message of a queue gets, dispatched or not."""
        return self.native.next_offset(topic, queue_id)

    def light_queues(self) -> int:
        """Return how many light queues (LMQ) there are."""
        return self.native.light_queues()

    def knows_light_queue(self, name: str) -> bool:
        """Tell whether a light queue exists."""
        return max(self.native.max_offset(name, 0), self.native.next_offset(name, 0)) > 0

    def offset_by_time(
        self, topic: str, queue_id: int, timestamp: int, *, upper: bool = False
    ) -> int:
        """Return the queue offset for a store time (spec: store §5.1)."""
        return _guarded(self.native.offset_by_time, topic, queue_id, timestamp, upper)

    def disk_use(self) -> DiskUse:
        """Return how full the disk of the commit log is, and the levels. Raises StoreFault."""
        stats = _guarded(self.native.stats)
        return DiskUse(
            percent=stats["disk_used_percent"],
            full=stats["disk_full_level"],
            clean=stats["disk_clean_level"],
            expire=stats["disk_used_level"],
        )

    def earliest_store_time(self) -> int | None:
        """Return when the oldest message was stored, None when no older one was ever deleted."""
        if _guarded(self.native.min_physical_offset) == 0:
            return None
        return _guarded(self.native.earliest_store_time)

    def newest_store_time(self) -> int | None:
        """Return when the newest message was stored, None when there is none."""
        return _guarded(self.native.stats)["newest_store_time"] or None

    def delete_expired(self, before_ms: int, limit: int) -> int:
        """Delete whole log files last written before a time; return how many."""
        return _guarded(self.native.delete_expired, before_ms, limit)

    def self_check(self) -> list[str]:
        """Return what is wrong with the files: missing or cut ones, holes. Raises StoreFault."""
        return _guarded(self.native.self_check)

    def damage(self) -> Damage:
        """Return what was passed over since the start. Raises StoreFault when closed."""
        stats = self.native.stats()
        last_read, last_conflict = self.native.last_damage()
        return Damage(stats["damaged_reads"], stats["queue_conflicts"], last_read, last_conflict)

    def dispatch_behind(self) -> int:
        """Return the bytes of the log that are not in the queues yet."""
        return self.native.dispatch_behind()

    def end_offset(self) -> int:
        """Return the offset behind the last record of the log."""
        return self.native.max_physical_offset()

    def dispatched_offset(self) -> int:
        """Return the offset up to which the queues have the log."""
        return self.native.dispatched_offset()

    def append_busy_ms(self) -> int:
        """Return how long the append now under way has taken, 0 when none is."""
        return 0 if self._native is None else self._native.append_busy_ms()

    def writable(self) -> tuple[bool, str]:
        """Return whether sends are taken, and why not."""
        if self._failure is not None:
            return False, self._failure
        if self._native is None:
            return False, "the message store is not open"
        return self._native.writable()

    @property
    def failure(self) -> str | None:
        """What made the store read-only for good, if anything did."""
        return self._failure

    # --- news from the background threads --------------------------------------------------

    def _take_events(self) -> None:
        flushed, arrivals, failure = self.native.take_events()
        if failure is not None and self._failure is None:
            log.error("the store takes no more messages: %s", failure)
            self._failure = failure
            self._fail_waiters(failure)
        else:
            self._wake(flushed)
        for tell in self._flush_listeners:
            tell(self._flushed, self._failure)
        if arrivals:
            self.arrivals.tell(arrivals)

    def _wake(self, flushed: int) -> None:
        self._flushed = max(self._flushed, flushed)
        if not self._waiters:
            return
        while self._waiters and self._waiters[0][0] <= self._flushed:
            future = heapq.heappop(self._waiters)[2]
            if not future.done():
                future.set_result(None)
        if self._native is not None and not self._waiters:
            self._native.set_flush_awaited(self._told_all)

    def _fail_waiters(self, text: str) -> None:
        waiters, self._waiters = self._waiters, []
        for _, _, future in waiters:
            if not future.done():
                future.set_exception(StoreFault("io", text))


def _guarded(call: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
    """Call into the core, with its error in our tree of errors."""
    try:
        return call(*args, **kwargs)
    except StoreError as error:
        raise fault(error) from error


def waits(draft: Draft) -> bool:
    """Tell whether a message asks to be durable before it is acknowledged."""
    wait = draft.properties.get(props.WAIT)
    return wait is None or wait.lower() != "false"


def _fields(draft: Draft) -> NewMessage:
    """Return a message as the core takes it. Raises ValueError for properties it cannot have."""
    return (
        draft.topic,
        draft.queue_id,
        draft.body,
        props.write(draft.properties).encode(),
        draft.flag,
        draft.sys_flag,
        draft.born_timestamp,
        draft.born_host,
        draft.store_host,
        *(draft.reconsume_times, draft.prepared_transaction_offset, draft.accepted),
    )
