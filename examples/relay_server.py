"""An inner server of a fleet: it answers packets of others, or asks one of them.

    python examples/relay_server.py --id 2001 --type 2 --port 7002
    python examples/relay_server.py --id 1001 --type 1 --port 7001 --player ann --player bob

Each listens; the relay dials it, as the list of servers in `examples/relay/servers.json` says. The
second asks the server of type 2 that a player belongs to, again and again, until SIGTERM.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import signal
import sys

import roquet
from roquet.relay.client import InnerServer, Packet

MOVE = 1
BATTLE = 2
PAUSE_S = 1.0


async def serve(options: argparse.Namespace, stop: asyncio.Event) -> None:
    """Run one server until `stop` is set."""
    server = InnerServer(server_id=options.id, server_type=options.type, port=options.port)
    moves: dict[str, int] = {}

    async def move(packet: Packet) -> bytes:
        player = packet.body.decode()
        moves[player] = moves.get(player, 0) + 1
        server.online = len(moves)  # the relay's page shows it
        return f"{player}: move {moves[player]} on {server.server_id}".encode()

    server.handle(MOVE, move)
    async with server:
        print(f"server {server.server_id} listens on port {server.port}", flush=True)
        while not stop.is_set():
            for player in options.player:
                await play(server, player)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), PAUSE_S)
    print(f"server {options.id} ended in good order", flush=True)


async def play(server: InnerServer, player: str) -> None:
    """Ask the server that a player belongs to; the same one as long as the fleet is the same."""
    try:
        answer = await server.request_by_type(BATTLE, player, MOVE, player.encode())
        print(answer.decode(), flush=True)
    except roquet.OutcomeUnknown as error:
        print(f"{player} may have moved: {error}", flush=True)
    except roquet.RoquetError as error:  # the relay or the other server is away
        print(f"{player} has not moved: {error}", flush=True)


async def main() -> None:
    """Read the arguments, and stop at SIGTERM and Ctrl-C."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--id", type=int, required=True)
    parser.add_argument("--type", type=int, required=True)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--player", action="append", default=[])
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    await serve(parser.parse_args(), stop)


if __name__ == "__main__":
    try:
        asyncio.run(main())
    except roquet.RoquetError as error:  # its port is taken, say
        sys.exit(f"relay_server: {error}")
