"""Who sent a frame, as services want to know it."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from roquet.acl.rights import EVERYBODY
from roquet.base.errors import Refused
from roquet.broker.api.caller import Caller
from roquet.broker.api.refusal import Reason, Refusal
from roquet.broker.services.light_reads import may_read
from roquet.service.slices import in_slices

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from roquet.acl.needs import Need
    from roquet.acl.rights import Rights
    from roquet.broker.services.access import Access
    from roquet.broker.services.light_reads import MayRead
    from roquet.remoting.router import Request


NEEDS_AT_ONCE = 200
"""Needs of one request that are looked at before others have their turn."""


class Callers:
    """Makes callers of requests that the guard let pass."""

    def __init__(self, rights: Rights) -> None:
        """`rights` knows which account a request is of, where accounts are asked for."""
        self._rights = rights
        self._verified = None if rights is EVERYBODY else rights.caller
        """Tells the account; None: nobody needs one."""

    def of(self, request: Request) -> Caller:
        """Return who sent a request."""
        command, address, verified = request.command, request.peer.address, self._verified
        return Caller(
            address=address,
            access_key="" if verified is None else verified(command, address).access_key,
            language=command.language,
            version=command.version,
            received_ms=request.received_ms,
        )

    def check_again(self, request: Request) -> None:
        """Raise Refusal unless a request that is kept whole would be let in now."""
        try:
            self._rights.check(request.command, request.peer.address)
        except Refused as refused:
            raise Refusal(Reason.ACCOUNT_REFUSED, refused.remark) from refused

    def pledge(self, request: Request, needs: Sequence[Need]) -> Callable[[], None] | None:
        """Return what raises Refusal once a request that waits may no longer be answered.

        The request itself may be forgotten meanwhile. None: nobody needs an account.
        """
        if self._rights is EVERYBODY:
            return None
        caller = self.of(request)
        secret = self._rights.secrets.get(caller.access_key)
        return functools.partial(
            _check_waiting, self._rights, request.command.code, caller, secret, tuple(needs)
        )


def _check_waiting(
    rights: Rights, code: int, caller: Caller, secret: bytes | None, needs: Sequence[Need]
) -> None:
    try:
        rights.check_waiting(code, caller, secret, needs)
    except Refused as refused:
        raise Refusal(Reason.ACCOUNT_REFUSED, refused.remark) from refused


class Readers:
    """Tells which topics the sender of a frame may read."""

    def __init__(self, callers: Callers, access: Access) -> None:
        self._callers = callers
        self._access = access

    def of(self, request: Request) -> MayRead | None:
        """Return what tells it at any moment while the request waits; None: everything."""
        return may_read(self._access, self._callers.of(request))

    def pledge(self, request: Request, needs: Sequence[Need]) -> Callable[[], None] | None:
        """See `Callers.pledge`."""
        return self._callers.pledge(request, needs)

    async def require(self, request: Request, needs: Iterable[Sequence[Need]]) -> None:
        """Raise Refusal unless the sender has all permissions, of which there may be many."""
        caller = self._callers.of(request)
        async for some in in_slices(needs, NEEDS_AT_ONCE):
            self._access.require(caller, some)
