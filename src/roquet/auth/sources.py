"""Source addresses of policy entries: one IP address or a CIDR block. Pure.

An IPv4 address within IPv6 counts as the IPv4 address; blocks of one family never have addresses of
the other.
"""

from __future__ import annotations

import dataclasses
import functools
import ipaddress
from typing import TypeAlias

from roquet.base.errors import UsageError
from roquet.protocol.hosts import Address, host_of, read_ip

LENGTH_MAX = 64

Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network


@dataclasses.dataclass(frozen=True, slots=True)
class Source:
    """One source as it was written, and what it stands for."""

    text: str
    network: Network = dataclasses.field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Raise UsageError for what is neither an address nor a block."""
        object.__setattr__(self, "network", _network(self.text))

    def has(self, address: str) -> bool:
        """Tell whether a peer's `ip:port` is among them."""
        found = peer(address)
        return found is not None and found in self.network


@functools.lru_cache(maxsize=4096)
def peer(address: str) -> Address | None:
    """Return the IP address of a peer's `ip:port`; None for what is none."""
    try:
        return read_ip(host_of(address))
    except ValueError:
        return None


def _network(text: str) -> Network:
    """Read a source: no spaces, no zone, a prefix in decimal digits."""
    base, slash, prefix = text.partition("/")
    if len(text) > LENGTH_MAX or "%" in text:
        raise UsageError("The source ip is invalid.")
    if slash and not (prefix.isascii() and prefix.isdigit() and len(prefix) <= 3):
        raise UsageError("The source ip is invalid.")
    try:
        address = read_ip(base)
        length = int(prefix) if slash else address.max_prefixlen
        return ipaddress.ip_network((address, length), strict=False)
    except ValueError:
        raise UsageError("The source ip is invalid.") from None
