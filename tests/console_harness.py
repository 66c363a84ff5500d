"""A console in the test's own process over a real cluster, and a small HTTP client."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import http.client
import json
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from roquet.base.clock import SystemClock
from roquet.client import connect
from roquet.console.app import build
from roquet.console.config import ConsoleConfig, Limits
from roquet.console.roles import Role
from roquet.testing.cluster import Cluster, cluster

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping
    from pathlib import Path

    from roquet.acl.credentials import Credentials
    from roquet.console.alerts.rules import AlertRules
    from roquet.console.app import Console

FORM = "application/x-www-form-urlencoded"


@dataclasses.dataclass(frozen=True, slots=True)
class Answer:
    status: int
    headers: http.client.HTTPMessage
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()

    @property
    def json(self) -> dict[str, Any]:
        found = json.loads(self.body)
        assert isinstance(found, dict)
        return found


@dataclasses.dataclass(slots=True)
class Browser:
    """Asks a console as one person: keeps the cookie, knows the token of its forms."""

    port: int
    root: str = ""
    cookie: str = ""
    csrf: str = ""

    async def ask(
        self,
        method: str,
        path: str,
        body: bytes | str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        more = {"cookie": self.cookie} if self.cookie else {}
        return await asyncio.to_thread(self._ask, method, path, body, {**more, **(headers or {})})

    def _ask(
        self, method: str, path: str, body: bytes | str | None, headers: Mapping[str, str]
    ) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.request(method, self.root + path, body, dict(headers))
            got = connection.getresponse()
            return Answer(got.status, got.headers, got.read())
        finally:
            connection.close()

    async def get(self, path: str, **query: str) -> Answer:
        return await self.ask("GET", f"{path}?{urlencode(query)}" if query else path)

    async def post(self, path: str, **fields: Any) -> Answer:
        body = urlencode({"csrf": self.csrf, **fields}, doseq=True)
        return await self.ask("POST", path, body, {"content-type": FORM})

    async def call(self, path: str, **given: Any) -> Answer:
        """Call the JSON API with the cookie and the token against CSRF."""
        headers = {"content-type": "application/json", "x-csrf-token": self.csrf}
        return await self.ask("POST", "/api" + path, json.dumps(given), headers)


@dataclasses.dataclass(slots=True)
class World:
    cluster: Cluster
    console: Console
    printed: list[str]

    def stranger(self) -> Browser:
        return Browser(self.console.server.port)

    def as_role(self, role: Role, name: str = "ana") -> Browser:
        """Return somebody who is signed in."""
        now_s = SystemClock().steady_ms() / 1000
        key = self.console.sessions.begin(name, role, now_s)
        session = self.console.sessions.find(key, now_s)
        assert session is not None
        return Browser(self.console.server.port, cookie=f"roquet_console={key}", csrf=session.csrf)

    @property
    def administrator(self) -> Browser:
        return self.as_role(Role.ADMINISTRATOR)


@contextlib.asynccontextmanager
async def console_over(
    world: Cluster,
    limits: Limits | None = None,
    *,
    rules: AlertRules | None = None,
    others: Mapping[str, Cluster] | None = None,
    credentials: Credentials | None = None,
    **config: Any,
) -> AsyncGenerator[World]:
    printed: list[str] = []
    more = {name: connect(f"rmq://{it.name_servers}") for name, it in (others or {}).items()}
    settings = ConsoleConfig(port=0, cluster=world.name_servers, **config)
    mq = connect(f"rmq://{world.name_servers}", credentials=credentials)
    console = build(
        settings,
        mq,
        SystemClock(),
        printed.append,
        limits=limits,
        rules=rules,
        others=more,
        of_account=lambda it: connect(f"rmq://{world.name_servers}", credentials=it),
    )
    async with console.app:
        yield World(world, console, printed)


@contextlib.asynccontextmanager
async def a_console(
    folder: Path, limits: Limits | None = None, **config: Any
) -> AsyncGenerator[World]:
    async with cluster(folder) as world, console_over(world, limits, **config) as console:
        yield console
