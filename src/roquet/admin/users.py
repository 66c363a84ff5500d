"""Users and policies of access control 2.0, server by server."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, TypeVar

from roquet.admin.calls import Brokers, read
from roquet.base.arguments import checked
from roquet.base.errors import NotFound, OutcomeUnknown, Refused, Unreachable, UsageError
from roquet.protocol import fastjson
from roquet.protocol.bodies import fields
from roquet.protocol.codes import RequestCode, ResponseCode
from roquet.protocol.command import Command

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from roquet.admin.calls import Calls
    from roquet.base.errors import RoquetError


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class UserInfo:
    """A user, or what is to be changed of one: None is left as it is.

    `kind` is Super or Normal, `status` enable or disable. Brokers show passwords to Super users
    alone; the password is in no text that is made of this.
    """

    name: str
    password: str | None = dataclasses.field(default=None, repr=False)
    kind: str | None = None
    status: str | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PolicyEntry:
    """What a user may do with one resource (`Topic:orders`, `Group:*`, `*`), or may not.

    `actions` are Pub, Sub, Create and so on, `decision` is Allow or Deny. Without `sources` (IP
    addresses, blocks) it counts from everywhere. `policy` is Custom or Default; None for Custom.
    """

    resource: str
    actions: tuple[str, ...]
    decision: str
    sources: tuple[str, ...] = ()
    policy: str | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PolicyInfo:
    """The entries of a subject, `User:name`."""

    subject: str
    entries: tuple[PolicyEntry, ...]


T = TypeVar("T")

NAME_SERVER = "name server"
"""How a name server is named beside brokers."""

_NOBODY = "-"
"""No user: whether a server keeps users is asked without an answer that has a password."""

LOSES_IT = (
    "has no master now: its slaves alone are told, and lose the change when the master is back"
)
"""What becomes of a change at a broker of `Recipients.without_master`."""

NOT_TOLD = (
    "does not answer, so it is not told; when it is back, bring it the users with: "
    "roquet auth import BROKER-HOST:PORT"
)
"""What becomes of a change at a name server of `Recipients.away`."""


@dataclasses.dataclass(frozen=True, slots=True)
class Recipients:
    """Who is told of a change of users or policies.

    Slaves are told behind their masters: those of a master that is not ours keep users of their
    own. Name servers that keep users are told last: nothing copies users to them.
    """

    brokers: tuple[tuple[str, str], ...]
    """Name and address of every broker, masters first, then of every name server with users."""
    without_master: tuple[str, ...] = ()
    """Names of those whose slaves alone are there."""
    away: tuple[str, ...] = ()
    """Name servers that did not answer, so that nobody knows whether they keep users."""

    @property
    def everywhere(self) -> str:
        """Where a change is, in words."""
        too = any(name == NAME_SERVER for name, _ in self.brokers)
        where = "on every broker and name server" if too else "on every broker"
        missing = ", ".join((*self.without_master, *self.away))
        return f"{where} but {missing}" if missing else where

    @property
    def lost(self) -> tuple[str, ...]:
        """A text for each server that does not have the change, or will lose it."""
        return (
            *(f"{name} {LOSES_IT}; give the command again then" for name in self.without_master),
            *(f"{NAME_SERVER} at {address} {NOT_TOLD}" for address in self.away),
        )


@checked
class Users:
    """Users and policies; each question goes to one broker or name server, by its address.

    Every call raises Refused (3 where the broker has no users, 16 and 1 with the reason),
    Unreachable, and OutcomeUnknown where a change may have been made.
    """

    def __init__(self, calls: Calls) -> None:
        """Ask by these."""
        self._calls = calls
        self._brokers = Brokers(calls)

    async def recipients(self) -> Recipients:
        """Return the servers that a change is for, now. Raises NotFound without any broker."""
        known = (await self._brokers.known()).brokers
        found = sorted(
            (broker_id, name, address)
            for name, data in known.items()
            for broker_id, address in data.addresses.items()
        )
        if not found:
            raise NotFound("no broker is registered; try: roquet cluster health")
        alone = sorted(name for name, data in known.items() if data.master is None)
        servers, away = await self._name_servers()
        told = (*((name, address) for _, name, address in found), *servers)
        return Recipients(told, tuple(alone), tuple(away))

    async def keepers(self) -> dict[str, str]:
        """Return name -> address of the masters and of the name servers that keep users.

        `Calls.left_out` hears of those that are away. Raises NotFound, Unreachable.
        """
        found = dict(sorted((await self._brokers.masters()).items()))
        servers, away = await self._name_servers()
        for address, error in away.items():
            if self._calls.left_out is None:
                raise error
            self._calls.left_out(f"{NAME_SERVER} {address}", error)
        return found | {f"{name} {address}": address for name, address in servers}

    async def _name_servers(self) -> tuple[list[tuple[str, str]], dict[str, RoquetError]]:
        """Return name and address of the name servers with users, and which do not answer.

        One that runs without access control 2.0, as RocketMQ's do, answers that it does not know
        the request. One that refuses for another reason has users.
        """
        found: list[tuple[str, str]] = []
        away: dict[str, RoquetError] = {}
        for address in self._calls.name_servers:
            try:
                await self.get(address, _NOBODY)
            except Refused as refusal:
                if refusal.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                    continue
            except UsageError:
                continue  # so the command line says that a name server does not know a request
            except (Unreachable, OutcomeUnknown) as error:
                away[address] = error
                continue
            found.append((NAME_SERVER, address))
        return found, away

    async def create(self, address: str, user: UserInfo) -> None:
        """Make a user; without a kind it is Normal."""
        await self._ask(address, RequestCode.AUTH_CREATE_USER, {"username": user.name}, _user(user))

    async def update(self, address: str, user: UserInfo) -> None:
        """Change what is given of a user."""
        await self._ask(address, RequestCode.AUTH_UPDATE_USER, {"username": user.name}, _user(user))

    async def delete(self, address: str, name: str) -> None:
        """Delete a user with all policies."""
        await self._ask(address, RequestCode.AUTH_DELETE_USER, {"username": name})

    async def get(self, address: str, name: str) -> UserInfo | None:
        """Return a user; None where there is no such."""
        answer = await self._ask(address, RequestCode.AUTH_GET_USER, {"username": name})
        return read(_read_user, answer) if answer.body else None

    async def list_of(self, address: str, text: str | None = None) -> tuple[UserInfo, ...]:
        """Return the users, those with a text in their names."""
        answer = await self._ask(address, RequestCode.AUTH_LIST_USER, _given(filter=text))
        return read(_read_users, answer) if answer.body else ()

    async def add_policies(self, address: str, policies: PolicyInfo) -> None:
        """Add entries to a subject's; one about the same resource is replaced."""
        ext = {"subject": policies.subject}
        await self._ask(address, RequestCode.AUTH_CREATE_ACL, ext, _policies(policies))

    async def update_policies(self, address: str, policies: PolicyInfo) -> None:
        """Change entries of a subject, as `add_policies` does."""
        ext = {"subject": policies.subject}
        await self._ask(address, RequestCode.AUTH_UPDATE_ACL, ext, _policies(policies))

    async def delete_policies(
        self, address: str, subject: str, resource: str | None = None
    ) -> None:
        """Delete the `Custom` entry about a resource; without one, all policies of a subject."""
        ext = {"subject": subject, **_given(resource=resource)}
        await self._ask(address, RequestCode.AUTH_DELETE_ACL, ext)

    async def policies(self, address: str, subject: str) -> PolicyInfo | None:
        """Return the policies of a subject; None where there are none."""
        answer = await self._ask(address, RequestCode.AUTH_GET_ACL, {"subject": subject})
        return read(_read_policies, answer) if answer.body else None

    async def list_policies(
        self, address: str, subject: str | None = None, resource: str | None = None
    ) -> tuple[PolicyInfo, ...]:
        """Return policies, those with the texts in their subject and their resources."""
        ext = _given(subjectFilter=subject, resourceFilter=resource)
        answer = await self._ask(address, RequestCode.AUTH_LIST_ACL, ext)
        return read(_read_all_policies, answer) if answer.body else ()

    async def _ask(
        self, address: str, code: RequestCode, ext: Mapping[str, str], body: bytes = b""
    ) -> Command:
        return await self._calls.ask(address, Command(code=int(code), ext=dict(ext), body=body))


async def tell_all(
    brokers: Sequence[tuple[str, str]], tell: Callable[[str], Awaitable[None]]
) -> None:
    """Tell one after the other, given name and address of each.

    Raises Refused, saying who refused and how many were told.
    """
    for done, (name, address) in enumerate(brokers):
        told = f" ({done} of {len(brokers)} servers were told)" if done else ""
        await asked(f"{name} at {address}", tell(address), told)


async def asked(who: str, answer: Awaitable[T], behind: str = "") -> T:
    """Return an answer. Raises Refused, saying who refused and why."""
    try:
        return await answer
    except Refused as refusal:
        why = refusal.remark
        if refusal.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            why = "it keeps no users: it runs without authenticationEnabled=true"
        raise Refused(refusal.code, f"{who}: {why}{behind}") from refusal


def _given(**texts: str | None) -> dict[str, str]:
    return {name: text for name, text in texts.items() if text is not None}


def _user(user: UserInfo) -> bytes:
    source = _given(
        username=user.name, password=user.password, userType=user.kind, userStatus=user.status
    )
    return fastjson.java(source)


def _policies(policies: PolicyInfo) -> bytes:
    by_kind: dict[str | None, list[dict[str, Any]]] = {}
    for it in policies.entries:
        entry = {
            "resource": it.resource,
            "actions": list(it.actions),
            "sourceIps": list(it.sources),
            "decision": it.decision,
        }
        by_kind.setdefault(it.policy, []).append(entry)
    found = [{**_given(policyType=kind), "entries": entries} for kind, entries in by_kind.items()]
    return fastjson.java({"subject": policies.subject, "policies": found})


def _read_user(body: bytes) -> UserInfo:
    return _user_of(fastjson.read_object(body))


def _read_users(body: bytes) -> tuple[UserInfo, ...]:
    return tuple(_user_of(it) for it in _array(body))


def _read_policies(body: bytes) -> PolicyInfo:
    return _policies_of(fastjson.read_object(body))


def _read_all_policies(body: bytes) -> tuple[PolicyInfo, ...]:
    return tuple(_policies_of(it) for it in _array(body))


def _array(body: bytes) -> list[dict[str, Any]]:
    return fields.objects({"found": fastjson.read(body)}, "found")


def _user_of(source: Mapping[str, Any]) -> UserInfo:
    return UserInfo(
        name=fields.text(source, "username"),
        password=fields.optional_text(source, "password"),
        kind=fields.optional_text(source, "userType"),
        status=fields.optional_text(source, "userStatus"),
    )


def _policies_of(source: Mapping[str, Any]) -> PolicyInfo:
    entries = tuple(
        PolicyEntry(
            resource=fields.text(entry, "resource"),
            actions=tuple(fields.texts(entry, "actions")),
            decision=fields.text(entry, "decision"),
            sources=tuple(fields.texts(entry, "sourceIps")),
            policy=fields.optional_text(policy, "policyType"),
        )
        for policy in fields.objects(source, "policies")
        for entry in fields.objects(policy, "entries")
    )
    return PolicyInfo(subject=fields.text(source, "subject"), entries=entries)
