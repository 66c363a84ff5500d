"""Who may reach the port for slaves: it hands out the whole log, and asks for no account.

A slave is known by the shared secret, by a certificate that the master asks for, or by its address.
Where requests need an account, a port that knows no slave stays closed to other hosts: it would
give to everybody what each request is judged for. Pure.
"""

from __future__ import annotations

import ipaddress
from typing import NamedTuple

from roquet.protocol.hosts import is_within, networks_of

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


def is_listed(host: str, text: str) -> bool:
    """Tell whether a list names a host; an empty one names all."""
    networks = networks_of(text)
    return not networks or is_within(host, networks)
