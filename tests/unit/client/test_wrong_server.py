"""The address of another server given for a name server's: the error says what is there."""

from __future__ import annotations

import asyncio
import contextlib
import http.server
import threading
from typing import TYPE_CHECKING

import pytest

import roquet
from roquet.base.errors import Unreachable
from roquet.protocol.command import Command
from roquet.remoting.other_servers import WrongServer, recognized, why_no_frames
from roquet.remoting.refusals import cannot_heal
from roquet.testing.cluster import cluster

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Generator
    from pathlib import Path


@pytest.fixture
def web_server() -> Generator[str]:
    """Serve HTTP as Python's own server does; gives its address."""
    with http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), http.server.SimpleHTTPRequestHandler
    ) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@contextlib.asynccontextmanager
async def banner(said: bytes) -> AsyncGenerator[str]:
    """Serve something that says `said` to everybody and then nothing more."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(said)
        with contextlib.suppress(ConnectionError):
            while await reader.read(1024):
                pass
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        host, port = server.sockets[0].getsockname()
        yield f"{host}:{port}"


async def failures(address: str) -> list[Unreachable]:
    """Return what a send, a consumer, administration and the like raise."""
    found: list[Unreachable] = []
    async with roquet.connect(f"rmq://{address}") as mq:
        async with mq.producer() as producer:
            with pytest.raises(Unreachable) as caught:
                await producer.send("orders", b"x")
            found.append(caught.value)
        async with mq.consumer("g", "orders") as consumer:
            with pytest.raises(Unreachable) as caught:
                await consumer.receive(timeout_s=30)
            found.append(caught.value)
        with pytest.raises(Unreachable) as caught:
            await mq.admin().topics.names()
        found.append(caught.value)
    return found


def test_address_of_a_broker_for_a_name_servers_is_told(tmp_path: Path) -> None:
    async def work() -> None:
        async with cluster(tmp_path) as it:
            address = it.address
            for error in await failures(address):
                assert isinstance(error, WrongServer)
                assert f"{address} does not answer as a name server does; is it a broker?" in str(
                    error
                )

    asyncio.run(work())


def test_address_of_a_web_server_for_a_name_servers_is_told(web_server: str) -> None:
    for error in asyncio.run(failures(web_server)):
        assert isinstance(error, WrongServer)
        assert cannot_heal(error)
        assert f"{web_server} is a web server's (HTTP) port" in str(error)


def test_address_of_other_servers_for_a_name_servers_is_told() -> None:
    async def work() -> None:
        async with banner(b"SSH-2.0-OpenSSH_9.2p1\r\n") as address:
            for error in await failures(address):
                assert "answers 'SSH-2.0-OpenSSH_9.2p1'" in str(error)

    asyncio.run(work())


def test_wrong_address_beside_a_right_one_does_no_harm(tmp_path: Path, web_server: str) -> None:
    async def work() -> None:
        async with cluster(tmp_path) as it:
            addresses = f"{web_server};{it.address};{it.name_servers}"
            async with roquet.connect(f"rmq://{addresses}") as mq, mq.producer() as producer:
                receipt = await producer.send("orders", b"x", timeout_s=20)
                assert receipt.is_durable

    asyncio.run(work())


def test_server_that_is_away_beside_a_wrong_one_may_heal(web_server: str) -> None:
    async def work() -> None:
        async with roquet.connect(f"rmq://{web_server};127.0.0.1:1") as mq:
            with pytest.raises(Unreachable) as caught:
                await mq.admin().topics.names()
            assert not cannot_heal(caught.value)
            assert "a web server's (HTTP) port" in str(caught.value)

    asyncio.run(work())


def test_name_server_without_a_command_keeps_its_refusal(tmp_path: Path) -> None:
    async def work() -> None:
        async with cluster(tmp_path) as it, roquet.connect(f"rmq://{it.name_servers}") as mq:
            with pytest.raises(roquet.Refused, match="code 3"):
                await mq._session.name_servers.ask(Command(10))

    asyncio.run(work())


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        (b"", None),
        (b"\x00\x00\x01", None),
        (b"\x15\x03\x03\x00\x02\x02\x46", None),
        (b"HTTP/1.0 400 Bad request", "web server"),
        (b"\x00\x00\x12\x04\x00\x00\x00\x00\x00\x00", "HTTP/2"),
        (b"-ERR wrong number of arguments\r\n", "'-ERR wrong number of arg'"),
    ],
)
def test_servers_are_recognized_by_their_first_bytes(said: bytes, kind: str | None) -> None:
    found = recognized(said)
    assert found is None if kind is None else found is not None and kind in found


def test_nobody_at_an_address_is_recognized_as_nothing() -> None:
    assert why_no_frames("127.0.0.1:1") is None
