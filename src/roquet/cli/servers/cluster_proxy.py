"""`roquet proxy`: settings, log, boot line, exit code."""

from __future__ import annotations

import contextlib
import dataclasses
import ipaddress
import logging
import os
import random
from typing import TYPE_CHECKING

from roquet.base import log as logs
from roquet.base.clock import SystemClock
from roquet.base.config import load, settings
from roquet.base.errors import UsageError
from roquet.cli.exits import EXIT_CONFIGURATION
from roquet.cli.servers.proxy import ProxyFlags, rules_from
from roquet.cli.servers.serve import fail, guarded, in_the_way, say
from roquet.client._cluster.target import parse
from roquet.protocol.hosts import join_address
from roquet.proxy.cluster.config import ClusterConfig
from roquet.proxy.remoting.app import build as build_remoting
from roquet.proxy.remoting.limits import RemotingLimits
from roquet.proxy.rules import accounts
from roquet.proxy.rules.java_keys import WITHOUT_EFFECT_IN_CLUSTER
from roquet.proxy.rules.limits import ProxyLimits
from roquet.proxy.tls import config_of
from roquet.remoting.client import ClientConfig
from roquet.remoting.tls import TlsConfig, environment_options
from roquet.service.process import runtime
from roquet.service.process.supervisor import supervised

if TYPE_CHECKING:
    import argparse
    import asyncio
    from collections.abc import Mapping

    from roquet.acl.credentials import Credentials
    from roquet.acl.rights import RequestGuard
    from roquet.proxy.groups.own import OwnMembers
    from roquet.proxy.remoting.app import RemotingProxy
    from roquet.service.lifecycle import App

log = logging.getLogger(__name__)

REMOTING_KEYS = frozenset(about.java for _, about, _ in settings(RemotingLimits))
CLUSTER_KEYS = frozenset(about.java for _, about, _ in settings(ClusterConfig))
GRPC_KEYS = frozenset(about.java for _, about, _ in settings(ProxyLimits))


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ProxySettings:
    """What a proxy before a cluster goes by."""

    cluster: ClusterConfig
    grpc: ProxyLimits
    remoting: RemotingLimits | None
    """None: the port is closed."""
    account: Credentials | None
    """The proxy's own."""
    checks_clients: bool
    """Whether clients have to be users of the brokers; the proxy has an account then."""


def settings_of(
    flags: ProxyFlags,
    name_servers: str | None = None,
    mode: str | None = None,
    remoting_port: int | None = None,
) -> ProxySettings:
    """Read the settings of a proxy before a cluster. Raises UsageError."""
    given = flags.given()
    own = CLUSTER_KEYS | accounts.KEYS | (REMOTING_KEYS - GRPC_KEYS)
    others = {key: value for key, value in given.items() if key not in own}
    return ProxySettings(
        checks_clients=accounts.checks_clients(given),
        account=accounts.account_of(given),
        cluster=_cluster_of(given, name_servers, mode),
        grpc=rules_from(others, flags.port, WITHOUT_EFFECT_IN_CLUSTER),
        remoting=_remoting_of(given, remoting_port),
    )


def _cluster_of(
    given: Mapping[str, str], name_servers: str | None, mode: str | None
) -> ClusterConfig:
    mine = {key: value for key, value in given.items() if key in CLUSTER_KEYS}
    wanted: dict[str, str | int | bool | None] = {"namesrvAddr": name_servers, "proxyMode": mode}
    config = load(ClusterConfig, mine, {}, wanted)[0]
    if config.mode.upper() != "CLUSTER":
        raise UsageError(
            f"proxyMode {config.mode[:40]}: this is for CLUSTER;"
            " for LOCAL start the broker with it: roquet broker --proxy"
        )
    addresses = config.name_servers or os.environ.get("NAMESRV_ADDR", "")
    if not addresses:
        raise UsageError("which name servers? give -n HOST:PORT, or namesrvAddr in the -pc file")
    config.write_buffer.check()
    return dataclasses.replace(config, name_servers=addresses)


def _remoting_of(given: Mapping[str, str], port: int | None) -> RemotingLimits | None:
    mine = {key: value for key, value in given.items() if key in REMOTING_KEYS}
    rules = load(RemotingLimits, mine, {}, {"remotingListenPort": port})[0]
    return rules if rules.port else None


def _remoting(
    rules: RemotingLimits,
    of: ProxySettings,
    host: str,
    guard: RequestGuard | None,
    members: OwnMembers | None,
) -> RemotingProxy:
    """Wire the remoting port, with the certificate of gRPC if it has one."""
    return build_remoting(
        rules,
        host=host,
        name_servers=parse(of.cluster.name_servers).name_servers,
        clock=SystemClock(),
        tls=config_of(of.grpc, TlsConfig()),
        outgoing=environment_options(os.environ),
        credentials=of.account,
        guard=None if guard is None else guard.check,
        members=members,
        sockets=ClientConfig.of(of.cluster.outgoing, of.cluster.write_buffer),
    )


def _members(of: ProxySettings, rng: random.Random) -> tuple[App | None, OwnMembers | None]:
    """Wire what tells other proxies of members of groups, unless no topic is named for it."""
    if not of.cluster.sync_topic:
        return None, None
    from roquet.proxy.groups.app import build_members  # noqa: PLC0415  (needs the extra)

    ports = {"grpc_port": of.grpc.port, "remoting_port": of.remoting.port if of.remoting else 0}
    return build_members(of.cluster, SystemClock(), rng, account=of.account, **ports)


def proxy(options: argparse.Namespace) -> int:
    """Run a proxy before a cluster to its end."""
    from roquet.proxy.app import build_cluster  # noqa: PLC0415  (needs the extra)

    try:
        logs.configure(options.log_level, options.log_style)
        flags = ProxyFlags(options.proxy_config, options.grpc_port)
        of = settings_of(flags, options.namesrv_addr, options.proxy_mode, options.remoting_port)
        rng = random.Random()  # noqa: S311  (spreads load, guards nothing)
        # Nobody who is not checked asks by the account of the proxy.
        account = of.account if of.checks_clients else None
        host = options.bind
        told, members = _members(of, rng)
        built = build_cluster(
            of.cluster,
            host,
            of.grpc,
            SystemClock(),
            rng,
            account=account,
            health_port=options.health_port,
            groups=members,
        )
        asked = of.remoting
        remoting = None if asked is None else _remoting(asked, of, host, built.guard, members)
        if remoting is not None:
            connections = "Connections of remoting clients"
            built.metrics.watch("remoting_connections", connections, remoting.connections)
    except UsageError as error:
        return fail(error, EXIT_CONFIGURATION)
    if not of.checks_clients and not ipaddress.ip_address(options.bind).is_loopback:
        # The remoting port leaves accounts to brokers; this one does not know the clients'.
        log.warning("gRPC on %s without accounts: whoever reaches it may do it all", options.bind)

    async def serve(stop: asyncio.Event) -> int:
        async with contextlib.AsyncExitStack() as stack:
            ports = in_the_way("--grpc-port", built.app, health_port=options.health_port)
            await stack.enter_async_context(ports)
            where = f"gRPC on {join_address(options.bind, built.port.port)}"
            if remoting is not None:
                await stack.enter_async_context(in_the_way("--remoting-port", remoting.app))
                where += f", remoting on {join_address(options.bind, remoting.server.port)}"
            if told is not None:
                await stack.enter_async_context(told)
            if built.health is not None:
                health = join_address(options.bind, built.health.port)
                where += f", health and figures on {health}"
            say(f"The Proxy boot success. {where}, name servers {of.cluster.name_servers}")
            runtime.settle()
            async with supervised(os.environ, SystemClock()):
                await stop.wait()
        return 0

    return guarded(lambda: runtime.run(serve))
