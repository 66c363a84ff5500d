"""Addresses that brokers tell clients and nobody reaches: named, with what to type."""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING

import pytest

from console_harness import console_over
from roquet.admin.health import address_trouble, troubles
from roquet.base.errors import OutcomeUnknown, Refused, RoquetError, Unreachable
from roquet.client import connect
from roquet.testing.cluster import cluster, running_broker, running_name_server

if TYPE_CHECKING:
    from pathlib import Path

    from console_harness import World

AWAY = Unreachable("connection refused")


@pytest.mark.parametrize(
    ("address", "name_server", "error", "said"),
    [
        ("127.0.0.1:10911", "127.0.0.1:9876", None, ""),
        ("127.0.0.1:10911", "localhost:9876", None, ""),
        ("127.0.0.1:10911", "10.0.0.5:9876", None, "127.0.0.1 is loopback"),
        ("[::1]:10911", "mq.example:9876", None, "::1 is loopback"),
        ("127.0.0.1:10911", "127.0.0.1:9876", AWAY, "127.0.0.1 is loopback"),
        ("172.17.0.3:10911", "172.17.0.2:9876", None, ""),
        ("172.17.0.3:10911", "10.0.0.5:9876", None, "Docker's own network"),
        ("172.17.0.3:10911", "172.17.0.2:9876", AWAY, "Docker's own network"),
        ("172.18.0.3:10911", "10.0.0.5:9876", None, ""),
        ("0.0.0.0:10911", "10.0.0.5:9876", None, "no address that anybody can connect to"),
        ("10.0.0.9:10911", "10.0.0.5:9876", None, ""),
        ("10.0.0.9:10911", "10.0.0.5:9876", AWAY, "nobody reaches it at 10.0.0.9 from here"),
        ("10.0.0.9:10911", "10.0.0.5:9876", Refused(16, "no"), ""),
        ("10.0.0.9:10911", "10.0.0.5:9876", OutcomeUnknown("silent"), ""),
        ("broker.example:10911", "10.0.0.5:9876", None, ""),
    ],
)
def test_an_address_out_of_reach_is_told_from_a_good_one(
    address: str, name_server: str, error: RoquetError | None, said: str
) -> None:
    found = address_trouble(address, [name_server], error)
    if not said:
        assert found is None
        return
    assert found is not None
    assert said in found
    assert "brokerIP1=ADDRESS" in found, "what to type"


def _own_address() -> str:
    """Return an address of this machine that is not loopback; nothing is sent to find it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as trial:
        try:
            trial.connect(("198.51.100.1", 9))
        except OSError:
            return "127.0.0.1"  # a machine without a network
        return str(trial.getsockname()[0])


async def _problems(world: World) -> str:
    page = await world.administrator.get("/")
    assert page.status == 200, page.text
    found = (await world.administrator.get("/api")).json["problems"]
    for row in found:
        assert row["text"].replace("'", "&#39;") in page.text
    return " ".join(f"{it['level']} {it['place']} {it['text']}" for it in found)


def test_the_overview_names_an_address_that_is_refused(tmp_path: Path) -> None:
    async def story() -> None:
        # It listens on 127.0.0.1 alone, so 127.0.0.2 is refused, as behind a wrong brokerIP1.
        async with (
            cluster(tmp_path, brokerIP1="127.0.0.2") as world,
            console_over(world) as console,
        ):
            said = await _problems(console)
            address = world.address
            assert address.startswith("127.0.0.2:")
            assert f"problem broker-a:0 {address} does not answer" in said
            assert "roquet broker -s brokerIP1=ADDRESS" in said
            page = await console.administrator.get("/brokers")
            assert "127.0.0.2 is loopback" in page.text

    asyncio.run(story())


def test_the_overview_names_an_address_of_docker_out_of_reach(tmp_path: Path) -> None:
    async def story() -> None:
        async with (
            cluster(tmp_path, brokerIP1="172.17.255.254") as world,
            console_over(world) as console,
        ):
            said = await _problems(console)
            assert "172.17.255.254 is of Docker's own network" in said
            assert "problem broker-a:0" in said

    asyncio.run(story())


def test_the_overview_warns_of_loopback_behind_a_name_server_on_the_network(
    tmp_path: Path,
) -> None:
    host = _own_address()

    async def story() -> None:
        async with (
            running_name_server(tmp_path / "n", {"bindAddress": "0.0.0.0"}) as server,
            running_broker(tmp_path / "b", f"127.0.0.1:{server.server.port}") as broker,
            connect(f"rmq://{host}:{server.server.port}") as mq,
        ):
            assert broker.identity.address.startswith("127.0.0.1:")
            rows = await troubles(mq.admin())
            warned = [text for level, _, text in rows if level == "warning"]
            assert any("127.0.0.1 is loopback" in it for it in warned) == (host != "127.0.0.1")

    asyncio.run(story())
