"""A topic over two brokers, ours and Java's: one is killed, and clients of both make go on."""

from __future__ import annotations

import asyncio
import random
from functools import partial
from typing import TYPE_CHECKING

import pytest

import roquet
from interop_world import (
    has_route,
    messages,
    our_broker,
    our_name_server,
    registered,
    until,
)
from roquet.base.errors import RoquetError
from roquet.testing.java import BrokerPlan, free_port, java_broker

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from interop_world import Sent
    from roquet.testing.java import Driver, Process

TOPIC = "OverTwo"
OURS, JAVA = "side-roquet", "side-java"


class Duo:
    """Our name server with a broker of each make."""

    def __init__(self, jars: Path, folder: Path) -> None:
        chance = random.Random()
        ports = [free_port(chance) for _ in range(3)]
        self.namesrv = f"127.0.0.1:{ports[0]}"
        extra = {"brokerClusterName": "Duo", "flushDiskType": "ASYNC_FLUSH"}
        self.plans = {
            name: BrokerPlan(name, port, self.namesrv, folder / name, extra)
            for name, port in zip((OURS, JAVA), ports[1:], strict=True)
        }
        self.name_server = our_name_server(folder / "namesrv", ports[0])
        self.brokers: dict[str, Process] = {
            OURS: our_broker(folder / "our-broker", self.plans[OURS]),
            JAVA: java_broker(jars, folder / "java-broker", self.plans[JAVA]),
        }

    def start(self) -> None:
        self.name_server.start()
        for broker in self.brokers.values():
            broker.start()
        until("registration", partial(registered, self.namesrv, OURS, JAVA))

    def stop(self) -> None:
        for process in (*self.brokers.values(), self.name_server):
            process.kill()


@pytest.fixture(scope="module")
def duo(jars: Path, driver: Driver, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Duo]:
    built = Duo(jars, tmp_path_factory.mktemp("duo"))
    try:
        built.start()
        for name, plan in built.plans.items():
            at = ("-n", built.namesrv, "-b", plan.address)
            driver.mqadmin("updateTopic", *at, "-t", TOPIC, "-r", "4", "-w", "4")
            until(f"route to {name}", partial(has_route, built.namesrv, TOPIC, name))
        yield built
    finally:
        built.stop()


async def keep_sending(
    mq: roquet.MQ, stop: asyncio.Event, acked: dict[bytes, str], prefix: str
) -> None:
    """Send until told to stop; a send that fails is only not counted."""
    number = 0
    async with mq.producer("duo_producers") as producer:
        while not stop.is_set():
            number += 1
            body = f"{prefix}:{number}".encode()
            try:
                receipt = await producer.send(TOPIC, body)
            except RoquetError:
                continue
            acked[body] = receipt.queue.broker_name
            await asyncio.sleep(0.02)


async def keep_reading(mq: roquet.MQ, group: str, stop: asyncio.Event, seen: set[bytes]) -> None:
    async with mq.consumer(group, {TOPIC: "*"}, start="earliest") as consumer:
        while not stop.is_set():
            delivery = await consumer.receive(timeout_s=0.2)
            if delivery is not None:
                seen.add(delivery.body)
                delivery.ack()


async def reached(what: str, check: partial[bool], timeout_s: float = 60.0) -> None:
    async with asyncio.timeout(timeout_s):
        while not check():  # noqa: ASYNC110  (what is waited for happens in other processes)
            await asyncio.sleep(0.1)
    assert check(), what


def covers(seen: set[bytes], acked: dict[bytes, str], broker: str) -> bool:
    return {body for body, where in acked.items() if where == broker} <= seen


def count_on(acked: dict[bytes, str], broker: str, least: int) -> bool:
    return sum(where == broker for where in acked.values()) >= least


async def story(duo: Duo, driver: Driver, victim: str) -> tuple[list[Sent], dict[bytes, str]]:
    """Kill one broker while both makes send and read; return what was acknowledged."""
    survivor = JAVA if victim == OURS else OURS
    given = messages(100, seed=len(victim))
    acked: dict[bytes, str] = {}
    seen: set[bytes] = set()
    stop = asyncio.Event()
    group = f"our_readers_{victim}"
    async with roquet.connect(f"rmq://{duo.namesrv}") as mq, asyncio.TaskGroup() as tasks:
        tasks.create_task(keep_reading(mq, group, stop, seen))
        tasks.create_task(keep_sending(mq, stop, acked, victim))
        java = asyncio.create_task(
            asyncio.to_thread(driver.send, duo.namesrv, TOPIC, given, pause_ms=50)
        )
        await reached("both brokers take messages", partial(count_on, acked, victim, 5))
        duo.brokers[victim].kill()
        before = sum(where == survivor for where in acked.values())
        enough = partial(count_on, acked, survivor, before + 50)
        await reached("our producer goes on", enough)
        sent = await java
        # What the living broker acknowledged is read, while the other is away.
        acked_by_java = {
            one["body"]: answer["broker"] for one, answer in zip(given, sent, strict=True)
        }
        for table in (dict(acked), acked_by_java):
            await reached("our consumer goes on", partial(covers, seen, table, survivor))
        duo.brokers[victim].start()
        for table in (dict(acked), acked_by_java):
            await reached("what the dead one held", partial(covers, seen, table, victim))
        stop.set()
    return sent, acked


@pytest.mark.parametrize("victim", [JAVA, OURS])
def test_one_broker_is_killed_and_everybody_goes_on(duo: Duo, driver: Driver, victim: str) -> None:
    survivor = JAVA if victim == OURS else OURS
    reader = driver.stay("consumer", duo.namesrv, TOPIC, f"java_readers_{victim}")
    try:
        sent, acked = asyncio.run(story(duo, driver, victim))
        assert [answer["status"] for answer in sent] == ["SEND_OK"] * 100
        assert sum(answer["broker"] == survivor for answer in sent) >= 40
        assert {OURS, JAVA} == set(acked.values())
        until("registration", partial(registered, duo.namesrv, OURS, JAVA))
        # The Java consumer has everything as well, of both brokers, once it has committed.
        until("the Java group", partial(_is_done, duo, driver, f"java_readers_{victim}"), 90)
    finally:
        driver.leave(reader)


def _is_done(duo: Duo, driver: Driver, group: str) -> bool:
    text = driver.mqadmin("consumerProgress", "-n", duo.namesrv, "-g", group)
    rows = [line.split() for line in text.splitlines() if line.startswith(TOPIC)]
    return len(rows) == 8 and all(row[3] == row[4] for row in rows)
