"""The ceiling: one hop of bare asyncio that copies bytes from one connection to another.

`python -m bench.relay.hop TARGET_PORT` prints its own port and runs until it is killed.
"""

from __future__ import annotations

import asyncio
import sys
from typing import cast

import uvloop


class _Pipe(asyncio.Protocol):
    def __init__(self) -> None:
        self.other: asyncio.Transport | None = None
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:  # type: ignore[explicit-override]
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:  # type: ignore[explicit-override]
        if self.other is not None:
            self.other.write(data)


async def main(target: int) -> None:
    """Listen, and copy."""
    loop = asyncio.get_running_loop()

    def come() -> _Pipe:
        first, second = _Pipe(), _Pipe()

        async def join() -> None:
            await loop.create_connection(lambda: second, "127.0.0.1", target)
            first.other, second.other = second.transport, first.transport

        joining.add(loop.create_task(join()))
        return first

    joining: set[asyncio.Task[None]] = set()
    server = await loop.create_server(come, "127.0.0.1", 0)
    sys.stdout.write(f"{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(main(int(sys.argv[1])))
