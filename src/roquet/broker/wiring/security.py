"""Who may connect and what a request may do: TLS, accounts, our own signature."""

from __future__ import annotations

from typing import TYPE_CHECKING

from roquet.acl.files import RELOAD_S as ACCOUNTS_S
from roquet.acl.tools import AclTools
from roquet.auth.guard import PolicyGuard
from roquet.auth.requests import UserAdapter
from roquet.auth.tools import UserTools
from roquet.broker.remoting.admin.accounts import AccountAdapter
from roquet.remoting.client import Client, ClientConfig
from roquet.remoting.tls import RELOAD_S, client_tls
from roquet.service.lifecycle import Part, Timer

if TYPE_CHECKING:
    from roquet.broker.network.routes import Routed
    from roquet.broker.wiring.base import Base
    from roquet.remoting.router import Guard as Check


def make_guard(base: Base) -> Check | None:
    """Make what looks at each request before it is carried out."""
    return None if base.guard is None else base.guard.check


def make_access(base: Base) -> list[Routed]:
    """Make the adapter of requests about accounts, or about users and policies."""
    if base.users is not None and isinstance(base.guard, PolicyGuard):
        return [UserAdapter(UserTools(base.users, base.guard), base.callers.of, "admin")]
    if base.accounts is None:
        return []
    return [AccountAdapter(AclTools(base.accounts, base.identity))]


def make_client(base: Base) -> Client:
    """Make the client by which the broker calls name servers and other brokers."""
    credentials, config = base.config.credentials, base.config
    return Client(
        clock=base.clock,
        config=ClientConfig.of(config.outgoing, config.write_buffer),
        tls=client_tls(base.config.tls.options(), base.clock),
        sign=None if credentials is None else credentials.sign,
    )


def security_parts(base: Base) -> list[Part]:
    """List the parts that have to be there before a port is opened."""
    parts: list[Part] = []
    if base.tls.is_on:
        certificates = Timer("reload certificates", base.tls.reload, RELOAD_S, RELOAD_S)
        parts.append(Part("tls", base.tls, timers=(certificates,)))
    if base.accounts is not None:
        accounts = Timer("reload accounts", base.accounts.look, ACCOUNTS_S, ACCOUNTS_S)
        parts.append(Part("accounts", base.accounts, timers=(accounts,)))
    if base.users is not None:
        parts.append(Part("users", base.users))
    return parts
