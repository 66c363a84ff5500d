"""What is wrapped around the operations of fronts, in order."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from roquet.broker.operations.access import Authorized
from roquet.broker.operations.light import make_light_operations
from roquet.broker.operations.local import LocalBroker
from roquet.broker.operations.plugins import ConsumeHooks, SendHooks
from roquet.broker.operations.records import Audited, Counted
from roquet.broker.operations.table import Operations, make_operations
from roquet.broker.pop.waits import LightWaits
from roquet.broker.remoting.refusals import OutcomeCodes

if TYPE_CHECKING:
    from roquet.broker.metrics.answers import Answers
    from roquet.broker.operations.wrapping import Wrapper
    from roquet.broker.services.bundle import Services
    from roquet.broker.services.clients.heartbeats import Clients
    from roquet.broker.wiring.base import Base
    from roquet.broker.wiring.light import LightService
    from roquet.broker.wiring.pop import PopParts
    from roquet.remoting.connections.fast_ingest import FastPath


def make_fronts(
    base: Base, services: Services, pop: PopParts, answers: Answers | None, clients: Clients
) -> tuple[Operations, LocalBroker]:
    """Make the operations that the remoting front calls, and what every other front is given."""
    made = (services, pop.service, pop.acks)
    others = make_operations(*made, front_wrappers(base, answers), base.access)
    local = LocalBroker(
        operations=others,
        clients=clients,
        waits=pop.waits,
        identity=base.identity,
        guard=base.guard,
        clock=base.clock,
        metrics=base.metrics,
    )
    return make_operations(*made, remoting_wrappers(base), base.access), local


def with_light(
    local: LocalBroker, base: Base, service: LightService, path: FastPath, answers: Answers | None
) -> LocalBroker:
    """Return what other fronts are given, with light topics and the fast path."""
    light = service.light
    operations = make_light_operations(
        service.control,
        light.pops,
        light.acks,
        waits=LightWaits(light.polls, light.events.has_any),
        wrappers=front_wrappers(base, answers),
        access=base.access,
    )
    # Its rows admit nothing where plugins are to see every message.
    return dataclasses.replace(local, light=operations, fast=path)


def remoting_wrappers(base: Base) -> list[Wrapper]:
    """List what is around the calls of the remoting front: plugins.

    The guard has asked for the rights before the request got a place in a lane, by the same rules
    (`acl.needs`); answers are counted as frames, those of the fast path included.
    """
    hooks, codes = base.hooks, OutcomeCodes()
    found: list[Wrapper] = []
    if hooks.send:
        found.append(SendHooks(hooks.send, codes))
    if hooks.consume:
        found.append(ConsumeHooks(hooks.consume, codes))
    return found


def front_wrappers(base: Base, answers: Answers | None) -> list[Wrapper]:
    """List what is around the calls of every other front."""
    found: list[Wrapper] = []
    if answers is not None:
        found.append(Counted(answers, base.clock, OutcomeCodes().of))
    found.append(Audited(base.clock))
    if base.guard is not None:
        found.append(Authorized(base.access))
    return [*found, *remoting_wrappers(base)]
