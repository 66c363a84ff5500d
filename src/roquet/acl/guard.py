"""Whether a request may be carried out: address, signature, permissions, in this order."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Protocol

from roquet.acl.accounts import Perm
from roquet.acl.addresses import peer_parts
from roquet.acl.rights import Caller
from roquet.acl.signature import ACCESS_KEY, is_signed
from roquet.base.errors import Refused
from roquet.protocol.codes import ResponseCode
from roquet.protocol.names import TRACE_TOPIC
from roquet.service.ratelog import one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from roquet.acl.accounts import Account, Table
    from roquet.acl.needs import Need, Needs
    from roquet.acl.rights import Asking
    from roquet.protocol.command import Command

JAVA = "org.apache.rocketmq.acl.common.AclException: "
"""How a Java broker's refusals begin; tools look for it."""


class Source(Protocol):
    """Has the accounts in force."""

    @property
    def table(self) -> Table:
        """The accounts as they are now."""
        ...


class Guard:
    """Checks requests against the accounts in force."""

    def __init__(self, source: Source, needs: Needs) -> None:
        """`needs` says what each request needs."""
        self._source = source
        self._needs = needs
        self._secrets: tuple[Table | None, Mapping[str, bytes]] = None, {}

    @property
    def secrets(self) -> Mapping[str, bytes]:
        """Account -> what it signs with, of those in force; a change makes another mapping."""
        table = self._source.table
        if self._secrets[0] is not table:
            secrets = {key: account.secret for key, account in table.accounts.items()}
            self._secrets = table, secrets
        return self._secrets[1]

    def check(self, command: Command, address: str) -> bool:
        """Raise Refused, with Java's code and words, unless the request may be carried out.

        Return whether its sender is known: by the signature, or by an address that needs none.
        """
        key = (command.ext or {}).get(ACCESS_KEY)
        table = self._source.table
        account = _signer(table, key, lambda secret: is_signed(command, secret), address)
        if account is not None:
            self._permit(command, account, table)
        return True

    def verify(self, key: str, is_by: Callable[[bytes], bool], address: str) -> None:
        """Raise Refused unless a request of another front may be that account's.

        `is_by` tells whether a secret made the signature that the request has.
        """
        _signer(self._source.table, key, is_by, address)

    def check_waiting(
        self, code: int, caller: Asking, secret: bytes | None, needs: Sequence[Need]
    ) -> None:
        """Raise Refused unless a request that waited may still be answered."""
        del code
        table = self._source.table
        account = self._account(caller, table)
        if account is None:
            return
        if account.secret != secret:
            raise refused(f"Check signature failed for accessKey={account.access_key}")
        _require(account, needs, table)

    def caller(self, command: Command, address: str) -> Caller:
        """Return who sent a request that `check` let pass."""
        return Caller((command.ext or {}).get(ACCESS_KEY) or "", address)

    def require(self, caller: Asking, needs: Sequence[Need]) -> None:
        """Raise Refused unless the caller has all of the permissions, by the accounts in force."""
        table = self._source.table
        account = self._account(caller, table)
        if account is not None:
            _require(account, needs, table)

    def require_admin(self, caller: Asking, what: str) -> None:
        """Raise Refused unless the caller is an administrator, by the accounts in force."""
        account = self._account(caller, self._source.table)
        if account is not None:
            _require_admin(account, f"Need admin permission for {what}")

    def _account(self, caller: Asking, table: Table) -> Account | None:
        """Return whose rights count; None: the address needs none. Raises Refused for nobody."""
        account = table.accounts.get(caller.access_key)
        if _is_white(table, account, caller.address):
            return None
        if account is None:
            raise refused("No accessKey is configured")
        return account

    def has(self, caller: Asking, needs: Sequence[Need]) -> bool:
        """Tell whether the caller has all of the permissions, by the accounts in force."""
        try:
            self.require(caller, needs)
        except Refused:
            return False
        return True

    def _permit(self, command: Command, account: Account, table: Table) -> None:
        needs = self._needs(command)
        if needs is None:
            _require_admin(account, f"Need admin permission for request code={command.code}")
            return
        _require(account, needs, table)


def _signer(
    table: Table, key: str | None, is_by: Callable[[bytes], bool], address: str
) -> Account | None:
    """Return the account that signed; None: the address needs none. Raises Refused for nobody."""
    account = table.accounts.get(key) if key else None
    if _is_white(table, account, address):
        return None
    if not key:
        raise refused("No accessKey is configured")
    # An unknown key takes as long, and is answered the same, as a wrong signature.
    secret = hashlib.sha256(key.encode("utf-8", "replace")).digest()
    if not is_by(account.secret if account else secret) or account is None:
        raise refused(f"Check signature failed for accessKey={one_line(key[:64])}")
    return account


def _is_white(table: Table, account: Account | None, address: str) -> bool:
    """Tell whether an address needs no signature, with or without a key."""
    parts = peer_parts(address)
    if any(pattern.matches(parts) for pattern in table.white):
        return True
    return account is not None and account.white.matches(parts)


def _require_admin(account: Account, text: str) -> None:
    if not account.admin:
        key = account.access_key
        raise refused(f"{text}, but accessKey={key} is not")


def _require(account: Account, needs: Sequence[Need], table: Table) -> None:
    if account.is_unlimited:
        return
    for need in needs:
        if not _allows(account, need, table):
            kind = "group" if need.is_group else "topic"
            raise refused(f"No default permission for {kind}:{one_line(need.name[:255])}")


def _allows(account: Account, need: Need, table: Table) -> bool:
    if not need.is_group:
        return _is_trace(need) or account.allows_topic(need.name, need.perm)
    if need.perm == Perm.PUB:
        return need.name not in table.producer_groups or account.is_producer_of(need.name)
    return account.allows_group(need.name, need.perm)


def refused(text: str) -> Refused:
    """Return a refusal as Java has it: code 1."""
    return Refused(ResponseCode.SYSTEM_ERROR, JAVA + text)


def _is_trace(need: Need) -> bool:
    return need.name == TRACE_TOPIC and need.perm == Perm.PUB
