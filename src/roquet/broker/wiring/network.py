"""The ports of the broker, and what it says to name servers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from roquet.broker.metrics.answers import Answers
from roquet.broker.metrics.watch import Watch
from roquet.broker.network.body_limits import body_max
from roquet.broker.network.name_server_scan import NameServerScan
from roquet.broker.network.ports import Listeners
from roquet.broker.network.registration import Registration
from roquet.broker.remoting.refusals import translated
from roquet.broker.wiring.security import make_guard
from roquet.remoting.connections.limits import ConnectionConfig
from roquet.remoting.router import Ports, Router
from roquet.remoting.server import Server, ServerConfig
from roquet.service.exporting.config import DISABLE, LOG, OTLP
from roquet.service.exporting.logged import MetricsLog
from roquet.service.exporting.otlp import OtlpPusher
from roquet.service.http.address_server import EVERY_S, FIRST_S, AddressLookup
from roquet.service.http.health import HealthEndpoint
from roquet.service.lifecycle import Part, Timer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from roquet.broker.wiring.base import Base
    from roquet.remoting.client import Client
    from roquet.remoting.connections.fast_ingest import FastPath
    from roquet.remoting.router import Peer, Route


def make_routers(base: Base, routes: Sequence[Route]) -> tuple[Router, Router]:
    """Make the tables of both ports: each looks at a request's account before anything else."""
    guard = make_guard(base)

    def router(port: Ports) -> Router:
        return Router(
            routes,
            None,
            base.lanes,
            base.clock,
            port,
            guard=guard,
            body_max=body_max,
            translate=translated,
        )

    return router(Ports.MAIN), router(Ports.FAST)


def make_answers(base: Base) -> Answers | None:
    """Make what counts how long answers took."""
    # Nobody asks for figures without the exporter, and then they cost nothing.
    exported = base.config.server.metrics != DISABLE
    return Answers(base.metrics, base.clock) if exported else None


def make_listeners(
    base: Base,
    routers: tuple[Router, Router],
    path: FastPath,
    on_close: Sequence[Callable[[Peer], None]],
    answers: Answers | None,
) -> Listeners:
    """Make the two ports: the ordinary one and the fast one, two below it."""
    rules = base.config.server
    host = rules.bind_address or "127.0.0.1"
    high, low = base.config.write_buffer.marks
    limits = ServerConfig(
        idle_s=rules.idle_s,
        accepts_per_second_max=rules.accepts_max,
        high_water=high,
        low_water=low,
    )
    path.connections.bounds = ConnectionConfig(high_water=high, low_water=low)
    on_answer = None if answers is None else answers.answered

    def closed(peer: Peer) -> None:
        for tell in on_close:
            tell(peer)

    main = Server(
        host=host,
        port=rules.port,
        router=routers[0],
        clock=base.clock,
        config=limits,
        on_close=closed,
        ingest=path.port(pulls=True),
        native=path.on_threads(pulls=True),
        tls=base.tls,
        on_answer=on_answer,
        waits=base.waits,
    )
    fast = Server(
        host=host,
        port=max(rules.port - 2, 0),
        router=routers[1],
        clock=base.clock,
        config=limits,
        on_close=closed,
        ingest=path.port(pulls=False),
        native=path.on_threads(pulls=False),
        tls=base.tls,
        on_answer=on_answer,
        waits=base.waits,
    )
    return Listeners(main, fast, base.identity, path)


def make_address_lookup(base: Base, registration: Registration) -> list[Part]:
    """Make what looks name servers up, when none is configured and that is wanted."""
    rules = base.config.address_server
    if not rules.enabled or base.config.registration.name_servers:
        return []
    lookup = AddressLookup(rules.url, registration.use, base.clock)
    timer = Timer("look up name servers", lookup.look, EVERY_S, FIRST_S)
    return [Part("address_server", lookup, timers=(timer,))]


def watch_part(base: Base) -> Part:
    """Make what looks at lanes, dispatch and slow groups."""
    tables = base.metadata
    watch = Watch(
        rules=base.config.slow_groups,
        lanes=base.lanes,
        store=base.store,
        groups=tables.groups,
        offsets=tables.offsets,
        registry=base.registry,
    )
    base.settings.listen(lambda new, _: watch.follow(new.slow_groups))
    return Part("watch", watch, needs=("store", "lanes"), timers=watch.timers)


def exporter_parts(base: Base) -> list[Part]:
    """Make what pushes metrics to a collector, or logs them, when that is wanted."""
    rules, kind = base.config.exporter, base.config.server.metrics
    if kind == OTLP:
        pusher = OtlpPusher(base.metrics, rules, "rocketmq-broker", base.clock)
        return [Part("metrics_pusher", pusher, timers=pusher.timers)]
    if kind == LOG:
        written = MetricsLog(base.metrics, rules)
        return [Part("metrics_log", written, timers=written.timers)]
    return []


def make_endpoint(base: Base) -> Part:
    """Make the HTTP endpoint of metrics and health."""
    endpoint = HealthEndpoint(
        host=base.config.exporter.prom_host or base.config.server.bind_address or "127.0.0.1",
        port=base.config.server.metrics_port,
        health=base.health,
        metrics=base.metrics,
    )
    return Part("health", endpoint)


def make_registration(
    base: Base, client: Client, on_master: Callable[[str | None, str | None], None] | None
) -> Registration:
    """Make what tells the name servers of this broker."""

    def result(why_not: str | None) -> None:
        if why_not is None:
            base.health.ready("registered")
        else:
            base.health.not_ready("registered", why_not)

    config = base.config
    scan = NameServerScan(client, config.outgoing.connect_ms / 1000)
    registration = Registration(
        caller=client,
        identity=base.identity,
        topics=base.metadata.topics,
        state=base.state,
        rules=config.registration,
        clock=base.clock,
        on_result=result,
        on_master=on_master,
        scan=scan if config.registration.scans else None,
    )
    base.metadata.topics.listen(registration.topics_changed)
    base.settings.listen(lambda new, _: registration.follow(new.registration))
    return registration
