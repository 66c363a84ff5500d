"""The broker's two ports as one part: the main one, and the fast one two below it."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from roquet.base.errors import UsageError

if TYPE_CHECKING:
    from roquet.broker.state import Identity
    from roquet.protocol.command import Command
    from roquet.remoting.connections.fast_ingest import FastPath
    from roquet.remoting.router import Peer, Request
    from roquet.remoting.server import Server

_LOOK_S = 0.01
_LOOKS_MAX = 300
"""How often a stop looks whether sends still wait for a flush or a copy."""

log = logging.getLogger(__name__)


class Listeners:
    """Opens both ports and tells the identity which they are."""

    def __init__(self, main: Server, fast: Server, identity: Identity, path: FastPath) -> None:
        self._path = path
        self._main = main
        self._fast = fast
        self._identity = identity

    @property
    def port(self) -> int:
        """The main port."""
        return self._main.port

    @property
    def fast_port(self) -> int:
        """The port that serves all but reads."""
        return self._fast.port

    def write(self, key: int, frames: bytes) -> None:
        """Write whole frames to a connection of either port; dropped when it has gone."""
        link = self._main.find(key) or self._fast.find(key)
        if link is not None:
            link.write_now(frames)

    def find(self, key: int) -> Peer | None:
        """Return a connection of either port; None when it has gone."""
        return self._main.find(key) or self._fast.find(key)

    def late(self, key: int, command: Command, received_ms: int | None = None) -> Request | None:
        """Return a request that was taken some time ago; None when its connection has gone.

        `received_ms` says when it was read, where that is known.
        """
        port = self._main if self._main.find(key) is not None else self._fast
        return port.late(key, command, received_ms)

    async def start(self) -> None:
        """Listen. Raises UsageError when an address cannot be had."""
        self._path.admit(anything=True)
        await self._main.start()
        self._identity.port = self._main.port
        if self._identity.ha_port == 0:
            self._identity.ha_port = self._main.port + 1
        try:
            await self._fast.start()
        except UsageError as error:
            await self._main.stop()
            raise UsageError(
                f"{error}; this is the fast port, always two below listenPort: choose another"
                " listenPort (-s listenPort=PORT)"
            ) from error
        except BaseException:
            await self._main.stop()
            raise

    async def stop(self) -> None:
        """Take no more connections, finish what is in hand, close."""
        # The servers send peers away: they have to see every request from now on.
        self._path.admit(anything=False)
        for _ in range(_LOOKS_MAX):
            if not self._path.waiting:
                break
            await asyncio.sleep(_LOOK_S)  # noqa: TID251  (real disks, whatever the clock)
        await self._fast.stop()
        await self._main.stop()
