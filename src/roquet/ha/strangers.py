"""Who may reach the port for slaves: it hands out the whole log, and asks for no account.

A slave is known by the shared secret, by a certificate that the master asks for, or by its address.
Where requests need an account, a port that knows no slave stays closed to other hosts: it would
give to everybody what each request is judged for. Pure.
"""

from __future__ import annotations

import functools
import ipaddress
from typing import NamedTuple

NETWORKS_MAX = 256

_OPEN = (
    "the port for slaves gives the whole log to every host that reaches it: set haSharedSecret on"
    " both sides, or haSlaveAddresses here, or keep others out by a firewall"
)
_SHUT = (
    "the port for slaves is not opened: requests need an account and this port asks for none. Set"
    " haSharedSecret on both sides, or haSlaveAddresses (slaves of Java know no secret), or"
    " haOpenWithAccessControl=true"
)


class Opening(NamedTuple):
    """Whether the port may be opened, and what an operator has to know of it."""

    is_allowed: bool
    warning: str | None


def opening(host: str, *, has_accounts: bool, knows_slaves: bool, is_wanted: bool) -> Opening:
    """Judge a port on `host`; `is_wanted` is the operator's word that it is to be open anyway."""
    if knows_slaves or is_loopback(host):
        return Opening(True, None)
    if has_accounts and not is_wanted:
        return Opening(False, _SHUT)
    return Opening(True, _OPEN)


def is_loopback(host: str) -> bool:
    """Tell whether only this host reaches an address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


@functools.lru_cache(maxsize=4)
def networks_of(text: str) -> tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, ...]:
    """Return the networks of a list with commas. Raises ValueError."""
    found = [ipaddress.ip_network(name.strip()) for name in text.split(",") if name.strip()]
    if len(found) > NETWORKS_MAX:
        raise ValueError(f"there are more than {NETWORKS_MAX}")
    return tuple(found)


def networks_fault(text: str) -> str | None:
    """Return what is wrong with a list of networks, None for a good one."""
    try:
        networks_of(text)
    except ValueError as error:
        return f"must be IP addresses and networks, with commas ({error})"
    return None


def is_listed(host: str, text: str) -> bool:
    """Tell whether a list names a host; an empty one names all."""
    networks = networks_of(text)
    if not networks:
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return any((mapped or address) in network for network in networks)
