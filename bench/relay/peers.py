"""Inner servers as cheap as they can be: they register, send ready-made bytes, and count."""

from __future__ import annotations

import asyncio
import functools
import struct
import time
from typing import cast

from roquet.protocol.command import reply_to
from roquet.relay.codes import RelayCode
from roquet.relay.peers import packets
from roquet.relay.peers.packets import Registered
from roquet.remoting.codec import decode, encode

_LENGTH = struct.Struct(">i")


class Peer(asyncio.Protocol):
    """One inner server's end of its link: answers the register packet, then counts frames."""

    def __init__(self, server_id: int) -> None:
        self.server_id = server_id
        self.registered = asyncio.Event()
        self.frames = 0
        self.bytes = 0
        self.latencies_s: list[float] = []
        self.times_bodies = False
        """Whether bodies begin with the time at which they were sent."""
        self.may_write = asyncio.Event()
        self.may_write.set()
        self._rest = b""
        self._transport: asyncio.Transport | None = None

    @property
    def transport(self) -> asyncio.Transport:
        assert self._transport is not None
        return self._transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:  # type: ignore[explicit-override]
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=256 * 1024)

    def pause_writing(self) -> None:  # type: ignore[explicit-override]
        self.may_write.clear()

    def resume_writing(self) -> None:  # type: ignore[explicit-override]
        self.may_write.set()

    def data_received(self, data: bytes) -> None:  # type: ignore[explicit-override]
        data = self._rest + data if self._rest else data
        if not self.registered.is_set():
            commands, used = decode(data)
            for command in commands:
                if command.code == RelayCode.REGISTER and not command.is_response:
                    answer = reply_to(command)
                    answer.ext = packets.registered_ext(
                        Registered(server_id=self.server_id, max_online=0, nonce="", proof="")
                    )
                    self.transport.write(encode(answer))
                elif command.code == RelayCode.SERVER_MAP:
                    self.registered.set()
            self._rest = data[used:]
            return
        at, end = 0, len(data)
        now_s = time.perf_counter() if self.times_bodies else 0.0
        while at + 4 <= end:
            size = _LENGTH.unpack_from(data, at)[0] + 4
            if at + size > end:
                break
            self.frames += 1
            if self.times_bodies and size > 256:
                self.latencies_s.append(now_s - struct.unpack_from(">d", data, at + size - 256)[0])
            at += size
        self.bytes += at
        self._rest = data[at:]


class Fleet:
    """Peers that listen, each on a port of its own."""

    def __init__(self, ids: range) -> None:
        self.peers: dict[int, Peer] = {}
        self.ports: dict[int, int] = {}
        self._ids = ids
        self._servers: list[asyncio.Server] = []

    async def start(self) -> None:
        """Listen."""
        loop = asyncio.get_running_loop()
        for server_id in self._ids:
            server = await loop.create_server(
                functools.partial(self._come, server_id), "127.0.0.1", 0
            )
            self._servers.append(server)
            self.ports[server_id] = server.sockets[0].getsockname()[1]

    def _come(self, server_id: int) -> Peer:
        self.peers[server_id] = Peer(server_id)
        return self.peers[server_id]

    async def whole(self, limit_s: float) -> None:
        """Wait until every peer is registered."""
        async with asyncio.timeout(limit_s):
            while len(self.peers) < len(self._ids):
                await asyncio.sleep(0.005)
            for peer in self.peers.values():
                await peer.registered.wait()

    def entries(self) -> list[dict[str, object]]:
        """Return the configuration server's list."""
        return [
            {"id": server_id, "type": 1, "host": "127.0.0.1", "port": port}
            for server_id, port in self.ports.items()
        ]

    async def stop(self) -> None:
        """Close everything."""
        for peer in self.peers.values():
            peer.transport.abort()
        for server in self._servers:
            server.close()
            await server.wait_closed()


def frame(sender: int, to: int, body: bytes) -> bytes:
    """Return one one-way packet as bytes."""
    ext = {"from": str(sender), "packet": "1", "to": str(to)}
    return encode(packets.one_way(RelayCode.FORWARD, ext, body))
