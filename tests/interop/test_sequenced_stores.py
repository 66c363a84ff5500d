"""Stores with messages that were appended in sequence: Java's brokers see ordinary records.

What brokers of ours promise for a producer holds again as soon as one of them has the store; a
Java broker in between refuses such sends, before anything is stored.
"""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, NamedTuple

import pytest

import roquet
from exchange_harness import Exchange, exchange
from interop_world import has_route, make_topic, until
from roquet.base.clock import SystemClock
from roquet.base.errors import Refused, UsageError
from roquet.client import Known, SequencedPart
from roquet.model.queue import MessageQueue
from roquet.protocol import properties
from roquet.protocol.codes import RequestCode, ResponseCode
from roquet.protocol.command import Command
from roquet.protocol.messages import batch
from roquet.protocol.messages.sequences import START, chain
from roquet.spark.options import SinkOptions
from roquet.spark.sink.sequenced import Epoch, known_of
from roquet.spark.sink.tries import Tries
from roquet.testing.pair import Make, Pair

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from roquet.protocol.messages.batch import Element
    from roquet.testing.java import Driver

TOPIC = "InSequence"
PRODUCER = "a-run"
CHUNK = 40


class Side(NamedTuple):
    """Whom to send to."""

    namesrv: str
    broker: str

    @property
    def queue(self) -> MessageQueue:
        return MessageQueue(TOPIC, self.broker, 0)


def rows(first: int, end: int) -> list[Element]:
    def found(n: int) -> dict[str, str]:
        return {"UNIQ_KEY": f"{n:032X}", "n": str(n)}

    return [
        (0, b"row %06d " % n + bytes(300), properties.write(found(n)).encode())
        for n in range(first, end)
    ]


def append(side: Side, first: int, end: int) -> int:
    """Send rows in sequence; return how many were not there before."""

    async def work() -> int:
        before = chain(START, rows(0, first))[-1] if first else START
        added = 0
        async with roquet.connect(f"rmq://{side.namesrv}") as mq:
            sequences = mq.sequences("writers")
            for at in range(first, end, CHUNK):
                part = rows(at, min(end, at + CHUNK))
                body = batch.encode(part)
                found = await sequences.send(
                    SequencedPart(TOPIC, body, PRODUCER, 0, at, before), side.queue, 20.0
                )
                added += found.added
                before = chain(before, part)[-1]
        return added

    return asyncio.run(work())


def known(side: Side) -> Known:
    async def work() -> Known:
        async with roquet.connect(f"rmq://{side.namesrv}") as mq:
            return await mq.sequences("writers").known(side.queue, PRODUCER, 20.0)

    return asyncio.run(work())


def refused_before_anything(side: Side) -> None:
    """Check that a broker of Java's refuses, and how the sink explains that."""
    with pytest.raises(Refused) as refused:
        append(side, 0, 5)
    assert refused.value.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    given = {"nameServers": side.namesrv, "topic": TOPIC, "delivery": "idempotent"}
    given |= {"fetchOffset.numRetries": "0", "unreachableTimeoutMs": "0"}
    options = SinkOptions.parse(given)

    async def ask() -> None:
        async with roquet.connect(options.wire.url) as mq:
            tries = Tries(options.wire, SystemClock())
            await known_of(mq.sequences("w"), tries, side.queue, Epoch("r", 0, 0), options)

    with pytest.raises(UsageError, match="does not take messages in sequence, which brokers of"):
        asyncio.run(ask())


def consumed(driver: Driver, namesrv: str, group: str, count: int) -> list[bytes]:
    """Return what Java's consumer gets, in the order of the queue, each offset once."""
    received = driver.consume(namesrv, TOPIC, group, count, timeout_s=90)
    by_offset = {one["offset"]: one for one in received}
    assert sorted(by_offset) == list(range(count))
    assert all(
        one["properties"]["n"] == str(int(one["body"].split()[1]))
        for one in by_offset.values()
        if one["body"].startswith(b"row")
    )
    return [by_offset[at]["body"] for at in range(count)]


def bodies(first: int, end: int) -> list[bytes]:
    return [body for _, body, _ in rows(first, end)]


@pytest.fixture
def swap(jars: Path, driver: Driver, tmp_path: Path) -> Iterator[Exchange]:
    yield from exchange(jars, driver, tmp_path)


@pytest.mark.timeout(400)
@pytest.mark.parametrize("how", ["stop", "kill"])
def test_java_broker_between_two_of_ours_sees_ordinary_records(swap: Exchange, how: str) -> None:
    side = Side(swap.namesrv, swap.plan.name)
    swap.open("ours")
    make_topic(swap.driver, swap.namesrv, swap.plan, TOPIC, 1)
    assert append(side, 0, 200) == 200
    swap.close(how)

    swap.open("java")
    assert consumed(swap.driver, swap.namesrv, "between", 200) == bodies(0, 200)
    refused_before_anything(side)
    ordinary = {"body": b"ordinary", "tags": "", "keys": "k", "properties": {}}
    (sent,) = swap.driver.send(swap.namesrv, TOPIC, [ordinary])
    assert (sent["status"], sent["offset"]) == ("SEND_OK", 200)
    swap.close(how)

    swap.open("ours")
    assert known(side)[:2] == (0, 200)
    # The whole run once more, and what follows: nothing is doubled over the records in between.
    assert append(side, 0, 230) == 30
    wanted = [*bodies(0, 200), b"ordinary", *bodies(200, 230)]
    assert consumed(swap.driver, swap.namesrv, "after", 231) == wanted


@pytest.mark.timeout(400)
@pytest.mark.parametrize("slave", ["java", "ours"])
def test_slave_that_was_promoted_has_ordinary_records_and_ours_the_promise(
    jars: Path, driver: Driver, tmp_path: Path, slave: Make
) -> None:
    assert jars.is_dir()
    with Pair(tmp_path, "ours", slave, random.Random()) as pair:
        side = Side(pair.namesrv, pair.plans["master"].name)
        pair.start("master")
        until("the master is registered", lambda: pair.status("master") is not None)
        make_topic(driver, pair.namesrv, pair.plans["master"], TOPIC, 1)
        pair.start("slave")
        assert append(side, 0, 200) == 200
        pair.catch_up()
        # Java's slaves copy the tables once a minute.
        until("the slave has the topic", lambda: _knows(pair), 120)
        # What the slave copied is read at the slave alone.
        pair.kill("master")
        assert consumed(driver, pair.namesrv, "at-slave", 200) == bodies(0, 200)
        pair.stop("slave")
        pair.promote()
        until("it leads", lambda: _leads(pair), 60)
        until("it has a route", lambda: has_route(pair.namesrv, TOPIC, side.broker), 60)
        if slave == "java":
            refused_before_anything(side)
            assert consumed(driver, pair.namesrv, "promoted", 200) == bodies(0, 200)
            return
        assert known(side)[:2] == (0, 200)
        assert append(side, 160, 230) == 30
        assert consumed(driver, pair.namesrv, "promoted", 230) == bodies(0, 230)


def _knows(pair: Pair) -> bool:
    answer = pair.call("slave", Command(RequestCode.GET_ALL_TOPIC_CONFIG))
    return f'"{TOPIC}"'.encode() in answer.body


def _leads(pair: Pair) -> bool:
    status = pair.status("slave")
    return status is not None and status.is_master
