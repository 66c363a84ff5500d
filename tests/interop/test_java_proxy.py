"""Java's proxy 5.5.0 in cluster mode before our broker, with the official clients of gRPC."""

from __future__ import annotations

import dataclasses
import json
from functools import partial
from typing import TYPE_CHECKING, cast

import pytest

import grpc_stories as stories
from grpc_harness import SYNC_TOPIC, Peer, ProxyWorld
from interop_world import has_route, messages, until
from roquet.protocol import properties as props
from roquet.protocol.codes import RequestCode
from roquet.protocol.command import Command
from roquet.remoting.blocking import BlockingConnection
from roquet.store.records import read_records
from roquet.testing.cluster import pull_command, send_command

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from roquet.testing.java import Driver

MAKES = ("python", "java", "node")


@pytest.fixture(scope="module")
def world(jars: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProxyWorld]:
    built = ProxyWorld.start(jars, tmp_path_factory.mktemp("proxy"))
    yield built
    built.stop()


@pytest.fixture(params=MAKES)
def peer(world: ProxyWorld, request: pytest.FixtureRequest) -> Peer:
    return world.peer(str(request.param))


@pytest.mark.parametrize("make", ["python", "java"])
def test_what_is_not_acknowledged_comes_again(world: ProxyWorld, make: str) -> None:
    stories.what_is_not_acknowledged_comes_again(world, make)


def test_push_consumer_gets_a_message_that_failed_again(world: ProxyWorld, peer: Peer) -> None:
    stories.push_consumer_gets_a_message_that_failed_again(world, peer)


def test_messages_of_a_group_come_in_order(world: ProxyWorld, peer: Peer) -> None:
    stories.messages_of_a_group_come_in_order(world, peer)


def test_delayed_messages_come_in_time_but_for_the_one_recalled(
    world: ProxyWorld, peer: Peer
) -> None:
    stories.delayed_messages_come_in_time_but_for_the_one_recalled(world, peer)


def test_messages_come_by_priority(world: ProxyWorld, peer: Peer) -> None:
    stories.messages_come_by_priority(world, peer)


def test_simple_consumer_gets_what_its_tags_take(world: ProxyWorld, peer: Peer) -> None:
    stories.simple_consumer_gets_what_its_tags_take(world, peer)


@pytest.mark.parametrize(("make", "kind"), [("python", "SQL"), ("java", "SQL92")])
def test_simple_consumer_gets_what_its_sql_takes(world: ProxyWorld, make: str, kind: str) -> None:
    stories.simple_consumer_gets_what_its_sql_takes(world, make, kind)


@pytest.mark.parametrize("make", ["python", "java"])
def test_halves_end_as_their_producer_says(world: ProxyWorld, make: str) -> None:
    stories.halves_end_as_their_producer_says(world, make)


def test_kind_of_message_that_the_topic_does_not_take_is_refused(world: ProxyWorld) -> None:
    stories.kind_of_message_that_the_topic_does_not_take_is_refused(world)


def test_message_that_fails_too_often_goes_to_the_dead_letters(world: ProxyWorld) -> None:
    stories.message_that_fails_too_often_goes_to_the_dead_letters(world)


ADDED = {"MSG_REGION", "TRACE_ON"}
"""Fields that the proxy adds to each answer."""


def forwarded(world: ProxyWorld, topic: str) -> dict[str, Command]:
    """Return requests that the proxy hands to the broker as they are."""
    where = {"topic": topic, "queueId": "0", "bname": world.broker.plan.name}
    of_group = {**where, "consumerGroup": "forwarded"}
    pull = {"subscription": "*", "expressionType": "TAG", "subVersion": "0", "sysFlag": "4"}
    pull |= {"queueOffset": "0", "maxMsgNums": "8", "commitOffset": "0"}
    pull |= {"suspendTimeoutMillis": "0", **of_group}
    queues = [{"topic": topic, "brokerName": where["bname"], "queueId": 0}]
    lock = {"consumerGroup": "forwarded", "clientId": "c", "mqSet": queues}
    locked = json.dumps(lock).encode()
    code = RequestCode
    send = send_command("ForwardedSends", b"more", 0, props.write({props.UNIQ_KEY: "more"}))
    send = dataclasses.replace(
        send, ext={**(send.ext or {}), "bname": where["bname"], "n": where["bname"]}
    )
    return {
        "pull": Command(code.PULL_MESSAGE, pull),
        "lite pull": Command(code.LITE_PULL_MESSAGE, pull),
        "pull of nothing": Command(code.PULL_MESSAGE, {**pull, "queueOffset": "99"}),
        "max": Command(code.GET_MAX_OFFSET, where),
        "min": Command(code.GET_MIN_OFFSET, where),
        "search": Command(code.SEARCH_OFFSET_BY_TIMESTAMP, {**where, "timestamp": "1"}),
        "commit": Command(code.UPDATE_CONSUMER_OFFSET, {**of_group, "commitOffset": "1"}),
        "committed": Command(code.QUERY_CONSUMER_OFFSET, of_group),
        "lock": Command(code.LOCK_BATCH_MQ, {}, locked),
        "unlock": Command(code.UNLOCK_BATCH_MQ, {}, locked),
        "send": send,
    }


def test_requests_that_the_proxy_forwards_are_answered_as_asked_directly(
    world: ProxyWorld,
) -> None:
    topic = world.topic("Forwarded", "NORMAL", 1)
    world.topic("ForwardedSends", "NORMAL")
    world.group("forwarded")
    for number in range(3):
        assert world.broker.send(b"%d" % number, topic=topic).code == 0
    asked = pull_command(topic)
    until("all messages can be read", partial(stories.is_answered, world, asked, 3))
    shown: dict[str, dict[str, tuple[int, list[str], object]]] = {}
    for way, address in (("direct", world.broker.plan.address), ("proxy", world.remoting)):
        shown[way] = {}
        with BlockingConnection(address) as connection:
            for name, command in forwarded(world, topic).items():
                answer = connection.call(command, 20.0)
                body = read_records(answer.body) if "pull" in name else answer.body
                fields = sorted((answer.ext or {}).keys() - ADDED)
                shown[way][name] = int(answer.code), fields, body
    assert shown["proxy"] == shown["direct"]
    assert b"Forwarded" in cast("bytes", shown["proxy"]["lock"][2])


def test_remoting_clients_come_through_the_proxy(world: ProxyWorld, driver: Driver) -> None:
    topic = world.topic("Remoting", "NORMAL")
    given = messages(30)
    driver.send(world.remoting, topic, given)
    came = driver.consume(world.remoting, topic, world.group("remoting"), 30)
    assert sorted(one["body"] for one in came) == sorted(one["body"] for one in given)
    group = world.group("remoting-in-order")
    came = driver.consume(world.remoting, topic, group, 30, orderly=True)
    assert sorted(one["body"] for one in came) == sorted(one["body"] for one in given)
    for queue in range(4):
        offsets = [one["offset"] for one in came if one["queue"] == queue]
        assert offsets == list(range(len(offsets)))


def test_proxy_keeps_its_topic_for_heartbeats_at_our_broker(world: ProxyWorld) -> None:
    plan = world.broker.plan
    assert has_route(plan.namesrv, SYNC_TOPIC, plan.name)
    ext = {"consumerGroup": f"CID_{SYNC_TOPIC}"}
    asked = Command(RequestCode.GET_CONSUMER_LIST_BY_GROUP, ext)
    until("the proxy consumes it", partial(stories.is_answered, world, asked))
