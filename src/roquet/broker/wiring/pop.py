"""POP consumption: services, waiting requests, and their remoting front."""

from __future__ import annotations

import dataclasses
import random
from typing import TYPE_CHECKING

from roquet.broker.pop.receive.acks import PopAcks
from roquet.broker.pop.receive.browse import PopBrowser
from roquet.broker.pop.receive.checks import PopChecks
from roquet.broker.pop.receive.in_flight import PopInFlight
from roquet.broker.pop.receive.locks import PopLocks
from roquet.broker.pop.receive.offsets import PopOffsets
from roquet.broker.pop.receive.polls import PopPolls
from roquet.broker.pop.receive.records import ReviveLog
from roquet.broker.pop.receive.service import PopService
from roquet.broker.remoting.pop import PopAckAdapter, PopAdapter, PopBrowseAdapter
from roquet.protocol.pop.topics import ALL_QUEUES, revive_topic
from roquet.service.lifecycle import Part, Role

if TYPE_CHECKING:
    from roquet.broker.appender import Appender
    from roquet.broker.config import BrokerConfig
    from roquet.broker.routes import Routed
    from roquet.broker.wiring.base import Base
    from roquet.remoting.router import Peer


@dataclasses.dataclass(frozen=True, slots=True)
class PopParts:
    """What POP consumption is made of."""

    pops: PopPolls
    """Pops that wait."""
    notifications: PopPolls
    """Notifications that wait."""
    in_flight: PopInFlight
    routed: tuple[Routed, ...]

    def parts(self) -> list[Part]:
        """Return the rows of the life-cycle table."""
        rows = (("pop_polls", self.pops), ("pop_notifications", self.notifications))
        return [Part(name, polls, ("store",), during=Role.MASTER) for name, polls in rows]

    def drop_peer(self, peer: Peer) -> None:
        """Forget what waits on a connection that closed."""
        self.pops.drop_peer(peer)
        self.notifications.drop_peer(peer)


def make_pop(base: Base, appender: Appender) -> PopParts:
    """Wire POP consumption."""
    config, tables, clock, store = base.config, base.metadata, base.clock, base.store
    rules, topics, name = config.pop, tables.topics, base.identity.name
    checks = _make_checks(base)
    revive = revive_topic(base.identity.cluster)
    revive_log = ReviveLog(appender, topics, revive, base.identity, clock)
    in_flight = PopInFlight(clock, is_enabled=rules.limits_in_flight)
    offsets = PopOffsets(tables.offsets, store, init_by_memory=rules.init_by_memory)
    rng = random.Random(base.rng.getrandbits(64))  # noqa: S311
    polls = PopPolls(clock, rules), PopPolls(clock, rules, newest_first=True)
    pops, notifications = polls
    base.metrics.watch("pop_held", "Pops that wait for a message", lambda: float(len(pops)))

    def contended(topic: str, group: str, queue_id: int) -> None:
        pops.wake(topic, group, ALL_QUEUES)
        pops.wake(topic, group, queue_id)

    service = PopService(
        checks=checks,
        topics=topics,
        store=store,
        offsets=offsets,
        locks=PopLocks(),
        revive_log=revive_log,
        in_flight=in_flight,
        traffic=base.stats,
        broker_name=name,
        rules=rules,
        clock=clock,
        rng=rng,
        on_contended=contended,
    )
    browser = PopBrowser(
        checks=checks, topics=topics, store=store, offsets=offsets, rules=rules, rng=rng
    )
    acks = PopAcks(
        checks=checks,
        topics=topics,
        store=store,
        revive_log=revive_log,
        in_flight=in_flight,
        broker_name=name,
        clock=clock,
    )

    def follow(new: BrokerConfig, _: frozenset[str]) -> None:
        offsets.init_by_memory = new.pop.init_by_memory
        in_flight.is_enabled = new.pop.limits_in_flight
        for part in (*polls, service, browser):
            part.follow(new.pop)

    base.settings.listen(follow)
    for waiting in polls:
        store.on_arrival(waiting.arrived)
    lane = base.lanes["pull"]
    adapter = PopAdapter(service, checks, pops, store=store, lane=lane, clock=clock)
    browse = PopBrowseAdapter(browser, checks, notifications, store=store, clock=clock)
    return PopParts(pops, notifications, in_flight, (adapter, PopAckAdapter(acks), browse))


def _make_checks(base: Base) -> PopChecks:
    checks = PopChecks(
        base.metadata.topics,
        base.metadata.groups,
        identity=base.identity,
        state=base.state,
        timers=base.config.timers,
        revive_topic=revive_topic(base.identity.cluster),
        clock=base.clock,
    )
    base.settings.listen(lambda new, _: checks.follow(new.timers))
    return checks
