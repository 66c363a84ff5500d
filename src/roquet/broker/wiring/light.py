"""Light topics: subscriptions, events, pops and their end, and what tools ask of them."""

from __future__ import annotations

import dataclasses
import random
from typing import TYPE_CHECKING

from roquet.base.clock import HeldClock
from roquet.broker.light.checks import LightChecks
from roquet.broker.light.control import LightControl
from roquet.broker.light.events import LightEvents
from roquet.broker.light.facts import LightFacts
from roquet.broker.light.info import LightInfo
from roquet.broker.light.owners import LightOwners
from roquet.broker.light.pops import LightAcks, LightPops
from roquet.broker.light.subscriptions import LightSubscriptions
from roquet.broker.light.upkeep import LightUpkeep
from roquet.broker.pop.receive.ordered_acks import OrderAlarms
from roquet.broker.pop.receive.orders import PopOrders
from roquet.broker.pop.receive.polls import PopPolls
from roquet.broker.remoting.admin.light_topics import LightInfoAdapter
from roquet.broker.remoting.callers import Readers
from roquet.broker.remoting.clients.light_topics import (
    LightPopAdapter,
    LightSubscriptionAdapter,
    wake,
)
from roquet.broker.remoting.clients.topic_queues import TopicQueues
from roquet.protocol.hosts import split_addresses
from roquet.service.duties import Duty
from roquet.service.lifecycle import Part, Timer
from roquet.store.housekeeping.steady_time import JUMP_HOLD_MS
from roquet.store.light_queues import LightQueueStore

if TYPE_CHECKING:
    from roquet.broker.config import BrokerConfig
    from roquet.broker.light.rules import LightTopicConfig
    from roquet.broker.light.subscriptions import Client
    from roquet.broker.network.routes import Routed
    from roquet.broker.pop.receive.checks import PopChecks
    from roquet.broker.pop.receive.offsets import PopOffsets
    from roquet.broker.pop.receive.rules import PopConfig
    from roquet.broker.services.admin.settings import LiveConfig
    from roquet.broker.wiring.base import Base
    from roquet.protocol.pop.orders import Key
    from roquet.remoting.client import Client as RemotingClient
    from roquet.remoting.router import Peer

FORGET_S = 60
"""Between looks for batches that nobody asked for any more."""


@dataclasses.dataclass(frozen=True, slots=True)
class LightParts:
    """What pops of light topics are made of."""

    facts: LightFacts
    subscriptions: LightSubscriptions
    events: LightEvents
    orders: PopOrders
    alarms: OrderAlarms
    polls: PopPolls
    upkeep: LightUpkeep
    store: LightQueueStore
    pops: LightPops
    acks: LightAcks
    adapter: LightPopAdapter

    def follow(self, rules: LightTopicConfig, pops: PopConfig) -> None:
        """Go by other settings from now on."""
        self.events.follow(rules)
        self.upkeep.follow(rules)
        self.polls.follow(pops)

    def drop_peer(self, peer: Peer) -> None:
        """Forget what waits on a connection that closed."""
        self.polls.drop_peer(peer)


def make_light(
    base: Base, pop_checks: PopChecks, offsets: PopOffsets, leaving: set[str]
) -> LightParts:
    """Wire pops of light topics. `leaving` are the queues that take no message at the moment."""
    tables, clock, rules = base.metadata, base.held_clock, base.config.light_topics
    facts = LightFacts(tables.topics, tables.groups)
    subscriptions = LightSubscriptions()
    orders = PopOrders(None, clock, tables.deletions)
    polls = PopPolls(clock, base.config.pop)
    store = LightQueueStore(base.store)
    upkeep = LightUpkeep(
        facts,
        subscriptions,
        store=store,
        offsets=tables.offsets,
        orders=orders,
        deletions=tables.deletions,
        leaving=leaving,
        rules=rules,
        # What goes is gone: a clock that stays ahead is believed as late as for files.
        clock=HeldClock(base.clock, JUMP_HOLD_MS),
    )

    def woken(client: Client) -> None:
        wake(polls, client)

    events = LightEvents(
        subscriptions,
        facts,
        tables.offsets,
        base.store,
        orders,
        queues_of=upkeep.queues_of,
        wake=woken,
        rules=rules,
        clock=clock,
        rng=random.Random(base.rng.getrandbits(64)),  # noqa: S311
    )

    def free(key: Key) -> None:
        queue, group, _ = key
        events.available(queue, group)

    alarms = OrderAlarms(orders.free_at, free, clock)
    checks = LightChecks(pop_checks, facts, base.identity)
    made = (base, checks, facts, subscriptions, events)
    pops, acks = _make_pops(*made, offsets=offsets, orders=orders, alarms=alarms)
    adapter = LightPopAdapter(
        pops,
        polls,
        has_events=events.has_any,
        lane=base.lanes["pull"],
        clock=clock,
        readers=Readers(base.callers, base.access),
    )
    if base.config.store.has_light_queues:
        base.store.arrivals.on_all(events.arrived, None)
    found = (facts, subscriptions, events, orders, alarms, polls, upkeep, store)
    parts = LightParts(*found, pops, acks, adapter)
    _watch(base, parts)
    base.settings.listen(lambda new, _: parts.follow(new.light_topics, new.pop))
    return parts


def _make_pops(
    base: Base,
    checks: LightChecks,
    facts: LightFacts,
    subscriptions: LightSubscriptions,
    events: LightEvents,
    *,
    offsets: PopOffsets,
    orders: PopOrders,
    alarms: OrderAlarms,
) -> tuple[LightPops, LightAcks]:
    pops = LightPops(
        checks=checks,
        subscriptions=subscriptions,
        events=events,
        store=base.store,
        offsets=offsets,
        orders=orders,
        alarms=alarms,
        traffic=base.stats,
        clock=base.held_clock,
    )
    acks = LightAcks(
        checks=checks,
        facts=facts,
        events=events,
        store=base.store,
        offsets=base.metadata.offsets,
        orders=orders,
        alarms=alarms,
        deletions=base.metadata.deletions,
        clock=base.held_clock,
    )
    return pops, acks


def _watch(base: Base, parts: LightParts) -> None:
    base.metrics.watch_many(
        "light_topics",
        "Light topics: references of subscriptions, clients, events, batches in flight, held pops",
        "kind",
        lambda: {
            "subscriptions": float(parts.subscriptions.references.total),
            "clients": float(len(parts.subscriptions)),
            "events": float(parts.events.count),
            "batches": float(len(parts.orders)),
            "held": float(len(parts.polls)),
        },
    )
    base.metrics.watch_many(
        "light_topics_removed",
        "Light topics that were removed, since the start",
        "kind",
        lambda: {"all": float(parts.upkeep.removed)},
        counts=True,
    )


@dataclasses.dataclass(frozen=True, slots=True)
class LightService:
    """What keeps subscriptions, and answers tools."""

    light: LightParts
    control: LightControl
    routed: tuple[Routed, ...]
    settings: LiveConfig[BrokerConfig]

    def parts(self) -> list[Part]:
        """Return the rows of the life-cycle table."""
        light, needs = self.light, ("store",)

        def rules() -> LightTopicConfig:
            return self.settings.config.light_topics

        def events_s() -> float:
            return rules().events_interval_ms / 1000

        def subscriptions_s() -> float:
            return rules().subscriptions_interval_ms / 1000

        def idle_s() -> float:
            return rules().idle_interval_ms / 1000

        looks = (
            Timer("look for light events", light.events.look, events_s, 1),
            Timer("expire light subscriptions", self.control.expire, subscriptions_s, 1),
            Timer("forget light batches", light.orders.persist, FORGET_S, FORGET_S),
        )
        idle = (Timer("remove idle light topics", light.upkeep.expire, idle_s, 1),)
        return [
            Part("light_alarms", light.alarms, needs, Duty.POPS, looks),
            Part("light_polls", light.polls, needs, Duty.POPS),
            Part("light_upkeep", light.upkeep, needs, timers=idle, stop_within_s=60),
        ]


def make_light_service(base: Base, light: LightParts, client: RemotingClient) -> LightService:
    """Wire subscriptions to light topics. `client` asks name servers for routes."""
    tables, config = base.metadata, base.config
    queues = TopicQueues(
        client,
        split_addresses(config.registration.name_servers or ""),
        tables.topics,
        identity=base.identity,
        period_ms=lambda: base.settings.config.assignments.routes_ms,
        clock=base.held_clock,
        writable=True,
    )
    owners = LightOwners(queues, base.identity.name)
    control = LightControl(
        light.subscriptions,
        light.events,
        light.facts,
        owners=owners,
        store=base.store,
        offsets=tables.offsets,
        orders=light.orders,
        state=base.state,
        access=base.access,
        rules=config.light_topics,
        clock=base.held_clock,
    )
    base.settings.listen(lambda new, _: control.follow(new.light_topics))
    info = LightInfo(
        light.facts,
        light.subscriptions,
        light.events,
        light.upkeep,
        owners=owners,
        store=light.store,
        offsets=tables.offsets,
        orders=light.orders,
        access=base.access,
        queues_max=config.store.light_queues_max,
    )
    routed = (
        LightSubscriptionAdapter(control, base.callers),
        light.adapter,
        LightInfoAdapter(info, base.callers),
    )
    return LightService(light, control, routed, base.settings)
