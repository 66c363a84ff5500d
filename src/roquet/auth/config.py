"""Settings of access control 2.0, under the names of RocketMQ's property files."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from roquet.base.config import setting
from roquet.base.errors import UsageError
from roquet.protocol import fastjson
from roquet.protocol.bodies import fields

if TYPE_CHECKING:
    from roquet.acl.files import AclConfig

CODES_MAX = 1_000
TEXT_MAX = 16 * 1024


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class AuthConfig:
    """Whether requests need a user, and what is known of users at the start."""

    authentication: bool = setting(
        "authenticationEnabled",
        False,
        "Whether requests need the signature of a user; authorizationEnabled goes with it.",
    )
    authorization: bool = setting(
        "authorizationEnabled",
        False,
        "Whether policies say what a user may do; authenticationEnabled goes with it.",
    )
    init_user: str = setting(
        "initAuthenticationUser",
        "",
        'User made at the start with type Super where there is none: {"username":…,"password":…}.',
        secret=True,
    )
    inner_credentials: str = setting(
        "innerClientAuthenticationCredentials",
        "",
        'What servers sign with: {"accessKey":…,"secretKey":…}; made a Super user where absent.',
        secret=True,
    )
    unsigned_codes: str = setting(
        "authenticationWhitelist", "", "Request codes that need no signature, by comma."
    )
    unchecked_codes: str = setting(
        "authorizationWhitelist", "", "Request codes that policies say nothing about, by comma."
    )
    migrate: bool = setting(
        "migrateAuthFromV1Enabled",
        False,
        "Make users and policies of the accounts in plain_acl.yml at the start, where absent.",
    )

    @property
    def enabled(self) -> bool:
        """Whether requests need a user with rights."""
        return self.authentication and self.authorization


def check(auth: AuthConfig, acl: AclConfig) -> None:
    """Raise UsageError, one line, when the settings contradict each other or cannot be read."""
    if auth.authentication != auth.authorization:
        on, off = "authenticationEnabled", "authorizationEnabled"
        if auth.authorization:
            on, off = off, on
        raise UsageError(
            f"{on} = 'true' needs {off} = 'true': a signature without rights lets every user do"
            " everything, rights without a signature let anybody take any name"
        )
    if auth.enabled and acl.enabled:
        raise UsageError(
            "authenticationEnabled = 'true' and aclEnable = 'true': one of them;"
            " migrateAuthFromV1Enabled=true takes the accounts of plain_acl.yml over"
        )
    if auth.migrate and not auth.enabled:
        raise UsageError("migrateAuthFromV1Enabled = 'true' needs authenticationEnabled = 'true'")
    codes(auth.unsigned_codes, "authenticationWhitelist")
    codes(auth.unchecked_codes, "authorizationWhitelist")
    named(auth.init_user, "initAuthenticationUser", "username", "password")
    named(auth.inner_credentials, "innerClientAuthenticationCredentials", "accessKey", "secretKey")


def codes(text: str, setting_name: str) -> frozenset[int]:
    """Return the request codes of a white list; names of gRPC calls are no codes and left out.

    Raises UsageError.
    """
    given = [part.strip() for part in text.split(",") if part.strip()]
    if len(given) > CODES_MAX:
        raise UsageError(f"{setting_name} has {len(given)} codes: {CODES_MAX} are allowed")
    for part in given:
        number = part.isascii() and part.isdigit() and len(part) <= len("2147483647")
        if not number and not part.replace(".", "").replace("_", "").isalnum():
            raise UsageError(f"{setting_name}: {part[:40]!r} is no request code")
    return frozenset(int(part) for part in given if part.isdigit())


def named(text: str, setting_name: str, name: str, secret: str) -> tuple[str, str] | None:
    """Return a name and a secret from JSON; None where nothing is set.

    Raises UsageError, which shows nothing of the text: it has a password.
    """
    if not text.strip():
        return None
    wrong = UsageError(f'{setting_name} has to be {{"{name}":"…","{secret}":"…"}}, both not blank')
    if len(text) > TEXT_MAX:
        raise wrong
    try:
        found = fastjson.read_object(text.encode())
        pair = fields.text(found, name), fields.text(found, secret)
    except ValueError:
        raise wrong from None
    if not pair[0].strip() or not pair[1].strip():
        raise wrong
    return pair
