"""Where to connect: `rmq://host:port;host:port`."""

from __future__ import annotations

import dataclasses

from roquet.base.errors import UsageError
from roquet.protocol import hosts

SCHEME = "rmq://"
DEFAULT_PORT = 9876


@dataclasses.dataclass(frozen=True, slots=True)
class Target:
    """A parsed URL: addresses of name servers, each `host:port`."""

    name_servers: tuple[str, ...]


def parse(url: str) -> Target:
    """Read a URL, or a bare `host:port;host:port`. Raises UsageError."""
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
