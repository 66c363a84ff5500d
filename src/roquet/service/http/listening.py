"""The port of a listening socket, or why there is none."""

from __future__ import annotations

from typing import TYPE_CHECKING

from roquet.base.errors import UsageError

if TYPE_CHECKING:
    import asyncio


def port_of(server: asyncio.Server, host: str, port: int) -> int:
    """Return the port that a server listens on. Raises UsageError when it listens nowhere.

    The loop skips an address for which it gets no socket, also when there is no descriptor left.
    """
    if not server.sockets:
        server.close()
        raise UsageError(
            f"cannot listen on {host}:{port}: no socket can be had; are there file descriptors"
            " left (LimitNOFILE, ulimit -n)?"
        )
    return int(server.sockets[0].getsockname()[1])
