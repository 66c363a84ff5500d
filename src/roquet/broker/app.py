"""The broker put together: which parts there are, in what order, with which timers.

`build` wires and starts nothing; entering the App starts the parts from top to bottom, leaving it
stops them from bottom to top: the name servers forget the broker first, then its ports close, the
requests in hand are finished, the store is flushed and closed, and the tables are saved.
"""

from __future__ import annotations

import dataclasses
import logging
import os
import random
from typing import TYPE_CHECKING

from roquet.base.clock import SystemClock
from roquet.base.errors import RoquetError
from roquet.broker.admission import Admission, FastIngest, Rules
from roquet.broker.appender import Appender
from roquet.broker.boot import boot_lines
from roquet.broker.checks import SendChecks
from roquet.broker.days import Days
from roquet.broker.fast_fail import FastFail
from roquet.broker.holds import Holds
from roquet.broker.lanes import lane_configs
from roquet.broker.locks import QueueLocks
from roquet.broker.metadata import Metadata
from roquet.broker.notices import GroupNotices
from roquet.broker.peers import Registration
from roquet.broker.ports import Listeners
from roquet.broker.processors.admin.brokers import BrokerAdmin, LiveSettings
from roquet.broker.processors.admin.clients import ClientAdmin
from roquet.broker.processors.admin.groups import GroupAdmin
from roquet.broker.processors.admin.messages import QueueAdmin
from roquet.broker.processors.admin.offsets import OffsetAdmin
from roquet.broker.processors.admin.progress import ProgressAdmin
from roquet.broker.processors.admin.runtime import Paths, RuntimeInfo
from roquet.broker.processors.admin.topics import TopicAdmin
from roquet.broker.processors.admin.upkeep import UpkeepAdmin
from roquet.broker.processors.clients import ClientRules, Clients
from roquet.broker.processors.consumers import Consumers
from roquet.broker.processors.lock import Lock
from roquet.broker.processors.offsets import OffsetProcessor
from roquet.broker.processors.pull import PullChecks, PullProcessor
from roquet.broker.processors.query import QueryProcessor
from roquet.broker.processors.send import Retries, SendProcessor, Stamps
from roquet.broker.processors.send_back import SendBack
from roquet.broker.registry import Registry
from roquet.broker.routes import Routed, all_routes
from roquet.broker.schedule import DelayLevels, DelaySchedule
from roquet.broker.state import BrokerState, Identity
from roquet.broker.stats import BrokerStats
from roquet.protocol.command import VERSION
from roquet.protocol.message_id import UniqueIds
from roquet.remoting.client import Client
from roquet.remoting.codec import FRAME_SIZE_MAX
from roquet.remoting.fast_ingest import FastPath
from roquet.remoting.router import Peer, Ports, Route, Router
from roquet.remoting.server import Server, ServerConfig
from roquet.service import runtime
from roquet.service.health import Health, HealthEndpoint
from roquet.service.lanes import Lanes
from roquet.service.lifecycle import App, Part, Role, Timer
from roquet.service.metrics import LoopLag, Metrics
from roquet.store.cleaning import Cleaner
from roquet.store.files import JsonFile
from roquet.store.groups import GroupTable
from roquet.store.offsets import OffsetTable
from roquet.store.store import MessageStore
from roquet.store.topics import TopicTable

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Collection, Sequence

    from roquet.base.clock import Clock
    from roquet.broker.config import BrokerConfig

log = logging.getLogger(__name__)

START_FAILED = -3


@dataclasses.dataclass(frozen=True, slots=True)
class Broker:
    """A broker that is built but not started: enter `app` to run it."""

    app: App
    identity: Identity
    listeners: Listeners
    router: Router
    routes: Sequence[Route]
    store: MessageStore
    metadata: Metadata
    health: Health
    path: FastPath


@dataclasses.dataclass(frozen=True, slots=True)
class _Base:
    """What most parts are made of; only this module sees it whole."""

    config: BrokerConfig
    clock: Clock
    rng: random.Random
    identity: Identity
    state: BrokerState
    metadata: Metadata
    store: MessageStore
    lanes: Lanes
    registry: Registry
    locks: QueueLocks
    holds: Holds
    stats: BrokerStats
    metrics: Metrics
    health: Health
    lag: LoopLag


def build(
    config: BrokerConfig, clock: Clock | None = None, rng: random.Random | None = None
) -> Broker:
    """Wire a broker. Nothing is opened or read before the app is entered."""
    base = _base(config, clock or SystemClock(), rng or random.Random())  # noqa: S311
    delays = DelayLevels(config.store.delay_levels)
    schedule = DelaySchedule(
        delays,
        base.store,
        JsonFile(config.store.config_folder / "delayOffset.json"),
        base.clock,
        config.store.offsets_interval_ms / 1000,
    )
    clients = _clients(base)
    lock = Lock(base.locks, base.clock)
    appender = Appender(base.store, delays, base.state)
    fast_fail = FastFail(
        rules=config.fast_fail,
        appends=base.store,
        lag=base.lag,
        lanes=base.lanes,
        state=base.state,
    )
    processors: list[Routed] = [
        _send(base, appender, fast_fail),
        _pull(base),
        OffsetProcessor(
            base.metadata.topics, base.metadata.groups, base.metadata.offsets, base.store
        ),
        QueryProcessor(base.store, config.store.query_max),
        clients,
        Consumers(base.registry),
        lock,
        SendBack(
            appender,
            base.store,
            base.metadata.topics,
            base.metadata.groups,
            identity=base.identity,
            state=base.state,
        ),
        *_administration(base, schedule),
    ]
    routes = all_routes(processors)
    router = Router(routes, None, base.lanes, base.clock, Ports.MAIN)
    fast_router = Router(routes, None, base.lanes, base.clock, Ports.FAST)
    admission = _admission(base, fast_fail)
    path = FastPath(admission, base.clock)
    listeners = _listeners(
        base, (router, fast_router), path, [base.holds.drop_peer, clients.peer_closed]
    )
    path.deliver_by(listeners.write)
    fast = FastIngest(path, admission, base.store, FRAME_SIZE_MAX)
    base.store.on_arrival(base.holds.arrived)
    parts = _parts(base, schedule, clients, fast_fail, (fast, listeners), lock=lock)
    app = App(parts, base.clock)
    seen = (base.store, base.metadata, base.health, path)
    return Broker(app, base.identity, listeners, router, routes, *seen)


def explain(config: BrokerConfig) -> str:
    """Return the parts in order and the request codes: what `--explain` prints."""
    broker = build(config)
    return f"{broker.app.explain()}\n\n{broker.router.explain()}"


async def serve(
    config: BrokerConfig, stop: asyncio.Event, say: Callable[[str], None] = print
) -> int:
    """Run a broker until `stop` is set; return the exit code of the process."""
    broker = build(config)
    try:
        await broker.app.__aenter__()
    except (RoquetError, OSError) as error:
        say(f"the broker cannot start: {error}")
        return START_FAILED
    try:
        runtime.settle()
        for line in boot_lines(config, broker.identity, broker.listeners):
            say(line)
        await stop.wait()
    finally:
        await broker.app.__aexit__()
    return 0


def _base(config: BrokerConfig, clock: Clock, rng: random.Random) -> _Base:
    rules = config.identity
    folder = config.store.config_folder
    metrics = Metrics()
    lanes = Lanes(lane_configs(config.server), clock)
    metrics.watch_lanes(lanes)
    stats = BrokerStats(rules.cluster, clock, Days(clock, JsonFile(folder / "brokerStats.json")))
    stats.watch(metrics)
    holds = Holds(clock, rng, config.server.holds_max)
    metrics.watch("held_pulls", "Pulls that wait for a message", lambda: float(len(holds)))
    return _Base(
        config=config,
        clock=clock,
        rng=rng,
        identity=Identity(
            cluster=rules.cluster,
            name=rules.name,
            broker_id=rules.broker_id,
            ip=rules.ip1 or "127.0.0.1",
            ha_ip=rules.ip2 or rules.ip1 or "127.0.0.1",
            port=config.server.port,
            ha_port=config.server.ha_port,
        ),
        state=BrokerState(
            permission=rules.permission,
            accept_sends_from_ms=rules.accept_sends_from_ms,
            lacks_slave=rules.lacks_slave,
        ),
        metadata=Metadata(
            TopicTable(JsonFile(folder / "topics.json"), config.topics, clock),
            GroupTable(JsonFile(folder / "subscriptionGroup.json"), config.groups, clock),
            OffsetTable(JsonFile(folder / "consumerOffset.json"), clock),
        ),
        store=MessageStore(config.store.native(), config.store),
        lanes=lanes,
        registry=Registry(config.clients.expire_ms),
        locks=QueueLocks(),
        holds=holds,
        stats=stats,
        metrics=metrics,
        health=Health(("registered",)),
        lag=LoopLag(metrics),
    )


def _stamps(base: _Base) -> Stamps:
    identity = base.identity
    unique_ids = UniqueIds(identity.store_host[:-4], os.getpid(), base.rng.getrandbits(32))
    return Stamps(identity, base.config.send, unique_ids, base.clock)


def _admission(base: _Base, fast_fail: FastFail) -> Admission:
    config = base.config
    return Admission(
        metadata=base.metadata,
        registry=base.registry,
        state=base.state,
        gate=fast_fail,
        traffic=base.stats,
        rules=Rules(config.server.fast_path, _stamps(base), config.pull, config.store),
    )


def _send(base: _Base, appender: Appender, gate: FastFail) -> SendProcessor:
    return SendProcessor(
        gate=gate,
        checks=SendChecks(base.metadata.topics, base.state, base.identity, base.clock),
        retries=Retries(base.metadata.groups, base.locks, base.clock),
        stamps=_stamps(base),
        appender=appender,
        traffic=base.stats,
        queues=base.rng,
    )


def _clients(base: _Base) -> Clients:
    rules = base.config.clients
    notices = GroupNotices(
        base.registry, base.metadata.groups, enabled=rules.notify, at_once=rules.notify_at_once
    )
    return Clients(
        base.registry,
        notices,
        base.metadata.groups,
        base.metadata.topics,
        base.clock,
        rules=ClientRules(reject_pull_consumers=base.config.pull.reject_pull_consumers),
    )


def _pull(base: _Base) -> PullProcessor:
    tables = base.metadata
    return PullProcessor(
        checks=PullChecks(
            tables.topics, tables.groups, base.registry, base.state, base.config.pull
        ),
        store=base.store,
        offsets=tables.offsets,
        holds=base.holds,
        traffic=base.stats,
        rules=base.config.pull,
    )


def _administration(base: _Base, schedule: DelaySchedule) -> list[Routed]:
    """Wire what tools ask for and change."""
    tables, store, config = base.metadata, base.store, base.config
    topics, groups, offsets = tables.topics, tables.groups, tables.offsets
    runtime_info = RuntimeInfo(
        store,
        base.stats,
        base.lanes,
        paths=Paths(config.store.folder / "commitlog", config.store.folder / "consumequeue"),
        state=base.state,
        clock=base.clock,
        version=VERSION,
        delays=schedule,
    )
    settings = LiveSettings(config, config.file)
    settings.listen(lambda new, changed: _apply(base, new, changed))
    identity = base.identity
    return [
        TopicAdmin(topics, offsets, store, base.stats),
        GroupAdmin(groups, offsets, base.stats),
        ProgressAdmin(
            topics, offsets, base.registry, store, base.stats, identity=identity, clock=base.clock
        ),
        ClientAdmin(base.registry, topics, groups, store, identity),
        OffsetAdmin(
            topics,
            groups,
            offsets,
            base.registry,
            store,
            identity=identity,
            state=base.state,
            delay_offsets=schedule.export,
        ),
        BrokerAdmin(settings, topics, runtime_info),
        QueueAdmin(topics, base.registry, store),
        UpkeepAdmin(topics, store, base.clock, keep_hours=config.store.reserved_hours),
    ]


def _apply(base: _Base, config: BrokerConfig, changed: Collection[str]) -> None:
    """Let settings that changed while running take effect."""
    base.state.permission = config.identity.permission
    base.state.accept_sends_from_ms = config.identity.accept_sends_from_ms
    base.metadata.topics.follow(config.topics)
    base.metadata.groups.follow(config.groups)
    base.lanes.follow(lane_configs(config.server))
    if "brokerPermission" in changed:
        # The permission is part of what the name servers know of each topic.
        base.metadata.topics.touch()


def _listeners(
    base: _Base,
    routers: tuple[Router, Router],
    path: FastPath,
    on_close: Sequence[Callable[[Peer], None]],
) -> Listeners:
    rules = base.config.server
    host = rules.bind_address or "127.0.0.1"
    limits = ServerConfig(idle_s=rules.idle_s)

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
    )
    fast = Server(
        host=host,
        port=max(rules.port - 2, 0),
        router=routers[1],
        clock=base.clock,
        config=limits,
        on_close=closed,
        ingest=path.port(pulls=False),
    )
    return Listeners(main, fast, base.identity)


def _parts(
    base: _Base,
    schedule: DelaySchedule,
    clients: Clients,
    fast_fail: FastFail,
    entrance: tuple[FastIngest, Listeners],
    *,
    lock: Lock,
) -> list[Part]:
    """List the parts in the order they start."""
    config = base.config
    fast, listeners = entrance
    offsets_s = config.server.offsets_interval_ms / 1000
    cleaning_s = config.store.clean_interval_ms / 1000
    cleaner = Cleaner(base.store, config.store, base.clock)
    client = Client(clock=base.clock)
    registration = _registration(base, client)
    parts = [
        Part(
            "metadata",
            base.metadata,
            timers=(
                Timer("save topics and groups", base.metadata.persist_configs, 10, 10),
                Timer("save offsets", base.metadata.persist_offsets, offsets_s, 10),
            ),
        ),
        Part(
            "totals",
            base.stats.days,
            timers=(Timer("save totals", base.stats.days.persist, 60, 60),),
        ),
        # Recovery of a large log may take minutes, and so may the last flush.
        Part("store", base.store, needs=("metadata",), stop_within_s=60),
        Part(
            "cleaning",
            cleaner,
            needs=("store",),
            timers=(Timer("delete old files", cleaner.clean, cleaning_s, 60),),
        ),
        Part("schedule", schedule, ("store",), during=Role.MASTER, timers=schedule.timers),
        Part("clients", clients, needs=("metadata",), timers=(*clients.timers, *lock.timers)),
        Part("loop_lag", base.lag),
        Part("lanes", base.lanes),
        Part("holds", base.holds, timers=(Timer("end holds", base.holds.sweep, 0.5, 0.5),)),
        Part(
            "fast_fail",
            fast_fail,
            needs=("lanes", "loop_lag"),
            timers=(Timer("refuse what waited", fast_fail.tick, 0.02, 1),),
        ),
        Part("client", client),
        Part("fast_path", fast, needs=("store", "clients", "fast_fail"), timers=fast.timers),
        Part("server", listeners, needs=("store", "clients", "holds", "lanes", "fast_path")),
        Part(
            "registration",
            registration,
            needs=("server", "client"),
            timers=(Timer("register", registration.register, config.registration.period_s, 10),),
            stop_within_s=5,
        ),
    ]
    if config.server.metrics == "PROM":
        parts.insert(0, _endpoint(base))
    return parts


def _endpoint(base: _Base) -> Part:
    endpoint = HealthEndpoint(
        host=base.config.server.bind_address or "127.0.0.1",
        port=base.config.server.metrics_port,
        health=base.health,
        metrics=base.metrics,
    )
    return Part("health", endpoint)


def _registration(base: _Base, client: Client) -> Registration:
    def result(why_not: str | None) -> None:
        if why_not is None:
            base.health.ready("registered")
        else:
            base.health.not_ready("registered", why_not)

    registration = Registration(
        caller=client,
        identity=base.identity,
        topics=base.metadata.topics,
        state=base.state,
        rules=base.config.registration,
        clock=base.clock,
        on_result=result,
    )
    base.metadata.topics.listen(registration.topics_changed)
    return registration
