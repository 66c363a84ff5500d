"""Plain sends that the broker of the same process stores without a call of the front.

What is plain is what `services/produce.py` would take without a refusal: the core reads the request
and passes it to the broker's fast path, and leaves everything else to the front.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from roquet._native import GrpcSends
from roquet.protocol import properties as props

if TYPE_CHECKING:
    from roquet._native import GrpcServer
    from roquet.base.clock import Clock
    from roquet.broker.operations.local import FastSends
    from roquet.proxy.rules.limits import ProxyLimits


class FastCalls:
    """Answers plain sends of one port."""

    def __init__(self, broker: FastSends, rules: ProxyLimits, clock: Clock) -> None:
        self._broker = broker
        self._clock = clock
        self._sends = GrpcSends(
            body=rules.message_max,
            properties=rules.properties_max,
            property_bytes=rules.property_bytes_max,
            group=rules.group_bytes_max,
            checks_type=rules.check_type,
            reserved=set(props.RESERVED),
        )

    def take(self, server: GrpcServer) -> list[tuple[Any, ...]]:
        """Take the news of a server, but for the sends that are answered by that."""
        ingest: Any = self._broker.fresh()
        if ingest is None:
            return server.take()
        return self._sends.take(server, ingest, self._clock.now_ms())
