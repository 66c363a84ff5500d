"""Clients that have gone, and brokers that have stopped, keep no descriptor and no object."""

from __future__ import annotations

import asyncio
import ssl
from typing import TYPE_CHECKING

import pytest
import uvloop

from descriptors import alive, opened, returned, without_collector
from roquet.base.clock import SystemClock
from roquet.protocol.codes import ResponseCode
from roquet.remoting.client import Client
from roquet.remoting.connections.native_connection import NativeConnection
from roquet.testing.cluster import pull_command, running_broker, send_command
from roquet.testing.pair import certificate

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.usefixtures(without_collector.__name__)

CLIENTS = 10
STRAY = [b"", b"\x16\x03\x01\x02\x00\x01", b"\0\0\0\x10no frame at all", b"\xff" * 40]
"""Nothing, half of a TLS hello, and bytes that are no frame."""


@pytest.mark.parametrize("threads", [0, 2])
def test_clients_and_a_broker_leave_nothing_behind(tmp_path: Path, threads: int) -> None:
    cert, key = certificate(tmp_path / "tls")
    changes = {
        "ioThreads": str(threads),
        "tls.server.mode": "permissive",
        "tls.test.mode.enable": "false",
        "tls.server.certPath": cert,
        "tls.server.keyPath": key,
    }
    context = ssl.create_default_context(cafile=cert)
    context.check_hostname = False

    async def come_and_go(address: str) -> None:
        host, _, port = address.rpartition(":")
        client = Client(clock=SystemClock())
        await client.start()
        assert (await client.call(address, send_command("T", b"x", 0), 20)).code == 0
        found = await client.call(address, pull_command("T"), 20)
        assert found.code in {ResponseCode.SUCCESS, ResponseCode.PULL_RETRY_IMMEDIATELY}
        await client.stop()
        for says, tls in [*((it, None) for it in STRAY), (b"\0", context)]:
            _, writer = await asyncio.open_connection(host, int(port), ssl=tls)
            writer.write(says)
            writer.transport.abort()

    async def run() -> None:
        nothing = opened()
        async with running_broker(tmp_path / "broker", changes=changes) as broker:
            address = broker.identity.address
            stays = Client(clock=SystemClock())
            await stays.start()
            assert (await stays.call(address, send_command("T", b"x", 0), 20)).code == 0
            before, there = opened(), alive(NativeConnection)
            assert there == (threads > 0)
            for _ in range(CLIENTS):
                await come_and_go(address)
            await returned(before)
            assert alive(NativeConnection) == there
            await stays.stop()
        await returned(nothing)
        assert alive(NativeConnection) == 0

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run())
