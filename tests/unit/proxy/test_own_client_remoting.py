"""Our own client where it reaches a proxy's remoting port and nobody else."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

import roquet
from remoting_harness import PATIENCE_S, on_loop
from remoting_proxy_harness import proxy
from roquet.client import TransactionState
from roquet.testing.cluster import cluster

if TYPE_CHECKING:
    from pathlib import Path

TOPIC = "Through"
DECIDED = "Decided"


@on_loop
async def test_own_client_sends_reads_commits_pops_and_ends_transactions_behind_a_proxy(
    tmp_path: Path,
) -> None:
    async with contextlib.AsyncExitStack() as stack:
        it = await stack.enter_async_context(cluster(tmp_path, timerWheelEnable="true"))
        assert (await it.send(TOPIC)).code == 0
        async with roquet.connect(it.name_servers) as direct:
            await direct.admin().topics.create(
                DECIDED, 1, attributes={"message.type": "TRANSACTION"}
            )
        door = await stack.enter_async_context(proxy(it.name_servers))
        mq = await stack.enter_async_context(roquet.connect(f"127.0.0.1:{door.server.port}"))
        producer = await stack.enter_async_context(mq.producer("senders"))
        for body in (b"one", b"two"):
            await producer.send(TOPIC, body)

        got: list[bytes] = []
        async with mq.consumer("readers", TOPIC, start="earliest") as consumer:
            async with asyncio.timeout(PATIENCE_S):
                async for message in consumer:
                    got.append(message.body)
                    if len(got) == 3:
                        break
        assert sorted(got) == sorted([b"hello", b"one", b"two"])
        # What it committed is where the next one begins: the last one was not done when it left.
        await producer.send(TOPIC, b"three")
        async with mq.consumer("readers", TOPIC) as consumer:
            two = [await asyncio.wait_for(anext(aiter(consumer)), PATIENCE_S) for _ in range(2)]
        assert sorted(it.body for it in two) == sorted([got[2], b"three"])

        async with mq.simple_consumer("poppers", TOPIC, start="earliest") as popping:
            async with asyncio.timeout(PATIENCE_S):
                popped = list(await popping.receive(32))
                while len(popped) < 4:
                    popped += await popping.receive(32)
            later = await popping.change_invisible(popped[0], 30)
            for one in (later, *popped[1:]):
                await popping.ack(one)

        async def undecided(_: object) -> TransactionState:
            return TransactionState.UNKNOWN

        deciding = await stack.enter_async_context(mq.transaction_producer("deciders", undecided))
        async with await deciding.begin(DECIDED, b"decided"):
            pass
        async with mq.consumer("others", DECIDED, start="earliest") as consumer:
            message = await asyncio.wait_for(anext(aiter(consumer)), PATIENCE_S)
            assert message.body == b"decided"
