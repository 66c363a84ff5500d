"""Light queues (LMQ) beside RocketMQ 5.5.0: its own examples, and one store under both makes."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import random
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from exchange_harness import Exchange, exchange
from interop_world import make_topic, until
from roquet.base.clock import SystemClock
from roquet.protocol import properties as props
from roquet.protocol.codes import RequestCode, ResponseCode
from roquet.protocol.command import Command
from roquet.remoting.client import Client
from roquet.store.records import Record, read_records
from roquet.testing.cluster import pull_command, send_command
from roquet.testing.pair import Pair, compare_logs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from roquet.testing.java import Driver
    from roquet.testing.pair import Make

HERE = Path(__file__).parent
PARENT = "Lighted"
QUEUES = ("%LMQ%a", "%LMQ%b", f"%LMQ%${PARENT}$q")
ON = {"enableLmq": "true", "enableMultiDispatch": "true"}
MAKES = {"java": "ours", "ours": "java"}


@pytest.mark.skipif(os.geteuid() != 0, reason="the examples' ports need a network namespace: root")
def test_the_examples_of_rocketmq_work(jars: Path, tmp_path: Path) -> None:
    consumers = ("LMQPullConsumer", "LMQPushConsumer", "LMQPushPopConsumer")
    command = [sys.executable, str(HERE / "light_examples.py"), str(jars), str(tmp_path)]
    done = subprocess.run(
        ["unshare", "-n", *command, *consumers],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE.parent), *sys.path])},
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    shown = dict(line.split() for line in done.stdout.splitlines())
    assert shown == {
        "LMQProducer": "128",
        # It pulls once.
        "LMQPullConsumer": "32",
        "LMQPushConsumer": "128",
        "LMQPushPopConsumer": "128",
    }


@pytest.fixture
def swap(jars: Path, driver: Driver, tmp_path: Path) -> Iterator[Exchange]:
    for built in exchange(jars, driver, tmp_path):
        built.plan = dataclasses.replace(built.plan, extra={**built.plan.extra, **ON})
        yield built


def send(swap: Exchange, first: int, count: int) -> None:
    """Send messages that are in one, two or three of the light queues."""
    given = [
        {
            "body": b"%d" % number,
            "tags": "ab"[number % 2],
            "properties": {
                props.INNER_MULTI_DISPATCH: ",".join(QUEUES[: 1 + number % 3]),
                "own": str(number),
            },
        }
        for number in range(first, first + count)
    ]
    sent = swap.driver.send(swap.namesrv, PARENT, given)
    assert {one["status"] for one in sent} == {"SEND_OK"}


def expected(count: int) -> dict[str, list[tuple[int, str]]]:
    """Return what each light queue has of so many messages: body and noted offsets."""
    found: dict[str, list[tuple[int, str]]] = {name: [] for name in QUEUES}
    for number in range(count):
        names = QUEUES[: 1 + number % 3]
        offsets = ",".join(str(len(found[name])) for name in names)
        for name in names:
            found[name].append((number, offsets))
    return found


def pulled(swap: Exchange, name: str) -> list[Record]:
    """Return all that a light queue gives by plain pulls."""

    async def run() -> list[Record]:
        client = Client(clock=SystemClock())
        await client.start()
        try:
            found: list[Record] = []
            while True:
                command = pull_command(name, len(found))
                answer = await client.call(swap.plan.address, command, 20.0)
                if not answer.body:
                    return found
                found += read_records(answer.body)
        finally:
            await client.stop()

    return asyncio.run(run())


def has(swap: Exchange, name: str, count: int) -> bool:
    return len(pulled(swap, name)) == count


def check(swap: Exchange, count: int) -> None:
    """Compare what the light queues give, after so many messages, with what they must."""
    for name, wanted in expected(count).items():
        until(f"all of {name}", partial(has, swap, name, len(wanted)))
        records = pulled(swap, name)
        said = [props.read(one.properties) for one in records]
        assert {one.topic for one in records} == {PARENT}
        found = [
            (int(one.body), text[props.INNER_MULTI_QUEUE_OFFSET])
            for one, text in zip(records, said, strict=True)
        ]
        assert found == wanted
        assert {text[props.WAIT] for text in said} == {"true"}
        assert [text["own"] for text in said] == [str(number) for number, _ in wanted]


def units_of(store: Path) -> dict[str, bytes]:
    """Return the bytes of the light queues' files, without the rest that nobody has written."""
    folder = store / "consumequeue"
    return {name: (folder / name / "0" / f"{0:020}").read_bytes().rstrip(b"\0") for name in QUEUES}


@pytest.mark.parametrize("writer", ["java", "ours"])
def test_light_queues_go_from_one_make_to_the_other(swap: Exchange, writer: str) -> None:
    swap.open(writer)
    make_topic(swap.driver, swap.namesrv, swap.plan, PARENT, 2)
    send(swap, 0, 60)
    check(swap, 60)
    swap.close("stop")
    written = units_of(swap.plan.store)
    # The other make builds its queues from the log: byte for byte the same.
    shutil.rmtree(swap.plan.store / "consumequeue")
    swap.open(MAKES[writer])
    check(swap, 60)
    send(swap, 60, 30)
    check(swap, 90)
    swap.close("stop")
    made = units_of(swap.plan.store)
    for name, before in written.items():
        assert made[name][: len(before)] == before, name
    swap.open(writer)
    send(swap, 90, 10)
    check(swap, 100)
    swap.close("kill")
    swap.open(MAKES[writer])
    check(swap, 100)


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("master", "slave"), [("java", "ours"), ("ours", "java")])
def test_a_slave_has_the_light_queues_of_its_master(
    jars: Path, tmp_path: Path, master: Make, slave: Make
) -> None:
    assert jars.is_dir()
    with Pair(tmp_path, master, slave, random.Random(), ON) as pair:
        pair.start("master")
        until("the master is registered", lambda: pair.status("master") is not None)
        pair.start("slave")
        for number in range(40):
            text = props.write({props.INNER_MULTI_DISPATCH: ",".join(QUEUES[: 1 + number % 3])})
            command = send_command(PARENT, b"%d" % number, 0, text)
            until(f"send {number}", partial(is_taken, pair, command))
        pair.catch_up()
        # Ours writes the files of queues out at the latest when it stops.
        until("the slave has dispatched all", partial(has_dispatched, pair, 40))
        pair.stop("master")
        pair.stop("slave")
        assert compare_logs(pair.plans["master"].store, pair.plans["slave"].store) > 0
        assert are_same(pair)


def is_taken(pair: Pair, command: Command) -> bool:
    return pair.call("master", command).code == ResponseCode.SUCCESS


def has_dispatched(pair: Pair, count: int) -> bool:
    ext = {"topic": QUEUES[0], "queueId": "0"}
    answer = pair.call("slave", Command(RequestCode.GET_MAX_OFFSET, ext=ext))
    return (answer.ext or {}).get("offset") == str(count)


def are_same(pair: Pair) -> bool:
    """Tell whether both have the same units of each light queue, and all of them."""
    found = [units_of(plan.store) for plan in pair.plans.values()]
    return found[0] == found[1] and len(found[0][QUEUES[0]]) > 39 * 20
