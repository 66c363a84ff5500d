"""What a server has at its start: the users' file, and users that are made where absent."""

from __future__ import annotations

from typing import TYPE_CHECKING

from roquet.acl.credentials import Credentials
from roquet.auth.config import codes, named
from roquet.auth.keeping.migration import from_accounts
from roquet.auth.keeping.store import AuthFile
from roquet.auth.keeping.users import Users, super_user

if TYPE_CHECKING:
    from pathlib import Path

    from roquet.auth.config import AuthConfig
    from roquet.auth.keeping.users import Edit
    from roquet.base.clock import Clock


def make_users(config: AuthConfig, accounts: Path | None, file: Path, clock: Clock) -> Users | None:
    """Make the users of a server; None where requests need none.

    `accounts` is a `plain_acl.yml` whose accounts become users; `file` is the users' own.
    """
    if not config.enabled:
        return None
    pairs = (
        named(config.init_user, "initAuthenticationUser", "username", "password"),
        _inner(config),
    )
    seeds: list[Edit] = [super_user(pair) for pair in pairs]
    if accounts is not None:
        seeds.append(from_accounts(accounts, clock))
    return Users(AuthFile(file), seeds)


def white_lists(config: AuthConfig) -> tuple[frozenset[int], frozenset[int]]:
    """Return the codes that need no signature, and those that policies say nothing about."""
    return (
        codes(config.unsigned_codes, "authenticationWhitelist"),
        codes(config.unchecked_codes, "authorizationWhitelist"),
    )


def inner_credentials(config: AuthConfig) -> Credentials | None:
    """Return what a server signs its own requests with. Raises UsageError."""
    pair = _inner(config)
    return None if pair is None else Credentials(*pair)


def _inner(config: AuthConfig) -> tuple[str, str] | None:
    text = config.inner_credentials
    return named(text, "innerClientAuthenticationCredentials", "accessKey", "secretKey")
