"""The signature of calls: `MQv2-HMAC-SHA1` over the text of `x-mq-date-time` (spec: proxy)."""

from __future__ import annotations

import hmac
from typing import NamedTuple

from roquet.proxy.rules.codes import Code, Rejected

_DIGEST = "sha1"
"""The algorithm of the protocol; as a keyed hash it is not affected by SHA-1's collisions."""
LENGTH_MAX = 8192


class Signed(NamedTuple):
    """What a call is signed with."""

    access_key: str
    signature: str
    """Hex of either case."""
    date_time: str
    """As it was sent."""

    def is_by(self, secret: bytes) -> bool:
        """Tell whether the secret made the signature; takes as long when it did not."""
        good = hmac.digest(secret, self.date_time.encode("utf-8", "replace"), _DIGEST).hex()
        given = self.signature.lower().encode("utf-8", "replace")
        return hmac.compare_digest(good.encode(), given)


def signed_of(authorization: str | None, date_time: str | None) -> Signed | None:
    """Read the header; None when there is none. Raises Rejected for one that cannot be read."""
    if authorization is None:
        return None
    _, blank, rest = authorization.partition(" ")
    if not blank or len(authorization) > LENGTH_MAX:
        raise _wrong("authorization header is incorrect")
    fields: dict[str, str] = {}
    for piece in rest.split(","):
        name, equals, value = piece.strip().partition("=")
        if not equals:
            raise _wrong("authorization header is incorrect")
        fields[name] = value
    if date_time is None:
        raise _wrong("x-mq-date-time is missing")
    key = fields.get("Credential", "").partition("/")[0]
    return Signed(key, fields.get("Signature", ""), date_time)


def _wrong(text: str) -> Rejected:
    return Rejected(Code.UNAUTHORIZED, text)
