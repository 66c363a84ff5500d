"""POP consumption: services, requests that wait, redelivery, assigned queues, and the fronts."""

from __future__ import annotations

import dataclasses
import functools
import random
from typing import TYPE_CHECKING

from roquet.broker.fastpath.core_pops import CorePops
from roquet.broker.fastpath.held_pops import HeldPops
from roquet.broker.fastpath.pop_rows import PopRows
from roquet.broker.pop.buffer.metrics import watch_buffer
from roquet.broker.pop.buffer.service import PopBuffer
from roquet.broker.pop.receive.acks import PopAcks
from roquet.broker.pop.receive.browse import PopBrowser
from roquet.broker.pop.receive.checks import PopChecks
from roquet.broker.pop.receive.in_flight import PopInFlight
from roquet.broker.pop.receive.locks import PopLocks
from roquet.broker.pop.receive.offsets import PopOffsets
from roquet.broker.pop.receive.ordered_acks import OrderAlarms, OrderedAcks
from roquet.broker.pop.receive.orders import PopOrders
from roquet.broker.pop.receive.polls import PopPolls
from roquet.broker.pop.receive.reads import Draws, has_wanted
from roquet.broker.pop.receive.records import ReviveLog
from roquet.broker.pop.receive.service import PopService
from roquet.broker.pop.revive import ReviveService
from roquet.broker.pop.revive_copies import Copies
from roquet.broker.pop.revive_metrics import watch_puts, watch_revive
from roquet.broker.pop.waits import LOOKS_MAX, PopWaits
from roquet.broker.remoting.callers import Readers
from roquet.broker.remoting.clients.assignments import AssignmentAdapter
from roquet.broker.remoting.clients.topic_queues import TopicQueues
from roquet.broker.remoting.pop import PopAckAdapter, PopAdapter, PopBrowseAdapter
from roquet.broker.services.clients.assignments import Assignments
from roquet.broker.wiring.light import LightParts, make_light
from roquet.model.subscription import ExpressionType
from roquet.protocol.hosts import split_addresses
from roquet.protocol.pop.topics import ALL_QUEUES, revive_topic
from roquet.remoting.codec import decode
from roquet.service.duties import Duty
from roquet.service.lifecycle import Part, Timer
from roquet.store.popped import PoppedMessages
from roquet.store.tables.files import JsonFile

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from roquet.broker.api.pop import PopRequest
    from roquet.broker.config import BrokerConfig
    from roquet.broker.messages.appender import Appender
    from roquet.broker.messages.light_queues import LightQueues
    from roquet.broker.network.ports import Listeners
    from roquet.broker.network.routes import Routed
    from roquet.broker.pop.buffer.rules import BufferConfig
    from roquet.broker.pop.receive.rules import PopConfig
    from roquet.broker.pop.set_backs import SetBacks
    from roquet.broker.wiring.base import Base
    from roquet.broker.wiring.timers import TimerParts
    from roquet.protocol.pop.orders import Key
    from roquet.remoting.client import Client
    from roquet.remoting.connections.fast_ingest import FastPath
    from roquet.remoting.connections.popped import PopHere
    from roquet.remoting.router import Peer, Request

SAVE_S = 10
"""Between saves of the batches of ordered pop, as in Java."""


@dataclasses.dataclass(frozen=True, slots=True)
class PopParts:
    """What POP consumption is made of."""

    shared: _Shared
    routed: tuple[Routed, ...]
    service: PopService
    acks: PopAcks
    light: LightParts
    adapter: PopAdapter
    core: CorePops
    """Pops that the core gives messages."""
    waits: PopWaits
    """For fronts that wait in tasks."""

    def parts(self) -> list[Part]:
        """Return the rows of the life-cycle table."""
        orders, buffer = self.shared.orders, self.shared.buffer
        save = (Timer("save ordered pops", orders.persist, SAVE_S, SAVE_S),)
        rows = (
            ("pop_orders", orders, save),
            ("pop_alarms", self.shared.alarms, ()),
            ("pop_polls", self.shared.pops, ()),
            ("pop_notifications", self.shared.notifications, ()),
        )
        return [
            # A stop stores what waits in memory: up to popCkMaxBufferSize checkpoints.
            Part(
                *("pop_buffer", buffer, ("store", "timers"), Duty.POPS | Duty.TIMERS),
                timers=buffer.timers,
                stop_within_s=60,
            ),
            *(Part(name, part, ("store",), Duty.POPS, timers) for name, part, timers in rows),
        ]

    @property
    def forget(self) -> tuple[Callable[[], None], ...]:
        """What has to be called when another broker begins to lead."""
        return self.shared.orders.forget_all, self.light.orders.forget_all

    def rows(self, base: Base, timers: TimerParts) -> PopRows:
        """Return what the fast path goes by."""
        revive_log = self.shared.revive_log
        return PopRows(
            identity=base.identity,
            state=base.state,
            topics=base.metadata.topics,
            revive_topic=revive_topic(base.identity.cluster),
            wheel=timers.conversion,
            in_flight=self.shared.in_flight,
            buffer=self.shared.buffer,
            deletions=base.metadata.deletions,
            acks_async=lambda: revive_log.acks_async,
            checkpoints_async=lambda: revive_log.checkpoints_async,
            durability=base.config.store,
            clock=base.held_clock,
        )

    def use(self, path: FastPath, rows: PopRows) -> None:
        """Have the fast path answer what is plain."""
        core = self.core
        path.pop_by(core.answer, rows.merge)
        path.call_by(core.call)

        def answer(request: Request, wanted: PopRequest) -> bool:
            return core.answer_woken(request, wanted, path.answer_pop)

        self.adapter.in_core = answer

    def hold_in_core(self, base: Base, path: FastPath, listeners: Listeners) -> None:
        """Have pops wait as the core has read them, where no account is asked for."""
        if base.guard is not None:
            return
        store, checks = base.store, self.shared.checks

        def leave(key: int, pop: PopHere) -> None:
            (command,), _ = decode(pop.frame)
            request = listeners.late(key, command, pop.since_ms)
            if request is not None:
                self.adapter.resume(request, pop.born_ms)

        def matches(pop: PopHere, queue_id: int, begin: int, end: int) -> bool:
            takes = checks.wanted(pop.topic, pop.expression, ExpressionType.TAG)
            queue = pop.topic, queue_id
            return has_wanted(store, queue, begin, end, wanted=takes, most=LOOKS_MAX)

        self.core.held = HeldPops(
            self.shared.pops,
            find=listeners.find,
            try_again=path.answer_pop,
            leave=leave,
            matches=matches,
        )

    async def release(self) -> None:
        """Answer what waits: the broker serves POP no more."""
        await self.shared.pops.release()
        await self.shared.notifications.release()

    def drop_peer(self, peer: Peer) -> None:
        """Forget what waits on a connection that closed."""
        self.shared.pops.drop_peer(peer)
        self.shared.notifications.drop_peer(peer)
        self.light.drop_peer(peer)


def make_pop(
    base: Base, appender: Appender, lights: LightQueues | None, revive: ReviveParts
) -> PopParts:
    """Wire POP consumption; `lights` are the light queues, where there are any."""
    config, tables, clock, store = base.config, base.metadata, base.held_clock, base.store
    rules, topics, name = config.pop, tables.topics, base.identity.name
    set_backs = revive.service.set_backs
    shared = _make_shared(base, appender, set_backs)
    watch_puts(shared.revive_log.puts, revive.service, base.metrics)
    checks, orders, alarms, locks = shared.checks, shared.orders, shared.alarms, PopLocks()
    memory = rules.init_by_memory
    offsets = PopOffsets(tables.offsets, store, shared.buffer.merge, init_by_memory=memory)
    draws = Draws(random.Random(base.rng.getrandbits(64)))  # noqa: S311

    def contended(topic: str, group: str, queue_id: int) -> None:
        shared.wake((topic, group, queue_id))

    service = PopService(
        checks=checks,
        topics=topics,
        store=store,
        offsets=offsets,
        locks=locks,
        revive_log=shared.revive_log,
        buffer=shared.buffer,
        in_flight=shared.in_flight,
        orders=orders,
        alarms=alarms,
        traffic=base.stats,
        broker_name=name,
        rules=rules,
        clock=clock,
        draws=draws,
        on_contended=contended,
    )
    browser = _make_browser(base, checks, offsets, orders, draws)
    acks = _make_acks(base, shared, set_backs)

    def follow(new: BrokerConfig, _: frozenset[str]) -> None:
        offsets.init_by_memory = new.pop.init_by_memory
        shared.follow(new.pop, new.pop_buffer)
        service.follow(new.pop)
        browser.follow(new.pop)

    base.settings.listen(follow)
    lane = base.lanes["pull"]
    readers = Readers(base.callers, base.access)
    adapter = PopAdapter(
        service, checks, shared.pops, store=store, lane=lane, clock=clock, readers=readers
    )
    browse = PopBrowseAdapter(
        browser, checks, shared.notifications, store=store, clock=clock, readers=readers
    )
    light = make_light(base, checks, offsets, set() if lights is None else lights.leaving)
    set_backs.listen(light.orders.set_back)
    routed = (adapter, PopAckAdapter(acks, light.acks, readers), browse)
    core = _make_core(base, shared, locks, draws)
    return PopParts(
        *(shared, routed, service, acks, light, adapter, core),
        PopWaits(shared.pops, checks, store),
    )


def _make_acks(base: Base, shared: _Shared, set_backs: SetBacks) -> PopAcks:
    tables, clock = base.metadata, base.held_clock
    ordered = OrderedAcks(
        *(shared.orders, tables.offsets, shared.alarms, clock),
        deletions=tables.deletions,
        wake=shared.wake,
    )
    return PopAcks(
        checks=shared.checks,
        topics=tables.topics,
        store=base.store,
        revive_log=shared.revive_log,
        buffer=shared.buffer,
        in_flight=shared.in_flight,
        ordered=ordered,
        set_backs=set_backs,
        deletions=tables.deletions,
        broker_name=base.identity.name,
        clock=clock,
    )


def _make_browser(
    base: Base, checks: PopChecks, offsets: PopOffsets, orders: PopOrders, draws: Draws
) -> PopBrowser:
    return PopBrowser(
        checks=checks,
        topics=base.metadata.topics,
        store=base.store,
        offsets=offsets,
        orders=orders,
        rules=base.config.pop,
        draws=draws,
    )


def _make_core(base: Base, shared: _Shared, locks: PopLocks, draws: Draws) -> CorePops:
    """Wire the pops that the core gives messages; locks and draws are those of the service."""
    core = CorePops(
        checks=shared.checks,
        topics=base.metadata.topics,
        offsets=base.metadata.offsets,
        buffer=shared.buffer.merge,
        locks=locks,
        revive_log=shared.revive_log,
        draws=draws,
        broker_name=base.identity.name,
        rules=base.config.pop,
        clock=base.held_clock,
        wake=shared.pops.wake,
    )

    def follow(new: BrokerConfig, _: frozenset[str]) -> None:
        core.rules = new.pop
        core.forget()

    def changed(_: Collection[str]) -> None:
        core.forget()

    base.settings.listen(follow)
    base.state.listen(core.forget)
    base.metadata.topics.listen(changed)
    base.metadata.groups.listen(changed)
    return core


@dataclasses.dataclass(frozen=True, slots=True)
class _Shared:
    """What the services of POP have in common."""

    checks: PopChecks
    revive_log: ReviveLog
    buffer: PopBuffer
    in_flight: PopInFlight
    orders: PopOrders
    alarms: OrderAlarms
    pops: PopPolls
    """Pops that wait."""
    notifications: PopPolls
    """Notifications that wait."""
    wake: Callable[[Key], None]
    """Has requests that wait for a queue tried again."""

    def follow(self, rules: PopConfig, buffer: BufferConfig) -> None:
        """Go by other settings from now on."""
        self.revive_log.follow(buffer)
        self.buffer.follow(buffer)
        self.in_flight.enable(rules.limits_in_flight)
        self.alarms.is_enabled = rules.wake_when_free
        for polls in (self.pops, self.notifications):
            polls.follow(rules)


def _make_shared(base: Base, appender: Appender, set_backs: SetBacks) -> _Shared:
    clock, rules, topics = base.held_clock, base.config.pop, base.metadata.topics
    topic = revive_topic(base.identity.cluster)
    pops, notifications = PopPolls(clock, rules), PopPolls(clock, rules, newest_first=True)
    base.metrics.watch("pop_held", "Pops that wait for a message", lambda: float(len(pops)))
    for polls in (pops, notifications):
        base.store.arrivals.on_each(polls.arrived, functools.partial(bool, polls))
        polls.begins = base.store.arrivals.begin
        _follow_deletions(base, polls)

    def wake(key: Key) -> None:
        name, group, queue_id = key
        for polls in (pops, notifications):
            polls.wake(name, group, ALL_QUEUES)
            polls.wake(name, group, queue_id)

    file = JsonFile(base.config.store.config_folder / "consumerOrderInfo.json")
    orders = PopOrders(file, clock, base.metadata.deletions)
    set_backs.listen(orders.set_back)
    checks = PopChecks(
        topics,
        base.metadata.groups,
        identity=base.identity,
        state=base.state,
        timers=base.config.timers,
        revive_topic=topic,
        has_records=lambda queue_id: base.store.max_offset(topic, queue_id) > 0,
        newest_ms=lambda: set_backs.newest_ms,
        clock=clock,
    )
    base.settings.listen(lambda new, _: checks.follow(new.timers))
    revive_log = ReviveLog(
        *(appender, topics, topic),
        identity=base.identity,
        rules=base.config.pop_buffer,
        clock=clock,
    )
    alarms = OrderAlarms(orders.free_at, wake, clock)
    alarms.is_enabled = rules.wake_when_free
    return _Shared(
        checks=checks,
        revive_log=revive_log,
        buffer=_make_buffer(base, revive_log),
        in_flight=PopInFlight(clock, is_enabled=rules.limits_in_flight),
        orders=orders,
        alarms=alarms,
        pops=pops,
        notifications=notifications,
        wake=wake,
    )


def _follow_deletions(base: Base, polls: PopPolls) -> None:
    """Have requests refused that wait for a topic or a group that is deleted."""
    topics, groups = base.metadata.topics, base.metadata.groups

    def topics_changed(names: Collection[str]) -> None:
        polls.topics_gone({name for name in names if topics.get(name) is None})

    def groups_changed(names: Collection[str]) -> None:
        polls.groups_gone({name for name in names if groups.get(name) is None})

    topics.listen(topics_changed)
    groups.listen(groups_changed)


@dataclasses.dataclass(frozen=True, slots=True)
class ReviveParts:
    """What the redelivery of popped messages is made of."""

    service: ReviveService

    def part(self) -> Part:
        """Return the row of the life-cycle table."""
        needs = ("store", "timers")
        timers = self.service.timers
        return Part("revive", self.service, needs, Duty.REVIVE | Duty.TIMERS, timers)


def _make_buffer(base: Base, records: ReviveLog) -> PopBuffer:
    tables = base.metadata

    def is_gone(topic: str, group: str) -> bool:
        return tables.topics.get(topic) is None or tables.groups.find(group) is None

    rules = base.config.pop_buffer
    buffer = PopBuffer(records, tables.offsets, is_gone=is_gone, rules=rules, clock=base.held_clock)
    watch_buffer(buffer, base.metrics)
    return buffer


def make_revive(base: Base, appender: Appender, timers: TimerParts) -> ReviveParts:
    """Wire the redelivery of popped messages."""
    tables, rules = base.metadata, base.config.revive
    copies = Copies(
        base.store,
        appender,
        (tables.topics, tables.groups, tables.offsets),
        identity=base.identity,
        rules=rules,
        returned=base.stats,
        clock=base.held_clock,
        deletions=tables.deletions,
        core=PoppedMessages(base.store) if base.config.server.fast_path else None,
    )
    service = ReviveService(
        base.store,
        appender,
        copies,
        tables.offsets,
        tables.topics,
        wheel=timers.service,
        identity=base.identity,
        rules=rules,
        clock=base.held_clock,
    )
    watch_revive(service, base.metrics)
    base.settings.listen(lambda new, _: service.follow(new.revive))
    base.held_clock.listen(service.set_backs.was_set_back)
    return ReviveParts(service)


def make_assignments(base: Base, client: Client) -> AssignmentAdapter:
    """Wire the assignment of queues."""
    tables = base.metadata
    queues = TopicQueues(
        client,
        split_addresses(base.config.registration.name_servers or ""),
        tables.topics,
        identity=base.identity,
        period_ms=lambda: service.rules.routes_ms,
        clock=base.held_clock,
    )
    service = Assignments(
        queues,
        base.registry,
        tables.modes,
        tables=(tables.topics, tables.groups),
        identity=base.identity,
        access=base.access,
        rules=base.config.assignments,
    )

    def follow(new: BrokerConfig, _: frozenset[str]) -> None:
        service.rules = new.assignments

    base.settings.listen(follow)
    return AssignmentAdapter(service, base.callers)
