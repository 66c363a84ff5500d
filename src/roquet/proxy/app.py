"""The front put together: before a broker of the same process, or before a cluster."""

from __future__ import annotations

import dataclasses
import os
from typing import TYPE_CHECKING

from roquet.client.fronts import FrontClient
from roquet.proxy.brokers.local import LocalBrokers
from roquet.proxy.cluster.brokers import ClusterBrokers
from roquet.proxy.cluster.calls import BROKERS, Calls
from roquet.proxy.cluster.directory import Directory
from roquet.proxy.cluster.forwarding import LATE_S, ForwardedCalls
from roquet.proxy.cluster.guard import Gate
from roquet.proxy.cluster.lights import ClusterLights, Members
from roquet.proxy.cluster.transactions import Producers
from roquet.proxy.cluster.users import ClusterUsers
from roquet.proxy.fast import FastCalls
from roquet.proxy.front import Front
from roquet.proxy.tls import GrpcPortTls, config_of
from roquet.proxy.transport import GrpcPort
from roquet.remoting.client import ClientConfig
from roquet.remoting.tls import TlsConfig, environment_options
from roquet.service.http.health import Health, HealthEndpoint
from roquet.service.lifecycle import App, Part, Timer
from roquet.service.metrics import Metrics

if TYPE_CHECKING:
    import random

    from roquet.acl.credentials import Credentials
    from roquet.acl.rights import RequestGuard
    from roquet.base.clock import Clock
    from roquet.broker.operations.local import LocalBroker
    from roquet.proxy.brokers.api import Brokers
    from roquet.proxy.cluster.config import ClusterConfig
    from roquet.proxy.groups.own import OwnMembers
    from roquet.proxy.rules.limits import ProxyLimits
    from roquet.proxy.services.clients import Session
    from roquet.proxy.transport import PlainCalls

SWEEP_S = 5.0
LOOK_S = 10.0


@dataclasses.dataclass(frozen=True, slots=True)
class Proxy:
    """A front that is built but not started: enter `app` while the brokers run."""

    app: App
    port: GrpcPort
    front: Front
    guard: RequestGuard | None
    """Knows whose signature is good; None where nobody needs an account."""
    metrics: Metrics
    health: HealthEndpoint | None = None
    """The page of figures, where there is one of its own."""


def build_local(
    broker: LocalBroker, host: str, rules: ProxyLimits, tls: TlsConfig | None = None
) -> Proxy:
    """Wire the front of a broker; `tls` is the process's.

    Raises UsageError without the message definitions, or for TLS that cannot be.
    """
    fast = (
        None
        if broker.fast is None
        else FastCalls(broker.fast, broker.identity.name, rules, broker.clock)
    )
    local = LocalBrokers(broker, fast)
    proxy = _built(local, host, rules, tls or TlsConfig(), [], fast=fast)
    if fast is not None:
        fast.settles = proxy.front.settles
    return proxy


def build_cluster(
    config: ClusterConfig,
    host: str,
    rules: ProxyLimits,
    clock: Clock,
    rng: random.Random,
    *,
    account: Credentials | None = None,
    health_port: int | None = None,
    groups: OwnMembers | None = None,
) -> Proxy:
    """Wire the front of a cluster; connections to it have the TLS that the environment says.

    With an account, which signs what the proxy asks brokers and name servers, clients have to be
    users of the brokers and are judged by the policies there; without one nobody is checked. On
    `health_port` of the same address it serves /livez, /readyz and /metrics. `groups` hear of
    clients in groups.

    Raises UsageError for name servers that are none, without the message definitions, or for TLS
    that cannot be.
    """
    producers, members = Producers(), Members()
    tls = environment_options(os.environ)
    client = FrontClient(
        config.name_servers,
        clock,
        rng,
        producers.asked,
        members.lost,
        tls=tls,
        credentials=account,
        config=ClientConfig.of(config.outgoing, config.write_buffer),
    )
    users = None if account is None else ClusterUsers(client, clock, config.users_expire_s)
    gate = Gate(users)
    producers.use(client, gate)
    health = Health((BROKERS,))
    calls = Calls(client, health)
    directory = Directory(client, calls, config)
    light = ClusterLights(calls, directory, gate, members)
    known = calls, directory, producers, gate, light
    brokers = ClusterBrokers(*known, clock=clock, metrics=Metrics())
    look = Timer("look for brokers", calls.look, LOOK_S, 0.0)
    # What is forwarded is not signed, and nobody is asked whether a client may.
    forwarded = ForwardedCalls(client, calls, rules, clock) if account is None else None
    service = _Connections(client, producers, light)
    connections = Part("connections to brokers", service)
    before = [connections]
    if users is not None:
        needs = (connections.name,)
        before.append(Part("users of the cluster", users, needs=needs, timers=users.timers))
    if forwarded is not None:
        directory.listen(forwarded.learn)
        late = Timer("end late calls", forwarded.end_late, LATE_S, LATE_S)
        needs = (connections.name,)
        before.append(Part("plain calls", forwarded, needs=needs, timers=(late,)))
    if health_port is not None:
        served = HealthEndpoint(host=host, port=health_port, health=health, metrics=brokers.metrics)
        before.append(Part("health", served))
        proxy = _built(
            *(brokers, host, rules, TlsConfig(), before), fast=forwarded, health=served, look=look
        )
    else:
        proxy = _built(brokers, host, rules, TlsConfig(), before, fast=forwarded, look=look)
    if forwarded is not None:
        forwarded.use(proxy.front, proxy.port)
    if groups is not None:
        proxy.front.sessions.listen_groups(groups.grpc_registered)
        proxy.front.sessions.listen(groups.grpc_left)
    return proxy


class _Connections:
    """The client of the cluster, and what brokers are told by it without a call of a client."""

    def __init__(self, client: FrontClient, producers: Producers, light: ClusterLights) -> None:
        self._client = client
        self._light = light
        self._producers = producers

    async def start(self) -> None:
        await self._client.start()

    async def stop(self) -> None:
        await self._light.stop()
        await self._producers.stop()
        await self._client.stop()


def _built(
    brokers: Brokers,
    host: str,
    rules: ProxyLimits,
    tls: TlsConfig,
    before: list[Part],
    *,
    fast: PlainCalls | None = None,
    health: HealthEndpoint | None = None,
    look: Timer | None = None,
) -> Proxy:
    """`look` runs once there is the port: that brokers are away is no reason why there is none."""
    front, clock = Front(brokers, rules), brokers.clock
    port_tls = GrpcPortTls(config_of(rules, tls), clock, "the certificate of gRPC")
    port = GrpcPort(front, host, rules, port_tls, clock, fast=fast)

    def gone(session: Session) -> None:
        _ = port.run(front.renewals.drop(session))

    front.sessions.listen(gone)
    metrics = brokers.metrics
    metrics.watch("grpc_connections", "Connections of gRPC", lambda: float(port.counts[0]))
    metrics.watch("grpc_calls", "Calls of gRPC under way", lambda: float(port.counts[1]))
    metrics.watch("grpc_clients", "Clients of gRPC", lambda: float(len(front.sessions)))
    renewed = "Messages that are kept invisible for push consumers"
    metrics.watch("grpc_renewed", renewed, lambda: float(len(front.renewals)))
    renew_s, watch_s = rules.renew_every_ms / 1000, rules.tls_watch_ms / 1000
    parts = [
        *before,
        Part("tls of grpc", port_tls),
        Part(
            "grpc",
            port,
            needs=("tls of grpc", *(part.name for part in before)),
            timers=(
                Timer("reload the certificate of gRPC", port.reload_tls, watch_s, watch_s),
                Timer("forget silent clients", front.sessions.sweep, SWEEP_S, SWEEP_S),
                Timer("renew invisible times", front.renewals.round, renew_s, renew_s),
                *(() if look is None else (look,)),
            ),
        ),
    ]
    return Proxy(App(parts, clock), port, front, brokers.guard, metrics, health)
