"""Balancers before a port: for whom a connection speaks, by the PROXY protocol of HAProxy.

Invariant: what a peer says of a client's address counts only where the peer itself is listed, since
anybody else could have any address, and with it the rights of that address. A peer that is not
listed and begins so anyway has sent a frame that is far too long, and is closed for that.

The rule of what a header may be is the core's, and the same for the port of gRPC.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from roquet._native import BalancerHeader
from roquet.protocol.hosts import host_of, is_within
from roquet.service.ratelog import RateLog

if TYPE_CHECKING:
    import socket
    from collections.abc import Awaitable, Callable, Sequence

    from roquet.base.clock import Clock
    from roquet.protocol.hosts import Network

log = logging.getLogger(__name__)

BEGINNINGS = frozenset(b"P\r")
"""First bytes of headers of versions 1 and 2; no frame that is short enough begins so, nor TLS."""
HEADER_S = 5.0
"""A whole header has to come in this time."""


class _BadHeaderError(Exception):
    """What a balancer says cannot be used; the text says why."""


class Balancers:
    """The peers that are believed."""

    def __init__(self, networks: Sequence[Network], clock: Clock) -> None:
        """Believe peers of these networks."""
        self._networks = tuple(networks)
        self._log = RateLog(log, clock)

    async def begin(
        self, accepted: socket.socket, address: str, first_byte: Callable[[], Awaitable[int | None]]
    ) -> tuple[int | None, str]:
        """Return the first byte of a connection behind any header, and the client's `ip:port`.

        None: the connection has ended, or what it says of its client cannot be used. Raises OSError
        when the peer leaves in the middle of a header.
        """
        first = await first_byte()
        host = host_of(address)
        if first is None or not self._speaks(first, host):
            return first, address
        try:
            client = await _client(accepted)
        except _BadHeaderError as error:
            self._log.warning(host, f"{address} is closed: its PROXY header is bad: {error}")
            return None, address
        return await first_byte(), client or address

    def _speaks(self, first: int, host: str) -> bool:
        """Tell whether a connection that begins with this byte begins with a header."""
        if first not in BEGINNINGS or not self._networks:
            return False
        return is_within(host, self._networks)


async def _client(accepted: socket.socket) -> str | None:
    """Take a header; return `ip:port` of its client, None where the balancer names none."""
    header = BalancerHeader()
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(HEADER_S):
            while wanted := header.wanted():
                taken = await loop.sock_recv(accepted, wanted)
                if not taken:
                    raise ConnectionError
                header.take(taken)
        return header.client()
    except ValueError as error:
        raise _BadHeaderError(str(error)) from error
    except TimeoutError as error:
        raise _BadHeaderError(f"it did not come within {HEADER_S:g} s") from error
