"""What a broker says on its terminal when it has started."""

from __future__ import annotations

from typing import TYPE_CHECKING

from roquet.protocol.hosts import join_address
from roquet.remoting.connections.native import threads_here

if TYPE_CHECKING:
    from roquet.broker.config import BrokerConfig
    from roquet.broker.network.ports import Listeners
    from roquet.broker.state import Identity


def boot_lines(config: BrokerConfig, identity: Identity, listeners: Listeners) -> list[str]:
    """Return what is said once the broker serves; the first line is Java's, for scripts."""
    name_servers = config.registration.name_servers
    to_whom = f" and name server is {name_servers}" if name_servers else ""
    lines = [
        f"The broker[{identity.name}, {identity.address}] boot success. serializeType=JSON{to_whom}"
    ]
    bind = config.server.bind_address or ""
    lines.append(
        f"listening on {join_address(bind, listeners.port)} (fast {listeners.fast_port}),"
        f" store in {config.store.folder}"
    )
    threads = config.server.io_threads
    if threads_here(threads) < threads:
        lines.append(
            f"ioThreads={threads} has no effect: this platform has no epoll, so that one event"
            " loop serves all connections"
        )
    if config.server.metrics == "PROM":
        where = config.exporter.prom_host or bind
        lines.append(
            f"/metrics, /livez and /readyz on {join_address(where, config.server.metrics_port)}"
        )
    lines += role_lines(config, identity)
    if bind in {"0.0.0.0", "::"} and not (config.acl.enabled or config.auth.enabled):  # noqa: S104
        lines.append(
            "anybody who reaches this machine may read and write: authentication is off;"
            " bindAddress=127.0.0.1 keeps others out"
        )
    return lines


def role_lines(config: BrokerConfig, identity: Identity) -> list[str]:
    """Return what the role means for those who send."""
    rules = config.identity
    if rules.is_slave:
        master = config.ha.configured_master or "the master that the name servers tell"
        return [f"slave {rules.broker_id} of {identity.name}: copies {master}, takes no sends"]
    lines: list[str] = []
    if rules.slaves_wanted:
        lines.append(
            f"a send is acknowledged when {rules.slaves_wanted} slave(s) have it; without them it"
            " is stored and answered SLAVE_NOT_AVAILABLE (11)"
        )
    elif rules.role == "SYNC_MASTER":
        lines.append("inSyncReplicas=1: a send is acknowledged without a copy on a slave")
    return lines
