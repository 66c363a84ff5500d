"""What tools are told of light topics (200074 to 200078), and what they may start (200079)."""

from __future__ import annotations

import asyncio
import heapq
import itertools
from typing import TYPE_CHECKING, Protocol

from roquet.acl.needs import subscribe
from roquet.broker.api import pop as api
from roquet.broker.api.refusal import Reason, Refusal
from roquet.broker.light.facts import is_parent
from roquet.model.attributes import light_expiration_minutes
from roquet.protocol.light import light_topics
from roquet.service.slices import in_slices

if TYPE_CHECKING:
    from roquet.broker.api.caller import Caller
    from roquet.broker.light.control import Owners
    from roquet.broker.light.events import LightEvents
    from roquet.broker.light.facts import LightFacts
    from roquet.broker.light.subscriptions import LightSubscriptions
    from roquet.broker.light.upkeep import LightUpkeep
    from roquet.broker.pop.receive.orders import PopOrders
    from roquet.broker.services.access import Access
    from roquet.model.topic import TopicConfig
    from roquet.store.tables.offsets import OffsetTable

NAMES_MAX = 10_000
"""Light topics that one answer names."""
TOP_MAX = 1_000
LOOKS_AT_ONCE = 500
_ID = light_topics.QUEUE_ID


class Queues(Protocol):
    """What is asked of the message store."""

    def light_queues(self) -> int:
        """Return how many light queues there are."""
        ...

    def queue_count(self) -> int:
        """Return how many topics have queues; may take long."""
        ...

    def min_offset(self, topic: str, queue_id: int) -> int:
        """Return the first offset of a queue that is still there."""
        ...

    def max_offset(self, topic: str, queue_id: int) -> int:
        """Return the offset behind the last message of a queue."""
        ...

    def store_time(self, topic: str, queue_id: int, offset: int) -> int:
        """Return when a message was stored, -1 when there is none."""
        ...


class LightInfo:
    """Tells operators' tools about light topics and their subscribers."""

    def __init__(
        self,
        facts: LightFacts,
        subscriptions: LightSubscriptions,
        events: LightEvents,
        upkeep: LightUpkeep,
        *,
        owners: Owners,
        store: Queues,
        offsets: OffsetTable,
        orders: PopOrders,
        access: Access,
        queues_max: int,
    ) -> None:
        self._facts = facts
        self._subscriptions = subscriptions
        self._events = events
        self._upkeep = upkeep
        self._owners = owners
        self._store = store
        self._offsets = offsets
        self._orders = orders
        self._access = access
        self._queues_max = queues_max

    async def broker(self) -> api.BrokerLightInfo:
        """Return the counters of the broker."""
        return api.BrokerLightInfo(
            queues_max=self._queues_max,
            queues=self._store.light_queues(),
            subscriptions=self._subscriptions.references.total,
            orders=len(self._orders),
            queue_tables=await asyncio.to_thread(self._store.queue_count),
            offsets=len(self._offsets.pairs()),
            clients=len(self._events),
            parents=self._facts.parents(),
            groups=self._facts.bound_groups(),
        )

    async def parent(self, name: str) -> api.ParentInfo:
        """Return what is known of a parent topic. Raises Refusal."""
        topic = self._parent(name)
        return api.ParentInfo(
            topic=name,
            minutes=light_expiration_minutes(topic.attributes),
            groups=self._facts.bound_groups().get(name),
            queues=self._store.light_queues(),
            light_topics=len(await self._upkeep.queues_of(name)),
        )

    async def light_topic(self, parent: str, name: str) -> api.LightTopicInfo:
        """Return what is known of a light topic, which need not exist. Raises Refusal."""
        self._parent(parent)
        queue = light_topics.queue_of(parent, name)
        end = self._store.max_offset(queue, _ID)
        subscribers: list[tuple[str, str]] = []
        for group, clients in self._subscriptions.subscribers(queue):
            shown = ["*"] if self._facts.is_wildcard(group) else clients
            subscribers += [(client, group) for client in shown]
        is_here = await self._owners.of(parent)
        return api.LightTopicInfo(
            subscribers=subscribers[:NAMES_MAX],
            min_offset=max(0, self._store.min_offset(queue, _ID)) if end > 0 else 0,
            max_offset=max(0, end),
            newest_ms=self._store.store_time(queue, _ID, end - 1) if end > 0 else 0,
            is_here=is_here(name),
        )

    def client(self, parent: str, group: str, client: str, most: int) -> api.LightClientInfo:
        """Return a client's subscription, at most so many light topics of it. Raises Refusal."""
        self._parent(parent)
        self._bound(group, parent)
        if most < 0:
            text = f"maxCount is {most}: must be 0 to {NAMES_MAX}"
            raise Refusal(Reason.INVALID_ARGUMENT, text)
        held = self._subscriptions.get((client, group))
        most = min(most, NAMES_MAX)
        return api.LightClientInfo(
            asked_ms=self._events.asked_ms((client, group)),
            count=-1 if held is None else len(held.queues),
            queues=None if held is None else list(itertools.islice(held.queues, most)),
        )

    async def group(
        self, group: str, name: str | None, top: int, caller: Caller
    ) -> api.LightGroupInfo:
        """Return how far a group is behind, in all light topics or in one. Raises Refusal."""
        parent = self._bound(group, None)
        self._access.require(caller, subscribe(parent, group))
        if name:
            return self._in_one(group, parent, name)
        if not 0 < top <= TOP_MAX:
            text = f"topK is {top}: must be 1 to {TOP_MAX}"
            raise Refusal(Reason.INVALID_ARGUMENT, text)
        total = 0
        lags: list[api.LightLag] = []
        async for queue in in_slices(self._offsets.topics_of(group), LOOKS_AT_ONCE):
            split = light_topics.split(queue)
            committed = self._offsets.query(group, queue, _ID)
            if split is None or split[0] != parent or committed is None:
                continue
            lag = self._store.max_offset(queue, _ID) - committed
            if lag > 0:
                total += lag
                oldest_ms = self._store.store_time(queue, _ID, committed)
                lags.append(api.LightLag(name=split[1], lag=lag, oldest_ms=oldest_ms))
        by_age = heapq.nsmallest(top, lags, key=lambda it: (it.oldest_ms, it.name))
        return api.LightGroupInfo(
            topic=parent,
            total=total,
            oldest_ms=by_age[0].oldest_ms if by_age else -1,
            by_lag=heapq.nlargest(top, lags, key=lambda it: (it.lag, it.name)),
            by_age=by_age,
        )

    async def dispatch(self, group: str, client: str | None, caller: Caller) -> None:
        """Note everything that is there for a client, or for all of a group. Raises Refusal."""
        parent = self._bound(group, None)
        self._access.require(caller, subscribe(parent, group))
        if client:
            await self._events.dispatch_all((client, group))
        else:
            await self._events.dispatch_group(group)

    def _in_one(self, group: str, parent: str, name: str) -> api.LightGroupInfo:
        queue = light_topics.queue_of(parent, name)
        end = self._store.max_offset(queue, _ID)
        if end <= 0:
            return api.LightGroupInfo(topic=parent, total=-1, oldest_ms=-1)
        committed = self._offsets.query(group, queue, _ID)
        if committed is None:
            return api.LightGroupInfo(topic=parent, total=0, oldest_ms=0)
        last_ms = self._store.store_time(queue, _ID, committed - 1) if committed > 0 else 0
        return api.LightGroupInfo(
            topic=parent,
            total=end - committed,
            oldest_ms=self._store.store_time(queue, _ID, committed),
            offsets=(end, committed, last_ms),
        )

    def _parent(self, name: str) -> TopicConfig:
        topic = self._facts.topic(name)
        if topic is None:
            raise Refusal(Reason.UNKNOWN_TOPIC, f"Topic [{name}] not exist.")
        if not is_parent(topic):
            raise Refusal(Reason.INVALID_ARGUMENT, f"Topic [{name}] type not match.")
        return topic

    def _bound(self, group: str, parent: str | None) -> str:
        if self._facts.group(group) is None:
            raise Refusal(Reason.UNKNOWN_GROUP, f"Group [{group}] not exist.")
        bound = self._facts.bound_topic(group)
        if parent is not None and bound != parent:
            text = f"Subscription [{group}]-[{parent}] not match."
            raise Refusal(Reason.INVALID_ARGUMENT, text)
        if not bound:
            raise Refusal(Reason.INVALID_ARGUMENT, f"Group [{group}] is not a LITE group.")
        return bound
