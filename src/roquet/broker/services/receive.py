"""Reading from a queue, or waiting for a message there: the rules of pulls.

The checks are in receive_checks.py (spec: wire §10). A read that finds nothing and may wait is held
by broker/clients/long_polling.py and looked at once more, without waiting again.
"""

from __future__ import annotations

import asyncio
import itertools
from typing import TYPE_CHECKING, Final

from roquet.broker.api.receive import (
    Filter,
    ReceiveRequest,
    ReceiveResult,
    ReceiveStatus,
    SumsResult,
)
from roquet.broker.api.refusal import Reason, Refusal
from roquet.broker.clients.long_polling import Held, LongPolling
from roquet.broker.services.access import Access
from roquet.broker.services.light_reads import is_judged, may_read, read_allowed
from roquet.store.records import Sum, summed
from roquet.store.results import GetResult, GetStatus

if TYPE_CHECKING:
    from collections.abc import Callable

    from roquet.base.clock import Clock
    from roquet.broker.api.caller import Caller
    from roquet.broker.api.receive import SumsRequest
    from roquet.broker.clients.long_polling import Waiter
    from roquet.broker.metrics.traffic import Traffic
    from roquet.broker.pull_rules import PullConfig
    from roquet.broker.services.light_reads import MayRead, Reader
    from roquet.broker.services.receive_checks import Admitted, ReceiveChecks
    from roquet.store.tables.offsets import OffsetTable

SUSPEND_MS_MAX = 60_000
"""How long a read is held at most, whatever it asks for."""

SUM_OFFSETS_MAX: Final = 10_000
"""Offsets of one request for sums."""
SUM_BYTES_MAX: Final = 64 * 1024 * 1024
"""Bytes of records that one request for sums reads, about; its answer says where to go on."""
SUMS_AT_ONCE: Final = 2
"""Requests for sums that read at a time, each on a thread of its own."""
SUMS_WAITING: Final = 8
"""Requests for sums in hand: half of those of their lane, which has the queries by key too."""


class Receives:
    """Answers reads."""

    def __init__(
        self,
        *,
        checks: ReceiveChecks,
        store: Reader,
        offsets: OffsetTable,
        holds: LongPolling,
        traffic: Traffic,
        rules: PullConfig,
        clock: Clock,
        access: Access | None = None,
    ) -> None:
        self._clock = clock
        self._access = access or Access()
        self._checks = checks
        self._state = checks.state
        self._store = store
        self._offsets = offsets
        self._holds = holds
        self._traffic = traffic
        self._rules = rules
        self._sums = 0
        self._sum_turns = asyncio.Semaphore(SUMS_AT_ONCE)

    def follow(self, rules: PullConfig) -> None:
        """Answer by other settings from now on; reads that are held wait as they were told."""
        self._rules = rules
        self._checks.follow(rules)

    def held(self) -> int:
        """Return how many reads wait for a message, those of the fast path included."""
        return len(self._holds)

    async def receive(self, request: ReceiveRequest, caller: Caller) -> ReceiveResult:
        """Return what is there, waiting for it as long as the request says. Raises Refusal.

        A caller that is cancelled waits no more.
        """
        waiter = _Local()
        result = self.receive_or_hold(request, caller, waiter, waiter.wake)
        if result is not None:
            return result
        try:
            await waiter.woken.wait()
        finally:
            self._holds.drop_peer(waiter)
        return self.resume(request, caller)

    def receive_or_hold(
        self, request: ReceiveRequest, caller: Caller, waiter: Waiter, wake: Callable[[], None]
    ) -> ReceiveResult | None:
        """Return what is there; None: the request is held.

        A held one calls `wake` once, when a message has come or its time is over; the front then
        asks `resume`. Nothing is called when the waiter has gone. Raises Refusal.
        """
        admitted = self._checks.admit(request)
        status, result, suggested, took_ms = self._look(admitted, caller)
        self._note_offsets(admitted, result)
        if status is ReceiveStatus.NOT_FOUND and self._hold(admitted, caller, waiter, wake):
            return None
        return self._result(admitted, status, result, suggested, took_ms)

    def resume(self, request: ReceiveRequest, caller: Caller) -> ReceiveResult:
        """Return what is there for a request that was held: its offsets are noted. Raises Refusal.

        The checks are made once more: topic, group or rights may have gone meanwhile.
        """
        admitted = self._checks.admit(request)
        return self._result(admitted, *self._look(admitted, caller))

    async def sums(self, request: SumsRequest, caller: Caller) -> SumsResult:
        """Return count and checksum of what a read of the range would give, or of its beginning.

        Raises Refusal as a read does; BUSY when too many are asked for at once.
        """
        if not 0 <= request.begin < request.end <= request.begin + SUM_OFFSETS_MAX:
            text = f"a range has 1 to {SUM_OFFSETS_MAX} offsets from 0 on"
            raise Refusal(Reason.INVALID_ARGUMENT, text)
        self._checks.admit(
            ReceiveRequest(
                group=request.group,
                topic=request.topic,
                queue_id=request.queue_id,
                offset=request.begin,
                messages_max=1,
                filter=Filter(expression="*"),
            )
        )
        if is_judged(request.topic, may_read(self._access, caller)):
            text = "messages of other topics lie there: read them one by one"
            raise Refusal(Reason.ILLEGAL_OPERATION, text)
        if self._sums >= SUMS_WAITING:
            raise Refusal(Reason.BUSY, f"{SUMS_WAITING} requests for sums are in hand")
        self._sums += 1
        try:
            async with self._sum_turns:
                return await asyncio.to_thread(_summed, self._store, request)
        except ValueError as error:
            raise Refusal(Reason.FAILED, f"a message cannot be unpacked: {error}") from error
        finally:
            self._sums -= 1

    def _look(
        self, admitted: Admitted, caller: Caller
    ) -> tuple[ReceiveStatus, GetResult, int, int]:
        began_ms = self._clock.now_ms()
        result = self._read(admitted, may_read(self._access, caller))
        took_ms = max(0, self._clock.now_ms() - began_ms)
        return *self._directed(admitted, result), took_ms

    def _result(
        self,
        admitted: Admitted,
        status: ReceiveStatus,
        result: GetResult,
        suggested: int,
        took_ms: int,
    ) -> ReceiveResult:
        request = admitted.request
        self._traffic.pulled(request.group, request.topic, request.queue_id, result, took_ms)
        return ReceiveResult(
            status=status,
            detail=result.status.name,
            records=result.records,
            next_offset=result.next_begin_offset,
            min_offset=result.min_offset,
            max_offset=result.max_offset,
            next_broker_id=suggested,
            topic_sys_flag=admitted.topic.sys_flag,
            group_sys_flag=admitted.group.sys_flag,
        )

    def _directed(
        self, admitted: Admitted, result: GetResult
    ) -> tuple[ReceiveStatus, GetResult, int]:
        """Return the status, the result as this role gives it, and which broker to ask next."""
        status = status_of(result.status, admitted.request.offset)
        suggested = 0
        if self._rules.slave_read:
            group = admitted.group
            slow = result.suggest_slave
            suggested = group.which_broker_when_consume_slowly if slow else group.broker_id
        if not self._state.is_slave:
            return status, result, suggested
        if status is ReceiveStatus.OFFSET_MOVED and not self._rules.offset_check_in_slave:
            # The slave may be behind: the reader keeps its offset and asks again.
            result = result._replace(next_begin_offset=admitted.request.offset)
            status = ReceiveStatus.RETRY
            suggested = admitted.group.broker_id
        if self._state.has_master and not result.suggest_slave:
            suggested = 0
            if result.status is not GetStatus.FOUND:
                status = ReceiveStatus.RETRY
        return status, result, suggested

    def _read(self, admitted: Admitted, allowed: MayRead | None) -> GetResult:
        request = admitted.request
        reset = self._offsets.take_reset(request.group, request.topic, request.queue_id)
        result = read_allowed(
            self._store,
            (request.topic, request.queue_id),
            request.offset,
            max(1, request.messages_max),
            codes=admitted.codes,
            filter_by=admitted.filter_by,
            allowed=allowed,
        )
        if reset is None:
            return result
        return GetResult(GetStatus.OFFSET_RESET, reset, result.min_offset, result.max_offset)

    def _note_offsets(self, admitted: Admitted, result: GetResult) -> None:
        request = admitted.request
        where = (request.group, request.topic, request.queue_id)
        self._offsets.note_pull(*where, request.offset)
        if request.commit_offset is None or request.commit_offset < 0:
            return
        if result.status is not GetStatus.OFFSET_RESET:
            self._offsets.commit(*where, min(request.commit_offset, result.max_offset))

    def _hold(
        self, admitted: Admitted, caller: Caller, waiter: Waiter, wake: Callable[[], None]
    ) -> bool:
        request = admitted.request
        allowed = may_read(self._access, caller)
        looks = admitted.is_filtered or is_judged(request.topic, allowed)
        if request.wait_ms is None:
            return False
        wait_ms = min(request.wait_ms, SUSPEND_MS_MAX)
        if not self._rules.long_polling:
            wait_ms = self._rules.short_polling_ms
        held = Held(
            topic=request.topic,
            queue_id=request.queue_id,
            peer=waiter,
            offset=request.offset,
            resume=wake,
            matches=_Matches(self._store, admitted, allowed) if looks else None,
        )
        return self._holds.hold(held, max(0, wait_ms))


def _summed(store: Reader, request: SumsRequest) -> SumsResult:
    """Sum up a range, or its first `SUM_BYTES_MAX` bytes. Raises StoreFault, ValueError."""
    stored = request.stored_begin_ms, request.stored_end_ms
    at, end, size, found = request.begin, request.end, 0, Sum()
    while at < end and size < SUM_BYTES_MAX:
        got = store.get(request.topic, request.queue_id, at, end - at)
        found = found.plus(summed(got.records, at, end, stored))
        size += len(got.records)
        # A queue that ends before the range has no more; what is gone is passed over.
        at = got.next_begin_offset if got.next_begin_offset > at else end
    return SumsResult(
        count=found.messages, xor=found.xor, first=found.first, last=found.last, next=min(at, end)
    )


_local_keys = itertools.count(-1, -1)


class _Local:
    """A caller of this process that waits for a message."""

    is_open = True

    def __init__(self) -> None:
        # Connections have keys above 0.
        self.key = next(_local_keys)
        self.woken = asyncio.Event()

    def wake(self) -> None:
        self.woken.set()


class _Matches:
    """Looks for a wanted message among those that came since it last looked."""

    def __init__(self, store: Reader, admitted: Admitted, allowed: MayRead | None) -> None:
        self._allowed = allowed
        self._store = store
        self._topic = admitted.request.topic
        self._queue_id = admitted.request.queue_id
        self._codes = admitted.codes
        self._filter = admitted.filter_by
        self._from = admitted.request.offset

    def __call__(self, max_offset: int) -> bool:
        while self._from < max_offset:
            result = read_allowed(
                self._store,
                (self._topic, self._queue_id),
                self._from,
                1,
                codes=self._codes,
                filter_by=self._filter,
                allowed=self._allowed,
            )
            if result.status is not GetStatus.NO_MATCHED_MESSAGE:
                return True
            if result.next_begin_offset <= self._from:
                return False
            self._from = result.next_begin_offset
        return False


def status_of(status: GetStatus, offset: int) -> ReceiveStatus:
    """Return the status of a read that began at `offset` (spec: wire §10.3)."""
    if status in (GetStatus.NO_MATCHED_LOGIC_QUEUE, GetStatus.NO_MESSAGE_IN_QUEUE):
        return ReceiveStatus.OFFSET_MOVED if offset != 0 else ReceiveStatus.NOT_FOUND
    return _STATUSES[status]


_STATUSES = {
    GetStatus.FOUND: ReceiveStatus.FOUND,
    GetStatus.MESSAGE_WAS_REMOVING: ReceiveStatus.RETRY,
    GetStatus.NO_MATCHED_MESSAGE: ReceiveStatus.RETRY,
    GetStatus.OFFSET_FOUND_NULL: ReceiveStatus.NOT_FOUND,
    GetStatus.OFFSET_OVERFLOW_ONE: ReceiveStatus.NOT_FOUND,
    GetStatus.OFFSET_OVERFLOW_BADLY: ReceiveStatus.OFFSET_MOVED,
    GetStatus.OFFSET_RESET: ReceiveStatus.OFFSET_MOVED,
    GetStatus.OFFSET_TOO_SMALL: ReceiveStatus.OFFSET_MOVED,
}
