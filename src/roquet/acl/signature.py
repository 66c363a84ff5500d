"""Signatures: HMAC-SHA1 over the values of all fields, sorted by name, and the body. Pure."""

from __future__ import annotations

import base64
import dataclasses
import hmac
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from roquet.protocol.command import Command

ACCESS_KEY = "AccessKey"
SIGNATURE = "Signature"
SECURITY_TOKEN = "SecurityToken"  # noqa: S105  (the name of a field)
UNIQUE_KEY_QUERY = "_UNIQUE_KEY_QUERY"
"""A mark of queries that clients up to 4.9 add without signing it."""

_DIGEST = "sha1"
"""The algorithm of the protocol; as a keyed hash it is not affected by SHA-1's collisions."""


def content(ext: Mapping[str, str], body: bytes, *, without: str = "") -> bytes:
    """Return what is signed."""
    names = [name for name in ext if name not in (SIGNATURE, without)]
    if all(name.isascii() for name in names):
        names.sort()
    else:
        # Java compares UTF-16 code units.
        names.sort(key=lambda name: name.encode("utf-16-be", "surrogatepass"))
    return "".join([ext[name] for name in names]).encode("utf-8", "replace") + body


def signature(secret: bytes, signed: bytes) -> str:
    """Return the Base64 text of the signature."""
    return base64.b64encode(hmac.digest(secret, signed, _DIGEST)).decode("ascii")


def is_signed(command: Command, secret: bytes) -> bool:
    """Tell whether the request was signed with this secret; takes as long when it was not."""
    ext = command.ext or {}
    given = ext.get(SIGNATURE, "").encode("utf-8", "replace")
    good = hmac.compare_digest(signature(secret, content(ext, command.body)).encode(), given)
    if not good and UNIQUE_KEY_QUERY in ext:
        shorter = content(ext, command.body, without=UNIQUE_KEY_QUERY)
        good = hmac.compare_digest(signature(secret, shorter).encode(), given)
    return good


def sign(command: Command, access_key: str, secret: bytes, token: str = "") -> Command:
    """Return the request with key and signature; the one given stays as it is."""
    ext = {**(command.ext or {}), ACCESS_KEY: access_key}
    if token:
        ext[SECURITY_TOKEN] = token
    ext[SIGNATURE] = signature(secret, content(ext, command.body))
    return dataclasses.replace(command, ext=ext)
