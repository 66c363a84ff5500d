"""IP addresses as peers have them. Pure."""

from __future__ import annotations

import ipaddress
from typing import TypeAlias

Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address


def read_ip(text: str) -> Address:
    """Return an address; an IPv4 address mapped into IPv6 is the IPv4 address.

    Raises ValueError for what is none.
    """
    found = ipaddress.ip_address(text)
    if isinstance(found, ipaddress.IPv6Address) and found.ipv4_mapped is not None:
        return found.ipv4_mapped
    return found


def host_of(address: str) -> str:
    """Return the host of an `ip:port`, without brackets and zone."""
    return address.rpartition(":")[0].removeprefix("[").removesuffix("]").partition("%")[0]
