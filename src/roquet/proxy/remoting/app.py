"""The remoting port put together: which parts there are, and in what order."""

from __future__ import annotations

import dataclasses
import random
from typing import TYPE_CHECKING

from roquet.base.errors import OutcomeUnknown, Refused, Unreachable
from roquet.broker.config import own_ip
from roquet.client._cluster.name_servers import NameServers
from roquet.protocol.codes import ResponseCode
from roquet.protocol.hosts import networks_of
from roquet.proxy.remoting.broker_requests import BrokerRequests
from roquet.proxy.remoting.brokers import Brokers, TopicTypes
from roquet.proxy.remoting.clients import ClientRequests
from roquet.proxy.remoting.forwarding import ForwardedRequests, Forwarder
from roquet.proxy.remoting.limits import CONNECT_S, body_max
from roquet.proxy.remoting.plain_sends import LATE_S, PlainSends
from roquet.proxy.remoting.routes import Routes
from roquet.proxy.remoting.sessions import Sessions
from roquet.remoting.client import Client, ClientConfig
from roquet.remoting.router import Router
from roquet.remoting.server import Server, ServerConfig
from roquet.remoting.tls import RELOAD_S, ServerTls, TlsConfig, client_tls
from roquet.service.lanes import Lanes
from roquet.service.lifecycle import App, Part, Timer

if TYPE_CHECKING:
    from collections.abc import Callable

    from roquet.acl.credentials import Credentials
    from roquet.base.clock import Clock
    from roquet.proxy.groups.own import OwnMembers
    from roquet.proxy.remoting.limits import RemotingLimits
    from roquet.remoting.router import Guard, Peer, Route
    from roquet.remoting.tls import TlsOptions

NO_TLS = TlsConfig()
ANY_ADDRESS = ("", "0.0.0.0", "::")  # noqa: S104  (compared with)


@dataclasses.dataclass(frozen=True, slots=True)
class RemotingProxy:
    """A port that is built but not started: enter `app` to run it."""

    app: App
    server: Server
    sessions: Sessions
    forwarded: ForwardedRequests

    def connections(self) -> float:
        """Return how many clients are connected."""
        return float(self.server.connections)


def build(
    rules: RemotingLimits,
    *,
    host: str,
    name_servers: tuple[str, ...],
    clock: Clock,
    tls: TlsConfig = NO_TLS,
    outgoing: TlsOptions | None = None,
    credentials: Credentials | None = None,
    guard: Guard | None = None,
    rng: random.Random | None = None,
    members: OwnMembers | None = None,
    sockets: ClientConfig | None = None,
) -> RemotingProxy:
    """Wire the port. Nothing is opened before the app is entered.

    `tls` is the port's, `outgoing` that of connections to brokers and name servers. `credentials`
    sign what the proxy asks for itself: where brokers are, and the types of topics; never what
    clients ask. `members` hear of clients in groups and know those of other proxies. `guard` judges
    each request before it goes anywhere; the broker does so again. `sockets` says how large the
    buffers of all connections are, and how long one to a broker may take, up to `CONNECT_S`.
    Raises UsageError for TLS that cannot be.
    """
    rng = rng or random.Random()  # noqa: S311  (spreads load, guards nothing)
    port_tls = ServerTls(tls, clock)
    to_brokers = client_tls(outgoing, clock)
    sign = None if credentials is None else credentials.sign
    limits = _patient(sockets or ClientConfig())
    own = Client(clock=clock, config=limits, tls=to_brokers, sign=sign)
    sessions = Sessions(rules.broker_connections_max)
    passing = Client(
        clock=clock,
        config=dataclasses.replace(limits, handlers_at_once=1_000),
        handlers=BrokerRequests(sessions.owner).routes(),
        on_close=sessions.connection_closed,
        tls=to_brokers,
    )
    sessions.dial = passing.dial
    brokers = Brokers(NameServers(own, name_servers, rng), clock)
    types = TopicTypes(brokers, own, clock)
    forwarder = Forwarder(sessions, brokers)
    plain = _plain_sends(own, rules, guard, clock)
    forwarded = ForwardedRequests(sessions, forwarder, types, rules, clock, plain=plain)
    clients = ClientRequests(sessions, brokers, forwarder, members)
    shown = _shown(rules, host)
    asked = NameServers(passing, name_servers, rng)
    routes = Routes(asked, brokers, sessions, lambda: f"{shown}:{server.port}", clock)
    lanes = Lanes(tuple(rules.lanes()), clock)
    table = [*routes.routes(), *clients.routes(), *forwarded.routes()]
    server = Server(
        host=host,
        port=rules.port,
        router=_router(table, lanes, clock, guard),
        clock=clock,
        config=_server_config(rules, limits),
        on_close=_leaving(sessions, clients),
        ingest=plain,
        tls=port_tls,
        balancers=networks_of(rules.balancers),
    )
    parts = [
        *_tls_parts(port_tls),
        Part("calls of the proxy", own),
        Part("connections to brokers", passing),
        Part("brokers", brokers),
        Part("types of topics", types),
        Part("routes", routes),
        *_port_parts(lanes, server, forwarded, plain),
    ]
    return RemotingProxy(App(parts, clock), server, sessions, forwarded)


def _router(table: list[Route], lanes: Lanes, clock: Clock, guard: Guard | None) -> Router:
    return Router(table, None, lanes, clock, guard=guard, body_max=body_max, translate=_refusal)


def _refusal(error: Exception) -> Exception:
    """Return why a request is not answered by a broker or name server: nothing is wrong here."""
    if isinstance(error, (Unreachable, OutcomeUnknown)):
        return Refused(ResponseCode.SYSTEM_ERROR, str(error))
    return error


def _patient(sockets: ClientConfig) -> ClientConfig:
    return dataclasses.replace(sockets, connect_s=min(sockets.connect_s, CONNECT_S))


def _leaving(sessions: Sessions, clients: ClientRequests) -> Callable[[Peer], None]:
    def closed(peer: Peer) -> None:
        sessions.client_closed(peer)
        clients.client_closed(peer.key)

    return closed


def _plain_sends(
    client: Client, rules: RemotingLimits, guard: Guard | None, clock: Clock
) -> PlainSends | None:
    """Return what takes plain sends; None where each request has to be looked at."""
    # A guard judges each request by itself, and a topic's type is what tells plain sends.
    return PlainSends(client, clock) if guard is None and rules.check_type else None


def _server_config(rules: RemotingLimits, limits: ClientConfig) -> ServerConfig:
    return ServerConfig(
        high_water=limits.high_water,
        low_water=limits.low_water,
        connections_max=rules.connections_max,
        connections_per_address_max=rules.address_connections_max,
    )


def _tls_parts(tls: ServerTls) -> list[Part]:
    watch = Timer("reload certificates", tls.reload, RELOAD_S, RELOAD_S)
    return [Part("tls of remoting", tls, timers=(watch,))] if tls.is_on else []


def _port_parts(
    lanes: Lanes, server: Server, forwarded: ForwardedRequests, plain: PlainSends | None
) -> list[Part]:
    late = Timer("refuse late requests", lanes.refuse_old, 1.0, 1.0)
    parts: list[Part] = []
    if plain is not None:
        plain.find, plain.ask = server.find, forwarded.once_more
        ends = Timer("end late sends", plain.end_late, LATE_S, LATE_S)
        parts.append(Part("plain sends", plain, timers=(ends,)))
    return [
        Part("lanes", lanes, timers=(late,)),
        Part("remoting port", server, needs=("lanes",)),
        # Stopped first: the port need not wait for what brokers hold.
        Part("held requests", forwarded),
        *parts,
    ]


def _shown(rules: RemotingLimits, host: str) -> str:
    """Return the address that routes name, in brackets if it is one of IPv6."""
    address = rules.access_address or (own_ip() if host in ANY_ADDRESS else host)
    return f"[{address}]" if ":" in address and not address.startswith("[") else address
