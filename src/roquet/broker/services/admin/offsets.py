"""Committed offsets as operators change and compare them.

A reset needs no client: the broker keeps the new offset as pending, hides the committed one, and
the next pull takes it (spec: wire §10.5).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from roquet.broker.api.refusal import Reason, Refusal
from roquet.protocol.bodies.deletions import DeletionsBody
from roquet.service.background import give_way
from roquet.service.slices import in_slices
from roquet.store.marks import deleted

if TYPE_CHECKING:
    from collections.abc import Callable

    from roquet.broker.api.admin import CloneRequest, ResetRequest
    from roquet.broker.api.caller import Caller
    from roquet.broker.clients.registry import Registry
    from roquet.broker.state import BrokerState
    from roquet.protocol.bodies.offsets import DelayOffsetBody
    from roquet.store.store import MessageStore
    from roquet.store.tables.deletions import Deletions
    from roquet.store.tables.groups import GroupTable
    from roquet.store.tables.offsets import OffsetTable
    from roquet.store.tables.topics import TopicTable

log = logging.getLogger(__name__)

_NEVER = 2**63 - 1
QUEUES_AT_ONCE = 100
"""Queues that are looked at, on disk as well, before others have their turn."""
OFFSETS_AT_ONCE = 2_000
"""Offsets of the table that are looked at before others have their turn."""


class OffsetAdmin:
    """Changes and shows the offsets of groups."""

    def __init__(
        self,
        topics: TopicTable,
        groups: GroupTable,
        offsets: OffsetTable,
        registry: Registry,
        store: MessageStore,
        *,
        state: BrokerState,
        delay_offsets: Callable[[], DelayOffsetBody],
        deletions: Deletions,
    ) -> None:
        self._deletions = deletions
        self._topics = topics
        self._groups = groups
        self._offsets = offsets
        self._registry = registry
        self._store = store
        self._state = state
        self._delay_offsets = delay_offsets

    async def reset(self, request: ResetRequest, caller: Caller) -> dict[int, int]:
        """Let a group go on at another place; return the new offset of each queue.

        Raises Refusal. The offsets are durable when this returns.
        """
        del caller
        if self._state.is_slave:
            raise Refusal(Reason.FAILED, "Can not reset offset in slave broker")
        topic, group, one = request.topic, request.group, request.queue_id
        config = self._topics.get(topic)
        if config is None:
            raise Refusal(Reason.UNKNOWN_TOPIC, f"Topic {topic} does not exist")
        if self._groups.get(group) is None:
            raise Refusal(Reason.UNKNOWN_GROUP, f"Group {group} does not exist")
        if one is not None and one >= max(config.read_queues, config.write_queues):
            raise Refusal(Reason.INVALID_ARGUMENT, f"topic {topic} has no queue {one}")
        if one is not None and request.offset is not None:
            targets = {one: self._in_range(topic, one, request.offset)}
        else:
            queue_ids = (one,) if one is not None else range(config.write_queues)
            targets = {
                q: self._at(topic, q, request.time_ms)
                async for q in in_slices(queue_ids, QUEUES_AT_ONCE)
            }
        async for queue_id, offset in in_slices(targets.items(), QUEUES_AT_ONCE):
            self._offsets.reset(group, topic, queue_id, offset)
            if len(targets) <= QUEUES_AT_ONCE:
                log.info("group %s goes on at %d in %s queue %d", group, offset, topic, queue_id)
        if len(targets) > QUEUES_AT_ONCE:
            log.info("group %s goes on elsewhere in %d queues of %s", group, len(targets), topic)
        await self._offsets.persist()
        return targets

    async def clone(self, request: CloneRequest, caller: Caller) -> None:
        """Give one group the offsets of another; they are durable when this returns."""
        del caller
        topic = request.topic
        topics = self._offsets.topics_of(request.source) if topic is None else [topic]
        member = self._registry.consumer(request.source)
        async for name in in_slices(topics, QUEUES_AT_ONCE):
            if self._topics.get(name) is None:
                continue
            if not request.is_offline and member is not None and name not in member.subscriptions:
                continue
            self._offsets.copy_group(request.source, request.target, name)
        await self._offsets.persist()

    async def correction(
        self, topic: str, group: str, ignored: set[str], caller: Caller
    ) -> dict[int, int]:
        """Return per queue the least offset of all groups that are not behind one group."""
        del caller
        least: dict[int, int] = {}
        for other in self._offsets.groups_of(topic):
            if other not in ignored:
                queues = self._offsets.queues(other, topic)
                async for queue_id, offset in in_slices(queues.items(), OFFSETS_AT_ONCE):
                    least[queue_id] = min(offset, least.get(queue_id, _NEVER))
                await give_way()
        compared = self._offsets.queues(group, topic)
        async for queue_id, offset in in_slices(compared.items(), OFFSETS_AT_ONCE):
            if least.get(queue_id, _NEVER) > offset:
                least[queue_id] = _NEVER
        return least

    async def encoded(self, caller: Caller) -> bytes:
        """Return every committed offset as slaves copy it: the table's own JSON."""
        del caller
        return await self._offsets.encoded()

    def deletions(self, caller: Caller) -> DeletionsBody:
        """Return which topics and groups were deleted, as slaves copy it."""
        del caller
        times = self._deletions.export()
        return DeletionsBody(times.topics, times.groups, deleted.log_ends(self._store))

    def deletions_version(self, caller: Caller) -> str:
        """Return a text that differs when `deletions` does."""
        del caller
        ends = deleted.log_ends(self._store)
        return f"{self._deletions.version}.{len(ends)}.{max(ends.values(), default=0)}"

    def delays(self, caller: Caller) -> DelayOffsetBody:
        """Return how far the delivery of delayed messages is."""
        del caller
        return self._delay_offsets()

    def _in_range(self, topic: str, queue_id: int, offset: int) -> int:
        low = self._store.min_offset(topic, queue_id)
        high = self._store.max_offset(topic, queue_id)
        if (low >= 0 and offset < low) or offset > high + 1:
            raise Refusal(
                Reason.FAILED,
                f"Target offset {offset} not in consume queue range [{low}-{high}]",
            )
        return offset

    def _at(self, topic: str, queue_id: int, timestamp: int) -> int:
        if timestamp < 0:
            return max(0, self._store.max_offset(topic, queue_id))
        return max(0, self._store.offset_by_time(topic, queue_id, timestamp))
