"""The small HTTP/1.1 server of our own processes: health, metrics, lists, a page. A service.

One request a connection, everything bounded: head, body, time, connections. What is served is the
business of one handler; it never sees a request that is not whole.
"""

from __future__ import annotations

import asyncio
import dataclasses
import inspect
import json
import logging
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, TypeAlias, cast
from urllib.parse import parse_qsl, unquote

from roquet.base.clock import SystemClock
from roquet.service.http.listening import port_of
from roquet.service.process.listening import cannot_listen
from roquet.service.ratelog import RateLog

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

log = logging.getLogger(__name__)

HEAD_MAX = 8192
_REQUEST_S = 5.0
_LAST_S = 1.0
"""For answers under way when the server stops."""
_FIELDS_MAX = 100
_HEADERS_MAX = 100
_TOO_LARGE = HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
_PIECE = 128 * 1024
"""Bytes of a body that are given to the transport at a time."""
PLAIN = "text/plain; charset=utf-8"
JSON = "application/json"


@dataclasses.dataclass(frozen=True, slots=True)
class HttpRequest:
    """A whole request; header names are in small letters."""

    method: str
    path: str
    """Without the query, percent signs resolved."""
    query: Mapping[str, str] = dataclasses.field(default_factory=dict[str, str])
    headers: Mapping[str, str] = dataclasses.field(default_factory=dict[str, str])
    body: bytes = b""


@dataclasses.dataclass(frozen=True, slots=True)
class HttpAnswer:
    """What goes back."""

    status: HTTPStatus
    body: bytes | bytearray = b""
    kind: str = PLAIN
    headers: Mapping[str, str] = dataclasses.field(default_factory=dict[str, str])


Handler: TypeAlias = "Callable[[HttpRequest], HttpAnswer | Awaitable[HttpAnswer]]"


def json_answer(value: Any, status: HTTPStatus = HTTPStatus.OK) -> HttpAnswer:
    """Return a value as JSON."""
    return HttpAnswer(status, json.dumps(value).encode() + b"\n", JSON)


def text_answer(text: str, status: HTTPStatus = HTTPStatus.OK) -> HttpAnswer:
    """Return a line of text."""
    return HttpAnswer(status, text.encode() + b"\n")


class _UnusableError(Exception):
    def __init__(self, status: HTTPStatus, text: str) -> None:
        super().__init__(text)
        self.status = status


class HttpServer:
    """Listens from `start` to `stop` and asks the handler."""

    def __init__(
        self,
        handler: Handler,
        *,
        host: str,
        port: int,
        body_max: int = 0,
        connections_max: int = 64,
    ) -> None:
        """Listen nowhere yet; port 0 means any free one, `body_max` 0 that no body is taken."""
        self._handler = handler
        self._host = host
        self._port = port
        self._body_max = body_max
        self._connections_max = connections_max
        self._server: asyncio.Server | None = None
        self._connections = 0
        self._peers: dict[asyncio.StreamWriter, None] = {}
        """Connections that wait for their peer: for its request, or for room for the answer."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._rated = RateLog(log, SystemClock())

    @property
    def port(self) -> int:
        """The port that is listened on."""
        return self._port

    async def start(self) -> None:
        """Listen. Raises UsageError when the address cannot be had."""
        try:
            self._server = await asyncio.start_server(
                self._serve, self._host, self._port, limit=HEAD_MAX
            )
        except (OSError, OverflowError) as error:
            raise cannot_listen(f"{self._host}:{self._port}", error) from error
        self._port = port_of(self._server, self._host, self._port)

    async def stop(self) -> None:
        """Stop listening; requests that are whole may be answered, others are ended."""
        if self._server is None:
            return
        self._server.close()
        for writer in self._peers:
            writer.transport.abort()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=_LAST_S)
        await self._server.wait_closed()
        self._server = None

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections += 1
        task = cast("asyncio.Task[None]", asyncio.current_task())
        self._tasks.add(task)
        try:
            if self._connections <= self._connections_max or self._make_room():
                self._peers[writer] = None
                async with asyncio.timeout(_REQUEST_S):
                    await self._one(reader, writer)
        except (TimeoutError, OSError, asyncio.IncompleteReadError):
            log.debug("a request over HTTP did not come to its end")
        except Exception as error:  # noqa: BLE001  (a stranger's bytes must not flood the log)
            self._rated.warning("request", f"a request over HTTP failed: {error!r}", error=error)
        finally:
            self._connections -= 1
            self._tasks.discard(task)
            self._peers.pop(writer, None)
            writer.close()

    def _make_room(self) -> bool:
        """Close the connection that has waited longest for its peer; false where none waits.

        Half requests of strangers would shut out who looks whether the process lives.
        """
        oldest = next(iter(self._peers), None)
        if oldest is None:
            return False
        del self._peers[oldest]
        oldest.transport.abort()
        return True

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        method = ""
        try:
            request = await self._read(reader)
            self._peers.pop(writer, None)
        except _UnusableError as error:
            answer = text_answer(str(error), error.status)
        else:
            method = request.method
            answer = await self._ask(request)
            self._peers[writer] = None
        more = "".join(f"{name}: {value}\r\n" for name, value in answer.headers.items())
        writer.write(
            f"HTTP/1.1 {answer.status.value} {answer.status.phrase}\r\n"
            f"Content-Type: {answer.kind}\r\nContent-Length: {len(answer.body)}\r\n"
            f"{more}Connection: close\r\n\r\n".encode()
        )
        if method != "HEAD":
            body = memoryview(answer.body)
            for at in range(0, len(body), _PIECE):
                # The transport copies what the socket does not take, again and again.
                writer.write(body[at : at + _PIECE])
                await writer.drain()
        await writer.drain()

    async def _ask(self, request: HttpRequest) -> HttpAnswer:
        try:
            answer = self._handler(request)
            return await answer if inspect.isawaitable(answer) else answer
        except Exception as error:  # noqa: BLE001  (whatever it is, the peer hears of it)
            self._rated.error("handler", f"a request over HTTP failed: {error!r}", error=error)
            return text_answer("it failed: the log says why", HTTPStatus.INTERNAL_SERVER_ERROR)

    async def _read(self, reader: asyncio.StreamReader) -> HttpRequest:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        except asyncio.LimitOverrunError as error:
            text = f"a head has at most {HEAD_MAX} bytes"
            raise _UnusableError(_TOO_LARGE, text) from error
        first, *rows = head[:-4].split("\r\n")
        if len(rows) > _HEADERS_MAX:
            raise _UnusableError(_TOO_LARGE, f"there are at most {_HEADERS_MAX} headers")
        words = first.split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/1.") or not words[1].startswith("/"):
            raise _UnusableError(HTTPStatus.BAD_REQUEST, "not HTTP")
        headers = _headers(rows)
        path, _, query = words[1].partition("?")
        return HttpRequest(
            method=words[0],
            path=unquote(path),
            query=_query(query),
            headers=headers,
            body=await self._body(reader, headers),
        )

    async def _body(self, reader: asyncio.StreamReader, headers: Mapping[str, str]) -> bytes:
        if "transfer-encoding" in headers:
            raise _UnusableError(HTTPStatus.LENGTH_REQUIRED, "a body needs a Content-Length")
        length = headers.get("content-length", "0")
        if not (length.isascii() and length.isdigit() and len(length) < 10):
            raise _UnusableError(HTTPStatus.BAD_REQUEST, "Content-Length is no number")
        if int(length) > self._body_max:
            raise _UnusableError(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"a body has at most {self._body_max} bytes"
            )
        return await reader.readexactly(int(length))


def _query(text: str) -> dict[str, str]:
    try:
        return dict(parse_qsl(text, max_num_fields=_FIELDS_MAX))
    except ValueError as error:
        raise _UnusableError(HTTPStatus.BAD_REQUEST, "the query is too long or broken") from error


def _headers(rows: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for row in rows:
        name, colon, value = row.partition(":")
        if not colon or not name or name != name.strip():
            raise _UnusableError(HTTPStatus.BAD_REQUEST, "a header is broken")
        # Two lengths that differ are how a request is smuggled past a proxy.
        if found.setdefault(name.lower(), value.strip()) != value.strip():
            found[name.lower()] += "," + value.strip()
    return found
