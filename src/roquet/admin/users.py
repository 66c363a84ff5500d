"""Users and policies of access control 2.0, broker by broker."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, TypeVar

from roquet.admin.calls import Brokers, read
from roquet.base.arguments import checked
from roquet.base.errors import NotFound, Refused
from roquet.protocol import fastjson
from roquet.protocol.bodies import fields
from roquet.protocol.codes import RequestCode, ResponseCode
from roquet.protocol.command import Command

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from roquet.admin.calls import Calls


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

LOSES_IT = (
    "has no master now: its slaves alone are told, and lose the change when the master is back"
)
"""What becomes of a change at a broker of `Recipients.without_master`."""


@dataclasses.dataclass(frozen=True, slots=True)
class Recipients:
    """Who is told of a change of users or policies.

    Slaves are told behind their masters: those of a master that is not ours keep users of their
    own.
    """

    brokers: tuple[tuple[str, str], ...]
    """Name and address of every broker, masters first."""
    without_master: tuple[str, ...]
    """Names of those whose slaves alone are there."""

    @property
    def everywhere(self) -> str:
        """Where a change is, in words."""
        away = ", ".join(self.without_master)
        return f"on every broker but {away}" if away else "on every broker"


@checked
class Users:
    """Users and policies; each question goes to one broker, by its address.

    Every call raises Refused (3 where the broker has no users, 16 and 1 with the reason),
    Unreachable, and OutcomeUnknown where a change may have been made.
    """

    def __init__(self, calls: Calls) -> None:
        """Ask by these."""
        self._calls = calls
        self._brokers = Brokers(calls)

    async def recipients(self) -> Recipients:
        """Return the brokers that a change is for, now. Raises NotFound without any."""
        known = (await self._brokers.known()).brokers
        found = sorted(
            (broker_id, name, address)
            for name, data in known.items()
            for broker_id, address in data.addresses.items()
        )
        if not found:
            raise NotFound("no broker is registered; try: roquet cluster health")
        alone = sorted(name for name, data in known.items() if data.master is None)
        return Recipients(tuple((name, address) for _, name, address in found), tuple(alone))

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
        told = f" ({done} of {len(brokers)} brokers were told)" if done else ""
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
