"""SQL92 filters: our evaluation beside Java's own classes, and consumers of both sides."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import TYPE_CHECKING

import pytest

import roquet
from interop_world import messages
from roquet._native import Filter
from roquet.client import Sql
from roquet.protocol import properties
from roquet.protocol.sql92.compiler import compile_sql
from roquet.protocol.tags import ExpressionError
from sql92_cases import Case, cases

if TYPE_CHECKING:
    from interop_world import World
    from roquet.testing.java import Driver

CASES = 20_000


def verdict(case: Case) -> str:
    try:
        compiled = Filter(compile_sql(case.expression))
    except ExpressionError:
        return "X"
    try:
        result = compiled.evaluate(properties.write(case.properties).encode())
    except ValueError:
        return "E"
    return {True: "T", False: "F", None: "N"}[result]


def test_every_answer_is_javas(driver: Driver) -> None:
    given = cases(20, CASES)
    theirs = driver.filter([dataclasses.asdict(case) for case in given])
    ours = "".join(verdict(case) for case in given)
    differing = [
        (case.expression, case.properties, java, own)
        for case, java, own in zip(given, theirs, ours, strict=True)
        if java != own
    ]
    assert differing == []
    assert min(theirs.count(letter) for letter in "TFNEX") > CASES // 100


def test_a_java_consumer_filters_by_sql_at_our_broker(world: World) -> None:
    topic = world.topic("Sql", world.ours)
    given = messages(30, seed=92)
    sent = world.driver.send(world.ours.namesrv, topic, given)
    received = world.driver.consume(
        world.ours.namesrv, topic, "sql_java", 5, sql="number >= 20 AND TAGS = 'b'", linger_s=1.0
    )
    wanted = [one for one in given if int(one["properties"]["number"]) >= 20 and one["tags"] == "b"]
    assert len(wanted) == 5
    assert sorted(one["body"] for one in received) == sorted(one["body"] for one in wanted)
    assert len(sent) == len(given)


@pytest.mark.parametrize("name", ["java", "ours"])
def test_our_consumer_filters_by_sql_at_either_broker(world: World, name: str) -> None:
    side = world.java if name == "java" else world.ours
    topic = world.topic(f"SqlOurs-{name}", side)
    given = messages(30, seed=93)
    world.driver.send(side.namesrv, topic, given)

    async def work() -> list[bytes]:
        found: list[bytes] = []
        by_sql = {topic: Sql("number NOT BETWEEN 3 AND 27")}
        async with (
            asyncio.timeout(60),
            roquet.connect(f"rmq://{side.namesrv}") as mq,
            mq.consumer(f"sql_ours_{name}", by_sql, start="earliest") as consumer,
        ):
            while len(found) < 5:
                delivery = await consumer.receive(timeout_s=30)
                assert delivery is not None
                found.append(delivery.body)
                delivery.ack()
            assert await consumer.receive(timeout_s=0.5) is None
        return found

    wanted = [one["body"] for one in given if not 3 <= int(one["properties"]["number"]) <= 27]
    assert sorted(asyncio.run(work())) == sorted(wanted)
