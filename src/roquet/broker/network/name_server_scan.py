"""Which name servers can be reached: they are connected to before anything is asked of them.

As in RocketMQ 5.5.0 the first scan is at the start, and a round of registrations leaves out the
name servers that the last scan did not reach, so that one that takes no connection does not keep
the others waiting. Without scans RocketMQ's broker registers nowhere; ours calls every one.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Protocol

from roquet.base.errors import RoquetError

if TYPE_CHECKING:
    from collections.abc import Collection

log = logging.getLogger(__name__)


class Connections(Protocol):
    """What a scan needs of the remoting client."""

    async def connect(self, address: str, timeout_s: float) -> object:
        """Connect to `host:port`, if there is no connection. Raises RoquetError."""
        ...

    def key_of(self, address: str) -> int | None:
        """Return the number of the open connection to `host:port`; None: none is open."""
        ...


class NameServerScan:
    """Connects to name servers, and knows which were not reached and why."""

    def __init__(self, client: Connections, connect_s: float) -> None:
        """Wait `connect_s` for each connection."""
        self._client = client
        self._connect_s = connect_s
        self._failed: dict[str, str] = {}

    def why_not(self, address: str) -> str | None:
        """Return why the last scan did not reach a name server; None if it may be called."""
        # Somebody else may have connected since.
        return None if self._client.key_of(address) is not None else self._failed.get(address)

    async def look(self, addresses: Collection[str]) -> list[str]:
        """Connect to each that has no connection; return those that were away and are back."""
        self._failed = {key: why for key, why in self._failed.items() if key in addresses}
        before = frozenset(self._failed)
        await asyncio.gather(*(self._reach(address) for address in addresses))
        return [address for address in before if address not in self._failed]

    async def _reach(self, address: str) -> None:
        try:
            await self._client.connect(address, self._connect_s)
        except RoquetError as error:
            if address not in self._failed:
                log.warning("name server %s cannot be reached: %s", address, error)
            self._failed[address] = str(error)
        else:
            if self._failed.pop(address, None) is not None:
                log.info("name server %s can be reached again", address)
