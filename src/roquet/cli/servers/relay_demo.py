"""`roquet relay --demo`: a configuration server, a relay and three inner servers that talk."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from roquet.base.clock import SystemClock
from roquet.base.errors import Refused
from roquet.relay.app import build
from roquet.relay.client import InnerServer, Packet
from roquet.relay.config_server import ConfigServer

if TYPE_CHECKING:
    from collections.abc import Callable

    from roquet.relay.config import RelayConfig

LOBBY, BATTLE = 1, 2
"""Server types of the demo."""
GREET, JOIN, CHEER = 1, 2, 3
"""Packet kinds of the demo."""
NAMES = {1001: "lobby-1", 2001: "battle-1", 2002: "battle-2"}
ROUND_S = 2.0


async def demo(
    config: RelayConfig, say: Callable[[str], None], stop: asyncio.Event, *, folder: Path
) -> None:
    """Run the fleet until `stop` is set; say what happens."""
    async with contextlib.AsyncExitStack() as stack:
        servers = [_server(server_id, say) for server_id in NAMES]
        for server in servers:
            await stack.enter_async_context(server)
            name = NAMES[server.server_id]
            say(f"{name}: inner server {server.server_id} listens on port {server.port}")
        file = folder / "servers.json"
        _publish(file, servers)
        lists = ConfigServer(file)
        await lists.start()
        stack.push_async_callback(lists.stop)
        say(f"configuration server: {lists.url} serves {file}")
        relay = build(_with(config, lists.url, folder), SystemClock())
        await stack.enter_async_context(relay.app)
        say(f"relay: page, health and metrics on http://{config.bind_address}:{relay.http.port}/")
        for server in servers:
            await server.until(lambda s=server: len(s.others) == len(NAMES) - 1)  # type: ignore[misc]
            others = ", ".join(NAMES[one] for one in sorted(server.others))
            say(f"{NAMES[server.server_id]}: registered, knows {others}")
        await _talk(servers[0], say)
        while not stop.is_set():
            await _play(servers[0])
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), ROUND_S)


async def run_demo(config: RelayConfig, say: Callable[[str], None], stop: asyncio.Event) -> int:
    """Run the demo in a folder of its own."""
    with tempfile.TemporaryDirectory(prefix="roquet-relay-") as folder:
        await demo(config, say, stop, folder=Path(folder))
    return 0


def _server(server_id: int, say: Callable[[str], None]) -> InnerServer:
    name = NAMES[server_id]
    kind = LOBBY if server_id < 2000 else BATTLE
    server = InnerServer(server_id=server_id, server_type=kind, max_online=100)
    joined: set[str] = set()

    async def greet(packet: Packet) -> None:
        say(f"{name}: {NAMES[packet.sender]} says {packet.body.decode()!r}")

    async def join(packet: Packet) -> bytes:
        joined.add(packet.body.decode())
        server.online = len(joined)
        return f"{packet.body.decode()} plays on {name}".encode()

    async def cheer(_: Packet) -> None:
        """Count: the page shows it."""

    server.handle(GREET, greet)
    server.handle(JOIN, join)
    server.handle(CHEER, cheer)
    return server


async def _talk(lobby: InnerServer, say: Callable[[str], None]) -> None:
    """Use each way of sending once."""
    await lobby.send(2001, GREET, b"hello by id")
    for player in ("ann", "bob", "eve"):
        answer = await lobby.request_by_type(BATTLE, player, JOIN, player.encode())
        say(f"lobby-1: request by type, key {player}: {answer.decode()}")
    delivered, refused = await lobby.send_to_all(BATTLE, GREET, b"hello to all of a type")
    say(f"lobby-1: broadcast delivered to {delivered}, refused by {refused}")
    try:
        await lobby.request(4711, GREET, b"anybody there?")
    except Refused as error:
        say(f"lobby-1: a request to nobody is refused: {error.remark}")


async def _play(lobby: InnerServer) -> None:
    """Keep some traffic on the page."""
    for number in range(200):
        await lobby.send_by_type(BATTLE, f"player-{number}", CHEER, b"!")


def _publish(file: Path, servers: list[InnerServer]) -> None:
    rows = [
        {
            "id": server.server_id,
            "type": server.server_type,
            "host": "127.0.0.1",
            "port": server.port,
            "name": NAMES[server.server_id],
        }
        for server in servers
    ]
    file.write_text(json.dumps({"version": 1, "servers": rows}, indent=2))


def _with(config: RelayConfig, url: str, folder: Path) -> RelayConfig:
    return dataclasses.replace(config, config_url=url, config_copy=str(folder / "copy.json"))
