"""The end of light topics: those that are idle too long, and those of a parent that is deleted.

A light topic goes with its committed offsets, its messages in flight and its place in
subscriptions; the messages stay in the parent. While one goes, sends to it are turned away as by a
busy broker: a message is never acknowledged for a queue that is being removed.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Protocol

from roquet.protocol.light import light_topics
from roquet.service.slices import in_slices

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from roquet.base.clock import Clock
    from roquet.broker.light.facts import LightFacts
    from roquet.broker.light.rules import LightTopicConfig
    from roquet.broker.light.subscriptions import LightSubscriptions
    from roquet.broker.pop.receive.orders import PopOrders
    from roquet.store.tables.deletions import Deletions
    from roquet.store.tables.offsets import OffsetTable

log = logging.getLogger(__name__)

REMOVED_AT_ONCE = 1_000
"""Light topics that one look removes: each notes durably that its messages have no queue."""
LOOKS_AT_ONCE = 200
EMPTY_LOOKS = 5
"""A queue without a message goes when more looks than these found none."""


class Queues(Protocol):
    """What is asked of the message store."""

    def light_bounds(self) -> list[tuple[str, int, int]]:
        """Return (name, first offset, end) of each light queue; may take long."""
        ...

    def max_offset(self, topic: str, queue_id: int) -> int:
        """Return the offset behind the last message of a queue."""
        ...

    def next_offset(self, topic: str, queue_id: int) -> int:
        """Return the offset of the next message, those that are not in the queue yet counted."""
        ...

    def store_time(self, topic: str, queue_id: int, offset: int) -> int:
        """Return when a message was stored, -1 when there is none."""
        ...

    def delete_topic(self, topic: str) -> int:
        """Delete the queues of a topic; may take long."""
        ...


class LightUpkeep:
    """Lists light topics and removes those whose time is over."""

    def __init__(
        self,
        facts: LightFacts,
        subscriptions: LightSubscriptions,
        *,
        store: Queues,
        offsets: OffsetTable,
        orders: PopOrders,
        deletions: Deletions,
        leaving: set[str],
        rules: LightTopicConfig,
        clock: Clock,
    ) -> None:
        """`leaving` are the queues that take no message at the moment."""
        self._facts = facts
        self._subscriptions = subscriptions
        self._store = store
        self._offsets = offsets
        self._orders = orders
        self._deletions = deletions
        self._leaving = leaving
        self._rules = rules
        self._clock = clock
        self._began_ms = clock.steady_ms()
        self._empty: dict[str, int] = {}
        self.removed = 0
        """Light topics that were removed."""
        self._listeners: list[Callable[[str], None]] = []

    async def start(self) -> None:
        """Begin to count the time since the start."""
        self._began_ms = self._clock.steady_ms()

    async def stop(self) -> None:
        """Need nothing."""

    def follow(self, rules: LightTopicConfig) -> None:
        """Go by other settings from now on."""
        self._rules = rules

    def listen(self, removed: Callable[[str], None]) -> None:
        """Have `removed(queue)` called when the queue of a light topic has gone."""
        self._listeners.append(removed)

    async def queues_of(self, parent: str) -> list[str]:
        """Return the queues of a parent's light topics."""
        bounds = await asyncio.to_thread(self._store.light_bounds)
        return [name for name, _, _ in bounds if light_topics.belongs_to(name, parent)]

    async def expire(self) -> None:
        """Remove what was idle too long: the action of a timer."""
        if self._clock.steady_ms() - self._began_ms < self._rules.idle_min_ms:
            # Who sends may need a while to come back after a restart.
            return
        parents = self._facts.parents()
        bounds = await asyncio.to_thread(self._store.light_bounds)
        old: list[tuple[str, int]] = []
        empty: dict[str, int] = {}
        async for name, begin, end in in_slices(bounds, LOOKS_AT_ONCE):
            split = light_topics.split(name)
            minutes = -1 if split is None else parents.get(split[0], -1)
            if minutes < 1:
                continue
            if begin >= end:
                empty[name] = self._empty.get(name, 0) + 1
                if empty[name] > EMPTY_LOOKS:
                    old.append((name, end))
            elif self._is_old(name, end, minutes):
                old.append((name, end))
        self._empty = empty
        await self._remove(old[:REMOVED_AT_ONCE])

    def _is_old(self, queue: str, end: int, minutes: int) -> bool:
        newest_ms = self._store.store_time(queue, light_topics.QUEUE_ID, end - 1)
        idle_ms = self._clock.now_ms() - newest_ms
        return newest_ms >= 0 and idle_ms > max(minutes * 60_000, self._rules.idle_min_ms)

    async def remove_of(self, parent: str) -> None:
        """Remove all light topics of a parent that is deleted."""
        bounds = await asyncio.to_thread(self._store.light_bounds)
        mine = [(name, end) for name, _, end in bounds if light_topics.belongs_to(name, parent)]
        await self._remove(mine, always=True)

    async def _remove(self, queues: Iterable[tuple[str, int]], *, always: bool = False) -> None:
        """Remove light topics, unless a message came since they ended there."""
        count = 0
        for queue, end in queues:
            self._leaving.add(queue)
            try:
                if not always and self._end(queue) != end:
                    continue
                await asyncio.to_thread(self._store.delete_topic, queue)
                groups = self._offsets.groups_of(queue)
                if groups and not always:
                    # One of a parent that is deleted is known by that.
                    self._deletions.topic(queue)
                for group in groups:
                    self._orders.clear((queue, group, light_topics.QUEUE_ID))
                await self._offsets.remove_topic(queue)
                self._subscriptions.forget_queue(queue)
                for removed in self._listeners:
                    removed(queue)
            finally:
                self._leaving.discard(queue)
            count += 1
        if count:
            await self._deletions.persist()
            await self._offsets.persist()
            self.removed += count
            log.info("%d light topics were removed", count)

    def _end(self, queue: str) -> int:
        place = queue, light_topics.QUEUE_ID
        return max(self._store.max_offset(*place), self._store.next_offset(*place))
