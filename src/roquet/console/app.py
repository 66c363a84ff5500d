"""The console, wired: a client of the cluster, the sampler, the server."""

from __future__ import annotations

import asyncio
import dataclasses
import importlib.resources
import logging
from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from roquet.console import accounts, table
from roquet.console.audit import AuditLog
from roquet.console.config import ConsoleConfig, Limits, Role
from roquet.console.context import Parts
from roquet.console.sampler import EVERY_S, Sampler
from roquet.console.server import HttpService
from roquet.console.sessions import Sessions
from roquet.console.web.answers import Works
from roquet.console.web.entrance import Entrance
from roquet.console.web.front import Front
from roquet.console.web.openapi import document
from roquet.console.web.render import Pages
from roquet.console.web.shield import Shield
from roquet.console.web.tail import Tails
from roquet.service.lifecycle import App, Part, Timer

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.requests import Request
    from starlette.types import ASGIApp

    from roquet.base.clock import Clock
    from roquet.client import MQ

log = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True, slots=True)
class Console:
    """A console that is built."""

    app: App
    server: HttpService
    sessions: Sessions


class _Client:
    """The client's life as a part."""

    def __init__(self, mq: MQ) -> None:
        self._mq = mq

    async def start(self) -> None:
        await self._mq.start()

    async def stop(self) -> None:
        await self._mq.close()


class _Watching:
    """The audit log's file and the sampler's life; its timer does the work."""

    def __init__(self, audit: AuditLog) -> None:
        self._audit = audit

    async def start(self) -> None:
        """Begin with nothing."""

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
) -> Console:
    """Wire a console to a client that nobody else starts. Raises UsageError.

    `said` prints the address with a one-time token, for `role`, at the start and again each time
    that the token was used.
    """
    limits = limits or Limits()
    sessions = Sessions(limits)
    known = accounts.Accounts({})
    if config.users is not None:
        known = accounts.load(config.users, limits.users)
    audit = AuditLog(clock, limits.audit_rows, config.audit_log)
    sampler = Sampler(mq.admin, clock)
    parts = Parts(
        config=config,
        limits=limits,
        clock=clock,
        mq=mq,
        sessions=sessions,
        audit=audit,
        sampler=sampler,
        said=said,
    )
    pages = Pages(config)
    front = Front(parts, pages, Works(limits))
    entrance = Entrance(parts, front, pages, known)
    closing = asyncio.Event()
    web = _routes(parts, front, entrance, Tails(parts, front, closing))
    server = HttpService(Shield(web, config, limits), config, limits, closing, clock)
    sampling = Timer("sample", sampler.tick, EVERY_S, 1.0)
    rows = [
        Part("client", _Client(mq)),
        Part("watching", _Watching(audit), needs=("client",), timers=(sampling,)),
        Part("server", server, needs=("client", "watching")),
        Part("announced", _Announced(entrance, server, role), needs=("server",)),
    ]
    return Console(App(rows, clock), server, sessions)


def _routes(parts: Parts, front: Front, entrance: Entrance, tails: Tails) -> ASGIApp:
    views = (*table.VIEWS, *table.DATA)
    about = document(views, table.ACTIONS, parts.config.root_path)

    async def openapi(request: Request) -> Response:
        del request
        return JSONResponse(about)

    async def alive(request: Request) -> Response:
        del request
        return PlainTextResponse("alive\n")

    async def missing(request: Request, error: Exception) -> Response:
        status = error.status_code if isinstance(error, HTTPException) else 404
        text = "there is nothing at this address" if status == 404 else "that cannot be done here"
        path = request.scope["path"]
        if path.startswith("/api"):
            return JSONResponse({"error": text}, status)
        if path.startswith("/static"):
            return PlainTextResponse(text + "\n", status)
        return front.missing(request, text, status)

    async def broken(request: Request, error: Exception) -> Response:
        log.error("%s %r failed", request.method, request.url.path, exc_info=error)
        return JSONResponse({"error": "it failed: the log says why"}, 500)

    static = str(importlib.resources.files("roquet.console").joinpath("static"))
    return Starlette(
        routes=[
            Route("/livez", alive, methods=["GET"]),
            Route("/login", entrance.page, methods=["GET"]),
            Route("/login", entrance.enter, methods=["POST"]),
            Route("/logout", entrance.leave, methods=["POST"]),
            Route("/api/login", entrance.api_enter, methods=["POST"]),
            Route("/api/openapi.json", openapi, methods=["GET"]),
            Route("/api/tail", tails.handle, methods=["GET"]),
            *(Route(it.path, front.page(it), methods=["GET"]) for it in table.VIEWS),
            *(Route(it.path, front.form(it), methods=["POST"]) for it in table.ACTIONS),
            *(
                Route("/api" + it.path.rstrip("/"), front.api_view(it), methods=["GET"])
                for it in views
            ),
            *(
                Route("/api" + it.path, front.api_action(it), methods=["POST"])
                for it in table.ACTIONS
            ),
            Mount("/static", StaticFiles(directory=static)),
        ],
        exception_handlers={HTTPException: missing, Exception: broken},
    )
