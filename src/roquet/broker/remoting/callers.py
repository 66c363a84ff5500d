"""Who sent a frame, as services want to know it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from roquet.broker.api.caller import Caller

if TYPE_CHECKING:
    from roquet.acl.rights import Rights
    from roquet.remoting.router import Request


class Callers:
    """Makes callers of requests that the guard let pass."""

    def __init__(self, rights: Rights) -> None:
        """`rights` knows which account a request is of, where accounts are asked for."""
        self._rights = rights

    def of(self, request: Request) -> Caller:
        """Return who sent a request."""
        command, address = request.command, request.peer.address
        return Caller(
            address=address,
            access_key=self._rights.caller(command, address).access_key,
            language=command.language,
            version=command.version,
            received_ms=request.received_ms,
        )
