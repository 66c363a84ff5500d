"""Peers that have signed nothing get a share of what connections may keep waiting, and no more."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import socket
from typing import TYPE_CHECKING

import pytest

from auth_harness import ANN, ROOT, entry, guarded
from remoting_harness import on_loop, until
from roquet.acl.credentials import Credentials
from roquet.base.clock import SystemClock
from roquet.remoting.client import Client
from roquet.remoting.codec import encode
from roquet.remoting.connections.limits import MIB, Budget, Standing, stranger_bounds
from roquet.testing.cluster import send_command

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from pathlib import Path

    from auth_harness import Guarded

STRANGERS = 200
PUSHED = 4 * MIB
"""Bytes of a frame without its end that each stranger pushes."""
LARGE = bytes(1_500_000)
SENDS = 20
LARGER = {"maxMessageSize": str(4 * MIB), "mappedFileSizeCommitLog": str(64 * MIB)}
ALL = 512 * MIB
_, NAMELESS, NAMED = stranger_bounds(ALL)
ONE_READ = 256 * 1024


def half_frame(who: Credentials | None) -> bytes:
    """Return a frame without its last byte, with the name of a user or without any."""
    command = send_command("orders", bytes(PUSHED))
    if who is not None:
        command = who.sign(command)
    return encode(dataclasses.replace(command, body=bytes(PUSHED)))[:PUSHED]


async def push(port: int, data: bytes, stop: asyncio.Event) -> None:
    """Push half a frame and keep it there; once cut off, begin again."""
    while not stop.is_set():
        with contextlib.suppress(OSError):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            try:
                writer.write(data)
                await writer.drain()
                await reader.read(1)
            finally:
                writer.transport.abort()
        await asyncio.sleep(0.02)


@contextlib.asynccontextmanager
async def attacked(it: Guarded, data: bytes) -> AsyncGenerator[list[int]]:
    """Have strangers push for the length of a block; give the bytes kept, seen again and again."""
    stop, kept = asyncio.Event(), [0]
    port = it.broker.listeners._main.port

    async def look() -> None:
        while not stop.is_set():
            kept[0] = max(kept[0], it.broker.listeners._main.bytes_kept)
            await asyncio.sleep(0.005)

    tasks = [asyncio.create_task(push(port, data, stop)) for _ in range(STRANGERS)]
    tasks.append(asyncio.create_task(look()))
    try:
        yield kept
    finally:
        stop.set()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@pytest.mark.parametrize(
    ("threads", "name"),
    [("0", "none"), ("1", "none"), ("1", "unknown"), ("0", "known"), ("1", "known")],
)
@on_loop
async def test_large_sends_of_users_go_on_while_strangers_push_half_frames(
    tmp_path: Path, threads: str, name: str
) -> None:
    stranger = {
        "none": None,
        "unknown": Credentials("nobody", "secret"),
        "known": Credentials("ann", "not-the-password"),
    }[name]
    share = NAMED if name == "known" else NAMELESS
    async with guarded(tmp_path, **LARGER, ioThreads=threads) as it:
        await it.make(ANN)
        await it.allow(ANN, entry("Topic:orders", "Pub", "Sub"))
        assert await it.said(send_command("orders", b"small"), ANN) == (0, "")
        connection = await it.client.connect(it.broker.identity.address)
        async with attacked(it, half_frame(stranger)) as kept:
            # They have all that they can get.
            await until(lambda: kept[0] > share * 3 // 4, 120)
            for _ in range(SENDS):
                assert await it.said(send_command("orders", LARGE), ANN) == (0, "")
            if name != "known":
                # Nobody who knows no name is in the way of a user who comes now.
                new = Client(clock=SystemClock())
                await new.start()
                try:
                    send = ANN.sign(send_command("orders", LARGE))
                    answer = await new.call(it.broker.identity.address, send, 60.0)
                    assert (answer.code, answer.remark) == (0, None)
                finally:
                    await new.stop()
        # The connection is that of the beginning: it was never cut.
        assert await it.client.connect(it.broker.identity.address) is connection
        assert kept[0] <= share + (STRANGERS + 4) * ONE_READ + 2 * len(LARGE)
        await until(lambda: it.broker.listeners._main.bytes_kept == 0, 60)


@pytest.mark.parametrize("threads", ["0", "1"])
@on_loop
async def test_frame_without_a_user_has_a_bound_and_one_of_a_user_the_whole_size(
    tmp_path: Path, threads: str
) -> None:
    async with guarded(tmp_path, **LARGER, ioThreads=threads) as it:
        port = it.broker.listeners._main.port
        ended = await asyncio.to_thread(pushed, port, half_frame(None))
        assert ended
        # The first request of a connection may be as large as any other of a user.
        assert await it.said(send_command("orders", bytes(4_000_000)), ROOT) == (0, "")


def pushed(port: int, data: bytes) -> bool:
    """Push half a frame; tell whether the server ends the connection."""
    with socket.create_connection(("127.0.0.1", port), 60) as peer:
        try:
            peer.sendall(data)
            return peer.recv(1) == b""
        except (ConnectionResetError, BrokenPipeError):
            return True


def test_budget_of_the_loop_gives_strangers_their_shares_alone() -> None:
    budget = Budget(64 * MIB)
    none = (Standing.PROVEN, 0)
    one, nameless, named = stranger_bounds(64 * MIB)
    assert (one, nameless, named) == (MIB, 4 * MIB, 16 * MIB)
    assert not budget.charge(none, (Standing.NAMELESS, MIB + 1))
    assert budget.charge((Standing.NAMELESS, MIB + 1), (Standing.NAMED, MIB + 1))
    assert budget.charge((Standing.NAMED, MIB + 1), (Standing.PROVEN, MIB + 1))
    assert budget.strangers == {Standing.NAMED: 0, Standing.NAMELESS: 0}
    for _ in range(4):
        assert budget.charge(none, (Standing.NAMELESS, MIB))
    assert not budget.charge(none, (Standing.NAMELESS, 1))
    assert budget.charge(none, (Standing.NAMED, 16 * MIB))
    assert not budget.charge(none, (Standing.NAMED, 1))
    assert budget.charge(none, (Standing.PROVEN, 42 * MIB))
    assert not budget.charge(none, (Standing.PROVEN, 2 * MIB))
