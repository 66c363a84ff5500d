"""What a broker says on its terminal when it has started."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from roquet.broker.config import BrokerConfig
    from roquet.broker.ports import Listeners
    from roquet.broker.state import Identity


def boot_lines(config: BrokerConfig, identity: Identity, listeners: Listeners) -> list[str]:
    """Return what is said once the broker serves; the first line is Java's, for scripts."""
    name_servers = config.registration.name_servers
    to_whom = f" and name server is {name_servers}" if name_servers else ""
    lines = [
        f"The broker[{identity.name}, {identity.address}] boot success. serializeType=JSON{to_whom}"
    ]
    bind = config.server.bind_address
    lines.append(
        f"listening on {bind}:{listeners.port} (fast {listeners.fast_port}),"
        f" store in {config.store.folder}"
    )
    if config.server.metrics == "PROM":
        lines.append(f"/metrics, /livez and /readyz on {bind}:{config.server.metrics_port}")
    if config.identity.lacks_slave:
        lines.append(
            "a SYNC_MASTER without slaves answers each send with SLAVE_NOT_AVAILABLE (11), the"
            " message stored; inSyncReplicas=1 asks for no copy"
        )
    elif config.identity.role == "SYNC_MASTER":
        lines.append("inSyncReplicas=1: a send is acknowledged without a copy on a slave")
    if bind in {"0.0.0.0", "::"}:  # noqa: S104
        lines.append(
            "anybody who reaches this machine may read and write: authentication is off;"
            " bindAddress=127.0.0.1 keeps others out"
        )
    return lines
