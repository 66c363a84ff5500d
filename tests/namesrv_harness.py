"""A name server on a free port for tests, and a plain way to ask it."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import itertools
from typing import TYPE_CHECKING, Any, ParamSpec, Self

from roquet.base.clock import SystemClock
from roquet.namesrv.app import NameServer, build
from roquet.namesrv.config import NamesrvConfig, Settings
from roquet.protocol.command import Command
from roquet.remoting.codec import decode, encode

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine
    from pathlib import Path

    from roquet.base.clock import Clock


P = ParamSpec("P")


def looped(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Run a coroutine test on a loop of its own."""

    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        asyncio.run(test(*args, **kwargs))

    return run


class Asker:
    """One connection that asks and waits."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.opaque = itertools.count(1)
        self.partial = bytearray()
        self.answers: list[Command] = []

    @classmethod
    async def connect(cls, port: int) -> Self:
        return cls(*await asyncio.open_connection("127.0.0.1", port))

    async def ask(
        self,
        code: int,
        ext: dict[str, str] | None = None,
        body: bytes = b"",
        version: int = 513,
    ) -> Command:
        command = Command(code=code, ext=ext, body=body, version=version)
        self.writer.write(encode(command, opaque=next(self.opaque), flag=0))
        return await self.answer()

    async def answer(self) -> Command:
        async with asyncio.timeout(60):
            while True:
                if self.answers:
                    return self.answers.pop(0)
                self.answers, used = decode(self.partial, 1 << 24)
                del self.partial[:used]
                if self.answers:
                    continue
                chunk = await self.reader.read(65536)
                assert chunk, "the server closed the connection"
                self.partial += chunk

    async def until_closed(self) -> None:
        async with asyncio.timeout(60):
            while await self.reader.read(65536):
                pass

    def close(self) -> None:
        self.writer.close()


@dataclasses.dataclass
class Serving:
    """A running name server."""

    namesrv: NameServer
    askers: list[Asker]

    async def connect(self) -> Asker:
        asker = await Asker.connect(self.namesrv.server.port)
        self.askers.append(asker)
        return asker


@contextlib.asynccontextmanager
async def serving(
    folder: Path, clock: Clock | None = None, **changes: Any
) -> AsyncIterator[Serving]:
    config = NamesrvConfig(
        listen_port=0,
        kv_config_path=str(folder / "kvConfig.json"),
        config_store_path=str(folder / "namesrv.properties"),
        **changes,
    )
    namesrv = build(Settings(config), clock or SystemClock())
    async with namesrv.app:
        served = Serving(namesrv, [])
        try:
            yield served
        finally:
            for asker in served.askers:
                asker.close()
