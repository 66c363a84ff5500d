"""Balancers before the port of gRPC: whose word on a client's address counts."""

from __future__ import annotations

import asyncio
import logging
import socket
import struct
from typing import TYPE_CHECKING

import pytest

import http2_peer as http2
from grpc_calls import fronted, producer
from roquet.base.config import load
from roquet.base.errors import UsageError
from roquet.proxy import messages as pb
from roquet.proxy.rules.limits import ProxyLimits
from roquet.proxy.rules.methods import TELEMETRY

if TYPE_CHECKING:
    from pathlib import Path

    from grpc_calls import Calls

SIGNATURE = b"\r\n\r\n\0\r\nQUIT\n"
FOUR = bytes([10, 1, 2, 3, 10, 0, 0, 1]) + struct.pack(">HH", 4711, 8081)
SIX = b"\xfd" + bytes(14) + b"\7" + bytes(16) + struct.pack(">HH", 4711, 8081)
TLV = b"\x04\0\x03abc"


def binary(family: int, body: bytes, command: int = 0x21) -> bytes:
    return SIGNATURE + bytes([command, family]) + struct.pack(">H", len(body)) + body


def shown(port: int, client: str, first: bytes) -> bool:
    """Show a client's settings behind what a balancer says; tell whether they were answered."""
    command = pb.TelemetryCommand(settings=producer("Normal")).SerializeToString()
    data = b"\0" + struct.pack(">I", len(command)) + command
    with http2.Peer.connect(port, first=first, greets=False) as peer:
        peer.send(http2.PREFACE, http2.frame(http2.SETTINGS, 0))
        block = http2.headers(TELEMETRY, ("x-mq-client-id", client))
        peer.send(http2.frame(http2.HEADERS, 1, block, http2.END_HEADERS))
        peer.send(http2.frame(http2.DATA, 1, data))
        return peer.until(http2.DATA) is not None


def address_of(calls: Calls, client: str) -> str:
    """Return the address that a client is known by."""
    (session,) = [one for one in calls.front.sessions.all() if one.client_id == client]
    return session.address


def rules(balancers: str) -> ProxyLimits:
    return ProxyLimits(port=0, balancers=balancers)


def test_client_has_the_address_that_its_balancer_names(tmp_path: Path) -> None:
    cases = {
        "line": (b"PROXY TCP4 10.1.2.3 10.0.0.1 4711 8081\r\n", "10.1.2.3:4711"),
        "line6": (b"PROXY TCP6 fd00::7 fd00::1 4711 8081\r\n", "[fd00::7]:4711"),
        "binary": (binary(0x11, FOUR + TLV), "10.1.2.3:4711"),
        "binary6": (binary(0x21, SIX), "[fd00::7]:4711"),
        "unknown": (b"PROXY UNKNOWN\r\n", "127.0.0.1:"),
        "itself": (binary(0, b"", 0x20), "127.0.0.1:"),
        "nothing": (b"", "127.0.0.1:"),
    }

    async def main() -> None:
        async with fronted(tmp_path, rules("10.9.9.9, 127.0.0.0/8")) as calls:
            for client, (first, address) in cases.items():
                port = calls.front.routes.port
                assert await asyncio.to_thread(shown, port, client, first), client
                assert address_of(calls, client).startswith(address), client

    asyncio.run(main())


@pytest.mark.parametrize(
    "first",
    [
        b"PROXY TCP4 10.1.2.3\r\n",
        b"PROXY " + bytes(200),
        binary(0x11, FOUR[:11]),
        binary(0x11, FOUR, 0x11),
        SIGNATURE[:11] + b"?" + bytes(4),
        binary(0x11, bytes(2049)),
    ],
)
def test_bad_header_closes_the_connection(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, first: bytes
) -> None:
    async def main() -> None:
        async with fronted(tmp_path, rules("127.0.0.1")) as calls:
            port = calls.front.routes.port
            assert not await asyncio.to_thread(shown, port, "bad", first)
            assert await asyncio.to_thread(shown, port, "good", b"PROXY UNKNOWN\r\n")

    with caplog.at_level(logging.WARNING, "roquet.proxy"):
        asyncio.run(main())
    assert "its PROXY header is bad" in caplog.text


@pytest.mark.parametrize("listed", ["", "10.0.0.0/8, ::1"])
def test_peer_that_is_not_listed_names_nobody(tmp_path: Path, listed: str) -> None:
    async def main() -> None:
        async with fronted(tmp_path, rules(listed)) as calls:
            port = calls.front.routes.port
            for first in (b"PROXY TCP4 10.1.2.3 10.0.0.1 4711 8081\r\n", binary(0x11, FOUR)):
                assert not await asyncio.to_thread(shown, port, "spoofs", first)
            assert await asyncio.to_thread(shown, port, "plain", b"")
            assert address_of(calls, "plain").startswith("127.0.0.1:")

    asyncio.run(main())


def held(port: int, client: str) -> tuple[socket.socket, bool]:
    """Return a connection of a client behind a balancer, and whether it is served."""
    link = socket.create_connection(("127.0.0.1", port), timeout=20)
    first = f"PROXY TCP4 {client} 10.0.0.1 4711 8081\r\n".encode() if client else b""
    try:
        link.sendall(first + http2.PREFACE + http2.frame(http2.SETTINGS, 0))
        return link, link.recv(1) != b""
    except ConnectionError:
        return link, False


@pytest.mark.parametrize("listed", ["", "127.0.0.1"])
def test_one_address_has_its_share_of_connections_and_no_more(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, listed: str
) -> None:
    one, other = ("10.1.2.3", "10.1.2.4") if listed else ("", "")
    limits = ProxyLimits(port=0, balancers=listed, address_connections_max=2)

    async def main() -> None:
        async with fronted(tmp_path, limits) as calls:
            port = calls.front.routes.port
            links = [await asyncio.to_thread(held, port, one) for _ in range(3)]
            assert [is_served for _, is_served in links] == [True, True, False]
            if other:
                link, is_served = await asyncio.to_thread(held, port, other)
                assert is_served
                link.close()
            for link, _ in links[1:]:
                link.close()
            async with asyncio.timeout(20):
                while True:
                    link, is_served = await asyncio.to_thread(held, port, one)
                    link.close()
                    if is_served:
                        break
            links[0][0].close()

    with caplog.at_level(logging.WARNING, "roquet.proxy"):
        asyncio.run(main())
    assert "too many connections: its address has 2" in caplog.text


@pytest.mark.parametrize("text", ["10.0.0.1/8", "balancer.example.org", "10.0.0.0/33"])
def test_list_that_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"proxyProtocolPeers.*addresses and networks"):
        load(ProxyLimits, {"proxyProtocolPeers": text})
