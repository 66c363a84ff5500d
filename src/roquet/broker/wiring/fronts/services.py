"""The services behind the broker's API."""

from __future__ import annotations

from typing import TYPE_CHECKING

from roquet.broker.remoting.replies import ConnectedRequesters
from roquet.broker.services.bundle import Services
from roquet.broker.services.groups import Groups
from roquet.broker.services.offsets import Offsets
from roquet.broker.services.query import Queries
from roquet.broker.services.receive import Receives
from roquet.broker.services.receive_checks import ReceiveChecks
from roquet.broker.services.replies import Replies
from roquet.broker.services.send.recall import Recalls
from roquet.broker.services.send.service import Retries, Sends
from roquet.broker.services.send_back import SendBacks
from roquet.broker.services.sequences.queues import SequencedQueues
from roquet.broker.services.sequences.service import SequencedSends
from roquet.broker.services.topics import Topics
from roquet.broker.wiring.base import make_broker_properties, make_checks

if TYPE_CHECKING:
    from roquet.broker.clients.expressions import Expressions
    from roquet.broker.messages.appender import Appender
    from roquet.broker.network.fast_fail import FastFail
    from roquet.broker.services.transactions import HalfDoor
    from roquet.broker.wiring.base import Base
    from roquet.broker.wiring.pop import PopParts
    from roquet.broker.wiring.timers import TimerParts
    from roquet.broker.wiring.transactions import TransactionParts


def make_services(
    base: Base,
    appender: Appender,
    gate: FastFail,
    transactions: TransactionParts,
    *,
    expressions: Expressions,
    timers: TimerParts,
    pop: PopParts | None = None,
) -> Services:
    """Make what every front calls."""
    tables = base.metadata
    sends = _make_sends(base, appender, gate, transactions.door)
    queues = SequencedQueues(base.store, base.clock)
    return Services(
        sends=sends,
        sequenced=_make_sequenced(base, appender, sends, queues),
        replies=_make_replies(base, appender, gate),
        receives=_make_receives(base, expressions),
        offsets=_make_offsets(base),
        queries=_make_queries(base),
        send_backs=_make_send_backs(base, appender),
        transactions=transactions.ends,
        recalls=_make_recalls(base, appender, timers),
        topics=Topics(
            *(tables.topics, tables.offsets, base.store, base.stats, tables.deletions),
            deleted=queues.forget,
            remove_lights=None if pop is None else pop.light.upkeep.remove_of,
        ),
        groups=Groups(tables.groups, tables.offsets, base.stats, tables.deletions),
    )


def _make_sends(base: Base, appender: Appender, gate: FastFail, halves: HalfDoor) -> Sends:
    return Sends(
        gate=gate,
        checks=make_checks(base),
        retries=Retries(base.metadata.groups, base.locks),
        broker_properties=make_broker_properties(base),
        appender=appender,
        halves=halves,
        traffic=base.stats,
        queues=base.rng,
    )


def _make_sequenced(
    base: Base, appender: Appender, sends: Sends, queues: SequencedQueues
) -> SequencedSends:
    sequenced = SequencedSends(
        queues,
        sends,
        appender,
        base.metadata.topics,
        flushes=base.store,
        access=base.access,
        state=base.state,
        rules=base.config.send,
        traffic=base.stats,
    )
    base.settings.listen(lambda new, _: sequenced.follow(new.send))
    return sequenced


def _make_replies(base: Base, appender: Appender, gate: FastFail) -> Replies:
    return Replies(
        gate=gate,
        checks=make_checks(base),
        broker_properties=make_broker_properties(base),
        appender=appender,
        requesters=ConnectedRequesters(base.registry),
        traffic=base.stats,
        queues=base.rng,
        access=base.access,
    )


def _make_receives(base: Base, expressions: Expressions) -> Receives:
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
        access=base.access,
    )
    base.settings.listen(lambda new, _: receives.follow(new.pull))
    return receives


def _make_offsets(base: Base) -> Offsets:
    tables, rules = base.metadata, base.config.offsets
    offsets = Offsets(tables.topics, tables.groups, tables.offsets, base.store, rules)
    base.settings.listen(lambda new, _: offsets.follow(new.offsets))
    return offsets


def _make_queries(base: Base) -> Queries:
    queries = Queries(base.store, base.messages, base.config.query, base.access)
    base.settings.listen(lambda new, _: queries.follow(new.query))
    return queries


def _make_send_backs(base: Base, appender: Appender) -> SendBacks:
    tables = base.metadata
    return SendBacks(
        appender,
        base.messages,
        tables.topics,
        tables.groups,
        identity=base.identity,
        state=base.state,
        returns=base.stats,
        access=base.access,
    )


def _make_recalls(base: Base, appender: Appender, timers: TimerParts) -> Recalls:
    recalls = Recalls(
        appender,
        base.metadata.topics,
        rules=base.config.timers,
        broker_properties=make_broker_properties(base),
        state=base.state,
    )
    base.settings.listen(lambda new, _: timers.follow(new.timers, recalls))
    return recalls
