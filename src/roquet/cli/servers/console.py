"""`roquet console`: the web console of a cluster."""

from __future__ import annotations

import contextlib
import getpass
import logging
import os
import socket
import sys
from typing import TYPE_CHECKING

from roquet.base import log as logs
from roquet.base.clock import SystemClock
from roquet.base.errors import RoquetError, UsageError
from roquet.cli import contexts, output
from roquet.cli.reach import client, cluster_client
from roquet.cli.servers.serve import guarded, in_the_way, say
from roquet.service.process import runtime
from roquet.service.process.supervisor import supervised

if TYPE_CHECKING:
    import argparse
    import asyncio
    from collections.abc import AsyncGenerator, Callable
    from types import ModuleType

    from roquet.acl.credentials import Credentials
    from roquet.client import MQ

log = logging.getLogger(__name__)

MISSING = "the console needs more packages: pip install 'roquet-VERSION.whl[console]'"
PORT = 8082


def console_module() -> ModuleType:
    """Return what builds a console. Raises UsageError where its packages are not installed."""
    try:
        from roquet.console import app  # noqa: PLC0415  (few commands need it, and it is large)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] == "roquet":
            raise
        raise UsageError(MISSING) from error
    return app


def console(options: argparse.Namespace) -> int:
    """Run a console to its end; or print what the file of accounts has for a password."""
    app = console_module()
    from roquet.console.alerts.rules import load  # noqa: PLC0415
    from roquet.console.config import ConsoleConfig  # noqa: PLC0415
    from roquet.console.login import settings as ways  # noqa: PLC0415
    from roquet.console.roles import role_of  # noqa: PLC0415

    if options.hash_password:
        return _hash_password()
    logs.configure(options.log_level, options.log_style)
    mq = client(options)
    config = ConsoleConfig(
        bind=options.bind,
        port=options.port,
        root_path=options.root_path.rstrip("/"),
        read_only=options.read_only,
        hide_bodies=options.hide_bodies,
        users=options.users,
        login=ways.Login() if options.login is None else ways.load(options.login),
        audit_log=options.audit_log,
        alerts_state=options.alerts_state,
        tls_cert=options.tls_cert,
        tls_key=options.tls_key,
        proxy=options.proxy,
        hosts=tuple(options.host),
        cluster=options.namesrv,
        proxies=tuple(options.cluster_proxy),
    )
    role = role_of(options.role)
    rules = None if options.alerts is None else load(options.alerts)
    others = {name: cluster_client(contexts.chosen(None, name)) for name in options.cluster}

    def of_account(account: Credentials) -> MQ:
        return cluster_client(options.cluster_found, account=account)

    async def serve(stop: asyncio.Event) -> int:
        clusters = {"others": others, "of_account": of_account}
        built = app.build(config, mq, SystemClock(), say, role=role, rules=rules, **clusters)
        async with built.app:
            way = "the address above signs in once" if config.login.tokens else "sign in there"
            say(f"Console of {options.namesrv}; {way}.")
            await _say_when_away(mq, *others.values())
            runtime.settle()
            async with supervised(os.environ, SystemClock()):
                await stop.wait()
        return 0

    return guarded(lambda: runtime.run(serve))


async def _say_when_away(*clusters: MQ) -> None:
    """Say which clusters do not answer: their pages will be errors until they do."""
    for mq in clusters:
        try:
            await mq.admin().brokers.cluster()
        except RoquetError as error:
            output.error(f"{error}; the console goes on and shows the cluster once it answers")


@contextlib.asynccontextmanager
async def dev_console(
    namesrv: str, port: int | None, said: Callable[[str], None]
) -> AsyncGenerator[None]:
    """Run the console of `roquet dev` on loopback for a block.

    Without a port it gets the usual one, or any that is free when that is taken. Where its
    packages are not installed, a line says so. Raises UsageError for a port that is taken.
    """
    try:
        app = console_module()
    except UsageError:
        said("  console      not installed: pip install 'roquet-VERSION.whl[console]'")
        yield
        return
    from roquet.client import connect  # noqa: PLC0415
    from roquet.console.config import ConsoleConfig  # noqa: PLC0415

    config = ConsoleConfig(port=_free(PORT) if port is None else port, cluster=namesrv)
    built = app.build(config, connect(f"rmq://{namesrv}"), SystemClock(), said)
    async with in_the_way("--console-port", built.app):
        yield


def _free(port: int) -> int:
    """Return the port if nobody listens on it, else 0, which stands for any."""
    try:
        socket.create_server(("127.0.0.1", port)).close()
    except OSError:
        return 0
    return port


def _hash_password() -> int:
    from roquet.console.accounts import hash_password  # noqa: PLC0415

    if sys.stdin.isatty():
        given = getpass.getpass("Password: ")
        if given != getpass.getpass("Again: "):
            raise UsageError("the two differ")
    else:
        given = sys.stdin.readline(1024).rstrip("\r\n")
    sys.stdout.write(hash_password(given) + "\n")
    return 0
