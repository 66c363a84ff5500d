"""What a connection asks of whoever opened or accepted it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from roquet.protocol.command import Command
    from roquet.remoting.connection import Connection


class ConnectionOwner(Protocol):
    """Who opened or accepted the connection."""

    def now_ms(self) -> int:
        """Return the time."""
        ...

    def opened(self, connection: Connection, /) -> None:
        """Hear that the connection is there."""
        ...

    def closed(self, connection: Connection, /) -> None:
        """Hear that it has gone."""
        ...

    def request(self, connection: Connection, command: Command, /) -> None:
        """Take a request of the peer."""
        ...

    def complain(self, connection: Connection, what: str, /) -> None:
        """Log something that the peer did wrong, within limits."""
        ...
