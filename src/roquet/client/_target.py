"""Where to connect: `rmq://host:port;host:port`, or an address server's `http://` page."""

from __future__ import annotations

import dataclasses

from roquet.base.errors import UsageError
from roquet.protocol import hosts
from roquet.service.address_server import AddressLookup

SCHEME = "rmq://"
DEFAULT_PORT = 9876


@dataclasses.dataclass(frozen=True, slots=True)
class Target:
    """A parsed URL: addresses of name servers, each `host:port`."""

    name_servers: tuple[str, ...]
    lookup: str | None = None
    """Page of an address server that has the list, when no addresses were given."""

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
        AddressLookup.check(url)
        return Target((), url)
    rest = url.removeprefix(SCHEME)
    if "://" in rest:
        raise UsageError(f"{url[:80]!r}: only {SCHEME}host:port[;host:port] is supported")
    if "?" in rest or "@" in rest or "/" in rest:
        raise UsageError(f"{url[:80]!r}: credentials, paths and options are not supported yet")
    found: list[str] = []
    for part in rest.split(";"):
        address = part.strip()
        if not address:
            continue
        if not address.endswith("]") and ":" in address:
            found.append(_checked(address, url))
        else:
            found.append(_checked(f"{address}:{DEFAULT_PORT}", url))
    if not found:
        raise UsageError(
            f"{url[:80]!r} names no name server, as in {SCHEME}127.0.0.1:{DEFAULT_PORT}"
        )
    return Target(tuple(dict.fromkeys(found)))


def _checked(address: str, url: str) -> str:
    try:
        hosts.split_address(address)
    except ValueError as error:
        raise UsageError(f"{url[:80]!r}: {error}") from error
    return address
