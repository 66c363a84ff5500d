"""Why a server does not get its port, said with what helps."""

from __future__ import annotations

import errno
import re
from pathlib import Path

from roquet.base.errors import PortTaken, UsageError

_TABLES = ("/proc/net/tcp", "/proc/net/tcp6")
_ROW = re.compile(r"\s*\d+: [0-9A-F]+:([0-9A-F]{4}) [0-9A-F]+:[0-9A-F]{4} ([0-9A-F]{2}) ")
"""Of the kernel's table: the local port and the state, hexadecimal."""
_LISTEN, _ESTABLISHED, _CONNECTING = 0x0A, 0x01, (0x02, 0x03)
_OF_THE_PORT = (errno.EADDRINUSE, errno.EACCES)
"""Errors that another port would not have."""
_ROWS_MAX = 200_000
"""Rows that are read of a table: an error message has no time for more."""


def cannot_listen(where: str, error: Exception, *, on: str = "on") -> UsageError:
    """Return the error of a server that does not get `where` (host:port), with what helps."""
    code = getattr(error, "errno", None)
    port = where.rpartition(":")[2]
    if code == errno.EADDRINUSE:
        text = _who_has(int(port)) if port.isdigit() else "it is taken"
    elif code == errno.EADDRNOTAVAIL:
        text = "this machine has no such address"
    elif code == errno.EACCES:
        text = "ports below 1024 need a right (CAP_NET_BIND_SERVICE): choose a higher one"
    else:
        text = getattr(error, "strerror", None) or str(error)
    said = f"cannot listen {on} {where}: {text}"
    return PortTaken(said, port) if code in _OF_THE_PORT else UsageError(said)


def _who_has(port: int) -> str:
    """Say what holds a port: a server, or the own end of a connection that somebody made.

    The kernel gives connections that leave ports of its own choice, which may be ours, and keeps
    such a port for a minute after the connection has ended.
    """
    states = states_of(port)
    if not states or _LISTEN in states:
        return f"another process has this port (ss -ltnp 'sport = :{port}'): stop it or change ours"
    reserve = f"sysctl net.ipv4.ip_local_reserved_ports={port} keeps it from connections"
    if _ESTABLISHED in states or any(it in states for it in _CONNECTING):
        return (
            f"no server has this port, but a connection that leaves from it"
            f" (ss -tanp 'sport = :{port}'): end that or change ours; {reserve}"
        )
    return (
        f"no server has this port, but {len(states)} connections that are closing"
        f" (ss -tan 'sport = :{port}'): try again in a minute or change ours; {reserve}"
    )


def states_of(port: int) -> list[int]:
    """Return the kernel's states of all sockets with a local TCP port; none where it cannot say."""
    found: list[int] = []
    for table in _TABLES:
        try:
            with Path(table).open(encoding="ascii") as rows:
                for number, row in enumerate(rows):
                    match = _ROW.match(row)
                    if match is not None and int(match[1], 16) == port:
                        found.append(int(match[2], 16))
                    if number >= _ROWS_MAX:
                        break
        except (OSError, UnicodeDecodeError):
            continue
    return found
