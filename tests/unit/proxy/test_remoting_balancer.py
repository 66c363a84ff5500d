"""Balancers before the remoting port: whose word on a client's address counts."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import struct
from typing import TYPE_CHECKING

import pytest

from auth_harness import ANN, INNER, entry
from cluster_users import guarded_cluster
from remoting_harness import on_loop, until
from remoting_proxy_harness import proxy
from roquet.base.config import load
from roquet.base.errors import UsageError
from roquet.protocol.codes import RequestCode
from roquet.protocol.command import Command
from roquet.proxy.remoting.limits import RemotingLimits
from roquet.remoting import balancer
from roquet.remoting.codec import decode, encode
from roquet.service.shares import SMALL
from roquet.testing.cluster import cluster

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from pathlib import Path


SIGNATURE = b"\r\n\r\n\0\r\nQUIT\n"
FOUR = bytes([10, 1, 2, 3, 10, 0, 0, 1]) + struct.pack(">HH", 4711, 8080)
SIX = b"\xfd" + bytes(14) + b"\7" + bytes(16) + struct.pack(">HH", 4711, 8080)
TLV = b"\x04\0\x03abc"
LINE = b"PROXY TCP4 10.1.2.3 10.0.0.1 4711 8080\r\n"
"""Speaks for the client at 10.1.2.3."""


def binary(family: int, body: bytes, command: int = 0x21) -> bytes:
    return SIGNATURE + bytes([command, family]) + struct.pack(">H", len(body)) + body


async def answer_to(port: int, *parts: bytes) -> bytes:
    """Send parts one after the other; return the first bytes of the answer, none at the end."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        for part in parts:
            writer.write(part)
            await writer.drain()
            await asyncio.sleep(0.02)
        async with asyncio.timeout(20):
            return await reader.read(65_536)
    except ConnectionError:
        return b""
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


@contextlib.asynccontextmanager
async def judged(folder: Path, balancers: str) -> AsyncGenerator[int]:
    """Run a proxy whose only user may send to a topic from 10.1.2.3 and from fd00::7 alone."""
    async with guarded_cluster(folder) as it:
        await it.make(ANN)
        sources = ["10.1.2.3", "fd00::7"]
        await it.allow(ANN, entry("Topic:Normal", "Pub", "Sub", sources=sources))
        guard = it.built.guard
        assert guard is not None
        await until(lambda: "ann" in guard.secrets)
        names = it.behind.name_servers
        check = guard.check
        async with proxy(
            names, credentials=INNER, guard=check, proxyProtocolPeers=balancers
        ) as door:
            yield door.server.port


def route() -> bytes:
    command = Command(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "Normal"})
    return encode(ANN.sign(command))


def is_allowed(answer: bytes) -> bool:
    """Tell whether an answer has a route, and not a refusal."""
    assert b"code" in answer
    return b"queueDatas" in answer


@on_loop
async def _policies(folder: Path) -> None:
    cases = {
        "line": ((LINE,), True),
        "line of IPv6": ((b"PROXY TCP6 fd00::7 fd00::1 4711 8080\r\n",), True),
        "IPv4 within IPv6": ((b"PROXY TCP6 ::ffff:10.1.2.3 ::1 4711 8080\r\n",), True),
        "binary": ((binary(0x11, FOUR),), True),
        "binary with more": ((binary(0x11, FOUR + TLV),), True),
        "binary of IPv6": ((binary(0x21, SIX),), True),
        "in many parts": ((LINE[:3], LINE[3:20], LINE[20:]), True),
        "binary in many parts": ((SIGNATURE[:5], binary(0x11, FOUR)[5:17], FOUR[1:]), True),
        "another client": ((b"PROXY TCP4 10.1.2.4 10.0.0.1 4711 8080\r\n",), False),
        "nobody": ((b"PROXY UNKNOWN\r\n",), False),
        "the balancer itself": ((binary(0, b"", 0x20),), False),
        "nothing": ((), False),
    }
    async with judged(folder, "10.9.9.9, 127.0.0.0/8") as port:
        for name, (parts, allowed) in cases.items():
            assert is_allowed(await answer_to(port, *parts, route())) is allowed, name
        # What comes with the header in one packet is a request.
        assert is_allowed(await answer_to(port, LINE + route()))


def test_policies_judge_by_the_address_that_the_balancer_names(tmp_path: Path) -> None:
    _policies(tmp_path)


@on_loop
async def _unlisted(folder: Path) -> None:
    async with judged(folder, "10.0.0.0/8, ::1") as port:
        for first in (LINE, binary(0x11, FOUR)):
            assert await answer_to(port, first, route()) == b""
        assert not is_allowed(await answer_to(port, route()))


def test_peer_that_is_not_listed_names_nobody_and_is_closed(tmp_path: Path) -> None:
    _unlisted(tmp_path)


@pytest.mark.parametrize(
    "first",
    [
        b"PROXY TCP4 10.1.2.3\r\n",
        b"PROXY " + bytes(200),
        b"PROXI TCP4 10.1.2.3 10.0.0.1 4711 8080\r\n",
        b"PUT / HTTP/1.1\r\n\r\n",
        binary(0x11, FOUR[:11]),
        binary(0x11, FOUR, 0x11),
        SIGNATURE[:11] + b"?" + bytes(4),
        binary(0x11, bytes(2049)),
        LINE + LINE,
    ],
)
def test_bad_header_closes_the_connection_and_no_other(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, first: bytes
) -> None:
    with caplog.at_level(logging.WARNING, "roquet"):
        _bad(tmp_path, first)
    # A second header is no header: it is a frame that is far too long.
    assert ("its PROXY header is bad" in caplog.text) is (first != LINE + LINE)


@on_loop
async def _bad(folder: Path, first: bytes) -> None:
    async with proxied(folder) as port:
        assert await answer_to(port, first) == b""
        assert b"code" in await answer_to(port, LINE, route())


@contextlib.asynccontextmanager
async def proxied(folder: Path) -> AsyncGenerator[int]:
    """Run a port before no brokers, which believes this machine."""
    del folder
    async with proxy("127.0.0.1:1", proxyProtocolPeers="127.0.0.1") as door:
        yield door.server.port


def test_header_that_never_ends_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(balancer, "HEADER_S", 0.1)
    _never_ends(tmp_path)


@on_loop
async def _never_ends(folder: Path) -> None:
    async with proxied(folder) as port:
        assert await answer_to(port, LINE[:10]) == b""
        assert await answer_to(port, SIGNATURE) == b""


@on_loop
async def _shared(folder: Path) -> None:
    async with contextlib.AsyncExitStack() as stack:
        it = await stack.enter_async_context(cluster(folder))
        assert (await it.send("Through")).code == 0
        limited = proxy(
            it.name_servers, proxyProtocolPeers="127.0.0.1", remotingBrokerConnectionsMax="105"
        )
        door = await stack.enter_async_context(limited)

        async def ask(host: str) -> Command:
            """Ask a broker as a client at this address, which stays connected."""
            reader, writer = await asyncio.open_connection("127.0.0.1", door.server.port)
            stack.callback(writer.close)
            line = f"PROXY TCP4 {host} 10.0.0.1 4711 8080\r\n".encode()
            fields = {"topic": "Through", "queueId": "0", "bname": "broker-a"}
            writer.write(line + encode(Command(RequestCode.GET_MAX_OFFSET, fields)))
            size = await reader.readexactly(4)
            (answer,), _ = decode(size + await reader.readexactly(int.from_bytes(size)))
            return answer

        # So few may be anybody's; beyond them four times what is left for all.
        assert {(await ask("10.1.2.3")).code for _ in range(SMALL)} == {0}
        refused = await ask("10.1.2.3")
        text = "clients at 10.1.2.3 have 100 of 105 connections to brokers"
        assert (refused.code, text in (refused.remark or "")) == (2, True)
        assert {(await ask("10.1.2.4")).code for _ in range(5)} == {0}
        full = await ask("10.1.2.5")
        assert (full.code, "it takes no more" in (full.remark or "")) == (2, True)
        assert door.sessions.connections == 105


def test_one_address_leaves_connections_to_brokers_to_others(tmp_path: Path) -> None:
    _shared(tmp_path)


@pytest.mark.parametrize("text", ["10.0.0.1/8", "balancer.example.org", "10.0.0.0/33"])
def test_list_that_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"proxyProtocolPeers.*addresses and networks"):
        load(RemotingLimits, {"proxyProtocolPeers": text})
