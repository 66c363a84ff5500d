"""Requests in flight while a broker is told to stop: each is answered, none is cut off."""

from __future__ import annotations

import asyncio
import collections
import dataclasses
import signal
from typing import TYPE_CHECKING

import pytest

from broker_harness import records
from roquet.base.clock import SystemClock
from roquet.base.errors import OutcomeUnknown, Unreachable
from roquet.protocol.codes import ResponseCode
from roquet.remoting.client import Client
from roquet.testing.cluster import send_command
from roquet.testing.process import BrokerProcess

if TYPE_CHECKING:
    from pathlib import Path

    from roquet.testing.process import Caller

SENDERS, ENOUGH = 8, 20
OLD, NEW = 401, 513
"""Versions of clients that do not know GO_AWAY (V4_9_4) and of our own."""


@pytest.mark.parametrize("version", [OLD, NEW])
@pytest.mark.parametrize(
    ("threads", "flush"), [("0", "SYNC_FLUSH"), ("2", "SYNC_FLUSH"), ("2", "ASYNC_FLUSH")]
)
def test_sends_in_flight_at_an_orderly_stop_are_stored_or_refused(
    tmp_path: Path, threads: str, flush: str, version: int
) -> None:
    seen: collections.Counter[str] = collections.Counter()
    stored: set[bytes] = set()

    async def send_until_sent_away(broker: BrokerProcess, number: int, busy: asyncio.Event) -> None:
        client = Client(clock=SystemClock())
        await client.start()
        try:
            for turn in range(1_000_000):
                body = b"%d-%d" % (number, turn)
                command = dataclasses.replace(send_command("t", body, number % 4), version=version)
                answer = await client.call(broker.address, command, 20.0)
                if answer.code != ResponseCode.SUCCESS:
                    seen[f"{answer.code}: {answer.remark}"] += 1
                    return
                stored.add(body)
                if turn >= ENOUGH:
                    busy.set()
        except Unreachable:
            # Sent away by GO_AWAY, and the port is closed: nothing was sent.
            seen["unreachable"] += 1
        except OutcomeUnknown as error:
            seen[f"unknown: {error}"] += 1
        finally:
            await client.stop()

    async def story() -> None:
        broker = BrokerProcess(tmp_path, ioThreads=threads, flushDiskType=flush)
        async with broker.client() as caller:
            await caller.send("t")
            busy = [asyncio.Event() for _ in range(SENDERS)]
            tasks = [
                asyncio.create_task(send_until_sent_away(broker, number, its))
                for number, its in enumerate(busy)
            ]
            await asyncio.gather(*(its.wait() for its in busy))
            assert await asyncio.to_thread(broker.kill, signal.SIGTERM) == 0
            await asyncio.gather(*tasks)
        expected = "unreachable" if version == NEW else "14: the server is stopping"
        assert seen == {expected: SENDERS}
        # Whatever was acknowledged is there after the stop.
        async with broker.client() as caller:
            found = {body for queue in range(4) for body in await _bodies(caller, queue)}
            assert stored <= found
            assert len(stored) >= SENDERS * ENOUGH
        broker.kill(signal.SIGTERM)

    asyncio.run(story())


async def _bodies(caller: Caller, queue: int) -> list[bytes]:
    found: list[bytes] = []
    while came := records(await caller.pull("t", len(found), queueId=str(queue))):
        found += [record.body for record in came]
    return found
