"""A small HTTP endpoint for machines: `/metrics`, `/livez`, `/readyz`."""

from __future__ import annotations

import asyncio
import logging
from http import HTTPStatus
from typing import TYPE_CHECKING

from roquet.base.errors import UsageError
from roquet.service.metrics import CONTENT_TYPE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from roquet.service.metrics import Metrics

log = logging.getLogger(__name__)

_REQUEST_MAX = 8192
_REQUEST_S = 5.0
_CONNECTIONS_MAX = 64
_PLAIN = "text/plain; charset=utf-8"


class Health:
    """Whether the process may be sent work: each thing it needs has to have said yes."""

    def __init__(self, needs: Sequence[str] = ()) -> None:
        """Be not ready until each of `needs` was reported ready (`registered`, say)."""
        self._missing = dict.fromkeys(needs, "not yet")

    @property
    def is_ready(self) -> bool:
        """Whether nothing is missing."""
        return not self._missing

    def ready(self, need: str) -> None:
        """Report that a thing is there."""
        self._missing.pop(need, None)

    def not_ready(self, need: str, why: str) -> None:
        """Report that a thing is missing, or has gone."""
        self._missing[need] = why

    def explain(self) -> str:
        """Return `ok`, or a line for each missing thing."""
        return "\n".join(f"{need}: {why}" for need, why in self._missing.items()) or "ok"


class HealthEndpoint:
    """Serves health and metrics over HTTP/1.1, one request a connection. A service."""

    def __init__(self, *, host: str, port: int, health: Health, metrics: Metrics) -> None:
        """Listen nowhere yet; port 0 means any free one."""
        self._host = host
        self._port = port
        self._health = health
        self._metrics = metrics
        self._server: asyncio.Server | None = None
        self._connections = 0

    @property
    def port(self) -> int:
        """The port that is listened on."""
        return self._port

    async def start(self) -> None:
        """Listen. Raises UsageError when the address cannot be had."""
        try:
            self._server = await asyncio.start_server(
                self._serve, self._host, self._port, limit=_REQUEST_MAX
            )
        except (OSError, OverflowError) as error:
            raise UsageError(f"cannot listen on {self._host}:{self._port}: {error}") from error
        self._port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Stop listening."""
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()
            self._server = None

    def answer(self, method: str, path: str) -> tuple[HTTPStatus, str, bytes]:
        """Return status, content type and body for a request."""
        if method not in {"GET", "HEAD"}:
            return HTTPStatus.METHOD_NOT_ALLOWED, _PLAIN, b"only GET\n"
        match path.partition("?")[0]:
            case "/metrics":
                return HTTPStatus.OK, CONTENT_TYPE, self._metrics.render()
            case "/livez":
                return HTTPStatus.OK, _PLAIN, b"ok\n"
            case "/readyz":
                ready = self._health.is_ready
                status = HTTPStatus.OK if ready else HTTPStatus.SERVICE_UNAVAILABLE
                return status, _PLAIN, self._health.explain().encode() + b"\n"
            case _:
                return HTTPStatus.NOT_FOUND, _PLAIN, b"/metrics /livez /readyz\n"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections += 1
        try:
            if self._connections <= _CONNECTIONS_MAX:
                async with asyncio.timeout(_REQUEST_S):
                    await self._one(reader, writer)
        except (
            TimeoutError,
            OSError,
            ValueError,
            asyncio.IncompleteReadError,
            asyncio.LimitOverrunError,
        ) as error:
            log.debug("a health request failed: %s", error)
        finally:
            self._connections -= 1
            writer.close()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        words = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            status, kind, body = HTTPStatus.BAD_REQUEST, _PLAIN, b"not HTTP\n"
        else:
            status, kind, body = self.answer(words[0], words[1])
        writer.write(
            f"HTTP/1.1 {status.value} {status.phrase}\r\n"
            f"Content-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
            "Connection: close\r\n\r\n".encode()
        )
        if words[0] != "HEAD":
            writer.write(body)
        await writer.drain()
