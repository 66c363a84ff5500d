"""Whether clients need accounts, by rmq-proxy.json: obeyed, or refused at the start.

A proxy that passed over these settings would let everybody in.
"""

from __future__ import annotations

import dataclasses
import logging
from typing import TYPE_CHECKING

from roquet.acl.credentials import Credentials
from roquet.acl.files import AclConfig
from roquet.auth.config import AuthConfig, check, named
from roquet.base.config import load, setting, settings
from roquet.base.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

log = logging.getLogger(__name__)

INNER = "innerClientAuthenticationCredentials"
_WHITE_LISTS = ("authenticationWhitelist", "authorizationWhitelist")
_OF_BROKERS = ("initAuthenticationUser", "migrateAuthFromV1Enabled")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class AccountSwitches:
    """What a file says of accounts; None: nothing."""

    acl: bool | None = setting("enableACL", None, "Accounts of RocketMQ 4.x.")
    authentication: bool | None = setting("authenticationEnabled", None, "Users of 5.x.")
    authorization: bool | None = setting("authorizationEnabled", None, "Their policies.")


SWITCHES = frozenset(about.java for _, about, _ in settings(AccountSwitches))
KEYS = SWITCHES | {about.java for _, about, _ in settings(AuthConfig)}


def check_local(given: Mapping[str, str], acl: AclConfig, auth: AuthConfig) -> None:
    """Raise UsageError where a file wants other accounts than the broker of the process has."""
    wanted = load(AccountSwitches, {key: given[key] for key in given.keys() & SWITCHES})[0]
    for key, there, asked, is_so in (
        ("enableACL", "aclEnable", wanted.acl, acl.enabled),
        (*("authenticationEnabled",) * 2, wanted.authentication, auth.authentication),
        (*("authorizationEnabled",) * 2, wanted.authorization, auth.authorization),
    ):
        if asked is not None and asked != is_so:
            raise UsageError(
                f"{key} = '{_text(asked)}' in the file of the proxy, and {there} ="
                f" '{_text(is_so)}' at the broker, whose accounts count for gRPC too:"
                f" set {there} there, or take {key} out of the file"
            )


def account_of(given: Mapping[str, str]) -> Credentials | None:
    """Return the proxy's own account, by which it asks brokers; None where it has none.

    Raises UsageError.
    """
    pair = named(given.get(INNER, ""), INNER, "accessKey", "secretKey")
    return None if pair is None else Credentials(*pair)


def checks_clients(given: Mapping[str, str]) -> bool:
    """Tell whether a proxy before a cluster lets in users of the brokers alone.

    Raises UsageError for what cannot be obeyed.
    """
    switches = load(AccountSwitches, {key: given[key] for key in given.keys() & SWITCHES})[0]
    if switches.acl:
        raise UsageError(
            "enableACL = 'true': accounts of RocketMQ 4.x are not checked before a cluster;"
            " set authenticationEnabled and authorizationEnabled, for users that the brokers keep,"
            " or let brokers serve gRPC themselves (roquet broker --proxy)"
        )
    of_auth = {about.java for _, about, _ in settings(AuthConfig)}
    auth = load(AuthConfig, {key: given[key] for key in given.keys() & of_auth})[0]
    check(dataclasses.replace(auth, migrate=False), AclConfig())
    if not auth.enabled:
        return False
    for key in _WHITE_LISTS:
        if given.get(key, "").strip():
            raise UsageError(f"{key}: before a cluster every call is checked; take it out")
    if account_of(given) is None:
        raise UsageError(
            f"authenticationEnabled = 'true' needs {INNER}: the proxy asks brokers in the name of"
            ' its clients, by the account of a super user, {"accessKey":"…","secretKey":"…"}'
        )
    for key in sorted(given.keys() & set(_OF_BROKERS)):
        log.info("%s has no effect here: users are made at the brokers", key)
    return True


def _text(value: bool) -> str:
    return "true" if value else "false"
