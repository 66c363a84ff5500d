"""Single queues of the broker of this process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from roquet.broker.api.refusal import Reason, Refusal
from roquet.proxy.brokers.api import Pulled
from roquet.store.records import read_records

if TYPE_CHECKING:
    from roquet.broker.api.caller import Caller
    from roquet.broker.api.offsets import (
        CommitRequest,
        CommitResult,
        CommittedRequest,
        OffsetByTimeRequest,
        QueueRequest,
    )
    from roquet.broker.api.receive import ReceiveRequest
    from roquet.broker.operations.table import Operations


class LocalQueues:
    """Queues, by the operations of one broker."""

    def __init__(self, operations: Operations) -> None:
        self._operations = operations

    async def pull(self, broker: str, request: ReceiveRequest, caller: Caller) -> Pulled:
        """Read from a queue, waiting as long as the request says."""
        del broker
        found = await self._operations.receive(request, caller)
        records = read_records(found.records, check_crc=False)
        return Pulled(found.status, records, found.next_offset, found.min_offset, found.max_offset)

    async def commit(self, broker: str, request: CommitRequest, caller: Caller) -> CommitResult:
        """Note how far a group has consumed a queue."""
        del broker
        return self._operations.commit(request, caller)

    async def committed(self, broker: str, request: CommittedRequest, caller: Caller) -> int | None:
        """Return where a group continues in a queue; None: it has never been there."""
        del broker
        try:
            return self._operations.committed(request, caller)
        except Refusal as refusal:
            if refusal.reason is not Reason.NOT_FOUND:
                raise
            return None

    async def min_offset(self, broker: str, request: QueueRequest, caller: Caller) -> int:
        """Return the first offset of a queue."""
        del broker
        return self._operations.min_offset(request, caller)

    async def max_offset(self, broker: str, request: QueueRequest, caller: Caller) -> int:
        """Return the offset that the next message of a queue will have."""
        del broker
        return self._operations.max_offset(request, caller)

    async def by_time(self, broker: str, request: OffsetByTimeRequest, caller: Caller) -> int:
        """Return the offset for a store time."""
        del broker
        return self._operations.by_time(request, caller)
