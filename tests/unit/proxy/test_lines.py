"""Lines to brokers are made one at a time, and not again before a second has passed."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from remoting_harness import calling, serving, until
from roquet.base.errors import Unreachable
from roquet.proxy.lines import AGAIN_MS, Lines
from roquet.testing.clock import FakeClock

if TYPE_CHECKING:
    from roquet.remoting.connections.connection import Connection


def test_broker_is_connected_to_once_a_second_whatever_came_of_the_last_try() -> None:
    async def main() -> None:
        clock, tries = FakeClock(), 0
        made: list[tuple[str, Connection]] = []

        async with serving() as running, calling() as client:

            async def dial(address: str) -> Connection:
                nonlocal tries
                tries += 1
                if tries == 1:
                    raise Unreachable("not yet")
                return await client.dial(address)

            lines = Lines(dial, lambda *line: made.append(line), clock)

            async def wanted() -> int:
                for _ in range(10):
                    lines.want("b", running.address)
                    await asyncio.sleep(0.01)
                return tries

            assert await wanted() == 1
            assert not made
            await clock.advance(AGAIN_MS / 1000)
            assert await wanted() == 2
            await until(lambda: len(made) == 1)
            ((name, connection),) = made
            assert name == "b"
            connection.close("")
            assert await wanted() == 2
            await clock.advance(AGAIN_MS / 1000)
            assert await wanted() == 3
            await lines.stop()

    asyncio.run(main())
