"""Signing in with an account of the cluster: of access control 1.0, or a user of 2.0.

The brokers judge. Each master that answers has to take a request that the account signed and to
refuse the same one signed with another secret: a broker that checks nobody, or does not check
this console's address, says nothing about who somebody is.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from typing import TYPE_CHECKING

from roquet.acl.credentials import Credentials
from roquet.base.errors import RoquetError, Unreachable, UsageError
from roquet.console.denied import Denied

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractAsyncContextManager

    from roquet.client import MQ

log = logging.getLogger(__name__)

_KEY_MAX = 128
_SECRET_MAX = 1024
CHECKS = 4
"""Sign-ins that ask the cluster at the same time."""
WAITING = 16
"""Sign-ins that wait for that."""
_MASTERS_MAX = 32
"""Of more masters a random choice is asked."""


class ClusterAccounts:
    """Judges accounts by the masters of a cluster."""

    def __init__(
        self,
        make: Callable[[Credentials], MQ],
        mq: MQ,
        place: Callable[[], AbstractAsyncContextManager[None]],
    ) -> None:
        """`make` makes a client that signs with an account; `mq` knows where masters are.

        A check holds a place, which raises Denied when there is none, or for too long a time.
        """
        self._make = make
        self._mq = mq
        self._place = place

    async def check(self, key: str, secret: str) -> tuple[Credentials | None, str]:
        """Return the account, None with the reason for the log when the cluster knows it not.

        Raises Denied when too many wait, and when the cluster does not answer.
        """
        if not 0 < len(key) <= _KEY_MAX or not 0 < len(secret) <= _SECRET_MAX:
            return None, "no key and secret of a possible length"
        try:
            account = Credentials(key, secret)
            other = Credentials(key, secrets.token_urlsafe(24))
        except UsageError as error:
            return None, str(error)
        async with self._place():
            try:
                why = await self._why_not(account, other)
            except RoquetError as error:
                log.warning("nobody can sign in with an account of the cluster: %s", error)
                text = "the cluster does not answer: nobody can be signed in now"
                raise Denied(502, text) from error
        return (None, why) if why else (account, "")

    async def _why_not(self, account: Credentials, other: Credentials) -> str:
        """Return why an account does not sign in; empty when it does. Raises Unreachable."""
        masters = list((await self._mq.admin().brokers.masters()).items())
        if len(masters) > _MASTERS_MAX:
            masters = secrets.SystemRandom().sample(masters, _MASTERS_MAX)
        known, answered = await self._asked(account, masters)
        if not answered:
            raise Unreachable("no master answers")
        if len(known) < len(answered):
            return f"{next(it for it, _ in answered if it not in known)} does not know the account"
        unchecked, _ = await self._asked(other, answered)
        if unchecked:
            return f"{min(unchecked)} takes any secret from this console's address"
        return ""

    async def _asked(
        self, account: Credentials, masters: Sequence[tuple[str, str]]
    ) -> tuple[set[str], list[tuple[str, str]]]:
        """Return the names of those that know an account, and all that answered."""
        mq = self._make(account)
        await mq.start()
        try:
            accounts = mq.admin().accounts
            asked = (accounts.is_known(address) for _, address in masters)
            found = await asyncio.gather(*asked, return_exceptions=True)
        finally:
            await mq.close()
        for it in found:
            if isinstance(it, BaseException) and not isinstance(it, RoquetError):
                raise it
        told = list(zip(masters, found, strict=True))
        answered = [row for row, it in told if isinstance(it, bool)]
        return {row[0] for row, it in told if it is True}, answered
