"""Who may ask a name server for what: TLS, accounts of 4.x, or users and policies of 5.x."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

from roquet.acl.files import RELOAD_S as ACCOUNTS_S
from roquet.acl.files import AccountFiles, accounts_path
from roquet.acl.guard import Guard
from roquet.acl.needs import name_server_needs
from roquet.auth.guard import PolicyGuard
from roquet.auth.keeping.starting import inner_credentials, make_users, white_lists
from roquet.auth.needs import name_server_needs as user_needs
from roquet.auth.requests import UserAdapter
from roquet.auth.tools import UserTools
from roquet.remoting.tls import RELOAD_S, ServerTls
from roquet.service.lifecycle import Part, Timer

if TYPE_CHECKING:
    from collections.abc import Callable

    from roquet.acl.rights import Asking
    from roquet.base.clock import Clock
    from roquet.namesrv.config import NamesrvConfig
    from roquet.protocol.command import Command
    from roquet.remoting.router import Guard as Check
    from roquet.remoting.router import Request, Route


def users_name(port: int) -> str:
    """Return the name of the users' file of the name server on a port: there may be several."""
    return f"users-{port}.auth"


@dataclasses.dataclass(frozen=True, slots=True)
class Security:
    """What a name server is given of it."""

    tls: ServerTls
    parts: list[Part]
    """What has to be there before the port is opened."""
    check: Check | None = None
    """Looks at each request before it is carried out; None: everybody may do all."""
    routes: tuple[Route, ...] = ()
    """Requests about users and policies."""
    sign: Callable[[Command], Command] | None = None
    """Signs what the name server asks brokers."""


def make_security(config: NamesrvConfig, clock: Clock) -> Security:
    """Make what the settings ask for; nothing is read yet. Raises UsageError."""
    tls = ServerTls(config.tls, clock)
    parts: list[Part] = []
    if tls.is_on:
        watch = Timer("reload certificates", tls.reload, RELOAD_S, RELOAD_S)
        parts.append(Part("tls", tls, timers=(watch,)))
    accounts = accounts_path(config.acl, config.file) if _reads_accounts(config) else None
    if accounts is not None and config.acl.enabled:
        files = AccountFiles(accounts, clock)
        watch = Timer("reload accounts", files.look, ACCOUNTS_S, ACCOUNTS_S)
        parts.append(Part("accounts", files, timers=(watch,)))
        return Security(tls, parts, Guard(files, name_server_needs).check)
    folder = Path(config.kv_config_path).expanduser().parent
    users = make_users(config.auth, accounts, folder / users_name(config.listen_port), clock)
    if users is None:
        return Security(tls, parts)
    parts.append(Part("users", users))
    unsigned, unchecked = white_lists(config.auth)
    guard = PolicyGuard(users, user_needs, unsigned=unsigned, unchecked=unchecked)

    def caller_of(request: Request) -> Asking:
        return guard.caller(request.command, request.peer.address)

    adapter = UserAdapter(UserTools(users, guard), caller_of, "default")
    own = inner_credentials(config.auth)
    return Security(
        tls, parts, guard.check, tuple(adapter.routes()), None if own is None else own.sign
    )


def _reads_accounts(config: NamesrvConfig) -> bool:
    return config.acl.enabled or config.auth.migrate
