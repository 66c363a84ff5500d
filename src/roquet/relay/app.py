"""The relay put together: registries, main process, master, workers, links; the table of parts."""

from __future__ import annotations

import dataclasses
import random
from typing import TYPE_CHECKING

from roquet.base.errors import UsageError
from roquet.relay.codes import FORWARDS, RelayCode
from roquet.relay.master.machine import STEPS, Machine, Periods
from roquet.relay.master.master import MasterService
from roquet.relay.peers.dispatch import Dispatcher, PacketHandler
from roquet.relay.peers.links import Links, Listener, tls_of_server, tls_to_servers
from roquet.relay.process import MainProcess, MessageHandler, explain
from roquet.relay.registry import Registry
from roquet.relay.traffic import RelayTraffic
from roquet.relay.web.calls import WebHandler, WebSide, watch
from roquet.relay.web.view import View
from roquet.relay.worker import WorkerService
from roquet.service.lifecycle import App, Part, Timer
from roquet.service.loop_lag import LoopLag
from roquet.service.metrics import Metrics

if TYPE_CHECKING:
    import ssl

    from roquet.base.clock import Clock
    from roquet.protocol.command import Command
    from roquet.relay.config import RelayConfig
    from roquet.relay.peers.links import RelayLink

EXPIRE_S = 0.2
"""Period of the look for requests that were not answered in time."""


@dataclasses.dataclass(frozen=True, slots=True)
class Relay:
    """A relay that is built but not started: enter `app` to run it."""

    app: App
    config: RelayConfig
    master: MasterService
    view: View
    http: WebSide
    listener: Listener | None
    packets: Registry[PacketHandler]
    messages: Registry[MessageHandler]
    web: Registry[WebHandler]

    def explain(self) -> str:
        """Return parts, ticks with their periods, and registries, as text."""
        config = self.config
        ticks = [f"{'tick':<18} every {config.tick_ms} ms"]
        ticks += [f"  {name:<16} {rule}" for name, rule in STEPS]
        periods = [
            f"{name:<22} {getattr(config, name)} ms"
            for name in (
                "load_config_ms",
                "reconnect_ms",
                "register_timeout_ms",
                "heartbeat_ms",
                "heartbeat_timeout_ms",
            )
        ]
        return "\n\n".join(
            (
                self.app.explain(),
                "\n".join(ticks),
                "\n".join(periods),
                explain(self.packets),
                explain(self.messages),
                explain(self.web),
            )
        )


def build(config: RelayConfig, clock: Clock, rng: random.Random | None = None) -> Relay:
    """Wire a relay. Nothing is opened or read before the app is entered. Raises UsageError."""
    rng = rng or random.SystemRandom()
    packets: Registry[PacketHandler] = Registry("packet")
    messages: Registry[MessageHandler] = Registry("message")
    web: Registry[WebHandler] = Registry("web")
    traffic = RelayTraffic(config, clock)
    dispatch = Dispatcher(packets)
    process = MainProcess(config.mailbox_max)
    master = _master(config, clock, rng, traffic, dispatch)
    dialling, listening = _tls(config)
    links = Links(
        clock=clock,
        ingest=traffic,
        holder=master,
        frame_size_max=config.frame_bytes,
        tls=dialling,
    )
    master.links = links
    master.mailbox = process.add(master, on_demand=False)
    workers = [
        WorkerService(
            index,
            links=links,
            traffic=traffic,
            messages=messages,
            dispatch=dispatch,
            clock=clock,
            heartbeat_timeout_ms=config.heartbeat_timeout_ms,
        )
        for index in range(config.workers)
    ]
    for worker in workers:
        worker.mailbox = process.add(worker)
        worker.to_master = master.mailbox
    master.set_workers([worker.mailbox for worker in workers])
    master.register_messages(messages)
    WorkerService.register_messages(messages)
    traffic.wake = lambda index: workers[index].mailbox.wake()
    _register_packets(packets, master, workers)
    listener = None
    if config.inbound:
        listener = Listener(links, config.bind_address, config.inbound_port, listening)
    parts = _parts(config, workers, master)
    if listener is not None:
        parts.append(Part("listener", listener, needs=("master",)))
    expire = Timer("refuse late requests", traffic.expire, EXPIRE_S, EXPIRE_S)
    parts[:0] = [
        Part("process", process),
        Part("traffic", traffic, needs=("process",), timers=(expire,)),
        Part("links", links, needs=("traffic",)),
    ]
    view = View(master.machine, workers, traffic, process, config.workers)
    http, lag = _http(config, web, view, master)
    parts.append(Part("loop_lag", lag))
    parts.append(Part("http", http, needs=("master",)))
    return Relay(App(parts, clock), config, master, view, http, listener, packets, messages, web)


def _http(
    config: RelayConfig, web: Registry[WebHandler], view: View, master: MasterService
) -> tuple[WebSide, LoopLag]:
    metrics = Metrics()
    watch(metrics, view)
    http = WebSide(
        web,
        view=view,
        orders=master,
        metrics=metrics,
        host=config.bind_address,
        port=config.http_port,
        admin_token=config.admin_token,
    )
    return http, LoopLag(metrics)


def _master(
    config: RelayConfig,
    clock: Clock,
    rng: random.Random,
    traffic: RelayTraffic,
    dispatch: Dispatcher,
) -> MasterService:
    periods = Periods(
        workers=config.workers,
        load_config_ms=config.load_config_ms,
        reconnect_ms=config.reconnect_ms,
        register_timeout_ms=config.register_timeout_ms,
    )
    return MasterService(
        machine=Machine(periods),
        config=config,
        instance=f"{rng.getrandbits(64):016x}",
        clock=clock,
        rng=rng,
        traffic=traffic,
        dispatch=dispatch,
    )


def _tls(config: RelayConfig) -> tuple[ssl.SSLContext | None, ssl.SSLContext | None]:
    if not config.tls:
        return None, None
    cert, key, ca = config.tls_cert_file, config.tls_key_file, config.tls_ca_file
    try:
        dialling = tls_to_servers(ca, cert, key)
        return dialling, tls_of_server(cert, key, ca) if config.inbound else None
    except OSError as error:
        raise UsageError(f"tls_ca_file, tls_cert_file or tls_key_file: {error}") from error


def _register_packets(
    packets: Registry[PacketHandler], master: MasterService, workers: list[WorkerService]
) -> None:
    def heartbeat(link: RelayLink, command: Command) -> Command | None:
        """Note how many are online."""
        return workers[link.server_id % len(workers)].heartbeat(link, command)

    packets.add(RelayCode.HELLO, "HELLO", "master", master.hello)
    packets.add(RelayCode.HEARTBEAT, "HEARTBEAT", "worker", heartbeat)
    for code in sorted(FORWARDS):
        packets.add(code, code.name, "master", master.too_early)


def _parts(config: RelayConfig, workers: list[WorkerService], master: MasterService) -> list[Part]:
    beat_s = config.heartbeat_ms / 1000
    watch_s = min(1.0, config.heartbeat_timeout_ms / 4000)
    parts: list[Part] = []
    for worker in workers:
        timers = (
            Timer("beat", worker.beat, beat_s, beat_s),
            Timer("watch", worker.watch, watch_s, watch_s),
        )
        parts.append(Part(worker.name, worker, needs=("links",), timers=timers))
    tick_s = config.tick_ms / 1000
    timers = (Timer("tick", master.tick, tick_s, 0.0), Timer("sweep", master.sweep, 1.0, 1.0))
    parts.append(Part("master", master, needs=("links", workers[-1].name), timers=timers))
    return parts
