"""The offsets of one consumer group: in memory, written to the brokers now and then."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Literal

from roquet.base.errors import OutcomeUnknown, Refused, Unreachable
from roquet.client._cluster.broker_calls import is_retry_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from roquet.client._cluster.broker_calls import BrokerCalls
    from roquet.model.queue import MessageQueue

    Start = Literal["latest", "earliest"] | int

log = logging.getLogger(__name__)


class Offsets:
    """Where the group is in each queue. Offsets in memory never go back by themselves."""

    def __init__(self, calls: BrokerCalls, group: str, start: Start) -> None:
        """`start` is for queues without a committed offset; a number is Unix milliseconds."""
        self._calls = calls
        self._group = group
        self._start = start
        self._known: dict[MessageQueue, int] = {}
        self._written: dict[MessageQueue, int] = {}

    async def first(self, queue: MessageQueue) -> int:
        """Return where to begin: the committed offset, else by the start rule.

        Raises Refused, Unreachable, OutcomeUnknown: then the queue is not to be taken yet.
        """
        self.forget(queue)
        committed = await self._committed(queue)
        if committed is not None and committed >= 0:
            self._known[queue] = committed
            return committed
        offset = await self._by_rule(queue)
        if not is_retry_of(queue, self._group):
            # The group's beginning: a member that takes the queue later begins there, too.
            self._known[queue] = offset
            await self.write([queue], wait=True)
        return offset

    async def _committed(self, queue: MessageQueue) -> int | None:
        return await self._calls.committed(self._group, queue)

    async def _by_rule(self, queue: MessageQueue) -> int:
        retry = is_retry_of(queue, self._group)
        if isinstance(self._start, int):
            if retry:
                return await self._calls.max_offset(queue)
            return await self._calls.offset_at(queue, self._start)
        if self._start == "earliest" or retry:
            return 0
        return await self._calls.max_offset(queue)

    def to_commit(self, queue: MessageQueue) -> int:
        """Return the offset that a pull may commit by the way; 0 commits none."""
        return self._known.get(queue, 0)

    def get(self, queue: MessageQueue) -> int | None:
        """Return the offset in memory."""
        return self._known.get(queue)

    def move(self, queue: MessageQueue, offset: int) -> None:
        """Go forward to an offset."""
        if offset > self._known.get(queue, -1):
            self._known[queue] = offset

    def set(self, queue: MessageQueue, offset: int) -> None:
        """Go to an offset, also back."""
        self._known[queue] = offset

    def forget(self, queue: MessageQueue) -> None:
        """Drop a queue that is somebody else's now."""
        self._known.pop(queue, None)
        self._written.pop(queue, None)

    async def write(
        self, queues: Iterable[MessageQueue], *, wait: bool = False, again: bool = False
    ) -> None:
        """Commit the offsets of these queues that changed, or with `again` all of them.

        What a broker does not take is logged and left to the next time.
        """
        for queue in tuple(queues):
            offset = self._known.get(queue)
            if offset is None or (not again and self._written.get(queue) == offset):
                continue
            try:
                await self._calls.commit(self._group, queue, offset, wait=wait)
            except (Refused, Unreachable, OutcomeUnknown) as error:
                log.warning("offset %d of %s not committed: %s", offset, queue, error)
            else:
                self._written[queue] = offset
