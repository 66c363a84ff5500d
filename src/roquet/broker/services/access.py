"""What the account of a caller may do, asked when a service knows what a request is about."""

from __future__ import annotations

from typing import TYPE_CHECKING

from roquet.acl.accounts import Perm
from roquet.acl.needs import topic
from roquet.acl.rights import EVERYBODY
from roquet.base.errors import Refused
from roquet.broker.api.refusal import Reason, Refusal
from roquet.protocol.light import light_queues

if TYPE_CHECKING:
    from collections.abc import Sequence

    from roquet.acl.needs import Need
    from roquet.acl.rights import Rights
    from roquet.broker.api.caller import Caller
    from roquet.store.records import Record


class Access:
    """Answers for services; fronts verify who it is before that."""

    def __init__(self, rights: Rights = EVERYBODY) -> None:
        """Without `rights` everybody may do everything."""
        self._rights = rights

    @property
    def is_open(self) -> bool:
        """Whether nobody needs an account."""
        return self._rights is EVERYBODY

    def secret(self, caller: Caller) -> bytes | None:
        """Return what a caller signs with now; None where nobody has to sign."""
        return self._rights.secrets.get(caller.access_key)

    def require_read(self, caller: Caller, name: str) -> None:
        """Raise Refusal unless the caller may read a topic; a retry topic is its group's."""
        self.require(caller, (topic(name, Perm.SUB | Perm.GET),))

    def require_message(self, caller: Caller, record: Record) -> None:
        """Raise Refusal unless the caller may read the topic of a message, and whose copy it is."""
        self.require_read(caller, record.topic)
        owner = light_queues.owner(record.topic, record.properties)
        if owner != record.topic:
            self.require_read(caller, owner)

    def require_write(self, caller: Caller, name: str) -> None:
        """Raise Refusal unless the caller may send to a topic."""
        self.require(caller, (topic(name, Perm.PUB),))

    def require(self, caller: Caller, needs: Sequence[Need]) -> None:
        """Raise Refusal unless the caller has all of the permissions."""
        try:
            self._rights.require(caller, needs)
        except Refused as refused:
            raise Refusal(Reason.ACCOUNT_REFUSED, refused.remark) from refused

    def require_admin(self, caller: Caller, what: str) -> None:
        """Raise Refusal unless the caller is an administrator; `what` is what it wants to do."""
        try:
            self._rights.require_admin(caller, what)
        except Refused as refused:
            raise Refusal(Reason.ACCOUNT_REFUSED, refused.remark) from refused
