"""This member's share of each topic, asked for and computed."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from roquet.base.errors import OutcomeUnknown, Refused, Unreachable
from roquet.client._rebalance import average
from roquet.client._routes import subscribe_queues

if TYPE_CHECKING:
    import random

    from roquet.client._broker_calls import BrokerCalls
    from roquet.client._session import Session
    from roquet.model.queue import MessageQueue

log = logging.getLogger(__name__)


class Balancer:
    """Computes shares. Members of other languages compute the same, so nothing is negotiated."""

    def __init__(
        self,
        session: Session,
        calls: BrokerCalls,
        group: str,
        rng: random.Random,
        *,
        broadcast: bool = False,
    ) -> None:
        """Balance the queues of `group`'s topics; with `broadcast` each member has them all."""
        self._broadcast = broadcast
        self._session = session
        self._calls = calls
        self._group = group
        self._rng = rng

    async def share(self, topic: str) -> tuple[MessageQueue, ...] | None:
        """Return the queues that are ours, or None when that cannot be known now."""
        try:
            route = await self._session.route(topic)
            queues = subscribe_queues(topic, route)
            brokers = sorted(data.broker_name for data in route.brokers if data.addresses)
            if not queues or not brokers:
                return None
            await self._session.beat_new()
            if self._broadcast:
                return queues
            clients = await self._calls.client_ids(self._group, self._rng.choice(brokers))
        except (Refused, Unreachable, OutcomeUnknown) as error:
            log.debug("no share of %s now: %s", topic, error)
            return None
        if self._session.members.client_id not in clients:
            # The broker has lost us, or never heard: what we hold stays until it has.
            await self._session.beat()
            return None
        return average(queues, clients, self._session.members.client_id)
