"""The front put together: before a broker of the same process."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from roquet.proxy.brokers.local import LocalBrokers
from roquet.proxy.front import Front
from roquet.proxy.tls import GrpcPortTls, config_of
from roquet.proxy.transport import GrpcPort
from roquet.remoting.tls import TlsConfig
from roquet.service.lifecycle import App, Part, Timer

if TYPE_CHECKING:
    from roquet.broker.operations.local import LocalBroker
    from roquet.proxy.rules.limits import ProxyLimits
    from roquet.proxy.services.clients import Session

SWEEP_S = 5.0


@dataclasses.dataclass(frozen=True, slots=True)
class LocalProxy:
    """A front that is built but not started: enter `app` while the broker runs."""

    app: App
    port: GrpcPort
    front: Front


def build_local(
    broker: LocalBroker, host: str, rules: ProxyLimits, tls: TlsConfig | None = None
) -> LocalProxy:
    """Wire the front of a broker; `tls` is the process's.

    Raises UsageError without the message definitions, or for TLS that cannot be.
    """
    front = Front(LocalBrokers(broker), rules)
    port_tls = GrpcPortTls(
        config_of(rules, tls or TlsConfig()), broker.clock, "the certificate of gRPC"
    )
    port = GrpcPort(front, host, rules, port_tls, broker.clock)

    def gone(session: Session) -> None:
        _ = port.run(front.renewals.drop(session))

    front.sessions.listen(gone)
    metrics = broker.metrics
    metrics.watch("grpc_connections", "Connections of gRPC", lambda: float(port.counts[0]))
    metrics.watch("grpc_calls", "Calls of gRPC under way", lambda: float(port.counts[1]))
    metrics.watch("grpc_clients", "Clients of gRPC", lambda: float(len(front.sessions)))
    renewed = "Messages that are kept invisible for push consumers"
    metrics.watch("grpc_renewed", renewed, lambda: float(len(front.renewals)))
    renew_s, watch_s = rules.renew_every_ms / 1000, rules.tls_watch_ms / 1000
    parts = [
        Part("tls of grpc", port_tls),
        Part(
            "grpc",
            port,
            needs=("tls of grpc",),
            timers=(
                Timer("reload the certificate of gRPC", port.reload_tls, watch_s, watch_s),
                Timer("forget silent clients", front.sessions.sweep, SWEEP_S, SWEEP_S),
                Timer("renew invisible times", front.renewals.round, renew_s, renew_s),
            ),
        ),
    ]
    return LocalProxy(App(parts, broker.clock), port, front)
