"""What a connection asks of whoever opened or accepted it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from roquet.protocol.command import Command


C_contra = TypeVar("C_contra", contravariant=True)
"""The connection, which this module stands below."""


class ConnectionOwner(Protocol[C_contra]):
    """Who opened or accepted the connection."""

    def now_ms(self) -> int:
        """Return the time."""
        ...

    def opened(self, connection: C_contra, /) -> None:
        """Hear that the connection is there."""
        ...

    def closed(self, connection: C_contra, /) -> None:
        """Hear that it has gone."""
        ...

    def request(self, connection: C_contra, command: Command, /) -> None:
        """Take a request of the peer."""
        ...

    def complain(self, connection: C_contra, what: str, /) -> None:
        """Log something that the peer did wrong, within limits."""
        ...
