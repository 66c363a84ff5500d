"""Java clients of 5.5.0 that know our proxy's remoting port alone, before our broker."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import threading
from typing import TYPE_CHECKING

import pytest

from interop_world import messages, until
from remoting_proxy_harness import proxy
from roquet.testing.cluster import Cluster, cluster

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator
    from pathlib import Path

    from roquet.proxy.remoting.app import RemotingProxy
    from roquet.testing.java import Driver


@dataclasses.dataclass
class Through:
    """A cluster and a proxy on a loop of their own, since the tests wait for Java's clients."""

    loop: asyncio.AbstractEventLoop
    cluster: Cluster
    proxy: RemotingProxy

    @property
    def address(self) -> str:
        """What Java's clients are told as their name server."""
        return f"127.0.0.1:{self.proxy.server.port}"


@contextlib.contextmanager
def running(folder: Path) -> Generator[Through]:
    """Run a cluster of two brokers and the port on a thread."""
    ready = threading.Event()
    made: list[Through] = []
    ends: list[asyncio.Event] = []

    async def run() -> None:
        changes = {"transactionCheckInterval": "1000", "transactionTimeOut": "1000"}
        async with contextlib.AsyncExitStack() as stack:
            it = await stack.enter_async_context(cluster(folder, "broker-a", "broker-b", **changes))
            door = await stack.enter_async_context(proxy(it.name_servers))
            ends.append(asyncio.Event())
            made.append(Through(asyncio.get_running_loop(), it, door))
            ready.set()
            await ends[0].wait()

    thread = threading.Thread(target=asyncio.run, args=(run(),))
    thread.start()
    try:
        assert ready.wait(60), "the cluster has not started"
        yield made[0]
    finally:
        if made:
            made[0].loop.call_soon_threadsafe(ends[0].set)
        thread.join(60)


@pytest.fixture(scope="module")
def through(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Through]:
    with running(tmp_path_factory.mktemp("through")) as built:
        yield built


def topic(through: Through, driver: Driver, name: str, kind: str = "NORMAL") -> str:
    """Make a topic on both brokers, by their own addresses."""
    for broker in through.cluster.brokers:
        driver.mqadmin(
            *("updateTopic", "-n", through.cluster.name_servers, "-b", broker.identity.address),
            *("-t", name, "-r", "4", "-w", "4", "-a", f"+message.type={kind}"),
        )
    table = through.cluster.name_server.table
    until(f"route of {name}", lambda: len(table.topics.get(name, {})) == 2)
    return name


def test_java_sends_and_consumes_through_the_proxy(through: Through, driver: Driver) -> None:
    name = topic(through, driver, "Java")
    # The group's retry topic has to be there when the consumer asks for its routes.
    assert driver.consume(through.address, name, "java_push", 0) == []
    table = through.cluster.name_server.table
    until("the retry topic", lambda: len(table.topics.get("%RETRY%java_push", {})) == 2)
    given = messages(40)
    sent = driver.send(through.address, name, given)
    assert {answer["broker"] for answer in sent} == {"broker-a", "broker-b"}
    # Some of them fail once: sent back through the proxy, they come again.
    pushed = driver.consume(
        through.address, name, "java_push", len(given) + 1, fail_once=given[3]["keys"]
    )
    keys = sorted([message["keys"] for message in given] + [given[3]["keys"]])
    assert sorted(one["keys"] for one in pushed) == keys
    polled = driver.lite_pull(through.address, name, "java_lite", len(given))
    assert sorted(one["body"] for one in polled) == sorted(message["body"] for message in given)
    until("no client is left", lambda: through.proxy.sessions.connections == 0)


def test_java_consumes_in_order_by_locks_through_the_proxy(
    through: Through, driver: Driver
) -> None:
    name = topic(through, driver, "JavaOrder")
    given = messages(30)
    for index, message in enumerate(given):
        message["properties"]["shard"] = str(index % 3)
    sent = driver.send(through.address, name, given, mode="ordered")
    came = driver.consume(through.address, name, "java_order", len(given), orderly=True)
    assert len(came) == len(sent) == len(given)
    for shard in range(3):
        numbers = [
            int(one["properties"]["number"])
            for one in came
            if one["properties"]["shard"] == str(shard)
        ]
        assert numbers == list(range(shard, 30, 3))


def test_java_transactions_are_checked_through_the_proxy(through: Through, driver: Driver) -> None:
    name = topic(through, driver, "JavaHalves", "TRANSACTION")
    client = driver.exchange("transactions", namesrv=through.address, group="java_tx")
    try:
        given = [
            {"body": "YQ==", "keys": "committed", "local": "commit"},
            {"body": "Yg==", "keys": "dropped", "local": "rollback"},
            {"body": "Yw==", "keys": "asked", "check": "commit"},
        ]
        sent = driver.exchange("transact", client=client, topic=name, messages=given)
        assert {answer["status"] for answer in sent} == {"SEND_OK"}
        came = driver.consume(through.address, name, "java_tx_readers", 2, linger_s=1.0)
        assert sorted(one["keys"] for one in came) == ["asked", "committed"]
        assert driver.exchange("checked", client=client) == ["asked"]
    finally:
        driver.exchange("close", client=client)
