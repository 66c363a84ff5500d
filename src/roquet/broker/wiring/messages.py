"""Delayed messages, overload, clients and locks, and the rows of the fast path."""

from __future__ import annotations

from typing import TYPE_CHECKING

from roquet.base.clock import HeldClock
from roquet.broker.clients.lock_votes import LockVotes
from roquet.broker.clients.notices import GroupNotices
from roquet.broker.fastpath.account_rows import AccountRows
from roquet.broker.fastpath.admission import Admission, Rules
from roquet.broker.fastpath.user_rows import UserRows
from roquet.broker.messages.appender import Appender
from roquet.broker.messages.light_queues import LightQueues
from roquet.broker.messages.schedule import DelaySchedule
from roquet.broker.network.fast_fail import FastFail
from roquet.broker.services.clients.heartbeats import Clients, HeartbeatConfig
from roquet.broker.services.clients.queue_locks import Locks
from roquet.broker.wiring.base import make_broker_properties, table_form
from roquet.protocol.hosts import split_addresses
from roquet.protocol.pop.topics import revive_topic

if TYPE_CHECKING:
    from collections.abc import Collection

    from roquet.broker.clients.expressions import Expressions
    from roquet.broker.config import BrokerConfig
    from roquet.broker.fastpath.account_rows import WhoMay
    from roquet.broker.fastpath.pop_rows import PopRows
    from roquet.broker.messages.put_hooks import PutHooks
    from roquet.broker.messages.schedule import DelayLevels
    from roquet.broker.metrics.answers import Answers
    from roquet.broker.network.ports import Listeners
    from roquet.broker.remoting.receive import ReceiveAdapter
    from roquet.broker.services.transactions import HalfDoor
    from roquet.broker.wiring.base import Base
    from roquet.broker.wiring.pop import PopParts
    from roquet.ha.replicas import Replicas
    from roquet.protocol.command import Command
    from roquet.remoting.client import Client
    from roquet.remoting.connections.fast_ingest import FastPath


def make_admission(
    base: Base,
    fast_fail: FastFail,
    expressions: Expressions,
    delays: DelayLevels,
    answers: Answers | None,
    *,
    hooks: PutHooks,
    halves: HalfDoor,
    pop: PopRows,
) -> Admission:
    """Make the rows of the native fast path."""
    config = base.config
    # What plugins and put hooks want to see must not pass them by.
    unseen = config.plugins.chosen or base.hooks or hooks.beyond_core is None
    fast = config.server.fast_path and not unseen
    admission = Admission(
        metadata=base.metadata,
        registry=base.registry,
        state=base.state,
        gate=fast_fail,
        traffic=base.stats,
        rules=Rules(
            fast,
            make_broker_properties(base),
            config.pull,
            config.store,
            config.server.holds_max,
            delays.highest,
            special=hooks.beyond_core or frozenset(),
        ),
        expressions=expressions,
        halves=halves,
        accounts=make_rows(base),
        answers=answers,
        pop=pop,
    )
    # Rows are written with the next bytes that arrive, when every part has followed.
    base.settings.listen(lambda new, _: admission.follow(new.pull, new.store))
    for source in (base.accounts, base.users):
        if source is not None:
            source.listen(admission.suspend)
    return admission


def make_rows(base: Base) -> WhoMay | None:
    """Make the rows of those who may; None where everybody may."""
    revive = revive_topic(base.identity.cluster)
    if base.users is not None:
        return UserRows(base.users, revive)
    return None if base.accounts is None else AccountRows(base.accounts, revive)


def make_schedule(base: Base, delays: DelayLevels) -> DelaySchedule:
    """Make the delivery of delayed messages."""
    settings = base.config.store
    form = table_form(settings, "delayOffset.json")
    every_s = settings.offsets_interval_ms / 1000
    clock = HeldClock(base.clock)
    schedule = DelaySchedule(delays, base.store, form, clock, every_s, traffic=base.stats)
    schedule.follow(base.config.schedule)
    base.settings.listen(lambda new, _: schedule.follow(new.schedule))
    return schedule


def make_fast_fail(base: Base) -> FastFail:
    """Make what refuses sends that waited too long."""
    fast_fail = FastFail(
        rules=base.config.fast_fail,
        appends=base.store,
        lag=base.lag,
        waits=base.waits,
        rest=base.rest,
        lanes=base.lanes,
        state=base.state,
    )
    base.settings.listen(lambda new, _: fast_fail.follow(new.fast_fail))
    return fast_fail


def make_light_queues(base: Base) -> LightQueues | None:
    """Make the rules of messages that name light queues; None when there are no such queues."""
    if not base.config.store.has_light_queues:
        return None
    lights = LightQueues(base.store, base.config.store)

    def follow(new: BrokerConfig, _: frozenset[str]) -> None:
        lights.follow(new.store)
        base.stats.add_up_light(yes=not new.light_topics.stats)

    follow(base.config, frozenset())
    base.settings.listen(follow)
    return lights


def make_appender(base: Base, hooks: PutHooks, replicas: Replicas | None) -> Appender:
    """Make the last step before the store."""
    # Plugins see message by message.
    log = None if base.config.plugins.chosen else base.store
    return Appender(base.store, hooks, replicas, log=log)


def make_locks(base: Base, client: Client) -> Locks:
    """Make the leases on queues."""
    addresses = split_addresses(base.config.registration.name_servers or "")
    votes = LockVotes(client, base.identity, addresses, base.config.locks)
    base.settings.listen(lambda new, _: votes.follow(new.locks))
    return Locks(
        base.locks,
        base.registry,
        base.metadata.topics,
        base.identity.name,
        votes,
        access=base.access,
    )


def make_clients(base: Base) -> Clients:
    """Make the service of heartbeats and leavers."""
    rules = base.config.clients

    def group_changed(group: str) -> None:
        known = base.registry.consumer(group)
        base.metadata.filters.follow(group, None if known is None else known.subscriptions)

    base.registry.listen(group_changed)
    notices = GroupNotices(
        base.registry, base.metadata.groups, enabled=rules.notify, at_once=rules.notify_at_once
    )
    clients = Clients(
        base.registry,
        notices,
        base.metadata.groups,
        base.metadata.topics,
        base.clock,
        rules=_client_rules(base.config),
        access=base.access,
    )

    def follow(new: BrokerConfig, _: frozenset[str]) -> None:
        clients.follow(_client_rules(new))
        notices.follow(enabled=new.clients.notify, at_once=new.clients.notify_at_once)

    base.settings.listen(follow)
    return clients


def _client_rules(config: BrokerConfig) -> HeartbeatConfig:
    return HeartbeatConfig(
        reject_pull_consumers=config.pull.reject_pull_consumers,
        sql_filters=config.pull.property_filter,
    )


def share_holds(
    base: Base, path: FastPath, listeners: Listeners, pull: ReceiveAdapter, pop: PopParts
) -> None:
    """Let requests wait that the fast path has read; the adapters answer what it may no longer."""

    def resume(key: int, command: Command) -> None:
        request = listeners.late(key, command)
        if request is not None:
            pull.resume(request)

    pop.hold_in_core(base, path, listeners)
    path.resume_by(resume)
    base.holds.share(path)
    arrivals = base.store.arrivals
    base.holds.begins = arrivals.begin
    path.begins.append(arrivals.begin)
    arrivals.on_each(base.holds.arrived, lambda: base.holds.count > 0)
    arrivals.on_all(path.arrived, lambda: path.on_loop > 0)
    topics = base.metadata.topics

    def removed(names: Collection[str]) -> None:
        for topic in names:
            if topics.get(topic) is None:
                base.holds.removed(topic)
                # Nobody may be answered by its row any more.
                path.refresh()
                path.removed(topic)

    topics.listen(removed)
    for holder in (base.holds, path):
        pop.light.upkeep.listen(holder.removed)
