"""The relay's HTTP side: what there is to see, and what an operator may change.

Each call is a row of the web registry: method and path, owner, handler. Reading is free for whoever
reaches the address (loopback unless told otherwise); what changes something needs the admin token.
"""

from __future__ import annotations

import asyncio
import dataclasses
import hmac
import importlib.resources
import itertools
from http import HTTPStatus
from typing import TYPE_CHECKING, Protocol, TypeAlias

import msgspec

from roquet.base.errors import Refused
from roquet.relay.codes import ID_MAX
from roquet.relay.web.openapi import document
from roquet.service.background import give_way
from roquet.service.http.server import JSON, HttpAnswer, HttpRequest, HttpServer, json_answer
from roquet.service.metrics import CONTENT_TYPE

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from roquet.relay.registry import Registry
    from roquet.relay.web.view import View
    from roquet.service.metrics import Metrics

WebHandler: TypeAlias = "Callable[[HttpRequest, int], HttpAnswer | Awaitable[HttpAnswer]]"
"""Takes the request and the server id of the path, 0 without one."""

OWNER = "web"
ROWS_AT_ONCE = 200
"""Servers whose rows are written before others have their turn."""
_PAGE_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline';"
    " script-src 'unsafe-inline'; connect-src 'self'; img-src data:",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}


class Orders(Protocol):
    """Takes what an operator asks for (the master service)."""

    async def ask(self, what: str, server_id: int = 0) -> bool:
        """Do it at the next tick; False when there is no such server. Raises Refused."""
        ...


@dataclasses.dataclass(frozen=True, slots=True)
class _Path:
    """A path taken apart: the row it may be, and the server id in it."""

    row: str
    server_id: int


class WebSide(HttpServer):
    """Serves the calls of the registry. A service."""

    def __init__(
        self,
        calls: Registry[WebHandler],
        *,
        view: View,
        orders: Orders,
        metrics: Metrics,
        host: str,
        port: int,
        admin_token: str | None,
    ) -> None:
        """Listen nowhere yet; register our calls. Raises UsageError when one is taken."""
        super().__init__(self.answer, host=host, port=port, body_max=4096, connections_max=256)
        self._calls = calls
        self._view = view
        self._orders = orders
        self._metrics = metrics
        self._admin_token = admin_token
        self._page = _page()
        self._one_page = asyncio.Lock()
        for key, handler in (
            ("GET /", self.page),
            ("GET /health", self.health),
            ("GET /servers", self.servers),
            ("GET /servers/{id}", self.server),
            ("POST /servers/{id}/reconnect", self.reconnect),
            ("POST /servers/{id}/drain", self.drain),
            ("POST /servers/{id}/undrain", self.undrain),
            ("POST /config/reload", self.reload),
            ("GET /workers", self.workers),
            ("GET /metrics", self.metrics),
            ("GET /openapi.json", self.openapi),
        ):
            calls.add(key, key, OWNER, handler)

    def answer(self, request: HttpRequest) -> HttpAnswer | Awaitable[HttpAnswer]:
        """Find the row of a request and have it answered."""
        method = "GET" if request.method == "HEAD" else request.method
        path = _taken_apart(request.path)
        handler = self._calls.get(f"{method} {path.row}")
        if handler is None:
            others = sorted(
                str(key).split(" ")[0]
                for key, _ in self._calls
                if str(key).endswith(f" {path.row}")
            )
            if others:
                wrong = _error(HTTPStatus.METHOD_NOT_ALLOWED, f"only {', '.join(others)}")
                return dataclasses.replace(wrong, headers={"Allow": ", ".join(others)})
            return _error(HTTPStatus.NOT_FOUND, "there is no such call: /openapi.json lists them")
        if "{id}" in path.row and not 1 <= path.server_id <= ID_MAX:
            return _error(HTTPStatus.BAD_REQUEST, f"a server id is an integer within 1..{ID_MAX}")
        if method != "GET":
            refusal = self._refusal(request)
            if refusal is not None:
                return refusal
        return handler(request, path.server_id)

    def _refusal(self, request: HttpRequest) -> HttpAnswer | None:
        """Return why a call that changes something is not made."""
        if self._admin_token is None:
            return _error(
                HTTPStatus.FORBIDDEN, "calls that change something are off: set admin_token"
            )
        given = request.headers.get("authorization", "")
        scheme, _, token = given.partition(" ")
        same = hmac.compare_digest(token.strip().encode(), self._admin_token.encode())
        if scheme.lower() == "bearer" and same:
            return None
        wrong = _error(HTTPStatus.UNAUTHORIZED, "send Authorization: Bearer and the admin token")
        return dataclasses.replace(wrong, headers={"WWW-Authenticate": "Bearer"})

    # --- reading --------------------------------------------------------------------------------

    def page(self, request: HttpRequest, _: int) -> HttpAnswer:
        """Show the live page."""
        del request
        return HttpAnswer(HTTPStatus.OK, self._page, "text/html; charset=utf-8", _PAGE_HEADERS)

    def health(self, request: HttpRequest, _: int) -> HttpAnswer:
        """Tell whether there is a configuration, and from where; 503 while there is none."""
        del request
        row = self._view.health()
        status = HTTPStatus.OK if row.ready else HTTPStatus.SERVICE_UNAVAILABLE
        return json_answer(dataclasses.asdict(row), status)

    async def servers(self, request: HttpRequest, _: int) -> HttpAnswer:
        """List all inner servers."""
        del request
        # One page at a time: each costs every turn of the loop its slice.
        async with self._one_page:
            return HttpAnswer(HTTPStatus.OK, await self._all_rows(), JSON)

    async def _all_rows(self) -> bytes:
        """Write the rows in slices: those listed now, without those that leave meanwhile."""
        ids = iter(self._view.ids())
        parts: list[bytes] = []
        while some := [*itertools.islice(ids, ROWS_AT_ONCE)]:
            if rows := self._view.servers(some):
                parts.append(msgspec.json.encode(rows)[1:-1])
            await give_way()
        return b"[%b]\n" % b",".join(parts)

    def server(self, request: HttpRequest, server_id: int) -> HttpAnswer:
        """Show one inner server."""
        del request
        row = self._view.server(server_id)
        return _unknown(server_id) if row is None else json_answer(dataclasses.asdict(row))

    def workers(self, request: HttpRequest, _: int) -> HttpAnswer:
        """List the workers."""
        del request
        return json_answer([dataclasses.asdict(row) for row in self._view.workers()])

    def metrics(self, request: HttpRequest, _: int) -> HttpAnswer:
        """Return all numbers as Prometheus text."""
        del request
        return HttpAnswer(HTTPStatus.OK, self._metrics.render(), CONTENT_TYPE)

    def openapi(self, request: HttpRequest, _: int) -> HttpAnswer:
        """Describe these calls (OpenAPI 3.1)."""
        del request
        rows = [(str(key), registration.handler) for key, registration in self._calls]
        return json_answer(document(rows))

    # --- changing -------------------------------------------------------------------------------

    async def reconnect(self, request: HttpRequest, server_id: int) -> HttpAnswer:
        """Close a server's link, if any, and dial it again."""
        del request
        return await self._order("reconnect", server_id)

    async def drain(self, request: HttpRequest, server_id: int) -> HttpAnswer:
        """Let a server get no new packets; what waits for it still goes out."""
        del request
        return await self._order("drain", server_id)

    async def undrain(self, request: HttpRequest, server_id: int) -> HttpAnswer:
        """Let a drained server get packets again."""
        del request
        return await self._order("undrain", server_id)

    async def reload(self, request: HttpRequest, _: int) -> HttpAnswer:
        """Ask the configuration server now."""
        del request
        return await self._order("reload", 0)

    async def _order(self, what: str, server_id: int) -> HttpAnswer:
        try:
            there = await self._orders.ask(what, server_id)
        except Refused as error:
            return _error(HTTPStatus.SERVICE_UNAVAILABLE, error.remark)
        return json_answer({"done": what}, HTTPStatus.ACCEPTED) if there else _unknown(server_id)


def _taken_apart(path: str) -> _Path:
    parts = path.split("/")
    if len(parts) >= 3 and parts[1] == "servers":
        digits = parts[2]
        right = digits.isascii() and digits.isdigit() and len(digits) <= 10
        return _Path("/".join(["", "servers", "{id}", *parts[3:]]), int(digits) if right else 0)
    return _Path(path, 0)


def _error(status: HTTPStatus, text: str) -> HttpAnswer:
    return json_answer({"error": text}, status)


def _unknown(server_id: int) -> HttpAnswer:
    return _error(HTTPStatus.NOT_FOUND, f"server {server_id} is not in the configuration")


def _page() -> bytes:
    return importlib.resources.files("roquet.relay").joinpath("page/index.html").read_bytes()


def watch(metrics: Metrics, view: View) -> None:
    """Show the relay's numbers among the metrics."""

    def by_state() -> dict[str, float]:
        return {state: float(count) for state, count in view.by_state().items()}

    def of_packets() -> dict[str, float]:
        return {name: float(count) for name, count in view.counters().items()}

    def of_lists() -> dict[str, float]:
        return {name: float(count) for name, count in view.waiting().items()}

    def of_mailboxes() -> dict[str, float]:
        return {str(row.index): float(row.mailbox) for row in view.workers()}

    def ready() -> float:
        return float(view.health().ready)

    metrics.watch("relay_ready", "Whether there is a configuration", ready)
    metrics.watch_many("relay_servers", "Inner servers by state", "state", by_state)
    metrics.watch_many("relay_packets", "What happened to packets so far", "what", of_packets)
    metrics.watch_many("relay_waiting", "Servers in the master's lists", "list", of_lists)
    metrics.watch_many("relay_mailbox", "Messages that wait for a worker", "worker", of_mailboxes)
    metrics.watch("relay_queued_bytes", "Bytes in all queues", lambda: float(view.queued_bytes()))
