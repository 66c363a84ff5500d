"""What an ID token says, once its signature and all that ties it to one sign-in is right.

Source: OpenID Connect Core 1.0, section 3.1.3.7. Nothing here waits or asks anybody.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, cast

from joserfc import jwk, jwt
from joserfc.errors import (
    BadSignatureError,
    InvalidKeyIdError,
    JoseError,
)

from roquet.base.errors import UsageError
from roquet.console.login.flow import is_same

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from roquet.console.login.settings import OidcConfig

ALGORITHMS = (
    *("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    *("ES256", "ES384", "ES512", "EdDSA", "Ed25519"),
)
"""With public keys only: `none` and secrets that the provider shares are never taken."""
_KINDS = ("RSA", "EC", "OKP")
_KEYS_MAX = 100
_TOKEN_MAX = 64 * 1024
_GROUPS_MAX = 10_000
_NAME_MAX = 128
SKEW_S = 60
"""By which the clocks of provider and console may differ."""
_AGE_MAX_S = 600


class UnknownKeyError(Exception):
    """No key of the provider made the signature; there may be newer keys."""


@dataclasses.dataclass(frozen=True, slots=True)
class Identity:
    """Whom the provider has judged."""

    name: str
    groups: tuple[str, ...]


def keys_of(source: Any) -> jwk.KeySet:
    """Return the keys for signatures of a JWKS. Raises UsageError when there is none.

    Keys of kinds that are not known, and damaged ones, are passed over.
    """
    rows = cast("dict[str, Any]", source).get("keys") if isinstance(source, dict) else None
    found: list[Any] = []
    for row in cast("Sequence[Any]", rows)[:_KEYS_MAX] if isinstance(rows, list) else ():
        about = cast("dict[str, Any]", row) if isinstance(row, dict) else {}
        if about.get("kty") not in _KINDS or about.get("use", "sig") != "sig":
            continue
        try:
            found.append(jwk.import_key(about))
        except (JoseError, ValueError, TypeError, KeyError):
            continue
    if not found:
        raise UsageError("the OpenID provider has no key for signatures that is known here")
    return jwk.KeySet(found)


def identity(
    token: str, keys: jwk.KeySet, config: OidcConfig, nonce: str, now_s: float
) -> Identity:
    """Return whom a token names. Raises UnknownKeyError, and UsageError with what is wrong."""
    if len(token) > _TOKEN_MAX:
        raise UsageError(f"the ID token has more than {_TOKEN_MAX} characters")
    try:
        read = jwt.decode(token, keys, algorithms=list(ALGORITHMS))
    except (BadSignatureError, InvalidKeyIdError) as error:
        raise UnknownKeyError from error
    except (JoseError, ValueError, TypeError) as error:
        raise UsageError(f"the ID token is not good: {str(error)[:200]}") from error
    claims = read.claims
    if str(read.header.get("typ", "JWT")).lower() not in ("jwt", "id_token+jwt"):
        raise UsageError("the token is none that says who signs in")
    _demand_ours(claims, config)
    _demand_now(claims, now_s)
    given = claims.get("nonce")
    if not isinstance(given, str) or not is_same(given, nonce):
        raise UsageError("the ID token is of another sign-in (nonce)")
    return Identity(_name(claims, config), _groups(claims, config))


def _demand_ours(claims: dict[str, Any], config: OidcConfig) -> None:
    if claims.get("iss") != config.issuer:
        raise UsageError(f"the ID token is not of {config.issuer} (iss)")
    audience = claims.get("aud")
    many = cast("Sequence[Any]", audience) if isinstance(audience, list) else [audience]
    if config.client_id not in many:
        raise UsageError("the ID token is for another client (aud)")
    party = claims.get("azp")
    if (len(many) > 1 and party is None) or party not in (None, config.client_id):
        raise UsageError("the ID token was made for another client (azp)")


def _demand_now(claims: dict[str, Any], now_s: float) -> None:
    ends_s, made_s = _number(claims, "exp"), _number(claims, "iat")
    begins_s = _number(claims, "nbf") if "nbf" in claims else made_s
    clocks = "compare the clocks of this machine and the provider"
    if now_s >= ends_s + SKEW_S or now_s >= made_s + _AGE_MAX_S + SKEW_S:
        raise UsageError(f"the ID token has expired: sign in again, or {clocks}")
    if max(made_s, begins_s) > now_s + SKEW_S:
        raise UsageError(f"the ID token is of the future: {clocks}")


def _number(claims: dict[str, Any], name: str) -> float:
    found = claims.get(name)
    # Neither a truth value nor what no number is (NaN compares with nothing).
    if isinstance(found, bool) or not isinstance(found, (int, float)) or not abs(found) < 2**53:
        raise UsageError(f"the ID token has no time ({name})")
    return found


def _name(claims: dict[str, Any], config: OidcConfig) -> str:
    for claim in (config.name, "sub"):
        found = claims.get(claim)
        if isinstance(found, str) and found.strip():
            text = found.strip()
            if len(text) > _NAME_MAX or not text.isprintable():
                raise UsageError(f"the ID token has a name that is too long or strange ({claim})")
            return text
    raise UsageError(f"the ID token has no name ({config.name}, sub)")


def _groups(claims: dict[str, Any], config: OidcConfig) -> tuple[str, ...]:
    found: Any = claims.get(config.groups)
    if found is None:
        found = claims
        for part in config.groups.split("."):
            found = cast("dict[str, Any]", found).get(part) if isinstance(found, dict) else None
    if isinstance(found, str):
        return (found,)
    return tuple(_texts(cast("Sequence[Any]", found))) if isinstance(found, list) else ()


def _texts(rows: Sequence[Any]) -> Iterable[str]:
    if len(rows) > _GROUPS_MAX:
        raise UsageError(f"the ID token has more than {_GROUPS_MAX} groups")
    return (it for it in rows if isinstance(it, str))
