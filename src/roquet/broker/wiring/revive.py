"""The redelivery of popped messages."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from roquet.broker.pop.revive import ReviveService
from roquet.broker.pop.revive_copies import Copies
from roquet.broker.pop.revive_metrics import watch_revive
from roquet.service.lifecycle import Part, Role

if TYPE_CHECKING:
    from roquet.broker.appender import Appender
    from roquet.broker.wiring.base import Base
    from roquet.broker.wiring.timers import TimerParts


@dataclasses.dataclass(frozen=True, slots=True)
class ReviveParts:
    """What the redelivery of popped messages is made of."""

    service: ReviveService

    def part(self) -> Part:
        """Return the row of the life-cycle table."""
        needs = ("store", "timers")
        timers = self.service.timers
        return Part("revive", self.service, needs, during=Role.MASTER, timers=timers)


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
        clock=base.clock,
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
        clock=base.clock,
    )
    watch_revive(service, base.metrics)
    base.settings.listen(lambda new, _: service.follow(new.revive))
    return ReviveParts(service)
