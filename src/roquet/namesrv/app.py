"""The name server put together: which parts there are, in what order, with which timers."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

from roquet.namesrv.checks import body_max
from roquet.namesrv.departures.memory import EVERY_S, Memory, file_name
from roquet.namesrv.kv import KeyValues
from roquet.namesrv.notices import MinimumNotices
from roquet.namesrv.operations import KeyValueRequests, TopicRequests
from roquet.namesrv.queries import Queries
from roquet.namesrv.registration import Registrations
from roquet.namesrv.security import make_security
from roquet.namesrv.table import RouteTable
from roquet.remoting.client import Client, ClientConfig
from roquet.remoting.router import Router
from roquet.remoting.server import Server, ServerConfig
from roquet.service.http.health import Health, HealthEndpoint
from roquet.service.lanes import LaneConfig, Lanes
from roquet.service.lifecycle import App, Part, Timer
from roquet.service.metrics import Metrics

if TYPE_CHECKING:
    from collections.abc import Callable

    from roquet.base.clock import Clock
    from roquet.namesrv.config import NamesrvConfig, Settings
    from roquet.protocol.command import Command

FIRST_SCAN_S = 5.0


@dataclasses.dataclass(frozen=True, slots=True)
class NameServer:
    """A name server that is built but not started: enter `app` to run it."""

    app: App
    server: Server
    table: RouteTable
    router: Router
    health: HealthEndpoint | None


def lane_configs(config: NamesrvConfig) -> list[LaneConfig]:
    """Return the lanes of route queries and of everything else."""
    return [
        LaneConfig("client", config.client_request_concurrency, config.client_request_queue_max),
        LaneConfig("default", config.default_concurrency, config.default_queue_max),
    ]


def build(settings: Settings, clock: Clock) -> NameServer:
    """Wire a name server. Nothing is opened or read before the app is entered."""
    config = settings.now
    lanes = Lanes(lane_configs(config), clock)
    table = RouteTable(drop_absent_topics=config.delete_topic_with_broker_registration)
    settings.listen(
        lambda now: table.follow(drop_absent_topics=now.delete_topic_with_broker_registration)
    )
    values = KeyValues(Path(config.kv_config_path).expanduser())
    key_values = KeyValueRequests(values)
    security = make_security(config, clock)
    notices = MinimumNotices(settings, make_client(config, clock, security.sign))
    registrations = Registrations(table, settings, values, clock, notices)
    routes = [
        *Queries(table, settings, values, clock).routes(),
        *registrations.routes(),
        *key_values.routes(),
        *TopicRequests(table).routes(),
        *settings.routes(),
        *security.routes,
    ]
    router = Router(routes, None, lanes, clock, guard=security.check, body_max=body_max)
    tls = security.tls
    high, low = config.write_buffer.marks
    server = Server(
        host=config.host,
        port=config.listen_port,
        router=router,
        clock=clock,
        config=ServerConfig(idle_s=config.idle_s, high_water=high, low_water=low),
        on_close=registrations.on_close,
        tls=tls,
    )
    scan = Timer(
        "forget silent brokers", registrations.scan, config.scan_interval_ms / 1000, FIRST_SCAN_S
    )
    report = Timer("report key values", key_values.report, every_s=600, first_after_s=60)
    kept = Path(config.kv_config_path).expanduser().with_name(file_name(config.listen_port))
    memory = Memory(kept, table, lambda: settings.now.departed_keep_ms, clock)
    remember = Timer("remember brokers", memory.look, EVERY_S, EVERY_S)
    parts = [
        *security.parts,
        Part("key_values", key_values, timers=(report,)),
        Part("memory", memory, timers=(remember,)),
        Part("lanes", lanes),
        Part("notices", notices),
        Part("routes", registrations, needs=("key_values", "memory", "notices"), timers=(scan,)),
        Part("server", server, needs=("lanes", "routes")),
    ]
    health = None
    if config.metrics == "PROM":
        health = _health(config, table, server, lanes)
        parts.append(Part("health", health, needs=("server",)))
    return NameServer(App(parts, clock), server, table, router, health)


def make_client(
    config: NamesrvConfig, clock: Clock, sign: Callable[[Command], Command] | None
) -> Client:
    """Make the client by which the name server tells brokers something."""
    outgoing = ClientConfig.of(config.outgoing, config.write_buffer)
    return Client(clock=clock, config=outgoing, sign=sign)


def _health(
    config: NamesrvConfig, table: RouteTable, server: Server, lanes: Lanes
) -> HealthEndpoint:
    """Show the numbers; whoever can ask finds the name server ready: it starts last."""
    metrics = Metrics()
    metrics.watch_lanes(lanes)
    for name, text, read in (
        ("connections", "Open connections", lambda: server.connections),
        ("brokers", "Broker processes that are alive", lambda: len(table.live)),
        ("topics", "Topics with a route", lambda: len(table.topics)),
    ):
        metrics.watch(name, text, read)
    return HealthEndpoint(
        host=config.host, port=config.metrics_port, health=Health(), metrics=metrics
    )
