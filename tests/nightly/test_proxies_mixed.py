"""RocketMQ's proxy and ours before one broker of either make, with a client at each of them."""

from __future__ import annotations

import functools
import json
import random
import time
from typing import TYPE_CHECKING, Any

import pytest

from grpc_calls import consumer, message, producer, received
from grpc_harness import SYNC_TOPIC, Peer, ProxyWorld
from grpc_raw import RawClient, raw_clients
from interop_world import until
from roquet.protocol.bodies.clients import ConsumerConnection, decode_consumer_ids
from roquet.protocol.codes import RequestCode
from roquet.protocol.command import Command
from roquet.proxy import messages as pb
from roquet.proxy.rules.codes import Code
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


@pytest.fixture(scope="module", params=["java", "ours"])
def world(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ProxyWorld]:
    make = str(request.param)
    built = ProxyWorld.start(fetch_jars(), tmp_path_factory.mktemp(make), make)
    yield built
    built.stop()


@pytest.fixture(scope="module")
def ours(world: ProxyWorld) -> Iterator[Ours]:
    built = Ours(world, world.folder / "ours-proxy")
    yield built
    built.stop()


@pytest.fixture(params=["from ours to theirs", "from theirs to ours"])
def ways(world: ProxyWorld, ours: Ours, request: pytest.FixtureRequest) -> tuple[str, str]:
    """Give the endpoint where something begins, and the one where it goes on."""
    both = f"127.0.0.1:{ours.port}", world.endpoint
    return both if request.param == "from ours to theirs" else both[::-1]


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


INVISIBLE_S = 12


def wanted(topic: str, group: str) -> Any:
    return received(topic, group, invisible_ms=INVISIBLE_S * 1000)


def settled(kind: Any, topic: str, group: str, message: Any, handle: str = "") -> Any:
    """Return a request about a message in flight."""
    request = kind()
    request.topic.name, request.group.name = topic, group
    system = message.system_properties
    target = request.entries.add() if kind is pb.AckMessageRequest else request
    target.message_id = system.message_id
    target.receipt_handle = handle or system.receipt_handle
    return request


def test_handle_of_one_proxy_is_settled_at_the_other(
    world: ProxyWorld, ways: tuple[str, str], request: pytest.FixtureRequest
) -> None:
    mark = f"{world.broker.plan.name}{request.node.callspec.id}".replace(" ", "")[-24:]
    name = "".join(letter for letter in mark if letter.isalnum())
    topic, group = world.topic(f"H{name}", "NORMAL", 1), world.group(f"h{name}")
    with raw_clients(ways, group) as (here, there):
        for client in (here, there):
            assert client.show(consumer(group, 3, topic)).subscription.group.name == group
        # A group begins where it first asks.
        assert here.receive(wanted(topic, group)) == (Code.MESSAGE_NOT_FOUND, [])
        sent = [message(topic, b"%d" % number, message_id=f"{number:032X}") for number in range(5)]
        assert here.call("SendMessage", pb.SendMessageRequest(messages=sent)).status.code == Code.OK
        found = here.receive_until(wanted(topic, group), 5)
        by_body = {each.body: each for each in found}
        for body in (b"0", b"1"):
            ack = settled(pb.AckMessageRequest, topic, group, by_body[body])
            answer = there.call("AckMessage", ack)
            assert (answer.status.code, answer.entries[0].status.code) == (Code.OK, Code.OK)
        # Another invisible time at the other one, acknowledged by its handle at the first.
        change = settled(pb.ChangeInvisibleDurationRequest, topic, group, by_body[b"2"])
        change.invisible_duration.seconds = 60
        changed = there.call("ChangeInvisibleDuration", change)
        assert changed.status.code == Code.OK, changed.status
        assert changed.receipt_handle != by_body[b"2"].system_properties.receipt_handle
        handle = changed.receipt_handle
        ack = settled(pb.AckMessageRequest, topic, group, by_body[b"2"], handle)
        assert here.call("AckMessage", ack).status.code == Code.OK
        bury = settled(pb.ForwardMessageToDeadLetterQueueRequest, topic, group, by_body[b"3"])
        bury.delivery_attempt, bury.max_delivery_attempts = 1, 1
        answer = there.call("ForwardMessageToDeadLetterQueue", bury)
        assert answer.status.code == Code.OK, answer.status
        # What nobody settled comes again, and nothing else does.
        again = there.receive_until(wanted(topic, group), 1)
        assert [each.body for each in again] == [b"4"]
        assert again[0].system_properties.delivery_attempt == 2
        for client in (here, there):
            code, more = client.receive(wanted(topic, group))
            assert (code, [each.body for each in more]) == (Code.MESSAGE_NOT_FOUND, [])
    dead = world.ask(
        Command(RequestCode.GET_MAX_OFFSET, {"topic": f"%DLQ%{group}", "queueId": "0"})
    )
    assert (dead.ext or {})["offset"] == "1"


def test_consumer_that_showed_its_settings_at_one_proxy_receives_at_the_other(
    world: ProxyWorld, ways: tuple[str, str], request: pytest.FixtureRequest
) -> None:
    mark = "".join(letter for letter in request.node.callspec.id if letter.isalnum())[-24:]
    topic, group = world.topic(f"S{mark}", "NORMAL", 1), world.group(f"s{mark}")
    with RawClient(ways[0], group) as here, RawClient(ways[1], group) as there:
        here.show(consumer(group, 3, topic))
        end = time.monotonic() + 60
        while True:
            # Theirs fails until it has heard of the client; its next notice comes within 30 s.
            code, found = there.receive(wanted(topic, group))
            if code == Code.MESSAGE_NOT_FOUND:
                break
            assert time.monotonic() < end, code
            time.sleep(0.5)
        sent = pb.SendMessageRequest(messages=[message(topic, b"x")])
        assert here.call("SendMessage", sent).status.code == Code.OK
        (found,) = there.receive_until(wanted(topic, group), 1)
        ack = settled(pb.AckMessageRequest, topic, group, found)
        assert there.call("AckMessage", ack).status.code == Code.OK


def half_at(client: RawClient, topic: str, number: int) -> tuple[str, str]:
    """Send a half message; return its id and that of its transaction."""
    # As many digits as the ids of RocketMQ's clients have.
    half = message(topic, b"half", message_type=4, message_id=f"01{number:032X}")
    # RocketMQ's broker ends no half message whose time is over, counted from here.
    half.system_properties.born_timestamp.GetCurrentTime()
    half.system_properties.orphaned_transaction_recovery_duration.seconds = 3600
    answer = client.call("SendMessage", pb.SendMessageRequest(messages=[half]))
    assert answer.status.code == Code.OK, answer.status
    return f"01{number:032X}", answer.entries[0].transaction_id


def end_of(topic: str, message_id: str, transaction: str) -> Any:
    request = pb.EndTransactionRequest(
        message_id=message_id, transaction_id=transaction, resolution=1
    )
    request.topic.name = topic
    return request


def test_transaction_is_ended_where_it_was_begun_and_by_ours_wherever_it_was(
    world: ProxyWorld, ours: Ours
) -> None:
    topic, group = world.topic("Halves", "TRANSACTION", 1), world.group("halves")
    both = f"127.0.0.1:{ours.port}", world.endpoint
    with raw_clients((*both, both[0]), "halves") as (mine, theirs, reader):
        reader.show(consumer(group, 3, topic))
        assert reader.receive(wanted(topic, group)) == (Code.MESSAGE_NOT_FOUND, [])
        for client in (mine, theirs):
            client.show(producer(topic))
        for number, client in enumerate((mine, theirs)):
            end = end_of(topic, *half_at(client, topic, number))
            assert client.call("EndTransaction", end).status.code == Code.OK
        # RocketMQ's proxy knows no half message but its own, so it ends none of ours.
        end = end_of(topic, *half_at(mine, topic, 2))
        refused = theirs.call("EndTransaction", end)
        assert refused.status.code == Code.INTERNAL_SERVER_ERROR, refused.status
        assert mine.call("EndTransaction", end).status.code == Code.OK
        begun_at_theirs = half_at(theirs, topic, 3)
        answer = mine.call("EndTransaction", end_of(topic, *begun_at_theirs))
        assert answer.status.code == Code.OK, answer.status
        assert len(reader.receive_until(wanted(topic, group), 4)) == 4
