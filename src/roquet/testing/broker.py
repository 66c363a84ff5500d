"""A real name server and broker for the tests of an application, in a thread, on free ports.

with roquet.testing.Broker() as broker:
    with roquet.sync.connect(broker.url) as mq, mq.producer() as producer:
        producer.send("orders", b"hello")

Nothing is simulated: sockets, files and rules are those of `roquet broker`. Each has a folder of
its own, in memory where there is room, so that any number of them can run side by side.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import shutil
import socket
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Self

from roquet.base.clock import SystemClock
from roquet.base.config import load
from roquet.base.errors import UsageError
from roquet.broker import app as broker_app
from roquet.broker.config import BrokerConfig, settled
from roquet.namesrv import app as namesrv_app
from roquet.namesrv.config import NamesrvConfig, Settings
from roquet.service.background import Tasks
from roquet.service.loop_thread import LoopThread
from roquet.testing.cluster import BUSY_MACHINE

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping

SETTINGS: Mapping[str, str] = {
    "brokerName": "testing",
    "bindAddress": "127.0.0.1",
    # A message of 4 MiB, the most that producers send, has to fit.
    "mappedFileSizeCommitLog": str(16 * 1024 * 1024),
    "mappedFileSizeConsumeQueue": str(20 * 20_000),
    "maxHashSlotNum": "50000",
    "maxIndexNum": "200000",
    "autoCreateTopicEnable": "true",
    "enablePropertyFilter": "true",
    "recallMessageEnable": "true",
    "timerPrecisionMs": "100",
    **BUSY_MACHINE,
}
"""What differs from a broker's defaults; `Broker(settings=...)` goes before."""
_MEMORY = Path("/dev/shm")  # noqa: S108  (a folder of our own is made in it)
_ROOM = 256 * 1024 * 1024
_PREFIX = "roquet-testing-"
_PORTS = range(20_000, 32_000)
"""Below those that systems give to clients: they are still free after a restart."""
_BROKER = 3
"""The broker's port after the name server's; its others are two below and one above it."""


class Broker:
    """A name server and a broker. Use it with `with` or `async with`, or `start` and `stop`."""

    def __init__(
        self, settings: Mapping[str, str] | None = None, *, data: Path | str | None = None
    ) -> None:
        """Start nothing yet.

        `settings` have Java's names, as in a `broker.conf`. `data` is a folder whose messages are
        kept; without it there is one that is removed at the end.
        """
        self._settings = {**SETTINGS, **(settings or {})}
        self._kept = None if data is None else Path(data)
        self._folder: Path | None = None
        self._loop: LoopThread | None = None
        self._ends = asyncio.Event()
        self._tasks = Tasks()
        self._port = 0
        """Of the name server; the broker's are those after it."""

    def __enter__(self) -> Self:
        """Start."""
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop, and remove the folder."""
        self.close()

    async def __aenter__(self) -> Self:
        """Start."""
        starting = asyncio.get_running_loop().run_in_executor(None, self.start)
        try:
            await asyncio.shield(starting)
        except asyncio.CancelledError:
            # The thread goes on: what it starts is stopped before whoever cancelled hears of it.
            with contextlib.suppress(UsageError):
                await starting
            await asyncio.to_thread(self.close)
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop, and remove the folder."""
        await asyncio.to_thread(self.close)

    @property
    def url(self) -> str:
        """What `roquet.connect` takes. Raises UsageError when it does not run."""
        return f"rmq://{self.name_server}"

    @property
    def name_server(self) -> str:
        """Address of the name server, `host:port`. Raises UsageError when it does not run."""
        if self._loop is None:
            raise UsageError("the broker for tests does not run: use it with `with`, or start it")
        return f"127.0.0.1:{self._port}"

    def start(self) -> None:
        """Start both servers, and return when messages can be sent. Raises UsageError."""
        if self._loop is not None:
            return
        if self._folder is None:
            self._folder = self._kept or Path(tempfile.mkdtemp(prefix=_PREFIX, dir=_where()))
        loop = LoopThread("roquet-testing")
        try:
            loop.run(self._opened(self._folder))
        except BaseException:
            # An interrupt finds servers half started: they stop as others do, not with the loop.
            try:
                loop.run(self._finish())
            finally:
                loop.close()
                self._remove()
            raise
        self._loop = loop

    def stop(self) -> None:
        """Stop in good order; `start` goes on with the same messages and the same addresses."""
        if self._loop is not None:
            loop, self._loop = self._loop, None
            try:
                loop.run(self._finish())
            finally:
                loop.close()

    def restart(self) -> None:
        """Stop and start: what clients see of it is a broker that was away."""
        self.stop()
        self.start()

    def close(self) -> None:
        """Stop and remove the folder, unless it was given. Twice is once."""
        self.stop()
        self._remove()

    # --- on the loop -------------------------------------------------------------------------

    async def _opened(self, folder: Path) -> None:
        if self._port:
            await self._begin(folder)
            return
        for last in (False, False, True):
            self._port = _free_ports()
            try:
                await self._begin(folder)
            except UsageError as error:
                # Somebody else may have been as quick.
                if last or "listen" not in str(error):
                    self._port = 0
                    raise
            else:
                return

    async def _begin(self, folder: Path) -> None:
        self._ends = asyncio.Event()
        ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._tasks.spawn(self._run(folder, ready), "servers for tests")
        await ready

    async def _run(self, folder: Path, ready: asyncio.Future[None]) -> None:
        # One task starts and stops the servers: these may have task groups.
        try:
            async with self._servers(folder):
                if not ready.done():  # whoever waited may have been interrupted
                    ready.set_result(None)
                await self._ends.wait()
        except Exception as error:
            if ready.cancelled():
                return  # nobody asks any more
            if ready.done():
                raise
            ready.set_exception(error)

    async def _finish(self) -> None:
        self._ends.set()
        await self._tasks.stop(within_s=30.0)

    @contextlib.asynccontextmanager
    async def _servers(self, folder: Path) -> AsyncGenerator[None]:
        clock = SystemClock()
        namesrv = namesrv_app.build(
            Settings(
                NamesrvConfig(
                    listen_port=self._port,
                    bind_address="127.0.0.1",
                    kv_config_path=str(folder / "kvConfig.json"),
                    config_store_path=str(folder / "namesrv.properties"),
                )
            ),
            clock,
        )
        async with namesrv.app:
            given = {
                **self._settings,
                "namesrvAddr": f"127.0.0.1:{namesrv.server.port}",
                "listenPort": str(self._port + _BROKER),
                "storePathRootDir": str(folder / "store"),
                "storePathCommitLog": str(folder / "store" / "commitlog"),
            }
            config, report = load(BrokerConfig, given, {}, {})
            if report.unknown:
                raise UsageError(f"a broker has no settings {sorted(report.unknown)}")
            rng = random.Random()  # noqa: S311  (spreads load, guards nothing)
            broker = broker_app.build(settled(config, from_file=False), clock, rng)
            async with broker.app:
                yield

    def _remove(self) -> None:
        folder, self._folder = self._folder, None
        if folder is not None and self._kept is None:
            shutil.rmtree(folder, ignore_errors=True)


def _where() -> Path | None:
    """Return where a folder in memory can be made, None for the usual place."""
    if not os.access(_MEMORY, os.W_OK):
        return None
    return _MEMORY if shutil.disk_usage(_MEMORY).free >= _ROOM else None


def _free_ports() -> int:
    """Return the first of five ports that are free now. Raises UsageError."""
    rng = random.Random()  # noqa: S311  (guards nothing)
    for _ in range(100):
        first = rng.choice(_PORTS)
        with contextlib.ExitStack() as stack:
            try:
                for port in range(first, first + _BROKER + 2):
                    stack.enter_context(socket.create_server(("127.0.0.1", port)))
            except OSError:
                continue
            return first
    raise UsageError("no five free ports in a row from 20000 to 32000")
