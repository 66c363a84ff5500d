"""What tools ask for and change of users and policies: request codes 3001 to 3010.

A password is shown only to a super user, who has to have it to copy users. Every change leaves a
line in the log: who, what, about whom, from where.
"""

from __future__ import annotations

import dataclasses
import logging
from typing import TYPE_CHECKING, Protocol, TypeVar

from roquet.auth.bodies import (
    Unreadable,
    acl_json,
    read_acl,
    read_resource,
    read_user,
    subject_name,
    user_json,
    word,
)
from roquet.auth.directory import AuthFault
from roquet.auth.keeping.snapshots import Snapshots
from roquet.auth.model import PolicyType, UserStatus, UserType
from roquet.base.errors import Refused
from roquet.protocol import fastjson
from roquet.protocol.codes import ResponseCode
from roquet.service.ratelog import one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from roquet.acl.rights import Asking
    from roquet.auth.directory import Directory
    from roquet.auth.keeping.users import Edit, Users

log = logging.getLogger(__name__)

T = TypeVar("T")

NOT_WRITTEN = "users and policies could not be written"
OF_MASTER = "users and policies of this slave are those of its master at {}: change them there"
_BLANK = "The username is blank"
_SNAPSHOT = "only super users may copy all users"
_ONLY_SUPERS = "The super user can only be {} by super user"


class Supers(Protocol):
    """Knows who is a super user, whom no policy binds."""

    def is_super(self, caller: Asking) -> bool:
        """Tell whether the caller is one."""
        ...


class UserTools:
    """Answers requests about users and policies. Raises Refused with Java's codes and words."""

    def __init__(self, users: Users, supers: Supers) -> None:
        self._users = users
        self._supers = supers
        self._snapshots = Snapshots(users)

    async def create_user(self, ext: Mapping[str, str], body: bytes, caller: Asking) -> None:
        """Make a user (3001)."""
        wanted = _read(lambda: read_user(_username(ext), body))
        if wanted.kind is UserType.SUPER and not self._supers.is_super(caller):
            raise Refused(ResponseCode.SYSTEM_ERROR, _ONLY_SUPERS.format("create"))
        await self._change(
            lambda it: it.with_user(wanted),
            *("created", wanted.name, caller),
            # Without a kind and a status it is made with those of `User`.
            done=lambda it: it.changed_user(
                dataclasses.replace(
                    wanted,
                    kind=wanted.kind or UserType.NORMAL,
                    status=wanted.status or UserStatus.ENABLE,
                )
            ),
        )

    async def update_user(self, ext: Mapping[str, str], body: bytes, caller: Asking) -> None:
        """Change a user (3002)."""
        wanted = _read(lambda: read_user(_username(ext), body))
        if wanted.kind is UserType.SUPER and not self._supers.is_super(caller):
            raise Refused(ResponseCode.SYSTEM_ERROR, _ONLY_SUPERS.format("update"))

        def edit(directory: Directory) -> Directory:
            self._demand_super(directory, wanted.name, caller)
            return directory.changed_user(wanted)

        await self._change(edit, "changed", wanted.name, caller)

    async def delete_user(self, ext: Mapping[str, str], caller: Asking) -> None:
        """Delete a user and the policies (3003)."""
        name = ext.get("username", "")

        def edit(directory: Directory) -> Directory:
            self._demand_super(directory, name, caller)
            return directory.without_user(name)

        await self._change(edit, "deleted", name, caller)

    def get_user(self, ext: Mapping[str, str], caller: Asking) -> bytes | None:
        """Show a user (3004); None where there is no such."""
        name = _username(ext)
        if not name.strip():
            raise Refused(ResponseCode.INVALID_PARAMETER, _BLANK)
        user = _fault_free(lambda: self._users.now.user(name))
        if user is None:
            return None
        shows = self._supers.is_super(caller)
        return fastjson.java(user_json(user, with_password=shows))

    def list_users(self, ext: Mapping[str, str], caller: Asking) -> bytes | None:
        """Show the users with a text in their names (3005); None where there are none."""
        shows = self._supers.is_super(caller)
        found = self._users.now.find_users(ext.get("filter", ""))
        if not found:
            return None
        return fastjson.java([user_json(user, with_password=shows) for user in found])

    async def create_acl(self, ext: Mapping[str, str], body: bytes, caller: Asking) -> None:
        """Add policy entries for a user (3006)."""
        given, policies = _read(lambda: read_acl(body))
        name = given if given is not None else _read(lambda: _subject(ext))
        edit: Edit = lambda it: it.with_policies(name, policies)  # noqa: E731
        await self._change(edit, "given policies", name, caller)

    async def delete_acl(self, ext: Mapping[str, str], caller: Asking) -> None:
        """Delete the entry about a resource, or all policies of a user (3008)."""
        name = _fault_free(lambda: _subject(ext))
        kind = word(PolicyType, ext.get("policyType"))
        resource = read_resource(ext.get("resource"))
        edit: Edit = lambda it: it.without_policies(name, kind, resource)  # noqa: E731
        done: Edit = lambda it: edit(it) if name in it.acls else it  # noqa: E731
        await self._change(edit, "taken policies from", name, caller, done=done)

    def get_acl(self, ext: Mapping[str, str]) -> bytes | None:
        """Show the policies of a user (3009); None where there are none."""
        name = _fault_free(lambda: _subject(ext))
        acl = _fault_free(lambda: self._users.now.acl(name))
        return None if acl is None else fastjson.java(acl_json(name, acl))

    def list_acls(self, ext: Mapping[str, str]) -> bytes | None:
        """Show policies by subject and resource (3010); None where there are none."""
        found = self._users.now.find_acls(
            ext.get("subjectFilter", ""), ext.get("resourceFilter", "")
        )
        return fastjson.java([acl_json(name, acl) for name, acl in found]) if found else None

    async def snapshot(
        self, ext: Mapping[str, str], caller: Asking
    ) -> tuple[dict[str, str], bytes]:
        """Show slaves all users, with passwords, and policies (7003): fields and body."""
        if not self._supers.is_super(caller):
            raise Refused(ResponseCode.NO_PERMISSION, _SNAPSHOT)
        try:
            return await self._snapshots.answer(ext)
        except ValueError:
            raise Refused(ResponseCode.INVALID_PARAMETER, "offset is no number") from None

    def _demand_super(self, directory: Directory, name: str, caller: Asking) -> None:
        """Raise AuthFault where a user who is not super would change one who is."""
        old = directory.user(name)
        if old is not None and old.is_super and not self._supers.is_super(caller):
            raise AuthFault(_ONLY_SUPERS.format("update"))

    async def _change(
        self, edit: Edit, what: str, name: str, caller: Asking, *, done: Edit | None = None
    ) -> None:
        """Make a change. Raises Refused.

        Where the users are copies of a master's nothing is changed: whoever tells all brokers of
        a cluster has told the master before, and what `done` (else `edit`) leaves as it is has
        come from there.
        """
        master = await self._users.of_master()
        if master is not None:
            if not _is_done(done or edit, self._users.now):
                raise Refused(ResponseCode.SYSTEM_ERROR, OF_MASTER.format(master))
            return
        try:
            await self._users.change(edit)
        except AuthFault as fault:
            raise _refused(fault) from fault
        except OSError as error:
            raise Refused(ResponseCode.SYSTEM_ERROR, f"{NOT_WRITTEN}: {error.strerror}") from error
        log.info(
            "User:%s was %s by User:%s from %s",
            *(one_line(name), what, one_line(caller.access_key), caller.address),
        )


def _is_done(edit: Edit, now: Directory) -> bool:
    try:
        return edit(now).has_same(now)
    except AuthFault:
        return False


def _username(ext: Mapping[str, str]) -> str:
    name = ext.get("username", "")
    if not name:
        raise Refused(ResponseCode.INVALID_PARAMETER, _BLANK)
    return name


def _subject(ext: Mapping[str, str]) -> str:
    """Return the user that a request is about. Raises AuthFault."""
    name = subject_name(ext.get("subject"))
    if name is None:
        raise AuthFault("The subject is null.")
    return name


def _read(action: Callable[[], T]) -> T:
    """Return what an action reads. Raises Refused where it raises AuthFault or Unreadable."""
    try:
        return _fault_free(action)
    except Unreadable as unreadable:
        # A Java broker says no more than that something went wrong.
        raise Refused(ResponseCode.SYSTEM_ERROR, str(unreadable)) from unreadable


def _fault_free(action: Callable[[], T]) -> T:
    """Return what an action does. Raises Refused where it raises AuthFault."""
    try:
        return action()
    except AuthFault as fault:
        raise _refused(fault) from fault


def _refused(fault: AuthFault) -> Refused:
    return Refused(ResponseCode.NO_PERMISSION, str(fault))
