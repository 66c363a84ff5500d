"""Plain calls that the broker of the same process answers without the front.

What is plain is what `services/produce.py` and `services/consume.py` would take without a refusal:
the core reads the request and passes it to the broker's fast path, and leaves everything else to
the front. Sends and acknowledgements never reach that; of a receive it asks all the questions, and
the core gives, shows and packs the messages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from roquet._native import GrpcSends
from roquet.model.message import ATTEMPTS_MAX
from roquet.model.subscription import ExpressionType
from roquet.protocol import properties as props
from roquet.proxy.brokers.api import Packed
from roquet.proxy.rules.context import CLIENT_ID, CLIENT_ID_LENGTH_MAX
from roquet.proxy.rules.methods import SERVICE
from roquet.proxy.rules.plain import consumers
from roquet.remoting.connections.popped import PopHere

if TYPE_CHECKING:
    from collections.abc import Callable

    from roquet._native import GrpcServer
    from roquet.base.clock import Clock
    from roquet.broker.api.pop import PopRequest
    from roquet.broker.operations.local import FastBroker
    from roquet.model.subscription import SubscriptionData
    from roquet.proxy.rules.limits import ProxyLimits
    from roquet.remoting.connections.fast_ingest import Rows
    from roquet.remoting.connections.popped import Given, Wish

_ACK = f"/{SERVICE}/AckMessage"


class FastCalls:
    """Answers plain calls of one port."""

    def __init__(self, broker: FastBroker, name: str, rules: ProxyLimits, clock: Clock) -> None:
        """`name` is the broker's."""
        self._broker = broker
        self._clock = clock
        self.settles: Callable[[str], bool] = _nobody
        """Tells whether acknowledgements of a client end nothing but the flight of messages."""
        self._sends = GrpcSends(
            body=rules.message_max,
            properties=rules.properties_max,
            property_bytes=rules.property_bytes_max,
            group=rules.group_bytes_max,
            checks_type=rules.check_type,
            reserved=set(props.RESERVED),
        )
        self._consumers = consumers(name)

    def take(self, server: GrpcServer) -> list[tuple[Any, ...]]:
        """Take the news of a server, but for the calls that are answered by that."""
        ingest: Any = self._broker.fresh()
        if ingest is None:
            return server.take()
        now_ms = self._clock.now_ms()
        news = self._sends.take(server, ingest, now_ms)
        return [one for one in news if not self._acknowledged(server, ingest, one, now_ms)]

    def _acknowledged(
        self, server: GrpcServer, ingest: Rows, one: tuple[Any, ...], now_ms: int
    ) -> bool:
        """Answer a call that acknowledges messages, if it is plain."""
        if one[0] != "call" or one[3] != _ACK:
            return False
        _, call, _, _, remote, _, _, metadata, data = one
        client_id = dict(metadata).get(CLIENT_ID, "")
        if data is None or not client_id.strip() or len(client_id) > CLIENT_ID_LENGTH_MAX:
            return False
        if not self.settles(client_id) or server.is_slow(call):
            return False
        answer = self._consumers.acknowledge(ingest, remote, data, now_ms)
        if answer is None:
            return False
        server.send(call, answer)
        server.finish(call, 0, "")
        return True

    def pack(self, wanted: PopRequest, takes: SubscriptionData, attempts_max: int) -> Packed | None:
        """Return the whole answer to a receive; None when an operation has to look."""
        if wanted.is_ordered or takes.expression_type != ExpressionType.TAG:
            return None
        named: list[tuple[str, str]] = []

        def give(wish: Wish, rows: Rows) -> Given | None:
            most = min(attempts_max, ATTEMPTS_MAX)
            found = self._consumers.give(rows, wish, sorted(takes.tags), most)
            if found is None:
                return None
            named.extend(found[1])
            return found[0]

        pop = PopHere(
            opaque=0,
            topic=wanted.topic,
            group=wanted.group,
            queue_id=wanted.queue_id,
            messages=wanted.max_messages,
            invisible_ms=wanted.invisible_ms,
            poll_ms=wanted.poll_ms,
            # One that has waited is as good as new: how long it may wait is judged by the front.
            born_ms=0,
            expression=wanted.expression or "",
            frame=b"",
        )
        parts = self._broker.pop(pop, give)
        return None if parts is None else Packed(parts, named)


def _nobody(client_id: str) -> bool:
    """Leave all acknowledgements to the front, as long as nobody has said who settles plainly."""
    del client_id
    return False
