"""The assignment of queues by the broker."""

from __future__ import annotations

from typing import TYPE_CHECKING

from roquet.broker.remoting.assignments import AssignmentAdapter
from roquet.broker.remoting.callers import Callers
from roquet.broker.remoting.topic_queues import TopicQueues
from roquet.broker.services.assignments import Assignments
from roquet.protocol.hosts import split_addresses

if TYPE_CHECKING:
    from roquet.broker.config import BrokerConfig
    from roquet.broker.wiring.base import Base
    from roquet.remoting.client import Client


def make_assignments(base: Base, client: Client) -> AssignmentAdapter:
    """Wire the assignment of queues."""
    tables = base.metadata
    queues = TopicQueues(
        client,
        split_addresses(base.config.registration.name_servers or ""),
        tables.topics,
        identity=base.identity,
        period_ms=lambda: service.rules.routes_ms,
        clock=base.clock,
    )
    service = Assignments(
        queues,
        base.registry,
        tables.modes,
        tables=(tables.topics, tables.groups),
        identity=base.identity,
        rules=base.config.assignments,
    )

    def follow(new: BrokerConfig, _: frozenset[str]) -> None:
        service.rules = new.assignments

    base.settings.listen(follow)
    return AssignmentAdapter(service, Callers(base.rights))
