"""The users and policies of a server, and every way to change them. Pure.

Invariant: a user's policies exist only together with the user; within a policy each resource has
one entry; nothing is larger than the limits below. Each change returns a new directory.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from roquet.auth.model import Action, Decision, Match, Policy, PolicyType, ResourceType, User
from roquet.auth.policies import Acl
from roquet.base.errors import RoquetError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from roquet.auth.model import Entry, Resource, UserStatus, UserType

NAME_MAX = 255
PASSWORD_MAX = 1024
USERS_MAX = 10_000
ENTRIES_MAX = 10_000
"""Entries that one user may have."""
ENTRIES_TOTAL_MAX = 200_000
_BLANK = "username can not be blank"


class AuthFault(RoquetError):  # noqa: N818  (it is an answer, not an accident)
    """A change or a question that cannot be answered; the text is RocketMQ's where it has one."""


@dataclasses.dataclass(frozen=True, slots=True)
class UserChange:
    """What is to be made or changed of a user; None: stays, or has its default."""

    name: str
    password: str | None = dataclasses.field(default=None, repr=False)
    kind: UserType | None = None
    status: UserStatus | None = None


@dataclasses.dataclass(frozen=True)
class Directory:
    """Users and their policies at one moment."""

    users: Mapping[str, User] = dataclasses.field(default_factory=dict[str, User])
    acls: Mapping[str, Acl] = dataclasses.field(default_factory=dict[str, Acl])
    """User name -> policies."""
    version: int = 0
    """Grows with every change."""

    def user(self, name: str | None) -> User | None:
        """Return a user. Raises AuthFault for a blank name."""
        if name is None or not name.strip():
            raise AuthFault(_BLANK)
        return self.users.get(name)

    def with_user(self, change: UserChange) -> Directory:
        """Make a user. Raises AuthFault."""
        return self.with_users([(change, ())])

    def with_users(self, made: Iterable[tuple[UserChange, Sequence[Policy]]]) -> Directory:
        """Make users with policies; the tables are copied once for all. Raises AuthFault."""
        users, acls, total = dict(self.users), dict(self.acls), self._entries()
        for change, policies in made:
            if not change.name.strip():
                raise AuthFault(_BLANK)
            if change.password is None or not change.password.strip():
                raise AuthFault("password can not be blank")
            if change.name in users:
                raise AuthFault("The user is existed")
            if len(users) >= USERS_MAX:
                raise AuthFault(f"There are {USERS_MAX} users: no more are allowed.")
            user = User(name=change.name, password=change.password)
            users[change.name] = _changed(user, change)
            if policies:
                total += sum(len(policy.entries) for policy in policies)
                acls[change.name] = _grown(Acl(()), policies, total)
        return self._next(users=users, acls=acls)

    def changed_user(self, change: UserChange) -> Directory:
        """Change what is given of a user. Raises AuthFault."""
        old = self.user(change.name)
        if old is None:
            raise AuthFault("The user is not exist")
        return self._next(users={**self.users, old.name: _changed(old, change)})

    def without_user(self, name: str) -> Directory:
        """Delete a user and the policies; one who is not there is no fault."""
        if self.user(name) is None:
            return self
        users = {key: user for key, user in self.users.items() if key != name}
        acls = {key: acl for key, acl in self.acls.items() if key != name}
        return self._next(users=users, acls=acls)

    def with_policies(self, name: str, policies: tuple[Policy, ...]) -> Directory:
        """Add entries to a user's policies; one about the same resource is replaced.

        Raises AuthFault.
        """
        if self.user(name) is None:
            raise AuthFault(f"The subject of User:{name} is not exist.")
        total = self._entries() + sum(len(policy.entries) for policy in policies)
        acl = _grown(self.acls.get(name) or Acl(()), policies, total)
        return self._next(acls={**self.acls, name: acl})

    def without_policies(
        self, name: str, kind: PolicyType | None, resource: Resource | None
    ) -> Directory:
        """Delete the entry about a resource, or all policies of a user. Raises AuthFault."""
        acl = self.acl(name)
        if acl is None:
            raise AuthFault("The acl is not exist.")
        left = Acl(()) if resource is None else _less(acl, kind or PolicyType.CUSTOM, resource)
        acls = {key: one for key, one in self.acls.items() if key != name}
        if left.policies:
            acls[name] = left
        return self._next(acls=acls)

    def has_same(self, other: Directory) -> bool:
        """Tell whether the users and their policies are the same, whatever the versions are."""
        return self.users == other.users and self.acls == other.acls

    def acl(self, name: str) -> Acl | None:
        """Return the policies of a user; None where there are none. Raises AuthFault."""
        if self.user(name) is None:
            raise AuthFault("The subject is not exist.")
        return self.acls.get(name)

    def find_users(self, part: str) -> list[User]:
        """Return the users with a text in their names, by name."""
        return [user for name, user in sorted(self.users.items()) if part in name]

    def find_acls(self, subject: str, resource: str) -> list[tuple[str, Acl]]:
        """Return policies of subjects with a text in `User:name`, by name.

        With a text for resources only the entries with it in their resource are shown.
        """
        found: list[tuple[str, Acl]] = []
        for name, acl in sorted(self.acls.items()):
            if subject and subject not in f"User:{name}":
                continue
            shown = acl if not resource else _about(acl, resource)
            if shown.policies:
                found.append((name, shown))
        return found

    def producer_groups(self) -> frozenset[str]:
        """Return the producer groups that only users may join whom a policy names for it."""
        return frozenset(
            entry.resource.name
            for acl in self.acls.values()
            for policy in acl.policies
            for entry in policy.entries
            if entry.resource.kind is ResourceType.GROUP
            and entry.resource.match is Match.LITERAL
            and Action.PUB in entry.actions
            and entry.decision is Decision.ALLOW
        )

    def _entries(self) -> int:
        return sum(len(it.entries) for one in self.acls.values() for it in one.policies)

    def _next(
        self, *, users: Mapping[str, User] | None = None, acls: Mapping[str, Acl] | None = None
    ) -> Directory:
        return Directory(
            users=self.users if users is None else users,
            acls=self.acls if acls is None else acls,
            version=self.version + 1,
        )


def _changed(user: User, change: UserChange) -> User:
    given = change.password if change.password is not None and change.password.strip() else None
    if len(user.name) > NAME_MAX or not user.name.isprintable():
        raise AuthFault(f"The username has to be printable, at most {NAME_MAX} characters.")
    if given is not None and len(given) > PASSWORD_MAX:
        raise AuthFault(f"The password has to have at most {PASSWORD_MAX} characters.")
    return User(
        name=user.name,
        password=user.password if given is None else given,
        kind=change.kind or user.kind,
        status=change.status or user.status,
    )


def _grown(acl: Acl, policies: Iterable[Policy], total: int) -> Acl:
    """Return the policies with others; `total` is how many entries all users have then."""
    for policy in policies:
        acl = _merged(acl, policy)
    if sum(len(policy.entries) for policy in acl.policies) > ENTRIES_MAX:
        raise AuthFault(f"A user may have {ENTRIES_MAX} policy entries.")
    if total > ENTRIES_TOTAL_MAX:
        raise AuthFault(f"All users may have {ENTRIES_TOTAL_MAX} policy entries.")
    return acl


def _merged(acl: Acl, policy: Policy) -> Acl:
    old = acl.of(policy.kind)
    by_resource: dict[Resource, Entry] = {}
    for entry in (*(old.entries if old is not None else ()), *policy.entries):
        # What is replaced keeps its place.
        by_resource[entry.resource] = entry
    new = Policy(policy.kind, tuple(by_resource.values()))
    if old is None:
        return Acl((*acl.policies, new))
    return Acl(tuple(new if it is old else it for it in acl.policies))


def _less(acl: Acl, kind: PolicyType, resource: Resource) -> Acl:
    kept: list[Policy] = []
    for policy in acl.policies:
        entries = policy.entries
        if policy.kind is kind:
            entries = tuple(it for it in entries if it.resource != resource)
        if entries:
            kept.append(Policy(policy.kind, entries))
    return Acl(tuple(kept))


def _about(acl: Acl, text: str) -> Acl:
    kept = (
        Policy(it.kind, tuple(entry for entry in it.entries if text in entry.resource.key))
        for it in acl.policies
    )
    return Acl(tuple(policy for policy in kept if policy.entries))
