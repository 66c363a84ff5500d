"""Changes of subscriptions to light topics (200071).

All of a request is checked before any of it is done, so one that is refused changes nothing. A
light topic belongs to one broker of its parent; a subscription is kept there, and where the light
topic has messages, and is passed over elsewhere: proxies tell every broker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from roquet.acl.needs import subscribe
from roquet.base.errors import TableFull
from roquet.broker.api.pop import Action, Start, StartKind
from roquet.broker.api.refusal import Reason, Refusal
from roquet.broker.light.quotas import Quotas, check_room, too_many
from roquet.protocol.light import light_queues, light_topics
from roquet.service.slices import in_slices

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    from roquet.base.clock import Clock
    from roquet.broker.api.caller import Caller
    from roquet.broker.api.pop import LightSubscribe
    from roquet.broker.light.events import LightEvents
    from roquet.broker.light.facts import LightFacts
    from roquet.broker.light.rules import LightTopicConfig
    from roquet.broker.light.subscriptions import Client, LightSubscriptions, Subscription
    from roquet.broker.pop.receive.orders import PopOrders
    from roquet.broker.services.access import Access
    from roquet.broker.state import BrokerState
    from roquet.store.tables.offsets import OffsetTable

CLIENT_ID_LENGTH_MAX = 255
AT_ONCE = 200
"""Light topics of a request that are worked on before others have their turn."""
_ILLEGAL = "java.lang.IllegalStateException: "


class Owners(Protocol):
    """Knows which broker a light topic belongs to."""

    async def of(self, topic: str) -> Callable[[str], bool]:
        """Return what tells of the names of a parent's light topics whether they are here."""
        ...


class Queues(Protocol):
    """What is asked of the message store."""

    def max_offset(self, topic: str, queue_id: int) -> int:
        """Return the offset behind the last message of a queue."""
        ...


class LightControl:
    """Keeps subscriptions as clients want them."""

    def __init__(
        self,
        subscriptions: LightSubscriptions,
        events: LightEvents,
        facts: LightFacts,
        *,
        owners: Owners,
        store: Queues,
        offsets: OffsetTable,
        orders: PopOrders,
        state: BrokerState,
        access: Access,
        rules: LightTopicConfig,
        clock: Clock,
    ) -> None:
        self._subscriptions = subscriptions
        self._events = events
        self._facts = facts
        self._owners = owners
        self._store = store
        self._offsets = offsets
        self._orders = orders
        self._state = state
        self._access = access
        self._rules = rules
        self._clock = clock

    def follow(self, rules: LightTopicConfig) -> None:
        """Go by other settings from now on."""
        self._rules = rules

    async def change(
        self,
        wanted: Sequence[LightSubscribe],
        caller: Caller,
        tell: Callable[[LightSubscribe], Callable[[str], None]],
        connection: Hashable = None,
    ) -> None:
        """Do what clients want. Raises Refusal.

        `tell(entry)` returns how the client of an entry hears that it lost a light topic. What is
        kept counts for the share of the caller's account, or of the connection without one.
        """
        if not wanted:
            text = "LiteSubscriptionCtlRequestBody is empty."
            raise Refusal(Reason.ILLEGAL_OPERATION, text)
        if self._state.is_slave:
            text = "this broker is a slave: only a master keeps subscriptions to light topics"
            raise Refusal(Reason.NOT_MASTER, text)
        # As in Java, what does not say whom or what it is about counts as not said.
        known = [
            it for it in wanted if it.client_id.strip() and it.group.strip() and it.topic.strip()
        ]
        async for entry in in_slices(known, AT_ONCE):
            self._access.require(caller, subscribe(entry.topic, entry.group))
        user = caller.access_key or connection
        quotas = Quotas(self._subscriptions, self._rules.subscriptions_max, user)
        async for entry in in_slices(known, AT_ONCE):
            await self._check(entry, quotas)
        for entry in known:
            await self._do(entry, tell(entry), user)

    async def _check(self, entry: LightSubscribe, quotas: Quotas) -> None:
        """Raise Refusal for what may not be."""
        if len(entry.client_id) > CLIENT_ID_LENGTH_MAX:
            text = f"the client id has {len(entry.client_id)} characters"
            raise Refusal(Reason.INVALID_ARGUMENT, f"{text}, at most {CLIENT_ID_LENGTH_MAX}")
        if entry.action not in (Action.PARTIAL_ADD, Action.COMPLETE_ADD):
            quotas.take(entry, _queues(entry), None)
            return
        group = self._facts.group(entry.group)
        if group is None or not group.consume_enable:
            text = f"{_ILLEGAL}Consumer group is not allowed to consume."
            raise Refusal(Reason.ILLEGAL_OPERATION, text)
        is_bound = self._facts.bound_topic(entry.group) == entry.topic
        if not (is_bound and self._facts.is_parent(entry.topic)):
            # Java keeps it, and no pop ever gets anything of it.
            text = f"subscription bind topic not match, {entry.group}"
            raise Refusal(Reason.INVALID_ARGUMENT, text)
        is_wildcard = self._facts.is_wildcard(entry.group)
        is_partial = entry.action is Action.PARTIAL_ADD
        if is_wildcard and is_partial:
            text = "subscribe lite operation is not supported for this group"
            raise Refusal(Reason.ILLEGAL_OPERATION, _ILLEGAL + text)
        queues = {"*"} if is_wildcard else _queues(entry)
        quotas.take(entry, queues, self._facts.quota(entry.group))
        if is_wildcard:
            return
        async for name in in_slices(set(entry.names), AT_ONCE):
            queue = light_topics.queue_of(entry.topic, name)
            is_name = light_topics.is_name(name)
            if not is_name or len(queue.encode()) > light_queues.NAME_SIZE_MAX:
                text = f"{name[:80]!r} is no name of a light topic"
                raise Refusal(Reason.INVALID_ARGUMENT, text)

    async def _do(self, entry: LightSubscribe, tell: Callable[[str], None], user: Hashable) -> None:
        client = entry.client_id, entry.group
        if entry.action is Action.COMPLETE_REMOVE:
            self.close(client)
        elif entry.action is Action.PARTIAL_REMOVE:
            await self._remove(client, entry)
        elif entry.action is Action.PARTIAL_ADD:
            await self._add(client, entry, self._opened(client, entry.topic, tell, user))
        else:
            await self._replace(client, entry, self._opened(client, entry.topic, tell, user))

    def close(self, client: Client) -> None:
        """Forget a client; others get what was noted for it."""
        self._subscriptions.closed(client)
        self._events.left(client)

    async def expire(self) -> None:
        """Forget the clients that did not renew their subscriptions: the action of a timer."""
        before_ms = self._clock.steady_ms() - self._rules.subscriptions_expire_ms
        async for client in in_slices(self._subscriptions.expired(before_ms), AT_ONCE):
            held = self._subscriptions.get(client)
            if held is not None and held.updated_ms < before_ms:
                self.close(client)

    async def _remove(self, client: Client, entry: LightSubscribe) -> None:
        held = self._subscriptions.get(client)
        if held is None or held.topic != entry.topic:
            return
        held.updated_ms = self._clock.steady_ms()
        resets = self._facts.resets_unsubscribed(client[1])
        async for name in in_slices(entry.names, AT_ONCE):
            queue = light_topics.queue_of(entry.topic, name)
            if self._subscriptions.remove(client, queue) and resets:
                self._restart(client[1], queue, 0)

    async def _add(self, client: Client, entry: LightSubscribe, held: Subscription) -> None:
        is_exclusive = self._facts.is_exclusive(client[1])
        is_here = await self._owners.of(entry.topic)
        async for name in in_slices(entry.names, AT_ONCE):
            if self._subscriptions.get(client) is not held:
                return
            queue = light_topics.queue_of(entry.topic, name)
            if not (is_here(name) or self._store.max_offset(queue, light_topics.QUEUE_ID) > 0):
                continue
            if queue not in held.queues:
                self._check_room(client)
            if is_exclusive:
                self._take_over(client, queue, name)
            if entry.start is not None:
                self._begin_at(client[1], queue, entry.start)
            if self._subscriptions.add(client, queue):
                self._events.subscribed(client, queue)

    async def _replace(self, client: Client, entry: LightSubscribe, held: Subscription) -> None:
        if self._facts.is_wildcard(client[1]):
            for queue in [it for it in held.queues if light_topics.split(it) is not None]:
                self._subscriptions.remove(client, queue)
            if self._subscriptions.add_wildcard(client):
                self._events.subscribed_wildcard(client)
            return
        is_here = await self._owners.of(entry.topic)
        queues = {light_topics.queue_of(entry.topic, name): name for name in entry.names}
        async for queue in in_slices([it for it in held.queues if it not in queues], AT_ONCE):
            self._subscriptions.remove(client, queue)
        async for queue, name in in_slices(queues.items(), AT_ONCE):
            if self._subscriptions.get(client) is not held:
                return
            if queue in held.queues:
                continue
            if is_here(name) or self._store.max_offset(queue, light_topics.QUEUE_ID) > 0:
                self._check_room(client)
                self._subscriptions.add(client, queue)
                self._events.subscribed(client, queue)

    def _check_room(self, client: Client) -> None:
        quota = self._facts.quota(client[1])
        check_room(self._subscriptions, client, self._rules.subscriptions_max, quota)

    def _opened(
        self, client: Client, topic: str, tell: Callable[[str], None], user: Hashable
    ) -> Subscription:
        most = self._rules.subscriptions_max
        if self._subscriptions.get(client) is None and len(self._subscriptions) >= most:
            raise too_many(most)
        now_ms = self._clock.steady_ms()
        return self._subscriptions.opened(client, topic, tell, now_ms, user=user)

    def _take_over(self, client: Client, queue: str, name: str) -> None:
        """Take a light topic from the other clients of the group."""
        _, group = client
        for _, others in self._subscriptions.subscribers(queue, group):
            for other in [it for it in others if it != client[0]]:
                held = self._subscriptions.get((other, group))
                self._subscriptions.remove((other, group), queue)
                if held is not None:
                    held.tell(name)
                if self._facts.resets_exclusive(group):
                    self._restart(group, queue, 0)

    def _begin_at(self, group: str, queue: str, start: Start) -> None:
        committed = self._offsets.query(group, queue, light_topics.QUEUE_ID)
        offset: int | None = None
        if start.kind is StartKind.POLICY and start.value == 1:
            offset = 0
        elif start.kind is StartKind.POLICY and start.value == 2:
            offset = self._store.max_offset(queue, light_topics.QUEUE_ID)
        elif start.kind is StartKind.OFFSET:
            offset = max(0, start.value)
        elif start.kind is StartKind.TAIL_N and committed is not None:
            offset = max(0, committed - max(0, start.value))
        if offset is not None and offset != committed:
            self._restart(group, queue, offset)

    def _restart(self, group: str, queue: str, offset: int) -> None:
        """Have the group go on at an offset, whatever is in flight."""
        if self._offsets.query(group, queue, light_topics.QUEUE_ID) == offset:
            return
        try:
            self._offsets.reset(group, queue, light_topics.QUEUE_ID, offset)
        except TableFull as full:
            raise Refusal(Reason.FAILED, str(full)) from full
        self._orders.clear((queue, group, light_topics.QUEUE_ID))


def _queues(entry: LightSubscribe) -> set[str]:
    return {light_topics.queue_of(entry.topic, name) for name in entry.names}
