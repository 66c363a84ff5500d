"""Where to connect and as whom: `rmq://key:secret@host:port;host:port?namespace=shop`.

`rmqs://` is the same over TLS; an `http://` URL is an address server's page. No text that is made
here, those of errors included, has what stands before the `@`.
"""

from __future__ import annotations

import dataclasses
import urllib.parse

from roquet.acl.credentials import Credentials
from roquet.base.errors import UsageError
from roquet.client._cluster.namespace import Namespace
from roquet.protocol import hosts
from roquet.service.http.address_server import AddressLookup

SCHEME = "rmq://"
TLS_SCHEME = "rmqs://"
_SHOWN = 80


@dataclasses.dataclass(frozen=True, slots=True)
class Target:
    """A parsed URL: addresses of name servers, each `host:port`."""

    name_servers: tuple[str, ...]
    lookup: str | None = None
    """Page of an address server that has the list, when no addresses were given."""
    credentials: Credentials | None = None
    is_tls: bool = False
    namespace: str = ""

    @property
    def probe(self) -> str:
        """Where packets of this client would go first, `host:port`."""
        if self.lookup is None:
            return self.name_servers[0]
        parts = AddressLookup.check(self.lookup)
        return f"{parts.hostname}:{parts.port or 80}"


def parse(url: str) -> Target:
    """Read a URL, or a bare `host:port;host:port`. Raises UsageError."""
    if url.startswith(("http://", "https://")):
        if "@" in url:
            raise UsageError("credentials stand in rmq:// URLs alone: give credentials=")
        AddressLookup.check(url)
        return Target((), url)
    is_tls = url.startswith(TLS_SCHEME)
    rest = url.removeprefix(TLS_SCHEME if is_tls else SCHEME)
    user, at, rest = rest.rpartition("@")
    shown = _shown(url)
    if "://" in user + rest:
        raise UsageError(f"{shown!r}: only {SCHEME}host:port[;host:port] is supported")
    where, mark, options = rest.partition("?")
    if "/" in where.removesuffix("/") or "#" in rest:
        raise UsageError(f"{shown!r}: a URL of name servers, {SCHEME}host:port, has no path")
    return Target(
        _addresses(where.removesuffix("/"), shown),
        credentials=_credentials(user, shown) if at else None,
        is_tls=is_tls,
        namespace=_namespace(options, shown) if mark else "",
    )


def _shown(url: str) -> str:
    """Return the URL for a message: without credentials, not too long."""
    before, at, rest = url.rpartition("@")
    if not at:
        return url[:_SHOWN]
    scheme, mark, _ = before.partition("://")
    return (f"{scheme}://***@{rest}" if mark else f"***@{rest}")[:_SHOWN]


def _credentials(user: str, shown: str) -> Credentials:
    key, mark, secret = user.partition(":")
    if not mark or not key or not secret:
        raise UsageError(f"{shown!r}: credentials are {SCHEME}key:secret@host:port")
    try:
        key, secret = (urllib.parse.unquote(it, errors="strict") for it in (key, secret))
    except UnicodeDecodeError:
        # Its text would have a part of the secret.
        raise UsageError(f"{shown!r}: the credentials are no UTF-8") from None
    return Credentials(key, secret)


def _namespace(options: str, shown: str) -> str:
    name, _, value = options.partition("=")
    if name != "namespace" or not value or "&" in value:
        raise UsageError(
            f"{shown!r}: the one option of a URL is ?namespace=, as in rmq://h?namespace=shop"
        )
    Namespace(value)
    return value


def _addresses(where: str, shown: str) -> tuple[str, ...]:
    try:
        found = hosts.split_name_servers(where)
    except ValueError as error:
        raise UsageError(f"{shown!r}: {error}") from error
    if not found:
        example = f"{SCHEME}127.0.0.1:{hosts.NAME_SERVER_PORT}"
        raise UsageError(f"{shown!r} names no name server, as in {example}")
    return found
