"""A tiny configuration server: serves the list of inner servers from a file, over HTTP."""

from __future__ import annotations

import asyncio
import logging
from http import HTTPStatus
from typing import TYPE_CHECKING

from roquet.relay.servers import SCHEMA, ServersError, parse
from roquet.service.http.server import JSON, HttpAnswer, HttpRequest, HttpServer, json_answer

if TYPE_CHECKING:
    from pathlib import Path

log = logging.getLogger(__name__)

_SERVERS_MAX = 1_000_000


class ConfigServer(HttpServer):
    """Answers `GET /servers` from a file that is read at each question, `GET /schema`. A service.

    A file that breaks the schema is answered 500 with the offending entry.
    """

    def __init__(self, file: Path, host: str = "127.0.0.1", port: int = 0) -> None:
        """Listen nowhere yet; port 0 means any free one."""
        super().__init__(self.answer, host=host, port=port)
        self._file = file
        self._at = host

    @property
    def url(self) -> str:
        """Where the list is."""
        return f"http://{self._at}:{self.port}/servers"

    async def answer(self, request: HttpRequest) -> HttpAnswer:
        """Answer a request."""
        if request.method != "GET":
            return _error("only GET", HTTPStatus.METHOD_NOT_ALLOWED)
        match request.path:
            case "/servers":
                return await self._list()
            case "/schema":
                return json_answer(SCHEMA)
            case _:
                return _error("/servers /schema", HTTPStatus.NOT_FOUND)

    async def _list(self) -> HttpAnswer:
        broken = HTTPStatus.INTERNAL_SERVER_ERROR
        try:
            data = await asyncio.to_thread(self._file.read_bytes)
            parse(data, _SERVERS_MAX)
        except OSError as error:
            return _error(f"{self._file.name}: {error.strerror}", broken)
        except ServersError as error:
            log.warning("%s: %s", self._file, error)
            return _error(f"{self._file.name}: {error}", broken)
        return HttpAnswer(HTTPStatus.OK, data, JSON)


def _error(text: str, status: HTTPStatus) -> HttpAnswer:
    return json_answer({"error": text}, status)
