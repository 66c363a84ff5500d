"""Accounts of access control 1.0 as users and policies.

An administrator becomes a super user, any other account a normal one. What an account may do with
named topics and groups is its CUSTOM policy, its two defaults are its DEFAULT policy. White lists
of addresses have no place among policies: they are lost, and a line in the log says so.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from roquet.acl.accounts import Perm
from roquet.acl.files import AccountFiles
from roquet.auth.directory import UserChange
from roquet.auth.model import (
    Action,
    Decision,
    Entry,
    Match,
    Policy,
    PolicyType,
    Resource,
    ResourceType,
    UserType,
)

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from roquet.acl.accounts import Account
    from roquet.auth.directory import Directory
    from roquet.auth.keeping.users import Edit
    from roquet.base.clock import Clock

log = logging.getLogger(__name__)


def from_accounts(main: Path, clock: Clock) -> Edit:
    """Return a seed that makes users of the accounts in `plain_acl.yml`, where there is no such.

    The seed raises UsageError for files that cannot be used, AuthFault for what no user may have.
    """

    def seed(directory: Directory) -> Directory:
        table = AccountFiles(main, clock).read()
        new = [it for key, it in table.accounts.items() if key not in directory.users]
        if table.white or any(it.white.alternatives or it.white.everyone for it in new):
            log.warning(
                "%s: addresses without an account are not taken over: policies decide", main
            )
        if new:
            directory = directory.with_users(of_account(it) for it in new)
        log.info("%s: %d of %d accounts became users", main, len(new), len(table.accounts))
        return directory

    return seed


def of_account(account: Account) -> tuple[UserChange, tuple[Policy, ...]]:
    """Return the user that an account becomes, and the policies."""
    kind = UserType.SUPER if account.admin else UserType.NORMAL
    named = (
        *_entries(ResourceType.TOPIC, account.topics),
        *_entries(ResourceType.GROUP, account.groups),
    )
    defaults = (
        _entry(Resource(ResourceType.TOPIC, "", Match.ANY), account.default_topic),
        _entry(Resource(ResourceType.GROUP, "", Match.ANY), account.default_group),
    )
    policies = [Policy(PolicyType.CUSTOM, named)] if named else []
    user = UserChange(account.access_key, account.secret.decode(), kind)
    return user, (*policies, Policy(PolicyType.DEFAULT, defaults))


def _entries(kind: ResourceType, perms: Mapping[str, Perm]) -> tuple[Entry, ...]:
    return tuple(_entry(Resource(kind, name), perm) for name, perm in perms.items())


def _entry(resource: Resource, perm: Perm) -> Entry:
    if perm & Perm.DENY:
        return Entry(resource, (Action.ALL,), (), Decision.DENY)
    found = [
        action for bit, action in ((Perm.PUB, Action.PUB), (Perm.SUB, Action.SUB)) if perm & bit
    ]
    return Entry(resource, tuple(found), (), Decision.ALLOW)
