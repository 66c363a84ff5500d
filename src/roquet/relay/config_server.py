"""A tiny configuration server: serves the list of inner servers from a file, over HTTP."""

from __future__ import annotations

import asyncio
import json
import logging
from http import HTTPStatus
from typing import TYPE_CHECKING

from roquet.base.errors import UsageError
from roquet.relay.servers import SCHEMA, ServersError, parse

if TYPE_CHECKING:
    from pathlib import Path

log = logging.getLogger(__name__)

_HEAD_MAX = 8192
_REQUEST_S = 5.0
_SERVERS_MAX = 1_000_000


class ConfigServer:
    """Answers `GET /servers` from a file that is read at each question, `GET /schema`. A service.

    A file that breaks the schema is answered 500 with the offending entry.
    """

    def __init__(self, file: Path, host: str = "127.0.0.1", port: int = 0) -> None:
        """Listen nowhere yet; port 0 means any free one."""
        self._file = file
        self._host = host
        self._port = port
        self._server: asyncio.Server | None = None

    @property
    def port(self) -> int:
        """The port that is listened on."""
        return self._port

    @property
    def url(self) -> str:
        """Where the list is."""
        return f"http://{self._host}:{self._port}/servers"

    async def start(self) -> None:
        """Listen. Raises UsageError when the address cannot be had."""
        try:
            self._server = await asyncio.start_server(
                self._serve, self._host, self._port, limit=_HEAD_MAX
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

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_REQUEST_S):
                head = await reader.readuntil(b"\r\n\r\n")
                words = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
                status, body = await self._answer(words)
                writer.write(
                    f"HTTP/1.1 {status.value} {status.phrase}\r\n"
                    "Content-Type: application/json\r\n"
                    f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode()
                )
                writer.write(body)
                await writer.drain()
        except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            log.debug("a question was not asked to its end")
        finally:
            writer.close()

    async def _answer(self, words: list[str]) -> tuple[HTTPStatus, bytes]:
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            return HTTPStatus.BAD_REQUEST, _error("not HTTP")
        if words[0] != "GET":
            return HTTPStatus.METHOD_NOT_ALLOWED, _error("only GET")
        match words[1].partition("?")[0]:
            case "/servers":
                return await self._list()
            case "/schema":
                return HTTPStatus.OK, json.dumps(SCHEMA).encode()
            case _:
                return HTTPStatus.NOT_FOUND, _error("/servers /schema")

    async def _list(self) -> tuple[HTTPStatus, bytes]:
        try:
            data = await asyncio.to_thread(self._file.read_bytes)
            parse(data, _SERVERS_MAX)
        except OSError as error:
            return HTTPStatus.INTERNAL_SERVER_ERROR, _error(f"{self._file.name}: {error.strerror}")
        except ServersError as error:
            log.warning("%s: %s", self._file, error)
            return HTTPStatus.INTERNAL_SERVER_ERROR, _error(f"{self._file.name}: {error}")
        return HTTPStatus.OK, data


def _error(text: str) -> bytes:
    return json.dumps({"error": text}).encode()
