"""Whether a request may be carried out: address, signature, permissions, in this order."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Protocol

from roquet.acl.accounts import Perm
from roquet.acl.addresses import peer_parts
from roquet.acl.signature import ACCESS_KEY, is_signed
from roquet.base.errors import Refused
from roquet.protocol.codes import ResponseCode
from roquet.protocol.names import TRACE_TOPIC
from roquet.service.ratelog import one_line

if TYPE_CHECKING:
    from roquet.acl.accounts import Account, Table
    from roquet.acl.needs import Need, Needs
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

    def check(self, command: Command, address: str) -> None:
        """Raise Refused, with Java's code and words, unless the request may be carried out."""
        table = self._source.table
        parts = peer_parts(address)
        if any(pattern.matches(parts) for pattern in table.white):
            return
        key = (command.ext or {}).get(ACCESS_KEY)
        if not key:
            raise refused("No accessKey is configured")
        account = table.accounts.get(key)
        if account is not None and account.white.matches(parts):
            return
        # An unknown key takes as long, and is answered the same, as a wrong signature.
        secret = hashlib.sha256(key.encode("utf-8", "replace")).digest()
        if not is_signed(command, account.secret if account else secret) or account is None:
            raise refused(f"Check signature failed for accessKey={one_line(key[:64])}")
        self._permit(command, account)

    def _permit(self, command: Command, account: Account) -> None:
        needs = self._needs(command)
        if needs is None:
            if not account.admin:
                raise refused(
                    f"Need admin permission for request code={command.code},"
                    f" but accessKey={account.access_key} is not"
                )
            return
        if account.is_unlimited or any(_is_trace(need) for need in needs):
            return
        for need in needs:
            allows = account.allows_group if need.is_group else account.allows_topic
            if not allows(need.name, need.perm):
                kind = "group" if need.is_group else "topic"
                raise refused(f"No default permission for {kind}:{one_line(need.name[:255])}")


def refused(text: str) -> Refused:
    """Return a refusal as Java has it: code 1."""
    return Refused(ResponseCode.SYSTEM_ERROR, JAVA + text)


def _is_trace(need: Need) -> bool:
    return need.name == TRACE_TOPIC and need.perm == Perm.PUB and not need.is_group
