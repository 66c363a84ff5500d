"""Settings of the connections that a broker makes to name servers and other brokers."""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
from typing import TYPE_CHECKING

import pytest

from roquet.base.clock import SystemClock
from roquet.base.errors import Unreachable
from roquet.broker.wiring.base import make_base
from roquet.broker.wiring.security import make_client
from roquet.testing.cluster import broker_config

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from roquet.remoting.client import Client


@contextlib.asynccontextmanager
async def started(folder: Path, **settings: str) -> AsyncIterator[Client]:
    client = make_client(
        make_base(broker_config(folder, **settings), SystemClock(), random.Random(1))
    )
    await client.start()
    try:
        yield client
    finally:
        await client.stop()


@contextlib.asynccontextmanager
async def listening() -> AsyncIterator[tuple[str, asyncio.Future[None]]]:
    """Yield a server's address, and what is done when a connection to it has ended."""
    ended = asyncio.get_running_loop().create_future()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()
        ended.set_result(None)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}", ended
    finally:
        server.close()


def test_server_that_accepts_nobody_is_given_up_after_the_time_of_the_settings(
    tmp_path: Path,
) -> None:
    async def story() -> None:
        with socket.socket() as full, contextlib.ExitStack() as waiting:
            full.bind(("127.0.0.1", 0))
            full.listen(0)
            for _ in range(4):
                # The queue of those not accepted is full: a further one gets no answer.
                one = waiting.enter_context(socket.socket())
                one.setblocking(False)
                one.connect_ex(full.getsockname())
            address = f"127.0.0.1:{full.getsockname()[1]}"
            async with started(tmp_path, connectTimeoutMillis="50") as client:
                loop = asyncio.get_running_loop()
                begun = loop.time()
                with pytest.raises(Unreachable):
                    await client.connect(address, 600.0)
                # The time of the call, and the three seconds by default, are not what ended it.
                assert loop.time() - begun >= 0.05
            assert client._config.connect_s == 0.05

    asyncio.run(asyncio.wait_for(story(), 300))


def test_silent_connection_to_a_server_is_closed_after_the_time_of_the_settings(
    tmp_path: Path,
) -> None:
    async def story() -> None:
        settings = {"clientChannelMaxIdleTimeSeconds": "1"}
        async with started(tmp_path, **settings) as client, listening() as (address, ended):
            await client.connect(address)
            # By default it would be closed after 120 s.
            await asyncio.wait_for(ended, 60)

    asyncio.run(story())


def test_socket_options_of_connections_to_servers_are_those_of_the_settings(
    tmp_path: Path,
) -> None:
    async def options(**settings: str) -> list[int]:
        async with started(tmp_path, **settings) as client, listening() as (address, _):
            peer = await client.connect(address)
            raw = peer._transport.get_extra_info("socket")  # type: ignore[attr-defined]
            return [
                raw.getsockopt(level, option)
                for level, option in (
                    (socket.SOL_SOCKET, socket.SO_SNDBUF),
                    (socket.SOL_SOCKET, socket.SO_RCVBUF),
                    (socket.SOL_SOCKET, socket.SO_KEEPALIVE),
                    (socket.IPPROTO_TCP, socket.TCP_NODELAY),
                )
            ]

    sizes = {"clientSocketSndBufSize": "20000", "clientSocketRcvBufSize": "30000"}
    # Linux reserves as much again for its own use.
    assert asyncio.run(options(**sizes)) == [40_000, 60_000, 0, 1]
    by_default = asyncio.run(options())
    assert by_default[:2] != [40_000, 60_000]
    assert by_default[2:] == [0, 1]
