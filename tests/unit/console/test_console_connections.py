"""Peers that keep connections of the console waiting: each ends, and none keeps others out."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from typing import TYPE_CHECKING, Any

import pytest

from console_harness import World, a_console
from roquet.console.config import Limits
from roquet.console.web import connection

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

LOGIN = b"GET /login HTTP/1.1\r\nHost: localhost\r\n"
WHOLE = LOGIN + b"\r\n"


@pytest.fixture
def _little_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"FIRST_S": 2.0, "NEXT_S": 2.0, "READ_S": 0.5, "LOOK_S": 0.1}.items():
        monkeypatch.setattr(connection, name, value)


@contextlib.contextmanager
def connected(world: World, buffer: int = 0) -> Generator[socket.socket]:
    with socket.socket() as line:
        line.settimeout(20)
        if buffer:
            line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        line.connect(("127.0.0.1", world.console.server.port))
        yield line


def connections(world: World) -> int:
    server: Any = world.console.server
    return len(server._server.server_state.connections)


async def until_none(world: World) -> None:
    async with asyncio.timeout(20):
        while connections(world):  # noqa: ASYNC110  (the server has no event for that)
            await asyncio.sleep(0.02)


def read_answers(line: socket.socket, count: int) -> None:
    got = b""
    while got.count(b"</html>") < count:
        piece = line.recv(65536)
        assert piece, got
        got += piece


@pytest.mark.usefixtures("_little_patience")
@pytest.mark.parametrize(
    ("before", "then"),
    [
        (b"", b""),
        (b"", LOGIN),
        (WHOLE, LOGIN),
        (LOGIN + b"Content-Length: 100\r\n\r\n", b"x"),
        (WHOLE + LOGIN + b"Content-Length: 100\r\n\r\n", b"x"),
    ],
    ids=["silent", "half a head", "half a second head", "half a body", "half a second body"],
)
def test_peer_that_ends_no_request_loses_its_connection(
    tmp_path: Path, before: bytes, then: bytes
) -> None:
    async def story() -> None:
        async with a_console(tmp_path) as world:
            with connected(world) as line:
                line.sendall(before)
                await asyncio.to_thread(read_answers, line, before.count(LOGIN))
                line.sendall(then)
                await until_none(world)

    asyncio.run(story())


@pytest.mark.usefixtures("_little_patience")
def test_peer_that_reads_no_answer_loses_its_connection(tmp_path: Path) -> None:
    async def story() -> None:
        async with a_console(tmp_path) as world:
            with connected(world, buffer=4096) as line:
                line.setblocking(False)
                asked = WHOLE * 3_000
                while not connections(world):  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
                with contextlib.suppress(ConnectionError):
                    async with asyncio.timeout(20):
                        await asyncio.get_running_loop().sock_sendall(line, asked)
                await until_none(world)

    asyncio.run(story())


def test_connection_that_waited_longest_makes_room_for_another(tmp_path: Path) -> None:
    async def story() -> None:
        async with a_console(tmp_path, Limits(connections=5)) as world:
            with contextlib.ExitStack() as stack:
                for _ in range(12):
                    stack.enter_context(connected(world))
                assert (await world.stranger().get("/login")).status == 200
                assert connections(world) <= 5

    asyncio.run(story())
