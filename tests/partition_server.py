"""An inner server that says how many others it knows whenever that changes."""

from __future__ import annotations

import asyncio
import sys

from roquet.relay.client import ClientOptions, InnerServer

PORT = 7001


def say(text: str) -> None:
    """Print a line that the test waits for."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


async def main(server_id: int, address: str) -> None:
    """Run until it is killed."""
    options = ClientOptions(heartbeat_s=0.2, heartbeat_timeout_s=1.0)
    server = InnerServer(
        server_id=server_id, server_type=1, host=address, port=PORT, options=options
    )
    server.on_change = lambda: say(f"others {len(server.others)}")
    async with server:
        say("listening")
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), sys.argv[2]))
