"""RocketMQ's proxy and ours before one broker, with a client at each of them."""

from __future__ import annotations

import functools
import json
import random
from typing import TYPE_CHECKING

import pytest

from grpc_harness import SYNC_TOPIC, Peer, ProxyWorld
from interop_world import until
from roquet.protocol.bodies.clients import ConsumerConnection, decode_consumer_ids
from roquet.protocol.codes import RequestCode
from roquet.protocol.command import Command
from roquet.remoting.blocking import BlockingConnection
from roquet.testing.java import fetch_jars, free_port, roquet_process

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.timeout(600)


class Ours:
    """Our proxy beside RocketMQ's, and a client of gRPC at it."""

    def __init__(self, world: ProxyWorld, folder: Path) -> None:
        rng = random.Random()
        self.port, remoting = free_port(rng), free_port(rng)
        self.remoting = f"127.0.0.1:{remoting}"
        folder.mkdir()
        file = folder / "rmq-proxy.json"
        file.write_text(json.dumps({"localServeAddr": "127.0.0.1", "remotingListenPort": remoting}))
        arguments = ["-n", world.broker.plan.namesrv, "-pc", str(file)]
        arguments += ["--grpc-port", str(self.port)]
        self.process = roquet_process("ours", folder / "home", "proxy", *arguments)
        self.process.start("The Proxy boot success")
        self.peer = Peer("python", folder / "peer", f"127.0.0.1:{self.port}")

    def stop(self) -> None:
        self.peer.close()
        self.process.kill()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[ProxyWorld]:
    built = ProxyWorld.start(fetch_jars(), tmp_path, "java")
    yield built
    built.stop()


@pytest.fixture
def ours(world: ProxyWorld, tmp_path: Path) -> Iterator[Ours]:
    built = Ours(world, tmp_path / "ours-proxy")
    yield built
    built.stop()


def connections(address: str, group: str) -> ConsumerConnection | None:
    """Ask a proxy what `mqadmin consumerConnection` asks."""
    asked = {"consumerGroup": group}
    with BlockingConnection(address) as connection:
        answer = connection.call(Command(RequestCode.GET_CONSUMER_CONNECTION_LIST, asked), 10.0)
    return ConsumerConnection.decode(answer.body) if answer.code == 0 else None


def clients(address: str, group: str) -> set[str]:
    """Return the ids of a group's members as a proxy tells them."""
    asked = {"consumerGroup": group}
    with BlockingConnection(address) as connection:
        answer = connection.call(Command(RequestCode.GET_CONSUMER_LIST_BY_GROUP, asked), 10.0)
    ids = set(decode_consumer_ids(answer.body)) if answer.code == 0 else set[str]()
    found = connections(address, group)
    return ids & {one.client_id for one in found.connections} if found is not None else set()


def test_proxies_of_both_makes_tell_each_other_of_members(world: ProxyWorld, ours: Ours) -> None:
    topic, group = world.topic("Mixed", "NORMAL"), world.group("mixed")
    theirs = world.peer("python")
    ours.peer.ask("open", topic=topic, group=group)
    theirs.ask("open", topic=topic, group=group)
    for address in (ours.remoting, world.remoting):
        both = functools.partial(_has_two, address, group)
        until(f"two members at {address}", both, 90)
        found = connections(address, group)
        assert found is not None
        assert found.subscriptions[topic].expression == "*"
        assert SYNC_TOPIC not in found.subscriptions
    ours.peer.ask("close", group=group)
    until("ours has gone at theirs", lambda: len(clients(world.remoting, group)) == 1, 20)


def _has_two(address: str, group: str) -> bool:
    return len(clients(address, group)) == 2
