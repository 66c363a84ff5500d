"""`roquet proxy`: settings, log, boot line, exit code."""

from __future__ import annotations

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
from roquet.cli.servers.proxy import ProxyFlags, read_file, rules_from
from roquet.cli.servers.serve import fail, guarded, in_the_way, say
from roquet.proxy.cluster.config import ClusterConfig
from roquet.proxy.rules.java_keys import WITHOUT_EFFECT_IN_CLUSTER
from roquet.service.process import runtime
from roquet.service.process.supervisor import supervised

if TYPE_CHECKING:
    import argparse
    import asyncio

    from roquet.proxy.rules.limits import ProxyLimits

log = logging.getLogger(__name__)

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
    others = {key: value for key, value in given.items() if key not in keys}
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


def proxy(options: argparse.Namespace) -> int:
    """Run a proxy before a cluster to its end."""
    from roquet.proxy.app import build_cluster  # noqa: PLC0415  (needs the extra)

    try:
        logs.configure(options.log_level, options.log_style)
        flags = ProxyFlags(options.proxy_config, options.grpc_port)
        config, rules = cluster_of(flags, options.namesrv_addr, options.proxy_mode)
        rng = random.Random()  # noqa: S311  (spreads load, guards nothing)
        built = build_cluster(config, options.bind, rules, SystemClock(), rng)
    except UsageError as error:
        return fail(error, EXIT_CONFIGURATION)
    if not ipaddress.ip_address(options.bind).is_loopback:
        log.warning("gRPC on %s without accounts: whoever reaches it may do it all", options.bind)

    async def serve(stop: asyncio.Event) -> int:
        async with in_the_way("--grpc-port", built.app):
            where = f"gRPC on {options.bind}:{built.port.port}"
            say(f"The Proxy boot success. {where}, name servers {config.name_servers}")
            runtime.settle()
            async with supervised(os.environ, SystemClock()):
                await stop.wait()
        return 0

    return guarded(lambda: runtime.run(serve))
