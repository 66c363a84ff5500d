"""Java's proxy before our broker: what takes longer than an invisible time, and kills."""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from typing import TYPE_CHECKING

import pytest

from grpc_harness import ProxyWorld
from interop_world import until
from roquet.testing.java import fetch_jars

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

INVISIBLE_S = 60
"""For how long the proxy hides what it gives to push consumers."""


@pytest.fixture
def world(tmp_path: Path) -> Iterator[ProxyWorld]:
    built = ProxyWorld.start(fetch_jars(), tmp_path)
    yield built
    built.stop()


def test_message_that_takes_long_is_consumed_once(world: ProxyWorld) -> None:
    peer = world.peer("python")
    topic = world.topic("Slow", "NORMAL")
    group = world.group("slow")
    (sent,) = peer.send(topic, [{"body": b"slow"}])
    # The proxy renews the invisible time while the client works; without that it comes again.
    slow_s = INVISIBLE_S + 20
    came = peer.push(topic, group, 1, slow_s=slow_s, linger_s=slow_s + 30)
    assert [(one["id"], one["attempt"]) for one in came] == [(sent["id"], 1)]
    peer.ask("open", topic=topic, group=group)
    assert peer.receive(group) == []


def test_kills_of_the_broker_lose_no_message_that_was_stored(world: ProxyWorld) -> None:
    consumer, producer = world.peer("python"), world.peer("java")
    topic = world.topic("Killed", "NORMAL")
    group = world.group("killed")
    consumer.ask("open", topic=topic, group=group)
    producer.send(topic, [{"body": b"first"}])
    numbers = itertools.count()
    stored: list[bytes] = []
    came: set[bytes] = set()
    is_over = threading.Event()

    def consume() -> None:
        while not is_over.is_set():
            # While the broker is down the proxy answers with errors.
            with contextlib.suppress(AssertionError):
                for one in consumer.receive(group):
                    came.add(one["body"])
                    consumer.ask("ack", group=group, message=one["id"])

    reader = threading.Thread(target=consume)
    reader.start()
    for kill in range(3):
        end = time.monotonic() + 12
        while time.monotonic() < end:
            bodies = [b"%d" % next(numbers) for _ in range(20)]
            answers = producer.send(topic, [{"body": body} for body in bodies])
            stored += [b for b, one in zip(bodies, answers, strict=True) if "error" not in one]
            time.sleep(0.2)
        if kill < 2:
            world.broker.close("kill")
            world.broker.open("ours")
    try:
        until("all messages", lambda: came >= set(stored), 120)
    finally:
        is_over.set()
        reader.join()
    assert len(stored) > 100
