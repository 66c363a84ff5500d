"""A consumer that is told to end, or has to give queues away, commits what it has done."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

import roquet
from roquet.client import ConsumerOptions
from roquet.testing.cluster import cluster

if TYPE_CHECKING:
    from pathlib import Path

MESSAGES = 200
ASYNC = """
import asyncio, sys, roquet

async def handle(received):
    print(received.body.decode(), flush=True)
    await asyncio.sleep(0.002)

async def main():
    async with roquet.connect(sys.argv[1]) as mq:
        async with mq.consumer("g", "t", start="earliest") as consumer:
            await mq.run(consumer.run(handle, concurrency=4))

asyncio.run(main())
"""
BLOCKING = """
import sys, time, roquet

with roquet.sync.connect(sys.argv[1]) as mq:
    def work():
        with mq.consumer("g", "t", start="earliest") as consumer:
            for received in consumer:
                print(received.body.decode(), flush=True)
                time.sleep(0.002)
    mq.run(work)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda it: it.name)
@pytest.mark.parametrize("program", [ASYNC, BLOCKING], ids=["asyncio", "blocking"])
def test_run_at_a_signal_repeats_nothing_that_was_handled(
    tmp_path: Path, program: str, number: signal.Signals
) -> None:
    async def tell() -> None:
        async with (
            asyncio.timeout(60),
            cluster(tmp_path) as it,
            roquet.connect(f"rmq://{it.name_servers}") as mq,
            mq.producer() as producer,
        ):
            await mq.admin().topics.create("t", 4)
            bodies = [f"{n}" for n in range(MESSAGES)]
            for body in bodies:
                await producer.send("t", body)
            first = await asyncio.create_subprocess_exec(
                sys.executable,
                "-c",
                program,
                f"rmq://{it.name_servers}",
                stdout=subprocess.PIPE,
            )
            assert first.stdout is not None
            found = [(await first.stdout.readline()).decode().strip() for _ in range(50)]
            first.send_signal(number)
            rest = (await first.stdout.read()).decode().split()
            assert await first.wait() == 0
            found += rest
            assert len(found) < MESSAGES
            async with mq.consumer("g", "t", start="earliest") as consumer:
                while len(found) < MESSAGES:
                    received = await consumer.receive(timeout_s=20)
                    assert received is not None
                    received.ack()
                    found.append(received.body.decode())
                assert await consumer.receive(timeout_s=0.3) is None
            assert sorted(found) == sorted(bodies)

    asyncio.run(tell())


def test_member_that_joins_gets_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    async def tell() -> None:
        async with (
            asyncio.timeout(60),
            cluster(tmp_path) as it,
            roquet.connect(f"rmq://{it.name_servers}") as mq,
            roquet.connect(f"rmq://{it.name_servers}") as other,
            mq.producer() as producer,
        ):
            await mq.admin().topics.create("t", 4)
            for number in range(16):
                await producer.send("t", f"{number}")
            # Nothing but the rebalance commits.
            options = ConsumerOptions(commit_every_s=600.0, suspend_s=30.0)
            found: list[bytes] = []
            async with mq.consumer("g", "t", start="earliest", options=options) as first:
                while len(found) < 16:
                    received = await first.receive(timeout_s=20)
                    assert received is not None
                    received.ack()
                    found.append(received.body)
                async with other.consumer("g", "t", start="earliest", options=options) as second:
                    while sum(queue.topic == "t" for queue in second.assigned) < 2:  # noqa: ASYNC110
                        await asyncio.sleep(0.02)
                    assert await second.receive(timeout_s=1.0) is None

    asyncio.run(tell())


def test_latest_gives_a_new_group_only_what_comes_later(tmp_path: Path) -> None:
    async def tell() -> None:
        async with (
            asyncio.timeout(60),
            cluster(tmp_path) as it,
            roquet.connect(f"rmq://{it.name_servers}") as mq,
            mq.producer() as producer,
        ):
            await mq.admin().topics.create("t", 2)
            for number in range(5):
                await producer.send("t", f"old {number}")
            ends = mq.admin().topics.offsets
            while sum(it.max_offset for it in (await ends("t")).values()) < 5:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
            async with mq.consumer("newcomers", "t", start="latest") as consumer:
                while len(consumer.assigned) < 2:  # noqa: ASYNC110
                    await asyncio.sleep(0.02)
                await producer.send("t", "new")
                received = await consumer.receive(timeout_s=20)
                assert received is not None
                assert received.body == b"new"
                # A line of print says which message it is.
                shown = str(received)
                assert "t" in shown
                assert "new" in shown
                assert received.message_id in shown
                json.dumps(shown)

    asyncio.run(tell())
