"""Locks that ordered consumers hold at brokers, so that nobody else reads the queue meanwhile."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from roquet.base.errors import OutcomeUnknown, Refused, Unreachable

if TYPE_CHECKING:
    from collections.abc import Iterable

    from roquet.base.clock import Clock
    from roquet.client._cluster.broker_calls import BrokerCalls
    from roquet.client._queues.process_queue import ProcessQueue
    from roquet.model.queue import MessageQueue

log = logging.getLogger(__name__)

RENEW_EVERY_S = 20.0


class Locks:
    """Gets, renews and returns the locks of one group."""

    def __init__(self, calls: BrokerCalls, group: str, clock: Clock) -> None:
        """Hold none yet."""
        self._calls = calls
        self._group = group
        self._clock = clock

    async def lock(self, held: ProcessQueue) -> bool:
        """Lock one queue, or renew its lock; return whether it is ours."""
        await self.renew([held])
        return held.lock_is_fresh(self._clock.steady_ms())

    async def renew(self, queues: Iterable[ProcessQueue]) -> None:
        """Ask for all these locks; those missing in the answer are lost."""
        by_broker: dict[str, list[ProcessQueue]] = {}
        for held in queues:
            by_broker.setdefault(held.queue.broker_name, []).append(held)
        for broker, helds in by_broker.items():
            asked_ms = self._clock.steady_ms()
            try:
                locked = await self._calls.lock(self._group, broker, [it.queue for it in helds])
            except (Refused, Unreachable, OutcomeUnknown) as error:
                log.info("no locks at %s now: %s", broker, error)
                continue
            for held in helds:
                is_ours = held.queue in locked
                held.locked_at_ms = asked_ms if is_ours else None
                held.last_lock_ms = self._clock.now_ms() if is_ours else 0

    async def unlock(self, queues: Iterable[MessageQueue]) -> None:
        """Give locks back."""
        for queue in queues:
            try:
                await self._calls.unlock(self._group, queue.broker_name, [queue])
            except Unreachable as error:
                log.info("%s is not unlocked: %s", queue, error)
