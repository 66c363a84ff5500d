"""Which light topics have something for whom: events, noted for one client of each group at a time.

An event is the name of a light queue. It is noted for one subscriber of each group when a message
arrives, when the last message in flight is acknowledged and when one becomes visible again; a pop
takes events and reads those queues. What is noted is bounded: a client for which there was no room
has all its light topics looked at later (full dispatch), so a lost event delays messages and loses
none. The same holds for what a client that went silent did not take: others get it.
"""

from __future__ import annotations

import dataclasses
import logging
from typing import TYPE_CHECKING, Protocol

from roquet.protocol.light import light_topics
from roquet.service.slices import in_slices

if TYPE_CHECKING:
    import random
    from collections.abc import Awaitable, Callable, Sequence

    from roquet.base.clock import Clock
    from roquet.broker.light.facts import LightFacts
    from roquet.broker.light.rules import LightTopicConfig
    from roquet.broker.light.subscriptions import Client, LightSubscriptions
    from roquet.broker.pop.receive.orders import PopOrders
    from roquet.store.tables.offsets import OffsetTable

log = logging.getLogger(__name__)

SILENT_MS = 10_000
"""A client that takes nothing for so long, while something is there for it, is passed over."""
GONE_MS = 35_000
"""A client that did not ask for so long has gone: longer than any of its polls waits."""
AVOIDED_MS = 10_000
"""So long others are preferred to it."""
ACTIVE_MS = 5_000
LOW_WATER = 0.2
"""Share of its events below which a client gets those of all its light topics again."""
TRIES_MAX = 64
"""Clients of a group that are tried for one event."""
LOOKS_AT_ONCE = 200
"""Light topics that a full dispatch looks at before others have their turn."""
LATE_MS = 15_000
"""A client that was passed over is looked at again so much later, at random."""


class Queues(Protocol):
    """What is asked of the message store."""

    def max_offset(self, topic: str, queue_id: int) -> int:
        """Return the offset behind the last message of a queue."""
        ...


@dataclasses.dataclass(slots=True, eq=False)
class _Noted:
    """What is there for one client."""

    limit: int
    asked_ms: int
    queues: dict[str, None] = dataclasses.field(default_factory=dict[str, None])

    def offer(self, queue: str) -> bool:
        """Note a queue; False when there is no room."""
        if queue not in self.queues:
            if len(self.queues) >= self.limit:
                return False
            self.queues[queue] = None
        return True

    def is_silent(self, now_ms: int) -> bool:
        """Tell whether the client takes nothing."""
        silent_ms = now_ms - self.asked_ms
        return silent_ms > GONE_MS or (bool(self.queues) and silent_ms > SILENT_MS)


class LightEvents:
    """Events of all clients, and when all light topics of a client are to be looked at."""

    def __init__(
        self,
        subscriptions: LightSubscriptions,
        facts: LightFacts,
        offsets: OffsetTable,
        store: Queues,
        orders: PopOrders,
        *,
        queues_of: Callable[[str], Awaitable[list[str]]],
        wake: Callable[[Client], None],
        rules: LightTopicConfig,
        clock: Clock,
        rng: random.Random,
    ) -> None:
        """`queues_of(parent)` lists the queues of its light topics.

        `wake` has a pop of a client tried again that waits.
        """
        self._subscriptions = subscriptions
        self._facts = facts
        self._offsets = offsets
        self._store = store
        self._orders = orders
        self._queues_of = queues_of
        self._wake = wake
        self._rules = rules
        self._clock = clock
        self._rng = rng
        self._noted: dict[Client, _Noted] = {}
        self._avoided: dict[Client, int] = {}
        self._due: dict[Client, int] = {}
        """Full dispatches; a wildcard group stands there with an empty client id."""

    def __len__(self) -> int:
        return len(self._noted)

    @property
    def count(self) -> int:
        """Events of all clients."""
        return sum(len(noted.queues) for noted in self._noted.values())

    def follow(self, rules: LightTopicConfig) -> None:
        """Go by other settings from now on."""
        began, self._rules = rules.by_events and not self._rules.by_events, rules
        if began:
            # Nothing was noted so far.
            for client in self._subscriptions.clients():
                self.schedule(client, 0)

    # --- what pops do ---------------------------------------------------------------------------

    def walks(self, group: str) -> bool:
        """Tell whether pops of a group go through the subscription instead of events."""
        return not self._rules.by_events and not self._facts.is_wildcard(group)

    def take(self, client: Client) -> str | None:
        """Return and forget the next event of a client, which asks for it."""
        noted = self._noted.get(client)
        if noted is None:
            return None
        noted.asked_ms = self._clock.steady_ms()
        queue = next(iter(noted.queues), None)
        if queue is not None:
            del noted.queues[queue]
        return queue

    def asks(self, client: Client) -> None:
        """Note that a client is there."""
        noted = self._noted.get(client)
        if noted is not None:
            noted.asked_ms = self._clock.steady_ms()
        elif self._subscriptions.get(client) is not None:
            self._noted_for(client)
        self._avoided.pop(client, None)

    def has_any(self, client: Client) -> bool:
        """Tell whether there is an event for a client."""
        noted = self._noted.get(client)
        return noted is not None and bool(noted.queues)

    def asked_ms(self, client: Client) -> int:
        """Return when a client asked last, Unix milliseconds; -1 when nothing is noted for it."""
        noted = self._noted.get(client)
        if noted is None:
            return -1
        return self._clock.now_ms() - (self._clock.steady_ms() - noted.asked_ms)

    # --- what brings events ---------------------------------------------------------------------

    def arrived(self, news: Sequence[tuple[str, int, int]]) -> None:
        """Hear of messages: (topic, queue id, end) each."""
        for topic, queue_id, _ in news:
            if queue_id == light_topics.QUEUE_ID and topic.startswith(light_topics.PREFIX):
                self.dispatch(topic)

    def dispatch(self, queue: str, group: str | None = None, avoid: Client | None = None) -> None:
        """Note a queue for a subscriber of each group, or of one group."""
        for name, clients in self._subscriptions.subscribers(queue, group):
            self._dispatch_to(queue, name, clients, avoid)

    def available(self, queue: str, group: str) -> None:
        """Note a queue that may be read again, if there is something to read."""
        if self.has_backlog(queue, group):
            self.dispatch(queue, group)

    def has_backlog(self, queue: str, group: str) -> bool:
        """Tell whether a group has not consumed all of a queue."""
        end = self._store.max_offset(queue, light_topics.QUEUE_ID)
        committed = self._offsets.query(group, queue, light_topics.QUEUE_ID)
        return end > 0 and (committed is None or committed < end)

    def _dispatch_to(
        self, queue: str, group: str, clients: Sequence[str], avoid: Client | None
    ) -> bool:
        """Note a queue for one of a group's clients; False when none has room."""
        if self.walks(group):
            # What pops find they find by themselves, but somebody may wait.
            self._wake((clients[self._rng.randrange(len(clients))], group))
            return True
        is_wildcard = self._facts.is_wildcard(group)
        start = self._rng.randrange(len(clients))
        tries = min(len(clients), TRIES_MAX)
        turned = [(clients[(start + at) % len(clients)], group) for at in range(tries)]
        now_ms = self._clock.steady_ms()
        worse = [it for it in turned if it == avoid or self._avoided.get(it, 0) > now_ms]
        better = [it for it in turned if it not in worse] if worse else turned
        for client in [*better, *worse]:
            if self._noted_for(client).offer(queue):
                self._wake(client)
                return True
            if not is_wildcard:
                self._schedule(client)
        if is_wildcard:
            self.schedule(("", group), self._rules.full_dispatch_wildcard_ms)
        return False

    def _noted_for(self, client: Client) -> _Noted:
        noted = self._noted.get(client)
        if noted is None:
            limit = self._facts.events_max(client[1], self._rules.events_max)
            noted = self._noted[client] = _Noted(limit, self._clock.steady_ms())
        return noted

    # --- subscriptions --------------------------------------------------------------------------

    def subscribed(self, client: Client, queue: str) -> None:
        """Note what is in a queue that a client has begun to subscribe to."""
        self.available(queue, client[1])

    def subscribed_wildcard(self, client: Client) -> None:
        """Have all light topics of a group looked at soon."""
        self.schedule(("", client[1]), 0)

    def left(self, client: Client) -> None:
        """Give what was noted for a client that is not subscribed any more to others."""
        self._due.pop(client, None)
        self._avoided.pop(client, None)
        noted = self._noted.pop(client, None)
        if noted is not None:
            for queue in noted.queues:
                self.dispatch(queue, client[1])

    # --- what timers do -------------------------------------------------------------------------

    async def look(self) -> None:
        """Pass over silent clients, and do the full dispatches that are due: of a timer."""
        now_ms = self._clock.steady_ms()
        self._avoided = {it: until for it, until in self._avoided.items() if until > now_ms}
        silent = [it for it, noted in self._noted.items() if noted.is_silent(now_ms)]
        async for client in in_slices(silent, LOOKS_AT_ONCE):
            noted = self._noted.pop(client, None)
            if noted is None:
                continue
            self._avoided[client] = now_ms + AVOIDED_MS
            for queue in noted.queues:
                self.dispatch(queue, client[1], avoid=client)
        for client in [it for it, due_ms in self._due.items() if due_ms <= now_ms]:
            if self._due.pop(client, None) is not None:
                await self.dispatch_all(client)

    def schedule(self, client: Client, delay_ms: int) -> None:
        """Have all light topics of a client, or of a wildcard group, looked at later."""
        self._due.setdefault(client, self._clock.steady_ms() + delay_ms)

    def _schedule(self, client: Client) -> None:
        late = client in self._avoided
        extra = self._rng.randrange(LATE_MS) if late else 0
        self.schedule(client, self._rules.full_dispatch_ms + extra)

    async def dispatch_all(self, client: Client) -> None:
        """Note everything that is there for a client, or for a wildcard group (client id empty)."""
        name, group = client
        if self._facts.is_wildcard(group):
            await self._dispatch_wildcard(group)
        elif name:
            await self._dispatch_client(client)

    async def dispatch_group(self, group: str) -> None:
        """Note everything that is there for the clients of a group."""
        if self._facts.is_wildcard(group):
            await self._dispatch_wildcard(group)
            return
        for name in self._subscriptions.clients_of(group):
            await self._dispatch_client((name, group))

    async def _dispatch_client(self, client: Client) -> None:
        held = self._subscriptions.get(client)
        if held is None or not held.queues:
            return
        if self.walks(client[1]):
            self._wake(client)
            return
        noted, now_ms = self._noted_for(client), self._clock.steady_ms()
        if noted.is_silent(now_ms):
            # Whoever is not there gets nothing more, and is looked at again.
            delay_ms = self._rules.full_dispatch_ms + self._rng.randrange(LATE_MS)
            self.schedule(client, delay_ms)
            return
        if len(noted.queues) >= LOW_WATER * noted.limit:
            is_active = now_ms - noted.asked_ms < ACTIVE_MS
            extra = 0 if is_active else self._rng.randrange(LATE_MS)
            self.schedule(client, self._rules.full_dispatch_ms + extra)
            return
        for queue in await self._waiting(list(held.queues), client[1]):
            if queue not in held.queues:
                continue
            if not self._noted_for(client).offer(queue):
                self._schedule(client)
                break
        if self.has_any(client):
            self._wake(client)

    async def _dispatch_wildcard(self, group: str) -> None:
        parent = self._facts.bound_topic(group)
        if parent is None:
            return
        queues = await self._queues_of(parent)
        async for queue in in_slices(await self._waiting(queues, group), LOOKS_AT_ONCE):
            for name, clients in self._subscriptions.subscribers(queue, group):
                if not self._dispatch_to(queue, name, clients, None):
                    return

    async def _waiting(self, queues: Sequence[str], group: str) -> list[str]:
        """Return the queues that a group has not consumed; those with messages in flight last.

        These give nothing now, and are noted when they do: they must not take the room of others.
        """
        free: list[str] = []
        blocked: list[str] = []
        async for queue in in_slices(queues, LOOKS_AT_ONCE):
            if self.has_backlog(queue, group):
                key = queue, group, light_topics.QUEUE_ID
                (blocked if self._orders.is_blocked(key, None) else free).append(queue)
        return free + blocked
