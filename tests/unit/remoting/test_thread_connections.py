"""What connections on threads owe to their peers and to memory; the loop owes the same."""

from __future__ import annotations

import asyncio
import socket
import threading
import time

import pytest

import remoting_harness
from descriptors import opened
from remoting_harness import BIG, ECHO, LATER, SLOW, Raw, ask, serving, until
from roquet.protocol.command import FLAG_ONE_WAY, Command
from roquet.remoting.codec import decode, encode
from roquet.remoting.connections.limits import NOTHING, Standing
from roquet.remoting.connections.waits import KernelWaits
from roquet.remoting.server import ServerConfig


@pytest.fixture(params=[0, 2], ids=["loop", "threads"], autouse=True)
def _io_threads(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run each test with connections that the loop serves, and with those of threads."""
    monkeypatch.setattr(remoting_harness, "IO_THREADS", request.param)


async def _fill(port: int, data: bytes) -> socket.socket:
    """Write as often as the peer's buffers take it, and read nothing."""
    peer = await asyncio.to_thread(socket.create_connection, ("127.0.0.1", port))
    peer.setblocking(False)
    idle = 0
    while idle < 20:
        try:
            peer.send(data)
            idle = 0
        except BlockingIOError:
            idle += 1
            await asyncio.sleep(0.01)
    return peer


def _kept_back(running: remoting_harness.Running) -> list[int]:
    return [len(one._pending) for one in running.server._connections.values()]


def test_requests_of_a_peer_that_never_reads_wait_in_its_socket() -> None:
    async def main() -> None:
        async with serving(ServerConfig(high_water=100_000)) as running:
            frames = b"".join(ask(BIG, number) for number in range(10_000))
            one_frame = len(frames) // 10_000
            peer = await _fill(running.server.port, frames)
            # One read of 256 KiB and what was under way; no more, however much is sent.
            assert 0 < max(_kept_back(running)) <= 2 * (256 << 10) // one_frame
            peer.close()
            await until(lambda: not running.server.connections)

    asyncio.run(main())


def test_requests_of_all_peers_that_never_read_are_bounded_together() -> None:
    async def main() -> None:
        config = ServerConfig(high_water=10_000, process_bytes_max=32 << 20)
        async with serving(config) as running:
            frames = b"".join(ask(BIG, number) for number in range(2_000))
            peers = [await _fill(running.server.port, frames) for _ in range(8)]
            if remoting_harness.IO_THREADS:
                # An eighth of the bound, at 512 bytes and more a frame; then little for each.
                assert sum(_kept_back(running)) <= (4 << 20) // 512 + 10_000
            for peer in peers:
                peer.close()
            await until(lambda: not running.server.connections)

    asyncio.run(main())


@pytest.mark.parametrize("_io_threads", [1, 4], ids=["one", "four"], indirect=True)
def test_bytes_kept_by_threads_and_by_the_loop_have_one_bound() -> None:
    async def main() -> None:
        async with serving(ServerConfig(process_bytes_max=1_000_000)) as running:
            server = running.server
            assert server._native is not None
            threads, budget = server._native.connections, server._budget
            beginning = ask(ECHO, 1, bytes(900_000))[:600_000]
            first = await running.raw()
            first.write(beginning)
            await until(lambda: server.bytes_kept == 600_000)
            # As for a connection that the loop serves, because it pops.
            assert budget.charge(NOTHING, (Standing.PROVEN, 400_000))
            assert not budget.charge((Standing.PROVEN, 400_000), (Standing.PROVEN, 400_001))
            threads.tell_time(server.now_ms())
            second = await running.raw()
            second.write(b"\0")
            assert await second.is_closed()
            budget.charge((Standing.PROVEN, 400_001), NOTHING)
            threads.tell_time(server.now_ms())
            third = await running.raw()
            third.write(beginning[:300_000])
            await until(lambda: server.bytes_kept == 900_000)
            for raw in (first, second, third):
                await raw.close()

    asyncio.run(main())


@pytest.mark.parametrize("_io_threads", [1, 4], ids=["one", "four"], indirect=True)
def test_loop_that_rests_is_woken_when_a_peer_writes_to_a_thread() -> None:
    async def main() -> None:
        async with serving() as running:
            assert running.server._native is not None
            threads, heard = running.server._native.connections, list[int]()
            raw = await running.raw()
            raw.write(ask(ECHO, 1))
            await raw.read()
            threads.is_quiet()
            assert threads.is_quiet()
            threads.asked = lambda: heard.append(1)
            raw.write(b"\0")  # no frame, so that there is no other news
            await until(lambda: heard)
            assert not threads.is_quiet()
            assert threads.is_quiet()
            await raw.close()

    asyncio.run(main())


@pytest.mark.parametrize("leaves", ["half", "whole"])
def test_requests_before_the_end_of_a_connection_are_all_executed(leaves: str) -> None:
    async def main() -> None:
        async with serving() as running:
            for already in range(0, 20 * 300, 300):
                peer = await asyncio.to_thread(
                    socket.create_connection, ("127.0.0.1", running.server.port)
                )
                peer.sendall(b"".join(ask(ECHO, number) for number in range(300)))
                if leaves == "half":
                    peer.shutdown(socket.SHUT_WR)
                else:
                    peer.close()
                await until(lambda seen=already: len(running.handlers.seen) == seen + 300, 5)
                peer.close()
            await until(lambda: not running.server.connections)

    asyncio.run(main())


@pytest.mark.parametrize("_io_threads", [2], ids=["threads"], indirect=True)
def test_answers_to_a_peer_that_half_closes_all_come() -> None:
    async def main() -> None:
        async with serving() as running:
            peer = await asyncio.to_thread(
                socket.create_connection, ("127.0.0.1", running.server.port)
            )
            peer.sendall(b"".join(ask(ECHO, number) for number in range(300)))
            peer.shutdown(socket.SHUT_WR)
            raw = Raw(*await asyncio.open_connection(sock=peer))
            assert [(await raw.read()).opaque for _ in range(300)] == list(range(300))
            assert await raw.is_closed()
            await raw.close()

    asyncio.run(main())


BROKEN = b"\xff" * 64
"""No frame has this length."""


@pytest.mark.parametrize("_io_threads", [2], ids=["threads"], indirect=True)
def test_last_answers_reach_a_peer_that_is_closed_while_it_sends() -> None:
    def talk(port: int) -> bytes:
        with socket.create_connection(("127.0.0.1", port)) as peer:
            peer.settimeout(20)
            peer.sendall(b"".join(ask(ECHO, number) for number in range(50)) + BROKEN)
            # More than the buffers of both sides take: it goes on until somebody takes it.
            peer.sendall(bytes(16 << 20))
            peer.shutdown(socket.SHUT_WR)
            got = b""
            while data := peer.recv(1 << 16):
                got += data
            return got

    async def main() -> None:
        async with serving() as running:
            answers, _ = decode(await asyncio.to_thread(talk, running.server.port))
            assert [answer.opaque for answer in answers] == list(range(50))

    asyncio.run(main())


@pytest.mark.parametrize("_io_threads", [2], ids=["threads"], indirect=True)
def test_peer_that_does_not_close_when_it_is_closed_keeps_a_descriptor_for_a_second() -> None:
    async def main() -> None:
        async with serving() as running:
            before = opened().total()
            peers: list[socket.socket] = []
            for _ in range(5):
                peer = await asyncio.to_thread(
                    socket.create_connection, ("127.0.0.1", running.server.port)
                )
                peer.sendall(ask(ECHO, 1) + BROKEN)
                peers.append(peer)
            # It is not counted any more, and its end can be seen at once.
            for peer in peers:
                while await asyncio.to_thread(peer.recv, 1 << 16):
                    pass
            assert not running.server.connections
            await until(lambda: opened().total() == before + len(peers))
            for peer in peers:
                peer.close()

    asyncio.run(main())


def test_requests_kept_back_are_executed_when_their_peer_has_gone() -> None:
    async def main() -> None:
        async with serving(ServerConfig(in_hand_max=1_000)) as running:
            peer = await asyncio.to_thread(
                socket.create_connection, ("127.0.0.1", running.server.port)
            )
            body = bytes(600)
            for number in range(20):
                peer.sendall(encode(Command(SLOW, None, body, opaque=number, flag=FLAG_ONE_WAY)))
            peer.close()
            await until(lambda: len(running.handlers.seen) >= 2)
            await asyncio.sleep(0.05)
            running.handlers.gate.set()
            await until(lambda: len(running.handlers.seen) == 20)
            await until(lambda: not running.server.connections)

    asyncio.run(main())


def test_request_that_waited_in_the_kernel_while_the_loop_was_late_has_its_age() -> None:
    async def main() -> None:
        waits = KernelWaits(lambda: None, lambda: 0.0)
        async with serving() as running:
            running.server._waits = waits
            raw = await asyncio.to_thread(
                socket.create_connection, ("127.0.0.1", running.server.port)
            )
            raw.sendall(ask(LATER))
            await until(lambda: running.handlers.parked)

            def send() -> None:
                # More than a thread takes ahead of the loop, and one that it does not take.
                raw.sendall(b"".join(ask(LATER, number) for number in range(1_000)))
                time.sleep(0.1)
                raw.sendall(ask(LATER, 5_000))

            waits.is_late = True
            sending = threading.Thread(target=send)
            sending.start()
            time.sleep(0.6)  # noqa: ASYNC251  (the loop is to be late)
            sending.join()
            await until(lambda: running.handlers.parked[-1].command.opaque == 5_000)
            last = running.handlers.parked[-1]
            assert running.server.now_ms() - last.received_ms >= 400
            raw.close()

    asyncio.run(main())
