"""kill -9 in the middle of transactions and of delays: nothing is lost, twice or early."""

from __future__ import annotations

import asyncio
import collections
import contextlib
from typing import TYPE_CHECKING

import pytest

from broker_harness import ext, properties, records
from roquet.base.clock import SystemClock
from roquet.protocol.bodies.clients import HeartbeatData
from roquet.protocol.codes import RequestCode
from roquet.protocol.command import FLAG_ONE_WAY, Command
from roquet.protocol.headers.client import HeartbeatRequest
from roquet.remoting.client import Client
from roquet.remoting.router import Request, Route
from roquet.store.records import Record, read_records
from roquet.testing.cluster import send_command
from roquet.testing.process import BrokerProcess, Caller
from transaction_harness import COMMIT, GROUP, ROLLBACK, end_command

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from pathlib import Path


async def everything(it: Caller, topic: str) -> list[Record]:
    """Pull queue 0 of a topic from its beginning."""
    found: list[Record] = []
    while more := records(await it.pull(topic, len(found))):
        found += more
    return found


@contextlib.asynccontextmanager
async def answering(address: str, asked: list[str]) -> AsyncGenerator[None]:
    """Stay connected as a producer that commits whatever it is asked about."""

    async def check(request: Request) -> None:
        fields = request.command.ext or {}
        (record,) = read_records(request.command.body)
        asked.append(properties(record)["UNIQ_KEY"])
        answer = end_command(
            COMMIT,
            int(fields["commitLogOffset"]),
            int(fields["tranStateTableOffset"]),
            fromTransactionCheck="true",
        )
        answer.flag = FLAG_ONE_WAY
        await client.call_one_way(address, answer)

    route = Route((RequestCode.CHECK_TRANSACTION_STATE,), check, "answers")
    client = Client(clock=SystemClock(), handlers=[route])
    await client.start()
    try:
        data = HeartbeatData(client_id="tx@1", producers=(GROUP,), consumers=())
        beat = Command(RequestCode.HEART_BEAT, ext=HeartbeatRequest().encode(), body=data.encode())
        assert (await client.call(address, beat, 20.0)).code == 0
        yield
    finally:
        await client.stop()


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_transactions_are_committed_once(tmp_path: Path, flush: str) -> None:
    async def story() -> None:
        broker = BrokerProcess(
            tmp_path,
            flushDiskType=flush,
            transactionTimeOut="500",
            transactionCheckInterval="200",
        )
        try:
            async with broker.client() as it:
                await _leave(it)
                broker.kill()
            async with broker.client() as it:
                asked: list[str] = []
                async with answering(it.address, asked), asyncio.timeout(60):
                    while len(await everything(it, "orders")) < 20:  # noqa: ASYNC110
                        await asyncio.sleep(0.05)
                keys = [properties(one)["UNIQ_KEY"] for one in await everything(it, "orders")]
                counts = collections.Counter(keys)
                expected = {f"K{n}" for n in range(30) if n % 3 != 1}
                assert counts == dict.fromkeys(expected, 1)
                assert {f"K{n}" for n in range(30) if n % 3 == 2} <= set(asked)
                assert not {f"K{n}" for n in range(30) if n % 3 == 1} & set(asked)
        finally:
            broker.kill()

    asyncio.run(story())


async def _leave(it: Caller) -> None:
    """Commit a third of 30 transactions, roll a third back, and leave the others open."""
    for number in range(30):
        text = f"UNIQ_KEY\x01K{number}\x02TRAN_MSG\x01true\x02PGROUP\x01{GROUP}\x02"
        sent = await it.call(send_command("orders", b"half", 0, text, f="4", a=GROUP))
        assert sent.code == 0
        place = int(ext(sent)["msgId"][16:], 16), int(ext(sent)["queueOffset"])
        if number % 3 != 2:
            state = (COMMIT, ROLLBACK)[number % 3]
            answer = await it.call(end_command(state, *place))
            assert answer.code == 0


def test_delays_are_kept(tmp_path: Path) -> None:
    delays = [0, 1_000, 2_000, 3_000]

    async def story() -> None:
        clock = SystemClock()
        broker = BrokerProcess(tmp_path, messageDelayLevel="1s 2s 3s")
        sent: dict[str, int] = {}
        try:
            async with broker.client() as it:
                for number in range(60):
                    level = 1 + number % 5  # 4 and 5 are more than the highest: 3 counts
                    key = f"D{number}"
                    text = f"UNIQ_KEY\x01{key}\x02DELAY\x01{level}\x02"
                    now = str(clock.now_ms())
                    answer = await it.call(send_command("later", b"x", 0, text, g=now))
                    assert answer.code == 0
                    sent[key] = min(level, 3)
                async with asyncio.timeout(30):
                    while not await everything(it, "later"):  # noqa: ASYNC110
                        await asyncio.sleep(0.02)
                broker.kill()
            async with broker.client() as it, asyncio.timeout(60):
                while True:
                    came = await everything(it, "later")
                    if {properties(one)["UNIQ_KEY"] for one in came} == set(sent):
                        break
                    await asyncio.sleep(0.05)
            for one in came:
                waited_ms = one.store_timestamp - one.born_timestamp
                assert waited_ms >= delays[sent[properties(one)["UNIQ_KEY"]]], "too early"
                assert one.topic == "later"
        finally:
            broker.kill()

    asyncio.run(story())
