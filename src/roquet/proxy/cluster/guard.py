"""What clients of a cluster's proxy may do, asked before a broker is asked in the proxy's name.

The proxy's own account may do everything at the brokers, so whatever a broker would ask of a
client's account in local mode is asked here: the needs of each operation (`operations.table`), and
where a request names a message by its place, the topic of that message.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from roquet.acl import needs
from roquet.acl.rights import EVERYBODY, Caller
from roquet.auth.guard import PolicyGuard
from roquet.auth.needs import broker_needs, name_server_needs
from roquet.base.errors import Refused
from roquet.broker.api.refusal import Reason, Refusal
from roquet.broker.operations.access import Authorized
from roquet.broker.services.access import Access
from roquet.broker.services.light_reads import is_visible, may_read
from roquet.protocol.codes import RequestCode, ResponseCode
from roquet.proxy.cluster.users import UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from roquet.acl.rights import Asking, RequestGuard
    from roquet.auth.directory import Directory
    from roquet.auth.model import Need
    from roquet.broker.api.caller import Caller as Client
    from roquet.broker.operations.wrapping import Operation
    from roquet.protocol.command import Command
    from roquet.proxy.cluster.users import ClusterUsers
    from roquet.store.records import Record

_at_broker = broker_needs("")


def proxy_needs(command: Command) -> Sequence[Need] | None:
    """Return what a request to the remoting port needs: what it needs where it goes."""
    if command.code == RequestCode.GET_ROUTEINFO_BY_TOPIC:
        return name_server_needs(command)
    return _at_broker(command)


class _At:
    """One of the directories that are in force."""

    def __init__(self, now: Directory) -> None:
        self.now = now


class ClusterGuard:
    """Lets through what the users of every broker let through (`ClusterUsers`)."""

    def __init__(self, users: ClusterUsers) -> None:
        """Judge by these."""
        self._users = users
        self._of: tuple[Directory, ...] = ()
        self._judges: tuple[PolicyGuard, ...] = ()
        self._secrets: Mapping[str, bytes] = {}

    @property
    def secrets(self) -> Mapping[str, bytes]:
        """User -> password, of those whom every broker lets in; a change makes another mapping."""
        self._follow()
        return self._secrets

    def check(self, command: Command, address: str) -> bool:
        """Raise Refused unless a request of the peer `ip:port` may be carried out."""
        is_signed = True
        for judge in self._all():
            is_signed = judge.check(command, address) and is_signed
        return is_signed

    def verify(self, key: str, is_by: Callable[[bytes], bool], address: str) -> None:
        """Raise Refused unless a request of another front may be that user's."""
        for judge in self._all():
            judge.verify(key, is_by, address)

    def check_waiting(
        self, code: int, caller: Asking, secret: bytes | None, needs: Sequence[needs.Need]
    ) -> None:
        """Raise Refused unless a request that waited may still be answered."""
        for judge in self._all():
            judge.check_waiting(code, caller, secret, needs)

    def caller(self, command: Command, address: str) -> Caller:
        """Return who sent a request that `check` let pass."""
        return self._all()[0].caller(command, address)

    def require(self, caller: Asking, needs: Sequence[needs.Need]) -> None:
        """Raise Refused unless the caller has all of the permissions."""
        for judge in self._all():
            judge.require(caller, needs)

    def require_admin(self, caller: Asking, what: str) -> None:
        """Raise Refused unless the caller is a super user."""
        for judge in self._all():
            judge.require_admin(caller, what)

    def has(self, caller: Asking, needs: Sequence[needs.Need]) -> bool:
        """Tell whether the caller has all of the permissions."""
        try:
            self.require(caller, needs)
        except Refused:
            return False
        return True

    def _all(self) -> tuple[PolicyGuard, ...]:
        """Return who judges, at least one. Raises Refused."""
        self._follow()
        if not self._judges:
            raise Refused(ResponseCode.NO_PERMISSION, UNKNOWN)
        return self._judges

    def _follow(self) -> None:
        now = self._users.now
        if now is not self._of:
            self._of = now
            self._judges = tuple(PolicyGuard(_At(each), proxy_needs) for each in now)
            self._secrets = dict(self._common())

    def _common(self) -> Iterator[tuple[str, bytes]]:
        first, *others = [judge.secrets for judge in self._judges] or [{}]
        for name, secret in first.items():
            if all(other.get(name) == secret for other in others):
                yield name, secret


class Gate:
    """What stands before every operation at a broker; without users everybody passes."""

    def __init__(self, users: ClusterUsers | None = None) -> None:
        """Judge by the users, if there are."""
        self._users = users
        self.guard: RequestGuard | None = None if users is None else ClusterGuard(users)
        self._rights = self.guard or EVERYBODY
        self.access = Access(self._rights)
        self._authorized = Authorized(self.access)

    @property
    def is_open(self) -> bool:
        """Whether nobody needs an account."""
        return self._users is None

    def require(
        self, operation: Operation, request: object, caller: Client, broker: str = ""
    ) -> None:
        """Raise Refusal unless a client may do this, and at this broker if one is named."""
        self._authorized.begin(operation, request, caller)
        if broker and self._users is not None and not self._users.is_known(broker):
            text = f"broker {broker[:255]} has not said lately which users and policies it has"
            raise Refusal(Reason.ACCOUNT_REFUSED, text)

    def secret(self, caller: Client) -> bytes | None:
        """Return what a client signs with now."""
        return self._rights.secrets.get(caller.access_key)

    def require_still(
        self, operation: Operation, request: object, caller: Client, secret: bytes | None
    ) -> None:
        """Raise Refusal unless a client who signed with `secret` may have what it waited for."""
        assert operation.needs is not None, "who waits is no administrator"
        try:
            self._rights.check_waiting(0, caller, secret, operation.needs(request))
        except Refused as refused:
            raise Refusal(Reason.ACCOUNT_REFUSED, refused.remark) from refused

    def is_visible(self, record: Record, topic: str, caller: Client) -> bool:
        """Tell whether a client that may read `topic` may read a message that lies there."""
        return is_visible(record, topic, may_read(self.access, caller))

    def may_publish(self, access_key: str, address: str, topic: str) -> bool:
        """Tell whether an account may send to a topic."""
        return self._rights.has(Caller(access_key, address), needs.publish(topic))
