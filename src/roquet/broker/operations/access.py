"""Access control around operations: what the account of a caller may do."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from roquet.broker.api.caller import Caller
    from roquet.broker.operations.wrapping import Operation
    from roquet.broker.services.access import Access


class Authorized:
    """Refuses what the account may not do; the front has verified whose account it is."""

    def __init__(self, access: Access) -> None:
        self._access = access

    def begin(self, operation: Operation, request: object, caller: Caller) -> None:
        """Raise Refusal unless the caller has the rights that the operation needs."""
        if operation.needs is None:
            self._access.require_admin(caller, operation.name)
        else:
            self._access.require(caller, operation.needs(request))
