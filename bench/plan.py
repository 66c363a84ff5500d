"""How long a benchmark runs: its runs in order, each with the time it is expected to take."""

from __future__ import annotations

import dataclasses
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from bench.scenarios import Scenario

CALL_S = 0.8
"""Seconds that a run costs beside its load: processes, settling, asking for figures."""
READ_BACK = 1.2
"""Seconds that reading one second of sends at full speed back takes, about."""
READ_BACK_SLOW = 0.4
"""The same for one message in flight a connection, and at a fixed rate."""
START_S = 4.0
RECOVERY_S = 25.0


@dataclasses.dataclass(frozen=True, slots=True)
class Plan:
    """How often and how long everything is measured."""

    pairs: int
    """Runs of each scenario on each broker, in turn."""
    secs: float
    shape_secs: float
    """Seconds of a run of a frame shape; it runs on our broker alone, `pairs` times."""
    warm_up: float
    starts: int

    def run_s(self, scenario: Scenario, *, read_back: bool) -> float:
        """Return the seconds that one run is expected to take."""
        load = self.shape_secs if scenario.is_shape else self.secs
        beside = load + CALL_S if scenario.is_shape else 0.0
        if scenario.send_rate:
            return load + 3 + CALL_S
        if scenario.mode != "send" or not read_back:
            return load + beside + CALL_S
        slow = scenario.flush == "sync" or scenario.half_of or scenario.options.get("depth") == 1
        return load * (1 + (READ_BACK_SLOW if slow else READ_BACK)) + beside + CALL_S

    def group_s(self, group: Sequence[Scenario], kinds: int, *, read_back: bool) -> float:
        """Return the seconds that a group of scenarios takes with its brokers' warm-up."""
        runs = sum(self.run_s(each, read_back=read_back) for each in group)
        return (runs * self.pairs + self.warm_up + START_S) * kinds if group else 0.0


QUICK = Plan(pairs=1, secs=2, shape_secs=1, warm_up=6, starts=3)
FULL = Plan(pairs=5, secs=3, shape_secs=2, warm_up=20, starts=10)
"""Fits into 35 minutes with room for a machine that is slower than the estimate."""


class Watch:
    """Says how far a plan is, and how long the rest will take at the speed so far."""

    def __init__(
        self,
        planned_s: float,
        say: Callable[[str], object],
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begin; `say` gets a line for people."""
        self._planned_s = planned_s
        self._say = say
        self._now = now
        self._began = now()
        self._done_s = 0.0

    def done(self, what: str, planned_s: float) -> None:
        """Note that something is done that was expected to take so long."""
        self._done_s += planned_s
        spent = self._now() - self._began
        left = max(0.0, self._planned_s - self._done_s) * spent / max(self._done_s, 1e-9)
        self._say(f"{minutes(spent)} gone, about {minutes(left)} left: {what}")


def minutes(seconds: float) -> str:
    """Return a time for people."""
    whole = round(seconds)
    return f"{whole // 60} min {whole % 60:02} s"
