"""The parts that a push consumer works with."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from roquet.client._cluster.broker_calls import BrokerCalls
    from roquet.client._cluster.session import Session
    from roquet.client._consuming.give_back import GiveBack, TryHere
    from roquet.client._queues.balancer import Balancer
    from roquet.client._queues.offsets import Offsets


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Helpers:
    """What a consumer works with; made by `MQ.consumer`."""

    session: Session
    calls: BrokerCalls
    offsets: Offsets
    balancer: Balancer
    give_back: GiveBack | TryHere
