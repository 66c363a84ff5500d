"""What strangers send to the pages of health and metrics: an answer or the end, and few lines."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

from roquet.service.http.server import HttpAnswer, HttpRequest, HttpServer, text_answer

if TYPE_CHECKING:
    import pytest

GET = b"GET / HTTP/1.1\r\n"
BOMBS = {
    "a head without end": (GET + b"A: " + b"b" * 8_300, b"431"),
    "a long line": (b"GET /" + b"a" * 8_300, b"431"),
    "many headers": (GET + b"A: b\r\n" * 101 + b"\r\n", b"431"),
    "many fields": (b"GET /?" + b"a=b&" * 101 + b" HTTP/1.1\r\n\r\n", b"400"),
    "no length": (GET + b"Content-Length: \xb2\r\n\r\n", b"400"),
}


async def fetch(port: int, data: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(data)
        return await reader.read()
    finally:
        writer.close()


def test_bombs_are_answered_and_leave_no_line(caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        server = HttpServer(lambda _: text_answer("ok"), host="127.0.0.1", port=0)
        await server.start()
        for what, (data, status) in BOMBS.items():
            answer = await fetch(server.port, data)
            assert answer.startswith(b"HTTP/1.1 " + status), what
        # Far beyond every limit the connection just ends.
        with contextlib.suppress(OSError):
            await fetch(server.port, GET + b"A: " + b"b" * 5_000_000)
        assert (await fetch(server.port, GET + b"\r\n")).endswith(b"ok\n")
        await server.stop()

    asyncio.run(run())
    assert caplog.messages == []


def test_a_handler_that_fails_again_and_again_is_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def broken(_: HttpRequest) -> HttpAnswer:
        raise ZeroDivisionError

    async def run() -> None:
        server = HttpServer(broken, host="127.0.0.1", port=0)
        await server.start()
        for _ in range(20):
            assert (await fetch(server.port, GET + b"\r\n")).startswith(b"HTTP/1.1 500 ")
        await server.stop()

    asyncio.run(run())
    assert len(caplog.messages) == 1
    assert "ZeroDivisionError" in caplog.text


def test_half_requests_give_way_to_whole_ones() -> None:
    async def main() -> None:
        server = HttpServer(
            lambda _: text_answer("ok"), host="127.0.0.1", port=0, connections_max=8
        )
        await server.start()
        try:
            halves: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
            for _ in range(3 * 8):
                halves.append(await asyncio.open_connection("127.0.0.1", server.port))
                halves[-1][1].write(b"GET /li")
                await halves[-1][1].drain()
            answer = await fetch(server.port, b"GET /livez HTTP/1.1\r\n\r\n")
            assert answer.startswith(b"HTTP/1.1 200 ")
            # The one that has waited longest was closed, the latest waits still.
            with contextlib.suppress(ConnectionError):
                assert await asyncio.wait_for(halves[0][0].read(), 20) == b""
            reader, writer = halves[-1]
            writer.write(b"vez HTTP/1.1\r\n\r\n")
            assert (await asyncio.wait_for(reader.read(), 20)).startswith(b"HTTP/1.1 200 ")
            for _, each in halves:
                each.close()
        finally:
            await server.stop()

    asyncio.run(main())


def test_stop_ends_half_requests_and_leaves_nothing_behind() -> None:
    async def main() -> None:
        server: Any = HttpServer(lambda _: text_answer("ok"), host="127.0.0.1", port=0)
        await server.start()
        lines = [await asyncio.open_connection("127.0.0.1", server.port) for _ in range(3)]
        for (_, writer), said in zip(lines, (b"", b"GET / HT", b"GET / HTTP/1.1\r\n"), strict=True):
            writer.write(said)
        while server._connections < len(lines):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        await server.stop()
        # A loop that ended before them would say of each that it failed.
        assert asyncio.all_tasks() == {asyncio.current_task()}
        for reader, writer in lines:
            with contextlib.suppress(ConnectionError):
                assert await reader.read() == b""
            writer.close()

    asyncio.run(main())
