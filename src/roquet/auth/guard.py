"""Whether a request may be carried out: the signature of a user, then the user's policies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from roquet.acl import needs as by_account
from roquet.acl.accounts import Perm
from roquet.acl.rights import Caller
from roquet.acl.signature import ACCESS_KEY, is_signed
from roquet.auth.model import Decision, Match, ResourceType
from roquet.auth.needs import joined, of_account
from roquet.auth.policies import deciding
from roquet.base.errors import Refused
from roquet.protocol.codes import ResponseCode
from roquet.protocol.names import is_waiting_room
from roquet.service.ratelog import one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from roquet.acl.rights import Asking
    from roquet.auth.directory import Directory
    from roquet.auth.model import Need, User
    from roquet.auth.needs import Needs
    from roquet.protocol.command import Command


class Source(Protocol):
    """Has the users in force."""

    @property
    def now(self) -> Directory:
        """The users and policies as they are now."""
        ...


class PolicyGuard:
    """Checks requests against the users and policies in force.

    A request whose code is in the first white list may come without a signature; then it is
    nobody's, whatever name it has. Policies say nothing about codes in the second one.
    """

    def __init__(
        self,
        source: Source,
        needs: Needs,
        *,
        unsigned: frozenset[int] = frozenset(),
        unchecked: frozenset[int] = frozenset(),
    ) -> None:
        """`needs` says what each request needs."""
        self._source = source
        self._needs = needs
        self._unsigned = unsigned
        self._unchecked = unchecked
        self._joinable = _Joinable()
        self._secrets: tuple[Directory | None, Mapping[str, bytes]] = None, {}

    @property
    def secrets(self) -> Mapping[str, bytes]:
        """User -> password, of those who are let in; a change makes another mapping."""
        directory = self._source.now
        if self._secrets[0] is not directory:
            users = (user for user in directory.users.values() if user.is_enabled)
            self._secrets = directory, {user.name: user.password.encode() for user in users}
        return self._secrets[1]

    def check(self, command: Command, address: str) -> bool:
        """Raise Refused, with Java's code and words, unless the request may be carried out.

        Return whether a user signed it: one whose code is in the white list may be nobody's.
        """
        directory = self._source.now
        name = (command.ext or {}).get(ACCESS_KEY, "")
        try:
            user = _signer(directory, name, lambda secret: is_signed(command, secret))
        except Refused:
            if command.code not in self._unsigned:
                raise
            user = None
        if command.code in self._unchecked or (user is not None and user.is_super):
            return user is not None
        needs = self._needs(command)
        if needs is None:
            raise _refused(
                f"{_subject(user)} has no permission for request code={command.code}: it needs a"
                " super user"
            )
        for need in needs:
            _require(directory, user, need, address)
        producers = joined(command)
        if producers is not None:
            self._require_membership(directory, user, by_account.producer(producers), address)
        return user is not None

    def _require_membership(
        self, directory: Directory, user: User | None, asked: by_account.Need, address: str
    ) -> None:
        """Raise Refused unless a user may join a producer group.

        Its members are asked about half messages. Everybody may join one that no policy names.
        """
        if asked.name in self._joinable.named(directory):
            _require(directory, user, of_account(asked), address)

    def verify(self, key: str, is_by: Callable[[bytes], bool], address: str) -> None:
        """Raise Refused unless a request of another front may be that user's.

        `is_by` tells whether a password made the signature that the request has.
        """
        del address
        _signer(self._source.now, key, is_by)

    def check_waiting(
        self, code: int, caller: Asking, secret: bytes | None, needs: Sequence[by_account.Need]
    ) -> None:
        """Raise Refused unless a request that waited may still be answered."""
        if not caller.access_key and code in self._unsigned:
            return
        user = _enabled(self._source.now, caller.access_key)
        if user.password.encode() != secret:
            raise _refused("check signature failed.")
        if code not in self._unchecked:
            self.require(caller, needs)

    def caller(self, command: Command, address: str) -> Caller:
        """Return who sent a request that `check` let pass."""
        name = (command.ext or {}).get(ACCESS_KEY, "")
        if command.code in self._unsigned:
            try:
                _signer(self._source.now, name, lambda secret: is_signed(command, secret))
            except Refused:
                name = ""
        return Caller(name, address)

    def require(self, caller: Asking, needs: Sequence[by_account.Need]) -> None:
        """Raise Refused unless the caller has all of the permissions, by the policies in force."""
        directory = self._source.now
        user = _enabled(directory, caller.access_key)
        if user.is_super:
            return
        for asked in needs:
            if asked.is_group and asked.perm == Perm.PUB:
                self._require_membership(directory, user, asked, caller.address)
            else:
                _require(directory, user, of_account(asked), caller.address)

    def require_admin(self, caller: Asking, what: str) -> None:
        """Raise Refused unless the caller is a super user."""
        user = _enabled(self._source.now, caller.access_key)
        if not user.is_super:
            raise _refused(f"{_subject(user)} has no permission for {what}: it needs a super user")

    def has(self, caller: Asking, needs: Sequence[by_account.Need]) -> bool:
        """Tell whether the caller has all of the permissions, by the policies in force."""
        try:
            self.require(caller, needs)
        except Refused:
            return False
        return True

    def is_super(self, caller: Asking) -> bool:
        """Tell whether the caller is a super user."""
        user = self._source.now.users.get(caller.access_key)
        return user is not None and user.is_enabled and user.is_super


class _Joinable:
    """Remembers which producer groups are named in policies, by the directory they are of."""

    def __init__(self) -> None:
        self._of: Directory | None = None
        self._named: frozenset[str] = frozenset()

    def named(self, directory: Directory) -> frozenset[str]:
        if directory is not self._of:
            self._of, self._named = directory, directory.producer_groups()
        return self._named


def _signer(directory: Directory, name: str, is_by: Callable[[bytes], bool]) -> User:
    """Return the user that signed. Raises Refused for nobody."""
    user = _enabled(directory, name)
    if not is_by(user.password.encode()):
        raise _refused("check signature failed.")
    return user


def _enabled(directory: Directory, name: str) -> User:
    """Return a user who is let in. Raises Refused in Java's words."""
    if not name.strip():
        raise _refused("username cannot be null.")
    user = directory.users.get(name)
    if user is None:
        raise _refused(f"User:{one_line(name[:64])} is not found.")
    if not user.is_enabled:
        raise _refused(f"User:{one_line(name[:64])} is disabled.")
    return user


def _require(directory: Directory, user: User | None, need: Need, address: str) -> None:
    """Raise Refused unless the policies allow what is needed."""
    why = "no matched policies."
    if user is not None:
        if user.is_super:
            return
        entry = deciding(directory.acls.get(user.name), need, address)
        resource = need.resource
        hidden = resource.kind is ResourceType.TOPIC and is_waiting_room(resource.name)
        # Where messages of all other topics wait, only an entry that names it is meant.
        if entry is not None and not (hidden and entry.resource.match is not Match.LITERAL):
            if entry.decision is Decision.ALLOW:
                return
            why = "the decision is deny."
    host = address.rpartition(":")[0]
    key = one_line(need.resource.key[:300])
    raise _refused(f"{_subject(user)} has no permission to access {key} from {host}, {why}")


def _subject(user: User | None) -> str:
    return "null" if user is None else f"User:{one_line(user.name[:64])}"


def _refused(text: str) -> Refused:
    return Refused(ResponseCode.NO_PERMISSION, text)
