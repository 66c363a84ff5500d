"""RocketMQ's own programs for timer messages, unchanged, at our broker."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
from typing import TYPE_CHECKING

import pytest

from broker_harness import ext
from roquet.protocol.codes import RequestCode
from roquet.protocol.command import Command
from roquet.testing.java import fetch_jars, java_command
from roquet.testing.pair import wait_until
from timer_harness import TimerBroker, TimerWorld

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator
    from pathlib import Path

EXAMPLES = "org.apache.rocketmq.example"
QUEUES = 4
SHOWN = re.compile(
    r"Avg delayedDuration: +(\S+), Max delayedDuration: (-?[1-9]\d*),.* %25: (-?\d+),"
)
"""What the benchmark's consumer prints of the last seconds: average, most, a quarter, in ms."""


@pytest.fixture
def world(tmp_path: Path) -> Iterator[TimerWorld]:
    with TimerWorld(fetch_jars(), tmp_path) as built:
        yield built


@pytest.fixture
def broker(world: TimerWorld) -> TimerBroker:
    made = world.broker("timed", {"defaultTopicQueueNums": str(QUEUES)})
    made.open("ours")
    return made


def stored(broker: TimerBroker, topic: str) -> int:
    """Return how many messages a topic has."""
    places = [{"topic": topic, "queueId": str(queue_id)} for queue_id in range(QUEUES)]
    answers = [broker.ask(Command(RequestCode.GET_MAX_OFFSET, ext=place)) for place in places]
    return sum(int(ext(answer)["offset"]) for answer in answers if answer.code == 0)


@contextlib.contextmanager
def program(world: TimerWorld, folder: Path, name: str, *arguments: str) -> Generator[Path]:
    """Run an example, and yield the file of its output."""
    folder.mkdir(exist_ok=True)
    output = folder / f"{name}.out"
    command = java_command(fetch_jars(), folder, f"{EXAMPLES}.{name}", *arguments, heap="128m")
    with output.open("wb") as out:
        child = subprocess.Popen(
            command,
            stdout=out,
            stderr=subprocess.STDOUT,
            env={**os.environ, "NAMESRV_ADDR": world.namesrv, "HOME": str(folder)},
        )
    try:
        yield output
    finally:
        child.kill()
        child.wait()


@pytest.mark.usefixtures("broker")
def test_timer_message_producer_and_consumer_of_the_examples_work(
    world: TimerWorld, tmp_path: Path
) -> None:
    with program(world, tmp_path / "p", "schedule.TimerMessageProducer") as sent:
        wait_until("sends", lambda: sent.read_text().count("SEND_OK") == 10, 60)
        with program(world, tmp_path / "c", "schedule.TimerMessageConsumer") as got:
            wait_until("ten messages", lambda: got.read_text().count("ms later") >= 10, 120)
            waited = [int(it) for it in re.findall(r"(\d+)  ms later", got.read_text())]
    assert len(waited) == 10
    assert min(waited) >= 10_000


def test_benchmark_of_timers_gets_all_messages_and_none_early(
    world: TimerWorld, broker: TimerBroker, tmp_path: Path
) -> None:
    """Its messages are due from two minutes on, and its consumer says how late they came."""
    where = ("-n", world.namesrv, "-t", "BenchmarkTimers")
    sends = ("-tc", "2", "-st", "3", "-mt", "5", "-ms", "64")
    with program(world, tmp_path / "p", "benchmark.timer.TimerProducer", *where, *sends) as sent:
        wait_until("the start", lambda: "Start sending" in sent.read_text(), 60)
        with program(world, tmp_path / "c", "benchmark.timer.TimerConsumer", *where) as got:
            wait_until("all messages", lambda: stored(broker, "BenchmarkTimers") == 30, 240)
            wait_until("its figures", lambda: bool(SHOWN.findall(got.read_text())), 60)
            found = SHOWN.findall(got.read_text())
    assert all(float(it) >= 0 for shown in found for it in shown), found
