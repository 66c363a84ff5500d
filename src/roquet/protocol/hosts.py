"""`ip:port` as text and as the bytes of a record, and addresses of peers (spec: wire §7.1)."""

from __future__ import annotations

import contextlib
import functools
import ipaddress
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable

Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network

NETWORKS_MAX = 256
"""Networks in a list of a setting."""

_MAPPED_BITS = 96
"""Bits before the IPv4 address in an IPv6 address that has one."""

PORT_MAX = 65535
NAME_SERVER_PORT = 9876


@functools.lru_cache(maxsize=4096)
def host_bytes(text: str) -> bytes:
    """Return 4 or 16 address bytes and the port as i32, for `1.2.3.4:5` or `[::1]:5`.

    Raises ValueError; names are not looked up.
    """
    address, port = split_address(text)
    return ipaddress.ip_address(address).packed + port.to_bytes(4, "big")


@functools.lru_cache(maxsize=4096)
def host_text(data: bytes) -> str:
    """Return `ip:port` for 8 or 20 bytes. Raises ValueError for another length."""
    if len(data) not in (8, 20):
        raise ValueError(f"a host has 8 or 20 bytes, not {len(data)}")
    port = int.from_bytes(data[-4:], "big", signed=True)
    if len(data) == 8:
        return f"{data[0]}.{data[1]}.{data[2]}.{data[3]}:{port}"
    return f"[{ipaddress.IPv6Address(data[:-4])}]:{port}"


def split_address(text: str) -> tuple[str, int]:
    """Split `host:port`; the host may be a name or a bracketed IPv6 address.

    Raises ValueError when there is no host, or no port within 0..65535.
    """
    host, colon, digits = text.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    host = host[1:-1] if bracketed else host
    bad = any(char.isspace() or ord(char) < 32 or char in "[]" for char in host)
    if not colon or not host or bad or (":" in host and not bracketed):
        raise ValueError(f"{text[:80]!r} is not host:port")
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 5) or int(digits) > PORT_MAX:
        raise ValueError(f"{text[:80]!r} has no port within 0..{PORT_MAX}")
    return host, int(digits)


def join_address(host: str, port: int) -> str:
    """Return `host:port` for a host as sockets and settings have it: IPv6 gets its brackets.

    An IPv4 address mapped into IPv6, as a socket for both kinds has it, is the IPv4 address.
    """
    if ":" not in host:
        return f"{host}:{port}"
    with contextlib.suppress(ValueError):  # what is no address is shown as it is
        host = str(read_ip(host))
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def split_addresses(text: str) -> tuple[str, ...]:
    """Split a `;` separated list of addresses, checking each. Raises ValueError."""
    found = tuple(part.strip() for part in text.split(";") if part.strip())
    for address in found:
        split_address(address)
    return found


def split_name_servers(text: str) -> tuple[str, ...]:
    """Split a `;` separated list of name servers, each once; one without a port has port 9876.

    Raises ValueError.
    """
    found = (part.strip() for part in text.split(";") if part.strip())
    return tuple(dict.fromkeys(map(name_server, found)))


def name_server(text: str) -> str:
    """Return a name server's `host:port`; without a port it is 9876. Raises ValueError."""
    has_port = ":" in text and not text.endswith("]")
    address = text if has_port else f"{text}:{NAME_SERVER_PORT}"
    split_address(address)
    return address


def read_ip(text: str) -> Address:
    """Return an address; an IPv4 address mapped into IPv6 is the IPv4 address.

    Raises ValueError for what is none.
    """
    found = ipaddress.ip_address(text)
    if isinstance(found, ipaddress.IPv6Address) and found.ipv4_mapped is not None:
        return found.ipv4_mapped
    return found


@functools.lru_cache(maxsize=16)
def networks_of(text: str) -> tuple[Network, ...]:
    """Return the networks of a list with commas. Raises ValueError."""
    found = [read_network(name.strip()) for name in text.split(",") if name.strip()]
    if len(found) > NETWORKS_MAX:
        raise ValueError(f"there are more than {NETWORKS_MAX} networks")
    return tuple(found)


def read_network(text: str) -> Network:
    """Return a network; one of IPv4 addresses mapped into IPv6 is the network of IPv4.

    Raises ValueError for what is none.
    """
    found = ipaddress.ip_network(text)
    mapped = read_ip(str(found.network_address))
    if found.version == 4 or mapped.version == 6 or found.prefixlen < _MAPPED_BITS:
        return found
    return ipaddress.IPv4Network((mapped.packed, found.prefixlen - _MAPPED_BITS))


def networks_fault(text: str) -> str | None:
    """Return what is wrong with a list of networks, None for a good one."""
    try:
        networks_of(text)
    except ValueError as error:
        return f"must be IP addresses and networks, with commas ({error})"
    return None


def is_within(host: str, networks: Iterable[Network]) -> bool:
    """Tell whether a host, with a zone or without, is in one of the networks; a name is in none."""
    try:
        address = read_ip(host.partition("%")[0])
    except ValueError:
        return False
    return any(address in network for network in networks)


def host_of(address: str) -> str:
    """Return the host of an `ip:port`, without brackets and zone."""
    return address.rpartition(":")[0].removeprefix("[").removesuffix("]").partition("%")[0]
