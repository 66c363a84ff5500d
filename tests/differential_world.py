"""What the differential tests share: fixed ports, and what is compared of answers and logs."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import random
import socket
import struct
from typing import TYPE_CHECKING

from roquet.broker.pop.buffer.service import PopBuffer
from roquet.broker.pop.receive.polls import PopPolls
from roquet.remoting.codec import encode
from roquet.roquet_native import decode_records
from roquet.service.lanes import Lanes
from roquet.testing.java import free_port

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from roquet.broker.app import Broker
    from roquet.protocol.command import Command
    from roquet.testing.clock import FakeClock

LINES = 3
"""Connections."""


async def connect(port: int, own_port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect from a fixed port, which every record repeats."""
    own = socket.socket()
    own.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    own.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    own.bind(("127.0.0.1", own_port))
    own.setblocking(False)
    await asyncio.get_running_loop().sock_connect(own, ("127.0.0.1", port))
    return await asyncio.open_connection(sock=own)


class Quiet:
    """Tells when a broker has done all that it read, and its queues have caught up with the log."""

    def __init__(self, broker: Broker) -> None:
        self._store = broker.store
        self._ends: dict[tuple[str, int], int] = {}
        parts = (part.service for part in broker.app._parts)
        (self._lanes,) = (part for part in parts if isinstance(part, Lanes))
        broker.store.arrivals.on_all(self._heard, None)

        parts = (part.service for part in broker.app._parts)
        (self._buffer,) = (part for part in parts if isinstance(part, PopBuffer))
        parts = (part.service for part in broker.app._parts)
        self._polls = [part for part in parts if isinstance(part, PopPolls)]

    def _heard(self, arrivals: Sequence[tuple[str, int, int]]) -> None:
        self._ends.update({(topic, queue_id): end for topic, queue_id, end in arrivals})

    async def reached(self) -> None:
        """Wait until it is so."""
        loop = asyncio.get_running_loop()
        until = loop.time() + 60
        while (
            self._is_storing()
            or any(lane.running or lane.waiting for lane in self._lanes.all())
            or self._store.dispatch_behind()
            or any(
                end and self._ends.get((topic, queue_id)) != end
                for topic, queue_id, _, end in self._store.native.queues()
            )
        ):
            assert loop.time() < until, "the dispatcher does not keep up"
            await asyncio.sleep(0.001)

    async def held(self, count: int) -> None:
        """Wait until so many pops wait for a message."""
        async with asyncio.timeout(60):
            while sum(map(len, self._polls)) != count:  # noqa: ASYNC110
                await asyncio.sleep(0.001)

    def _is_storing(self) -> bool:
        """Tell whether checkpoints leave memory, with a flush to wait for between two records."""
        return self._buffer._storing.locked()


async def advance(broker: Broker, clock: FakeClock, seconds: float) -> None:
    """Move the clock of a broker, that of its threads as well."""
    await clock.advance(seconds)
    stand_still(broker, clock)


def stand_still(broker: Broker, clock: FakeClock) -> None:
    """Have threads of connections go by the clock of a test."""
    broker.path.connections.clock_stands = True
    broker.path.connections.tell_time(clock.now_ms())


def seen(command: Command) -> tuple[object, ...]:
    """An answer byte for byte, but for the store times in its records."""
    header = encode(dataclasses.replace(command, body=b""))
    if command.code == 0 and command.remark == "FOUND":
        return header, [record[:9] + record[10:] for record in decode_records(command.body)]
    return header, command.body


def logged(folder: Path) -> list[tuple[object, ...]]:
    """Every byte of the log's records, but for the store times."""
    found: list[tuple[object, ...]] = []
    for file in sorted((folder / "commitlog").iterdir()):
        data = file.read_bytes()
        end = 0
        while data[end + 4 : end + 7] == b"\xda\xa3\x20":
            end += int.from_bytes(data[end : end + 4], "big")
        found += [(file.name, *record[:9], *record[10:]) for record in decode_records(data[:end])]
    return found


def free_ports() -> int:
    """Return a port for a broker that is followed by free ones for the connections."""
    chance = random.Random()
    for _ in range(100):
        port = free_port(chance)
        with contextlib.ExitStack() as stack, contextlib.suppress(OSError):
            for own in range(port + 3, port + 3 + LINES):
                stack.enter_context(socket.socket()).bind(("127.0.0.1", own))
            return port
    raise AssertionError("no free ports in a row")
