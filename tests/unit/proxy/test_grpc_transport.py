"""Bad HTTP/2 before the front: each connection has its end, and the broker goes on."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
import struct
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tools.attack.grpc_client import GrpcClient

import http2_peer as http2
from grpc_calls import fronted, message
from roquet.proxy import messages as pb
from roquet.proxy.rules.limits import ProxyLimits
from roquet.proxy.rules.methods import SERVICE

if TYPE_CHECKING:
    from collections.abc import Callable

SEND = f"/{SERVICE}/SendMessage"
ID = ("x-mq-client-id", "c")
ENDED = http2.END_STREAM | http2.END_HEADERS


def framed(data: bytes, flags: int = 0) -> bytes:
    return bytes([flags]) + struct.pack(">I", len(data)) + data


def called(stream: int, data: bytes, path: str = SEND) -> bytes:
    """Return the frames of a whole call with a short request."""
    begin = http2.frame(http2.HEADERS, stream, http2.headers(path, ID), http2.END_HEADERS)
    return begin + http2.frame(http2.DATA, stream, framed(data), http2.END_STREAM)


def good() -> bytes:
    return bytes(pb.SendMessageRequest(messages=[message()]).SerializeToString())


def answered(port: int) -> None:
    """Check that a call of a connection of its own is answered."""
    with http2.Peer.connect(port) as peer:
        peer.send(called(1, good()))
        payload = peer.until(http2.DATA)
        assert payload is not None
        assert pb.SendMessageResponse.FromString(payload[5:]).status.code == 20000


def run(folder: Path, attack: Callable[[int], None], **rules: Any) -> None:
    """Attack a front, and see that it serves others as before."""

    async def main() -> None:
        async with fronted(folder, dataclasses.replace(ProxyLimits(port=0), **rules)) as calls:
            port = calls.front.routes.port
            await asyncio.to_thread(answered, port)
            await asyncio.to_thread(attack, port)
            await asyncio.to_thread(answered, port)
            # Nothing is left of any of these connections.
            while calls.port.counts != (0, 0):  # noqa: ASYNC110
                await asyncio.sleep(0.02)

    asyncio.run(main())


def test_resets_without_end_close_the_connection(tmp_path: Path) -> None:
    def attack(port: int) -> None:
        with http2.Peer.connect(port) as peer:
            block = http2.headers(SEND, ID)
            reset = struct.pack(">I", 8)
            for stream in range(1, 20_001, 2):
                begin = http2.frame(http2.HEADERS, stream, block, http2.END_HEADERS)
                peer.send(begin, http2.frame(http2.RESET, stream, reset))
            payload = peer.until(http2.GO_AWAY)
            assert payload is None or struct.unpack(">I", payload[4:8])[0] == http2.CALM

    run(tmp_path, attack, resets_max=100)


def test_metadata_above_the_limit_is_refused_for_that_call(tmp_path: Path) -> None:
    def attack(port: int) -> None:
        with http2.Peer.connect(port) as peer:
            block = http2.headers(SEND, ID, ("x-long", "v" * 9000))
            peer.send(http2.frame(http2.HEADERS, 1, block, ENDED), called(3, good()))
            ends: dict[int, int] = {}
            while ends.keys() != {1, 3}:
                found = peer.read()
                assert found is not None
                if found[2] and (found[0] == http2.DATA or found[1] & http2.END_STREAM):
                    ends.setdefault(found[2], found[0])
            # A status of HTTP (431) and no answer; the other call of the connection has one.
            assert ends == {1: http2.HEADERS, 3: http2.DATA}

    run(tmp_path, attack)


def test_message_above_the_limit_is_refused_by_its_length_alone(tmp_path: Path) -> None:
    def first(port: int, size: int, sent: int | None) -> int:
        """Send a request of a size, or the start of it; return the kind of what ends the wait."""
        # An unknown field, so that the request is well formed and empty.
        padding = size - 4
        data = b"\x9a\x06" + bytes([padding & 127 | 128, padding >> 7]) + bytes(padding)
        assert len(data) == size
        with http2.Peer.connect(port) as peer:
            block = http2.headers(SEND, ID)
            peer.send(http2.frame(http2.HEADERS, 1, block, http2.END_HEADERS))
            ends = http2.END_STREAM if sent is None else 0
            peer.send(http2.frame(http2.DATA, 1, framed(data)[:sent], ends))
            while (found := peer.read()) is not None:
                if found[2] == 1 and (found[0] == http2.DATA or found[1] & http2.END_STREAM):
                    return found[0]
        raise AssertionError("the connection ended")

    def attack(port: int) -> None:
        assert first(port, 8191, None) == http2.DATA
        assert first(port, 8192, None) == http2.DATA
        # Its headers are its end: there is a status and no answer.
        assert first(port, 8193, 5) == http2.HEADERS

    run(tmp_path, attack, inbound_max=8192)


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\x00\x00\x00\x10" * 16,
        http2.PREFACE + http2.frame(http2.SETTINGS, 1, bytes(6)),
        http2.PREFACE + http2.frame(http2.WINDOW, 0, bytes(4)),
        http2.PREFACE + http2.frame(http2.SETTINGS, 0) + http2.frame(http2.DATA, 7, b"x"),
        http2.PREFACE
        + http2.frame(http2.SETTINGS, 0)
        + http2.frame(http2.HEADERS, 1, b"\xff" * 9, 5),
        http2.PREFACE + http2.frame(http2.SETTINGS, 0) + b"\xff" * 9,
    ],
)
def test_bytes_that_are_no_http2_end_their_connection(tmp_path: Path, data: bytes) -> None:
    def attack(port: int) -> None:
        with http2.Peer.connect(port, greets=False) as peer:
            peer.send(data)
            while peer.read() is not None:
                pass

    run(tmp_path, attack, patience_ms=1000)


def test_headers_that_never_end_close_the_connection(tmp_path: Path) -> None:
    def attack(port: int) -> None:
        with http2.Peer.connect(port) as peer:
            peer.send(http2.frame(http2.HEADERS, 1, http2.headers(SEND), 0))
            for _ in range(5000):
                peer.send(http2.frame(http2.CONTINUATION, 1, b"\x00" + b"\x01a" + b"\x01b"))
            while peer.read() is not None:
                pass

    run(tmp_path, attack)


def test_requests_that_stop_halfway_end_and_leave_no_call(tmp_path: Path) -> None:
    def attack(port: int) -> None:
        with http2.Peer.connect(port) as peer:
            block = http2.headers(SEND, ID)
            for stream in range(1, 41, 2):
                peer.send(
                    http2.frame(http2.HEADERS, stream, block, http2.END_HEADERS),
                    http2.frame(http2.DATA, stream, b"\x00\x00"),
                )
            ended = 0
            while ended < 20:
                found = peer.read()
                assert found is not None
                ended += found[0] in (http2.HEADERS, http2.RESET)

    run(tmp_path, attack, patience_ms=500)


def test_connection_without_calls_is_closed(tmp_path: Path) -> None:
    def attack(port: int) -> None:
        with http2.Peer.connect(port) as peer:
            assert peer.until(http2.GO_AWAY) is not None

    run(tmp_path, attack, idle_ms=1000, patience_ms=1000)


def is_refused(peer: http2.Peer) -> bool:
    """Tell whether an answer or the end comes soon: keeping to no window may end it as well."""
    peer.link.settimeout(2)
    try:
        peer.until(http2.HEADERS)
    except TimeoutError:
        return False
    except ConnectionError:
        pass
    return True


def test_bodies_beyond_the_total_are_turned_away_and_take_no_memory(tmp_path: Path) -> None:
    def attack(port: int) -> None:
        before = rss_bytes()
        with contextlib.ExitStack() as stack:
            peers = [stack.enter_context(http2.Peer.connect(port)) for _ in range(8)]
            for peer in peers:
                block = http2.headers(SEND, ID)
                peer.send(http2.frame(http2.HEADERS, 1, block, http2.END_HEADERS))
                begin = b"\x00" + struct.pack(">I", 100 << 20)
                peer.send(http2.frame(http2.DATA, 1, begin))
                for _ in range(60):
                    peer.send(http2.frame(http2.DATA, 1, bytes(16_384)))
            # There is room for one of them, whichever it is.
            assert sum(is_refused(peer) for peer in peers) >= len(peers) - 1
            assert rss_bytes() - before < 32 << 20

    run(tmp_path, attack, inbound_total=1 << 20)


def test_connection_has_its_share_of_unanswered_requests_and_one_that_is_alone_all_it_needs(
    tmp_path: Path,
) -> None:
    def begun(peer: http2.Peer, stream: int, data: bytes, flags: int = 0) -> None:
        head = http2.headers(SEND, ID)
        peer.send(http2.frame(http2.HEADERS, stream, head, http2.END_HEADERS))
        pieces = [data[at : at + 16_000] for at in range(0, len(data), 16_000)]
        for piece in pieces:
            peer.send(http2.frame(http2.DATA, stream, piece, flags if piece is pieces[-1] else 0))

    def attack(port: int) -> None:
        part = b"\x00" + struct.pack(">I", 100 << 20) + bytes(200_000)
        with http2.Peer.connect(port) as greedy, http2.Peer.connect(port) as other:
            for stream in (1, 3, 5):
                begun(greedy, stream, part)
            assert is_refused(greedy)
            whole = pb.SendMessageRequest(messages=[message(body=bytes(900_000))])
            begun(other, 1, framed(whole.SerializeToString()), http2.END_STREAM)
            payload = other.until(http2.DATA)
            assert payload is not None
            assert pb.SendMessageResponse.FromString(payload[5:]).status.code == 20000

    run(tmp_path, attack, inbound_of_connection=500_000)


def rss_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def test_client_of_several_addresses_is_served_by_the_name_of_the_first(tmp_path: Path) -> None:
    """grpcio names all of them as the authority of its calls, which is none of HTTP/2."""

    def attack(port: int) -> None:
        with GrpcClient(f"ipv4:127.0.0.1:{port},127.0.0.1:{port}") as client:
            # The name is a text that is sent once, and a row of a table from then on.
            for _ in range(3):
                assert client.send("Normal", [b"x"]).status.code == 20000
            request = pb.QueryRouteRequest()
            request.topic.name = "Normal"
            (queue,) = client.call("QueryRoute", request).message_queues
            (address,) = queue.broker.endpoints.addresses
            assert (address.host, address.port) == ("127.0.0.1", port)

    run(tmp_path, attack)
