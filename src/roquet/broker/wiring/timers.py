"""The timer wheel and what asks for it."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from roquet.broker.timers.metrics import watch_timers
from roquet.broker.timers.rules import TimerConversion
from roquet.broker.timers.service import TimerService
from roquet.service.duties import Duty
from roquet.service.lifecycle import Part
from roquet.store.tables.files import JsonFile

if TYPE_CHECKING:
    from roquet.broker.services.send.recall import Recalls
    from roquet.broker.timers.rules import TimerConfig
    from roquet.broker.wiring.base import Base


@dataclasses.dataclass(frozen=True, slots=True)
class TimerParts:
    """What timer messages are made of."""

    service: TimerService
    conversion: TimerConversion

    def part(self) -> Part:
        """Return the row of the life-cycle table."""
        timers = self.service.timers
        return Part("timers", self.service, ("store",), Duty.TIMERS, timers)

    def follow(self, rules: TimerConfig, recalls: Recalls) -> None:
        """Go by other settings from now on."""
        self.service.follow(rules)
        self.conversion.rules = rules
        recalls.follow(rules)


def make_timers(base: Base) -> TimerParts:
    """Wire the wheel and the conversion of messages for it."""
    rules = base.config.timers
    file = JsonFile(base.config.store.config_folder / "timermetrics")
    service = TimerService(base.store, rules, file, base.clock)
    topics = base.metadata.topics
    watch_timers(service, base.metrics, has_topic=lambda name: topics.get(name) is not None)
    return TimerParts(service, TimerConversion(rules, service, base.held_clock, base.rng))
