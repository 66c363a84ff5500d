"""`roquet proxy` with a remoting port, as a process: serves clients and stops in good order."""

from __future__ import annotations

import asyncio
import json
import random
import signal
import sys
from typing import TYPE_CHECKING

import pytest

from remoting_harness import PATIENCE_S, on_loop
from remoting_proxy_harness import proxy, proxy_client, until_so
from roquet.base.errors import Unreachable, UsageError
from roquet.cli.servers.cluster_proxy import settings_of
from roquet.cli.servers.proxy import ProxyFlags
from roquet.proxy.remoting.limits import RemotingLimits
from roquet.testing.cluster import cluster
from roquet.testing.java import free_port

if TYPE_CHECKING:
    from pathlib import Path

TOPIC = "Through"


async def _started(*arguments: str) -> tuple[asyncio.subprocess.Process, str]:
    """Start the command; return it with its boot line."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "roquet", "proxy", *arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    assert process.stdout is not None
    async with asyncio.timeout(PATIENCE_S):
        while b"boot success" not in (line := await process.stdout.readline()):
            assert line, "it has ended before it was up"
    return process, line.decode()


@on_loop
async def _serves(folder: Path) -> None:
    port = free_port(random.Random())
    file = folder / "rmq-proxy.json"
    settings = {"remotingListenPort": port, "remotingAccessAddr": "192.0.2.7", "grpcServerPort": 0}
    file.write_text(json.dumps(settings))
    async with cluster(folder) as it:
        process, said = await _started("-n", it.name_servers, "-pc", str(file))
        try:
            assert f"remoting on 127.0.0.1:{port}" in said
            async with proxy_client(f"127.0.0.1:{port}") as client:
                assert (await client.send(TOPIC)).code == 0
                route = await client.route(TOPIC)
                assert dict(route.brokers[0].addresses) == {0: f"192.0.2.7:{port}"}

                async def received() -> bool:
                    return b"hello" in (await client.pull(TOPIC)).body

                await until_so(received)
                # A held pull does not keep the process from its end.
                held = {"sysFlag": "6", "suspendTimeoutMillis": "30000"}
                pull = asyncio.get_running_loop().create_task(client.pull(TOPIC, 1, **held))
                await client.send(f"{TOPIC}2")
                process.send_signal(signal.SIGTERM)
                # Sent away, the client looks for another proxy at the address, and none is there.
                with pytest.raises(Unreachable, match="refused"):
                    await pull
            async with asyncio.timeout(PATIENCE_S):
                assert await process.wait() == 0
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()


def test_proxy_serves_remoting_clients_and_stops_under_a_held_pull(tmp_path: Path) -> None:
    _serves(tmp_path)


def test_remoting_port_is_open_only_when_asked_for(tmp_path: Path) -> None:
    file = tmp_path / "rmq-proxy.json"
    file.write_text(json.dumps({"remotingSendThreadPoolQueueCapacity": 7}))
    flags = ProxyFlags(file)
    names = "127.0.0.1:9876"
    assert settings_of(flags, names).remoting is None
    asked = settings_of(flags, names, None, 8080)
    assert asked.remoting == RemotingLimits(port=8080, send_queue=7)
    # Its settings are no slip of the pen for the other port, and a shared one is both's.
    file.write_text(json.dumps({"enableTopicMessageTypeCheck": False}))
    asked = settings_of(flags, names, None, 8080)
    assert asked.remoting is not None
    assert (asked.grpc.check_type, asked.remoting.check_type) == (False, False)
    file.write_text(json.dumps({"remotingListenPort": 70000}))
    with pytest.raises(UsageError, match="remotingListenPort"):
        settings_of(flags, names)


@on_loop
async def _tools(folder: Path) -> None:
    async with cluster(folder) as it, proxy(it.name_servers) as door:
        assert (await it.send(TOPIC)).code == 0
        address = f"127.0.0.1:{door.server.port}"
        for words in (("topic", "ls"), ("mqadmin", "clusterList"), ("mqadmin", "topicList")):
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "roquet", *words, "-n", address),
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
            )
            _, told = await process.communicate()
            text = f"{address} is a proxy's port for clients, which does not answer this"
            assert (process.returncode, text in told.decode()) == (2, True), told
            assert b"name the cluster's name server instead: -n HOST:9876" in told
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "roquet", "doctor", "-n", address),
            stdout=asyncio.subprocess.PIPE,
        )
        shown, _ = await process.communicate()
        assert b"it answers, and is no name server" in shown


def test_proxy_in_place_of_a_name_server_is_told(tmp_path: Path) -> None:
    _tools(tmp_path)
