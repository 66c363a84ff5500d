"""The processors that take and hand out messages, and the rows of the fast path."""

from __future__ import annotations

from typing import TYPE_CHECKING

from roquet.broker.account_rows import AccountRows
from roquet.broker.admission import Admission, Rules
from roquet.broker.fast_fail import FastFail
from roquet.broker.lock_votes import LockVotes
from roquet.broker.notices import GroupNotices
from roquet.broker.processors.clients import ClientRules, Clients
from roquet.broker.processors.lock import Lock
from roquet.broker.remoting.offsets import OffsetAdapter
from roquet.broker.remoting.query import QueryAdapter
from roquet.broker.remoting.receive import ReceiveAdapter
from roquet.broker.remoting.replies import ConnectedRequesters, ReplyAdapter
from roquet.broker.remoting.send import SendAdapter
from roquet.broker.remoting.send_back import SendBackAdapter
from roquet.broker.schedule import DelaySchedule
from roquet.broker.services.offsets import Offsets
from roquet.broker.services.query import Queries
from roquet.broker.services.receive import Receives
from roquet.broker.services.receive_checks import ReceiveChecks
from roquet.broker.services.replies import Replies
from roquet.broker.services.send import Retries, Sends
from roquet.broker.services.send_back import SendBacks
from roquet.broker.services.topic_checks import SendChecks
from roquet.broker.wiring.base import make_stamps
from roquet.protocol.hosts import split_addresses
from roquet.store.files import JsonFile

if TYPE_CHECKING:
    from roquet.broker.answers import Answers
    from roquet.broker.appender import Appender
    from roquet.broker.config import BrokerConfig
    from roquet.broker.expressions import Expressions
    from roquet.broker.ports import Listeners
    from roquet.broker.processors.transactions import HalfDoor
    from roquet.broker.schedule import DelayLevels
    from roquet.broker.wiring.base import Base
    from roquet.protocol.command import Command
    from roquet.remoting.client import Client
    from roquet.remoting.fast_ingest import FastPath


def make_admission(
    base: Base,
    fast_fail: FastFail,
    expressions: Expressions,
    delays: DelayLevels,
    answers: Answers | None,
    *,
    halves: HalfDoor,
) -> Admission:
    """Make the rows of the native fast path."""
    config = base.config
    # What plugins want to see must not pass them by.
    unseen = config.plugins.chosen or base.hooks
    fast = config.server.fast_path and not unseen
    admission = Admission(
        metadata=base.metadata,
        registry=base.registry,
        state=base.state,
        gate=fast_fail,
        traffic=base.stats,
        rules=Rules(
            fast,
            make_stamps(base),
            config.pull,
            config.store,
            config.server.holds_max,
            delays.highest,
        ),
        expressions=expressions,
        halves=halves,
        accounts=None if base.accounts is None else AccountRows(base.accounts),
        answers=answers,
    )
    # Rows are written with the next bytes that arrive, when every part has followed.
    base.settings.listen(lambda new, _: admission.follow(new.pull, new.store))
    return admission


def make_schedule(base: Base, delays: DelayLevels) -> DelaySchedule:
    """Make the delivery of delayed messages."""
    settings = base.config.store
    file = JsonFile(settings.config_folder / "delayOffset.json")
    every_s = settings.offsets_interval_ms / 1000
    schedule = DelaySchedule(delays, base.store, file, base.clock, every_s, traffic=base.stats)
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
        lanes=base.lanes,
        state=base.state,
    )
    base.settings.listen(lambda new, _: fast_fail.follow(new.fast_fail))
    return fast_fail


def make_checks(base: Base) -> SendChecks:
    """Make the checks that sends of all kinds go through."""
    return SendChecks(base.metadata.topics, base.state, base.identity, base.clock)


def make_send(base: Base, appender: Appender, gate: FastFail, halves: HalfDoor) -> SendAdapter:
    """Make what takes messages."""
    stamps = make_stamps(base)
    sends = Sends(
        gate=gate,
        checks=make_checks(base),
        retries=Retries(base.metadata.groups, base.locks),
        stamps=stamps,
        appender=appender,
        halves=halves,
        traffic=base.stats,
        queues=base.rng,
    )
    return SendAdapter(sends, base.callers, appender, stamps.ext)


def make_reply(base: Base, appender: Appender, gate: FastFail) -> ReplyAdapter:
    """Make what passes replies on."""
    stamps = make_stamps(base)
    replies = Replies(
        gate=gate,
        checks=make_checks(base),
        stamps=stamps,
        appender=appender,
        requesters=ConnectedRequesters(base.registry),
        traffic=base.stats,
        queues=base.rng,
        access=base.access,
    )
    return ReplyAdapter(replies, base.callers, stamps.ext)


def make_send_back(base: Base, appender: Appender) -> SendBackAdapter:
    """Make what takes messages back from consumers."""
    tables = base.metadata
    send_backs = SendBacks(
        appender,
        base.messages,
        tables.topics,
        tables.groups,
        identity=base.identity,
        state=base.state,
        returns=base.stats,
        access=base.access,
    )
    return SendBackAdapter(send_backs, base.callers)


def make_lock(base: Base, client: Client) -> Lock:
    """Make the processor of queue locks."""
    addresses = split_addresses(base.config.registration.name_servers or "")
    votes = LockVotes(client, base.identity, addresses, base.config.locks)
    return Lock(
        base.locks,
        base.registry,
        base.metadata.topics,
        base.identity.name,
        votes if votes.needed else None,
    )


def make_clients(base: Base) -> Clients:
    """Make the processor of heartbeats and leavers."""
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
        rights=base.rights,
    )

    def follow(new: BrokerConfig, _: frozenset[str]) -> None:
        clients.follow(_client_rules(new))
        notices.follow(enabled=new.clients.notify, at_once=new.clients.notify_at_once)

    base.settings.listen(follow)
    return clients


def _client_rules(config: BrokerConfig) -> ClientRules:
    return ClientRules(
        reject_pull_consumers=config.pull.reject_pull_consumers,
        sql_filters=config.pull.property_filter,
    )


def make_offsets(base: Base) -> OffsetAdapter:
    """Make what answers requests about offsets."""
    tables, rules = base.metadata, base.config.offsets
    offsets = Offsets(tables.topics, tables.groups, tables.offsets, base.store, rules)
    base.settings.listen(lambda new, _: offsets.follow(new.offsets))
    return OffsetAdapter(offsets, base.callers)


def make_query(base: Base) -> QueryAdapter:
    """Make what answers queries by key and by place."""
    queries = Queries(base.store, base.messages, base.config.query, base.access)
    base.settings.listen(lambda new, _: queries.follow(new.query))
    return QueryAdapter(queries, base.callers)


def make_pull(base: Base, expressions: Expressions) -> ReceiveAdapter:
    """Make what answers reads."""
    tables = base.metadata
    receives = Receives(
        checks=ReceiveChecks(
            tables.topics,
            tables.groups,
            tables.filters,
            base.registry,
            state=base.state,
            rules=base.config.pull,
            expressions=expressions,
        ),
        store=base.store,
        offsets=tables.offsets,
        holds=base.holds,
        traffic=base.stats,
        rules=base.config.pull,
        clock=base.clock,
    )
    base.settings.listen(lambda new, _: receives.follow(new.pull))
    return ReceiveAdapter(receives, base.callers)


def share_holds(base: Base, path: FastPath, listeners: Listeners, pull: ReceiveAdapter) -> None:
    """Let the fast path hold pulls beside the adapter, which answers those it may no longer."""

    def resume(key: int, command: Command) -> None:
        request = listeners.late(key, command)
        if request is not None:
            pull.resume(request)

    path.resume_by(resume)
    base.holds.share(path)
    base.store.on_arrival(base.holds.arrived)
    base.store.on_arrivals(path.arrived)
