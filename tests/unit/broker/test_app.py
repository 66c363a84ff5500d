"""The broker as a process: what it says, how it fails to start, in what order it stops."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import random
import socket
from typing import TYPE_CHECKING

from broker_harness import play
from roquet import _native
from roquet.base.config import setting, settings
from roquet.broker import app
from roquet.broker.config import BrokerConfig
from roquet.protocol.codes import ResponseCode
from roquet.testing.cluster import broker_config, cluster, pull_command, running_broker
from roquet.testing.java import free_port

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from roquet.testing.cluster import Cluster


def serve(config: BrokerConfig, *, run_for_s: float = 0.0) -> tuple[int, list[str]]:
    """Run the broker as the command line does; return exit code and what it said."""
    said: list[str] = []

    async def run() -> int:
        stop = asyncio.Event()
        asyncio.get_running_loop().call_later(run_for_s, stop.set)
        return await app.serve(config, stop, said.append)

    return asyncio.run(run()), said


def test_it_says_javas_line_and_where_it_is(tmp_path: Path) -> None:
    code, said = serve(broker_config(tmp_path))
    assert code == 0
    assert len(said) <= 12
    assert said[0].startswith("The broker[broker-a, 127.0.0.1:")
    assert said[0].endswith("] boot success. serializeType=JSON")
    assert str(tmp_path) in said[1]
    assert not (tmp_path / "abort").exists()


def test_threads_without_epoll_leave_connections_to_the_loop_and_that_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, said = serve(broker_config(tmp_path, ioThreads="2"))
    assert not any(line.startswith("ioThreads") for line in said)
    monkeypatch.delattr(_native, "NetThreads")
    code, said = serve(broker_config(tmp_path, ioThreads="2"))
    assert code == 0
    assert said[2].startswith("ioThreads=2 has no effect: this platform has no epoll")

    async def tell(it: Cluster) -> None:
        assert (await it.pull("orders")).code == ResponseCode.TOPIC_NOT_EXIST
        assert not it.broker.path.connections.is_open

    play(tmp_path, tell, ioThreads="2")


def test_it_warns_when_anybody_may_come(tmp_path: Path) -> None:
    code, said = serve(broker_config(tmp_path, bindAddress="0.0.0.0", brokerIP1="127.0.0.1"))
    assert code == 0
    assert "authentication is off" in said[-1]


def test_it_says_what_a_sync_master_without_slaves_does(tmp_path: Path) -> None:
    _, said = serve(broker_config(tmp_path, brokerRole="SYNC_MASTER"))
    assert "SLAVE_NOT_AVAILABLE (11)" in said[2]
    _, said = serve(broker_config(tmp_path, brokerRole="SYNC_MASTER", inSyncReplicas="1"))
    assert "without a copy" in said[2]


def test_it_says_where_the_metrics_are(tmp_path: Path) -> None:
    port = free_port(random.Random())
    changes = {"metricsExporterType": "PROM", "metricsPromExporterPort": str(port)}
    _, said = serve(broker_config(tmp_path, **changes))
    assert said[2].startswith(f"/metrics, /livez and /readyz on 127.0.0.1:{port}")


def test_a_taken_port_is_one_line_and_exit_code_3(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        code, said = serve(broker_config(tmp_path, listenPort=str(port)))
    assert code == app.START_FAILED == -3
    assert len(said) == 1
    assert str(port) in said[0]
    # Everything that had been started was stopped again.
    assert serve(broker_config(tmp_path))[0] == 0


def test_damaged_tables_and_stores_are_named(tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.mkdir()
    (config / "topics.json").write_text("{")
    code, said = serve(broker_config(tmp_path))
    assert code == -3
    assert "topics.json" in said[0]


def test_one_store_has_one_broker(tmp_path: Path) -> None:
    async def tell() -> tuple[int, list[str]]:
        said: list[str] = []
        async with running_broker(tmp_path):
            stop = asyncio.Event()
            stop.set()
            return await app.serve(broker_config(tmp_path), stop, said.append), said

    code, said = asyncio.run(tell())
    assert code == -3
    assert "another process uses the store" in said[0]


def test_it_leaves_the_name_server_first_and_stops_in_reverse(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> None:
        with caplog.at_level(logging.DEBUG, "roquet.service.lifecycle"):
            async with cluster(tmp_path) as it:
                assert "broker-a" in str(it.name_server.table.topics["TBW102"])
                waiting = pull_command("TBW102", sysFlag="6", suspendTimeoutMillis="60000")
                held = asyncio.create_task(it.call(waiting))
                await asyncio.sleep(0.1)
            with contextlib.suppress(Exception):
                await held

    asyncio.run(run())
    lines = [record.getMessage() for record in caplog.records]
    started = [line.removeprefix("starting ") for line in lines if line.startswith("starting ")]
    stopped = [line.removeprefix("stopping ") for line in lines if line.startswith("stopping ")]
    ours = started[started.index("metadata") :]
    assert ours[0] == "metadata"
    assert ours[-3:] == ["server", "slaves", "registration"]
    assert stopped[: len(ours)] == ours[::-1]
    assert not any("did not stop" in line for line in lines)


def test_it_is_ready_only_once_registered(tmp_path: Path) -> None:
    async def away() -> None:
        with socket.socket() as nobody:
            nobody.bind(("127.0.0.1", 0))
            address = f"127.0.0.1:{nobody.getsockname()[1]}"
            async with running_broker(tmp_path / "a", address) as broker:
                assert not broker.health.is_ready
                assert "no name server took the registration" in broker.health.explain()

    async def there(it: Cluster) -> None:
        assert it.broker.health.is_ready

    asyncio.run(away())
    play(tmp_path / "b", there)


def test_a_second_broker_registers_beside_the_first(tmp_path: Path) -> None:
    async def run() -> None:
        async with cluster(tmp_path, "broker-a", "broker-b") as it:
            assert set(it.name_server.table.topics["TBW102"]) == {"broker-a", "broker-b"}

    asyncio.run(run())


def test_no_java_name_is_used_for_two_different_things() -> None:
    kinds: dict[str, set[str]] = {}
    for _, about, kind in settings(BrokerConfig):
        kinds.setdefault(about.java, set()).add(str(kind))
    assert {name for name, found in kinds.items() if len(found) > 1} == set()
    assert dataclasses.is_dataclass(BrokerConfig)
    assert setting("x", 1) is not None
