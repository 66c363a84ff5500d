"""Users and policies as JSON: UserInfo and AclInfo of RocketMQ, read and written. Pure.

Words are read in any case. A word that is none counts as absent, as at a Java broker, which says
what is missing then.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Any, TypeVar

from roquet.auth.directory import NAME_MAX, AuthFault, UserChange
from roquet.auth.model import (
    EVERYTHING,
    Action,
    Decision,
    Entry,
    Match,
    Policy,
    PolicyType,
    Resource,
    ResourceType,
    UserStatus,
    UserType,
)
from roquet.auth.sources import Source
from roquet.base.errors import RoquetError, UsageError
from roquet.protocol import fastjson
from roquet.protocol.bodies import fields

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from roquet.auth.model import User
    from roquet.auth.policies import Acl

SUBJECT_PREFIX = "User:"
SOURCES_MAX = 1_000
ITEMS_MAX = 10_000

E = TypeVar("E", bound=enum.Enum)


class Unreadable(RoquetError):  # noqa: N818  (it is an answer, not an accident)
    """A body that is not of the shape that was agreed on; the text shows nothing of it."""


def word(kind: type[E], text: str | None) -> E | None:
    """Return the member that a word stands for, in any case; None where it stands for none."""
    if text is None:
        return None
    low = text.lower()
    return next((it for it in kind if str(it.value).lower() == low), None)


def read_user(name: str, body: bytes) -> UserChange:
    """Read a UserInfo; the name is the request's. Raises Unreadable."""
    return user_of(name, _object(body))


def user_of(name: str, source: Mapping[str, Any]) -> UserChange:
    """Read the fields of a UserInfo. Raises Unreadable."""
    try:
        return UserChange(
            name=name,
            password=fields.optional_text(source, "password"),
            kind=word(UserType, fields.optional_text(source, "userType")),
            status=word(UserStatus, fields.optional_text(source, "userStatus")),
        )
    except ValueError:
        # Nothing is shown of a text with a password.
        raise Unreadable("The user has to have texts only.") from None


def user_json(user: User, *, with_password: bool) -> dict[str, Any]:
    """Return the fields of a UserInfo."""
    return {
        "password": user.password if with_password else None,
        "userStatus": user.status.value,
        "userType": user.kind.value,
        "username": user.name,
    }


def subject_name(key: str | None) -> str | None:
    """Return the user's name of a subject, `User:name`; None for what is no subject."""
    kind, _, name = (key or "").partition(":")
    return name if kind.lower() == "user" else None


def read_resource(text: str | None) -> Resource | None:
    """Read a resource as tools write it; None for a kind that there is not."""
    kind_text, _, name = (text or "").partition(":")
    kind = ResourceType.ANY if text == "*" else word(ResourceType, kind_text)
    if kind is None:
        return None
    if kind is ResourceType.ANY:
        return EVERYTHING
    if name == "*":
        return Resource(kind, "", Match.ANY)
    if name.endswith("*"):
        return Resource(kind, name.partition("*")[0], Match.PREFIXED)
    return Resource(kind, name)


def read_acl(body: bytes) -> tuple[str | None, tuple[Policy, ...]]:
    """Read an AclInfo: whose policies, None where that is not said, and the policies, checked.

    Raises AuthFault in the words of a Java broker, and Unreadable.
    """
    source = _object(body)
    try:
        subject = fields.optional_text(source, "subject")
    except ValueError as error:
        raise Unreadable(f"The acl can not be read: {error}"[:300]) from None
    return subject_name(subject), policies_of(source)


def policies_of(source: Mapping[str, Any]) -> tuple[Policy, ...]:
    """Read the policies of an AclInfo. Raises AuthFault, and Unreadable."""
    try:
        policies = fields.objects(source, "policies")
        if not policies:
            raise Unreadable("The body of acl is null")
        found = [_policy(it) for it in policies]
    except ValueError as error:
        raise Unreadable(f"The acl can not be read: {error}"[:300]) from None
    kept = tuple(policy for policy in found if policy is not None)
    if not kept:
        raise AuthFault("The policies is empty.")
    return kept


def acl_json(name: str, acl: Acl) -> dict[str, Any]:
    """Return the fields of an AclInfo."""
    return {
        "policies": [
            {
                "entries": [_entry_json(entry) for entry in policy.entries],
                "policyType": policy.kind.value,
            }
            for policy in acl.policies
        ],
        "subject": SUBJECT_PREFIX + name,
    }


def _policy(source: Mapping[str, Any]) -> Policy | None:
    kind = word(PolicyType, fields.optional_text(source, "policyType")) or PolicyType.CUSTOM
    entries = fields.objects(source, "entries")
    if not entries:
        return None
    if len(entries) > ITEMS_MAX:
        raise AuthFault(f"A policy may have {ITEMS_MAX} entries.")
    by_resource: dict[Resource, Entry] = {}
    for one in entries:
        entry = _entry(one)
        by_resource[entry.resource] = entry
    return Policy(kind, tuple(by_resource.values()))


def _entry(source: Mapping[str, Any]) -> Entry:
    text = fields.optional_text(source, "resource")
    resource = read_resource(text)
    if resource is None:
        raise AuthFault("The resource is null.")
    if len(resource.name) > NAME_MAX:
        raise AuthFault(f"The resource has to have at most {NAME_MAX} characters.")
    actions = _actions(fields.texts(source, "actions"))
    sources = [_source(it) for it in fields.texts(source, "sourceIps")]
    if len(sources) > SOURCES_MAX:
        raise AuthFault(f"An entry may have {SOURCES_MAX} source ips.")
    decision = word(Decision, fields.optional_text(source, "decision"))
    if decision is None:
        raise AuthFault("The decision is null or illegal.")
    return Entry(resource, actions, tuple(sources), decision)


def _actions(texts: Iterable[str]) -> tuple[Action, ...]:
    found = [action for action in (word(Action, text) for text in texts) if action is not None]
    if not found:
        raise AuthFault("The actions is empty.")
    if Action.ANY in found:
        raise AuthFault("The actions can not be Any.")
    return tuple(dict.fromkeys(found))


def _source(text: str) -> Source:
    if not text.strip():
        raise AuthFault("The source ip is empty.")
    try:
        return Source(text)
    except UsageError as error:
        raise AuthFault(str(error)) from None


def _entry_json(entry: Entry) -> dict[str, Any]:
    return {
        "actions": [action.value for action in entry.actions],
        "decision": entry.decision.value,
        "resource": entry.resource.key,
        "sourceIps": [source.text for source in entry.sources] or None,
    }


def _object(body: bytes) -> Mapping[str, Any]:
    try:
        return fastjson.read_object(body)
    except ValueError:
        raise Unreadable("The body is no JSON object.") from None
