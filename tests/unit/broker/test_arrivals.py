"""The loop is woken for dispatched messages while somebody waits, and only then.

The log is flushed once a minute here, so that news of a flush never stands in for a wake-up.
"""

from __future__ import annotations

import asyncio
import select
from typing import TYPE_CHECKING

import pytest

from broker_harness import ext, play, records
from pop_harness import GROUP, pop, pop_command, popped
from pop_harness import TOPIC as POPPED
from roquet.model.topic import TopicConfig
from roquet.protocol.codes import RequestCode
from roquet.protocol.command import Command
from roquet.testing.cluster import Cluster, pull_command

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SELDOM = {"flushIntervalCommitLog": "60000"}
WAIT = {"sysFlag": "6", "suspendTimeoutMillis": "50000"}
ROUNDS = 5


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not holds():  # noqa: ASYNC110
            await asyncio.sleep(0.005)


def has_news(it: Cluster) -> bool:
    """Tell whether the descriptor of the store's news is readable."""
    return bool(select.select([it.broker.store.native.event_fd()], [], [], 0)[0])


async def topic(it: Cluster) -> None:
    """Have a topic that takes the fast path where it is on, and wait until the loop is calm."""
    it.broker.metadata.topics.put(TopicConfig(name="t", read_queues=1, write_queues=1))
    await it.broker.metadata.topics.persist()
    await send(it, b"first")
    await until(lambda: not has_news(it))


async def send(it: Cluster, body: bytes) -> None:
    await it.send("t", body)
    await until(lambda: it.broker.store.dispatch_behind() == 0)


async def until_pop_waits(it: Cluster) -> None:
    asked = {"consumerGroup": GROUP, "topic": POPPED, "queueId": "-1"}
    async with asyncio.timeout(30):
        while True:
            answer = await it.call(Command(RequestCode.POLLING_INFO, ext=asked))
            if ext(answer)["pollingNum"] == "1":
                return


def test_dispatch_wakes_no_loop_on_which_nobody_waits(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        await topic(it)
        told: list[object] = []
        it.broker.store.on_arrivals(told.append, lambda: False)
        for number in range(ROUNDS):
            await send(it, b"%d" % number)
        assert told == []
        it.broker.store.expect_arrivals()
        await until(lambda: bool(told))
        assert told == [[("t", 0, 1 + ROUNDS)]]

    play(tmp_path, tell, **SELDOM)


@pytest.mark.parametrize("fast", ["true", "false"])
def test_held_pull_is_answered_by_each_message_while_others_wait_or_not(
    tmp_path: Path, fast: str
) -> None:
    async def tell(it: Cluster) -> None:
        await topic(it)
        reads = it.broker.services.receives
        for number in range(1, ROUNDS):
            # Nobody waits: this one is kept as news.
            await send(it, b"kept")
            waiting = asyncio.create_task(it.call(pull_command("t", 2 * number, **WAIT)))
            await until(lambda: reads.held() == 1)
            await send(it, b"%d" % number)
            assert [record.body for record in records(await waiting)] == [b"%d" % number]
            assert reads.held() == 0

    play(tmp_path, tell, fastPathEnable=fast, **SELDOM)


def test_held_pop_is_answered_by_each_message(tmp_path: Path) -> None:
    async def tell(it: Cluster) -> None:
        await it.send(POPPED, b"old")
        await until(lambda: it.broker.store.dispatch_behind() == 0)
        assert (await pop(it)).bodies == [b"old"]
        for number in range(ROUNDS):
            waiting = asyncio.create_task(it.call(pop_command(pollTime="50000")))
            await until_pop_waits(it)
            await it.send(POPPED, b"%d" % number)
            assert popped(await waiting).bodies == [b"%d" % number]

    play(tmp_path, tell, **SELDOM)
