"""Java's proxy 5.5.0 in cluster mode before our broker, with the official clients of gRPC."""

from __future__ import annotations

import dataclasses
import json
import time
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import pytest

from grpc_harness import SYNC_TOPIC, Peer, ProxyWorld
from interop_world import has_route, messages, until
from roquet.protocol import properties as props
from roquet.protocol.codes import RequestCode
from roquet.protocol.command import Command
from roquet.remoting.blocking import BlockingConnection
from roquet.store.records import read_records
from roquet.testing.cluster import pull_command, send_command
from timer_harness import now_ms

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from grpc_harness import Message
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


def numbered(count: int, **more: Any) -> list[Message]:
    return [{"body": b"m%d" % number, **more} for number in range(count)]


def sent(peer: Peer, topic: str, given: Sequence[Message]) -> list[Message]:
    """Send messages, all of which are stored."""
    answers = peer.send(topic, given)
    assert not [answer for answer in answers if "error" in answer], answers
    assert len({answer["id"] for answer in answers}) == len(given)
    return answers


def received(peer: Peer, group: str, count: int, timeout_s: float = 40.0) -> list[Message]:
    """Receive until so many came."""
    found: list[Message] = []
    end = time.monotonic() + timeout_s
    while len(found) < count:
        assert time.monotonic() < end, f"{len(found)} of {count}"
        found += peer.receive(group)
    return found


@pytest.mark.parametrize("make", ["python", "java"])
def test_what_is_not_acknowledged_comes_again(world: ProxyWorld, make: str) -> None:
    peer = world.peer(make)
    topic = world.topic(f"Normal-{peer.make}", "NORMAL")
    group = world.group(f"simple-{peer.make}")
    given: list[Message] = [
        {"body": b"m%d" % number, "tag": "ab"[number % 2], "keys": f"k{number}"}
        | {"properties": {"number": str(number)}}
        for number in range(5)
    ]
    ids = [answer["id"] for answer in sent(peer, topic, given)]
    peer.ask("open", topic=topic, group=group)
    came = received(peer, group, 5)
    assert sorted(one["id"] for one in came) == sorted(ids)
    for one in came:
        wanted = given[ids.index(one["id"])]
        assert (one["topic"], one["body"], one["tag"]) == (topic, wanted["body"], wanted["tag"])
        assert one["keys"] == [wanted["keys"]]
        assert one["properties"]["number"] == wanted["properties"]["number"]
        assert one["attempt"] == 1
    for number in (0, 1, 2):
        peer.ask("ack", group=group, message=ids[number])
    peer.ask("change", group=group, message=ids[3], invisible_s=13)
    first = {one["id"]: one["at_ms"] for one in came}
    again = received(peer, group, 2)
    # Each once more, neither before its time, and the second by its changed time.
    assert sorted(one["id"] for one in again) == sorted(ids[3:])
    for one in again:
        assert one["attempt"] == 2
        wait_ms = 13_000 if one["id"] == ids[3] else 10_000
        assert one["at_ms"] - first[one["id"]] >= wait_ms - 1000
        peer.ask("ack", group=group, message=one["id"])
    peer.ask("close", group=group)


def test_push_consumer_gets_a_message_that_failed_again(world: ProxyWorld, peer: Peer) -> None:
    topic = world.topic(f"Push-{peer.make}", "NORMAL")
    group = world.group(f"push-{peer.make}")
    ids = [answer["id"] for answer in sent(peer, topic, numbered(20))]
    came = peer.push(topic, group, 21, fail_once=b"m7")
    assert sorted(one["id"] for one in came) == sorted([*ids, ids[7]])
    assert [(one["id"], one["attempt"]) for one in came if one["attempt"] > 1] == [(ids[7], 2)]


def test_messages_of_a_group_come_in_order(world: ProxyWorld, peer: Peer) -> None:
    topic = world.topic(f"Fifo-{peer.make}", "FIFO")
    group = world.group(f"fifo-{peer.make}", consumeMessageOrderly=True)
    given = [{"body": b"m%d" % number, "group": "xyz"[number % 3]} for number in range(18)]
    sent(peer, topic, given)
    came = peer.push(topic, group, 18)
    for name in "xyz":
        bodies = [one["body"] for one in came if one["group"] == name]
        assert bodies == [one["body"] for one in given if one["group"] == name]


def test_delayed_messages_come_in_time_but_for_the_one_recalled(
    world: ProxyWorld, peer: Peer
) -> None:
    topic = world.topic(f"Delay-{peer.make}", "DELAY")
    group = world.group(f"delay-{peer.make}")
    # The Python client counts in whole seconds.
    now = now_ms() // 1000 * 1000
    dues = [now + 5_000, now + 6_000, now + 7_000]
    given = [{"body": b"m%d" % number, "due_ms": due} for number, due in enumerate(dues)]
    answers = sent(peer, topic, given)
    recalled = peer.ask("recall", topic=topic, handle=answers[1]["recall"])
    assert recalled == answers[1]["id"]
    came = peer.push(topic, group, 2, linger_s=1)
    assert [one["body"] for one in came] == [b"m0", b"m2"]
    assert [one["at_ms"] >= due for one, due in zip(came, dues[::2], strict=True)] == [True, True]


def test_messages_come_by_priority(world: ProxyWorld, peer: Peer) -> None:
    topic = world.topic(f"Priority-{peer.make}", "PRIORITY")
    group = world.group(f"priority-{peer.make}")
    # The Node.js client takes 0 for no priority.
    priorities = [1, 3, 2, 9] if peer.make == "node" else [1, 0, 3, 2, 9]
    given = [{"body": b"m%d" % number, "priority": number} for number in priorities]
    sent(peer, topic, given)
    peer.ask("open", topic=topic, group=group)
    came = received(peer, group, len(given))
    wanted = [number for number in (3, 9, 2, 1, 0) if number in priorities]
    assert [one["priority"] for one in came] == wanted
    assert [one["body"] for one in came] == [b"m%d" % number for number in wanted]
    peer.ask("close", group=group)


def test_simple_consumer_gets_what_its_tags_take(world: ProxyWorld, peer: Peer) -> None:
    topic = world.topic(f"Tags-{peer.make}", "NORMAL")
    group = world.group(f"tags-{peer.make}")
    given = [{"body": b"m%d" % number, "tag": "abc"[number % 3]} for number in range(9)]
    sent(peer, topic, given)
    peer.ask("open", topic=topic, group=group, expression="a || c")
    came = received(peer, group, 6)
    assert sorted(one["body"] for one in came) == [b"m0", b"m2", b"m3", b"m5", b"m6", b"m8"]
    peer.ask("close", group=group)


@pytest.mark.parametrize(("make", "kind"), [("python", "SQL"), ("java", "SQL92")])
def test_simple_consumer_gets_what_its_sql_takes(world: ProxyWorld, make: str, kind: str) -> None:
    peer = world.peer(make)
    topic = world.topic(f"Sql-{make}", "NORMAL")
    group = world.group(f"sql-{make}")
    given = [
        {"body": b"m%d" % number, "properties": {"number": str(number)}} for number in range(6)
    ]
    sent(peer, topic, given)
    peer.ask("open", topic=topic, group=group, expression="number > 2", kind=kind)
    came = received(peer, group, 3)
    assert sorted(one["body"] for one in came) == [b"m3", b"m4", b"m5"]
    peer.ask("close", group=group)


@pytest.mark.parametrize("make", ["python", "java"])
def test_halves_end_as_their_producer_says(world: ProxyWorld, make: str) -> None:
    peer = world.peer(make)
    topic = world.topic(f"Halves-{make}", "TRANSACTION")
    group = world.group(f"halves-{make}")
    wanted: list[str] = []
    for end in ("commit", "rollback", "none"):
        message = {"body": "bQ=="}
        asked = peer.ask("transaction", topic=topic, message=message, end=end, check="commit")
        if end != "rollback":
            wanted.append(asked["id"])
    came = peer.push(topic, group, 2, linger_s=2)
    assert [one["id"] for one in came] == wanted
    # The one that nobody ended, and it alone, was asked for.
    assert set(peer.ask("checked", topic=topic, check="commit")) == {wanted[1]}


def test_kind_of_message_that_the_topic_does_not_take_is_refused(world: ProxyWorld) -> None:
    peer = world.peer("python")
    topic = world.topic("OnlyNormal", "NORMAL")
    (answer,) = peer.send(topic, [{"body": b"m", "priority": 1}])
    assert "not match" in answer["error"]


def test_message_that_fails_too_often_goes_to_the_dead_letters(world: ProxyWorld) -> None:
    peer = world.peer("python")
    topic = world.topic("Fails", "NORMAL")
    group = world.group("failing", retryMaxTimes=1)
    dead = f"%DLQ%{group}"
    ids = [answer["id"] for answer in sent(peer, topic, numbered(3))]
    came = peer.push(topic, group, 4, fail_always=b"m1", linger_s=1)
    assert sorted(one["id"] for one in came) == sorted([*ids, ids[1]])
    asked = pull_command(dead)
    until("a dead letter", partial(is_answered, world, asked))
    (record,) = read_records(world.broker.ask(asked).body)
    assert (record.body, props.read(record.properties)[props.UNIQ_KEY]) == (b"m1", ids[1])


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
    until("all messages can be read", partial(is_answered, world, asked, 3))
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
    until("the proxy consumes it", partial(is_answered, world, asked))


def is_answered(world: ProxyWorld, command: Command, messages: int = 0) -> bool:
    """Tell whether a request succeeds; a pull, whether it finds so many messages."""
    answer = world.broker.ask(command)
    return answer.code == 0 and (not messages or len(read_records(answer.body)) >= messages)
