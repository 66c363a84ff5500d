"""Settings of the connections of brokers, name servers and proxies."""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
from typing import TYPE_CHECKING, Any

import pytest

from remoting_proxy_harness import proxy
from roquet.base.clock import SystemClock
from roquet.base.config import load
from roquet.base.errors import Unreachable, UsageError
from roquet.broker.wiring.base import make_base
from roquet.broker.wiring.network import make_registration
from roquet.broker.wiring.security import make_client
from roquet.cli.servers.cluster_proxy import _cluster_of
from roquet.client.fronts import FrontClient
from roquet.namesrv import app as namesrv_app
from roquet.namesrv.config import NamesrvConfig
from roquet.protocol.codes import RequestCode
from roquet.protocol.command import Command
from roquet.protocol.hosts import split_address
from roquet.proxy.cluster.config import ClusterConfig
from roquet.remoting.client import ClientConfig
from roquet.remoting.codec import encode
from roquet.testing.cluster import broker_config, running_broker, running_name_server

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from roquet.remoting.client import Client
    from roquet.remoting.server import Server


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


@contextlib.contextmanager
def deaf() -> Iterator[str]:
    """Yield the address of a server that accepts nobody."""
    with socket.socket() as full, contextlib.ExitStack() as waiting:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        for _ in range(4):
            # The queue of those not accepted is full: a further one gets no answer.
            one = waiting.enter_context(socket.socket())
            one.setblocking(False)
            one.connect_ex(full.getsockname())
        yield f"127.0.0.1:{full.getsockname()[1]}"


def test_server_that_accepts_nobody_is_given_up_after_the_time_of_the_settings(
    tmp_path: Path,
) -> None:
    async def story() -> None:
        with deaf() as address:
            async with started(tmp_path, connectTimeoutMillis="50") as client:
                loop = asyncio.get_running_loop()
                begun = loop.time()
                with pytest.raises(Unreachable):
                    await client.connect(address, 600.0)
                # The time of the call, and the three seconds by default, are not what ended it.
                assert loop.time() - begun >= 0.05
            assert client._config.connect_s == 0.05

    asyncio.run(asyncio.wait_for(story(), 300))


@pytest.mark.parametrize(("given_ms", "wait_s"), [("50", 0.05), ("60000", 2.5)])
def test_remoting_port_gives_up_a_broker_after_the_time_of_the_settings_and_its_clients_patience(
    given_ms: str, wait_s: float
) -> None:
    """Clients of RocketMQ wait for 3 s: they hear of a broker that is away before that."""

    async def story() -> None:
        given = {"namesrvAddr": "127.0.0.1:9", "connectTimeoutMillis": given_ms}
        cluster = load(ClusterConfig, given, {}, {})[0]
        sockets = ClientConfig.of(cluster.outgoing, cluster.write_buffer)
        async with proxy("127.0.0.1:9", sockets=sockets) as port:
            with deaf() as address, pytest.raises(Unreachable, match="did not accept"):
                await port.sessions.dial(address, 600.0)
            dials: Any = port.sessions.dial
            assert dials.__self__._config.connect_s == wait_s

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


def test_round_leaves_out_name_servers_that_the_last_scan_did_not_reach_unless_none_is_made(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """RocketMQ's broker registers nowhere without scans, so that only the first half is its."""

    async def told(folder: Path, scans: str) -> tuple[bool, bool]:
        """Return whether a name server that came after the scan was told, and after another."""
        with socket.create_server(("127.0.0.1", 0)) as chosen:
            port = str(chosen.getsockname()[1])
        address = f"127.0.0.1:{port}"
        changes = {"namesrvAddr": address, "isScanAvailableNameSrv": scans}
        # Nothing listens there: it is what the name server is told.
        changes["listenPort"] = "10911"
        base = make_base(broker_config(folder, **changes), SystemClock(), random.Random(1))
        client = make_client(base)
        registration = make_registration(base, client, None)
        await client.start()
        try:
            await registration.start()
            assert f"could not register with {address} (" in caplog.text
            async with running_name_server(folder, {"listenPort": port}) as names:
                await registration.register()
                first = bool(names.table.served())
                await registration.scan()
                await registration.register()
                return first, bool(names.table.served())
        finally:
            await registration.stop()
            await client.stop()

    for scans, found in (("true", (False, True)), ("false", (True, True))):
        folder = tmp_path / scans
        folder.mkdir()
        assert asyncio.run(told(folder, scans)) == found


def test_broker_connects_to_its_name_servers_at_the_start_and_every_time_for_connecting(
    tmp_path: Path,
) -> None:
    async def story() -> None:
        connected = asyncio.Semaphore(0)

        async def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            connected.release()
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        changes = {"namesrvAddr": address, "connectTimeoutMillis": "100"}
        async with server, running_broker(tmp_path, changes=changes):
            for _ in range(15):
                # Calls that failed are made again after 1, 2, 4, 8 and 16 s.
                await asyncio.wait_for(connected.acquire(), 60)

    asyncio.run(asyncio.wait_for(story(), 90))


def test_socket_options_of_name_servers_and_proxies_are_those_of_the_settings(
    tmp_path: Path,
) -> None:
    sizes = {"clientSocketSndBufSize": "20000", "clientSocketRcvBufSize": "30000"}

    async def options(client: Client) -> list[int]:
        async with listening() as (address, _):
            await client.start()
            try:
                peer = await client.connect(address)
                raw = peer._transport.get_extra_info("socket")  # type: ignore[attr-defined]
                kinds = (socket.SO_SNDBUF, socket.SO_RCVBUF)
                return [raw.getsockopt(socket.SOL_SOCKET, kind) for kind in kinds]
            finally:
                await client.stop()

    config = load(NamesrvConfig, {"kvConfigPath": str(tmp_path / "kv.json"), **sizes}, {}, {})[0]
    notices = namesrv_app.make_client(config, SystemClock(), None)
    assert asyncio.run(options(notices)) == [40_000, 60_000]
    cluster = load(ClusterConfig, {"namesrvAddr": "127.0.0.1:9", **sizes}, {}, {})[0]
    rules = ClientConfig.of(cluster.outgoing, cluster.write_buffer)
    clock, rng = SystemClock(), random.Random(1)
    front = FrontClient("127.0.0.1:9", clock, rng, _nothing, _nothing, config=rules)
    assert asyncio.run(options(front._session.client)) == [40_000, 60_000]
    given = {"namesrvAddr": "127.0.0.1:9", **sizes}
    assert _cluster_of(given, None, None).outgoing.send_buffer == 20_000


def _nothing(*_: object) -> None:
    """Hear nothing."""


MARKS = {"writeBufferHighWaterMark": "50000", "writeBufferLowWaterMark": "40000"}


def test_connection_above_the_high_mark_is_stuck_until_it_is_below_the_low_one(
    tmp_path: Path,
) -> None:
    async def story() -> None:
        with socket.create_server(("127.0.0.1", 0)) as port:
            # What the kernel keeps is little, and so is what it takes at a time.
            port.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            address = f"127.0.0.1:{port.getsockname()[1]}"
            async with started(tmp_path, **MARKS, clientSocketSndBufSize="4096") as client:
                await client.call_one_way(address, Command(105, {}))
                (link,) = client._connections.values()
                transport: Any = link._transport
                reader = port.accept()[0]
                reader.setblocking(False)

                def is_stuck() -> bool:
                    return link.is_stuck

                while not is_stuck():
                    link.write(bytes(1000))
                    await asyncio.sleep(0)
                assert 50_000 < transport.get_write_buffer_size() <= 51_000
                while is_stuck():
                    assert transport.get_write_buffer_size() > 40_000
                    with contextlib.suppress(BlockingIOError):
                        reader.recv(1000)
                    await asyncio.sleep(0)
                # A quarter of the high mark, 12,500, is where it would go on by default.
                assert 12_500 < transport.get_write_buffer_size() <= 40_000
                reader.close()

    asyncio.run(asyncio.wait_for(story(), 120))


def test_marks_of_which_one_is_zero_have_no_effect_and_crossed_ones_are_refused(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def limits(**settings: str) -> tuple[int, int]:
        async with started(tmp_path, **settings) as client, listening() as (address, _):
            peer = await client.connect(address)
            low, high = peer._transport.get_write_buffer_limits()  # type: ignore[attr-defined]
            return low, high

    assert asyncio.run(limits(**MARKS)) == (40_000, 50_000)
    for key, value in MARKS.items():
        assert asyncio.run(limits(**{key: value})) == (262_144, 1_048_576)
        assert "have no effect: one of them is 0" in caplog.text
        caplog.clear()
    with pytest.raises(UsageError, match="'50001' is more than writeBufferHighWaterMark"):
        asyncio.run(limits(**{**MARKS, "writeBufferLowWaterMark": "50001"}))


def test_ports_of_brokers_and_name_servers_have_the_marks_of_their_settings(
    tmp_path: Path,
) -> None:
    async def limits(server: Server, address: str) -> tuple[int, int]:
        host, port = split_address(address)
        _, writer = await asyncio.open_connection(host, port)
        writer.write(encode(Command(RequestCode.GET_BROKER_CLUSTER_INFO)))
        async with asyncio.timeout(30):
            while not server._connections:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        (link,) = list(server._connections.values())[-1:]
        transport: Any = link._transport
        low, high = transport.get_write_buffer_limits()
        writer.close()
        return low, high

    async def story() -> None:
        async with running_broker(tmp_path / "b", changes={**MARKS, "ioThreads": "0"}) as broker:
            found = await limits(broker.listeners._main, broker.identity.address)
            assert found == (40_000, 50_000)
            # The same for a thread: what it does at them is a test of connections on threads.
            assert broker.listeners._path.connections.bounds.water == (50_000, 40_000)
        async with running_name_server(tmp_path / "n", MARKS) as names:
            found = await limits(names.server, f"127.0.0.1:{names.server.port}")
            assert found == (40_000, 50_000)

    asyncio.run(story())
