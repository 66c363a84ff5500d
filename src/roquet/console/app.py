"""The console, wired: a client of the cluster, the sampler, the server."""

from __future__ import annotations

import asyncio
import dataclasses
import importlib.resources
import logging
import re
from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from roquet.base.errors import UsageError
from roquet.console import accounts, table
from roquet.console.alerts import kept as keeping
from roquet.console.alerts import watch as watching
from roquet.console.alerts import webhook as posting
from roquet.console.alerts.kept import Kept
from roquet.console.alerts.rules import AlertRules, Alerts
from roquet.console.alerts.watch import Watch
from roquet.console.alerts.webhook import Webhook
from roquet.console.audit import AuditLog
from roquet.console.cluster_accounts import clients as idle
from roquet.console.cluster_accounts.clients import AccountClients
from roquet.console.cluster_accounts.sign_in import CHECKS, WAITING, ClusterAccounts
from roquet.console.config import SCRIPT_SAFE, ConsoleConfig, Limits
from roquet.console.context import Parts
from roquet.console.login.settings import BACK
from roquet.console.roles import Role
from roquet.console.sampler import EVERY_S, Sampler
from roquet.console.server import HttpService
from roquet.console.sessions import Sessions
from roquet.console.web.answers import ConcurrencyLimit
from roquet.console.web.entrance import Entrance
from roquet.console.web.front import Front
from roquet.console.web.oidc import START, ProviderEntrance
from roquet.console.web.openapi import document
from roquet.console.web.render import Pages
from roquet.console.web.shield import Shield
from roquet.console.web.tail import Tails
from roquet.service.lifecycle import App, Part, Timer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from starlette.requests import Request
    from starlette.types import ASGIApp

    from roquet.acl.credentials import Credentials
    from roquet.base.clock import Clock
    from roquet.client import MQ
    from roquet.console.login.provider import Provider

log = logging.getLogger(__name__)

_OF_CLUSTER = re.compile(r"/c/([^/]*)(/.*|)", re.DOTALL)
"""A path of one of several clusters: its name, and the path within."""


@dataclasses.dataclass(frozen=True, slots=True)
class Console:
    """A console that is built."""

    app: App
    server: HttpService
    sessions: Sessions
    watches: tuple[Watch, ...]
    """What looks at each cluster for its alerts."""
    clients: AccountClients | None = None
    """Of sessions with accounts of the cluster."""


class _Client:
    """The client's life as a part."""

    def __init__(self, mq: MQ) -> None:
        self._mq = mq

    async def start(self) -> None:
        await self._mq.start()

    async def stop(self) -> None:
        await self._mq.close()


class _Watching:
    """The sampler and the alerts of a cluster; its timers do the work."""

    async def start(self) -> None:
        """Begin with nothing."""

    async def stop(self) -> None:
        """Leave nothing: what is to be kept is in a file of its own."""


class _Kept:
    """The file of alerts; its timer writes it."""

    def __init__(self, kept: Kept) -> None:
        self._kept = kept

    async def start(self) -> None:
        """Begin with what was read when the console was built."""

    async def stop(self) -> None:
        self._kept.save()


class _Audit:
    """The audit log's file."""

    def __init__(self, audit: AuditLog) -> None:
        self._audit = audit

    async def start(self) -> None:
        """Begin with nothing: the file is open."""

    async def stop(self) -> None:
        self._audit.close()


class _Announced:
    """Prints where to sign in, once the server listens."""

    def __init__(self, entrance: Entrance, server: HttpService, role: Role) -> None:
        self._entrance = entrance
        self._server = server
        self._role = role

    async def start(self) -> None:
        self._entrance.announce(self._server.address, self._role)

    async def stop(self) -> None:
        """Leave nothing: a token ends with the process."""


def build(
    config: ConsoleConfig,
    mq: MQ,
    clock: Clock,
    said: Callable[[str], None],
    *,
    limits: Limits | None = None,
    role: Role = Role.ADMINISTRATOR,
    rules: AlertRules | None = None,
    others: Mapping[str, MQ] | None = None,
    of_account: Callable[[Credentials], MQ] | None = None,
) -> Console:
    """Wire a console to a client that nobody else starts. Raises UsageError.

    `said` prints the address with a one-time token, for `role`, at the start and again each time
    that the token was used. `others` are more clusters by name, each with pages of its own below
    `/c/NAME`; accounts, sessions, roles and the audit log are those of all. `of_account` makes a
    client of the first cluster for an account that signs in (`login.cluster`).
    """
    limits = limits or Limits()
    sessions = Sessions(limits)
    known = accounts.Accounts({})
    if config.users is not None:
        known = accounts.load(config.users, limits.users)
    if config.login.cluster is None:
        of_account = None
    clients = None
    if of_account is not None:
        clients = AccountClients(of_account, sessions, clock, limits)
    audit = AuditLog(clock, limits.audit_rows, config.audit_log)
    closing = asyncio.Event()
    limit = ConcurrencyLimit("requests", limits.works, limits.works_waiting, limits.work_s)
    rows: list[Part] = []
    rooms: list[_Room] = []
    for number, (own, its) in enumerate(_clusters(config, mq, others or {})):
        sampler = Sampler(its.admin, clock)
        parts = Parts(
            config=own,
            limits=limits,
            clock=clock,
            mq=its,
            sessions=sessions,
            audit=audit,
            sampler=sampler,
            watch=_watch(its, clock, sampler, rules or AlertRules(), own.cluster),
            said=said,
            clients=None if number else clients,
        )
        rooms.append(_Room(parts, Front(parts, Pages(own), limit)))
        rows += _parts(parts, number)
    if config.alerts_state is not None:
        rows.append(_kept_part(config.alerts_state, rooms))
    if clients is not None:
        timer = Timer("close idle clients", clients.tick, idle.EVERY_S, 2.0)
        rows.append(Part("clients of accounts", clients, timers=(timer,)))
    cluster = None
    if of_account is not None:
        checks = ConcurrencyLimit("sign-ins", CHECKS, WAITING, limits.work_s)
        cluster = ClusterAccounts(of_account, mq, checks.place)
    entrance, ways = _entrance(rooms[0], config, known, cluster)
    web = _routes(rooms, entrance, ways, closing)
    server = HttpService(Shield(web, config, limits), config, limits, closing, clock)
    # The audit log is closed after the last answer.
    rows.append(Part("audit", _Audit(audit)))
    rows.append(Part("server", server, needs=tuple(it.name for it in rows)))
    rows.append(Part("announced", _Announced(entrance, server, role), needs=("server",)))
    watches = tuple(it.parts.watch for it in rooms)
    return Console(App(rows, clock), server, sessions, watches, clients)


def _watch(mq: MQ, clock: Clock, sampler: Sampler, rules: AlertRules, cluster: str) -> Watch:
    alerts = Alerts(rules)
    webhook = Webhook(alerts.rules, clock)
    return Watch(mq.admin, clock, alerts=alerts, webhook=webhook, sampler=sampler, cluster=cluster)


def _parts(parts: Parts, number: int) -> list[Part]:
    """Return what runs for one cluster: its client, and what looks at it."""
    client = f"client {number}"
    watch = parts.watch
    timers = (
        Timer("sample", parts.sampler.tick, EVERY_S, 1.0),
        Timer("judge alerts", watch.tick, watching.EVERY_S, 2.0),
        Timer("post alerts", watch.webhook.tick, posting.EVERY_S, 2.0),
    )
    return [
        Part(client, _Client(parts.mq)),
        Part(f"watching {number}", _Watching(), needs=(client,), timers=timers),
    ]


def _kept_part(file: Path, rooms: Sequence[_Room]) -> Part:
    kept = Kept(file, {it.parts.config.cluster: it.parts.watch for it in rooms})
    timer = Timer("keep alerts", kept.tick, keeping.EVERY_S, 2.0)
    # Stopped before the watches: what they judged last is in the file.
    needs = tuple(f"watching {number}" for number in range(len(rooms)))
    return Part("alerts", _Kept(kept), needs=needs, timers=(timer,))


@dataclasses.dataclass(frozen=True, slots=True)
class _Room:
    """What serves one cluster."""

    parts: Parts
    front: Front


def _clusters(
    config: ConsoleConfig, mq: MQ, others: Mapping[str, MQ]
) -> list[tuple[ConsoleConfig, MQ]]:
    """Return the configuration and client of each cluster. Raises UsageError for a bad name."""
    if not others:
        return [(config, mq)]
    paths = {config.cluster: config.root_path}
    for name in others:
        path = f"/c/{name}"
        if not SCRIPT_SAFE.fullmatch(path) or name in ("..", ".") or name in paths:
            raise UsageError(
                f"--cluster {name[:64]!r}: letters, digits, '.', '_' and '-', and once"
            )
        paths[name] = config.root_path + path
    shared = dataclasses.replace(
        config, home=config.root_path, clusters=tuple((name, it) for name, it in paths.items())
    )
    return [(shared, mq)] + [
        (dataclasses.replace(shared, cluster=name, root_path=paths[name], proxies=()), its)
        for name, its in others.items()
    ]


def _provider(config: ConsoleConfig, clock: Clock) -> Provider | None:
    if config.login.oidc is None:
        return None
    try:
        from roquet.console.login.provider import Provider  # noqa: PLC0415  (slow, seldom wanted)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] == "roquet":
            raise
        text = "--login: oidc needs more packages: pip install 'roquet-VERSION.whl[console]'"
        raise UsageError(text) from error
    return Provider(config.login.oidc, clock)


def _entrance(
    room: _Room,
    config: ConsoleConfig,
    known: accounts.Accounts,
    cluster: ClusterAccounts | None,
) -> tuple[Entrance, list[BaseRoute]]:
    """Return what signs people in, and where they leave for a provider and come back."""
    parts, pages = room.parts, Pages(config)
    provider = _provider(config, parts.clock)
    entrance = Entrance(parts, room.front, pages, known, provider=provider, cluster=cluster)
    if provider is None or config.login.oidc is None:
        return entrance, []
    theirs = ProviderEntrance(parts, pages, entrance, config.login.oidc, provider)
    return entrance, [
        Route(START, theirs.start, methods=["GET"]),
        Route(BACK, theirs.back, methods=["GET"]),
    ]


def _routes(
    rooms: Sequence[_Room],
    entrance: Entrance,
    ways: Sequence[BaseRoute],
    closing: asyncio.Event,
) -> ASGIApp:
    async def alive(request: Request) -> Response:
        del request
        return PlainTextResponse("alive\n")

    first, *more = (_pages(it.parts, it.front, Tails(it.parts, it.front, closing)) for it in rooms)
    static = str(importlib.resources.files("roquet.console").joinpath("static"))
    shared = [
        Route("/livez", alive, methods=["GET"]),
        Route("/login", entrance.page, methods=["GET"]),
        Route("/login", entrance.enter, methods=["POST"]),
        Route("/logout", entrance.leave, methods=["POST"]),
        Route("/api/login", entrance.api_enter, methods=["POST"]),
        *ways,
        Mount("/static", StaticFiles(directory=static)),
    ]
    mounts = [
        Mount(it.parts.config.root_path.removeprefix(it.parts.config.base), _site(it, routes))
        for it, routes in zip(rooms[1:], more, strict=True)
    ]
    return _site(rooms[0], [*shared, *mounts, *first])


def _site(room: _Room, routes: Sequence[BaseRoute]) -> Starlette:
    config = room.parts.config
    inner = config.root_path.removeprefix(config.base)

    async def missing(request: Request, error: Exception) -> Response:
        status = error.status_code if isinstance(error, HTTPException) else 404
        text = "there is nothing at this address" if status == 404 else "that cannot be done here"
        path = request.scope["path"].removeprefix(inner)
        # Paths of known clusters come to the site of their own.
        unknown = _OF_CLUSTER.fullmatch(path) if status == 404 else None
        if unknown is not None:
            path = unknown[2]
            text = f"there is no cluster {unknown[1][:64]!r} here"
        answer: Response
        if path.startswith("/api"):
            answer = JSONResponse({"error": text}, status)
        elif path.startswith("/static"):
            answer = PlainTextResponse(text + "\n", status)
        else:
            answer = room.front.missing(request, text, status)
        if status == 405:
            answer.headers["allow"] = ", ".join(sorted(_methods(routes, path)))
        return answer

    async def broken(request: Request, error: Exception) -> Response:
        log.error("%s %r failed", request.method, request.url.path, exc_info=error)
        return JSONResponse({"error": "it failed: the log says why"}, 500)

    return Starlette(routes=routes, exception_handlers={HTTPException: missing, Exception: broken})


def _methods(routes: Iterable[BaseRoute], path: str) -> set[str]:
    """Return what may be done at a path: a page and an action may share it."""
    there = (it for it in routes if isinstance(it, Route) and it.path == path)
    return {method for it in there for method in it.methods or ()}


def _pages(parts: Parts, front: Front, tails: Tails) -> list[BaseRoute]:
    views = (*table.VIEWS, *table.DATA)
    about = document(views, table.ACTIONS, table.DOWNLOADS, parts.config.root_path)

    async def openapi(request: Request) -> Response:
        del request
        return JSONResponse(about)

    return [
        Route("/api/openapi.json", openapi, methods=["GET"]),
        Route("/api/tail", tails.handle, methods=["GET"]),
        *(Route(it.path, front.page(it), methods=["GET"]) for it in table.VIEWS),
        *(Route(it.path, front.form(it), methods=["POST"]) for it in table.ACTIONS),
        *(Route("/api" + it.path.rstrip("/"), front.api_view(it), methods=["GET"]) for it in views),
        *(Route("/api" + it.path, front.api_action(it), methods=["POST"]) for it in table.ACTIONS),
        *(Route(it.path, front.download(it), methods=["GET", "POST"]) for it in table.DOWNLOADS),
        *(
            Route("/api" + it.path, front.api_download(it), methods=["GET"])
            for it in table.DOWNLOADS
        ),
    ]
