"""`roquet proxy`: settings, log, boot line, exit code."""

from __future__ import annotations

import contextlib
import dataclasses
import ipaddress
import logging
import os
import random
from typing import TYPE_CHECKING

from roquet.acl.credentials import Credentials
from roquet.auth.config import named
from roquet.base import log as logs
from roquet.base.clock import SystemClock
from roquet.base.config import load, settings
from roquet.base.errors import UsageError
from roquet.cli.exits import EXIT_CONFIGURATION
from roquet.cli.servers.proxy import ProxyFlags, read_file, rules_from
from roquet.cli.servers.serve import fail, guarded, in_the_way, say
from roquet.client._cluster.target import parse
from roquet.proxy.cluster.config import ClusterConfig
from roquet.proxy.remoting.app import build as build_remoting
from roquet.proxy.remoting.limits import RemotingLimits
from roquet.proxy.rules.java_keys import WITHOUT_EFFECT_IN_CLUSTER
from roquet.proxy.rules.limits import ProxyLimits
from roquet.proxy.tls import config_of
from roquet.remoting.tls import TlsConfig, environment_options
from roquet.service.process import runtime
from roquet.service.process.supervisor import supervised

if TYPE_CHECKING:
    import argparse
    import asyncio

    from roquet.proxy.remoting.app import RemotingProxy

log = logging.getLogger(__name__)

REMOTING_KEYS = frozenset(about.java for _, about, _ in settings(RemotingLimits))
_ACCOUNTS = ("authenticationEnabled", "authorizationEnabled", "enableACL")
"""Settings that would have clients checked. A proxy that passed over them would let all in."""


def cluster_of(
    flags: ProxyFlags, name_servers: str | None, mode: str | None
) -> tuple[ClusterConfig, ProxyLimits]:
    """Read the settings of a proxy before a cluster. Raises UsageError."""
    given = {} if flags.file is None else read_file(flags.file)
    for key in _ACCOUNTS:
        if given.get(key, "").lower() == "true":
            raise UsageError(
                f"{key}: accounts of clients are not checked in cluster mode;"
                " a broker of accounts serves them itself (roquet broker --proxy)"
            )
    keys = {about.java for _, about, _ in settings(ClusterConfig)}
    mine = {key: value for key, value in given.items() if key in keys}
    wanted: dict[str, str | int | bool | None] = {"namesrvAddr": name_servers, "proxyMode": mode}
    config = load(ClusterConfig, mine, {}, wanted)[0]
    remoting = REMOTING_KEYS - {about.java for _, about, _ in settings(ProxyLimits)}
    others = {key: value for key, value in given.items() if key not in keys | remoting}
    rules = rules_from(others, flags.port, WITHOUT_EFFECT_IN_CLUSTER)
    if config.mode.upper() != "CLUSTER":
        raise UsageError(
            f"proxyMode {config.mode[:40]}: this is for CLUSTER;"
            " for LOCAL start the broker with it: roquet broker --proxy"
        )
    addresses = config.name_servers or os.environ.get("NAMESRV_ADDR", "")
    if not addresses:
        raise UsageError("which name servers? give -n HOST:PORT, or namesrvAddr in the -pc file")
    return dataclasses.replace(config, name_servers=addresses), rules


def remoting_of(flags: ProxyFlags, port: int | None) -> RemotingLimits | None:
    """Read the settings of the remoting port; None where none is asked for. Raises UsageError."""
    given = {} if flags.file is None else read_file(flags.file)
    mine = {key: value for key, value in given.items() if key in REMOTING_KEYS}
    rules = load(RemotingLimits, mine, {}, {"remotingListenPort": port})[0]
    return rules if rules.port else None


def _remoting(
    rules: RemotingLimits, grpc: ProxyLimits, config: ClusterConfig, host: str
) -> RemotingProxy:
    """Wire the remoting port, with the certificate of gRPC if it has one."""
    key = "innerClientAuthenticationCredentials"
    account = named(rules.inner_credentials, key, "accessKey", "secretKey")
    return build_remoting(
        rules,
        host=host,
        name_servers=parse(config.name_servers).name_servers,
        clock=SystemClock(),
        tls=config_of(grpc, TlsConfig()),
        outgoing=environment_options(os.environ),
        credentials=None if account is None else Credentials(*account),
    )


def proxy(options: argparse.Namespace) -> int:
    """Run a proxy before a cluster to its end."""
    from roquet.proxy.app import build_cluster  # noqa: PLC0415  (needs the extra)

    try:
        logs.configure(options.log_level, options.log_style)
        flags = ProxyFlags(options.proxy_config, options.grpc_port)
        config, rules = cluster_of(flags, options.namesrv_addr, options.proxy_mode)
        rng = random.Random()  # noqa: S311  (spreads load, guards nothing)
        built = build_cluster(config, options.bind, rules, SystemClock(), rng)
        asked = remoting_of(flags, options.remoting_port)
        remoting = None if asked is None else _remoting(asked, rules, config, options.bind)
    except UsageError as error:
        return fail(error, EXIT_CONFIGURATION)
    if not ipaddress.ip_address(options.bind).is_loopback:
        # The remoting port leaves accounts to brokers; this one does not know the clients'.
        log.warning("gRPC on %s without accounts: whoever reaches it may do it all", options.bind)

    async def serve(stop: asyncio.Event) -> int:
        async with contextlib.AsyncExitStack() as stack:
            await stack.enter_async_context(in_the_way("--grpc-port", built.app))
            where = f"gRPC on {options.bind}:{built.port.port}"
            if remoting is not None:
                await stack.enter_async_context(in_the_way("--remoting-port", remoting.app))
                where += f", remoting on {options.bind}:{remoting.server.port}"
            say(f"The Proxy boot success. {where}, name servers {config.name_servers}")
            runtime.settle()
            async with supervised(os.environ, SystemClock()):
                await stop.wait()
        return 0

    return guarded(lambda: runtime.run(serve))
