"""This member's share of each topic, asked for and computed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from roquet.base.errors import Refused, Unreachable
from roquet.client._cluster.routes import subscribe_queues
from roquet.client._queues.rebalance import average
from roquet.protocol.codes import ResponseCode
from roquet.remoting.refusals import cannot_heal

if TYPE_CHECKING:
    import random

    from roquet.client._cluster.broker_calls import BrokerCalls
    from roquet.client._cluster.session import Session
    from roquet.model.queue import MessageQueue


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
        self.has_others: bool = False
        """Whether the group had other members when it was asked last."""

    async def share(self, topic: str) -> tuple[MessageQueue, ...] | None:
        """Return the queues that are ours, or None while brokers do not list us as a member.

        Raises Refused, Unreachable, OutcomeUnknown.
        """
        route = await self._session.route(topic)
        queues = subscribe_queues(topic, route)
        brokers = sorted(data.broker_name for data in route.brokers if data.addresses)
        if not queues or not brokers:
            self._session.book.forget(topic)
            raise Unreachable(f"topic {topic} has no queue that can be read now")
        await self._session.beat_new()
        for refusal in self._session.heartbeat_refusals.values():
            if cannot_heal(refusal):
                raise refusal
        if self._broadcast:
            return queues
        try:
            clients = await self._calls.client_ids(self._group, self._rng.choice(brokers))
        except Refused as error:
            if error.code != ResponseCode.SYSTEM_ERROR or cannot_heal(error):
                raise
            clients = []  # the broker does not know the group yet, or not any more
        if self._session.members.client_id not in clients:
            # The broker has lost us, or never heard: what we hold stays until it has.
            await self._session.beat()
            return None
        self.has_others = len(clients) > 1
        return average(queues, clients, self._session.members.client_id)

    async def try_pull(self, topic: str) -> None:
        """Pull nothing, to hear why a broker does not take us. Raises as `share` does."""
        queues = subscribe_queues(topic, await self._session.route(topic))
        if queues:
            await self._calls.pull_nothing(self._group, queues[0])
