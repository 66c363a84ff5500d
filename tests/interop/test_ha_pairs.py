"""Master and slave of both makes: equal logs, kills in the middle, reading without the master."""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING, Any

import pytest

from admin_of import admin_of
from interop_world import assert_same, make_topic, messages, until
from roquet.base.errors import RoquetError
from roquet.model.route import MASTER_ID
from roquet.protocol import fastjson
from roquet.protocol.bodies.offsets import DelayOffsetBody
from roquet.protocol.codes import RequestCode, ResponseCode
from roquet.protocol.command import Command
from roquet.testing.cluster import send_command
from roquet.testing.pair import Make, Pair, Side, compare_logs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from roquet.testing.java import Driver

TOPIC = "Paired"
PAIRS = [("java", "ours"), ("ours", "java"), ("ours", "ours")]
"""(master, slave)"""


@pytest.fixture
def made(jars: Path, tmp_path: Path) -> Iterator[Callable[..., Pair]]:
    assert jars.is_dir()
    opened: list[Pair] = []

    def make(master: Make, slave: Make, **settings: str) -> Pair:
        pair = Pair(tmp_path, master, slave, random.Random(), settings)
        opened.append(pair)
        return pair.__enter__()

    yield make
    for pair in opened:
        pair.__exit__()


def write(pair: Pair, driver: Driver, count: int, size: int, seed: int) -> list[dict[str, Any]]:
    """Send by the Java producer, and return what was sent with what it was told."""
    given = messages(count, size, seed)
    sent = driver.send(pair.namesrv, TOPIC, given)
    return [{**message, "told": answer} for message, answer in zip(given, sent, strict=True)]


def read_all(pair: Pair, driver: Driver, group: str, wrote: list[dict[str, Any]]) -> None:
    received = driver.consume(pair.namesrv, TOPIC, group, len(wrote), timeout_s=90)
    assert_same(wrote, [one["told"] for one in wrote], received)


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("master", "slave"), PAIRS)
def test_a_slave_copies_survives_kills_and_serves_alone(
    made: Callable[..., Pair], driver: Driver, master: Make, slave: Make
) -> None:
    pair = made(master, slave)
    pair.start("master")
    until("the master is registered", lambda: pair.status("master") is not None)
    make_topic(driver, pair.namesrv, pair.plans["master"], TOPIC, 2)
    wrote = write(pair, driver, 20, 100, seed=1)
    pair.start("slave")
    # An empty slave begins with the last file, and Java's comes late.
    until("the slave follows", lambda: follows(pair), 60)
    # Of a topic of its own, so that nobody consumes it; it moves the offset of a delay level.
    delayed = send_command("Delayed", b"later", 0, "DELAY\x011\x02")
    assert pair.call("master", delayed).code == ResponseCode.SUCCESS
    # Several files of 1 MiB.
    wrote += write(pair, driver, 300, 8_000, seed=2)
    pair.catch_up()
    pair.kill("slave")
    wrote += write(pair, driver, 150, 8_000, seed=3)
    pair.start("slave")
    wrote += write(pair, driver, 100, 8_000, seed=4)
    pair.catch_up()
    pair.kill("master")
    pair.start("master")
    until("sends are taken again", lambda: sends(pair), 60)
    # It takes sends a moment before the name server hears of it.
    until("the master has a route again", lambda: is_routed(pair), 60)
    wrote += write(pair, driver, 50, 8_000, seed=5)
    pair.catch_up()
    read_all(pair, driver, "with_master", wrote)
    # Java's slaves copy the tables once a minute.
    until("the slave has the topic", lambda: knows(pair, "slave", TOPIC), 120)
    until("the slave has offsets", lambda: bool(offsets(pair, "slave", "with_master")), 90)
    until("the slave has the group", lambda: has_group(pair, "slave", "with_master"), 90)
    until("the slave has the delay offset", lambda: slave_delays(pair) == master_delays(pair), 90)
    # Neither make serves timers here: they are off.
    for asked in (RequestCode.GET_TIMER_CHECK_POINT, RequestCode.GET_TIMER_METRICS):
        assert pair.call("master", Command(asked)).code == ResponseCode.SYSTEM_ERROR
    pair.stop("master")
    read_all(pair, driver, "without_master", wrote)
    code = pair.stop("slave")
    assert code == (0 if slave == "ours" else 143), "it ends in good order"
    assert compare_logs(pair.plans["master"].store, pair.plans["slave"].store) >= 4 << 20


def sends(pair: Pair) -> bool:
    try:
        return pair.call("master", send_command("Probe", b"x")).code == ResponseCode.SUCCESS
    except Exception:  # noqa: BLE001  (whatever it is, it is tried again)
        time.sleep(0.2)
        return False


def is_routed(pair: Pair) -> bool:
    """Tell whether clients are sent to the master for the topic."""
    try:
        with admin_of(pair.namesrv) as admin:
            route = admin.topics.route(TOPIC)
    except RoquetError:
        return False
    return bool(route.queues) and any(MASTER_ID in broker.addresses for broker in route.brokers)


def knows(pair: Pair, side: Side, topic: str) -> bool:
    answer = pair.call(side, Command(RequestCode.GET_ALL_TOPIC_CONFIG))
    return f'"{topic}"'.encode() in answer.body


def has_group(pair: Pair, side: Side, group: str) -> bool:
    answer = pair.call(side, Command(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG))
    return f'"{group}"'.encode() in answer.body


def master_delays(pair: Pair) -> dict[int, int]:
    """Return how far each delay level of the master is; it has moved."""
    answer = pair.call("master", Command(RequestCode.GET_ALL_DELAY_OFFSET))
    moved = dict(DelayOffsetBody.decode(answer.body).offsets)
    assert moved.get(1) == 1, moved
    return moved


def slave_delays(pair: Pair) -> dict[int, int]:
    """Return what the slave has on disk for the day that it becomes a master."""
    path = pair.plans["slave"].store / "config" / "delayOffset.json"
    return dict(DelayOffsetBody.decode(path.read_bytes()).offsets) if path.exists() else {}


def offsets(pair: Pair, side: Side, group: str) -> dict[int, int]:
    """Return what a side has of the group's offsets by queue id."""
    answer = pair.call(side, Command(RequestCode.GET_ALL_CONSUMER_OFFSET))
    table = fastjson.read_object(answer.body).get("offsetTable", {}).get(f"{TOPIC}@{group}", {})
    return {int(queue): int(str(offset)) for queue, offset in table.items()}


@pytest.mark.timeout(200)
def test_double_write_with_a_java_slave(made: Callable[..., Pair], driver: Driver) -> None:
    pair = made("ours", "java", brokerRole="SYNC_MASTER", slaveTimeout="15000")
    pair.start("master")
    alone = pair.call("master", send_command(TOPIC, b"alone"))
    assert alone.code == ResponseCode.SLAVE_NOT_AVAILABLE
    pair.start("slave")
    until("the slave follows", lambda: follows(pair), 60)
    wrote = write(pair, driver, 50, 1_000, seed=6)
    assert all(one["told"]["status"] == "SEND_OK" for one in wrote)
    pair.kill("slave")
    until("the slave is missed", lambda: not follows(pair))
    left = pair.call("master", send_command(TOPIC, b"left"))
    assert left.code == ResponseCode.SLAVE_NOT_AVAILABLE


def follows(pair: Pair) -> bool:
    status = pair.status("master")
    return status is not None and bool(status.slaves)


@pytest.mark.timeout(200)
def test_our_slave_becomes_the_master_of_what_java_wrote(
    made: Callable[..., Pair], driver: Driver
) -> None:
    pair = made("java", "ours")
    pair.start("master")
    make_topic(driver, pair.namesrv, pair.plans["master"], TOPIC, 1)
    pair.start("slave")
    wrote = write(pair, driver, 30, 1_000, seed=7)
    read_all(pair, driver, "kept", wrote)
    pair.catch_up()
    # Java's slaves copy the tables once a minute.
    until("the slave has the topic", lambda: knows(pair, "slave", TOPIC), 120)
    # A consumer reports as it goes: an early copy may hold a smaller offset.
    until("the master has the offset", lambda: offsets(pair, "master", "kept") == {0: 30}, 60)
    until("the slave has the offset", lambda: offsets(pair, "slave", "kept") == {0: 30}, 120)
    pair.kill("master")
    pair.stop("slave")
    # By hand: the slave's store with a master's configuration.
    plan = pair.plans["slave"]
    extra = {**plan.extra, "brokerId": "0", "brokerRole": "ASYNC_MASTER"}
    pair.plans["master"] = type(plan)(plan.name, plan.port, plan.namesrv, plan.store, extra)
    pair.master_make = "ours"
    pair.start("master")
    until("it leads", lambda: leads(pair), 60)
    until("it has a route", lambda: is_routed(pair), 60)
    more = write(pair, driver, 10, 1_000, seed=8)
    told = [one["told"]["offset"] for one in more]
    assert told == list(range(30, 40)), "no offset is used twice"
    received = driver.consume(pair.namesrv, TOPIC, "kept", 10)
    assert sorted(one["offset"] for one in received) == told, "the group goes on where it was"


def leads(pair: Pair) -> bool:
    status = pair.status("master")
    return status is not None and status.is_master
