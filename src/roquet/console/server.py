"""The HTTP server under the console: a socket of ours, served by uvicorn inside this process."""

from __future__ import annotations

import contextlib
import socket
import ssl
from typing import TYPE_CHECKING, Any, cast

import uvicorn
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from roquet.base.errors import UsageError
from roquet.console.web.connection import KEEP_ALIVE_S, Connection
from roquet.console.web.peer import Peers
from roquet.service.background import Tasks
from roquet.service.process.listening import cannot_listen

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Generator

    from starlette.types import ASGIApp

    from roquet.base.clock import Clock
    from roquet.console.config import ConsoleConfig, Limits

_BACKLOG = 128
_LAST_S = 2
_READY_STEP_S = 0.01


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    # typing.override came with Python 3.12.
    def capture_signals(self) -> Generator[None]:  # type: ignore[explicit-override]
        """Leave the signals to the process, which stops all of its parts in order."""
        yield


def _outside(app: ASGIApp, config: ConsoleConfig, clock: Clock) -> ASGIApp:
    """Return the application behind what believes proxies, each judged by who really connects."""
    if config.proxy is not None:
        app = cast("ASGIApp", ProxyHeadersMiddleware(cast("Any", app), config.proxy))
    header = config.login.header
    return app if header is None else Peers(app, header, clock)


class HttpService:
    """Listens from `start` to `stop`. A service."""

    def __init__(
        self,
        app: ASGIApp,
        config: ConsoleConfig,
        limits: Limits,
        closing: asyncio.Event,
        clock: Clock,
    ) -> None:
        """Listen nowhere yet; `closing` is set before connections are ended."""
        self._config = config
        self._closing = closing
        self._clock = clock
        self._socket: socket.socket | None = None
        self._tasks = Tasks()
        self._server = _Server(
            uvicorn.Config(
                _outside(app, config, clock),
                http=Connection,
                ws="none",
                lifespan="off",
                loop="none",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                limit_concurrency=limits.connections,
                h11_max_incomplete_event_size=limits.head,
                timeout_keep_alive=KEEP_ALIVE_S,
                timeout_graceful_shutdown=_LAST_S,
                ssl_certfile=None if config.tls_cert is None else str(config.tls_cert),
                ssl_keyfile=None if config.tls_key is None else str(config.tls_key),
            )
        )

    @property
    def port(self) -> int:
        """The port that is listened on."""
        return self._config.port if self._socket is None else int(self._socket.getsockname()[1])

    @property
    def address(self) -> str:
        """What a browser is given: scheme, host and port."""
        scheme = "http" if self._config.tls_cert is None else "https"
        host = f"[{self._config.bind}]" if ":" in self._config.bind else self._config.bind
        return f"{scheme}://{host}:{self.port}{self._config.root_path}"

    async def start(self) -> None:
        """Listen. Raises UsageError when the port or the certificate cannot be had."""
        try:
            self._server.config.load()
        except (OSError, ssl.SSLError) as error:
            raise UsageError(f"--tls-cert, --tls-key: {error}") from error
        family = socket.AF_INET6 if ":" in self._config.bind else socket.AF_INET
        where = (self._config.bind, self._config.port)
        try:
            self._socket = socket.create_server(where, family=family, backlog=_BACKLOG)
        except (OSError, OverflowError) as error:
            raise cannot_listen(f"{where[0]}:{where[1]}", error) from error
        self._socket.setblocking(False)
        self._tasks.spawn(self._server.serve([self._socket]), "console")
        while not self._server.started and len(self._tasks):
            await self._clock.sleep(_READY_STEP_S)

    async def stop(self) -> None:
        """End live tails, let answers go out, close all connections."""
        self._closing.set()
        self._server.should_exit = True
        await self._tasks.stop(within_s=_LAST_S + 2.0)
        if self._socket is not None:
            self._socket.close()
            self._socket = None
