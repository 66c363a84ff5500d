"""What is looked at regularly: waiting requests, lagging dispatch, groups that read too slowly."""

from __future__ import annotations

import dataclasses
import logging
from typing import TYPE_CHECKING, Protocol

from roquet.base.config import setting
from roquet.service.lifecycle import Timer
from roquet.store.results import StoreFault

if TYPE_CHECKING:
    from roquet.broker.clients.registry import Registry
    from roquet.service.lanes import Lanes
    from roquet.store.tables.groups import GroupTable
    from roquet.store.tables.offsets import OffsetTable

log = logging.getLogger(__name__)
water_mark = logging.getLogger("roquet.broker.water_mark")

QUEUES_MAX = 100_000
"""Queues that are looked at in one round."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SlowGroupConfig:
    """What happens to groups that read data which is no longer in memory."""

    disable: bool = setting(
        "disableConsumeIfConsumerReadSlowly",
        False,
        "Whether a group that is too far behind may not consume any more.",
        live=True,
    )
    behind_max: int = setting(
        "consumerFallbehindThreshold",
        16 * 1024**3,
        "How far behind the end of the log a group may be.",
        unit="bytes",
        low=1,
        live=True,
    )


class Backlogs(Protocol):
    """What is asked of the store."""

    def bytes_behind(self, topic: str, queue_id: int, offset: int) -> int:
        """Return how many bytes of the log lie behind a queue's offset."""
        ...

    def dispatch_behind(self) -> int:
        """Return how many bytes are stored and not dispatched."""
        ...


class Watch:
    """Looks, and says what it sees. A service with three timers."""

    def __init__(
        self,
        *,
        rules: SlowGroupConfig,
        lanes: Lanes,
        store: Backlogs,
        groups: GroupTable,
        offsets: OffsetTable,
        registry: Registry,
    ) -> None:
        self._rules = rules
        self._lanes = lanes
        self._store = store
        self._groups = groups
        self._offsets = offsets
        self._registry = registry
        self.timers = (
            Timer("switch slow groups off", self.protect, 180, 180),
            Timer("print water marks", self.print_water_marks, 1, 10),
            Timer("print dispatch lag", self.print_dispatch_lag, 60, 10),
        )

    def follow(self, rules: SlowGroupConfig) -> None:
        """Judge groups by other settings from now on."""
        self._rules = rules

    async def start(self) -> None:
        """Nothing to do: timers call the rest."""

    async def stop(self) -> None:
        """Nothing to do."""

    async def protect(self) -> None:
        """Switch off each connected group that is too far behind, if that is wanted."""
        if not self._rules.disable:
            return
        for group in list(self._registry.consumer_groups):
            config = self._groups.get(group)
            if config is None or not config.consume_enable:
                continue
            behind = self._behind(group)
            if behind > self._rules.behind_max:
                self._groups.put(dataclasses.replace(config, consume_enable=False))
                log.warning(
                    "consumer group %s is %d bytes behind and may not consume any more"
                    " (disableConsumeIfConsumerReadSlowly, consumerFallbehindThreshold %d);"
                    " updateSubGroup switches it on again",
                    *(group, behind, self._rules.behind_max),
                )

    async def print_water_marks(self) -> None:
        """Say how much waits in each lane and for how long: only when something does."""
        busy = [lane for lane in self._lanes.all() if lane.waiting]
        if busy:
            shown = ", ".join(
                f"{lane.config.name} {lane.waiting} (head {lane.head_age_ms()} ms)" for lane in busy
            )
            water_mark.info("waiting: %s", shown)

    async def print_dispatch_lag(self) -> None:
        """Say how far consume queues and index are behind the log."""
        behind = self._store.dispatch_behind()
        level = logging.INFO if behind else logging.DEBUG
        log.log(level, "dispatch is %d bytes behind the commit log", behind)

    def _behind(self, group: str) -> int:
        worst = 0
        looked = 0
        for topic in self._offsets.topics_of(group):
            for queue_id, offset in self._offsets.queues(group, topic).items():
                looked += 1
                if looked > QUEUES_MAX:
                    return worst
                try:
                    worst = max(worst, self._store.bytes_behind(topic, queue_id, offset))
                except StoreFault as fault:
                    log.debug("%s queue %d: %s", topic, queue_id, fault)
        return worst
